from __future__ import annotations

from importlib import import_module

import django.core.validators
from django.db import migrations, models

_before = import_module("scheduler.migrations.0002_triggers")

# As before, and: an edit of anything that may have broken a row lets it be read again at once; a fire time that an
# edit overtakes is also noted where a pause had ended by itself.
FOLLOW_EDITS = _before.FOLLOW_EDITS.replace(
    "s.paused_at IS NULL AND s.broken_reason",
    "(s.paused_at IS NULL OR s.paused_until <= clock_timestamp()) AND s.broken_reason",
).replace(
    """        NEW.revision := OLD.revision + 1;
        NEW.broken_reason := '';
    END IF;""",
    """        NEW.revision := OLD.revision + 1;
        NEW.broken_reason := '';
    ELSIF (NEW.ttl, NEW.jitter_seconds, NEW.misfire_grace, NEW.catch_up_window)
        IS DISTINCT FROM (OLD.ttl, OLD.jitter_seconds, OLD.misfire_grace, OLD.catch_up_window) THEN
        NEW.broken_reason := '';
    END IF;""",
)
assert FOLLOW_EDITS.count("NEW.jitter_seconds") == FOLLOW_EDITS.count("s.paused_until <=") == 1

# A schedule that was broken by its strategy's alias is read again as soon as the name has another one.
FOLLOW_ALIAS = """
CREATE FUNCTION aegis_scheduler_follow_alias() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE aegis_scheduler_schedule SET broken_reason = '' WHERE lock_id = NEW.name AND broken_reason <> '';
    RETURN NULL;
END $$;
CREATE TRIGGER aegis_scheduler_follow_alias AFTER UPDATE ON aegis_scheduler_lockname
    FOR EACH ROW WHEN (OLD.alias_wanted <> NEW.alias_wanted OR OLD.alias_in_force <> NEW.alias_in_force)
    EXECUTE FUNCTION aegis_scheduler_follow_alias();
"""
UNFOLLOW_ALIAS = """
DROP TRIGGER aegis_scheduler_follow_alias ON aegis_scheduler_lockname;
DROP FUNCTION aegis_scheduler_follow_alias();
"""

# As before, without the schedules that are paused until somebody resumes them: they would stand at its head for ever.
DUE_INDEX = _before.DUE_INDEX.replace(
    "broken_reason = ''", "broken_reason = '' AND (paused_at IS NULL OR paused_until IS NOT NULL)"
)
DROP_DUE_INDEX = "DROP INDEX aegis_schedule_due;"

# Before the state is unknown again: who waits is dispatched once more, and refused or run.
WAKE_ALL = "UPDATE aegis_scheduler_tick SET state = 'dispatched' WHERE state = 'waiting'"


class Migration(migrations.Migration):
    dependencies = [
        ("aegis_scheduler", "0003_dashboard"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="schedule",
            options={"ordering": ["name"], "permissions": [("pause_schedule", "Can pause and resume schedule")]},
        ),
        migrations.RemoveConstraint(
            model_name="tick",
            name="aegis_tick_state_known",
        ),
        migrations.RemoveConstraint(
            model_name="tick",
            name="aegis_tick_outcome_iff_over",
        ),
        migrations.RemoveIndex(
            model_name="tick",
            name="aegis_tick_open_name",
        ),
        migrations.AddField(
            model_name="schedule",
            name="jitter_seconds",
            field=models.FloatField(
                db_default=0,
                default=0,
                help_text="Each tick is published up to this much after its fire time, the same for one fire time on every beat. Smaller than the shortest time between two runs; 0: at once.",
                validators=[
                    django.core.validators.MinValueValidator(
                        0, "The jitter in seconds must be %(limit_value)s or more; you gave %(show_value)s."
                    )
                ],
                verbose_name="jitter (seconds)",
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="overlap",
            field=models.CharField(
                choices=[("skip", "Skip it"), ("queue_one", "Queue one: let it wait for the end of that run")],
                db_default="skip",
                default="skip",
                help_text="Queue one: at most one tick of this schedule waits, as long as the other run lasts; the grace counts from the end of that run. While one waits, later ones are prevented (queue full).",
                max_length=12,
                verbose_name="if the name is busy",
            ),
        ),
        migrations.AddField(
            model_name="schedule",
            name="paused_by",
            field=models.CharField(blank=True, db_default="", editable=False, max_length=150),
        ),
        migrations.AddField(
            model_name="schedulechange",
            name="who",
            field=models.CharField(
                blank=True,
                db_default="",
                help_text="The user's name, or who gave the command.",
                max_length=150,
            ),
        ),
        migrations.AddField(
            model_name="tick",
            name="jitter",
            field=models.FloatField(
                db_default=0, default=0, help_text="Seconds after the fire time before which it was not published."
            ),
        ),
        migrations.AddField(
            model_name="tick",
            name="overlap",
            field=models.CharField(
                choices=[("skip", "Skip it"), ("queue_one", "Queue one: let it wait for the end of that run")],
                db_default="skip",
                default="skip",
                max_length=12,
            ),
        ),
        migrations.AlterField(
            model_name="tick",
            name="deadline",
            field=models.DateTimeField(
                help_text="Nobody began by then: missed. A waiting tick has none; it gets a new one when it is woken."
            ),
        ),
        migrations.AlterField(
            model_name="tick",
            name="state",
            field=models.CharField(
                choices=[
                    ("planned", "Planned"),
                    ("dispatched", "Dispatched"),
                    ("waiting", "Waiting"),
                    ("started", "Started"),
                    ("closed", "Closed"),
                    ("misfired", "Misfired"),
                ],
                default="planned",
                max_length=12,
            ),
        ),
        migrations.AddIndex(
            model_name="tick",
            index=models.Index(
                condition=models.Q(("state__in", ("planned", "dispatched", "waiting", "started"))),
                fields=["lock_name"],
                name="aegis_tick_open_name",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("overlap__in", ["skip", "queue_one"])), name="aegis_schedule_overlap_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("jitter_seconds__gte", 0)), name="aegis_schedule_jitter_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("every_seconds__isnull", True),
                    ("jitter_seconds__lt", models.F("every_seconds")),
                    _connector="OR",
                ),
                name="aegis_schedule_jitter_below_interval",
                violation_error_code="jitter",
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("paused_until__isnull", True), ("paused_at__isnull", False), _connector="OR"),
                name="aegis_schedule_until_needs_pause",
            ),
        ),
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "waiting")), fields=("schedule",), name="aegis_tick_one_waiting"
            ),
        ),
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("state__in", ["planned", "dispatched", "waiting", "started", "closed", "misfired"])
                ),
                name="aegis_tick_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.CheckConstraint(
                condition=models.Q(("overlap__in", ["skip", "queue_one"])), name="aegis_tick_overlap_known"
            ),
        ),
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.CheckConstraint(
                condition=models.Q(("jitter__gte", 0)), name="aegis_tick_jitter_not_negative"
            ),
        ),
        migrations.AddConstraint(
            model_name="tick",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("outcome", ""), ("state__in", ("planned", "dispatched", "waiting", "started"))),
                    models.Q(("outcome", "misfired"), ("state", "misfired")),
                    models.Q(
                        (
                            "outcome__in",
                            ["executed", "failed", "lost", "abandoned", "prevented", "blocked", "revoked"],
                        ),
                        ("state", "closed"),
                    ),
                    _connector="OR",
                ),
                name="aegis_tick_outcome_iff_over",
            ),
        ),
        migrations.AddIndex(
            model_name="schedule",
            index=models.Index(
                condition=models.Q(("broken_reason", ""), _negated=True), fields=["id"], name="aegis_schedule_broken"
            ),
        ),
        migrations.RunSQL(_before.UNFOLLOW_EDITS + FOLLOW_EDITS, _before.UNFOLLOW_EDITS + _before.FOLLOW_EDITS),
        migrations.RunSQL(DROP_DUE_INDEX + DUE_INDEX, DROP_DUE_INDEX + _before.DUE_INDEX),
        migrations.RunSQL(FOLLOW_ALIAS, UNFOLLOW_ALIAS),
        migrations.RunSQL(migrations.RunSQL.noop, WAKE_ALL),
    ]
