"""The tables of the leases, the claims and the fences, and the sequence of their grant numbers."""

from __future__ import annotations

import datetime

from django.db import migrations, models


class Migration(migrations.Migration):
    initial = True

    dependencies = []

    operations = [
        migrations.CreateModel(
            name="ClaimRecord",
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
                (
                    "version",
                    models.BigIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of the last claim. A claim is good while it stands.",
                    ),
                ),
                (
                    "lease_id",
                    models.UUIDField(help_text="Random id of the last claim that was not given back.", null=True),
                ),
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
                (
                    "closes_at",
                    models.DateTimeField(
                        db_default=models.Value(datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                        help_text="End of the claim window, by the database's clock. Others are refused before it.",
                    ),
                ),
            ],
            options={
                "verbose_name": "claim",
                "db_table": "aegis_locks_claim",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9._:-]{1,255}$")),
                        name="aegis_locks_claim_name_valid",
                    ),
                    models.UniqueConstraint(fields=("name", "version"), name="aegis_locks_claim_name_version"),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lease_id__isnull", False),
                            ("closes_at", datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            _connector="OR",
                        ),
                        name="aegis_locks_claim_free_is_closed",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lease_id__isnull", True),
                            models.Q(("acquired_at__isnull", False), ("version__gt", 0)),
                            _connector="OR",
                        ),
                        name="aegis_locks_claim_held_is_numbered",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="FenceRecord",
            fields=[
                (
                    "name",
                    models.CharField(help_text="Lock name.", max_length=255, primary_key=True, serialize=False),
                ),
                (
                    "token",
                    models.BigIntegerField(db_default=0, default=0, help_text="Fencing token of the latest start."),
                ),
                (
                    "alias",
                    models.CharField(help_text="Strategy under which it was raised last.", max_length=100, null=True),
                ),
                (
                    "grant_no",
                    models.BigIntegerField(
                        help_text="The store's number of that grant, where it has one.", null=True
                    ),
                ),
                ("lease_id", models.UUIDField(help_text="The acquisition that raised it last.", null=True)),
            ],
            options={
                "verbose_name": "fence",
                "db_table": "aegis_locks_fence",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9._:-]{1,255}$")),
                        name="aegis_locks_fence_name_valid",
                    ),
                    models.UniqueConstraint(fields=("name", "token"), name="aegis_locks_fence_name_token"),
                    models.CheckConstraint(
                        condition=models.Q(("token__gte", 0)), name="aegis_locks_fence_token_counts"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="LeaseRecord",
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
                (
                    "lease_id",
                    models.UUIDField(help_text="Random id of the acquisition that holds it. Empty: free.", null=True),
                ),
                (
                    "token",
                    models.BigIntegerField(
                        db_default=0,
                        default=0,
                        help_text="Number of the last grant. Grows with each grant of this name.",
                    ),
                ),
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
                (
                    "expires_at",
                    models.DateTimeField(
                        db_default=models.Value(datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        default=datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC),
                        help_text="By the database's clock. A lease past it is dead, also when nobody took it over.",
                    ),
                ),
            ],
            options={
                "verbose_name": "lease",
                "db_table": "aegis_locks_lease",
                "ordering": ["name"],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(("name__regex", "^[a-z0-9._:-]{1,255}$")),
                        name="aegis_locks_lease_name_valid",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lease_id__isnull", False),
                            ("expires_at", datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            _connector="OR",
                        ),
                        name="aegis_locks_lease_free_is_expired",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lease_id__isnull", True),
                            models.Q(("acquired_at__isnull", False), ("token__gt", 0)),
                            _connector="OR",
                        ),
                        name="aegis_locks_lease_held_is_numbered",
                    ),
                ],
            },
        ),
        # One sequence for all names: a name that was deleted and made again goes on with larger numbers.
        migrations.RunSQL("CREATE SEQUENCE aegis_locks_token", "DROP SEQUENCE aegis_locks_token"),
        # Rows are rewritten all the time. Free room on the page lets a renewal stay there and touch no index
        # (HOT).
        migrations.RunSQL(
            "ALTER TABLE aegis_locks_lease SET (fillfactor = 50);"
            "ALTER TABLE aegis_locks_claim SET (fillfactor = 50);"
            "ALTER TABLE aegis_locks_fence SET (fillfactor = 50)",
            "ALTER TABLE aegis_locks_lease RESET (fillfactor);"
            "ALTER TABLE aegis_locks_claim RESET (fillfactor);"
            "ALTER TABLE aegis_locks_fence RESET (fillfactor)",
        ),
    ]
