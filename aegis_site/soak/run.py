"""One soak from the first process to the last: start, break things until enough ticks have passed, drain, collect."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from django.db import Error as DatabaseError
from django.db import connection

from aegis_site.embedded import Services, own_services
from aegis_site.soak import journal
from aegis_site.soak.catalog import seed, wanted
from aegis_site.soak.collect import collect
from aegis_site.soak.fleet import Fleet, SoakError
from aegis_site.soak.history import History
from aegis_site.soak.injection import Fault, Injector
from aegis_site.soak.pace import LoadWatch, bearable_period, cost_of_start
from aegis_site.soak.plan import FaultKind, faults
from locks import lock_backends
from scheduler.models import Execution, Tick
from scheduler.states import OPEN_TICKS, ExecutionState
from scheduler.ticker import Ticker

DRAIN_WITHIN = 120.0  # seconds for open ticks to come to their end
TELL_EVERY = 15.0  # seconds


class Soak:
    """Runs once. ``say`` is told how it goes."""

    def __init__(
        self, folder: Path, *, workers: int, beats: int, seed: int, kinds: Sequence[FaultKind], tick_guard: bool,
        commit_guard: bool, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._folder = folder
        self._processes = (workers, beats)
        self._plan = faults(seed, kinds)
        self._guards = (tick_guard, commit_guard)
        self._say = say
        self._told = time.monotonic()
        self._made: list[Fault] = []
        self._known = 0  # ticks, when the database answered last

    def run(self, ticks: int) -> History:
        """The history of at least ``ticks`` ticks. Raises ``SoakError`` and ``EmbeddedError``."""
        services = _services()
        journal_folder = self._folder / "journal"
        journal_folder.mkdir()
        os.environ[journal.FOLDER] = str(journal_folder)
        fleet = Fleet(services, workers=self._processes[0], beats=self._processes[1], logs=self._folder / "logs")
        try:
            period = self._start(fleet)
            with LoadWatch() as load:
                self._break_things(ticks, fleet, Injector(services, fleet, time.sleep, period))
                self._drain(fleet)
        finally:
            fleet.stop()
        guarded, fenced = self._guards
        return collect(journal_folder, self._made, period=period, load=load, guarded=guarded, fenced=fenced)

    def _start(self, fleet: Fleet) -> int:
        """Start all processes and store the schedules; returns their period."""
        fleet.await_ready()
        cost = min(cost_of_start(worker.pid) for worker in fleet.workers)
        fleet.start_beats()
        fleet.await_ready()  # before there is a schedule: what passes while they start would be missed
        aliases = lock_backends.aliases()
        while max(lock_backends[alias].prepare() for alias in aliases) > 0:
            time.sleep(0.2)
        tick_guard, commit_guard = self._guards
        schedules = wanted(aliases)
        period = bearable_period(len(schedules), cost, os.cpu_count() or 1)
        seed(schedules, period=period, tick_guard=tick_guard, commit_guard=commit_guard)
        self._say(f"{len(schedules)} schedules under {len(aliases)} strategies, each every {period} s")
        return period

    def _break_things(self, ticks: int, fleet: Fleet, injector: Injector) -> None:
        for planned in self._plan:
            self._pass(planned.gap, ticks)
            if self._minted() >= ticks:
                return
            self._made.append(injector.make(planned))
            fleet.await_ready()  # two beats that are both still starting would be a fault that nobody planned
        self._pass(float("inf"), ticks)  # no fault was asked for

    def _pass(self, seconds: float, ticks: int) -> None:
        """Let time pass, until ``ticks`` are there at most."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and (minted := self._minted()) < ticks:
            if time.monotonic() - self._told >= TELL_EVERY:
                self._told = time.monotonic()
                self._say(f"{minted} ticks, {len(self._made)} faults")
            time.sleep(min(0.5, max(0.0, until - time.monotonic())))

    def _minted(self) -> int:
        try:
            self._known = Tick.objects.count()
        except DatabaseError:  # the connection of before a restart; the next question gets a new one
            connection.close()
        return self._known

    def _drain(self, fleet: Fleet) -> None:
        """No more fire times; what is open comes to its end with all processes healthy."""
        fleet.stop_beats()
        ticker, give_up = Ticker(), time.monotonic() + DRAIN_WITHIN
        while self._open() and time.monotonic() < give_up:
            ticker.tend()
            time.sleep(0.3)
        self._say(f"drained: {self._open()} ticks or bodies are still open")

    def _open(self) -> int:
        running = Execution.objects.filter(state=ExecutionState.RUNNING).count()
        return running + Tick.objects.filter(state__in=OPEN_TICKS).count()


def _services() -> Services:
    services = own_services()
    if services is None:
        raise SoakError(
            "The soak stops and kills its stores, so it starts its own: unset DATABASE_URL, CELERY_BROKER_URL,"
            " REDIS_URL and REDLOCK_URLS."
        )
    return services
