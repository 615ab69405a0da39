"""ExclusiveTask and ``@exclusive_task``: how a team declares a task that must not collide."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from celery import shared_task
from celery.app.task import Context
from celery.contrib.django.task import DjangoTask
from celery.exceptions import Ignore, MaxRetriesExceededError
from celery.utils.time import maybe_make_aware

from locks import LeaseLost, LockError, LockNotAcquired
from scheduler import manual
from scheduler.body import Body, RetryLater
from scheduler.calls import options_of, task_id_of
from scheduler.context import RunContext
from scheduler.declaration import arguments_of, check_lock, check_retries, choice, strategy_of
from scheduler.delivery import HEADER, Delivery, UnreadableStamp, read_stamp
from scheduler.error_text import describe
from scheduler.exceptions import InvalidExclusiveTask, LedgerUnavailable
from scheduler.loss import OnLost, shield
from scheduler.recurrence_rules import LONGEST_EVERY
from scheduler.refusal import Refused, Skipped, is_part_of_canvas
from scheduler.runner import Outcome, run
from scheduler.states import REFUSED, ExecutionState

logger = logging.getLogger("aegis.task")


class ExclusiveTask(DjangoTask):
    """A Celery task, with ``delay_on_commit``, whose body is entered only through the runner.

    ``run(context, *args, **kwargs)`` is the body; ``context`` is a ``RunContext``. A delivery without a stamp
    (``delay()``, a chain, a direct call) gets a manual tick whose key is the message's task id, so that a
    redelivered message is recognised. A refused tick of a schedule ends as ``Ignore``, so that it does not overwrite
    the result of the copy that runs; a refused call as ``exclusive_refused`` says, and as ``LockNotAcquired`` where
    the caller waits for the answer.
    """

    abstract = True
    exclusive_lock = "default"
    exclusive_lock_name: str | None = None
    exclusive_ttl: float | None = None
    exclusive_on_lost = OnLost.INTERRUPT
    exclusive_refused: Refused | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        request = self.request_stack.top
        # None: nobody delivered this. Entered: a body calls its own task, which is another call. Celery's own
        # push_request() would hand the outer delivery's headers on to it.
        if request is None or getattr(request, "aegis_entered", False):
            self.request_stack.push(Context(args=args, kwargs=kwargs))
            try:
                return self(*args, **kwargs)
            finally:
                self.request_stack.pop()
        request.aegis_entered = True

        def body(context: RunContext) -> Any:
            return self.run(context, *args, **kwargs)

        with shield():  # also while the tick of a call is made, which may wait
            outcome = self._run(self._delivery(args, kwargs), body)
        return self._answer(outcome)

    def _run(self, delivery: Delivery, body: Body) -> Outcome:
        """Run the delivery. What a waiting caller is told did not run is never delivered afterwards."""
        if not self._caller_waits:
            return self._run_message(delivery, body)
        try:
            outcome = run(delivery, body, self.exclusive_on_lost)
        except BaseException as trouble:
            manual.forgo(delivery, ExecutionState.BLOCKED, f"the caller was told: {describe(trouble)}")
            raise
        if outcome.returned is None:
            manual.forgo(delivery, outcome.state, f"the caller was told: {outcome.execution.reason}")
        return outcome

    def _run_message(self, delivery: Delivery, body: Body) -> Outcome:
        """Run the delivery. Where the ledger cannot say whether it was begun, and no body was entered, Celery is told
        of a failure only if its tick never runs: an error callback must not be followed by the success of the tick.
        """
        entered = False

        def noted(context: RunContext) -> Any:
            nonlocal entered
            entered = True
            return body(context)

        try:
            return run(delivery, noted, self.exclusive_on_lost)
        except LedgerUnavailable as trouble:
            reason = f"the caller was told: {describe(trouble)}"
            awaited = self._wanted(delivery) is not Refused.IGNORE
            if entered or (awaited and manual.forgo(delivery, ExecutionState.BLOCKED, reason)):
                raise
            logger.error(
                "%s not run, and its tick stays open: %s", self.name, trouble, extra={"action": "not_begun"}
            )  # fmt: skip
            raise Ignore() from trouble

    @property
    def _caller_waits(self) -> bool:
        return bool(self.request.called_directly or self.request.is_eager)

    def _delivery(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Delivery:
        request = self.request
        header = self._stamp()
        worker = getattr(request, "hostname", None) or manual.this_process()
        if header is None:
            return manual.adopt(
                self, key=request.id, args=args, kwargs=kwargs, worker=worker, waits=self._caller_waits,
                queue=self._queue(), call={} if self._caller_waits else options_of(request),
            )  # fmt: skip
        try:
            return read_stamp(header, task_id=request.id or "", worker=worker)
        except UnreadableStamp as newer:
            logger.error("delivery of %s left alone: %s", self.name, newer, extra={"action": "unreadable_stamp"})
            raise Ignore() from newer

    def _queue(self) -> str:
        """The queue that brought this delivery, where the project knows it by name: a next attempt goes there too."""
        name = (getattr(self.request, "delivery_info", None) or {}).get("routing_key") or ""
        return name if name in self.app.amqp.queues else ""

    def _stamp(self) -> dict[str, Any] | None:
        """The header of a tick's message; None for a delivery that is no tick's."""
        request = self.request
        return (getattr(request, "headers", None) or {}).get(HEADER) or getattr(request, HEADER, None)

    def _answer(self, outcome: Outcome) -> Any:
        """Tell Celery, or the direct caller, what happened."""
        returned = outcome.returned
        if returned is None:
            return self._refuse(outcome)
        raised = returned.raised
        if raised is not None and (outcome.state == returned.state or not isinstance(raised, Exception)):
            raise raised
        if outcome.state != returned.state:
            raise self._error(LeaseLost, outcome, "the lease was over before the body returned") from raised
        return returned.value

    def _refuse(self, outcome: Outcome) -> Any:
        """Answer a delivery that did not run. See ``scheduler.refusal`` for who is answered what."""
        row = outcome.execution
        logger.info(
            "%s not run, %s: %s", self.name, outcome.state.value, row.reason,
            extra={"action": outcome.state.value, "execution": row.id},
        )  # fmt: skip
        answer = self._answer_to(outcome)
        if answer is Refused.IGNORE:
            raise Ignore()
        if answer is Refused.SKIP:
            return Skipped(
                state=outcome.state.value, reason=row.reason, lock_name=outcome.delivery.lock_name
            )  # fmt: skip
        kind = LockNotAcquired if outcome.state in REFUSED else LeaseLost
        raise self._error(kind, outcome, row.reason or outcome.state.label)

    def _answer_to(self, outcome: Outcome) -> Refused:
        """What this delivery is answered. Once it is answered, its tick never runs."""
        delivery, request = outcome.delivery, self.request
        if self._caller_waits:
            return Refused.SKIP if request.is_eager and self.exclusive_refused is Refused.SKIP else Refused.FAIL
        wanted = self._wanted(delivery)
        if wanted is Refused.IGNORE:
            return wanted
        if outcome.state is ExecutionState.DUPLICATE:
            # The copy that has it answers, unless it is known to have come to nothing.
            return Refused.FAIL if manual.ended_unanswered(delivery) else Refused.IGNORE
        reason = f"the caller was told: {outcome.execution.reason}"
        answered = outcome.execution.closed or manual.forgo(delivery, outcome.state, reason)
        return wanted if answered else Refused.IGNORE

    def _wanted(self, delivery: Delivery) -> Refused:
        """How a message that is refused ends; nobody waits for a tick that no call made."""
        if task_id_of(delivery.manual_key) is None:
            return Refused.IGNORE
        return self.exclusive_refused or (Refused.SKIP if is_part_of_canvas(self.request) else Refused.IGNORE)

    def _error(self, kind: type[LockError], outcome: Outcome, message: str) -> LockError:
        return kind(f"{self.name}: {message}", name=outcome.delivery.lock_name, alias=outcome.delivery.alias)

    def retry(
        self,
        args: Any = None,
        kwargs: Any = None,
        exc: BaseException | None = None,
        throw: bool = True,
        eta: datetime | None = None,
        countdown: float | None = None,
        max_retries: int | None = None,
        **options: Any,
    ) -> RetryLater:
        """End this attempt as retried; the tick is delivered again after ``countdown`` seconds.

        Raises ``RetryLater`` (or returns it with ``throw=False``), ``exc`` or ``MaxRetriesExceededError`` once
        Celery's own limit is reached, ``TypeError`` for changed arguments (a tick repeats what it was made of), for
        options of the next message (it is sent as this one was) or a tick without the guard (it has no attempts), and
        ``ValueError`` for a wait of more than a century. An ``eta`` without a zone is UTC, as a worker of Celery
        takes it.
        """
        request, stamp = self.request, self._stamp()
        self._refuse_changes(args, kwargs, options, exc)
        if stamp is not None and not stamp.get("guarded", True):
            # Without the guard each worker that got the tick would send everybody another round.
            raise exc or TypeError(f"retry() needs the tick guard, which is off for {stamp.get('schedule')!r}")
        limit = self.max_retries if max_retries is None else max_retries
        if limit is not None and request.retries >= limit:
            raise exc or MaxRetriesExceededError(
                f"{self.name} was retried {request.retries} times, its limit is {limit}"
            )
        later = RetryLater(exc=exc, when=self._seconds(eta, countdown))
        if throw:
            raise later from exc
        return later

    def _refuse_changes(self, args: Any, kwargs: Any, options: dict[str, Any], exc: BaseException | None) -> None:
        request = self.request
        if (args is not None and list(args) != list(request.args or [])) or (
            kwargs is not None and dict(kwargs) != dict(request.kwargs or {})
        ):
            raise TypeError("retry() of an exclusive task cannot change args or kwargs: they belong to the tick")
        if options:
            raise TypeError(
                f"retry() of an exclusive task cannot change {', '.join(sorted(options))}: the next attempt is sent "
                "as this one was"
            ) from exc

    def _seconds(self, eta: datetime | None, countdown: float | None) -> float:
        given = float(self.default_retry_delay if countdown is None else countdown)
        seconds = given if eta is None else max(0.0, (maybe_make_aware(eta) - datetime.now(UTC)).total_seconds())
        if not abs(seconds) <= LONGEST_EVERY:  # nor nan
            raise ValueError(f"retry() waits for a century at the most; you gave {seconds:g} seconds")
        return seconds


def exclusive_task(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Declare an exclusive task; takes Celery's own options, and:

    ``strategy`` (also ``lock``): an alias of LOCKS (default ``"default"``), ``lock_name`` (default: the task's name),
    ``ttl`` in seconds (default: the strategy's). They serve deliveries without a schedule; a schedule names its own.

    ``on_lost``: what happens to a body whose lease is lost. ``"interrupt"`` (default) raises ``LeaseLost`` in the
    middle of it, where it runs in a main thread (prefork and solo pools; elsewhere as ``"check"``). ``"check"``
    raises only in ``context.check()`` and ``commit_guard()``. ``"kill"`` ends the process at the end of the trust
    window, even while it is frozen (prefork pools on Linux; elsewhere the delivery is refused as blocked).

    ``refused``: how a refused *call* ends (a tick of a schedule is always ignored). ``"ignore"``: without a result;
    where another's body is inside it never runs, else it is delivered again until its deadline. ``"skip"``: as a
    success with a ``Skipped``; see ``is_skipped``. ``"fail"``: as ``LockNotAcquired``. Default: ``"skip"`` in a
    chain, group or chord or with a link, which would wait for ever, else ``"ignore"``.

    Raises ``InvalidExclusiveTask`` where the function takes no ``context`` or an option cannot be honoured.
    """
    if function is None:
        return lambda inner: exclusive_task(inner, **options)
    bound = bool(options.get("bind"))
    # Said, because a task that says nothing is sent as the project's task_serializer has it.
    serializer = options.setdefault("serializer", "json")
    if serializer != "json":
        raise InvalidExclusiveTask(f"serializer={serializer!r}: exclusive tasks are sent as JSON only")
    check_lock(function, options)
    check_retries(function, options)
    options.setdefault("base", ExclusiveTask)
    return shared_task(
        __header__=staticmethod(arguments_of(function, skip=2 if bound else 1)),
        exclusive_lock=strategy_of(function, options.pop("strategy", None), options.pop("lock", None)),
        exclusive_lock_name=options.pop("lock_name", None),
        exclusive_ttl=options.pop("ttl", None),
        exclusive_on_lost=choice(function, OnLost, "on_lost", options.pop("on_lost", OnLost.INTERRUPT)),
        exclusive_refused=choice(function, Refused, "refused", options.pop("refused", None), optional=True),
        **options,
    )(function)
