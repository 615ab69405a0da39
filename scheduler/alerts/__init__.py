"""Alerts: conditions that need a human, found by rules, kept as rows, told to channels."""

from __future__ import annotations
