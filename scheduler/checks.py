"""System checks of the scheduler, tag ``aegis``: what can be known without asking a store.

Each id stands in docs/reference/checks.md, with its meaning and remedy. What needs a store is ``aegis doctor``'s.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from celery import current_app
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.checks import register as register_check

from locks import InvalidLockBackend, lock_backends
from scheduler import visibility
from scheduler.alerts.settings import check_alerts
from scheduler.beat_admin import APP as BEAT
from scheduler.beat_admin import check_beat_admin
from scheduler.conf import DEFAULTS, MAY_BE_ZERO, beat_lock, conf, unknown_keys
from scheduler.dashboard.checks import check_impact
from scheduler.database_checks import check_database
from scheduler.error_text import describe, storable
from scheduler.loss import OnLost
from scheduler.pruning import MOST_DAYS, can_keep
from scheduler.registry import declared_strategies, exclusive_tasks
from scheduler.task import ExclusiveTask

SCHEDULER = "scheduler.beat:CatalogScheduler"
SPELT = (SCHEDULER, "scheduler.beat.CatalogScheduler", "aegis")  # as Celery takes it
REDIS = ("redis", "rediss", "sentinel", "valkey", "valkeys")
# By transport: what it calls the longest wait for an answer, and what to set.
TIME_OUTS = {
    **dict.fromkeys(REDIS, ("socket_timeout", "{'socket_connect_timeout': 3, 'socket_timeout': 3}")),
    **dict.fromkeys(
        ("amqp", "pyamqp"),  # over amqps its driver heeds neither
        ("read_timeout", "{'read_timeout': 3, 'write_timeout': 3, 'confirm_publish': True}"),
    ),
}


def register() -> None:
    """Register the checks; called once by the app's ``ready()``."""
    own = (check_settings, check_database, check_beat, check_broker, check_tasks)
    for check in (*own, check_impact, check_alerts, check_beat_admin):
        register_check(check, "aegis")


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """The AEGIS setting: known keys, values that fit together, a beat lock that exists and can serve."""
    found: list[CheckMessage] = [
        Error(
            f"AEGIS has the unknown key {key!r}.",
            hint="See docs/reference/settings.md.",
            id="aegis.scheduler.E001",
        )
        for key in unknown_keys()
    ]
    wrong = list(_no_numbers())
    found += wrong or [*_silence(), *_beat_lock()]
    if not settings.USE_TZ:
        found.append(
            Error(
                "USE_TZ is off: fire times would be ambiguous.",
                hint="Set USE_TZ = True.",
                id="aegis.scheduler.E004",
            )
        )
    return found


def _no_numbers() -> Iterator[CheckMessage]:
    for key, default in DEFAULTS.items():
        value = conf(key)
        if isinstance(default, int | float) and (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or value < 0
            or (value == 0 and key not in MAY_BE_ZERO)
        ):
            yield Error(
                f"AEGIS[{key!r}] is {value!r}.",
                hint=f"Give a number above zero; {default:g} is the default.",
                id="aegis.scheduler.E005",
            )
    days = conf("KEEP_DAYS")
    if not can_keep(days):
        yield Error(
            f"AEGIS['KEEP_DAYS'] is {days!r}.",
            hint=f"Give whole days, 1 to {MOST_DAYS}, or None to keep everything.",
            id="aegis.scheduler.E005",
        )
    limits = conf("RATE_LIMITS")
    if (
        not isinstance(limits, dict)
        or not set(limits) <= set(DEFAULTS["RATE_LIMITS"])
        or not all(type(number) is int and number > 0 for number in limits.values())
    ):
        yield Error(
            f"AEGIS['RATE_LIMITS'] is {limits!r}.",
            hint=f"Give whole numbers above zero, such as {DEFAULTS['RATE_LIMITS']}.",
            id="aegis.scheduler.E005",
        )


def _silence() -> Iterator[CheckMessage]:
    if conf("SILENCE_GRACE") < 3 * conf("HEARTBEAT"):
        yield Error(
            f"AEGIS['SILENCE_GRACE'] is {conf('SILENCE_GRACE')} s, less than three heartbeats of "
            f"{conf('HEARTBEAT')} s: a busy worker would be taken for dead.",
            hint="Raise SILENCE_GRACE or lower HEARTBEAT.",
            id="aegis.scheduler.E002",
        )


def _beat_lock() -> Iterator[CheckMessage]:
    alias, ttl = beat_lock(), conf("BEAT_TTL")
    if alias is None or alias not in lock_backends.aliases():
        yield Error(
            f"AEGIS['BEAT_LOCK'] is {conf('BEAT_LOCK')!r} and LOCKS defines "
            f"{', '.join(sorted(lock_backends.aliases())) or 'nothing'}: no beat could fire ordinary rows.",
            hint="Name an alias whose leases exclude and are renewed, such as a DatabaseLeaseBackend.",
            id="aegis.scheduler.E003",
        )
        return
    try:
        backend = lock_backends[alias]
        backend.clean_ttl(ttl)
    except InvalidLockBackend:  # told by the checks of locks
        return
    except ValueError as refusal:
        yield Error(f"AEGIS['BEAT_TTL']: {refusal}", hint="Give seconds, such as 10.", id="aegis.scheduler.E007")
        return
    if not (backend.exclusive and backend.renewable):
        yield Error(
            f"AEGIS['BEAT_LOCK'] is {alias!r}, whose leases do not exclude or are not renewed: ordinary rows would "
            "fire from several beats.",
            hint="Name an alias whose leases do both, such as a DatabaseLeaseBackend.",
            id="aegis.scheduler.E006",
        )
    if conf("PASS_INTERVAL") > ttl / 3:
        yield CheckWarning(
            f"AEGIS['BEAT_TTL'] is {ttl:g} s and a beat passes every {conf('PASS_INTERVAL'):g} s: it renews too "
            "seldom, and the beats take the ordinary rows from each other.",
            hint="Raise BEAT_TTL to three times PASS_INTERVAL or more.",
            id="aegis.scheduler.W004",
        )


def check_beat(**kwargs: Any) -> list[CheckMessage]:
    """Whether beat can start, and will look at the catalog at all."""
    if not apps.is_installed(BEAT):
        return [
            Error(
                f"{BEAT} is not in INSTALLED_APPS: beat cannot start.",
                hint=f"Add {BEAT!r} to INSTALLED_APPS, and migrate.",
                id="aegis.scheduler.E015",
            )
        ]
    named = current_app.conf.beat_scheduler
    if named in SPELT:
        return []
    return [
        CheckWarning(
            f"Celery's beat_scheduler is {named!r}: beat will not fire the catalog's schedules.",
            hint=f"Set CELERY_BEAT_SCHEDULER = {SCHEDULER!r} and let Celery read Django's settings with "
            "namespace='CELERY'; start beat without -S or --scheduler, or with -S aegis.",
            id="aegis.scheduler.W001",
        )
    ]


def check_broker(**kwargs: Any) -> list[CheckMessage]:
    """How Celery reads what was set for the broker. Opens no connection."""
    try:
        return [*_visibility(visibility.effective()), *_time_outs(), *_accepted()]
    except Exception as trouble:  # whatever the making of a connection raises
        return [
            Error(
                f"The broker's URL cannot be used: {_one_line(trouble)}.",
                hint="Correct it; options stand in the transport options, never in the URL.",
                id="aegis.scheduler.E010",
            )
        ]


def _visibility(seen: visibility.Visibility) -> Iterator[CheckMessage]:
    if seen.value is not None and seen.seconds is None:
        yield Error(
            f"The broker's visibility time-out is {seen.value!r}: workers cannot calculate with it.",
            hint=f"Give {visibility.right_place()} a number of seconds above zero.",
            id="aegis.scheduler.E008",
        )
    if seen.misplaced:
        yield CheckWarning(
            f"{'; '.join(seen.misplaced)}: nothing reads that, the visibility time-out is {seen.value} s.",
            hint=f"Set {visibility.right_place()}, and remove the other.",
            id="aegis.scheduler.W002",
        )


def _time_outs() -> Iterator[CheckMessage]:
    options = current_app.conf.broker_transport_options or {}
    longest, remedy = TIME_OUTS.get(current_app.connection_for_write().transport_cls, ("", ""))
    if longest and not options.get(longest):
        yield CheckWarning(
            f"The broker has no {longest}: one that swallows packets holds up a beat.",
            hint=f"Set {visibility.setting()} = {remedy}.",
            id="aegis.scheduler.W003",
        )


def _accepted() -> Iterator[CheckMessage]:
    accepted = current_app.conf.accept_content
    if accepted is not None and not {"json", "application/json"}.intersection(accepted):
        yield CheckWarning(
            f"Celery's accept_content is {sorted(accepted)}: workers refuse the messages of exclusive tasks.",
            hint="Add 'json', which these messages are.",
            id="aegis.scheduler.W010",
        )


def check_tasks(**kwargs: Any) -> list[CheckMessage]:
    """What ``@exclusive_task`` declares, for deliveries without a schedule: ``delay()`` and direct calls."""
    try:
        tasks = exclusive_tasks()
    except Exception as trouble:  # whatever a project's module raises
        return [
            Error(
                f"The tasks cannot be imported: {_one_line(trouble)}.",
                hint="Correct the module; a worker would not start either.",
                id="aegis.scheduler.E009",
            )
        ]
    return [message for task in tasks.values() for message in _of_task(task)] + list(_of_names())


def _one_line(trouble: BaseException) -> str:
    return storable((describe(trouble).splitlines() or [""])[0], 200).rstrip(".")


def _of_names() -> Iterator[CheckMessage]:
    """Tasks that share a lock name and do not agree on its strategy."""
    for name, declared in sorted(declared_strategies().items()):
        if len({*declared.values()}) > 1:
            told = ", ".join(f"{task} with {alias!r}" for task, alias in sorted(declared.items()))
            yield CheckWarning(
                f"Lock name {name!r} is declared with more than one strategy: {told}. Where no schedule uses it, "
                "the one that is called first says which strategy guards all, and a change in code is not heard.",
                hint="Declare one strategy for all of them, or give them lock names of their own.",
                obj=name,
                id="aegis.scheduler.W008",
            )


def _of_task(task: ExclusiveTask) -> Iterator[CheckMessage]:
    alias = task.exclusive_lock
    if alias not in lock_backends.aliases():
        yield CheckWarning(
            f"{task.name} is declared with strategy={alias!r}, which LOCKS does not define: delay() and direct "
            "calls are refused.",
            hint="Name an alias of LOCKS, or define it. A schedule names its own.",
            obj=task.name,
            id="aegis.scheduler.W005",
        )
        return
    try:
        backend = lock_backends[alias]
    except InvalidLockBackend:  # told by the checks of locks
        return
    if task.exclusive_on_lost is OnLost.KILL and not backend.trust_window:
        yield CheckWarning(
            f"{task.name} is declared with on_lost='kill' and strategy={alias!r}, whose leases end by no clock: "
            "delay() is refused.",
            hint="Name another strategy, or on_lost='interrupt'.",
            obj=task.name,
            id="aegis.scheduler.W006",
        )
    limit = task.time_limit or current_app.conf.task_time_limit
    ttl = task.exclusive_ttl or backend.ttl
    if not backend.renewable and backend.exclusive and limit and limit >= ttl:
        yield CheckWarning(
            f"{task.name} is declared with strategy={alias!r}, whose window of {ttl:g} s is not renewed, and a hard "
            f"time limit of {limit:g} s: a body started by delay() may be overlapped.",
            hint="Raise its ttl above the limit, or lower time_limit.",
            obj=task.name,
            id="aegis.scheduler.W007",
        )
