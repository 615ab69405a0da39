"""Who holds a row lock is told by its session. A table of it would cost a commit for each lease."""

from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("aegis_locks", "0004_name_checks")]

    operations = [migrations.DeleteModel("RowHolderRecord")]
