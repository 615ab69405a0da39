"""Where the settings take the addresses of the stores from."""

from __future__ import annotations

import pytest

from aegis_site.stores import NOWHERE, IncompleteStoresError, resolve

OWN = {"DATABASE_URL": "postgres://own", "CELERY_BROKER_URL": "redis://own/0", "REDIS_URL": "redis://own/1"}
RUNNING = {
    **OWN,
    "DATABASE_URL": "postgres://embedded",
    "CACHE_URL": "redis://cache",
    "REDLOCK_URLS": "redis://a,redis://b",
}


def not_asked() -> dict[str, str]:
    raise AssertionError("the embedded services were asked for although the environment names stores")


def test_the_environment_wins() -> None:
    stores = resolve(OWN, not_asked)
    assert (stores.database_url, stores.configured, stores.embedded) == ("postgres://own", True, False)
    assert stores.cache_url == "redis://own/1"
    assert stores.redlock_urls == ()


def test_a_child_of_the_starter_knows_that_its_stores_are_embedded() -> None:
    assert resolve({**OWN, "AEGIS_EMBEDDED": "1"}, not_asked).embedded


def test_running_services_are_used_when_nothing_is_named() -> None:
    stores = resolve({"REDLOCK_URLS": "redis://ignored"}, lambda: RUNNING)
    assert (stores.database_url, stores.configured, stores.embedded) == ("postgres://embedded", True, True)
    assert stores.redlock_urls == ("redis://a", "redis://b")
    assert stores.cache_url == "redis://cache"


def test_nothing_named_and_nothing_running() -> None:
    stores = resolve({"DATABASE_URL": ""}, dict)
    assert not stores.configured
    assert stores.database_url == NOWHERE["DATABASE_URL"]
    assert "set DATABASE_URL, CELERY_BROKER_URL and REDIS_URL" in stores.remedy


@pytest.mark.parametrize("missing", sorted(OWN))
def test_stores_named_in_part_are_refused(missing: str) -> None:
    environment = {name: url for name, url in OWN.items() if name != missing}
    with pytest.raises(IncompleteStoresError, match=rf"^{missing}: not set, although"):
        resolve(environment, not_asked)


def test_addresses_are_not_shown() -> None:
    assert "own" not in repr(resolve(OWN, not_asked))
