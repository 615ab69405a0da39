"""Channels: the log, e-mail, a webhook and a signal. Each is told outside of any transaction and for a bounded time.

A channel that failed is left out for the rest of the look, so that a dead one delays nobody for longer than its
time-out. Each attempt is stored; neither addresses nor what a remote answered are.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from django.core import mail
from django.urls import reverse

from scheduler.alerts.rules import RULES
from scheduler.alerts.settings import SCHEMES, alert_settings
from scheduler.doctor.bounded import Asked, NotAnswered
from scheduler.error_text import storable
from scheduler.models import Alert, AlertDelivery
from scheduler.signals import alert_closed, alert_opened

logger = logging.getLogger("aegis.alerts")

TIMEOUT = 5.0  # seconds for one step of an e-mail or a webhook: to connect, to be answered
PATIENCE = 10.0  # seconds for all steps together: one that answers by the byte would go on for ever
REMOTE = ("e-mail", "webhook")


class NotTold(Exception):
    """A channel did not take it; the text may be shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What came of telling one channel."""

    channel: str
    ok: bool
    detail: str


class _NoRedirect(HTTPRedirectHandler):
    """A redirect could lead to an address that nobody chose."""

    def redirect_request(self, *args: Any, **kwargs: Any) -> None:
        return None


def _log(alert: Alert) -> str:
    facts = {"rule": alert.rule, "subject": alert.subject}
    if _is_over(alert):
        logger.info("alert %s is over for %s", alert.rule, alert.subject, extra={"action": "alert_over", **facts})
    else:
        logger.error(
            "alert %s opened for %s: %s", alert.rule, alert.subject, alert.message, extra={"action": "alert", **facts}
        )
    return "written to the logger aegis.alerts"


def _email(alert: Alert) -> str:
    to = alert_settings().email
    subject = storable(headline(alert).replace("\r", " ").replace("\n", " "), 200)
    where = link_to(alert) or "It is on the page of alerts."
    body = f"{alert.message}\n\nFirst seen {alert.first_seen:%Y-%m-%d %H:%M:%S} UTC. {where}\n"
    with mail.get_connection(timeout=TIMEOUT) as connection:
        sent = mail.EmailMessage(subject, body, to=to, connection=connection).send()
    if not sent:
        raise NotTold("the mail backend sent nothing")
    return f"sent to {len(to)} address{'' if len(to) == 1 else 'es'}"


def _webhook(alert: Alert) -> str:
    url = alert_settings().webhook
    if urlsplit(url).scheme not in SCHEMES:
        raise NotTold("the address is neither http nor https")
    request = Request(  # noqa: S310 - the scheme was looked at
        url, data=json.dumps(payload(alert)).encode(), headers={"Content-Type": "application/json"}, method="POST"
    )
    try:
        with build_opener(_NoRedirect).open(request, timeout=TIMEOUT) as answer:
            return f"answered {answer.status}"
    except HTTPError as refusal:
        refusal.close()
        raise NotTold(f"answered {refusal.code}") from None


def _signal(alert: Alert) -> str:
    signal = alert_closed if _is_over(alert) else alert_opened
    raised = [answer for _, answer in signal.send_robust(sender=Alert, alert=alert) if isinstance(answer, Exception)]
    if raised:
        raise NotTold(f"{len(raised)} of the receivers raised: {type(raised[0]).__name__}")
    return f"{len(signal.receivers)} receivers"


def payload(alert: Alert) -> dict[str, Any]:
    """What a webhook is sent, under a schema that stays. ``text`` is what chats show of it."""
    return {
        "schema": "aegis.alert.1",
        "text": " ".join(filter(None, (f"{headline(alert)}: {alert.message}", link_to(alert)))),
        "url": link_to(alert),
        "id": alert.pk,
        "rule": alert.rule,
        "title": title(alert),
        "subject": alert.subject,
        "message": alert.message,
        "state": alert.state,
        "count": alert.count,
        "first_seen": alert.first_seen.isoformat() if alert.first_seen else None,
    }


def headline(alert: Alert) -> str:
    """In a line: what it is about, and whether it is over."""
    return f"[Aegis] {'Over: ' if _is_over(alert) else ''}{title(alert)}: {alert.subject}"


def link_to(alert: Alert) -> str | None:
    """Its page, where BASE_URL says where the site is; None for a test, which has none."""
    base = alert_settings().base_url
    return base + reverse("admin:aegis_scheduler_alert_detail", args=[alert.pk]) if base and alert.pk else None


def _is_over(alert: Alert) -> bool:
    return alert.state == Alert.State.CLOSED


def title(alert: Alert) -> str:
    """The rule's name for people."""
    rule = RULES.get(alert.rule)
    return rule.title if rule else alert.rule


def channels() -> dict[str, Callable[[Alert], str]]:
    """Those that are set up, in the order in which they are told."""
    chosen = alert_settings()
    found: dict[str, Callable[[Alert], str]] = {"log": _log} if chosen.log else {}
    found["signal"] = _signal
    if chosen.email:
        found["e-mail"] = _email
    if chosen.webhook:
        found["webhook"] = _webhook
    return found


def deliver(ids: Iterable[int]) -> None:
    """Tell every channel of these alerts; what came of it is stored with each."""
    dead: set[str] = set()
    for alert in Alert.objects.filter(pk__in=ids).order_by("pk"):
        AlertDelivery.objects.bulk_create(
            AlertDelivery(alert=alert, channel=told.channel, ok=told.ok, detail=told.detail)
            for told in tell(alert, dead)
        )


def tell(alert: Alert, dead: set[str]) -> list[Told]:
    """Tell each channel that is not in ``dead``; one that fails is put there."""
    found = []
    for name, channel in channels().items():
        if name in dead:
            found.append(Told(channel=name, ok=False, detail="left out: it had just failed"))
            continue
        told = _in_time(name, channel, alert) if name in REMOTE else _told(name, channel, alert)
        found.append(told)
        if not told.ok:
            logger.warning("channel %s was not told: %s", name, told.detail)
            dead.add(name)
    return found


def _told(name: str, channel: Callable[[Alert], str], alert: Alert) -> Told:
    try:
        return Told(channel=name, ok=True, detail=channel(alert))
    except Exception as trouble:  # whatever a mail backend or a receiver raises
        # Messages of errors may hold the address, and with it a secret; the class says enough.
        detail = str(trouble) if isinstance(trouble, NotTold) else type(trouble).__name__
        return Told(channel=name, ok=False, detail=storable(detail, 300))


def _in_time(name: str, channel: Callable[[Alert], str], alert: Alert) -> Told:
    try:
        return Asked(lambda: _told(name, channel, alert)).answer(PATIENCE)
    except NotAnswered as why:
        return Told(channel=name, ok=False, detail=str(why))
