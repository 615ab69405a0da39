"""The one error of the embedded services."""

from __future__ import annotations


class EmbeddedError(Exception):
    """A service could not be started, stopped or found. The message says what to do about it."""


class FolderInUse(EmbeddedError):
    """Another process runs services in this folder."""
