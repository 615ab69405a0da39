"""``aegis doctor``: what is well and what is not, one line each, with the next step."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from dataclasses import asdict

from django.core.management.base import BaseCommand

from scheduler.doctor import Report, examine

HELP = (
    "Look at settings, stores, broker, processes and schedules; one line each: ok, warn or fail, and the next step."
)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--strict", action="store_true", help="exit 1 for a warning as well")
    parser.add_argument("--format", choices=("table", "json"), default="table")


def run(command: BaseCommand, *, strict: bool, format: str, **options: object) -> int:
    """0: nothing failed; 1: something did, or was warned of with ``--strict``; 69: the database does not answer."""
    report = examine()
    status = report.exit_status(strict=strict)
    command.stdout.write(_json(report, status) if format == "json" else _table(report))
    return status


def _json(report: Report, status: int) -> str:
    shown = {
        "schema": 1,
        "verdict": report.level.value,
        "exit_status": status,
        "database": report.reachable,
        "counts": report.counts,
        "findings": [asdict(finding) for finding in report.findings],
    }
    return json.dumps(shown, indent=2)


def _table(report: Report) -> str:
    wide = max((len(finding.topic) for finding in report.findings), default=0)
    lines = [
        f"{finding.level.value:4}  {finding.topic:{wide}}  {finding.sentence}"
        + (f"  -> {finding.remedy}" if finding.remedy else "")
        for finding in report.findings
    ]
    counts = ", ".join(f"{number} {level}" for level, number in report.counts.items())
    return "\n".join([*lines, "", counts])
