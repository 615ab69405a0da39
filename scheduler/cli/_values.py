"""Values on the command line: what is wrong with one is told with the value and an example."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

from django.utils.dateparse import parse_datetime


def instant(text: str) -> datetime:
    """An instant with a zone: nobody can say when a local time of an unknown host is."""
    at = None
    with suppress(ValueError):
        at = parse_datetime(text)
    if at is None or at.utcoffset() is None:
        raise ArgumentTypeError(f"{text!r} is not an instant with a zone; write for example 2027-01-31T06:00Z")
    return at


def whole(most: int) -> Callable[[str], int]:
    """A reader of whole numbers from 1 to ``most``."""

    def read(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise ArgumentTypeError(f"{text!r} is not a whole number from 1 to {most}")
        return int(text)

    return read
