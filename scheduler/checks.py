"""System checks of the scheduler, tag ``aegis``."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.checks import register as register_check

from locks import lock_backends
from scheduler.conf import beat_lock, conf, unknown_keys

SCHEDULER = "scheduler.beat:CatalogScheduler"


def register() -> None:
    """Register the checks; called once by the app's ``ready()``."""
    register_check(check_settings, "aegis")
    register_check(check_beat, "aegis")


def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """The AEGIS setting: known keys, values that fit together, a beat lock that exists."""
    found: list[CheckMessage] = [
        Error(
            f"AEGIS has the unknown key {key!r}.",
            hint="See docs/reference/settings.md.",
            id="aegis.scheduler.E001",
        )
        for key in unknown_keys()
    ]
    if conf("SILENCE_GRACE") < 3 * conf("HEARTBEAT"):
        found.append(
            Error(
                f"AEGIS['SILENCE_GRACE'] is {conf('SILENCE_GRACE')} s, less than three heartbeats of "
                f"{conf('HEARTBEAT')} s: a busy worker would be taken for dead.",
                hint="Raise SILENCE_GRACE or lower HEARTBEAT.",
                id="aegis.scheduler.E002",
            )
        )
    if beat_lock() not in lock_backends.aliases():
        found.append(
            Error(
                f"AEGIS['BEAT_LOCK'] is {conf('BEAT_LOCK')!r} and LOCKS defines "
                f"{', '.join(sorted(lock_backends.aliases())) or 'nothing'}: no beat could fire ordinary rows.",
                hint="Name an alias whose leases exclude and are renewed, such as a DatabaseLeaseBackend.",
                id="aegis.scheduler.E003",
            )
        )
    if not settings.USE_TZ:
        found.append(
            Error(
                "USE_TZ is off: fire times would be ambiguous.",
                hint="Set USE_TZ = True.",
                id="aegis.scheduler.E004",
            )
        )
    return found


def check_beat(**kwargs: Any) -> list[CheckMessage]:
    """Whether beat will look at the catalog at all."""
    named = getattr(settings, "CELERY_BEAT_SCHEDULER", None)
    if named == SCHEDULER:
        return []
    return [
        CheckWarning(
            f"CELERY_BEAT_SCHEDULER is {named!r}: beat will not fire the catalog's schedules.",
            hint=f"Set it to {SCHEDULER!r}, or start beat with --scheduler {SCHEDULER}.",
            id="aegis.scheduler.W001",
        )
    ]
