"""The registry of the advisory locks, the rows that row locks lock, and who holds those."""

from __future__ import annotations

from django.db import migrations, models

# No model: `flush` truncates the tables of models, and would wait for each open transaction that holds a row here.
LOCKED_ROWS = """
CREATE TABLE aegis_locks_row (
    name varchar(255) PRIMARY KEY CONSTRAINT aegis_locks_row_name_valid CHECK (name ~ '^[a-z0-9._:-]{1,255}$')
)
"""


class Migration(migrations.Migration):
    dependencies = [("aegis_locks", "0001_initial")]

    operations = [
        migrations.CreateModel(
            name="AdvisoryRecord",
            fields=[
                (
                    "name",
                    models.CharField(
                        help_text="Lock name, with the key prefix of its alias.",
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("key", models.BigIntegerField(help_text="Key of the advisory lock, calculated from the name.")),
                (
                    "grant_no",
                    models.BigIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of the last grant. Grows with each grant of this name.",
                    ),
                ),
                ("lease_id", models.UUIDField(help_text="Random id of the last acquisition.", null=True)),
                (
                    "holder",
                    models.CharField(
                        db_default="",
                        default="",
                        help_text="Host, process and thread, for people only.",
                        max_length=200,
                    ),
                ),
                ("acquired_at", models.DateTimeField(help_text="By the database's clock.", null=True)),
            ],
            options={
                "verbose_name": "advisory lock",
                "db_table": "aegis_locks_advisory",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9._:-]{1,255}$")),
                        name="aegis_locks_advisory_name_valid",
                    ),
                    models.UniqueConstraint(fields=("key",), name="aegis_locks_advisory_key_unique"),
                ],
            },
        ),
        migrations.CreateModel(
            name="RowHolderRecord",
            fields=[
                (
                    "name",
                    models.CharField(
                        help_text="Lock name, with the key prefix of its alias.",
                        max_length=255,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("lease_id", models.UUIDField(help_text="Random id of the last acquisition.")),
                ("holder", models.CharField(help_text="Host, process and thread, for people only.", max_length=200)),
                ("acquired_at", models.DateTimeField(help_text="By the database's clock.")),
            ],
            options={
                "verbose_name": "row lock",
                "db_table": "aegis_locks_row_holder",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9._:-]{1,255}$")),
                        name="aegis_locks_row_holder_name_valid",
                    ),
                ],
            },
        ),
        migrations.RunSQL(LOCKED_ROWS, "DROP TABLE aegis_locks_row"),
        # Rewritten at each grant. Free room on the page lets a new version stay there and touch no index (HOT).
        migrations.RunSQL(
            "ALTER TABLE aegis_locks_advisory SET (fillfactor = 50);"
            "ALTER TABLE aegis_locks_row_holder SET (fillfactor = 50)",
            "ALTER TABLE aegis_locks_advisory RESET (fillfactor);"
            "ALTER TABLE aegis_locks_row_holder RESET (fillfactor)",
        ),
    ]
