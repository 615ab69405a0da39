"""A project without deliveries to every worker: no worker listens, and such a schedule is refused with a remedy."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from celery import Celery
from django.core.exceptions import ValidationError
from django.test import Client, override_settings
from django.urls import reverse

from aegis_site.celery import app
from scheduler.celery_signals import listen_to_broadcast
from scheduler.models import Schedule
from scheduler.publisher import publish
from tests.integration.test_admin import ADD, boss, filled, problems
from tests.support.engine import make_schedule, make_tick

__all__ = ["boss"]  # a fixture, for the tests below

pytestmark = pytest.mark.django_db(transaction=True)

OFF = {"BROADCAST_QUEUE": None}


def queues_of_a_worker() -> set[str]:
    team = Celery("team", broker=app.conf.broker_url, set_as_current=False)
    try:
        listen_to_broadcast("w@test", SimpleNamespace(app=team))
        return {str(queue.alias or queue.name) for queue in team.amqp.queues.consume_from.values()}
    finally:
        team.close()


def test_no_worker_listens() -> None:
    assert queues_of_a_worker() == {"celery", "aegis.every_worker"}
    with override_settings(AEGIS=OFF):
        assert queues_of_a_worker() == {"celery"}


@override_settings(AEGIS=OFF)
def test_the_form_and_the_model_refuse_it(boss: Client) -> None:
    told = problems(boss.post(reverse(ADD), filled(delivery="every_worker")))["delivery"]
    assert "BROADCAST_QUEUE" in told and "choose one worker" in told
    schedule = make_schedule(delivery="every_worker")
    with pytest.raises(ValidationError, match="choose one worker"):
        schedule.full_clean()
    Schedule.objects.update(delivery="one_worker")
    schedule.refresh_from_db()
    schedule.full_clean()


def test_what_was_stored_before_is_not_sent_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    tick = make_tick(make_schedule(delivery="every_worker"))
    app.set_current()
    with override_settings(AEGIS=OFF):
        published = publish([tick])
    assert (published.ids, published.broker_failed) == ([], False)
    assert "BROADCAST_QUEUE" in caplog.text
