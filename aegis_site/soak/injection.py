"""Make the planned faults on real processes and servers, and keep a record of each with a proof that it happened."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from aegis_site.embedded import ChildProcess, Services
from aegis_site.soak.catalog import TTL
from aegis_site.soak.fleet import STOP_WITHIN, Fleet
from aegis_site.soak.plan import FaultKind, Planned
from aegis_site.soak.promises import TOUCHED_BY_POSTGRES
from locks import lock_backends
from locks.clock import boottime
from scheduler.models import Tick
from scheduler.publisher import publish
from scheduler.states import TickState

# Longer than any lease, seconds: what is frozen or cut off for this has lost its own.
OUTLIVES = 2 * TTL + 1
DOWN = 0.5  # seconds between the end of a server and its next start
ENDED_WITHIN = 5.0  # seconds for the kernel to end what was killed
SOME_WITHIN = 15.0  # seconds for ticks to be in a state in which they can be published again
COPIES = 20  # messages published again by one fault
_QUORUM = frozenset({"redlock"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault as it happened: from ``start`` to ``end`` on ``boottime()``.

    ``pids`` are the processes it hit, ``aliases`` the strategies whose store it hit; ``killed`` those processes
    that ended at ``start``. ``proof``: whether it left the trace that such a fault leaves.
    """

    kind: FaultKind
    variant: str
    start: float
    end: float
    proof: bool
    pids: frozenset[int] = field(default_factory=frozenset)
    aliases: frozenset[str] = field(default_factory=frozenset)
    killed: bool = False

    def touches(self, pid: int, alias: str) -> bool:
        """Whether a body in process ``pid`` under strategy ``alias`` could feel it."""
        return pid in self.pids or alias in self.aliases


class Injector:
    """Makes one fault at a time. ``wait`` is called with seconds whenever time must pass.

    ``period``: of all schedules, seconds.
    """

    def __init__(self, services: Services, fleet: Fleet, wait: Callable[[float], None], period: int) -> None:
        self._services = services
        self._fleet = fleet
        self._wait = wait
        self._period = period
        self._makers: dict[FaultKind, Callable[[Planned], Fault]] = {
            FaultKind.KILL: self._kill,
            FaultKind.PAUSE: self._pause,
            FaultKind.PARTITION: self._partition,
            FaultKind.REDIS_RESTART: self._restart_redis,
            FaultKind.PG_RESTART: self._restart_postgres,
            FaultKind.DUPLICATE: self._duplicate,
            FaultKind.BEAT_KILL: self._kill_beat,
            FaultKind.RELOAD: self._reload,
        }

    def make(self, planned: Planned) -> Fault:
        """Make the fault, undo what must be undone, and return when the target is back or on its way."""
        return self._makers[planned.kind](planned)

    def _kill(self, planned: Planned) -> Fault:
        number = self._pick(planned)
        if planned.variant == "child":
            return self._kill_child(planned, number)
        pids = self._fleet.pids(number)
        start = boottime()
        self._fleet.workers[number].kill()
        proof = self._ended(pids)
        self._fleet.restart_worker(number)
        return _fault(planned, start, proof=proof, pids=pids, killed=True)

    def _kill_child(self, planned: Planned, number: int) -> Fault:
        pid = self._child(number, planned.pick)
        start = boottime()
        os.kill(pid, signal.SIGKILL)
        proof = self._ended(frozenset({pid}))
        return _fault(planned, start, proof=proof, pids=frozenset({pid}), killed=True)

    def _pause(self, planned: Planned) -> Fault:
        number = self._pick(planned)
        if planned.variant == "child":
            pids = frozenset({self._child(number, planned.pick)})
        else:
            pids = self._fleet.pids(number)
        start = boottime()
        _signal(pids, signal.SIGSTOP)
        self._wait(0.2)
        proof = any(_status(pid) in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP) for pid in pids)
        self._wait(OUTLIVES)
        _signal(pids, signal.SIGCONT)
        return _fault(planned, start, proof=proof, pids=pids)

    def _partition(self, planned: Planned) -> Fault:
        pids, start = self._fleet.pids(0), boottime()
        before = sum(proxy.dropped for proxy in self._fleet.proxies)
        for proxy in self._fleet.proxies:
            {"cut": proxy.cut, "lose": proxy.lose_all, "swallow": proxy.swallow_answers}[planned.variant]()
        self._wait(OUTLIVES)
        proof = sum(proxy.dropped for proxy in self._fleet.proxies) > before
        for proxy in self._fleet.proxies:
            proxy.heal()
            proxy.end_broken()  # a body's own connection has no time-out: it would keep its worker from ending
        return _fault(planned, start, proof=proof, pids=pids)

    def _restart_redis(self, planned: Planned) -> Fault:
        nodes = self._services.quorum
        server, aliases = self._services.redis["locks"], frozenset({"redis"})
        if planned.variant == "node":
            server, aliases = nodes[int(planned.pick * len(nodes))], _QUORUM
        start = boottime()
        before = server.process.pid if server.process else None
        server.kill()
        self._wait(DOWN)
        server.start()
        proof = server.process is not None and server.process.pid != before
        return _fault(planned, start, proof=proof, aliases=aliases)

    def _restart_postgres(self, planned: Planned) -> Fault:
        server, start = self._services.postgres, boottime()
        before = server.process.pid if server.process else None
        server.kill() if planned.variant == "kill" else server.stop()
        self._wait(DOWN)
        server.start()
        proof = server.process is not None and server.process.pid != before
        return _fault(planned, start, proof=proof, aliases=TOUCHED_BY_POSTGRES & set(lock_backends.aliases()))

    def _duplicate(self, planned: Planned) -> Fault:
        start = boottime()
        states = [TickState.CLOSED] if planned.variant == "closed" else [TickState.DISPATCHED, TickState.STARTED]
        give_up = time.monotonic() + SOME_WITHIN
        while not (ticks := list(Tick.objects.filter(state__in=states).order_by("-id")[:COPIES])):
            if time.monotonic() > give_up:
                break
            self._wait(0.05)
        return _fault(planned, start, proof=bool(publish(ticks).ids))

    def _kill_beat(self, planned: Planned) -> Fault:
        number, start = self._pick_beat(planned), boottime()
        self._fleet.beats[number].kill()
        self._wait(DOWN)
        self._fleet.restart_beat(number)
        return _fault(planned, start, proof=True)

    def _reload(self, planned: Planned) -> Fault:
        self._wait(self._period - time.time() % self._period)  # at a fire time, when a tick is on its way
        start = boottime()
        if planned.variant == "beat":
            number = self._pick_beat(planned)
            proof = self._stop(self._fleet.beats[number])
            self._fleet.restart_beat(number)
            return _fault(planned, start, proof=proof)
        number = self._pick(planned)
        pids = self._fleet.pids(number)
        proof = self._stop(self._fleet.workers[number])
        self._fleet.restart_worker(number)
        return _fault(planned, start, proof=proof, pids=pids)

    def _stop(self, process: ChildProcess) -> bool:
        """Ask for an orderly end and wait for it; False where it had to be killed."""
        process.ask_to_stop()
        give_up = time.monotonic() + STOP_WITHIN
        while process.running and time.monotonic() < give_up:
            self._wait(0.1)
        orderly = not process.running
        process.kill()
        return orderly

    def _ended(self, pids: frozenset[int]) -> bool:
        """Whether all of them have ended; one that only waits to be collected by its parent has."""
        give_up = time.monotonic() + ENDED_WITHIN
        while any(_status(pid) not in (psutil.STATUS_DEAD, psutil.STATUS_ZOMBIE) for pid in pids):
            if time.monotonic() > give_up:
                return False
            self._wait(0.02)
        return True

    def _pick(self, planned: Planned) -> int:
        return int(planned.pick * len(self._fleet.workers))

    def _pick_beat(self, planned: Planned) -> int:
        return int(planned.pick * len(self._fleet.beats))

    def _child(self, number: int, pick: float) -> int:
        """A child of the worker that is most likely inside a body; the worker itself where it has none yet."""
        parent = self._fleet.workers[number].pid
        children = sorted(self._fleet.pids(number) - {parent})
        return children[int(pick * len(children))] if children else parent


def _fault(planned: Planned, start: float, *, proof: bool, **facts: object) -> Fault:
    return Fault(kind=planned.kind, variant=planned.variant, start=start, end=boottime(), proof=proof, **facts)  # type: ignore[arg-type]


def _signal(pids: frozenset[int], number: signal.Signals) -> None:
    """Signal each; the parents first, so that none makes a child meanwhile. One that has ended needs none."""
    for pid in sorted(pids):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _status(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD
