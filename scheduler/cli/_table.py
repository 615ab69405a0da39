"""A table for people: columns as wide as their longest cell, no escape codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The rows below their head; an empty cell is a dash."""
    cells = [[str(cell) if cell not in (None, "") else "-" for cell in row] for row in (head, *rows)]
    wide = [max(len(row[n]) for row in cells) for n in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in cells
    )
