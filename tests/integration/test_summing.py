"""Figures of a day: counted by the database, summed by a beat, and the same as counted one by one from all rows."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from dataclasses import fields
from datetime import datetime, timedelta
from typing import Any

import pytest

from locks.connection import execute
from scheduler.audit import bodies_of
from scheduler.charts import Window
from scheduler.dashboard import rows
from scheduler.dashboard.facts import RefusedRow, TickRow
from scheduler.dashboard.figures import Figures, count
from scheduler.dashboard.summary import SLICE, aligned, figures_in, parts_to_count
from scheduler.dashboard.summing import sum_up
from scheduler.models import Execution, Schedule, SliceTally, SummedSlice, Tick
from scheduler.pruning import prune
from tests.support.engine import database_now, make_schedule, make_tick

pytestmark = pytest.mark.django_db

STEP = 2 * SLICE


def second(value: float) -> timedelta:
    return timedelta(seconds=value)


def ledger(seed: int, start: datetime, hours: float = 2.0, number: int = 300) -> None:
    """Ticks of every outcome; bodies that meet, repeat, outlive each other, die and come back; three lock names."""
    luck = random.Random(seed)
    schedules = [
        make_schedule("baseline", alias="none", once_per_tick=False),
        make_schedule("one", alias="redis", lock_name="shared"),
        make_schedule("two", alias="redis", lock_name="shared"),
        make_schedule("alone", alias="database"),
    ]
    for _ in range(number):
        schedule, at = luck.choice(schedules), start + second(luck.uniform(0, hours * 3600))
        outcome = luck.choice(["executed"] * 6 + ["failed", "lost", "abandoned", "prevented", "blocked", "misfired"])
        state = "misfired" if outcome == "misfired" else "closed"
        tick = make_tick(
            schedule, fire_time=at, state=state, outcome=outcome, reason="x", planned_at=at,
            missed_count=luck.randint(0, 4) if state == "misfired" else 0,
        )  # fmt: skip
        if outcome in ("executed", "failed", "lost", "abandoned") or luck.random() < 0.1:
            for copy in range(1 if tick.once_per_tick else luck.randint(1, 3)):
                known = outcome if outcome in ("executed", "failed", "lost", "abandoned") else "retried"
                body(tick, at + second(luck.uniform(0, 3) + copy), known, luck)
        if luck.random() < 0.3:
            refuse(tick, at, luck.choice(["prevented", "duplicate", "late"]))


def body(tick: Tick, at: datetime, state: str, luck: random.Random, **fields: Any) -> Execution:
    ran = luck.choice([0.01, 2.0, 30.0, 400.0])
    end = at + second(ran + luck.choice([0, 0.005, 2]))
    return Execution.objects.create(
        **{
            "tick": tick, "guarded": tick.once_per_tick, "lock_name": tick.lock_name, "lock_alias": tick.lock_alias,
            "lease_id": uuid.uuid4(), "worker": "w", "began": luck.random() < 0.95, "recorded_at": at,
            "started_at": at, "heartbeat_at": at + second(ran / 2), "state": state, "ended_at": end,
            "ran": None if state == "abandoned" else ran,
            "returned_at": end + second(100) if state == "abandoned" and luck.random() < 0.5 else None,
            **fields,
        }
    )  # fmt: skip


def refuse(tick: Tick, at: datetime, state: str) -> None:
    Execution.objects.create(
        tick=tick, guarded=tick.once_per_tick, lock_name=tick.lock_name, lock_alias=tick.lock_alias, state=state,
        worker="w", recorded_at=at, reason="x",
    )  # fmt: skip


def one_by_one(window: Window, step: int, schedule_id: int | None = None) -> Figures:
    """The figures from all rows, by the pure definition."""
    known = Tick.objects.filter(fire_time__gte=window.start, fire_time__lt=window.end)
    known = known if schedule_id is None else known.filter(schedule_id=schedule_id)
    ticks = [
        TickRow(
            t.pk, t.schedule_id, t.schedule_name, t.task, t.fire_time, t.state, t.outcome, t.lock_name, t.lock_alias,
            t.once_per_tick, t.missed_count,
        )
        for t in known
    ]  # fmt: skip
    refused = Counter(
        Execution.objects.filter(tick__in=known, state__in=("prevented", "duplicate")).values_list(
            "tick__schedule_id", "tick__schedule_name", "tick__task", "state", "tick__lock_alias",
            "tick__once_per_tick",
        )
    )  # fmt: skip
    counted = [RefusedRow(*row[:4], number, None, *row[4:]) for row, number in refused.items()]
    return count(ticks, bodies_of(Execution.objects.all()), counted, step=step, unlocked=rows.unlocked_aliases())


def plain(figures: Figures) -> dict[str, Any]:
    """As values, without the zeros of counters."""

    def tally(found: Any) -> dict[str, Any]:
        told = {field.name: getattr(found, field.name) for field in fields(found)}
        return {
            k: {w: n for w, n in sorted(v.items()) if n} if isinstance(v, Counter) else v for k, v in told.items()
        }

    return {
        "total": tally(figures.total),
        "bins": [(one.start, {w: n for w, n in one.values.items() if n}) for one in figures.bins],
        "groups": {
            name: {"tally": tally(found), "bins": {one.start: dict(one.values) for one in bins}}
            for name, (found, bins) in figures.groups.items()
        },
        "schedules": {key: tally(found) for key, found in figures.schedules.items()},
    }


def differences(found: Any, expected: Any) -> dict[str, Any]:
    """Where two nests of dicts differ, by the path to it."""
    if not (isinstance(found, dict) and isinstance(expected, dict)):
        return {} if found == expected else {"": (found, expected)}
    return {
        f"{key} {path}": values
        for key in {*found, *expected}
        for path, values in differences(found.get(key), expected.get(key)).items()
    }


def test_a_body_that_took_hours_is_met_by_one_that_began_at_its_end() -> None:
    """Twice: within one stretch that is counted, and from a slice that is summed long after it began."""
    now, luck = database_now(), random.Random(1)
    schedule = make_schedule("nightly", alias="redis")
    for hours, state in ((9, "executed"), (5, "abandoned")):
        for ago, ran in ((hours, 3.0), (hours - 2.9, 0.1)):
            at = now - second(3600 * ago)
            tick = make_tick(schedule, fire_time=at, state="closed", outcome="executed", planned_at=at)
            end = at + second(3600 * ran)
            body(tick, at, state, luck, began=True, ended_at=end, heartbeat_at=end, returned_at=None)
    for window in (Window(start=now - second(10 * 3600), end=now), Window(start=now - second(3 * 3600), end=now)):
        expected = plain(one_by_one(aligned(window, STEP), STEP))
        assert expected["total"]["hit"], "they met"
        assert differences(plain(figures_in(aligned(window, STEP), STEP)[0]), expected) == {}
    while sum_up(20):
        pass
    assert differences(plain(figures_in(aligned(window, STEP), STEP)[0]), expected) == {}
    bodies, _ = rows.bodies_in(Window(start=now - second(3600 * 2.5), end=now))
    assert len(bodies) == 2


@pytest.mark.parametrize("seed", range(6))
def test_counted_by_the_database_and_summed_is_as_counted_one_by_one(seed: int) -> None:
    now = database_now()
    ledger(seed, now - second(3 * 3600))
    window = aligned(Window(start=now - second(4 * 3600), end=now), STEP)
    expected = plain(one_by_one(window, STEP))
    assert expected["total"]["too_many"], "the ledger has collisions"
    assert differences(plain(figures_in(window, STEP)[0]), expected) == {}
    while sum_up(7):
        pass
    assert left(window) == 0, "only the newest stretch is left"
    assert SliceTally.objects.count() > 20
    assert differences(plain(figures_in(window, STEP)[0]), expected) == {}
    for schedule in Schedule.objects.all():
        alone = plain(figures_in(window, STEP, schedule.pk)[0])
        assert differences(alone, plain(one_by_one(window, STEP, schedule.pk))) == {}


def left(window: Window) -> int:
    """Ticks of parts that are to be counted though they are long over."""
    *old, _ = parts_to_count(window, STEP)
    return sum(Tick.objects.filter(fire_time__gte=part.start, fire_time__lt=part.end).count() for part in old)


def summed() -> tuple[Tick, Window]:
    """One tick without the guard, an hour ago, whose slice is summed."""
    now = database_now()
    schedule = make_schedule("baseline", alias="none", once_per_tick=False)
    at = now - second(3600)
    tick = make_tick(schedule, fire_time=at, state="closed", outcome="executed", planned_at=at)
    body(tick, at, "executed", random.Random(1), began=True, ended_at=at + second(1), ran=1.0)
    while sum_up(20):
        pass
    SummedSlice.objects.update(summed_at=now - second(60))
    return tick, aligned(Window(start=now - second(7200), end=now), STEP)


def renewed(window: Window) -> Figures:
    """The figures after a round that finds what is stale; it is found again for fifteen seconds, as told there."""
    sum_up(20)
    assert left(window) == 0
    return figures_in(window, STEP)[0]


def test_a_copy_that_runs_later_is_in_the_next_sum() -> None:
    tick, window = summed()
    assert renewed(window).total.too_many["duplicate"] == 0
    at = database_now()
    SummedSlice.objects.update(summed_at=at - second(60))
    body(tick, at, "executed", random.Random(1), began=True, ended_at=at, ran=0.0)
    assert renewed(window).total.too_many["duplicate"] == 1


def test_a_fire_time_that_is_named_late_is_in_the_next_sum() -> None:
    tick, window = summed()
    make_tick(
        tick.schedule, fire_time=tick.fire_time + second(1), state="misfired", outcome="misfired", reason="late",
        missed_count=5,
    )  # fmt: skip
    assert renewed(window).total.missed == 5


def test_a_worker_that_comes_back_is_in_the_next_sum() -> None:
    tick, window = summed()
    first = tick.executions.get()
    Execution.objects.filter(pk=first.pk).update(state="abandoned", ran=None)
    later = make_tick(tick.schedule, fire_time=tick.fire_time + second(5), state="closed", outcome="executed")
    at = first.started_at + second(9)
    body(later, at, "executed", random.Random(1), began=True, ended_at=at + second(1), ran=1.0)
    assert renewed(window).total.too_many["overlap"] == 0
    SummedSlice.objects.update(summed_at=database_now() - second(60))
    Execution.objects.filter(pk=first.pk).update(returned_at=database_now())
    assert renewed(window).total.too_many["overlap"] == 1


@pytest.mark.parametrize("what", ["tick", "body"])
def test_what_is_not_over_is_not_summed(what: str) -> None:
    now = database_now()
    at = now - second(3600)
    schedule = make_schedule("long")
    over = {"state": "closed", "outcome": "executed"} if what == "body" else {"state": "dispatched"}
    tick = make_tick(schedule, fire_time=at, planned_at=at, **over)
    if what == "body":
        body(tick, at, "running", random.Random(1), began=True, ended_at=None, ran=None, returned_at=None)
    while sum_up(20):
        pass
    window = aligned(Window(start=now - second(7200), end=now), STEP)
    assert [part for part in parts_to_count(window, STEP) if part.start <= at < part.end]
    assert figures_in(window, STEP)[0].total.ticks == 1


def test_one_process_sums_at_a_time() -> None:
    at = database_now() - second(3600)
    make_tick(make_schedule("nightly"), fire_time=at, state="closed", outcome="executed", planned_at=at)
    assert execute("SELECT pg_try_advisory_lock(hashtext('aegis summing'))") == [(True,)]
    try:
        assert sum_up() == 0
    finally:
        execute("SELECT pg_advisory_unlock(hashtext('aegis summing'))")
    assert sum_up() > 0


def test_pruned_ticks_take_their_sums_with_them() -> None:
    now = database_now()
    schedule = make_schedule("nightly")
    for age in (200, 100, 3):
        at = now - second(3600 * age)
        make_tick(schedule, fire_time=at, state="closed", outcome="executed", planned_at=at, closed_at=at)
        SummedSlice.objects.create(start=aligned(Window(start=at, end=now), STEP).start)
    prune(timedelta(hours=50))
    assert SummedSlice.objects.count() == 1


def test_what_beats_delete_after_some_days_is_not_summed_anew(settings: Any) -> None:
    """A seldom schedule keeps its newest tick, and each minute the slices since then were summed and deleted."""
    make_tick(make_schedule("seldom"), seconds_ago=5 * 86_400, state="closed", outcome="executed")
    settings.AEGIS = {"KEEP_DAYS": 1}
    while sum_up(5_000):
        pass
    prune(timedelta(days=1))
    assert SummedSlice.objects.count() >= 280
    assert sum_up(5_000) <= 1  # the one that the border goes through
