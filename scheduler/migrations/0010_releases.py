from __future__ import annotations

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("aegis_scheduler", "0009_measured")]

    operations: list[migrations.operations.base.Operation] = []
