"""Tasks as a team declares and calls them: direct calls, redelivery, eager mode, refusals, wrong declarations."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from celery import Celery, Task
from celery.exceptions import Ignore, MaxRetriesExceededError
from django.db import transaction

from locks import LockNotAcquired, lock_backends
from scheduler import ExclusiveTask, RunContext, exclusive_task, manual
from scheduler.body import RetryLater
from scheduler.delivery import HEADER, stamp
from scheduler.exceptions import InvalidExclusiveTask
from scheduler.models import Execution, LockName, Tick
from scheduler.registry import exclusive_tasks
from scheduler.states import ExecutionState
from tests.support.engine import make_schedule, make_tick

pytestmark = pytest.mark.django_db(transaction=True)


@exclusive_task(lock="database", lock_name="tests.greet")
def greet(context: RunContext, name: str, *, loudly: bool = False) -> str:
    return f"{'HELLO' if loudly else 'hello'} {name}, attempt {context.attempt}"


@exclusive_task(lock="redis", bind=True, max_retries=2, default_retry_delay=7)
def stubborn(self: ExclusiveTask, context: RunContext) -> None:
    raise self.retry()


@pytest.fixture(autouse=True)
def clean_app() -> Celery:
    from aegis_site.celery import app

    app.set_current()
    return app


def test_a_direct_call_is_exclusive_and_leaves_its_audit() -> None:
    assert greet("Ana", loudly=True) == "HELLO Ana, attempt 1"
    execution = Execution.objects.select_related("tick").get()
    assert execution.state == ExecutionState.EXECUTED
    assert execution.tick.manual_key is not None and execution.tick.manual_key.startswith("call:")
    assert (execution.lock_name, execution.lock_alias) == ("tests.greet", "database")


def test_a_call_on_commit_is_sent_when_the_transaction_has_ended(clean_app: Celery) -> None:
    with clean_app.connection_for_write() as broker:
        client = broker.default_channel.client
        client.flushdb()
        with transaction.atomic():
            greet.delay_on_commit("Ana")
            greet.apply_async_on_commit(("Eva",))
            assert client.llen("celery") == 0
        assert client.llen("celery") == 2


class ProjectTask(Task):
    """As a project's ``task_cls``."""

    abstract = True

    def audited(self) -> str:
        return f"{self.name} is audited"


class ExclusiveProjectTask(ExclusiveTask, ProjectTask):
    abstract = True


@exclusive_task(base=ExclusiveProjectTask, lock="database", lock_name="tests.combined")
def combined(context: RunContext) -> int:
    return context.attempt


def test_a_projects_own_task_class_is_combined() -> None:
    assert combined() == 1 and combined.audited().endswith("is audited")
    assert Execution.objects.get().state == ExecutionState.EXECUTED
    assert combined.name in exclusive_tasks()


def test_a_direct_call_under_a_held_name_says_so() -> None:
    LockName.objects.create(name="tests.greet", alias_wanted="database", alias_in_force="database")
    lease = lock_backends["database"].acquire("tests.greet")
    assert lease is not None
    with pytest.raises(LockNotAcquired, match=r"greet.*held by another") as refusal:
        greet("Ana")
    assert (refusal.value.name, refusal.value.alias) == ("tests.greet", "database")
    lock_backends["database"].release(lease)


def test_a_message_without_a_stamp_that_is_delivered_twice_runs_once() -> None:
    task_id = str(uuid4())
    assert greet.apply(("Ana",), task_id=task_id).get() == "hello Ana, attempt 1"
    with pytest.raises(LockNotAcquired):
        greet.apply(("Ana",), task_id=task_id, throw=True)
    assert Tick.objects.count() == 1
    assert list(Execution.objects.order_by("id").values_list("state", flat=True)) == ["executed", "duplicate"]


def test_a_stamped_delivery_in_a_worker_that_is_refused_leaves_the_result_of_the_other_alone() -> None:
    tick = make_tick(make_schedule(task=greet.name, args=["Ana"]))
    for expected in (None, Ignore):
        greet.push_request(
            id="x", headers={HEADER: stamp(tick)}, called_directly=False, is_eager=False, hostname="w@test"
        )
        try:
            if expected:
                with pytest.raises(expected):
                    greet("Ana")
            else:
                assert greet("Ana") == "hello Ana, attempt 1"
        finally:
            greet.pop_request()


def test_a_stamp_of_a_newer_version_is_left_to_a_worker_that_can_read_it() -> None:
    tick = make_tick(make_schedule(task=greet.name, args=["Ana"]))
    greet.push_request(
        id="x", headers={HEADER: {**stamp(tick), "version": 99}}, called_directly=False, is_eager=False
    )
    try:
        with pytest.raises(Ignore):
            greet("Ana")
    finally:
        greet.pop_request()
    assert not Execution.objects.exists()


def test_arguments_are_checked_without_the_context() -> None:
    with pytest.raises(TypeError):
        greet.apply_async(args=("Ana", "too", "many"))
    with pytest.raises(TypeError):
        greet.delay(nickname="Ana")


def test_retry_keeps_celerys_delay_and_limit() -> None:
    tick = make_tick(make_schedule(task=stubborn.name))
    stubborn.push_request(
        id="x", headers={HEADER: stamp(tick)}, called_directly=False, is_eager=False, retries=0, args=[], kwargs={}
    )
    try:
        with pytest.raises(RetryLater) as later:
            stubborn()
    finally:
        stubborn.pop_request()
    assert later.value.countdown == 7
    stubborn.push_request(id="x", retries=2, args=[], kwargs={})
    try:
        with pytest.raises(MaxRetriesExceededError):
            stubborn.retry()
        with pytest.raises(TypeError, match="cannot change args"):
            stubborn.retry(args=["other"])
    finally:
        stubborn.pop_request()


def test_a_retry_says_what_it_cannot_change() -> None:
    stubborn.push_request(id="x", retries=0, args=[], kwargs={})
    try:
        with pytest.raises(TypeError, match="cannot change priority, queue") as refusal:
            stubborn.retry(exc=ValueError("the body's"), queue="slow", priority=3)
    finally:
        stubborn.pop_request()
    assert isinstance(refusal.value.__cause__, ValueError)
    with pytest.raises(InvalidExclusiveTask, match="retry_kwargs cannot change queue"):
        exclusive_task(retry_kwargs={"max_retries": 3, "queue": "slow"})(lambda context: None)


@pytest.mark.parametrize("zone", [None, UTC, ZoneInfo("Asia/Tokyo")])
def test_the_instant_of_a_retry_without_a_zone_is_utc_as_celerys_workers_take_it(zone: tzinfo | None) -> None:
    wanted = datetime.now(UTC) + timedelta(seconds=600)
    eta = wanted.astimezone(zone or UTC).replace(tzinfo=zone)
    stubborn.push_request(id="x", retries=0, args=[], kwargs={})
    try:
        later = stubborn.retry(eta=eta, throw=False)
    finally:
        stubborn.pop_request()
    assert 500 < later.countdown <= 600


def test_a_retry_without_the_tick_guard_fails_instead_of_sending_everybody_another_round() -> None:
    tick = make_tick(make_schedule(task=stubborn.name, once_per_tick=False))
    stubborn.push_request(
        id="x", headers={HEADER: stamp(tick)}, called_directly=False, is_eager=False, retries=0, args=[], kwargs={}
    )
    try:
        with pytest.raises(TypeError, match=r"needs the tick guard.*nightly"):
            stubborn()
    finally:
        stubborn.pop_request()
    tick.refresh_from_db()
    assert (tick.attempt, tick.outcome) == (1, "failed")


def test_an_unstamped_message_keeps_its_queue_for_the_next_attempt() -> None:
    greet.push_request(id="x", called_directly=False, is_eager=False, delivery_info={"routing_key": "celery"})
    try:
        greet("Ana")
    finally:
        greet.pop_request()
    assert Tick.objects.get().queue == "celery"


def test_a_function_without_a_context_and_other_serializers_are_refused_at_once() -> None:
    with pytest.raises(InvalidExclusiveTask, match="must take"):
        exclusive_task(lambda: None)
    with pytest.raises(InvalidExclusiveTask, match="JSON only"):
        exclusive_task(serializer="pickle")(lambda context: None)


def test_messages_are_json_whatever_the_project_sends(clean_app: Celery) -> None:
    """A task declared within a project that sends pickle, as Celery binds it."""
    pickling = Celery("pickling", broker=clean_app.conf.broker_url, set_as_current=False)
    pickling.conf.task_serializer = "pickle"
    pickling.finalize(auto=True)
    assert pickling.tasks["celery.backend_cleanup"].serializer == "pickle"
    assert pickling.tasks[greet.name].serializer == "json"
    pickling.close()


def test_a_function_whose_body_celery_would_never_run_is_refused_at_once() -> None:
    async def coroutine(context: RunContext) -> None: ...

    def generator(context: RunContext) -> Iterator[int]:
        yield 1

    async def stream(context: RunContext) -> AsyncIterator[int]:
        yield 1

    for function in (coroutine, generator, stream):
        with pytest.raises(InvalidExclusiveTask, match="never run its body"):
            exclusive_task(function)


def test_a_strategy_is_named_once() -> None:
    @exclusive_task(strategy="redis")
    def declared(context: RunContext) -> None: ...

    assert declared.exclusive_lock == "redis" and stubborn.exclusive_lock == "redis"
    with pytest.raises(InvalidExclusiveTask, match="give only strategy"):
        exclusive_task(strategy="redis", lock="redis")(lambda context: None)


def test_a_requested_run_is_idempotent_by_its_key() -> None:
    schedule = make_schedule(task=greet.name, args=["Ana"])
    first = manual.request_run(schedule, key="click-1")
    assert manual.request_run(schedule, key="click-1") == first
    assert manual.request_run(schedule, key="click-2") != first
    assert Tick.objects.get(pk=first).schedule == schedule


def test_only_declared_tasks_can_be_scheduled() -> None:
    names = set(exclusive_tasks())
    assert "aegis_site.demo.tasks.settle_invoices" in names
    assert "celery.backend_cleanup" not in names
