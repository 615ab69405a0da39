"""Live pages: the same address, asked by the page's own script for its regions only.

A region is an element with ``data-live-region`` in a template. The answer is the page's content without the frame
around it, so that nothing is described twice. Where nothing happened it is 304, decided by one statement over
partial indexes, before anything of the page is read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.utils.cache import get_conditional_response, patch_vary_headers

from scheduler.conf import conf

HEADER = "X-Aegis-Live"
SHORTEST = 2.0  # seconds between two looks, whatever the setting says
# Seconds without a touch of keyboard or pointer, after which a page looks no more.
PATIENCE = 900
# Figures of a window change by its moving on alone: it is drawn anew after this many seconds at the latest.
MOVES_ON = 15

# What a page that shows the ledger is made of. in: moves_on, alive (seconds).
# out: the newest rows, what is open and inside, who is alive, the step of the clock.
_VERSION = """
SELECT (SELECT max(id) FROM aegis_scheduler_execution), (SELECT max(id) FROM aegis_scheduler_tick),
       (SELECT max(id) FROM aegis_scheduler_schedulechange),
       (SELECT (count(*), sum(id))::text FROM aegis_scheduler_execution WHERE state = 'running'),
       (SELECT (count(*), sum(id), sum(attempt))::text FROM aegis_scheduler_tick
        WHERE state IN ('planned', 'dispatched', 'waiting', 'started')),
       (SELECT count(*) FROM aegis_scheduler_instance WHERE stopped_at IS NULL
        AND heartbeat_at > clock_timestamp() - %(alive)s * interval '1 second'),
       floor(extract(epoch FROM clock_timestamp()) / %(moves_on)s)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """How a page keeps itself fresh: seconds between two looks, and without input until it stops."""

    every: float
    patience: int = PATIENCE


def live(*, frozen: object) -> Live | None:
    """How this page is kept fresh; None for one whose "now" is frozen and where it is switched off."""
    every = float(conf("LIVE_INTERVAL"))
    return None if frozen or not every else Live(every=max(every, SHORTEST))


def is_wanted(request: HttpRequest) -> bool:
    """Whether only the regions are asked for."""
    return HEADER in request.headers or "_regions" in request.GET


def ledger_version(request: HttpRequest) -> str:
    """What stands in the ledger and who looks, as a validator. One statement, no table is read through."""
    alive = max(conf("SILENCE_GRACE"), 3 * conf("HEARTBEAT"))
    with connection.cursor() as cursor:
        cursor.execute(_VERSION, {"moves_on": MOVES_ON, "alive": alive})
        found = cursor.fetchone()
    told = repr((found, request.user.pk, request.get_full_path()))
    return f'"{hashlib.sha256(told.encode()).hexdigest()[:32]}"'


def unchanged(request: HttpRequest, version: str | None) -> HttpResponse | None:
    """The answer 304 to whoever has this version already."""
    answer = get_conditional_response(request, etag=version) if version else None
    return None if answer is None else regions(answer, version)


def regions(answer: HttpResponse, version: str | None) -> HttpResponse:
    """The answer marked as regions, with its version."""
    if version:
        answer.headers["ETag"] = version
    patch_vary_headers(answer, [HEADER])
    return answer
