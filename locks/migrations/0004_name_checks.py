"""Names are checked for their characters; their length is for the column's type.

``{1,255}`` in the pattern took as long as the rest of an acquire: PostgreSQL looks at each constraint of a row at each
update, and goes through a state for each count.
"""

from __future__ import annotations

from django.db import migrations, models

TABLES = {
    "advisoryrecord": "aegis_locks_advisory",
    "claimrecord": "aegis_locks_claim",
    "fencerecord": "aegis_locks_fence",
    "leaserecord": "aegis_locks_lease",
    "rowholderrecord": "aegis_locks_row_holder",
}


class Migration(migrations.Migration):
    dependencies = [("aegis_locks", "0003_tokens_and_guards")]

    operations = [
        operation
        for model, table in TABLES.items()
        for operation in (
            migrations.RemoveConstraint(model, f"{table}_name_valid"),
            migrations.AddConstraint(
                model,
                models.CheckConstraint(
                    condition=models.Q(name__regex=r"^[a-z0-9._:-]+$"), name=f"{table}_name_valid"
                ),
            ),
        )
    ]
