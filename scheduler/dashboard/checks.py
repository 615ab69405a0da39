"""System check of what the dashboard is told in the settings."""

from __future__ import annotations

from typing import Any

from django.core.checks import CheckMessage, Error

from scheduler.conf import conf
from scheduler.dashboard.impact import function


def check_impact(**kwargs: Any) -> list[CheckMessage]:
    """``AEGIS["IMPACT"]`` leads to a function. It is not called."""
    try:
        function()
    except Exception as trouble:  # whatever a project's module raises
        return [
            Error(
                f"AEGIS['IMPACT'] is {conf('IMPACT')!r} and leads to no function: {type(trouble).__name__}.",
                hint="Name a function by its dotted path, or leave the key out.",
                id="aegis.scheduler.E030",
            )
        ]
    return []
