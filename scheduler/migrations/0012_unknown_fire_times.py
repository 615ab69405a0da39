"""An edit says so where it cannot be known how many fire times it overtakes."""

from __future__ import annotations

from importlib import import_module

from django.db import migrations

_BEFORE = (
    import_module("scheduler.migrations.0004_policies")
    .FOLLOW_EDITS.partition("CREATE FUNCTION aegis_scheduler_follow_edit")[0]
    .replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")
)

# As before, and: what passed while no beat had named a next fire time, or the row was broken. Timeline: beats are
# down; an edit at 01:30 clears the next fire time; 02:00 passes; an edit at 02:30 finds none that it overtakes.
#
# Of a cron expression nobody knows here whether it named an instant meanwhile. Within five seconds of an edit it is
# taken for granted that it did not: two edits in a row are common, and a beat passes every second.
_SINCE = """
    CROSS JOIN LATERAL (
        SELECT clock_timestamp() AS now, coalesce(s.next_fire_at, greatest(s.activated_at, s.paused_until)) AS at,
               s.next_fire_at IS NOT NULL AND s.broken_reason = '' AS known
    ) since
"""
_PASSED = """
      AND since.at <= since.now AND (since.known OR
        (s.next_fire_at IS NOT NULL OR s.broken_reason <> '' OR since.at < since.now - interval '5 seconds')
        AND coalesce(s.start_at <= since.now, true) AND coalesce(s.end_at > since.at, true)
        AND CASE WHEN s.next_fire_at IS NOT NULL THEN true
                 WHEN s.once_at IS NOT NULL THEN s.once_at > since.at AND s.once_at <= since.now
                 WHEN s.every_seconds IS NOT NULL
                     THEN floor(extract(epoch FROM since.now - s.anchor) / s.every_seconds)
                        > floor(extract(epoch FROM since.at - s.anchor) / s.every_seconds)
                 ELSE true END)
"""
_REASON = "'the schedule was edited before a beat stored it'"
_UNKNOWN = "'the schedule was edited before a beat stored its fire times; how many passed is not known'"

_now = _BEFORE
for old, new in (
    ("s.revision, s.next_fire_at, s.task", "s.revision, since.at, s.task"),
    (_REASON, f"CASE WHEN since.known THEN {_REASON}\n                ELSE {_UNKNOWN} END"),
    ("clock_timestamp(), 1\n", "clock_timestamp(), CASE WHEN since.known THEN 1 ELSE 0 END\n"),
    ("FROM aegis_scheduler_lockname n\n", f"FROM aegis_scheduler_lockname n{_SINCE}"),
    (" AND s.broken_reason = ''\n      AND s.next_fire_at <= clock_timestamp()\n", _PASSED),
):
    assert _now.count(old) == 1, old
    _now = _now.replace(old, new)
NOTE_UNSTORED = _now


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0011_arguments")]

    operations = [migrations.RunSQL(NOTE_UNSTORED, _BEFORE)]
