"""The processes that are alive, as their presence says."""

from __future__ import annotations

from dataclasses import dataclass

from locks.connection import execute
from scheduler.conf import conf

PATIENCE = 2.5  # seconds for one answer of the database
MISSED = 5  # heartbeats, after which a process is not counted as alive
DAY = 86_400.0

# In: forgotten (seconds). Out: by the database's clock.
_SEEN = """
SELECT kind, name, host, pid, version, stamp_version, pool, concurrency,
       CASE WHEN jsonb_typeof(queues) = 'array' THEN ARRAY(SELECT jsonb_array_elements_text(queues)) END,
       clock_offset, clock_error, extract(epoch FROM clock_timestamp() - heartbeat_at)::float8
FROM aegis_scheduler_instance
WHERE stopped_at IS NULL AND heartbeat_at > clock_timestamp() - make_interval(secs => %(forgotten)s::float8)
ORDER BY kind, name, pid
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One worker or beat that did not say good-bye. ``age``: seconds since its last heartbeat."""

    kind: str
    name: str
    host: str = ""
    pid: int = 0
    version: str = ""
    stamp_version: int | None = None
    pool: str = ""
    concurrency: int | None = None
    queues: tuple[str, ...] | None = None
    clock_offset: float | None = None
    clock_error: float | None = None
    age: float = 0.0

    @property
    def who(self) -> str:
        return f"{self.name} (pid {self.pid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """Who is alive, and who fell silent within a day."""

    alive: tuple[Seen, ...] = ()
    silent: tuple[Seen, ...] = ()

    @property
    def workers(self) -> list[Seen]:
        return [seen for seen in self.alive if seen.kind == "worker"]

    @property
    def beats(self) -> list[Seen]:
        return [seen for seen in self.alive if seen.kind == "beat"]


def patience() -> float:
    """Seconds of silence after which a process is not counted as alive."""
    return MISSED * float(conf("HEARTBEAT")) + float(conf("PASS_INTERVAL"))


def read() -> Fleet:
    """Ask the database. Raises ``psycopg.Error``."""
    seen = [_seen(*row) for row in execute(_SEEN, {"forgotten": DAY}, timeout=PATIENCE)]
    bound = patience()
    return Fleet(
        alive=tuple(one for one in seen if one.age <= bound), silent=tuple(one for one in seen if one.age > bound)
    )


def _seen(*row: object) -> Seen:
    *known, queues, offset, error, age = row
    names = ("kind", "name", "host", "pid", "version", "stamp_version", "pool", "concurrency")
    return Seen(
        **dict(zip(names, known, strict=True)),  # type: ignore[arg-type]
        queues=tuple(queues) if isinstance(queues, list) else None,
        clock_offset=offset,  # type: ignore[arg-type]
        clock_error=error,  # type: ignore[arg-type]
        age=age,  # type: ignore[arg-type]
    )
