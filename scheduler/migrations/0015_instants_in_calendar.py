"""Each instant of a schedule is one that Python can read; an edit of the arguments lets a broken row be read again."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib import import_module

from django.db import migrations, models

_, _, _rest = import_module("scheduler.migrations.0004_policies").FOLLOW_EDITS.partition(
    "CREATE FUNCTION aegis_scheduler_follow_edit"
)
_BEFORE = "CREATE OR REPLACE FUNCTION aegis_scheduler_follow_edit" + _rest.partition("CREATE TRIGGER")[0]
# As before, and: the arguments, too, may be what broke a row.
FOLLOW_EDITS = _BEFORE.replace("NEW.catch_up_window)", "NEW.catch_up_window, NEW.args, NEW.kwargs)").replace(
    "OLD.catch_up_window)", "OLD.catch_up_window, OLD.args, OLD.kwargs)"
)
assert FOLLOW_EDITS.count(".args") == 2

FIRST, LAST = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)
INSTANTS = (
    "anchor", "once_at", "start_at", "end_at", "paused_at", "paused_until", "activated_at", "next_fire_at",
)  # fmt: skip


def _in_calendar(field: str) -> str:
    return f"coalesce({field} BETWEEN '{FIRST}' AND '{LAST}', true)"


def _clamped(field: str) -> str:
    return f"CASE WHEN {field} IS NOT NULL THEN greatest(least({field}, '{LAST}'), '{FIRST}') END"


# A window or a pause without a bound is what such a bound meant. What lies at the wrong end stays there, so that it
# never fires, or is shown as too far away. The trigger is left out: it reckons with the instants of before.
MEND = f"""
ALTER TABLE aegis_scheduler_schedule DISABLE TRIGGER aegis_scheduler_follow_edit;
UPDATE aegis_scheduler_schedule SET
    start_at = CASE WHEN start_at >= '{FIRST}' THEN {_clamped("start_at")} END,
    end_at = CASE WHEN end_at <= '{LAST}' THEN {_clamped("end_at")} END,
    paused_until = CASE WHEN paused_until <= '{LAST}' THEN {_clamped("paused_until")} END,
    anchor = {_clamped("anchor")}, once_at = {_clamped("once_at")}, paused_at = {_clamped("paused_at")},
    activated_at = clock_timestamp(), next_fire_at = NULL, exhausted = false, broken_reason = ''
WHERE NOT ({" AND ".join(map(_in_calendar, INSTANTS))});
ALTER TABLE aegis_scheduler_schedule ENABLE TRIGGER aegis_scheduler_follow_edit;
"""  # noqa: S608


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0014_priority_help")]

    operations = [
        migrations.RunSQL(FOLLOW_EDITS, _BEFORE),
        migrations.RunSQL(MEND, migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(*[(f"{field}__range", (FIRST, LAST)) for field in INSTANTS]),
                name="aegis_schedule_instants_in_calendar",
            ),
        ),
    ]
