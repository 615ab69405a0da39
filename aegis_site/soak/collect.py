"""Read what a soak left behind: the journal's files, and the audit and the effects in the database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from aegis_site.soak.history import Effect, Fate, History, Start, stays
from aegis_site.soak.injection import Fault
from aegis_site.soak.journal import lines
from aegis_site.soak.models import Counter, Mark
from locks.clock import boottime
from scheduler.models import Execution, Tick


def collect(journal: Path, faults: Sequence[Fault], **run: Any) -> History:
    """The history of the ``run`` that has just ended. Nothing of it may be running any more."""
    return History(
        stays=stays(lines(journal), faults),
        effects=[Effect(**row) for row in Mark.objects.values(*Effect.__annotations__)],
        counters=dict(Counter.objects.values_list("name", "value")),
        starts=_starts(),
        fates=_fates(),
        faults=faults,
        boot_epoch=time.time() - boottime(),
        **run,
    )


def _starts() -> list[Start]:
    rows = Execution.objects.filter(began=True).values_list(
        "id", "tick_id", "lock_name", "lock_alias", "tick__schedule_name", "token", "pid", "state", "started_at",
        "ended_at",
    )  # fmt: skip
    return [Start(**_fields(Start, row)) for row in rows.iterator()]


def _fates() -> list[Fate]:
    rows = Tick.objects.values_list(
        "id", "schedule_name", "lock_alias", "state", "outcome", "reason", "fire_time", "through", "deadline"
    )
    return [Fate(**_fields(Fate, row)) for row in rows.iterator()]


def _fields(kind: type, row: Sequence[Any]) -> dict[str, Any]:
    """A row whose columns were asked for in the order of the fields of ``kind``."""
    return dict(zip(kind.__annotations__, row, strict=True))
