"""CatalogScheduler: Celery beat with the catalog beside django-celery-beat's own rows.

Any number of beats may run. They share the catalog without a leader (``scheduler.ticker``). A team's ordinary
PeriodicTask rows have no tick, so they fire from one beat at a time: the one that holds a lease for them.
"""

from __future__ import annotations

import logging
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from celery.beat import SchedulingError
from celery.result import denied_join_result
from django.db import Error as DatabaseError
from django.db import connection
from django_celery_beat.schedulers import DatabaseScheduler
from kombu.exceptions import OperationalError
from redis.exceptions import ResponseError

from locks import InvalidLockBackend, Lease, LeaseLost, LockUnavailable, lock_backends
from locks.clock import boottime
from scheduler.alerts.watch import watch
from scheduler.aside import Aside
from scheduler.at_start import refuse_errors
from scheduler.conf import beat_lock, conf
from scheduler.dashboard.summing import sum_up
from scheduler.loading import loaded
from scheduler.ordinary_entry import Entry, Overtaken, is_away
from scheduler.presence import Presence
from scheduler.pruning import EVERY as PRUNE_INTERVAL
from scheduler.pruning import keep_days
from scheduler.publisher import is_the_brokers
from scheduler.ticker import Ticker
from scheduler.watchdog import Watchdog

logger = logging.getLogger("aegis.beat")

ORDINARY_ROWS = "aegis.beat.ordinary-rows"
SUM_INTERVAL = 5.0  # seconds between two rounds of sums for the pages


@contextmanager
def deaf() -> Iterator[None]:
    """Ignore signals that ask this process to stop, in its main thread: it is about to."""
    if threading.current_thread() is not threading.main_thread():  # an embedded beat, to which nobody sends any
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


class CatalogScheduler(DatabaseScheduler):
    """``beat_scheduler = "scheduler.beat:CatalogScheduler"``.

    Edits take effect within two passes (two seconds), however they were made; a database or lock store that is
    away ends a pass, never the process. Raises ``ImproperlyConfigured`` where a system check of Aegis finds an error.
    """

    Entry = Entry

    _being_made = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if CatalogScheduler._being_made:
            # Celery's SIGTERM handler wants to close a scheduler that is still being made, so makes another. That
            # one would wait for the connection that the interrupted statement holds, in this thread, for ever.
            raise SystemExit
        CatalogScheduler._being_made = True
        try:
            self._make(*args, **kwargs)
        finally:
            CatalogScheduler._being_made = False

    def _make(self, *args: Any, **kwargs: Any) -> None:
        lazy = kwargs.get("lazy", False)  # the one of Celery's banner, which fires nothing
        if not lazy:
            refuse_errors()
        self._ticker: Ticker | None = None if lazy else Ticker()
        self._next_pass = 0.0
        self._lease: Lease | None = None
        self._presence = Presence("beat")
        self._is_at_work = False
        self._is_set_up = False
        self._watchdog = Watchdog(conf("PASS_PATIENCE"))
        self._asides = (
            watch(self._watchdog),
            Aside("sums", sum_up, lambda: SUM_INTERVAL, watchdog=self._watchdog),
            Aside("deletions", keep_days, lambda: PRUNE_INTERVAL, watchdog=self._watchdog),
        )
        self._trouble: BaseException | None = None  # of the message that was sent last
        self._ordinary_from = 0.0  # boottime() until which a broker that has just failed is left alone
        super().__init__(*args, **kwargs)
        self.max_interval = conf("PASS_INTERVAL")

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """One turn of beat's loop; returns the seconds to sleep, at most PASS_INTERVAL."""
        with self._at_work(), self._watchdog.watching():
            return float(min(self._ordinary(*args, **kwargs), self._catalog(), conf("PASS_INTERVAL")))

    def reserve(self, entry: Any) -> Any:
        """Left to ``apply_entry``, which is called when the broker is there."""
        return entry

    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        """Store the run, then send it: whatever becomes of this beat and its lease, nobody sends it again.

        A beat that ends between the two leaves this run out. The other way round, the next beat would repeat it.
        """
        if not entry.take():
            raise Overtaken(entry.name)
        super().apply_entry(entry, producer)
        trouble, self._trouble = self._trouble, None
        if isinstance(trouble, Exception) and is_the_brokers(trouble):
            if isinstance(trouble.__cause__ or trouble, ResponseError):
                entry.give_back()  # it has answered, and has not taken it
            # The other rows wait until it takes connections again. Each would be stored as run, and not be sent.
            for cached in ("producer", "connection"):
                self.__dict__.pop(cached, None)
            raise OperationalError("no answer") from trouble

    def apply_async(self, entry: Any, *args: Any, **kwargs: Any) -> Any:
        """Theirs; what ``apply_entry`` logs and does not let out is kept for it."""
        try:
            return super().apply_async(entry, *args, **kwargs)
        except SchedulingError as refusal:
            self._trouble = refusal.__context__
            raise

    def sync(self) -> None:
        """Nothing is left to store: each run was stored before it was sent."""

    def close(self) -> None:
        """Give the lease back and say good-bye, so that another beat takes over at once.

        Celery calls this from its SIGTERM handler and again when the loop has ended. Where the signal came in the
        middle of something, the call from the handler is left to the later one: the statement that was interrupted
        holds its connection's lock, and this thread would wait for itself. But the next pass is told, because what
        the handler raises may get lost on its way out. Once begun, it is not cut short by another signal: there
        may be no later call.
        """
        if self._ticker is not None:
            self._ticker.stop()
        if self._is_at_work:
            return
        with deaf(), self._at_work():
            super().close()
            if self._lease is not None:
                self._give_back(self._lease)
                self._lease = None
            for aside in self._asides:
                aside.stop()
            self._presence.leave()

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        before, self._is_at_work = self._is_at_work, True
        try:
            yield
        finally:
            self._is_at_work = before

    def _catalog(self) -> float:
        """The catalog's pass, by its own due time: Celery calls ``tick`` again at once after each ordinary row."""
        wait = self._next_pass - time.monotonic()
        if self._ticker is None or wait > 0:
            return max(wait, 0.0) if self._ticker else float(conf("PASS_INTERVAL"))
        self._presence.stamp()
        for aside in self._asides:
            aside.start()
        wait = self._ticker.tick()
        self._next_pass = time.monotonic() + wait
        return wait

    def setup_schedule(self) -> None:
        """Left to the first pass: in the constructor a row at fault would end the process."""

    def all_as_schedule(self) -> dict[str, Any]:
        """The ordinary rows by name. One that cannot be read is left out and named, and holds up no other."""
        entries = {}
        for row in self.enabled_models():
            try:
                entries[row.name] = self.Entry(row, app=self.app)
            except Exception as trouble:
                if is_away(trouble):
                    raise
                logger.exception("ordinary row %r cannot be read and is left out", row.name)
        return entries

    def enabled_models(self) -> list[Any]:
        """Theirs; where that fails because of one row, all others, though their next run may be hours away."""
        try:
            return list(super().enabled_models())
        except Exception as trouble:
            if is_away(trouble):
                raise
        rows = self.Model.objects.enabled()
        names = dict(rows.values_list("pk", "name"))
        found, problems = loaded(rows, names)
        for pk, problem in problems.items():
            logger.error("ordinary row %r cannot be read and is left out", names[pk], exc_info=problem)
        return list(found.values())

    def _set_up(self) -> None:
        """Store the rows that Celery's settings name, once a process.

        Without the lease as well: a beat that takes over hours later would put older settings into force again.
        """
        super().setup_schedule()
        self._is_set_up = True
        self._read_rows_anew()

    def _ordinary(self, *args: Any, **kwargs: Any) -> float:
        try:
            if boottime() < self._ordinary_from:
                return float(conf("PASS_INTERVAL"))
            if not self._is_set_up:
                self._set_up()
            if self._hold_lease():
                with denied_join_result():  # a result backend that is down does not hold up the catalog
                    return float(super().tick(*args, **kwargs))
        except Overtaken as overtaken:
            logger.info("ordinary row %r was fired, disabled or deleted since it was read", str(overtaken))
            self._read_rows_anew()
        except DatabaseError as trouble:
            logger.warning("ordinary rows left out of this pass: %s", type(trouble).__name__)
            self._read_rows_anew()  # the row that was taken off to be sent is due again, if it was not stored
            connection.close()
        except OperationalError as trouble:
            logger.warning("ordinary rows wait for the broker: %s", type(trouble).__name__)
            self._read_rows_anew()  # the row that was taken off to be sent is due again
            self._ordinary_from = boottime() + conf("BROKER_PAUSE")
        except Exception:  # whatever an ordinary row sets off must not stop the catalog
            logger.exception("ordinary rows left out of this pass")
            self._read_rows_anew()
            self._ordinary_from = boottime() + conf("BROKER_PAUSE")
        return float(conf("PASS_INTERVAL"))

    def _ensure_connected(self) -> Any:
        """Celery's own waits for the broker a hundred times, and the catalog would wait with it."""
        return self.connection.ensure_connection(max_retries=1, interval_start=0.1, timeout=conf("PUBLISH_TIMEOUT"))

    def _hold_lease(self) -> bool:
        """Whether this beat may fire ordinary rows now. No answer means no."""
        try:
            backend = lock_backends[beat_lock() or ""]
            if self._lease is not None and boottime() < self._lease.trusted_until - conf("BEAT_TTL") / 2:
                return True
            if self._lease is not None:
                self._lease = backend.renew(self._lease, ttl=conf("BEAT_TTL"))
                return True
            # Without an id of ours: the backend itself withdraws what an unknown outcome may have granted.
            self._lease = backend.acquire(ORDINARY_ROWS, ttl=conf("BEAT_TTL"))
        except LeaseLost:
            self._lease = None
        except (LockUnavailable, InvalidLockBackend) as unknown:
            logger.warning("cannot tell which beat fires ordinary rows: %s", unknown)
            return False
        if self._lease is not None:
            self._read_rows_anew()
        return self._lease is not None

    def _read_rows_anew(self) -> None:
        """Forget what was read while another beat fired the rows: its last runs are newer than ours."""
        self._schedule = None
        self._initial_read = True
        self._heap = None

    def _give_back(self, lease: Lease) -> None:
        try:
            lock_backends[lease.alias].release(lease)
        except LockUnavailable as trouble:
            logger.warning("the lease for ordinary rows runs until its TTL is over: %s", trouble)
