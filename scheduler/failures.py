"""What each strategy does about each failure: the table of the documentation and of the page. Pure.

"Covered" means: no two bodies at once under one lock name, and no tick run twice while the tick guard is on. The
table in docs/explanation/failure-modes.md is tested against this one, word for word.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

STRATEGIES = ("none", "database", "optimistic", "advisory", "row_lock", "redis", "redlock")


class Answer(StrEnum):
    """What is documented, in a word or two."""

    COVERED = "Covered"
    TICK_GUARD = "Tick guard"
    # Two bodies may be inside; a commit guard refuses the former holder's writes.
    GUARD_WRITES = "Guard writes"
    # Nobody runs, and it heals by itself.
    BLOCKED = "Blocked"
    NOT_COVERED = "Not covered"
    # It is not allowed to come that far.
    REFUSED = "Refused"
    # Two bodies run: nothing is promised.
    OVERLAP = "Overlap"
    DOUBLE = "Duplicate"
    RUNS = "Runs"
    NONE = "Not applicable"


# Where two bodies may not be inside at once, and no tick may run twice.
PROMISED = frozenset({Answer.COVERED, Answer.TICK_GUARD, Answer.BLOCKED, Answer.REFUSED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Documented:
    """One cell."""

    answer: Answer
    text: str = ""

    @property
    def words(self) -> str:
        """As it stands in the document."""
        return f"{self.answer}: {self.text}" if self.text else self.answer.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One row: what happens, what is documented by strategy, and which fault of a soak tries it, if one does."""

    key: str
    title: str
    cells: dict[str, Documented]
    fault: str = ""


_WORDS = {
    "ok": Answer.COVERED, "tick": Answer.TICK_GUARD, "guard": Answer.GUARD_WRITES, "blocked": Answer.BLOCKED,
    "not": Answer.NOT_COVERED, "refused": Answer.REFUSED, "overlap": Answer.OVERLAP, "double": Answer.DOUBLE,
    "runs": Answer.RUNS, "-": Answer.NONE,
}  # fmt: skip


def _cell(written: str) -> Documented:
    word, _, text = written.partition(" ")
    return Documented(answer=_WORDS[word], text=text)


def _row(key: str, title: str, *written: str, fault: str = "") -> Failure:
    """The cells in the order of ``STRATEGIES``; the last one stands for the rest."""
    filled = [*written, *[written[-1]] * (len(STRATEGIES) - len(written))]
    cells = {alias: _cell(one) for alias, one in zip(STRATEGIES, filled, strict=True)}
    return Failure(key=key, title=title, cells=cells, fault=fault)


_AFTER_TTL = "ok next run after the TTL"
_FREED = "ok free at once, next run within 5 s"
_FROZEN = "guard or `kill`; without, the frozen one may write beside its successor and ends as `lost`"
_CUT = (
    "guard or `interrupt` (the default) or `kill`: it stops before the lease ends; a body that none of them reaches "
    "goes on and ends as `lost`"
)
_ASKED_AGAIN = "ok asked again under the same lease id"
_SESSION_GONE = "not every lock is gone; noticed within a third of the TTL, ends as `lost`"

FAILURES = (
    _row("message-twice", "The same message is delivered to several workers at once", "overlap both run", "ok",
         fault="duplicate"),
    _row("late-copy", "A copy arrives after the first run has finished", "double it runs again", "tick",
         fault="duplicate"),
    _row("two-beats", "Two beats are alive, and one is killed", "tick", fault="beat-kill"),
    _row("long-run", "A run takes longer than its period", "overlap", "ok",
         "guard covered up to its window; beyond it detected, the loser is `lost`", "ok",
         "ok at the price of one long transaction", "ok"),
    _row("killed", "A worker is killed in the middle", "runs the row is closed as abandoned", _AFTER_TTL,
         "ok next run after the window", _FREED, _FREED, _AFTER_TTL, fault="kill"),
    _row("frozen", "A worker freezes longer than the TTL, then goes on", "overlap", _FROZEN,
         "guard without, detected: the frozen one ends as `lost`",
         "ok the lock stands, nobody else runs until it goes on or is killed; the frozen one ends as `lost`",
         "ok as `advisory`, unless `idle_in_transaction_session_timeout` ends it: then as `database`", _FROZEN,
         fault="pause"),
    _row("deployment", "A worker or a beat is asked to stop, and starts again", "tick", "ok", fault="reload"),
    _row("worker-clock", "A worker's clock is wrong or jumps", "- no clock is used",
         "ok the database's clock decides", "ok", "ok no clock is used", "ok no clock is used", "ok",
         "ok Redis's clock decides"),
    _row("store-clock", "The store's clock jumps forward", "-", "not", "not", "ok no clock is used",
         "ok no clock is used", "not", "ok while few nodes jump"),
    _row("redis-down", "Redis is down", "runs", "-", "-", "-", "-",
         "blocked nobody runs; executions are `blocked`; heals by itself", "blocked the same where three nodes are"),
    _row("node-down", "One or two Redlock nodes of five are down", "-", "-", "-", "-", "-", "-", "ok"),
    _row("nodes-down", "Three Redlock nodes of five are down", "-", "-", "-", "-", "-", "-", "blocked nobody runs"),
    _row("database-down", "The database is down", "blocked nobody runs: the ledger is there", "blocked nobody runs",
         "blocked nobody runs",
         "blocked nobody runs; bodies that run end as `lost`, their locks went with the server",
         "blocked as `advisory`", "blocked nobody runs: the ledger is there"),
    _row("reply-lost", "The answer of the store is lost", "-", _ASKED_AGAIN, _ASKED_AGAIN,
         "ok asked again; a session left behind is ended", "ok asked again; a session left behind is ended",
         _ASKED_AGAIN),
    _row("restart-kept", "The store restarts and keeps its data", "-", "ok", "ok", _SESSION_GONE, _SESSION_GONE,
         "ok with persistence", "ok with persistence", fault="pg-restart"),
    _row("restart-forgotten", "The store restarts and has forgotten", "-", "not", "not", "not", "not", "not",
         "ok one node: it sits out a quarantine before it votes; a majority is not covered", fault="redis-restart"),
    _row("failover", "The store fails over to a replica that lags", "-",
         "not for the last moment; tokens and grant numbers still grow", "not as `database`",
         "not every lock is gone; noticed as at a restart", "not as `advisory`", "not",
         "ok nodes must be independent"),
    _row("session-ended", "The server ends a session: an operator, a proxy, a time-out for idle sessions", "-",
         "ok not tied to a session", "ok",
         "not noticed within a third of the TTL, ends as `lost`; writes behind the guard are refused",
         "not as `advisory`", "-"),
    _row("wire-cut", "The wire to the store is cut under a running body", "-", _CUT,
         "guard nothing is asked while it runs: covered up to its window; beyond it detected, the loser is `lost`",
         _CUT + "; the name is free after about one and a third of the TTL", "guard as `advisory`", _CUT,
         fault="partition"),
    _row("pooler", "The database is behind a pooler in transaction mode (PgBouncer)", "-", "ok", "ok",
         "refused with the remedy: name a direct database alias in `LOCATION`", "refused as `advisory`", "-"),
    _row("eviction", "Redis evicts keys under memory pressure", "-", "-", "-", "-", "-", "not use `noeviction`",
         "not per node; use `noeviction`"),
    _row("strategy-changed", "The strategy is changed while a body runs", "-",
         "ok the change waits until nothing under the name is open"),
    _row("summer-time", "The clocks are changed for summer time",
         "ok a fixed time inside the missing hour runs right after it; one inside the repeated hour runs once"),
    _row("outside", "The task sends an e-mail or a payment, and crashes before it is recorded",
         "not give the other side `context.once_key(step)`"),
)  # fmt: skip
BY_KEY = {failure.key: failure for failure in FAILURES}
