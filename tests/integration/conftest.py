"""Tests start with free lock names; those that name the redlock strategy when its nodes vote."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pytest_django import DjangoDbBlocker

from scheduler.registry import exclusive_tasks
from tests.support.backends import free_names
from tests.support.cluster import Cluster, cluster
from tests.support.quorum import await_votes


@pytest.fixture(scope="session", autouse=True)
def tasks_are_known() -> None:
    """Whoever asks for them first sets up Django's logging anew, which would take ``caplog`` away in the middle."""
    exclusive_tasks()


@pytest.fixture(autouse=True)
def plain_http(settings: Any) -> None:
    """A test client speaks http, which the site answers with a redirect."""
    settings.SECURE_SSL_REDIRECT = False


@pytest.fixture(autouse=True)
def names_are_free() -> None:
    free_names()


@pytest.fixture(autouse=True)
def quorum_votes(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and "redlock" in callspec.params.values():
        await_votes()


@pytest.fixture
def own_cluster(django_db_blocker: DjangoDbBlocker) -> Iterator[Cluster]:
    """A PostgreSQL of the test's own, beside the session's."""
    with django_db_blocker.unblock(), cluster() as made:
        yield made
