from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [
        ("aegis_scheduler", "0006_calls"),
    ]

    operations = [
        migrations.CreateModel(
            name="FailureMatrix",
            fields=[],
            options={
                "verbose_name": "failure matrix",
                "verbose_name_plural": "failure matrix",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("aegis_scheduler.dashboard",),
        ),
        migrations.CreateModel(
            name="Locks",
            fields=[],
            options={
                "verbose_name": "locks",
                "verbose_name_plural": "locks",
                "permissions": [("view_lock", "Can view locks"), ("release_lock", "Can release a lock by force")],
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("aegis_scheduler.dashboard",),
        ),
        migrations.CreateModel(
            name="Strategies",
            fields=[],
            options={
                "verbose_name": "strategies",
                "verbose_name_plural": "strategies",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("aegis_scheduler.dashboard",),
        ),
        migrations.CreateModel(
            name="Workers",
            fields=[],
            options={
                "verbose_name": "workers and beats",
                "verbose_name_plural": "workers and beats",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("aegis_scheduler.dashboard",),
        ),
        migrations.AlterModelOptions(
            name="dashboard",
            options={
                "base_manager_name": "objects",
                "default_permissions": (),
                "managed": False,
                "permissions": [("view_dashboard", "Can view the dashboard")],
                "verbose_name": "overview",
                "verbose_name_plural": "overview",
            },
        ),
        migrations.AlterModelOptions(
            name="execution",
            options={"ordering": ["-id"], "permissions": [("export_execution", "Can export executions")]},
        ),
        migrations.AlterModelOptions(
            name="schedule",
            options={
                "ordering": ["name"],
                "permissions": [
                    ("pause_schedule", "Can pause and resume schedule"),
                    ("run_schedule", "Can run schedule now"),
                    ("change_strategy", "Can change the strategy of schedules"),
                ],
            },
        ),
    ]
