"""The checker is alive: each kind of broken promise, forged into an otherwise healthy history, is found (I16)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from aegis_site.soak.catalog import TTL
from aegis_site.soak.history import Effect, Fate, History, Start, Stay, stays
from aegis_site.soak.injection import Fault
from aegis_site.soak.pace import Load
from aegis_site.soak.plan import FaultKind
from aegis_site.soak.promises import overlap_is_promised_away
from aegis_site.soak.report import Verdict
from aegis_site.soak.verdicts import Broken, Finding, findings, takeovers

BASE = datetime(2026, 11, 29, 2, 0, tzinfo=UTC)
EPOCH = BASE.timestamp()  # a stamp `BASE + n seconds` is n on boottime()
PID = 100


def stay(number: int, entered: float, ended: float, **more: object) -> Stay:
    healthy = {
        "execution": number, "tick": number, "attempt": 1, "schedule": "s", "subject": str(number), "name": "n",
        "alias": "database", "token": number, "pid": PID, "how": "left",
    }  # fmt: skip
    return Stay(entered=entered, ended=ended, **{**healthy, **more})  # type: ignore[arg-type]


def healthy(count: int = 5, alias: str = "database", schedule: str = "s") -> History:
    """A tick a second, each body from .1 to .4 of its second, one effect at .2."""
    at = [BASE + timedelta(seconds=number) for number in range(1, count + 1)]
    part = timedelta(seconds=0.1)
    return History(
        stays=[stay(n, n + 0.1, n + 0.4, alias=alias, schedule=schedule) for n in range(1, count + 1)],
        effects=[
            Effect(name="n", schedule=schedule, subject=str(n), execution=n, token=n, at=t + 2 * part)
            for n, t in enumerate(at, 1)
        ],
        counters={"n": count},
        starts=[
            Start(
                execution=n, tick=n, name="n", alias=alias, schedule=schedule, token=n, pid=PID, state="executed",
                started_at=t + part, ended_at=t + 4 * part,
            )
            for n, t in enumerate(at, 1)
        ],
        fates=[
            Fate(
                tick=n, schedule=schedule, alias=alias, state="closed", outcome="executed", reason="", fire_time=t,
                through=None, deadline=t + timedelta(seconds=30),
            )
            for n, t in enumerate(at, 1)
        ],
        faults=[],
        boot_epoch=EPOCH,
    )  # fmt: skip


def fault(kind: FaultKind, start: float, end: float, **more: object) -> Fault:
    return Fault(kind=kind, variant="", start=start, end=end, proof=True, **more)  # type: ignore[arg-type]


def only(history: History, what: Broken) -> Finding:
    found = findings(history)
    assert {finding.what for finding in found} == {what}, found
    return found[0]


def test_a_healthy_history_has_no_findings() -> None:
    assert findings(healthy()) == []


def changed(rows: object, index: int, **changes: object) -> list[object]:
    """The rows with one of them changed."""
    made = list(rows)  # type: ignore[call-overload]
    made[index] = replace(made[index], **changes)
    return made


def test_a_second_body_of_a_tick_is_a_duplicate_and_promised_away_by_the_guard_alone() -> None:
    history = healthy()
    twice = replace(history, stays=[*history.stays, stay(5, 8.1, 8.4, token=9)])
    assert only(twice, Broken.DUPLICATE).promised
    assert not only(replace(twice, guarded=False), Broken.DUPLICATE).promised


def test_an_overlap_without_a_fault_breaks_a_promise() -> None:
    history = healthy()
    longer = replace(history, stays=changed(history.stays, 1, ended=3.2))
    found = only(longer, Broken.OVERLAP)
    assert found.promised and not found.faults


@pytest.mark.parametrize(
    ("alias", "kind", "excused"),
    [
        ("database", FaultKind.PAUSE, True),
        ("advisory", FaultKind.PAUSE, False),
        ("redis", FaultKind.REDIS_RESTART, True),
        ("redlock", FaultKind.REDIS_RESTART, False),
        ("database", FaultKind.RELOAD, False),
    ],
)
def test_an_overlap_is_excused_by_a_fault_that_its_strategy_does_not_cover(
    alias: str, kind: FaultKind, excused: bool
) -> None:
    history = healthy(alias=alias)
    longer = replace(
        history,
        stays=changed(history.stays, 1, ended=3.2),
        faults=[fault(kind, 2.0, 2.5, pids=frozenset({PID}), aliases=frozenset({alias}))],
    )
    assert only(longer, Broken.OVERLAP).promised is not excused


@pytest.mark.parametrize(
    ("word", "kind", "excused"),
    [
        ("check", FaultKind.PARTITION, True),
        ("interrupt", FaultKind.PARTITION, False),
        ("interrupt", FaultKind.PAUSE, True),
        ("kill", FaultKind.PAUSE, False),
    ],
)
def test_what_stops_a_body_widens_the_promise(word: str, kind: FaultKind, excused: bool) -> None:
    history = healthy(schedule=f"database-{word}-1")
    longer = replace(
        history,
        stays=changed(history.stays, 1, ended=3.2),
        faults=[fault(kind, 2.0, 2.5, pids=frozenset({PID}))],
    )
    assert only(longer, Broken.OVERLAP).promised is not excused


def test_a_fault_of_somebody_else_excuses_nothing() -> None:
    history = healthy()
    elsewhere = [fault(FaultKind.PAUSE, 2.0, 2.5, pids=frozenset({PID + 1}))]
    longer = replace(history, stays=changed(history.stays, 1, ended=3.2), faults=elsewhere)
    assert only(longer, Broken.OVERLAP).promised


def test_a_fault_long_ago_excuses_nothing() -> None:
    history = healthy(30)
    before = [fault(FaultKind.PAUSE, 2.0, 2.5, pids=frozenset({PID}))]
    longer = replace(history, stays=changed(history.stays, 25, ended=27.2), faults=before)
    assert only(longer, Broken.OVERLAP).promised


def test_an_effect_after_a_later_start_is_stale_even_under_a_fault() -> None:
    history = healthy()
    late = changed(history.effects, 1, at=BASE + timedelta(seconds=3.15))
    paused = [fault(FaultKind.PAUSE, 2.0, 2.5, pids=frozenset({PID}))]
    found = only(replace(history, effects=late, faults=paused), Broken.STALE)
    assert found.promised and found.faults == {FaultKind.PAUSE}
    assert not only(replace(history, effects=late, fenced=False), Broken.STALE).promised


def test_a_lost_update_is_seen() -> None:
    assert only(replace(healthy(), counters={"n": 4}), Broken.LOST_UPDATE).promised


def test_a_token_that_comes_twice_is_seen() -> None:
    history = healthy()
    assert only(replace(history, starts=changed(history.starts, 2, token=2)), Broken.NUMBER_TWICE).promised


def test_a_miss_needs_a_fault() -> None:
    history = healthy()
    missed = changed(history.fates, 2, state="misfired", outcome="misfired")
    assert only(replace(history, fates=missed), Broken.MISSED).promised
    down = [fault(FaultKind.PG_RESTART, 2.0, 4.0)]
    assert not only(replace(history, fates=missed, faults=down), Broken.MISSED).promised
    reloaded = [fault(FaultKind.RELOAD, 2.0, 4.0)]
    assert only(replace(history, fates=missed, faults=reloaded), Broken.MISSED).promised


def test_a_miss_on_a_machine_without_cpu_time_is_no_broken_promise_and_no_proof() -> None:
    missed = changed(healthy().fates, 2, outcome="misfired", reason="no beat stored it in time")
    busy = [(float(second), 100.0) for second in range(40)]
    for load, reasons in ((Load(busy), 1), (Load([(at, 50.0) for at, _ in busy]), 0)):
        verdict = Verdict.of(replace(healthy(), fates=missed, load=load), 1.0)
        assert len(verdict.inconclusive) == reasons
        assert len(verdict.broken) == 1 - reasons


def test_a_fire_time_without_a_row_is_seen_and_one_in_a_stretch_is_not() -> None:
    history = healthy()
    gone = [fate for fate in history.fates if fate.tick != 3]
    assert only(replace(history, fates=gone), Broken.UNTOLD).promised
    stretch = [replace(f, through=BASE + timedelta(seconds=3)) if f.tick == 2 else f for f in gone]
    assert findings(replace(history, fates=stretch)) == []


def test_an_open_tick_is_seen() -> None:
    history = healthy()
    assert only(
        replace(history, fates=changed(history.fates, 4, state="dispatched", outcome="")), Broken.OPEN
    ).promised


def test_a_lost_lease_needs_a_fault_that_touched_it() -> None:
    history = healthy()
    lost = replace(history, starts=changed(history.starts, 2, state="lost"))
    assert only(lost, Broken.UNEXPLAINED).promised
    paused = [fault(FaultKind.PAUSE, 2.9, 3.2, pids=frozenset({PID}))]
    assert not only(replace(lost, faults=paused), Broken.UNEXPLAINED).promised


def test_a_body_that_the_audit_does_not_know_is_seen() -> None:
    history = healthy()
    assert only(replace(history, stays=[*history.stays, stay(77, 9.1, 9.4)]), Broken.ALONE).promised
    assert only(replace(history, stays=history.stays[:-1]), Broken.ALONE).promised


def test_a_commit_whose_answer_a_fault_kept_back_is_executed_although_its_body_raised() -> None:
    history = healthy(schedule="database-finish-1")
    raised = replace(history, stays=changed(history.stays, 2, how="raised"))
    assert only(raised, Broken.ALONE).promised
    cut = fault(FaultKind.PARTITION, 3.1, 3.3, pids=frozenset({PID}))
    assert findings(replace(raised, faults=[cut])) == []
    elsewhere = replace(cut, pids=frozenset({PID + 1}))
    assert only(replace(raised, faults=[elsewhere]), Broken.ALONE).promised


def test_nothing_stops_a_body_whose_claim_nobody_watches() -> None:
    cut = frozenset({FaultKind.PARTITION})
    assert overlap_is_promised_away("redis", "redis-interrupt-1", cut)
    assert not overlap_is_promised_away("redis", "redis-short-1", cut)
    assert not overlap_is_promised_away("optimistic", "optimistic-interrupt-1", cut)


@pytest.mark.parametrize(("alias", "long", "promised"), [
    ("optimistic", TTL + 1, False), ("optimistic", TTL - 1, True), ("database", TTL + 1, True),
])  # fmt: skip
def test_a_claim_that_its_body_outlives_promises_nothing_more(alias: str, long: float, promised: bool) -> None:
    """As on a machine that is short of time. What others do about it, renew, is a promise."""
    history = healthy(9, alias)
    left = history.boot(BASE) + 1.1 + long
    history.stays[:] = [
        replace(history.stays[0], ended=left + 0.5, how="lost"), stay(9, left, left + 0.2, alias=alias)
    ]  # fmt: skip
    history.starts[0] = replace(history.starts[0], state="lost", ended_at=BASE + timedelta(seconds=1.6 + long))
    found = {finding.what: finding.promised for finding in findings(history)}
    assert (found[Broken.OVERLAP], found[Broken.UNEXPLAINED]) == (promised, promised)


def test_a_late_takeover_is_seen_and_counted_from_the_death() -> None:
    history = healthy(20)
    kept = [s for s in history.stays if not 4 < s.execution < 15]
    cut = replace(
        history,
        stays=changed(kept, 3, how="killed"),
        starts=[s for s in history.starts if not 4 < s.execution < 15],
        faults=[fault(FaultKind.KILL, 4.4, 4.5, pids=frozenset({PID}), killed=True)],
    )
    assert [round(delay, 1) for _, delay in takeovers(cut)] == [10.7]
    assert only(cut, Broken.TAKEOVER).promised
    starved = Verdict.of(replace(cut, load=Load([(float(second), 100.0) for second in range(40)])), 1.0)
    assert starved.broken == [] and len(starved.inconclusive) == 1


def test_nobody_enters_while_the_store_is_down() -> None:
    history = healthy(alias="redis")
    down = [fault(FaultKind.REDIS_RESTART, 2.5, 3.5, aliases=frozenset({"redis"}))]
    assert only(replace(history, faults=down), Broken.UNCLOSED).promised


def test_effect_and_outcome_share_one_fate_under_finish() -> None:
    history = healthy(schedule="database-finish-1")
    paused = [fault(FaultKind.PAUSE, 2.9, 3.2, pids=frozenset({PID}))]
    half = replace(history, starts=changed(history.starts, 2, state="abandoned"), faults=paused)
    assert Broken.UNDONE in {finding.what for finding in findings(half) if finding.promised}


def test_a_journal_that_stops_with_its_process_ends_at_the_kill() -> None:
    line = {
        "pid": PID, "execution": 1, "tick": 1, "attempt": 1, "schedule": "s", "subject": "1", "name": "n",
        "alias": "database", "token": 1,
    }  # fmt: skip
    journal = [{**line, "at": 1.0, "event": "entered"}, {**line, "at": 1.5, "event": "effect"}]
    killed = [fault(FaultKind.KILL, 1.7, 1.8, pids=frozenset({PID}), killed=True)]
    assert [(s.how, s.ended, s.effects) for s in stays(journal, killed)] == [("killed", 1.7, (1.5,))]
    assert [(s.how, s.ended) for s in stays(journal, [])] == [("unknown", 1.5)]


def test_a_fault_without_a_trace_and_a_guard_that_nobody_missed_prove_nothing() -> None:
    silent = replace(fault(FaultKind.KILL, 1.0, 1.1), proof=False)
    assert Verdict.of(replace(healthy(), faults=[silent]), 1.0).inconclusive == ["kill () left no trace"]
    assert len(Verdict.of(replace(healthy(), guarded=False, fenced=False), 1.0).inconclusive) == 2
