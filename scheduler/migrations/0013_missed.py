"""The index of what was missed, by when that was stored: the fire time of a stretch may be hours before."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0012_unknown_fire_times")]

    operations = [
        migrations.AddIndex(
            model_name="tick",
            index=models.Index(
                fields=["closed_at"], condition=models.Q(("state", "misfired")), name="aegis_tick_missed_closed"
            ),
        ),
    ]
