from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("aegis_scheduler", "0005_presence"),
    ]

    operations = [
        migrations.AddField(
            model_name="tick",
            name="call_options",
            field=models.JSONField(
                db_default=models.Value({}, models.JSONField()),
                default=dict,
                help_text="Of a call: its callbacks, chain and chord, which its next attempt repeats.",
            ),
        ),
    ]
