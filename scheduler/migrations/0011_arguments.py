"""A permission for what tasks are given and what bodies raised; a duplicate delivery is called refused."""

from __future__ import annotations

from django.db import migrations, models


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
        migrations.AlterField(
            model_name="execution",
            name="state",
            field=models.CharField(
                choices=[
                    ("prevented", "Prevented"),
                    ("duplicate", "Duplicate refused"),
                    ("late", "Late"),
                    ("blocked", "Blocked"),
                    ("running", "Running"),
                    ("executed", "Executed"),
                    ("failed", "Failed"),
                    ("retried", "Retried"),
                    ("lost", "Lost"),
                    ("abandoned", "Abandoned"),
                ],
                max_length=12,
            ),
        ),
    ]
