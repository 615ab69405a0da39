"""Strategies: what each did in the window, and, apart from that, what soaks measured of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.utils import timezone

from scheduler.charts import BarChart, strips
from scheduler.charts.scale import window_words
from scheduler.cli import offers
from scheduler.dashboard.bounds import interval_words, none_of
from scheduler.dashboard.counted import Counted, counted
from scheduler.dashboard.figures import Tally
from scheduler.dashboard.latency import Takeover, Times, takeovers, times
from scheduler.dashboard.measured import Measured, measured
from scheduler.dashboard.outcomes import DUPLICATE, OVERLAP, POSSIBLE, RAN_ONCE
from scheduler.dashboard.params import WIDTH, span_links, stamp
from scheduler.dashboard.tiles import share
from scheduler.states import TickOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was counted in the window, how long things took, and the runs that were loaded."""

    counted: Counted
    times: dict[str, Times]
    takeovers: dict[str, Takeover]
    measured: Measured | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A count with the interval of its rate."""

    number: int
    interval: str
    tone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One strategy, the tick guard apart."""

    name: str
    ticks: int
    ran_once: str
    overlaps: Rate
    possible: Rate
    duplicates: Rate
    missed: int
    blocked: int
    acquire: str
    ran: str
    takeover: str
    longest: str


def report(given: Mapping[str, str]) -> Report:
    """Count the window; percentiles are of a bounded sample."""
    found = counted(given)
    aliases = sorted({name for tally, _ in found.figures.groups.values() for name in tally.strategies})
    return Report(
        counted=found,
        times=times(found.window, aliases, found.filter.schedule_id),
        takeovers=takeovers(found.window, found.filter.schedule_id),
        measured=measured(),
    )


def rows(found: Report) -> list[Row]:
    """The table, the worst first."""
    return [_row(name, tally, found) for name, (tally, _) in found.counted.figures.groups.items()]


def _row(name: str, tally: Tally, found: Report) -> Row:
    alias = next(iter(tally.strategies), "")
    took, died = found.times.get(alias), found.takeovers.get(alias)
    return Row(
        name=name,
        ticks=tally.ticks,
        ran_once=share(tally.outcomes[RAN_ONCE], tally.ticks) if tally.ticks else "-",
        overlaps=_rate(tally, OVERLAP, "bad"),
        possible=_rate(tally, POSSIBLE, "warn"),
        duplicates=_rate(tally, DUPLICATE, "bad"),
        missed=tally.missed,
        blocked=tally.ended[TickOutcome.BLOCKED],
        acquire=_span(took.acquire if took else None, 1, "ms"),
        ran=_span(took.ran if took else None, 2, "s"),
        takeover=f"{died.median:.1f} s" if died else "no death seen",
        longest=_longest(died) if died else "",
    )


def _rate(tally: Tally, word: str, tone: str) -> Rate:
    """The count is of bodies, the interval of the share of ticks that had one."""
    number = tally.too_many[word]
    return Rate(number=number, interval=interval_words(tally.hit[word], tally.ticks), tone=tone if number else "")


def _span(pair: tuple[float, float] | None, digits: int, unit: str) -> str:
    return "-" if pair is None else f"{pair[0]:.{digits}f} / {pair[1]:.{digits}f} {unit}"


def _longest(died: Takeover) -> str:
    return f"longest {died.longest:.1f} s, {died.deaths} death{'' if died.deaths == 1 else 's'}"


def context(found: Report, timeline: str, data: str) -> dict[str, Any]:
    """What the template prints."""
    params, here = found.counted.params, found.counted
    return {
        "title": "Strategies",
        **here.frame(),
        "spans": span_links(params, here.span),
        "when": window_words(here.window, timezone.get_current_timezone()),
        "rows": rows(found),
        "strips": _strips(here, timeline),
        "measured": found.measured,
        "soak": offers("soak"),
        "data_url": params.url(data, window=here.span),
    }


def _strips(found: Counted, timeline: str) -> list[BarChart]:
    """One small chart for each strategy, on one scale, an empty one where nothing collided."""
    groups, params = found.figures.groups, found.params

    def links_of(strategy: str) -> Callable[[datetime, datetime, str], str]:
        def link(start: datetime, end: datetime, word: str) -> str:
            return params.url(timeline, window=None, strategy=strategy, **{"from": start, "to": end})

        return link

    charts = strips(
        {name: bins for name, (_, bins) in groups.items()},
        window=found.window,
        step=found.step,
        zone=timezone.get_current_timezone(),
        links={name: links_of(next(iter(tally.strategies))) for name, (tally, _) in groups.items()},
        width=WIDTH,
        height=92,
    )
    return [replace(chart, summary=_sentence(groups[chart.title][0])) for chart in charts]


def _sentence(tally: Tally) -> str:
    """What a strip shows."""
    if not tally.collided:
        return f"{none_of(tally.ticks)} collided."
    words = {OVERLAP: "proven overlap", POSSIBLE: "possible overlap", DUPLICATE: "duplicate"}
    counts = [(tally.too_many[word], name) for word, name in words.items()]
    told = ", ".join(f"{number:,} {name}{'' if number == 1 else 's'}" for number, name in counts if number)
    return f"{tally.collided:,} of {tally.ticks:,} ticks collided: {told}."


def as_json(found: Report) -> dict[str, Any]:
    """The figures, instants in UTC."""
    window = found.counted.window
    return {
        "schema": "aegis.strategies.1",
        "window": {"start": stamp(window.start), "end": stamp(window.end), "asked": found.counted.span},
        "observed": [
            {
                "name": row.name, "ticks": row.ticks, "overlaps_proven": row.overlaps.number,
                "overlaps_possible": row.possible.number, "duplicates": row.duplicates.number, "missed": row.missed,
                "blocked": row.blocked,
            }
            for row in rows(found)
        ],
        "times": {
            alias: {"runs": one.number, "acquire_ms": one.acquire, "ran_s": one.ran}
            for alias, one in found.times.items()
        },
        "measured": found.measured.as_json() if found.measured else None,
    }  # fmt: skip
