"""What an empty priority means, in words: nothing changes in the database."""

from __future__ import annotations

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0013_missed")]

    operations = [
        migrations.AlterField(
            model_name="schedule",
            name="priority",
            field=models.PositiveSmallIntegerField(
                blank=True,
                help_text="0 to 9. Empty: the task's, else Celery's default.",
                null=True,
                validators=[
                    django.core.validators.MaxValueValidator(9, "Priority must be 0 to 9; you gave %(show_value)s.")
                ],
            ),
        ),
    ]
