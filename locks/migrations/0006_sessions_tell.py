"""Who holds an advisory lock is told by its session, as with row locks. To write it down took a commit for each lease."""

from __future__ import annotations

from django.db import migrations

FIELDS = ("grant_no", "lease_id", "holder", "acquired_at")


class Migration(migrations.Migration):
    dependencies = [("aegis_locks", "0005_holders_of_rows")]

    operations = [
        *(migrations.RemoveField("AdvisoryRecord", name) for name in FIELDS),
        migrations.RunSQL(
            "ALTER TABLE aegis_locks_advisory RESET (fillfactor)",
            "ALTER TABLE aegis_locks_advisory SET (fillfactor = 50)",
        ),
    ]
