"""A beat that is cut off from the database, answers lost: it does not hang for ever, and nobody restarts it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psutil
import pytest
from django.db import connections

from aegis_site.embedded import ChildProcess
from locks.testing import TcpProxy
from scheduler.models import Instance, Tick
from tests.concurrency import test_attack_beats as ordinary_rows
from tests.contract.wires import database_address
from tests.support import CeleryProcesses, wait_until
from tests.support.engine import database_now, make_schedule

pytestmark = pytest.mark.django_db(transaction=True)

AT_REST = 2  # connections to the database: the passes have one, presence another; what is done aside closes its own
THREADS = 5  # passes, alerts, sums, deletions, and the watchdog of all four
DIGEST = "aegis_site.demo.tasks.send_digest"


@pytest.fixture
def wire() -> Iterator[TcpProxy]:
    with TcpProxy(database_address()) as proxy:
        yield proxy


def over(wire: TcpProxy) -> dict[str, str]:
    """The environment of a process that reaches the test database over ``wire``."""
    entry = connections["default"].settings_dict
    return {
        "DATABASE_URL": f"postgres://{entry['USER']}@127.0.0.1:{wire.port}/{entry['NAME']}",
        "PGSSLMODE": "disable",
    }


def minted() -> int:
    return Tick.objects.count()


@pytest.mark.parametrize("fault", ["cut", "swallow_answers", "lose_all"])
def test_a_beat_goes_on_after_a_partition(fault: str, celery_processes: CeleryProcesses, wire: TcpProxy) -> None:
    """Without the watchdog the swallowed answer is waited for until somebody restarts the beat."""
    make_schedule("digest", alias="database", every_seconds=1, task=DIGEST)
    beat = celery_processes.beat(env=over(wire))
    wait_until(lambda: minted() >= 2, timeout=40, message="ticks were stored")
    for _ in range(3):
        heal_after(fault, wire)
        assert beat.running
    wait_until(
        lambda: sockets(beat, wire) <= AT_REST,
        timeout=30,
        message=lambda: f"no connection of before a partition is held: {sockets(beat, wire)} are",
    )
    wait_until(
        lambda: psutil.Process(beat.pid).num_threads() <= THREADS,
        timeout=30,
        message="no thread of a partition is left; a look of alerts has some of its own while it lasts",
    )


def test_what_comes_due_in_a_partition_fires_once(celery_processes: CeleryProcesses, wire: TcpProxy) -> None:
    """A beat waits in the middle of a pass; the other takes its lease, and the row, before the wait is cut short.

    cut off                                         the other
    asks whether rows were edited, and waits ...
                                                    takes the lease when its TTL is over
    the row comes due ...                           fires it
    the watchdog hangs up; Celery goes on with
    the rows it has read: this one is due
    """
    cut_off = celery_processes.beat(env=over(wire))
    wait_until(ordinary_rows.holder, timeout=30, message="the beat holds the lease")
    celery_processes.beat()
    wait_until(lambda: Instance.objects.count() == 2, timeout=30, message="both are there")
    row = ordinary_rows.ordinary(every=3600, last_run_at=database_now() - timedelta(seconds=3595))
    dropped = wire.dropped
    wait_until(lambda: "Schedule changed" in cut_off.log.read_text(), timeout=30, message="it knows of the row")
    wire.lose_all()
    wait_until(lambda: wire.dropped > dropped, timeout=40, message="the beat felt it")
    wait_until(lambda: ordinary_rows.delivered(), timeout=40, message="the row fired")
    wait_until(lambda: "hanging up" in cut_off.log.read_text(), timeout=60, message="the wait was cut short")
    wire.heal()
    seen = database_now()
    me = Instance.objects.filter(kind="beat", pid=cut_off.pid, heartbeat_at__gt=seen)
    wait_until(me.exists, timeout=60, message="the beat is back")
    assert ordinary_rows.delivered() == 1
    row.refresh_from_db()
    assert row.total_run_count == 1


def heal_after(fault: str, wire: TcpProxy) -> None:
    """One partition, until ticks are stored again."""
    dropped = wire.dropped
    getattr(wire, fault)()
    wait_until(lambda: wire.dropped > dropped, timeout=40, message="the beat felt it")
    wire.heal()
    stored = minted()
    wait_until(lambda: minted() >= stored + 3, timeout=60, message="ticks were stored again")


def sockets(beat: ChildProcess, wire: TcpProxy) -> int:
    """The beat's sockets towards the database, those that the other end has closed included."""
    found = psutil.Process(beat.pid).net_connections(kind="tcp")
    return sum(1 for one in found if one.raddr and one.raddr.port == wire.port)
