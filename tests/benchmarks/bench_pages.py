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
from pathlib import Path
from typing import Any

from aegis_site.embedded import Services

PAGES = {
    "Overview": "aegis_scheduler_dashboard_changelist",
    "Timeline": "aegis_scheduler_timeline_changelist",
    "Strategies": "aegis_scheduler_strategies_changelist",
    "Failure matrix": "aegis_scheduler_failurematrix_changelist",
    "Workers and beats": "aegis_scheduler_workers_changelist",
    "Ticks": "aegis_scheduler_tick_changelist",
    "Executions": "aegis_scheduler_execution_changelist",
    "Schedules": "aegis_scheduler_schedule_changelist",
}
WINDOWED = ("Overview", "Strategies")
REPEATS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executions", type=int, default=1_000_000)
    parser.add_argument("--window", default="24h")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="aegis-pages-") as folder:
        services = Services(Path(folder) / "services")
        services.start()
        try:
            os.environ.update(services.env(), SECRET_KEY=secrets.token_hex(32), DEBUG="false", PLAIN_HTTP="true")
            os.environ["LOG_LEVEL"] = "ERROR"
            os.environ["DJANGO_SETTINGS_MODULE"] = "aegis_site.settings"
            _run(options.executions, options.window)
        finally:
            services.stop()


def _run(executions: int, window: str) -> None:
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
    for name, took, queries, size in (_measured(client, name, view, window) for name, view in PAGES.items()):
        figures = f"{statistics.median(took):.0f} | {max(took):.0f} | {queries} | {size / 1024:.0f}"
        lines.append(f"| {name} | {figures} |")
    sys.stdout.write("\n".join(lines) + "\n")


def _measured(client: Any, name: str, view: str, window: str) -> tuple[str, list[float], int, int]:
    from django.db import connection
    from django.test.utils import CaptureQueriesContext
    from django.urls import reverse

    where = reverse(f"admin:{view}")
    asked = (
        {}
        if name in ("Ticks", "Executions", "Schedules", "Failure matrix", "Workers and beats")
        else {"window": window}
    )
    if name == "Timeline":
        asked = {"window": window} if name in WINDOWED else {}
    with CaptureQueriesContext(connection) as captured:
        answer = client.get(where, asked)
    if answer.status_code != 200:
        sys.exit(f"{name}: status {answer.status_code}")
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        client.get(where, asked)
        took.append(1000 * (time.perf_counter() - began))
    return name, took, len(captured), len(answer.content)


if __name__ == "__main__":
    main()
