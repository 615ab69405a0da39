"""Text of errors, fit to be stored and shown: without passwords, and such as the database can keep."""

from __future__ import annotations

import re

HIDDEN = "***"

# user:password@ of a URL, up to the last @ of the word: an unquoted password may hold all but a space.
_IN_URL = re.compile(r"(://[^\s:/?#@]*):\S*@")
# password=..., 'password': "...", as connection strings and settings spell it.
_NAMED = re.compile(
    r"(?i)((?:password|passwd|pwd|secret_?key|api_?key)[\"']?\s*[=:]\s*)('[^']*'|\"[^\"]*\"|[^\s,;]+)"
)
# What Python says of a URL whose unquoted password holds a /, # or ?: it takes the part before that for the port.
_PORT = re.compile(r"(Port could not be cast to integer value as )('.*'|\".*\")")


def describe(raised: BaseException) -> str:
    """Class and message of an exception, also where its ``__str__`` raises."""
    try:
        message = str(raised)
    except Exception as fault:
        message = f"(its message cannot be read: {type(fault).__name__})"
    return f"{type(raised).__name__}: {message}"


def storable(text: str, limit: int) -> str:
    """``text`` in at most ``limit`` characters, passwords hidden, and without what PostgreSQL cannot keep.

    That is NUL, and lone surrogates, which have no encoding. Without this a body that raised ``ValueError("\\0")``
    could not be recorded as failed.
    """
    clean = _PORT.sub(rf"\1{HIDDEN}", _NAMED.sub(rf"\1{HIDDEN}", _IN_URL.sub(rf"\1:{HIDDEN}@", text[: 4 * limit])))
    return clean.replace("\0", "\\0").encode("utf-8", "backslashreplace").decode()[:limit]
