"""The schedules of a soak: every strategy, short and long bodies, all three answers to a lost lease."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from locks import lock_backends
from scheduler.models import LockName, Schedule
from scheduler.models.tick import Delivery

TTL = 6.0  # seconds, of every lease
TASKS = "aegis_site.soak.tasks."


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of schedule: its task, how long the body takes, how many of it each strategy gets.

    ``outlasts``: the body takes ``seconds`` more than a period.
    """

    word: str
    task: str
    seconds: float
    number: int = 1
    finish: bool = False
    outlasts: bool = False


KINDS = (
    Kind(word="short", task="count", seconds=0.3, number=2),
    Kind(word="long", task="count", seconds=0.5, outlasts=True),
    Kind(word="finish", task="count", seconds=0.3, finish=True),
    Kind(word="interrupt", task="count_interrupted", seconds=0.3),
    Kind(word="kill", task="count_killed", seconds=0.3),
)
BASELINE = Kind(word="baseline", task="count", seconds=0.3)


def wanted(aliases: Iterable[str]) -> list[tuple[str, Kind, int]]:
    """The schedules of the strategies ``aliases``: strategy, kind, and the number of that kind."""
    return [
        (alias, kind, number)
        for alias in aliases
        for kind in ((BASELINE,) if alias == "none" else _kinds(alias))
        for number in range(1, kind.number + 1)
    ]


def seed(schedules: Iterable[tuple[str, Kind, int]], *, period: int, tick_guard: bool, commit_guard: bool) -> None:
    """Store ``schedules``, each every ``period`` seconds; with a guard off it is off for all of them."""
    for alias, kind, number in schedules:
        _store(alias, kind, number, period, tick_guard and alias != "none", commit_guard)


def _kinds(alias: str) -> list[Kind]:
    """All, but for the timer that ends a process at the end of its trust window where a strategy has none."""
    trusts = lock_backends[alias].trust_window
    return [kind for kind in KINDS if trusts or kind.task != "count_killed"]


def _store(alias: str, kind: Kind, number: int, period: int, tick_guard: bool, commit_guard: bool) -> None:
    seconds = kind.seconds + (period if kind.outlasts else 0)
    name = f"{alias}-{kind.word}-{number}"
    lock = LockName.objects.create(name=f"soak.{name}", alias_wanted=alias)
    Schedule.objects.create(
        name=name,
        task=f"{TASKS}{kind.task}",
        kwargs={"seconds": seconds, "guarded": commit_guard, "finish": kind.finish and commit_guard},
        every_seconds=period,
        lock=lock,
        ttl=TTL if alias != "none" else None,
        once_per_tick=tick_guard,
        delivery=Delivery.ONE_WORKER if alias != "none" else Delivery.EVERY_WORKER,
        misfire_grace=60,
    )
