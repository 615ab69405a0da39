"""The table behind "Show as table": what a chart draws, in words. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell: ``iso`` makes it a time element, ``url`` a link, ``number`` sets it to the right."""

    text: str
    iso: str = ""
    url: str = ""
    number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A heading; its column of numbers is set to the right."""

    title: str
    number: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """``head`` names the row and is its header cell."""

    head: Cell
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A caption, scoped headings and rows, in the order of the chart's marks."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle in pixels."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return round(self.x + self.width, 1)

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return round(self.y + self.height, 1)
