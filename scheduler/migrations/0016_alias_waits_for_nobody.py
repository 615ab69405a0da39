"""A change of strategy does not wait for a broken schedule that somebody holds: a beat would wait with it."""

from __future__ import annotations

from importlib import import_module

from django.db import migrations

_CREATE, _, _ = import_module("scheduler.migrations.0004_policies").FOLLOW_ALIAS.partition("CREATE TRIGGER")
_BEFORE = _CREATE.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION")

# As before, without the rows that are locked: whoever looks at broken rows finds them later. Timeline: somebody edits
# a broken schedule and leaves the transaction open; the last tick of its lock name ends; each pass of each beat puts
# the wanted strategy in force, waits for that row, is cut short, and stores nothing of any schedule.
_WHICH = "lock_id = NEW.name AND broken_reason <> ''"
_UNLOCKED = f"SELECT id FROM aegis_scheduler_schedule WHERE {_WHICH} FOR NO KEY UPDATE SKIP LOCKED"  # noqa: S608
FOLLOW_ALIAS = _BEFORE.replace(_WHICH, f"id IN (\n        {_UNLOCKED})")
assert _BEFORE.count(_WHICH) == 1


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0015_instants_in_calendar")]

    operations = [migrations.RunSQL(FOLLOW_ALIAS, _BEFORE)]
