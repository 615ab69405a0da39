"""The system checks of Aegis where a beat or a worker starts.

``manage.py`` refuses to go on with an error. Celery runs the checks too and throws away what they found, so without
this a beat would store fire times under settings of which a check knows that they are wrong.
"""

from __future__ import annotations

import logging

from django.core.checks import CheckMessage, run_checks
from django.core.exceptions import ImproperlyConfigured

TAG = "aegis"


def errors() -> list[CheckMessage]:
    """What the checks found that is an error and not in ``SILENCED_SYSTEM_CHECKS``. Asks no store."""
    return [found for found in run_checks(tags=[TAG]) if found.is_serious() and not found.is_silenced()]


def told(error: CheckMessage) -> str:
    """One line: id, text and remedy."""
    return f"{error.id}: {error.msg}" + (f" {error.hint}" if error.hint else "")


def refuse_errors() -> None:
    """Raises ``ImproperlyConfigured``, which names each error; a beat does not start with one."""
    found = [told(error) for error in errors()]
    if found:
        raise ImproperlyConfigured(
            "\n".join(
                (
                    "This beat does not start: the system checks found errors.",
                    *found,
                    "Correct the settings; to start all the same, name the id in SILENCED_SYSTEM_CHECKS.",
                )
            )
        )


def log_errors(logger: logging.Logger) -> None:
    """One line of level ERROR for each. A worker goes on: it serves tasks that are not of Aegis, too."""
    for error in errors():
        logger.error("%s", told(error), extra={"action": "system_check", "check": error.id})
