"""The AEGIS setting: one dict, read at each use, so that ``override_settings`` works.

All durations are seconds.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings

from locks import InvalidLockBackend, lock_backends

DEFAULTS: dict[str, Any] = {
    # Longest wait between two passes of a beat.
    "PASS_INTERVAL": 1.0,
    # A beat hangs up on a database that has not answered for this long.
    "PASS_PATIENCE": 15.0,
    # Fire times of this age or younger all fire; of older ones the misfire policy lets at most one (or all).
    "ON_TIME": 5.0,
    # A published tick that nobody began is published again after this, doubling up to five minutes.
    "REDISPATCH_GRACE": 10.0,
    # Schedules or ticks taken in one transaction.
    "BATCH": 500,
    # Running bodies and processes are stamped this often.
    "HEARTBEAT": 2.0,
    # Observed silence after which a running execution may be abandoned; at least three heartbeats.
    "SILENCE_GRACE": 6.0,
    # How long a worker tries to store the end of a body while the database is away.
    "FINISH_PATIENCE": 60.0,
    # The alias whose lease lets one beat at a time fire ordinary django-celery-beat rows. None: ``default`` where
    # LOCKS has it, else the first alias whose leases exclude and are renewed.
    "BEAT_LOCK": None,
    # TTL of that lease.
    "BEAT_TTL": 10.0,
    # Longest wait for a connection to the broker in one pass.
    "PUBLISH_TIMEOUT": 3.0,
    # After a failure of the broker a beat publishes nothing for this long, so that ticks go on being stored.
    "BROKER_PAUSE": 5.0,
    # The broadcast queue for delivery to every worker. None: no worker listens, and that delivery is refused.
    "BROADCAST_QUEUE": "aegis.every_worker",
    # Dotted path of a function that tells what collisions did to the business (scheduler.dashboard.impact).
    "IMPACT": None,
    # How often one user may do this in a minute on the pages; a key that is left out keeps its default.
    "RATE_LIMITS": {"force_release": 10, "run_now": 10, "send_test": 5},
    # A page of the dashboard looks for news this often, 2 s at the least; 0: never.
    "LIVE_INTERVAL": 5.0,
    # Rows that one export holds at the most.
    "EXPORT_ROWS": 100_000,
    # Days after which a beat deletes what has ended (``scheduler.pruning``); None: nothing is ever deleted.
    "KEEP_DAYS": None,
    # Alerts: seconds between two looks at the rules (0: no beat looks), and who is told; keys left out keep these.
    "ALERTS": {"EVERY": 15.0, "LOG": True, "EMAIL": [], "WEBHOOK": None, "BASE_URL": None},
    # What becomes of django-celery-beat's own pages in the admin: "hide", "readonly", "guarded" or "keep".
    "BEAT_ADMIN": "readonly",
}
NO_BROADCAST = (
    "AEGIS['BROADCAST_QUEUE'] is None, so no worker listens to deliveries to every worker: choose one worker, or "
    "name a queue there and restart workers and beats."
)
MAY_BE_ZERO = frozenset({"LIVE_INTERVAL"})


def conf(key: str) -> Any:
    """The value of one key of the AEGIS setting. Raises ``KeyError`` for a key that does not exist."""
    return getattr(settings, "AEGIS", {}).get(key, DEFAULTS[key])


def beat_lock() -> str | None:
    """The alias that guards ordinary rows; None where LOCKS has no strategy that can."""
    named: str | None = conf("BEAT_LOCK")
    aliases = lock_backends.aliases()
    if named is not None or "default" in aliases:
        return named or "default"
    return next(filter(_excludes_and_renews, aliases), None)


def _excludes_and_renews(alias: str) -> bool:
    try:
        backend = lock_backends[alias]
    except InvalidLockBackend:  # told by the checks of locks
        return False
    return backend.exclusive and backend.renewable


def unknown_keys() -> list[str]:
    """Keys of the AEGIS setting that mean nothing: usually a spelling mistake."""
    return sorted(set(getattr(settings, "AEGIS", {})) - set(DEFAULTS))
