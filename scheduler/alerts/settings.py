"""AEGIS["ALERTS"]: how often is looked, and who is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from django.core.checks import CheckMessage, Error

from scheduler.conf import DEFAULTS, conf

SCHEMES = ("http", "https")


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """``every``: seconds between two looks, 0: no beat looks."""

    every: float
    log: bool
    email: tuple[str, ...]
    webhook: str
    base_url: str


def alert_settings() -> AlertSettings:
    """The settings with their defaults; what is wrong with them is told by the checks."""
    given = {**DEFAULTS["ALERTS"], **_given()}
    return AlertSettings(
        every=float(given["EVERY"]),
        log=bool(given["LOG"]),
        email=tuple(given["EMAIL"] or ()),
        webhook=str(given["WEBHOOK"] or ""),
        base_url=str(given["BASE_URL"] or "").rstrip("/"),
    )


def _given() -> dict[str, Any]:
    value = conf("ALERTS")
    return value if isinstance(value, dict) else {}


def check_alerts(**kwargs: Any) -> list[CheckMessage]:
    """Known keys, values that can be used. A secret in the webhook's address is not repeated."""
    return [
        Error(f"AEGIS['ALERTS']{where}: {what}", hint=remedy, id="aegis.scheduler.E013")
        for where, what, remedy in _problems(conf("ALERTS"))
    ]


def _problems(value: Any) -> Iterator[tuple[str, str, str]]:
    if not isinstance(value, dict):
        yield "", f"it is {type(value).__name__}.", "Give a dict, such as {'EMAIL': ['ops@example.com']}."
        return
    for key in sorted(set(value) - set(DEFAULTS["ALERTS"]), key=str):
        yield f"[{key!r}]", "there is no such key.", "See docs/reference/alerts.md."
    every = value.get("EVERY", 0)
    if not isinstance(every, int | float) or isinstance(every, bool) or every < 0:
        yield "['EVERY']", f"it is {every!r}.", "Give seconds, such as 15; 0: no beat looks."
    email = value.get("EMAIL") or ()
    if not isinstance(email, list | tuple | set) or not all(isinstance(one, str) and "@" in one for one in email):
        yield "['EMAIL']", "it is no list of addresses.", "Give a list, such as ['ops@example.com']."
    for key, example in (("WEBHOOK", "https://hooks.example.com/aegis"), ("BASE_URL", "https://www.example.com")):
        url = value.get(key)
        if url and not _is_address(str(url)):
            yield f"[{key!r}]", "it is no http or https address.", f"Give one, such as {example}."


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:  # half of an IPv6 address
        return False
    return parts.scheme in SCHEMES and bool(parts.hostname)
