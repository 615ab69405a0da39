"""The result as a table for people."""

from __future__ import annotations

from rich.table import Table

from aegis_site.demo.results import Result

COLUMNS = (
    "schedule", "lock", "tick guard", "ticks", "executed", "prevented", "dup. deliveries", "duplicates", "overlaps",
    "missed", "acquire p50/p99 ms", "effects", "effects doubled", "settled twice",
)  # fmt: skip


def table(rows: list[Result], title: str) -> Table:
    """One row a schedule; what must be zero and is not stands out."""
    made = Table(title=title, title_justify="left", caption_justify="left")
    for number, column in enumerate(COLUMNS):
        made.add_column(column, justify="left" if number < 3 else "right", no_wrap=number == 0)
    for row in rows:
        made.add_row(*_cells(row))
    return made


def _cells(row: Result) -> list[str]:
    waits = "-" if row.acquire_p50_ms is None else f"{row.acquire_p50_ms:.1f} / {row.acquire_p99_ms:.1f}"
    overlaps = f"{row.overlaps}" + (f" (+{row.overlaps_possible} possible)" if row.overlaps_possible else "")
    return [
        row.name,
        row.lock,
        "on" if row.once_per_tick else "off",
        str(row.ticks),
        str(row.executed),
        str(row.prevented),
        str(row.duplicate_deliveries),
        _alarm(str(row.duplicates), row.duplicates),
        _alarm(overlaps, row.overlaps),
        _alarm(str(row.missed), row.missed),
        waits,
        str(row.ledger_effects),
        _alarm(str(row.ledger_duplicates), row.ledger_duplicates),
        _alarm(row.ledger_settled_twice, row.ledger_duplicates),
    ]


def _alarm(text: str, count: int) -> str:
    return f"[bold red]{text}[/]" if count else text
