"""What reaches a body whose lease is lost: asking, an exception in the middle of it, the end of its process."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from uuid import uuid4

import psutil
import pytest
from celery import Celery
from celery.exceptions import SoftTimeLimitExceeded
from django.db import connection, connections, transaction

from locks import Lease, LeaseLost, LockNotAcquired, lock_backends
from locks.clock import boottime
from locks.keepalive import Kept
from locks.testing import exit_status, fork_child
from scheduler import RunContext, exclusive_task
from scheduler.exceptions import InvalidExclusiveTask
from scheduler.failpoints import hooked
from scheduler.loss import OnLost, interrupt, shield
from scheduler.loss.kill import Kill
from scheduler.models import Execution, Tick
from scheduler.runner import Outcome, run
from scheduler.states import ExecutionState, TickState
from tests.support import wait_until
from tests.support.engine import delivery_of, make_schedule, make_tick
from tests.support.loss import in_a_thread, lose_lease

pytestmark = pytest.mark.django_db(transaction=True)

LONG = 40.0  # seconds; no body below gets that far unless it was not interrupted
BOUND = 20.0  # seconds; within this an interrupted body is out, whatever the machine does


@pytest.fixture(autouse=True)
def clean_app() -> Celery:
    from aegis_site.celery import app

    app.set_current()
    return app


def run_lost(body: Callable[[RunContext], object], on_lost: OnLost = OnLost.INTERRUPT, **fields: object) -> Outcome:
    """Run a body whose lease is taken away as its first step."""

    def losing(context: RunContext) -> object:
        lose_lease(context)
        return body(context)

    tick = make_tick(make_schedule(ttl=30.0, **fields))
    return run(delivery_of(tick), losing, on_lost)


def asleep(context: RunContext) -> None:
    time.sleep(LONG)


def busy(context: RunContext) -> None:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        pass


def querying(context: RunContext) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_sleep(%s)", [LONG])


def querying_in_a_transaction(context: RunContext) -> None:
    with transaction.atomic():
        querying(context)


def holding_the_gil(context: RunContext) -> None:
    ctypes.PyDLL(None).usleep(900_000)  # nothing of Python runs meanwhile, neither keep-alive nor a handler
    time.sleep(LONG)


@pytest.mark.parametrize("body", [asleep, busy, querying, querying_in_a_transaction, holding_the_gil])
def test_a_body_is_interrupted_wherever_it_is(body: Callable[[RunContext], object]) -> None:
    outcome = run_lost(body)
    assert outcome.state is ExecutionState.LOST
    assert outcome.returned is not None and outcome.returned.ran < BOUND
    # An error of the roll-back on a broken connection may stand in front of it.
    raised = outcome.returned.raised
    assert isinstance(raised, LeaseLost) or isinstance(raised.__context__, LeaseLost)  # type: ignore[union-attr]
    assert Tick.objects.get(pk=outcome.delivery.tick_id).outcome == "lost"  # Django's connection works again


def test_an_interrupted_query_ends_at_the_server_too() -> None:
    """Else it would go on there, and commit, when the next holder has started."""
    run_lost(querying)
    with connection.cursor() as cursor:
        still = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(%' AND state = 'active'"

        def gone() -> bool:
            cursor.execute(f"{still} AND pid <> pg_backend_pid()")
            return bool(cursor.fetchone()[0] == 0)

        wait_until(gone, timeout=5, message="the query was cancelled")


def test_a_body_that_swallows_it_is_lost_all_the_same_and_is_told_once() -> None:
    told: list[Exception] = []

    def body(context: RunContext) -> str:
        try:
            time.sleep(LONG)
        except Exception as error:
            told.append(error)
        time.sleep(0.5)  # would be interrupted again
        return "done"

    outcome = run_lost(body)
    assert outcome.state is ExecutionState.LOST
    assert [type(error) for error in told] == [LeaseLost]
    assert outcome.returned is not None and outcome.returned.value == "done"


def test_a_signal_that_woke_nobody_is_sent_again() -> None:
    """As one that comes between the interpreter's last look for signals and the system call in which it sleeps."""

    def body(context: RunContext) -> None:
        assert interrupt.SIGNAL is not None
        signal.signal(interrupt.SIGNAL, signal.SIG_IGN)
        wait_until(lambda: context.lost, message="the loss is known")
        time.sleep(0.3)  # and the first signal is spent
        signal.signal(interrupt.SIGNAL, interrupt._on_signal)
        time.sleep(LONG)

    outcome = run_lost(body)
    assert outcome.returned is not None and isinstance(outcome.returned.raised, LeaseLost)
    assert outcome.returned.ran < BOUND


def test_check_raises_only_when_asked() -> None:
    def body(context: RunContext) -> None:
        wait_until(lambda: context.lost, message="the loss is known")
        time.sleep(0.3)
        passed.append(1)
        context.check()

    passed: list[int] = []
    outcome = run_lost(body, OnLost.CHECK)
    assert outcome.state is ExecutionState.LOST and passed == [1]


def test_a_thread_cannot_be_interrupted_and_is_told_when_it_asks(caplog: pytest.LogCaptureFixture) -> None:
    from scheduler.loss import policy

    policy._told.clear()

    def body(context: RunContext) -> None:
        wait_until(lambda: context.lost, message="the loss is known")
        context.check()

    outcome = in_a_thread(lambda: run_lost(body))
    again = in_a_thread(lambda: run_lost(body, lock_name="another", name="another"))
    assert outcome.state is again.state is ExecutionState.LOST
    said = [record for record in caplog.records if getattr(record, "action", "") == "interrupt_unavailable"]
    assert len(said) == 1 and "threads pool" in said[0].getMessage() and "context.check()" in said[0].getMessage()


def test_finish_and_release_are_never_interrupted() -> None:
    """The loss is noticed when the body is out: the verdict knows it, and nothing is raised."""
    finishing: list[bool] = []

    def lose() -> None:
        kept = contexts[0].kept
        kept._lose(LeaseLost("noticed in finish", name=contexts[0].lock_name))  # as keep-alive does it
        time.sleep(0.3)
        finishing.append(True)

    contexts: list[RunContext] = []
    tick = make_tick(make_schedule())
    with hooked("after-body", lose):
        outcome = run(delivery_of(tick), contexts.append, OnLost.INTERRUPT)
    assert finishing == [True]
    assert outcome.state is ExecutionState.LOST
    assert lock_backends["database"].inspect(tick.lock_name) is None


def test_a_loss_before_the_first_instruction_of_the_body_is_not_forgotten() -> None:
    reaction = interrupt.Interrupt()
    assert interrupt.unavailable() == ""
    reaction.lost(LeaseLost("early", name="x"))
    with shield(), pytest.raises(LeaseLost, match="early"):
        reaction.call(kept_until(boottime() + 60), lambda: pytest.fail("entered"))


def test_a_body_in_a_body_is_shielded_in_its_finish_and_the_outer_loss_comes_through() -> None:
    inner_schedule = make_schedule("inner")

    def lose_outer() -> None:
        lose_lease(outer[0])
        wait_until(lambda: outer[0].lost, message="the outer loss is known")
        time.sleep(0.2)

    def body(context: RunContext) -> None:
        outer.append(context)
        with hooked("after-acquire", lose_outer):
            returned = run(delivery_of(make_tick(inner_schedule)), lambda c: None, OnLost.INTERRUPT).returned
        assert returned is not None and returned.raised is not None
        raise returned.raised  # as a task does that is called in a body

    outer: list[RunContext] = []
    outcome = run(delivery_of(make_tick(make_schedule(ttl=30.0))), body, OnLost.INTERRUPT)
    assert outcome.state is ExecutionState.LOST and outcome.returned is not None and outcome.returned.ran < BOUND
    inner = Execution.objects.get(tick__schedule=inner_schedule)
    assert inner.state == "failed" and "LeaseLost" in inner.error  # the outer's loss ended it, not its own


def test_celerys_soft_limit_and_the_interrupt_arrive_both() -> None:
    """As Celery does it: a handler of SIGUSR1 that raises in the main thread."""

    def soft_limit(number: int, frame: object) -> None:
        raise SoftTimeLimitExceeded()

    seen: list[str] = []

    def body(context: RunContext) -> None:
        try:
            os.kill(os.getpid(), signal.SIGUSR1)  # by a timer it had come after the loss on a busy machine, to nobody
            time.sleep(LONG)
        except SoftTimeLimitExceeded:
            seen.append("soft limit")
        try:
            time.sleep(LONG)
        except LeaseLost:
            seen.append("lease lost")
            raise

    before = signal.signal(signal.SIGUSR1, soft_limit)
    try:
        outcome = run_lost(body)
        assert signal.getsignal(signal.SIGUSR1) is soft_limit
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert seen == ["soft limit", "lease lost"] and outcome.state is ExecutionState.LOST


# kill


def kept_until(trusted_until: float) -> Kept:
    """A lease that this process may believe in until then; its ttl is long."""
    lease = Lease(
        name="kill", alias="database", lease_id=uuid4(), holder="test", ttl=600.0, grant_no=1,
        trusted_until=trusted_until,
    )  # fmt: skip
    return Kept(lock_backends["database"], lease)


@pytest.fixture
def ended() -> Iterator[Callable[[int], int]]:
    """Wait for a child for BOUND seconds at most; its exit status."""
    children: list[int] = []

    def wait(pid: int) -> int:
        children.append(pid)
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, timeout=BOUND, message="it ended")
        children.remove(pid)
        return exit_status(pid)

    yield wait
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_kill_ends_a_process_that_holds_the_gil(ended: Callable[[int], int]) -> None:
    def child() -> None:
        Kill().call(kept_until(boottime() + 0.3), lambda: ctypes.PyDLL(None).usleep(int(LONG * 1e6)))

    assert ended(fork_child(child)) == -signal.SIGKILL


def test_kill_ends_a_process_while_it_is_frozen(ended: Callable[[int], int]) -> None:
    def child() -> None:
        Kill().call(kept_until(boottime() + 0.5), lambda: os.kill(os.getpid(), signal.SIGSTOP))

    assert ended(fork_child(child)) == -signal.SIGKILL  # and nobody has woken it


def test_a_renewal_moves_the_deadline_to_the_end_of_its_trust_window(ended: Callable[[int], int]) -> None:
    """The renewal's answer is late: counted from it, the process would live for another 600 seconds."""

    def child() -> None:
        kill, kept = Kill(), kept_until(boottime() + 600)
        threading.Timer(0.1, lambda: kill.renewed(replace(kept.lease, trusted_until=boottime() + 0.2))).start()
        kill.call(kept, lambda: time.sleep(LONG))

    assert ended(fork_child(child)) == -signal.SIGKILL


def test_a_renewal_keeps_a_process_alive(ended: Callable[[int], int]) -> None:
    def child() -> None:
        kill, kept = Kill(), kept_until(boottime() + 4)
        threading.Timer(0.1, lambda: kill.renewed(replace(kept.lease, trusted_until=boottime() + 60))).start()
        kill.call(kept, lambda: time.sleep(5))

    assert ended(fork_child(child)) == 0


def test_a_loss_that_the_store_tells_ends_the_process_at_once(ended: Callable[[int], int]) -> None:
    def child() -> None:
        kill, kept = Kill(), kept_until(boottime() + 600)
        threading.Timer(0.1, lambda: kill.lost(LeaseLost("taken away"))).start()
        kill.call(kept, lambda: time.sleep(LONG))

    assert ended(fork_child(child)) == -signal.SIGKILL


def test_nothing_kills_a_process_whose_body_is_out(ended: Callable[[int], int]) -> None:
    def child() -> None:
        kill, kept = Kill(), kept_until(boottime() + 3)
        kill.call(kept, lambda: None)
        kill.renewed(replace(kept.lease, trusted_until=boottime() + 0.2))
        kill.lost(LeaseLost("too late"))
        time.sleep(4)

    assert ended(fork_child(child)) == 0


# the option


@exclusive_task(lock="database", lock_name="tests.killed", on_lost="kill")
def killed(context: RunContext) -> str:
    return "ran"


def test_kill_is_refused_where_it_would_end_more_than_the_run() -> None:
    with pytest.raises(LockNotAcquired, match=r"prefork pool only.*on_lost='interrupt'"):
        killed()
    tick = make_tick(make_schedule())
    outcome = run(delivery_of(tick), lambda context: pytest.fail("entered"), OnLost.KILL)
    assert outcome.state is ExecutionState.BLOCKED
    assert Tick.objects.get(pk=tick.pk).state == TickState.PLANNED  # another worker may be able to
    assert lock_backends["database"].inspect(tick.lock_name) is None


@pytest.mark.parametrize("alias", ["none", "optimistic"])
def test_kill_is_refused_where_no_clock_ends_the_lease(alias: str) -> None:
    tick = make_tick(make_schedule(alias=alias))
    outcome = run(delivery_of(tick), lambda context: pytest.fail("entered"), OnLost.KILL)
    assert outcome.state is ExecutionState.BLOCKED
    assert f"one of strategy '{alias}' does not" in Execution.objects.get(pk=outcome.execution.id).reason


def test_an_unknown_choice_is_refused_when_the_task_is_defined() -> None:
    with pytest.raises(InvalidExclusiveTask, match=r"on_lost='explode': choose one of 'check', 'interrupt', 'kill'"):

        @exclusive_task(on_lost="explode")
        def wrong(context: RunContext) -> None: ...


def test_interrupt_is_the_default_and_closes_what_it_may_have_broken() -> None:
    @exclusive_task(lock="database", lock_name="tests.default", ttl=30.0)
    def default(context: RunContext) -> None:
        connection.ensure_connection()
        lose_lease(context)
        time.sleep(LONG)

    with pytest.raises(LeaseLost):
        default()
    assert connections["default"].connection is None
