"""A known mistake and the tests that must see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """Replace ``old`` (a regular expression) by ``new`` in ``file``; then each of ``caught_by`` must fail.

    ``never_left_out``: tried each time.
    """

    mistake: str
    file: str
    old: str
    new: str
    caught_by: tuple[str, ...]
    never_left_out: bool = False
