"""A table for people: columns as wide as their longest cell, no escape codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """The rows below their head; an empty cell is a dash."""
    cells = [[str(cell) if cell not in (None, "") else "-" for cell in row] for row in (head, *rows)]
    wide = [max(len(row[n]) for row in cells) for n in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in cells
    )


def of_rows(rows: Sequence[Mapping[str, Any]], without: Sequence[str] = ()) -> str:
    """Rows that have the same keys, below these; nothing where there is no row."""
    head = [key for key in rows[0] if key not in without] if rows else []
    return table([key.replace("_", " ").upper() for key in head], [[_cell(row[key]) for key in head] for row in rows])


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "; ".join(value) if isinstance(value, list) else value
