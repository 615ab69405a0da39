"""An index of the lock names whose strategy is to be switched: each pass of each beat looks for them."""

from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("aegis_scheduler", "0016_alias_waits_for_nobody"),
    ]

    operations = [
        migrations.AddIndex(
            model_name="lockname",
            index=models.Index(
                condition=models.Q(
                    models.Q(("alias_in_force", ""), _negated=True),
                    models.Q(("alias_in_force", models.F("alias_wanted")), _negated=True),
                ),
                fields=["name"],
                name="aegis_lockname_switching",
            ),
        ),
    ]
