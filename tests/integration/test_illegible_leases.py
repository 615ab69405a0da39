"""A lease that cannot be made out stops neither the reaper nor a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from locks import lock_backends
from locks.backends.clients import lock_key
from scheduler import held
from scheduler.models import Execution
from scheduler.reaper import Reaper
from tests.integration.test_ticker import Clock, dead_execution, passes
from tests.support.pages import staff

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def foreign() -> Iterator[str]:
    """The key of a lock name in Redis, written by somebody by hand."""
    backend: Any = lock_backends["redis"]
    key = lock_key(backend.prefix, "lock.foreign")
    backend.client.set(key, "stop")
    yield key
    backend.client.delete(key)


def states() -> dict[str, str]:
    return dict(Execution.objects.values_list("lock_name", "state"))


def test_a_value_that_is_no_lease_keeps_no_other_dead_run_from_being_given_up(foreign: str) -> None:
    dead_execution("redis", name="foreign"), dead_execution("redis", name="other")
    clock = Clock()
    assert passes(Reaper(clock), clock, 9) == 1
    assert states() == {"lock.foreign": "running", "lock.other": "abandoned"}
    lock_backends["redis"].client.delete(foreign)  # type: ignore[attr-defined]
    assert passes(Reaper(clock), clock, 9) == 1


def test_a_fault_of_a_backend_keeps_no_other_dead_run_from_being_given_up(
    settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.LOCKS = {**settings.LOCKS, "odd": {"BACKEND": "tests.support.backends.Illegible"}}
    dead_execution("odd", name="illegible"), dead_execution("odd", name="other")
    clock = Clock()
    assert passes(Reaper(clock), clock, 9) == 1
    assert states() == {"lock.illegible": "running", "lock.other": "abandoned"}
    assert "cannot tell whether lock.illegible is still held" in caplog.text


def test_the_locks_page_shows_a_value_that_is_no_lease(foreign: str, client: Client) -> None:
    dead_execution("redis", name="foreign")
    found = held.locks()
    (row,) = (one for one in found.held if one.info.name == "lock.foreign")
    assert not found.unread and row.state == held.OTHER and "wrote no lease" in row.worker
    client.force_login(staff("olga", "view_lock"))
    page = client.get(reverse("admin:aegis_scheduler_locks_changelist"))
    assert page.status_code == 200 and "wrote no lease" in page.content.decode()
