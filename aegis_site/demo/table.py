"""The result as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import groupby

from rich.table import Table

from aegis_site.demo.results import Result, Switches

# From this width on all columns have room, characters.
WIDE = 185


@dataclass(frozen=True, slots=True)
class Column:
    """One figure: its heading, its text, and whether it is among the few that a narrow terminal shows."""

    heading: str
    text: Callable[[Result], str]
    narrow: bool = False
    left: bool = False


def _alarm(text: str, count: int) -> str:
    """What must be zero and is not stands out."""
    return f"[bold red]{text}[/]" if count else text


def _guard(one: Result | Switches) -> str:
    return "on" if one.once_per_tick else "off"


def _changed(before: Iterable[str], now: str) -> list[str]:
    """What was and what is, each once in a row."""
    return [word for word, _ in groupby([*before, now])]


def _overlaps(row: Result) -> str:
    possible = f" (+{row.overlaps_possible} possible)" if row.overlaps_possible else ""
    return _alarm(f"{row.overlaps}{possible}", row.overlaps)


def _waits(row: Result) -> str:
    return "-" if row.acquire_p50_ms is None else f"{row.acquire_p50_ms:.1f} / {row.acquire_p99_ms:.1f}"


COLUMNS = (
    Column("schedule", lambda row: row.name, narrow=True, left=True),
    Column("lock", lambda row: " → ".join(_changed([one.lock for one in row.before], row.lock)), left=True),
    Column("guard", lambda row: " → ".join(_changed(map(_guard, row.before), _guard(row))), narrow=True, left=True),
    Column("ticks", lambda row: str(row.ticks), narrow=True),
    Column("executed", lambda row: str(row.executed)),
    Column("prevented", lambda row: str(row.prevented), narrow=True),
    Column("dup. deliveries", lambda row: str(row.duplicate_deliveries)),
    Column("duplicates", lambda row: _alarm(str(row.duplicates), row.duplicates), narrow=True),
    Column("overlaps", _overlaps, narrow=True),
    Column("missed", lambda row: _alarm(str(row.missed), row.missed), narrow=True),
    Column("acquire p50/p99 ms", _waits),
    Column("effects", lambda row: str(row.ledger_effects)),
    Column("effects doubled", lambda row: _alarm(str(row.ledger_duplicates), row.ledger_duplicates)),
    Column("settled twice", lambda row: _alarm(row.ledger_settled_twice, row.ledger_duplicates)),
)


def table(rows: list[Result], title: str, width: int) -> Table:
    """One row a schedule; a terminal narrower than ``WIDE`` gets the columns that matter most."""
    columns = [column for column in COLUMNS if column.narrow or width >= WIDE]
    made = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        made.add_column(column.heading, justify="left" if column.left else "right", no_wrap=number == 0)
    for row in rows:
        made.add_row(*(column.text(row) for column in columns))
    return made
