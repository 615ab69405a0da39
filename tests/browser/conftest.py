"""A browser on a live server with rows of a frozen "now".

Playwright's synchronous interface runs an event loop in the main thread, where Django would refuse its ORM; hence
DJANGO_ALLOW_ASYNC_UNSAFE, set for as long as the browser lives and no longer. That is also why the browser belongs
to this folder and not to the session: tests of other folders, which run before and after, know nothing of a loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.test import Client, override_settings
from playwright.sync_api import Browser, BrowserContext, Playwright, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from tests.browser.chromium import REMEDY, chromium, required
from tests.browser.watched import Watched, watch

LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
PLAIN_HTTP = {"SECURE_SSL_REDIRECT": False, "SESSION_COOKIE_SECURE": False, "CSRF_COOKIE_SECURE": False}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/browser/" in item.nodeid:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def base_url() -> None:
    """Each context gets the server's; the plugin's own fixture is of a kind that pytest warns of."""


@pytest.fixture(scope="package")
def chromium_path() -> str:
    found = chromium()
    if found is None:
        (pytest.fail if required() else pytest.skip)(REMEDY)
    return found


@pytest.fixture(scope="package")
def live_server(chromium_path: str, django_db_setup: None) -> Iterator[LiveServer]:
    """The site over HTTP. Its middleware reads the settings once, when the server starts."""
    logging.getLogger("django.server").setLevel(logging.ERROR)
    with override_settings(**PLAIN_HTTP):
        server = LiveServer("127.0.0.1")
        yield server
        server.stop()


@pytest.fixture(scope="package")
def playwright(live_server: LiveServer) -> Iterator[Playwright]:
    """The plugin's fixture for this folder instead of the session."""
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        expect.set_options(timeout=15_000)
        with sync_playwright() as playwright:
            yield playwright


@pytest.fixture(scope="package")
def browser(playwright: Playwright, chromium_path: str) -> Iterator[Browser]:
    """One Chromium for the tests of this folder."""
    browser = playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox", "--disable-gpu"])
    yield browser
    browser.close()


@pytest.fixture(scope="package")
def browser_context_args(live_server: LiveServer) -> dict[str, Any]:
    return {"viewport": LAPTOP, "base_url": live_server.url}


@pytest.fixture
def at(transactional_db: None) -> str:
    """The seeded rows; the instant that is "now" for them, as it stands in a URL."""
    from tests.browser import seed

    seed.rows()
    return seed.AT


@pytest.fixture
def user(transactional_db: None) -> Any:
    """Who looks: may do everything unless a test says otherwise."""
    from django.contrib.auth.models import User

    return User.objects.create_superuser("ana")


@pytest.fixture
def new_user_context(new_context: Callable[..., BrowserContext], live_server: LiveServer) -> Callable[..., Any]:
    """A context of its own for a signed-in user."""

    def make(user: Any, **options: Any) -> BrowserContext:
        context = new_context(**options)
        context.set_default_timeout(10_000)
        client = Client()
        client.force_login(user)
        context.add_cookies(
            [{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url}]
        )
        return context

    return make


@pytest.fixture
def context(new_user_context: Callable[..., BrowserContext], user: Any) -> BrowserContext:
    return new_user_context(user)


@pytest.fixture
def watched(context: BrowserContext, live_server: LiveServer) -> Watched:
    return watch(context, urlsplit(live_server.url).netloc)
