"""Who holds a lease of a session is told by a comment before what the session sent last, and written down nowhere."""

from __future__ import annotations

from urllib.parse import quote, unquote

_SHOWN = 600  # letters of a holder; the server shows the first 1024 of what was sent

# Of pg_stat_activity as `a`: who holds; and since when, where a lease is no transaction. Until the first renewal that
# is when the statement that took the lock began.
HOLDER = r"substring(a.query FROM '^/\* held by (\S+) ')"
SINCE = (
    "coalesce(timestamptz 'epoch' + interval '1 microsecond'"
    r" * substring(a.query FROM '^/\* held by \S+ since (\d{1,18}) ')::bigint,"
    " CASE WHEN starts_with(a.query, '/* held by ') THEN a.query_start END)"
)


def note_of(holder: str, since: int | None = None) -> str:
    """A comment that goes before what is sent while the lease is held. ``since``: microseconds since 1970, UTC.

    In letters that mean nothing in a comment, nor to the driver.
    """
    written = quote(holder, safe=":").replace("%", "=")[:_SHOWN]
    return f"/* held by {written} */ " if since is None else f"/* held by {written} since {since} */ "


def read(written: str) -> str:
    """The holder of a note."""
    return unquote(written.replace("=", "%"))
