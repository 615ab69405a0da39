from __future__ import annotations

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("aegis_scheduler", "0004_policies"),
    ]

    operations = [
        migrations.AddField(
            model_name="instance",
            name="clock_error",
            field=models.FloatField(help_text="The offset is right to this many seconds.", null=True),
        ),
        migrations.AddField(
            model_name="instance",
            name="clock_offset",
            field=models.FloatField(help_text="Its clock less the database's, seconds.", null=True),
        ),
        migrations.AddField(
            model_name="instance",
            name="concurrency",
            field=models.PositiveIntegerField(help_text="Bodies that a worker may run at once.", null=True),
        ),
        migrations.AddField(
            model_name="instance",
            name="pool",
            field=models.CharField(
                blank=True, db_default="", help_text="Of a worker: prefork, threads ...", max_length=50
            ),
        ),
        migrations.AddField(
            model_name="instance",
            name="queues",
            field=models.JSONField(help_text="The queues that a worker reads.", null=True),
        ),
        migrations.AddField(
            model_name="instance",
            name="stamp_version",
            field=models.PositiveIntegerField(help_text="The format of messages that it reads.", null=True),
        ),
        migrations.AddField(
            model_name="instance",
            name="version",
            field=models.CharField(blank=True, db_default="", help_text="Of Aegis. Empty: not told.", max_length=50),
        ),
    ]
