"""The version of this package. The build reads it from here; each process shows it beside its heartbeat."""

from __future__ import annotations

VERSION = "0.1.0"
