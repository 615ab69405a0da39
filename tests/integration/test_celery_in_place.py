"""Celery's signals, refusals and retries met by one run in this process, where each instant can be chosen."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from billiard.common import _shutdown_cleanup, clear_terminate_handler_fired
from billiard.pool import soft_timeout_sighandler
from celery import Celery
from celery.exceptions import Ignore, SoftTimeLimitExceeded

from aegis_site.celery import app
from locks import Lease, LeaseLost, LockNotAcquired, lock_backends
from scheduler import ExclusiveTask, RunContext, exclusive_task, is_skipped
from scheduler.body import RetryLater
from scheduler.celery_signals import note_revoked
from scheduler.delivery import HEADER, stamp
from scheduler.failpoints import hooked
from scheduler.loss import OnLost, main_thread
from scheduler.loss.main_thread import MainThread
from scheduler.models import Execution, LockName, Tick
from scheduler.publisher import publish
from scheduler.refusal import Refused
from scheduler.runner import run
from scheduler.states import ExecutionState, TickState
from tests.integration.test_waiting_starts import await_starts, fence_locked, in_the_background
from tests.support import wait_until
from tests.support.engine import delivery_of, make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)

PLACES = ["after-acquire", "after-start", "after-body", "before-release"]


@exclusive_task(lock="database", lock_name="place.part")
def part(context: RunContext) -> str:
    return "part"


@exclusive_task(lock="database", lock_name="place.retrying", bind=True, max_retries=3)
def retrying(self: ExclusiveTask, context: RunContext) -> None:
    raise self.retry(countdown=0)


@exclusive_task(lock="database", lock_name="place.auto", autoretry_for=(Exception,), default_retry_delay=0)
def autoretrying(context: RunContext) -> None:
    raise LeaseLost("gone", name=context.lock_name)


@pytest.fixture(autouse=True)
def clean_app() -> Celery:
    app.set_current()
    return app


@pytest.fixture
def child() -> Iterator[None]:
    """The handlers of a child of a prefork pool, in this process."""
    ours = {signal.SIGUSR1: soft_timeout_sighandler, signal.SIGTERM: _shutdown_cleanup}
    before = {number: signal.signal(number, handler) for number, handler in ours.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
    clear_terminate_handler_fired()
    MainThread.waiting, MainThread.told_to_end = [], False


def tell(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


def asked(task: Any, *, headers: dict[str, Any] | None = None, **request: Any) -> Any:
    """What the task answers to a message, as a worker sees it."""
    request = {"id": "id-of-call", "called_directly": False, "is_eager": False, "hostname": "w@test", **request}
    task.push_request(**request, headers=headers, args=[], kwargs={})
    try:
        return task()
    finally:
        task.pop_request()


@pytest.fixture
def held() -> Iterator[Lease]:
    LockName.objects.create(name="place.part", alias_wanted="database", alias_in_force="database")
    lease = lock_backends["database"].acquire("place.part", ttl=60.0)
    assert lease is not None
    yield lease
    lock_backends["database"].release(lease)


@pytest.mark.parametrize("on_lost", [OnLost.CHECK, OnLost.INTERRUPT])
@pytest.mark.parametrize("place", PLACES)
def test_the_soft_limit_reaches_the_body_or_nobody(place: str, on_lost: OnLost, child: None) -> None:
    entered: list[bool] = []
    tick = make_tick(make_schedule())
    with hooked(place, lambda: tell(signal.SIGUSR1)):
        outcome = run(delivery_of(tick), lambda context: entered.append(True), on_lost)
    if place in ("after-body", "before-release"):
        assert outcome.state is ExecutionState.EXECUTED and entered == [True]
    else:
        assert outcome.state is ExecutionState.FAILED and entered == []
        assert outcome.returned is not None and isinstance(outcome.returned.raised, SoftTimeLimitExceeded)
    assert lock_backends["database"].inspect(tick.lock_name) is None
    assert MainThread.waiting == []  # the next run is not told what was meant for this one
    assert run(delivery_of(make_tick(tick.schedule)), lambda context: None).state is ExecutionState.EXECUTED


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
def test_a_start_that_waits_for_a_guard_waits_no_longer_when_its_child_must_stop(
    number: signal.Signals, child: None
) -> None:
    tick = make_tick(make_schedule(ttl=60.0))
    entered: list[bool] = []

    def keep_locked() -> bool:
        with fence_locked(tick.lock_name):
            locked.set()
            await_starts(1)
            tell(number)
            wait_until(Execution.objects.exists, timeout=20, message="it has given up")
        return True

    locked = threading.Event()
    other, _ = in_the_background(keep_locked)
    assert locked.wait(30)
    with suppress(SystemExit):
        run(delivery_of(tick), lambda context: entered.append(True))
    other.join(60)
    assert Execution.objects.get().state == "blocked"
    assert Tick.objects.get().attempt == 1 and Tick.objects.get().state == TickState.PLANNED
    assert entered == [] and lock_backends["database"].inspect(tick.lock_name) is None


def test_the_soft_limit_waits_for_the_answer_of_a_guarded_commit(child: None) -> None:
    steps: list[str] = []

    def body(context: RunContext) -> None:
        with context.commit_guard():
            tell(signal.SIGUSR1)
            steps.append("guarded")
        steps.append("not reached")

    outcome = run(delivery_of(make_tick(make_schedule())), body, OnLost.CHECK)
    assert steps == ["guarded"] and outcome.state is ExecutionState.FAILED


def test_a_process_that_has_to_end_first_stores_the_end_of_its_body(child: None) -> None:
    tick = make_tick(make_schedule(max_attempts=3))
    with hooked("after-body", lambda: tell(signal.SIGTERM)), pytest.raises(SystemExit):
        run(delivery_of(tick), lambda context: None, OnLost.CHECK)
    tick.refresh_from_db()
    assert tick.outcome == "executed" and lock_backends["database"].inspect(tick.lock_name) is None


def test_a_second_request_to_end_is_not_put_off(child: None) -> None:
    tick = make_tick(make_schedule())

    def insist() -> None:
        tell(signal.SIGTERM)
        tell(signal.SIGTERM)

    with hooked("after-body", insist), pytest.raises(SystemExit):
        run(delivery_of(tick), lambda context: None, OnLost.CHECK)
    assert Execution.objects.get(tick=tick).state == "running"  # the reaper's, as after a kill


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_body_that_is_cut_short_spends_its_attempt(attempts: int, child: None) -> None:
    tick = make_tick(make_schedule(max_attempts=attempts))
    outcome = run(delivery_of(tick), lambda context: tell(signal.SIGTERM), OnLost.CHECK)
    assert outcome.state is ExecutionState.FAILED
    assert "told to end" in Execution.objects.get(tick=tick).reason
    tick.refresh_from_db()
    expected = (TickState.CLOSED, "failed", 1) if attempts == 1 else (TickState.DISPATCHED, "", 2)
    assert (tick.state, tick.outcome, tick.attempt) == expected


def test_a_body_that_ends_itself_has_failed_and_is_not_tried_again(child: None) -> None:
    tick = make_tick(make_schedule(max_attempts=2))

    def body(context: RunContext) -> None:
        raise SystemExit(3)

    assert run(delivery_of(tick), body, OnLost.CHECK).state is ExecutionState.FAILED
    tick.refresh_from_db()
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "failed")


def test_handlers_of_a_project_are_left_alone() -> None:
    mine: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: mine.append(number))
    try:
        run(delivery_of(make_tick(make_schedule())), lambda context: tell(signal.SIGTERM), OnLost.CHECK)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert mine == [signal.SIGTERM] and not main_thread.told_to_end()


def test_a_lost_lease_is_no_failure_that_autoretry_for_may_try_again() -> None:
    tick = make_tick(make_schedule(task=autoretrying.name, lock_name="place.auto"))
    with pytest.raises(LeaseLost):
        asked(autoretrying, headers={HEADER: stamp(tick)}, retries=0)
    tick.refresh_from_db()
    assert (tick.state, tick.outcome, tick.attempt) == (TickState.CLOSED, "lost", 1)


@pytest.mark.parametrize("child_first", [True, False])
def test_terminated_is_failed_whoever_stores_it_first(child_first: bool) -> None:
    tick = make_tick(make_schedule(max_attempts=3))
    request = type("Request", (), {"id": "x", "headers": {HEADER: stamp(tick)}})()

    def announce() -> None:
        note_revoked(None, request, terminated=True, expired=False, signum=signal.SIGTERM)

    def body(context: RunContext) -> None:
        if not child_first:
            announce()
        MainThread.told_to_end = True  # as Celery's handler does
        raise SystemExit(1)

    run(delivery_of(tick), body, OnLost.CHECK)
    if child_first:
        announce()
    tick.refresh_from_db()
    assert (tick.state, tick.outcome, tick.reason) == (TickState.CLOSED, "failed", "revoked while its body ran")


def test_a_soft_limit_by_revoke_leaves_the_verdict_to_the_body() -> None:
    tick = make_tick(make_schedule(), state=TickState.STARTED)
    request = type("Request", (), {"id": "x", "headers": {HEADER: stamp(tick)}})()
    note_revoked(None, request, terminated=True, expired=False, signum=signal.SIGUSR1)
    tick.refresh_from_db()
    assert tick.state == TickState.STARTED


def test_a_refused_part_is_answered_once_and_never_runs(held: Lease) -> None:
    answer = asked(part, chord={"task": "x"})
    assert is_skipped(answer) and answer["state"] == "prevented" and "held" in answer["reason"]
    tick = Tick.objects.get()
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "prevented")
    assert lock_backends["database"].release(held)
    with pytest.raises(Ignore):  # its message once more
        asked(part, chord={"task": "x"})
    assert not Execution.objects.filter(began=True).exists()


def test_a_refused_call_that_nobody_goes_on_from_waits_in_its_tick(held: Lease) -> None:
    with pytest.raises(Ignore):
        asked(part)
    assert Tick.objects.get().outcome == ""


@pytest.mark.parametrize("refused", [Refused.SKIP, Refused.FAIL])
def test_the_tick_of_a_schedule_is_never_answered(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where its refusal closes it: its copies share one id, under which another may have a result."""
    monkeypatch.setattr(app.tasks[part.name], "exclusive_refused", refused)
    schedule = make_schedule(task=part.name, lock_name="place.part")
    tick = make_tick(schedule)

    def body(context: RunContext) -> None:
        with pytest.raises(Ignore):
            asked(part, headers={HEADER: stamp(tick)})

    assert run(delivery_of(make_tick(schedule)), body).state is ExecutionState.EXECUTED
    tick.refresh_from_db()
    assert (tick.state, tick.outcome) == (TickState.CLOSED, "prevented")


def test_a_copy_of_a_part_is_answered_only_where_the_first_came_to_nothing(child: None) -> None:
    assert asked(part, chain=[{"task": "x"}]) == "part"
    with pytest.raises(Ignore):  # executed: the first has answered
        asked(part, chain=[{"task": "x"}])
    Tick.objects.update(state=TickState.STARTED, outcome="")
    with pytest.raises(Ignore):  # it runs, or the reaper has not seen yet that it is dead
        asked(part, chain=[{"task": "x"}])
    Tick.objects.update(state=TickState.CLOSED, outcome="abandoned")
    with pytest.raises(LockNotAcquired):
        asked(part, chain=[{"task": "x"}])


def test_the_next_attempt_of_a_call_repeats_its_message() -> None:
    canvas = {
        "chain": [{"task": "next", "args": [], "kwargs": {}, "options": {}}],
        "callbacks": [{"task": "linked", "args": [], "kwargs": {}, "options": {}}],
        "group": "group-id", "group_index": 0, "root_id": "root", "timelimit": [60, 30],
    }  # fmt: skip
    with pytest.raises(RetryLater):
        asked(retrying, retries=0, **canvas)
    tick = Tick.objects.get()
    assert tick.attempt == 2
    with app.connection_for_write() as connection:
        connection.default_channel.client.flushdb()
        assert publish([tick]).ids == [tick.id]
        message = connection.SimpleQueue("celery").get(timeout=5)
        message.ack()
    headers, (_, _, embed) = message.headers, message.decode()
    assert (headers["id"], headers["group"], headers["group_index"], headers["root_id"]) == (
        "id-of-call", "group-id", 0, "root",
    )  # fmt: skip
    assert headers["retries"] == 1 and headers[HEADER]["attempt"] == 2 and headers["timelimit"] == [60, 30]
    assert "periodic_task_name" not in headers  # nobody's schedule
    assert headers["expires"] is None  # under this id a worker would take the attempt after it for a revoked one
    assert embed["chain"][0]["task"] == "next" and embed["callbacks"][0]["task"] == "linked"


@pytest.mark.parametrize(
    ("fields", "queue", "priority"), [({}, "emails", 3), ({"queue": "theirs", "priority": 5}, "theirs", 5)]
)
def test_a_tick_is_sent_with_the_options_of_its_task(
    fields: dict[str, Any], queue: str, priority: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {"queue": "emails", "priority": 3, "ignore_result": False, "expires": 1}
    for option, value in declared.items():  # set here, because Celery warns of them in a declaration
        monkeypatch.setattr(app.tasks[part.name], option, value, raising=False)
    tick = make_tick(make_schedule(task=part.name), **fields)
    with app.connection_for_write() as connection:
        connection.default_channel.client.flushdb()
        assert publish([tick]).ids == [tick.id]
        message = connection.SimpleQueue(queue).get(timeout=5)
        message.ack()
    assert message.headers["periodic_task_name"] == tick.schedule_name != ""
    assert message.headers["ignore_result"] is False  # the project's setting ignores results
    assert datetime.fromisoformat(message.headers["expires"]) == tick.deadline
    assert message.properties["priority"] == priority


def test_a_tick_is_json_also_where_its_task_is_not_known() -> None:
    """A beat of a project that sends pickle, which knows the task by its name only."""
    pickling = Celery("pickling", broker=app.conf.broker_url)
    pickling.conf.task_serializer = "pickle"
    pickling.set_current()
    tick = make_tick(make_schedule(task="elsewhere.task"))
    with app.connection_for_write() as connection:
        connection.default_channel.client.flushdb()
        assert publish([tick]).ids == [tick.id]
        message = connection.SimpleQueue("celery").get(timeout=5)
        message.ack()
    pickling.close()
    app.set_current()
    assert message.content_type == "application/json"
