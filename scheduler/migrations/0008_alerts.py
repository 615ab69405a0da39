from __future__ import annotations

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("aegis_scheduler", "0007_pages"),
    ]

    operations = [
        migrations.CreateModel(
            name="AlertRule",
            fields=[
                ("key", models.CharField(max_length=30, primary_key=True, serialize=False)),
                ("enabled", models.BooleanField(default=True)),
                ("threshold", models.FloatField(blank=True, help_text="Empty: the default.", null=True)),
                ("changed_by", models.CharField(blank=True, max_length=150)),
                ("changed_at", models.DateTimeField(auto_now=True)),
            ],
            options={
                "db_table": "aegis_scheduler_alertrule",
                "ordering": ["key"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Alert",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("rule", models.CharField(max_length=30)),
                (
                    "subject",
                    models.CharField(
                        help_text="What it is about: a schedule, a process, a lock name.", max_length=300
                    ),
                ),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("open", "Open"),
                            ("acknowledged", "Acknowledged"),
                            ("muted", "Muted"),
                            ("closed", "Closed"),
                        ],
                        default="open",
                        max_length=12,
                    ),
                ),
                ("message", models.CharField(max_length=500)),
                (
                    "execution_id",
                    models.BigIntegerField(help_text="The execution that shows it, if one does.", null=True),
                ),
                ("mark", models.BigIntegerField(default=0, help_text="The newest event that is counted.")),
                ("count", models.PositiveIntegerField(default=1)),
                ("first_seen", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("last_seen", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "notified_at",
                    models.DateTimeField(help_text="When somebody took it to tell the channels.", null=True),
                ),
                (
                    "handled_by",
                    models.CharField(blank=True, help_text="Who acknowledged or muted it.", max_length=150),
                ),
                ("handled_at", models.DateTimeField(null=True)),
                ("note", models.CharField(blank=True, max_length=500)),
                ("muted_until", models.DateTimeField(null=True)),
                ("closed_at", models.DateTimeField(null=True)),
                (
                    "schedule",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        related_name="+",
                        to="aegis_scheduler.schedule",
                    ),
                ),
            ],
            options={
                "db_table": "aegis_scheduler_alert",
                "ordering": ["-last_seen", "-id"],
                "default_permissions": ("view", "change"),
            },
        ),
        migrations.CreateModel(
            name="AlertDelivery",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("channel", models.CharField(max_length=20)),
                ("sent_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("ok", models.BooleanField()),
                ("detail", models.CharField(blank=True, max_length=300)),
                (
                    "alert",
                    models.ForeignKey(
                        null=True,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="deliveries",
                        to="aegis_scheduler.alert",
                    ),
                ),
            ],
            options={
                "db_table": "aegis_scheduler_alertdelivery",
                "ordering": ["-sent_at", "-id"],
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="AlertLook",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("looked_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                ("looked_by", models.CharField(blank=True, max_length=255)),
                (
                    "trouble",
                    models.TextField(
                        blank=True, help_text="Rules that could not be looked at the last time, and why."
                    ),
                ),
            ],
            options={
                "db_table": "aegis_scheduler_alertlook",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(condition=models.Q(("id", 1)), name="aegis_alertlook_one_row")
                ],
            },
        ),
        migrations.AddIndex(
            model_name="alert",
            index=models.Index(fields=["state", "-last_seen"], name="aegis_alert_by_state"),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "closed"), _negated=True),
                fields=("rule", "subject"),
                name="aegis_alert_one_not_closed",
            ),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.CheckConstraint(
                condition=models.Q(("state__in", ["open", "acknowledged", "muted", "closed"])),
                name="aegis_alert_state_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("muted_until__isnull", False), ("state", "muted")),
                    models.Q(("state", "muted"), _negated=True),
                    _connector="OR",
                ),
                name="aegis_alert_muted_has_end",
            ),
        ),
        migrations.AddConstraint(
            model_name="alert",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("closed_at__isnull", False), ("state", "closed")),
                    models.Q(models.Q(("state", "closed"), _negated=True), ("closed_at__isnull", True)),
                    _connector="OR",
                ),
                name="aegis_alert_closed_iff_over",
            ),
        ),
    ]
