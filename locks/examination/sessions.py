"""What a lease that is a session of PostgreSQL needs besides: a direct way, and sessions that are let live."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import psycopg

from ..backends.sessions import Session
from ..backends.sessions_probe import NotDirect, refuse_pooler
from ..findings import Finding, Findings, could_not_look, fail, ok
from . import postgres
from .postgres import TOPIC, PostgresFacts


def examine(alias: str, using: str, ttl: float, *, in_transaction: bool) -> Findings:
    """Ask the database and a session of it. ``in_transaction``: whether such a session holds a transaction open."""
    facts = postgres.ask(using)
    found = list(postgres.judge(facts))
    if facts.silence is None:
        found += judge(alias, facts, ttl / 3, in_transaction=in_transaction)
        found.append(_direct(alias, using, ttl))
    return found


def judge(alias: str, facts: PostgresFacts, renew_every: float, *, in_transaction: bool) -> Iterator[Finding]:
    """Whether the server ends sessions that are idle between two renewals; only what is wrong."""
    bounds = {"idle_session_timeout": facts.idle_session}
    if in_transaction:
        bounds = {"idle_in_transaction_session_timeout": facts.idle_in_transaction}
    for setting, seconds in bounds.items():
        if 0 < seconds <= renew_every:
            yield fail(
                TOPIC, f"{alias}: {setting} is {seconds:g} s and a lease is renewed every {renew_every:g} s",
                f"Set {setting} of this role to 0, or above {renew_every:g} s.",
            )  # fmt: skip


def _direct(alias: str, using: str, ttl: float) -> Finding:
    """Asks for a session as an acquire does, and locks nothing."""
    session = None
    try:
        session = Session(using, uuid.uuid4(), ttl)
        refuse_pooler(session, using)
    except NotDirect:
        return fail(
            TOPIC, f"{alias}: connections are pooled on the way to database {using!r}; each acquire is refused",
            "Name in LOCATION a database alias whose HOST and PORT are PostgreSQL's own.",
        )  # fmt: skip
    except psycopg.Error as error:
        return could_not_look(TOPIC, f"{alias}: no session of its own ({type(error).__name__})", "Look at its log.")
    finally:
        if session is not None:
            session.close()
    return ok(TOPIC, f"{alias}: sessions of database {using!r} are direct, no pooler is on the way")
