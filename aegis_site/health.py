"""`/healthz`: does this process reach the database and the cache."""

from __future__ import annotations

import logging

from django.core.cache import cache
from django.db import DatabaseError, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)


@never_cache
def healthz(request: HttpRequest) -> JsonResponse:
    """Answer 200 when the database answers, else 503; stores by name, never an address or an error text.

    The cache is reported but does not decide: the site works without it, more slowly.
    """
    stores = {"database": _database_answers(), "cache": _cache_answers()}
    return JsonResponse(
        {name: "ok" if answers else "unreachable" for name, answers in stores.items()},
        status=200 if stores["database"] else 503,
    )


def _database_answers() -> bool:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError:
        logger.exception("health check: the database does not answer")
        return False
    return True


def _cache_answers() -> bool:
    try:
        cache.client.get_client().ping()
    except RedisError:
        logger.exception("health check: the cache does not answer")
        return False
    return True
