"""Broken rows, a clock that was set, a zone whose rules changed, another strategy at once: what mends what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.conf import settings as project
from django.db import connection, transaction

from aegis_site.celery import app
from locks import lock_backends
from scheduler import ticker as ticker_module
from scheduler.changes import Refused
from scheduler.context import RunContext
from scheduler.healing import heal, repair
from scheduler.minting import mint
from scheduler.models import Execution, LockName, Schedule, ScheduleChange, Tick
from scheduler.notes import is_far_away
from scheduler.retargeting import retarget
from scheduler.runner import run
from scheduler.states import ExecutionState, TickState
from scheduler.ticker import Ticker
from tests.integration.test_runner import in_a_thread, nothing
from tests.integration.test_ticker import QUEUE, due_schedule
from tests.support.engine import database_now, delivery_of, make_schedule, make_tick, mint_all
from tests.support.tasks import limited

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def empty_queue() -> None:
    with app.connection_for_write() as broker:
        broker.default_channel.client.delete(QUEUE)


def without(alias: str, settings: Any) -> None:
    settings.LOCKS = {name: value for name, value in project.LOCKS.items() if name != alias}


def test_a_row_that_was_broken_by_locks_heals_when_a_beat_starts_with_locks_mended(settings: Any) -> None:
    due_schedule(alias="redis")
    before = dict(project.LOCKS)
    without("redis", settings)
    beat = Ticker()
    beat.tick()
    assert "redis" in Schedule.objects.get().broken_reason
    beat.tick()
    assert Schedule.objects.get().broken_reason  # not looked at in each pass

    settings.LOCKS = before
    Ticker().tick()
    schedule = Schedule.objects.get()
    assert schedule.broken_reason == ""
    assert Tick.objects.filter(schedule=schedule).exists()


def test_broken_rows_are_looked_at_once_a_minute_and_cost_no_other_pass(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[int] = []
    now = [1000.0]
    monkeypatch.setattr(ticker_module, "heal", lambda: looked.append(1))
    monkeypatch.setattr(ticker_module, "boottime", lambda: now[0])
    beat = Ticker()
    for _ in range(119):
        beat._heal()
        now[0] += 1.0
    assert len(looked) == 2


def test_a_row_that_is_still_broken_stays_marked_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    broken, good = due_schedule("broken"), due_schedule("good")
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET every_seconds = NULL, cron_expression = '61 * * * *' WHERE id = %s",
            [broken.pk],
        )
    Ticker().tick()
    caplog.clear()
    assert "61" in heal()["broken"]
    assert not caplog.records
    good.refresh_from_db()
    assert good.broken_reason == ""
    with pytest.raises(Refused, match=r"still broken.*61"):
        repair("broken", who="ops")
    with pytest.raises(Refused, match="Nothing is wrong"):
        repair("good", who="ops")


@pytest.mark.parametrize("way", ["ttl", "alias"])
def test_an_edit_of_what_broke_a_row_is_followed_at_once(way: str) -> None:
    """The TTL is the row's own, the strategy another table's."""
    schedule = due_schedule(alias="redis")
    if way == "ttl":
        Schedule.objects.update(broken_reason="the TTL is too short")
        Schedule.objects.update(ttl=30)
    else:
        Schedule.objects.update(broken_reason="no such strategy")
        LockName.objects.update(alias_wanted="database")
    schedule.refresh_from_db()
    assert schedule.broken_reason == ""


def test_what_passed_while_a_row_was_broken_is_the_misfire_policys_business() -> None:
    schedule = due_schedule(activated=100, misfire_grace=5)
    Schedule.objects.update(broken_reason="was broken")
    assert heal() == {schedule.name: ""}
    mint()
    assert Tick.objects.exclude(state=TickState.MISFIRED).count() <= 7
    assert sum(Tick.objects.filter(state=TickState.MISFIRED).values_list("missed_count", flat=True)) >= 93


def test_a_broken_row_that_somebody_holds_does_not_keep_a_strategy_from_coming_into_force() -> None:
    """A forgotten transaction on it must not stop the beats, which put the strategy in force."""
    good, held = due_schedule("good", lock_name="shared"), due_schedule("held", lock_name="shared")
    Schedule.objects.filter(pk=held.pk).update(broken_reason="no such strategy")
    LockName.objects.filter(pk="shared").update(alias_wanted="redis")
    Schedule.objects.filter(pk=held.pk).update(broken_reason="no such strategy")
    with transaction.atomic():
        Schedule.objects.filter(pk=held.pk).update(notes="forgotten")
        made = in_a_thread(impatient_mint)
        assert {tick.schedule_id for tick in made} == {good.pk}
        assert {tick.lock_alias for tick in made} == {"redis"}
    held.refresh_from_db()
    assert held.broken_reason
    assert heal() == {"held": ""}


def impatient_mint() -> tuple[Tick, ...]:
    with connection.cursor() as cursor:
        cursor.execute("SET lock_timeout = '3s'")
    return mint().ticks


# a clock that was set, and a zone whose rules changed


def minutely(misfire: str = "fire_once") -> Schedule:
    """A schedule of every minute whose next fire time is stored."""
    schedule = make_schedule("minutely", every_seconds=60, misfire=misfire, queue=QUEUE)
    mint()
    schedule.refresh_from_db()
    assert schedule.next_fire_at is not None
    return schedule


def set_the_clock(schedule: Schedule, seconds: float) -> None:
    """As the row looks after the database's clock was set forward (positive) or back."""
    assert schedule.next_fire_at is not None
    assert schedule.activated_at is not None
    step = timedelta(seconds=seconds)
    Schedule.objects.filter(pk=schedule.pk).update(
        next_fire_at=schedule.next_fire_at - step, activated_at=schedule.activated_at - step
    )
    schedule.refresh_from_db()


@pytest.mark.parametrize(("misfire", "fires"), [("skip", 1), ("fire_once", 1), ("fire_all", 60)])
def test_a_clock_set_forward_is_an_outage_to_the_policy_once(misfire: str, fires: int) -> None:
    schedule = minutely(misfire)
    set_the_clock(schedule, 3 * 3600)
    mint_all()
    fired = Tick.objects.exclude(state=TickState.MISFIRED).count()
    assert fires - 1 <= fired <= fires + 1
    missed = sum(Tick.objects.filter(state=TickState.MISFIRED).values_list("missed_count", flat=True))
    assert 179 <= fired + missed <= 181
    stored = Tick.objects.count()
    mint()
    assert Tick.objects.count() <= stored + 1  # a minute may have begun meanwhile
    schedule.refresh_from_db()
    assert schedule.next_fire_at is not None and schedule.next_fire_at > database_now()


def test_a_clock_set_back_is_shown_and_a_repair_names_the_next_run_anew() -> None:
    schedule = minutely()
    assert not is_far_away(schedule, database_now())
    set_the_clock(schedule, -86_400)
    assert is_far_away(schedule, database_now())
    assert mint().ticks == ()
    repair("minutely", who="ops")
    mint()
    schedule.refresh_from_db()
    assert schedule.next_fire_at is not None
    assert 0 < (schedule.next_fire_at - database_now()).total_seconds() <= 60
    assert not Tick.objects.exists()
    assert ScheduleChange.objects.get().who == "ops"


def test_the_name_that_was_stored_fires_although_the_zones_rules_have_changed_since() -> None:
    """Named under other rules, half an hour beside what the recurrence says now; it fires once, under its name."""
    schedule = make_schedule("daily", cron_expression="30 2 * * *", time_zone="Europe/Lisbon", queue=QUEUE)
    mint()
    named = database_now().replace(second=17, microsecond=0) - timedelta(minutes=1)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE aegis_scheduler_schedule SET next_fire_at = %s, activated_at = %s WHERE id = %s",
            [named, named - timedelta(days=1), schedule.pk],
        )
    (tick,) = mint().ticks
    assert tick.fire_time == named
    schedule.refresh_from_db()
    assert schedule.next_fire_at == schedule.recurrence().next_after(database_now())
    assert mint().ticks == ()


# another strategy


def test_a_wanted_strategy_waits_and_each_schedule_of_the_name_gets_a_row() -> None:
    first = make_schedule("first", alias="redis", lock_name="shared")
    make_schedule("second", alias="redis", lock_name="shared")
    make_tick(first)
    done = retarget("first", "database", why="ticket 3", who="ops")
    assert (done.in_force, done.wanted) == ("redis", "database")
    lock = LockName.objects.get()
    assert (lock.alias_in_force, lock.alias_wanted) == ("redis", "database")
    assert set(ScheduleChange.objects.values_list("schedule_name", "who", "reason")) == {
        ("first", "ops", "ticket 3"),
        ("second", "ops", "ticket 3"),
    }
    with pytest.raises(Refused, match="already"):
        retarget("first", "database", who="ops")


def test_now_changes_it_under_a_running_body_and_messages_on_their_way_are_refused() -> None:
    """Only bodies that are inside may be overlapped: no message of the old strategy starts another one."""
    schedule = make_schedule("report", alias="redis", overlap="queue_one")
    sent, waits = make_tick(schedule, seconds_ago=10), make_tick(schedule, seconds_ago=5)
    Tick.objects.filter(pk=waits.pk).update(state=TickState.WAITING)
    Tick.objects.filter(pk=sent.pk).update(state=TickState.DISPATCHED)
    on_its_way = delivery_of(sent)

    def body(context: RunContext) -> None:
        done = in_a_thread(lambda: retarget("report", "database", now=True, who="ops"))
        assert (done.open_ticks, done.running) == (3, 1)
        late = in_a_thread(lambda: run(on_its_way, nothing))
        assert late.state is ExecutionState.PREVENTED  # the running body still holds the old strategy's lease

    ran = run(delivery_of(make_tick(schedule, seconds_ago=20)), body)
    assert ran.state is ExecutionState.EXECUTED
    assert run(on_its_way, nothing).execution.reason.startswith("the strategy of the name was changed")
    again = Tick.objects.get(pk=sent.pk)
    assert (again.state, again.lock_alias) == (TickState.DISPATCHED, "database")
    assert again.dispatch_at <= database_now()
    assert run(delivery_of(again), nothing).state is ExecutionState.EXECUTED
    assert Tick.objects.get(pk=waits.pk).lock_alias == "database"
    assert "at once" in ScheduleChange.objects.get().after["strategy in force"]
    assert Execution.objects.filter(lock_alias="redis", began=True).count() == 1


def test_now_helps_where_the_strategy_in_force_has_left_locks(settings: Any) -> None:
    schedule = due_schedule(alias="redis")
    tick = make_tick(schedule, seconds_ago=100)
    without("redis", settings)
    Ticker().tick()
    assert Schedule.objects.get().broken_reason
    assert run(delivery_of(tick), nothing).state is ExecutionState.BLOCKED

    retarget("each-second", "database", now=True, why="redis was shut down", who="ops")

    Ticker().tick()
    assert Schedule.objects.get().broken_reason == ""
    assert set(Tick.objects.exclude(state=TickState.MISFIRED).values_list("lock_alias", flat=True)) == {"database"}
    tick.refresh_from_db()
    assert tick.ttl == lock_backends["database"].ttl
    assert run(delivery_of(tick), nothing).state is ExecutionState.EXECUTED


def test_a_strategy_that_cannot_guard_the_schedule_is_refused() -> None:
    make_schedule("report", task=limited.name)
    with pytest.raises(Refused, match=r"'etcd'.*database"):
        retarget("report", "etcd", who="ops")
    with pytest.raises(Refused, match=r"'report'.*300 s"):
        retarget("report", "optimistic", who="ops")
    assert not ScheduleChange.objects.exists()
