"""A permission for what tasks are given and what bodies raised."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0010_releases")]

    operations = [
        migrations.AlterModelOptions(
            name="schedule",
            options={
                "ordering": ["name"],
                "permissions": [
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("run_schedule", "Can run schedule now"),
                    ("change_strategy", "Can change the strategy of schedules"),
                    ("view_arguments", "Can view the arguments of tasks and what bodies raised"),
                ],
            },
        ),
    ]
