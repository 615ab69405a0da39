"""Where the stores are: what the environment says, else running embedded ones, else nowhere (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

REQUIRED = ("DATABASE_URL", "CELERY_BROKER_URL", "REDIS_URL")
OPTIONAL = ("REDLOCK_URLS", "CACHE_URL")

# Port 1 refuses at once. A default port would not do: it could be somebody's real server.
NOWHERE = {
    "DATABASE_URL": "postgres://aegis@127.0.0.1:1/aegis",
    "CELERY_BROKER_URL": "redis://127.0.0.1:1/0",
    "REDIS_URL": "redis://127.0.0.1:1/0",
    "REDLOCK_URLS": "redis://127.0.0.1:1/0,redis://127.0.0.2:1/0,redis://127.0.0.3:1/0",
}


class IncompleteStoresError(ValueError):
    """Some addresses are set and others are not: which ones is said in the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The addresses that the settings are made of. They hold passwords: never log this object's fields."""

    database_url: str = field(repr=False)
    broker_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    cache_url: str = field(repr=False)
    redlock_urls: tuple[str, ...] = field(repr=False)
    configured: bool
    embedded: bool

    @property
    def remedy(self) -> str:
        """What to do when no store is configured and none runs."""
        return (
            "No database is configured and no embedded one is running: set DATABASE_URL, CELERY_BROKER_URL "
            "and REDIS_URL, or start the demo (`make demo`) and run this command beside it."
        )


def resolve(environment: Mapping[str, str], running: Callable[[], Mapping[str, str]]) -> Stores:
    """Return the stores named by `environment`, else the `running` embedded ones, else unreachable ones.

    The two are never mixed. Raises IncompleteStoresError when the environment names some of the required ones
    only.
    """
    named = {name for name in REQUIRED if environment.get(name)}
    if named and named != set(REQUIRED):
        missing = ", ".join(name for name in REQUIRED if name not in named)
        raise IncompleteStoresError(
            f"{missing}: not set, although {', '.join(sorted(named))} is. Set all of {', '.join(REQUIRED)} "
            "to use stores of your own, or none of them to use the embedded ones."
        )
    urls = environment if named else running() or NOWHERE
    return Stores(
        database_url=urls["DATABASE_URL"],
        broker_url=urls["CELERY_BROKER_URL"],
        redis_url=urls["REDIS_URL"],
        cache_url=urls.get("CACHE_URL") or urls["REDIS_URL"],
        redlock_urls=tuple(url.strip() for url in urls.get("REDLOCK_URLS", "").split(",") if url.strip()),
        configured=urls is not NOWHERE,
        embedded=not named or environment.get("AEGIS_EMBEDDED") == "1",
    )
