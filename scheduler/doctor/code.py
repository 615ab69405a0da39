"""The code that runs: the tasks that schedules name; versions, pools and clocks of the live processes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from locks import Finding
from locks.findings import fail, ok, warn
from scheduler import version
from scheduler.delivery import STAMP_VERSION
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.fleet import Fleet, Seen
from scheduler.doctor.leases import Strategy
from scheduler.doctor.report import named

TOPIC = "code"
CLOCK = 1.0  # seconds between a process's clock and the database's before it is said
GREEN = ("gevent", "eventlet")
SHORT_TTL = 30.0  # seconds; in a green pool one body that does not yield holds up all renewals


def judge(scheduled: Sequence[Scheduled], fleet: Fleet, strategies: Mapping[str, Strategy]) -> Iterator[Finding]:
    yield _tasks(scheduled)
    if not fleet.alive:
        return  # topic life says so
    yield _versions(fleet)
    yield _stamps(fleet)
    yield _clocks(fleet)
    yield from _pools(fleet, scheduled, strategies)


def _tasks(scheduled: Sequence[Scheduled]) -> Finding:
    unknown = [one for one in scheduled if not one.registered]
    if unknown:
        tasks = named(one.task for one in unknown)
        return fail(
            TOPIC, f"{named(one.name for one in unknown)}: no task {tasks} is declared here: the messages are thrown "
            "away, the ticks are missed",
            "Install the app that declares it with @exclusive_task, or name another task.",
        )  # fmt: skip
    return ok(TOPIC, f"the tasks of {len(scheduled)} schedules are declared")


def _versions(fleet: Fleet) -> Finding:
    """Two versions of this package: a deployment on its way, or one that did not reach everybody."""
    seen: defaultdict[str, list[str]] = defaultdict(list)
    for one in fleet.alive:
        seen[one.version or "not told"].append(one.name)
    if set(seen) == {version.VERSION}:
        return ok(TOPIC, f"{len(fleet.alive)} processes run version {version.VERSION}, as this one")
    told = "; ".join(f"{which}: {named(names)}" for which, names in sorted(seen.items()))
    return warn(
        TOPIC, f"versions of Aegis differ ({told}; here: {version.VERSION})",
        "Finish the deployment: restart what runs another version.",
    )  # fmt: skip


def _stamps(fleet: Fleet) -> Finding:
    """A worker leaves a message alone whose format it does not know; the tick is published again, and again."""
    other = [one for one in fleet.alive if one.stamp_version not in (None, STAMP_VERSION)]
    formats = {one.stamp_version for one in fleet.alive if one.stamp_version is not None}
    if len(formats | {STAMP_VERSION}) > 1:
        return fail(
            TOPIC, f"messages are stamped in format {STAMP_VERSION} here and otherwise by "
            f"{named(f'{one.name} ({one.stamp_version})' for one in other)}: one cannot read the other's",
            "Restart the workers with the newer version first, then the beats.",
        )  # fmt: skip
    return ok(TOPIC, f"all read and write messages of format {STAMP_VERSION}")


def _clocks(fleet: Fleet) -> Finding:
    """Shown, never used: no decision is made by a worker's clock, but logs and time-outs of bodies are."""
    known = [one for one in fleet.alive if one.clock_offset is not None]
    if not known:
        return warn(TOPIC, "could not look: no live process has told its clock yet", "Look again in some seconds.")
    off = [one for one in known if abs(one.clock_offset or 0.0) - (one.clock_error or 0.0) > CLOCK]
    if off:
        said = named(f"{one.who} {one.clock_offset:+.1f} s" for one in off)
        return warn(
            TOPIC, f"clocks are off the database's: {said}; leases and fire times do not use them, people do",
            "Let these machines follow one time service.",
        )  # fmt: skip
    worst = max(known, key=lambda one: abs(one.clock_offset or 0.0))
    within = abs(worst.clock_offset or 0.0)
    return ok(TOPIC, f"the clocks of {len(known)} processes are within {within:.3f} s of the database's")


def _pools(fleet: Fleet, scheduled: Sequence[Scheduled], strategies: Mapping[str, Strategy]) -> Iterator[Finding]:
    green = [worker for worker in fleet.workers if worker.pool in GREEN]
    if not green:
        return
    short = [
        row
        for row in scheduled
        if row.alias in strategies
        and strategies[row.alias].renewable
        and strategies[row.alias].exclusive
        and row.ttl < SHORT_TTL
        and any(_may_run(worker, row) for worker in green)
    ]
    if short:
        least = min(short, key=lambda row: row.ttl)
        yield warn(
            TOPIC, f"{named(worker.name for worker in green)}: a body that does not yield holds up the renewals of "
            f"its whole process, and {named(row.name for row in short)} have short leases "
            f"({least.name}: {least.ttl:g} s)",
            f"Use a prefork pool for these, or a TTL of {SHORT_TTL:g} s and more.",
        )  # fmt: skip


def _may_run(worker: Seen, row: Scheduled) -> bool:
    return row.broadcast or worker.queues is None or row.queue in worker.queues
