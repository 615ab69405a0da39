"""How fast the pages are on a filled ledger: `make bench-pages`. Prints a table in Markdown.

Real PostgreSQL, started for this run in a folder of its own; the pages through Django's test client: middleware, view
and template are in the figure, the network is not. Median and longest of several requests after one that warms up.
"""

from __future__ import annotations

import argparse
import os
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aegis_site.embedded import Services

BAR = 300  # milliseconds, of the median
REPEATS = 7

Page = tuple[str, str, dict[str, str]]
"""Its name, its path, what is asked of it."""


def pages() -> list[Page]:
    """Every page of the dashboard and of the ledger, with the rows that a filled ledger has."""
    from django.urls import reverse

    from scheduler.models import Execution, Schedule, Tick

    def of(view: str, *ids: int) -> str:
        return reverse(f"admin:aegis_scheduler_{view}", args=ids)

    newest = (model._default_manager.order_by("-id")[0].pk for model in (Schedule, Tick, Execution))
    schedule, tick, execution = newest
    overview = of("dashboard_changelist")
    return [
        ("Overview, 24 h", overview, {"window": "24h"}),
        ("Overview, 1 h", overview, {"window": "1h"}),
        ("Overview, 7 days", overview, {"window": "7d"}),
        ("Timeline", of("timeline_changelist"), {}),
        ("Strategies, 24 h", of("strategies_changelist"), {"window": "24h"}),
        ("Failure matrix", of("failurematrix_changelist"), {}),
        ("Workers and beats", of("workers_changelist"), {}),
        ("Locks", of("locks_changelist"), {}),
        ("Alerts", of("alert_changelist"), {}),
        ("Schedules", of("schedule_changelist"), {}),
        ("One schedule", of("schedule_page", schedule), {}),
        ("Its form", of("schedule_change", schedule), {}),
        ("Ticks", of("tick_changelist"), {}),
        ("One tick", of("tick_change", tick), {}),
        ("Executions", of("execution_changelist"), {}),
        ("One execution", of("execution_change", execution), {}),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aegis-pages-") as folder:
        services = Services(Path(folder) / "services")
        services.start()
        try:
            os.environ.update(services.env(), SECRET_KEY=secrets.token_hex(32), DEBUG="false", PLAIN_HTTP="true")
            os.environ["LOG_LEVEL"] = "ERROR"
            os.environ["DJANGO_SETTINGS_MODULE"] = "aegis_site.settings"
            return _run(options.executions)
        finally:
            services.stop()


def _run(executions: int) -> int:
    import django

    django.setup()
    from django.contrib.auth import get_user_model
    from django.core.management import call_command
    from django.test import Client

    call_command("migrate", verbosity=0, interactive=False)
    call_command("aegis", "fill", executions=executions)
    user = get_user_model()._default_manager.create_superuser("bench", "bench@example.com", secrets.token_hex(8))
    client = Client(headers={"host": "localhost"})
    client.force_login(user)
    lines = [f"| page | median (ms) | longest of {REPEATS} (ms) | queries | size (KB) |", "|---|---|---|---|---|"]
    slow = []
    for name, where, asked in pages():
        took, queries, size = _measured(client, name, where, asked)
        middle = statistics.median(took)
        lines.append(f"| {name} | {middle:.0f} | {max(took):.0f} | {queries} | {size / 1024:.0f} |")
        slow += [name] if middle > BAR else []
    sys.stdout.write("\n".join(lines) + f"\nSlower than {BAR} ms: {', '.join(slow) or 'none'}\n")
    return 1 if slow else 0


def _measured(client: Any, name: str, where: str, asked: dict[str, str]) -> tuple[list[float], int, int]:
    from django.db import connection

    queries = 0

    def count(execute: Callable[..., Any], *statement: Any) -> Any:
        nonlocal queries
        queries += 1
        return execute(*statement)

    with connection.execute_wrapper(count):
        answer = client.get(where, asked)
    if answer.status_code != 200:
        sys.exit(f"{name}: status {answer.status_code}")
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        client.get(where, asked)
        took.append(1000 * (time.perf_counter() - began))
    return took, queries, len(answer.content)


if __name__ == "__main__":
    sys.exit(main())
