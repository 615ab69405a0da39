"""``aegis demo``: real workers and beats collide without a lock, and stop colliding with each strategy."""

from __future__ import annotations

import json
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand, CommandError
from rich.console import Console
from rich.live import Live

from aegis_site.demo.catalog import seed
from aegis_site.demo.cli.seed import make_admin
from aegis_site.demo.fleet import Fleet, FleetError, free_port
from aegis_site.demo.interrupts import Interrupts
from aegis_site.demo.results import Result, as_json, results
from aegis_site.demo.table import table
from locks import LockUnavailable, lock_backends
from scheduler.measurements import load
from scheduler.models import Execution, Tick
from scheduler.states import OPEN_TICKS, ExecutionState
from scheduler.ticker import Ticker

HELP = "Watch ticks collide on real processes, and stop colliding with each lock strategy."

READY_WITHIN = 120.0  # seconds for workers and pages to answer
DRAIN_WITHIN = 40.0  # seconds for open ticks to be settled after the beats have stopped minting
PLAIN_EVERY = 10.0  # seconds between two lines where stderr is no terminal
PIPED_WIDTH = 200  # characters of the table where stdout is no terminal
UNAVAILABLE = 69
INTERRUPTED = 130  # 128 + SIGINT, as a shell counts


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", type=positive, default=4, help="worker processes (default 4)")
    parser.add_argument("--beats", type=positive, default=2, help="beat processes (default 2)")
    parser.add_argument("--seconds", type=positive, help="how long ticks are made (default: until Ctrl-C)")
    parser.add_argument("--format", choices=("table", "json"), default="table", help="of the result on stdout")
    parser.add_argument("--port", type=_port, default=8000, help="of the pages (default 8000; 0: any free one)")


def positive(text: str) -> int:
    """An argument that is a whole number from 1. Raises ``ArgumentTypeError`` with what is wrong."""
    return _whole(text, least=1, most=10_000_000)


def _port(text: str) -> int:
    return _whole(text, least=0, most=65_535)


def _whole(text: str, *, least: int, most: int) -> int:
    try:
        number = int(text)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return number


def run(
    command: BaseCommand, *, workers: int, beats: int, seconds: int | None, port: int, **options: object
) -> int | None:
    """Start everything, show it, stop it, print the result. Raises ``CommandError`` with what to do."""
    console = Console(stderr=True)
    try:
        fleet = Fleet(workers=workers, beats=beats, port=free_port(port), logs=_logs())
        took = _show(fleet, console, seconds)
    except (FleetError, LockUnavailable) as trouble:
        raise CommandError(str(trouble), returncode=UNAVAILABLE) from trouble
    except KeyboardInterrupt:
        raise CommandError("Stopped before the end; there is no result.", returncode=INTERRUPTED) from None
    rows = results()
    if options["format"] == "json":
        sys.stdout.write(json.dumps(as_json(rows, seconds=took, workers=workers, beats=beats), indent=2) + "\n")
    else:
        out = Console(width=None if sys.stdout.isatty() else PIPED_WIDTH)
        out.print(table(rows, f"Result after {took:.0f} s", out.width))
        _summary(Console(), rows)
    return None


def _show(fleet: Fleet, console: Console, seconds: int | None) -> float:
    try:
        _prepare()
        with Interrupts() as interrupts:
            _start(fleet, console, interrupts)
            began = time.monotonic()
            # Not before: fire times that pass while the beats are still starting would count as missed.
            schedules = seed(set(lock_backends.aliases()))
            console.print(f"{len(schedules)} schedules, every 2 s, each delivered to every worker")
            _watch(fleet, console, None if seconds is None else began + seconds, interrupts)
            took = time.monotonic() - began
            _drain(fleet, console)
        return took
    finally:
        fleet.stop()


def _prepare() -> None:
    """Tables, and in a clone what a soak has measured; the nodes of a quorum begin their quarantine meanwhile."""
    call_command("migrate", verbosity=0, interactive=False)
    for measured in sorted((settings.BASE_DIR / "docs" / "measurements").glob("soak-*.json")):
        load(measured.read_text())
    _seconds_until_all_grant()


def _start(fleet: Fleet, console: Console, interrupts: Interrupts) -> None:
    fleet.start()
    password = make_admin(password=None)
    give_up = time.monotonic() + READY_WITHIN
    while not fleet.ready() or _seconds_until_all_grant() > 0:
        if interrupts.asked:
            raise KeyboardInterrupt  # nothing has happened yet that a result could tell of
        if time.monotonic() > give_up:
            raise FleetError(
                f"Not all processes were ready within {READY_WITHIN:.0f} s; their logs are in {fleet.logs}."
            )
        time.sleep(0.1)
    console.print(
        f"Pages: {fleet.url}  user [bold]admin[/]" + (f"  password [bold]{password}[/]" if password else "")
    )
    console.print(f"Logs: {fleet.logs}")


def _seconds_until_all_grant() -> float:
    """How long until every strategy can grant a lease; asking starts a quarantine that has not begun."""
    return max(lock_backends[alias].prepare() for alias in lock_backends.aliases())


def _watch(fleet: Fleet, console: Console, until: float | None, interrupts: Interrupts) -> None:
    """Show the figures as they grow: a live table in a terminal, a line now and then elsewhere."""
    with _display(console) as show:
        while not interrupts.asked and (until is None or time.monotonic() < until):
            fleet.check()
            show()
            left = 1.0 if until is None else min(1.0, until - time.monotonic())
            interrupts.sleep(max(0.0, left))
    if interrupts.asked:
        console.print("Stopping ...")


@contextmanager
def _display(console: Console) -> Iterator[Callable[[], None]]:
    if console.is_terminal:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda: live.update(table(results(), "Live; Ctrl-C ends the demo", console.width), refresh=True)
        return
    last = time.monotonic()

    def line() -> None:
        nonlocal last
        if time.monotonic() - last >= PLAIN_EVERY:
            last = time.monotonic()
            states = Execution.objects.values_list("state", flat=True)
            ran = sum(1 for state in states if state == ExecutionState.EXECUTED)
            console.print(f"{Tick.objects.count()} ticks, {ran} bodies executed")

    yield line


def _drain(fleet: Fleet, console: Console) -> None:
    """Stop making ticks and let what is open come to its end, so that no figure is cut in the middle."""
    fleet.stop_beats()
    ticker = Ticker()
    give_up = time.monotonic() + DRAIN_WITHIN
    while _open() and time.monotonic() < give_up:
        fleet.check()
        ticker.tend()
        time.sleep(0.2)
    if _open():
        console.print(f"[yellow]{_open()} ticks or bodies were still open after {DRAIN_WITHIN:.0f} s[/]")


def _open() -> int:
    running = Execution.objects.filter(state=ExecutionState.RUNNING).count()
    return running + Tick.objects.filter(state__in=OPEN_TICKS).count()


def _summary(console: Console, rows: list[Result]) -> None:
    """Two sentences that somebody who knows nothing of locks can read."""
    doubled = [row for row in rows if row.ledger_duplicates]
    clean = [row.name for row in rows if row.once_per_tick and not row.ledger_duplicates]
    for row in doubled:
        money = f", {row.ledger_settled_twice} settled twice" if row.ledger_settled_twice != "0.00" else ""
        console.print(f"{row.name}: {row.ledger_duplicates} of {row.ledger_effects} effects were doubles{money}.")
    if clean:
        console.print(f"No effect was doubled by: {', '.join(clean)}.")
    agree = all(row.agrees for row in rows)
    console.print(f"Audit and side-effect ledger {'agree' if agree else 'DISAGREE'}.")


def _logs() -> Path:
    return Path(settings.EMBEDDED_DIR) / "demo-logs"
