"""Releases by force are on record; the name of a schedule is one line of text."""

from __future__ import annotations

import django.core.validators
import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models

CONTROL = r"[\x01-\x1f\x7f-\x9f\u2028\u2029]"

# A name of before that holds one gets a space in its place.
ONE_LINE = f"""
UPDATE aegis_scheduler_schedule SET name = regexp_replace(name, '{CONTROL}', ' ', 'g') WHERE name ~ '{CONTROL}'
"""  # noqa: S608


class Migration(migrations.Migration):
    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
        ("aegis_scheduler", "0009_measured"),
    ]

    operations = [
        migrations.CreateModel(
            name="LockRelease",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("name", models.CharField(max_length=200, verbose_name="lock name")),
                ("alias", models.CharField(max_length=100, verbose_name="strategy")),
                ("lease_id", models.UUIDField(help_text="The lease that the operator saw.", verbose_name="lease")),
                (
                    "token",
                    models.BigIntegerField(help_text="Its number, where the store numbers its grants.", null=True),
                ),
                ("holder", models.CharField(blank=True, help_text="Who held it, for people.", max_length=300)),
                ("reason", models.CharField(max_length=500)),
                ("who", models.CharField(help_text="The user's name, or who gave the command.", max_length=150)),
                ("asked_at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
                (
                    "result",
                    models.CharField(
                        choices=[
                            ("unknown", "Not known"),
                            ("released", "Released"),
                            ("moved", "Not released: another lease holds the name"),
                            ("free", "Not released: the name was free"),
                        ],
                        default="unknown",
                        max_length=10,
                    ),
                ),
                (
                    "detail",
                    models.CharField(
                        blank=True, help_text="Who holds the name now, or why it is not known.", max_length=500
                    ),
                ),
                (
                    "released_by",
                    models.ForeignKey(
                        blank=True,
                        null=True,
                        on_delete=django.db.models.deletion.SET_NULL,
                        to=settings.AUTH_USER_MODEL,
                    ),
                ),
            ],
            options={
                "verbose_name": "lock release",
                "db_table": "aegis_scheduler_lockrelease",
                "ordering": ["-asked_at", "-id"],
                "indexes": [models.Index(fields=["released_by", "asked_at"], name="aegis_lockrelease_by_whom")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("reason", ""), _negated=True), name="aegis_lockrelease_has_reason"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("who", ""), _negated=True), name="aegis_lockrelease_has_who"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("result__in", ["unknown", "released", "moved", "free"])),
                        name="aegis_lockrelease_result_known",
                    ),
                ],
            },
        ),
        migrations.RunSQL(ONE_LINE, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="schedule",
            name="name",
            field=models.CharField(
                max_length=200,
                unique=True,
                validators=[
                    django.core.validators.RegexValidator(
                        CONTROL,
                        "A name is one line of text: take out line breaks, tabs and other control characters.",
                        inverse_match=True,
                    )
                ],
            ),
        ),
        migrations.AddConstraint(
            model_name="schedule",
            constraint=models.CheckConstraint(
                condition=models.Q(("name__regex", CONTROL), _negated=True), name="aegis_schedule_name_is_one_line"
            ),
        ),
    ]
