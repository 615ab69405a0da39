"""What an error of a system check does to a beat and a worker; warnings and what is silenced do nothing."""

from __future__ import annotations

import logging

import pytest
from celery import current_app
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from scheduler.at_start import log_errors, refuse_errors
from scheduler.beat import CatalogScheduler
from scheduler.registry import exclusive_tasks

E004 = "aegis.scheduler.E004: USE_TZ is off: fire times would be ambiguous. Set USE_TZ = True."
E005 = "aegis.scheduler.E005: AEGIS['HEARTBEAT'] is 0. Give a number above zero; 2 is the default."


@pytest.fixture(autouse=True)
def tasks_are_imported() -> None:
    """Celery sets up Django before it imports them, and with that the logging: ``caplog`` would hear nothing."""
    exclusive_tasks()


@override_settings(USE_TZ=False, AEGIS={"HEARTBEAT": 0})
def test_a_beat_names_each_error_with_its_id_its_text_and_its_remedy() -> None:
    with pytest.raises(ImproperlyConfigured) as refusal:
        CatalogScheduler(app=current_app)
    lines = str(refusal.value).splitlines()
    assert E004 in lines and E005 in lines
    assert len(lines) == 4 and "SILENCED_SYSTEM_CHECKS" in lines[-1]


@override_settings(USE_TZ=False)
def test_the_scheduler_of_celerys_banner_is_made_all_the_same() -> None:
    CatalogScheduler(app=current_app, lazy=True)


@override_settings(USE_TZ=False, SILENCED_SYSTEM_CHECKS=["aegis.scheduler.E004"])
def test_an_error_that_is_silenced_stops_nobody() -> None:
    refuse_errors()


@override_settings(BROKER_TRANSPORT_OPTIONS={"visibility_timeout": 7200})  # W002
def test_a_warning_stops_nobody() -> None:
    refuse_errors()


@override_settings(USE_TZ=False, AEGIS={"HEARTBEAT": 0})
def test_a_worker_logs_each_error_once(caplog: pytest.LogCaptureFixture) -> None:
    log_errors(logging.getLogger("aegis.worker"))
    assert {(one.levelname, one.getMessage()) for one in caplog.records} == {("ERROR", E004), ("ERROR", E005)}
    assert len(caplog.records) == 2
