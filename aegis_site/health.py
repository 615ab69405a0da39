"""`/healthz`: does this process reach the database and the cache."""

from __future__ import annotations

import logging

from django.db import Error, connection
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django_redis import get_redis_connection
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
    except Error:
        logger.exception("health check: the database does not answer")
        return False
    return True


def _cache_answers() -> bool:
    try:
        get_redis_connection("default").ping()
    except RedisError:
        logger.exception("health check: the cache does not answer")
        return False
    return True
