"""The one error of the embedded services."""

from __future__ import annotations


class EmbeddedError(Exception):
    """A service could not be started, stopped or found. The message is one or two sentences and holds the remedy."""
