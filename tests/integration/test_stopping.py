"""A beat that is asked to stop does stop, also where what its signal handler raises gets lost on the way out."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from celery import current_app
from celery.apps.beat import Beat
from celery.beat import Service
from django.db import OperationalError, connection, transaction

import scheduler.beat
from aegis_site.embedded.ports import free_port
from scheduler import ticker
from scheduler.beat import CatalogScheduler, deaf

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def beat() -> Iterator[CatalogScheduler]:
    """With the handler of SIGTERM that Celery gives a beat."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    service = Service(current_app, scheduler_cls=CatalogScheduler)
    Beat(app=current_app).install_sync_handler(service)
    yield service.scheduler
    for number, handler in before.items():
        signal.signal(number, handler)
    service.scheduler.close()
    for aside in service.scheduler._asides:
        if aside._thread is not None:
            aside._thread.join(60)


@pytest.mark.parametrize("where", [(ticker, "mint"), (CatalogScheduler, "_set_up")], ids=["catalog", "ordinary"])
def test_a_stop_that_gets_lost_is_obeyed_by_the_next_step(
    where: tuple[Any, str], beat: CatalogScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a transaction whose database goes away: the roll-back fails, and then so does Django's new connection."""
    lost: list[OperationalError] = []

    def asked(*_: object) -> None:
        try:
            with monkeypatch.context() as away, transaction.atomic():
                connection.ensure_connection()
                connection.connection.close()
                away.setitem(connection.settings_dict, "PORT", free_port())
                os.kill(os.getpid(), signal.SIGTERM)
        except OperationalError as instead:
            lost.append(instead)
            raise

    monkeypatch.setattr(*where, asked)
    with pytest.raises(SystemExit):
        beat.tick()
    assert len(lost) == 1


@pytest.fixture
def said(beat: CatalogScheduler, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each good-bye of the beat that was said to its end; in the middle of the first it is asked to stop again."""
    begun: list[str] = []
    said: list[str] = []

    def good_bye() -> None:
        begun.append("good-bye")
        if len(begun) == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        said.append("good-bye")

    monkeypatch.setattr(beat._presence, "leave", good_bye)
    return said


def test_a_good_bye_is_not_cut_short_by_another_signal(beat: CatalogScheduler, said: list[str]) -> None:
    with pytest.raises(SystemExit):
        os.kill(os.getpid(), signal.SIGTERM)
    assert said == ["good-bye"]
    with pytest.raises(SystemExit):  # also where the loop were to go on
        beat.tick()
    with pytest.raises(SystemExit):  # it is heard again
        os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_in_the_middle_of_a_pass_leaves_the_good_bye_to_the_end_of_the_loop(
    beat: CatalogScheduler, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler begins no good-bye inside the statement of another."""
    monkeypatch.setattr(CatalogScheduler, "_set_up", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with pytest.raises(SystemExit):
        beat.tick()
    assert said == []
    beat.close()
    assert said == ["good-bye"]


def test_a_signal_just_before_the_last_good_bye_does_not_take_it_away(
    beat: CatalogScheduler, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop has ended, and nobody says good-bye after this call: the handler does, or lets it be said."""
    asked: list[str] = []

    @contextmanager
    def asked_first() -> Iterator[None]:
        if not asked:
            asked.append("to stop")
            os.kill(os.getpid(), signal.SIGTERM)
        with deaf():
            yield

    monkeypatch.setattr(scheduler.beat, "deaf", asked_first)
    with pytest.raises(SystemExit):
        beat.close()
    assert said == ["good-bye"]
