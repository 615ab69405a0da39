from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("aegis_scheduler", "0008_alerts"),
    ]

    operations = [
        migrations.CreateModel(
            name="MeasuredCell",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("fault", models.CharField(max_length=40)),
                ("strategy", models.CharField(max_length=100)),
                (
                    "injected",
                    models.PositiveIntegerField(help_text="Faults of this kind that could reach the strategy."),
                ),
                (
                    "bodies_hit",
                    models.PositiveIntegerField(
                        help_text="Bodies of the strategy that were inside and were touched."
                    ),
                ),
                ("duplicates", models.PositiveIntegerField()),
                ("overlaps", models.PositiveIntegerField()),
                (
                    "stale_effects",
                    models.PositiveIntegerField(help_text="Effects written after a later holder had started."),
                ),
                ("missed", models.PositiveIntegerField(help_text="Fire times without a body.")),
                ("lost", models.PositiveIntegerField(help_text="Runs that ended as lost, abandoned or failed.")),
                (
                    "alone",
                    models.PositiveIntegerField(
                        help_text="Duplicates, overlaps and stale effects that no other fault explains as well."
                    ),
                ),
                ("broken_promises", models.PositiveIntegerField()),
            ],
            options={
                "verbose_name": "measured cell",
                "db_table": "aegis_scheduler_measuredcell",
                "ordering": ["run", "fault", "strategy"],
            },
        ),
        migrations.CreateModel(
            name="MeasuredRun",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("digest", models.CharField(max_length=64, unique=True)),
                ("measured_at", models.DateTimeField(help_text="When the run ended, UTC.")),
                ("loaded_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("version", models.CharField(max_length=50)),
                ("commit", models.CharField(blank=True, max_length=100)),
                ("seed", models.BigIntegerField()),
                ("ticks", models.PositiveIntegerField()),
                ("seconds", models.FloatField()),
                ("workers", models.PositiveIntegerField()),
                ("beats", models.PositiveIntegerField()),
                ("tick_guard", models.BooleanField()),
                ("commit_guard", models.BooleanField()),
                (
                    "strategies",
                    models.JSONField(default=dict, help_text="Of each strategy: ticks, takeovers, takeover_p99_s."),
                ),
            ],
            options={
                "verbose_name": "measured run",
                "db_table": "aegis_scheduler_measuredrun",
                "ordering": ["-measured_at", "-id"],
            },
        ),
        migrations.CreateModel(
            name="SliceTally",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "schedule_id",
                    models.BigIntegerField(default=0, help_text="Kept when the schedule is deleted; 0 for calls."),
                ),
                ("schedule", models.CharField(help_text="Its name then, or the task of a call.", max_length=255)),
                ("strategy", models.CharField(max_length=100)),
                ("guarded", models.BooleanField()),
                ("executed", models.PositiveIntegerField(default=0)),
                ("prevented", models.PositiveIntegerField(default=0)),
                ("blocked", models.PositiveIntegerField(default=0)),
                ("revoked", models.PositiveIntegerField(default=0)),
                ("misfired", models.PositiveIntegerField(default=0)),
                ("failed", models.PositiveIntegerField(default=0)),
                ("abandoned", models.PositiveIntegerField(default=0)),
                ("lost", models.PositiveIntegerField(default=0)),
                ("overlap", models.PositiveIntegerField(default=0)),
                ("duplicate", models.PositiveIntegerField(default=0)),
                ("possible_overlap", models.PositiveIntegerField(default=0)),
                ("ended_executed", models.PositiveIntegerField(default=0)),
                ("ended_prevented", models.PositiveIntegerField(default=0)),
                ("ended_blocked", models.PositiveIntegerField(default=0)),
                ("ended_revoked", models.PositiveIntegerField(default=0)),
                ("ended_misfired", models.PositiveIntegerField(default=0)),
                ("ended_failed", models.PositiveIntegerField(default=0)),
                ("ended_abandoned", models.PositiveIntegerField(default=0)),
                ("ended_lost", models.PositiveIntegerField(default=0)),
                ("too_many_overlap", models.PositiveIntegerField(default=0)),
                ("too_many_duplicate", models.PositiveIntegerField(default=0)),
                ("too_many_possible_overlap", models.PositiveIntegerField(default=0)),
                ("hit_overlap", models.PositiveIntegerField(default=0)),
                ("hit_duplicate", models.PositiveIntegerField(default=0)),
                ("hit_possible_overlap", models.PositiveIntegerField(default=0)),
                ("refused_prevented", models.PositiveIntegerField(default=0)),
                ("refused_duplicate", models.PositiveIntegerField(default=0)),
                ("missed", models.PositiveIntegerField(default=0)),
                ("latest_start", models.DateTimeField(help_text="When the newest body too many began.", null=True)),
                ("latest_end", models.DateTimeField(null=True)),
                ("latest_execution", models.BigIntegerField(null=True)),
            ],
            options={
                "db_table": "aegis_scheduler_slicetally",
            },
        ),
        migrations.CreateModel(
            name="SummedSlice",
            fields=[
                ("start", models.DateTimeField(primary_key=True, serialize=False)),
                ("summed_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "db_table": "aegis_scheduler_summedslice",
                "ordering": ["-start"],
            },
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                condition=models.Q(("began", True)),
                fields=["lock_name", "started_at"],
                name="aegis_execution_of_name",
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(fields=["lock_alias", "recorded_at"], name="aegis_execution_of_alias"),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(fields=["state", "recorded_at"], name="aegis_execution_of_state"),
        ),
        migrations.AddIndex(
            model_name="tick",
            index=models.Index(fields=["outcome", "fire_time"], name="aegis_tick_of_outcome"),
        ),
        # Bodies that were inside for more than an hour are few, and are looked for far beyond a window's edge.
        migrations.RunSQL(
            "CREATE INDEX aegis_execution_long ON aegis_scheduler_execution (lock_name, started_at) "
            "WHERE greatest(ended_at, heartbeat_at, returned_at) - started_at > interval '1 hour'",
            "DROP INDEX aegis_execution_long",
        ),
        migrations.AddField(
            model_name="measuredcell",
            name="run",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="cells", to="aegis_scheduler.measuredrun"
            ),
        ),
        migrations.AddField(
            model_name="slicetally",
            name="slice",
            field=models.ForeignKey(
                on_delete=django.db.models.deletion.CASCADE, related_name="tallies", to="aegis_scheduler.summedslice"
            ),
        ),
        migrations.AddConstraint(
            model_name="measuredcell",
            constraint=models.UniqueConstraint(fields=("run", "fault", "strategy"), name="aegis_measured_cell_once"),
        ),
        migrations.AddConstraint(
            model_name="measuredcell",
            constraint=models.CheckConstraint(
                condition=models.Q(("injected__gte", 1)), name="aegis_measured_cell_was_injected"
            ),
        ),
        migrations.AddConstraint(
            model_name="slicetally",
            constraint=models.UniqueConstraint(
                fields=("slice", "schedule_id", "schedule", "strategy", "guarded"), name="aegis_slice_tally_once"
            ),
        ),
    ]
