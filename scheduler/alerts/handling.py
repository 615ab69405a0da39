"""What people do with an alert: acknowledge, mute until, open again. Each is one guarded statement with a trace."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.contrib.admin.models import CHANGE, LogEntry
from django.db import transaction
from django.db.models.functions import Now

from scheduler.changes import Refused
from scheduler.models import Alert, AlertRule

State = Alert.State


def acknowledge(alert: Alert, *, note: str, who: Any) -> None:
    """Somebody looks after it. Raises ``Refused`` where it was closed meanwhile."""
    _handle(alert, {"state": State.ACKNOWLEDGED, "note": note, "muted_until": None}, f"acknowledged: {note}", who)


def mute(alert: Alert, *, until: datetime, note: str, who: Any) -> None:
    """Of it nothing but its end is told before ``until``. Raises ``Refused`` where it was closed meanwhile."""
    said = f"muted until {until:%Y-%m-%d %H:%M} UTC: {note}"
    _handle(alert, {"state": State.MUTED, "note": note, "muted_until": until}, said, who)


def reopen(alert: Alert, *, note: str, who: Any) -> None:
    """It is open again, and is not told again. Raises ``Refused`` where it was closed meanwhile."""
    _handle(alert, {"state": State.OPEN, "note": note, "muted_until": None}, f"opened again: {note}", who)


def _handle(alert: Alert, changes: dict[str, Any], said: str, who: Any) -> None:
    with transaction.atomic():
        live = Alert.objects.filter(pk=alert.pk).exclude(state=State.CLOSED)
        if not live.update(handled_by=who.get_username()[:150], handled_at=Now(), **changes):
            raise Refused("the condition is gone, and the alert is closed.")
        LogEntry.objects.log_actions(who.pk, [alert], CHANGE, said[:1000], single_object=True)


def setting(enabled: bool, threshold: float | None) -> str:
    """How a rule is set, in words."""
    return f"{'on' if enabled else 'off'}, threshold {'default' if threshold is None else f'{threshold:g}'}"


def set_rule(key: str, *, enabled: bool, threshold: float | None, who: Any, shown: str = "") -> bool:
    """Store how a rule is set; whether that changed anything.

    ``shown``: the ``setting`` that ``who`` had seen, if known. What they left as it was stays as it is; raises
    ``Refused`` where another has set it meanwhile.
    """
    said = setting(enabled, threshold)
    with transaction.atomic():
        row = AlertRule.objects.select_for_update(no_key=True).filter(key=key).first()
        stored = setting(row.enabled, row.threshold) if row else setting(True, None)
        if said in (stored, shown):
            return False
        if row and shown not in ("", stored):
            raise Refused(f"{row.changed_by or 'somebody'} has set it meanwhile ({stored}); you gave: {said}")
        changed, _ = AlertRule.objects.update_or_create(
            key=key, defaults={"enabled": enabled, "threshold": threshold, "changed_by": who.get_username()[:150]}
        )
        LogEntry.objects.log_actions(who.pk, [changed], CHANGE, said, single_object=True)
    return True
