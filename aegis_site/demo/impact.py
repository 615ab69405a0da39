"""What collisions did to the demo's business, from its own ledger: ``AEGIS["IMPACT"]`` of the demo."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection

from aegis_site.demo.models import Effect
from scheduler.charts import Window
from scheduler.dashboard.impact import Impact

# What is said of each kind of effect: done once, and done again.
WORDS = {
    Effect.Kind.SETTLEMENT: ("invoices settled", "Invoices settled twice"),
    Effect.Kind.SHIPMENT: ("orders shipped", "Orders shipped twice"),
    Effect.Kind.DIGEST: ("digests sent", "Digests sent twice"),
}
# Schedules that are named in one sentence.
NAMED = 3

# in:  start, end. out, by kind: effects, effects after the first of their subject, their cents, and the schedules
#      under which that happened.
_AGAIN = """
SELECT kind, count(*), count(*) FILTER (WHERE number > 1),
       coalesce(sum(amount_cents) FILTER (WHERE number > 1), 0),
       array_agg(DISTINCT schedule ORDER BY schedule) FILTER (WHERE number > 1)
FROM (SELECT kind, schedule, amount_cents,
             row_number() OVER (PARTITION BY schedule, subject ORDER BY entered_at, id) AS number
      FROM aegis_demo_effect WHERE entered_at >= %(start)s AND entered_at < %(end)s) effects
GROUP BY kind
"""


def impact(window: Window) -> Iterator[Impact]:
    """``Invoices settled twice: 7, 1,240.00 too much``, worst first; what happened once only is said as well."""
    with connection.cursor() as cursor:
        cursor.execute(_AGAIN, {"start": window.start, "end": window.end})
        found = sorted(cursor.fetchall(), key=lambda row: -row[3])
    yield from (_harm(*row) for row in found if row[2])
    for kind, number, again, _, _ in found:
        if not again:
            yield Impact(f"None of {number:,} {WORDS[Effect.Kind(kind)][0]} was done twice.")


def _harm(kind: str, number: int, again: int, cents: int, schedules: list[str]) -> Impact:
    money = f", {cents // 100:,}.{cents % 100:02d} too much" if cents else ""
    where = ", ".join(schedules[:NAMED]) + (" and others" if len(schedules) > NAMED else "")
    return Impact(f"{WORDS[Effect.Kind(kind)][1]}: {again:,}{money} (schedule {where}).", bad=True)
