"""Asks every store when it is imported, as careless projects do: in a worker's parent, before it forks."""

from __future__ import annotations

from django.db import connection

from locks import lock_backends
from locks.connection import execute

connection.ensure_connection()
execute("SELECT 1")
TOUCHED = [lock_backends[alias].inspect("touched") for alias in ("database", "redis", "redlock")]
