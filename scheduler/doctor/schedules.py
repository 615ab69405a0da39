"""The catalog: schedules that do not fire as their owner thinks, and lock names that do not guard as they think."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from django.utils import timezone

from locks import Finding
from locks.connection import execute
from locks.findings import fail, ok, warn
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.report import named
from scheduler.models import Schedule
from scheduler.notes import is_far_away, is_starved, noted

TOPIC = "schedules"
PATIENCE = 2.5  # seconds for one answer of the database
Catalog = Sequence[Scheduled]
SOON = 60.0  # seconds for which a change of strategy may wait without a word

# Out: the lock names whose strategy is to change: open ticks, and the age of the oldest of them and of the wish.
_WAITING = """
SELECT n.name, n.alias_in_force, n.alias_wanted, count(t.id),
       coalesce(extract(epoch FROM clock_timestamp() - min(t.planned_at)), 0)::float8,
       (SELECT extract(epoch FROM clock_timestamp() - max(c.changed_at)) FROM aegis_scheduler_schedulechange c
        JOIN aegis_scheduler_schedule s ON s.id = c.schedule_id
        WHERE s.lock_id = n.name AND c.after ? 'strategy')::float8
FROM aegis_scheduler_lockname n
LEFT JOIN aegis_scheduler_tick t
       ON t.lock_name = n.name AND t.state IN ('planned', 'dispatched', 'waiting', 'started')
WHERE n.alias_wanted <> n.alias_in_force AND n.alias_in_force <> ''
GROUP BY n.name ORDER BY n.name
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One schedule that is switched on, as it stands now."""

    name: str
    broken: str = ""
    finished: bool = False  # no fire time is left, and it is none of those that fire once
    far_away: bool = False
    starved: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A lock name whose strategy is to change. ``since``: seconds since somebody wished it, where it is known."""

    name: str
    in_force: str
    wanted: str
    open_ticks: int = 0
    oldest: float = 0.0
    since: float | None = None


def ask() -> tuple[list[Row], list[Waiting]]:
    """Raises what the database raises."""
    now = timezone.now()
    rows = [
        Row(
            name=row.name,
            broken=row.broken_reason,
            finished=row.exhausted and row.once_at is None,
            far_away=is_far_away(row, now),
            starved=is_starved(row),
        )
        for row in noted(Schedule.objects.filter(enabled=True).order_by("name"))
    ]
    names = ("name", "in_force", "wanted", "open_ticks", "oldest", "since")
    waiting = [Waiting(**dict(zip(names, row, strict=True))) for row in execute(_WAITING, timeout=PATIENCE)]
    return rows, waiting


def judge(
    rows: Sequence[Row], waiting: Sequence[Waiting], scheduled: Sequence[Scheduled], aliases: Collection[str]
) -> Iterator[Finding]:
    found = [
        *_fire(rows),
        *_strategies(scheduled, waiting, aliases),
        *(_change(one) for one in waiting if _is_late(one)),
        *_two_names(scheduled),
    ]
    yield from found
    if not found:
        yield ok(TOPIC, f"{len(rows)} schedules are switched on; none is broken, starved, finished or too far away")


def _fire(rows: Sequence[Row]) -> Iterator[Finding]:
    for row in rows:
        if row.broken:
            yield fail(
                TOPIC, f"{row.name} is broken and does not fire: {row.broken}",
                f"Correct it; it is read again by itself, or at once by `aegis schedules repair {row.name}`.",
            )  # fmt: skip
    far = [row.name for row in rows if row.far_away]
    if far:
        yield fail(
            TOPIC, f"{named(far)}: the next run is further away than one period: the database's clock was set back, "
            "or the rules of the zone were changed; nothing fires until then",
            f"`aegis schedules repair {sorted(far)[0]}` names it anew.",
        )  # fmt: skip
    finished = [row.name for row in rows if row.finished]
    if finished:
        yield warn(
            TOPIC, f"{named(finished)}: switched on, and will never fire again: its window is over",
            "Move the end of its window, or disable it.",
        )  # fmt: skip
    starved = [row.name for row in rows if row.starved]
    if starved:
        yield warn(
            TOPIC, f"{named(starved)}: refused three times in a row, because another run always has the lock name",
            "Let one tick wait (queue one), or give it a lock name or time of its own.",
        )  # fmt: skip


def _strategies(
    scheduled: Sequence[Scheduled], waiting: Sequence[Waiting], aliases: Collection[str]
) -> Iterator[Finding]:
    missing: defaultdict[str, list[str]] = defaultdict(list)
    for row in scheduled:
        if row.alias not in aliases:
            missing[row.alias].append(row.name)
    for change in waiting:
        if change.wanted not in aliases:
            missing[change.wanted].append(f"lock name {change.name}")
    for alias, names in sorted(missing.items()):
        yield fail(
            TOPIC, f"{named(names)}: strategy {alias!r} is not in LOCKS; every run is blocked",
            f"Define LOCKS[{alias!r}], or `aegis schedules retarget NAME --strategy ALIAS --now`.",
        )  # fmt: skip


def _is_late(one: Waiting) -> bool:
    """With nothing open it comes into force when a schedule of the name is due next."""
    return one.open_ticks > 0 and (one.since is None or one.since > SOON)


def _change(one: Waiting) -> Finding:
    since = f" for {one.since:.0f} s" if one.since is not None else ""
    return warn(
        TOPIC, f"lock name {one.name}: {one.in_force!r} is in force, {one.wanted!r} was wanted{since}; "
        f"{one.open_ticks} ticks are open, the oldest for {one.oldest:.0f} s: the name is never idle",
        f"`aegis schedules retarget NAME --strategy {one.wanted} --now`, or pause its schedules until none is open.",
    )  # fmt: skip


def _two_names(scheduled: Sequence[Scheduled]) -> Iterator[Finding]:
    """One job under two lock names is guarded by neither."""
    jobs: defaultdict[tuple[str, str, str], list[Scheduled]] = defaultdict(list)
    for row in scheduled:
        jobs[row.job].append(row)
    for job, rows in sorted(jobs.items()):
        names = {row.lock_name for row in rows}
        if len(names) > 1:
            yield warn(
                TOPIC, f"{named(row.name for row in rows)} run {job[0]} with the same arguments under {len(names)} "
                "lock names: they do not exclude each other",
                "Give them one lock name, unless they may run at the same time.",
            )  # fmt: skip
    apart = [row for row in scheduled if row.own_lock_name and row.own_lock_name != row.lock_name]
    if apart:
        yield warn(
            TOPIC, f"{named(row.name for row in apart)}: calls of the task, such as delay(), run under another lock "
            f"name than it ({apart[0].lock_name}, {apart[0].own_lock_name}): they do not exclude each other",
            "Give the schedule that lock name, or declare the schedule's: @exclusive_task(lock_name=...).",
        )  # fmt: skip
