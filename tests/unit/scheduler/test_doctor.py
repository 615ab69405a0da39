"""What the doctor concludes from what it was told: judgements without a store or process."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from django.test import override_settings

from locks import Finding, Level
from locks.findings import fail, ok, warn
from scheduler.delivery import STAMP_VERSION
from scheduler.doctor import EX_UNAVAILABLE, Report, broker, code, database, leases, life, schedules, stores
from scheduler.doctor.bounded import Asked, NotAnswered, Question, answers
from scheduler.doctor.broker import BrokerFacts
from scheduler.doctor.catalog import Scheduled
from scheduler.doctor.database import Clock
from scheduler.doctor.fleet import Fleet, Seen
from scheduler.doctor.leases import Strategy
from scheduler.doctor.life import Backlog, Silent
from scheduler.doctor.report import named, together
from scheduler.doctor.schedules import Row, Waiting
from scheduler.version import VERSION
from scheduler.visibility import Visibility

NIGHTLY = Scheduled(
    name="nightly", task="t", job=("t", "[]", "{}"), lock_name="nightly", alias="database", ttl=6.0, guarded=True,
    broadcast=False, queue="celery", grace=60.0, period=3600.0, time_limit=300.0, on_lost="interrupt",
)  # fmt: skip
STRATEGIES = {
    "database": Strategy(alias="database", in_database=True, longest_exchange=3.0),
    "optimistic": Strategy(alias="optimistic", renewable=False, in_database=True, trust_window=False),
    "advisory": Strategy(alias="advisory", in_database=True, session_bound=True),
    "none": Strategy(alias="none", exclusive=False, renewable=False, trust_window=False, bounded=False),
}
WORKER = Seen(
    kind="worker", name="w1@h", pid=7, version=VERSION, stamp_version=STAMP_VERSION, pool="prefork", concurrency=4,
    queues=("celery", "aegis.every_worker"), clock_offset=0.01, clock_error=0.001,
)  # fmt: skip
BEAT = Seen(
    kind="beat", name="beat@h", pid=8, version=VERSION, stamp_version=STAMP_VERSION, clock_offset=0.0, clock_error=0.0
)
FLEET = Fleet(alive=(BEAT, WORKER))
HOUR = BrokerFacts(transport="redis", server="h:6379", visibility=Visibility(value=3600))


def told(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Level and sentence of what is not ok."""
    return [(finding.level.value, finding.sentence) for finding in findings if finding.level is not Level.OK]


def only(findings: Iterable[Finding]) -> tuple[str, str]:
    (found,) = told(findings)
    return found


# the report


def test_the_exit_status_follows_the_worst_finding() -> None:
    good, doubt, bad = ok("x", "a"), warn("x", "b", "do"), fail("x", "c", "do")
    assert [Report(findings=(good,)).exit_status(strict=strict) for strict in (False, True)] == [0, 0]
    assert [Report(findings=(good, doubt)).exit_status(strict=strict) for strict in (False, True)] == [0, 1]
    assert Report(findings=(bad, doubt)).exit_status() == 1
    assert Report(findings=(bad,), reachable=False).exit_status() == EX_UNAVAILABLE
    assert Report(findings=(good, doubt, bad)).counts == {"ok": 1, "warn": 1, "fail": 1}
    assert Report(findings=(doubt, bad, good)).level is Level.FAIL


def test_what_several_say_is_said_once_and_long_lists_are_cut() -> None:
    assert together([ok("x", "a"), ok("x", "b"), ok("x", "a")]) == (ok("x", "a"), ok("x", "b"))
    assert named(["c", "a", "b", "a"]) == "a, b, c"
    assert named("edcba") == "a, b, c and 2 more"


# bounded questions


def test_a_question_that_hangs_is_bounded_and_hides_no_other() -> None:
    never = threading.Event()

    def hang() -> list[Finding]:
        never.wait(5)
        return []

    try:
        found = answers([Question("a", "the store", hang), Question("b", "it", lambda: [ok("b", "fine")])], 0.2)
    finally:
        never.set()
    assert [(f.level, f.topic, f.sentence) for f in found] == [
        (Level.WARN, "a", "could not look: the store: no answer within 0.2 s"),
        (Level.OK, "b", "fine"),
    ]


def test_a_question_that_raises_is_told_without_its_passwords() -> None:
    def refuse() -> list[Finding]:
        raise OSError("redis://:hunter2@host:1/0 refused\nmore")

    (found,) = answers([Question("a", "the store", refuse)])
    assert found.sentence == "could not look: the store: OSError: redis://:***@host:1/0 refused"
    with pytest.raises(NotAnswered, match="ZeroDivisionError"):
        Asked(lambda: 1 / 0).answer()


# broker


def test_a_healthy_broker_prints_the_time_out_and_the_longest_run() -> None:
    found = list(broker.judge(HOUR, [NIGHTLY]))
    assert told(found) == []
    assert found[-1].sentence == (
        "visibility time-out 3600 s (the default); nightly may take 300 s (hard time limit)"
    )


@pytest.mark.parametrize(
    ("facts", "row", "level", "words"),
    [
        ({"silence": "ConnectionError"}, {}, "fail", "no connection"),
        ({}, {"time_limit": 3600.0}, "warn", "nightly may take 3600 s (hard time limit)"),
        ({}, {"time_limit": None, "observed": 4000.0}, "warn", "4000 s (99 of 100 runs of 7 days)"),
        ({}, {"time_limit": None, "ttl": 7200.0}, "warn", "7200 s (TTL)"),
        ({}, {"acks_late": True, "guarded": False}, "warn", "without the tick guard: nightly"),
        ({"cancels": False}, {"acks_late": True}, "warn", "on_connection_loss is off"),
        ({"transport": "amqp", "visibility": Visibility(value=None)}, {"acks_late": True, "time_limit": None}, "warn",
         "consumer_timeout"),
    ],
)  # fmt: skip
def test_a_broker_that_delivers_again_too_early(
    facts: dict[str, Any], row: dict[str, Any], level: str, words: str
) -> None:
    found = only(broker.judge(replace(HOUR, **facts), [replace(NIGHTLY, **row)]))
    assert found[0] == level
    assert words in found[1]


def test_late_acks_without_the_tick_guard_run_twice() -> None:
    row = replace(NIGHTLY, acks_late=True, guarded=False, time_limit=3601.0)
    assert ("fail", "nightly would run twice") in [
        (level, sentence.split("; ")[-1].split(",")[0]) for level, sentence in told(broker.judge(HOUR, [row]))
    ]


def test_early_acks_need_no_cancelling_and_a_broker_without_a_time_out_none() -> None:
    quiet = replace(HOUR, transport="amqp", cancels=False, visibility=Visibility(value=None))
    assert told(broker.judge(quiet, [replace(NIGHTLY, time_limit=None)])) == []


def test_without_the_catalog_the_broker_is_still_looked_at() -> None:
    assert "could not look" in only(broker.judge(HOUR, None))[1]


# leases


def judged(fleet: Fleet = FLEET, **changes: Any) -> list[tuple[str, str]]:
    return told(leases.judge([replace(NIGHTLY, **changes)], STRATEGIES, fleet))


def test_leases_that_fit() -> None:
    assert judged() == []
    assert judged(alias="none", ttl=10.0, period=1.0, grace=60.0, time_limit=None) == []
    assert judged(alias="unknown") == []  # told as a schedule


@pytest.mark.parametrize(
    ("row", "level", "words"),
    [
        ({"alias": "optimistic", "ttl": 300.0, "grace": 400.0}, "fail", "nightly: 300 s, limit 300 s"),
        ({"alias": "optimistic", "time_limit": None, "observed": 2.5}, "warn",
         "no hard time limit (nightly: window 6 s, 99 of 100 runs ended within 2.5 s)"),
        ({"alias": "advisory", "on_lost": "kill", "ttl": 5.0}, None, ""),
        ({"alias": "optimistic", "on_lost": "kill", "time_limit": 5.0}, "fail", "no run begins"),
        ({"ttl": 3.0}, "warn", "nightly: 3 s, an answer may take 3 s"),
        ({"period": 2.0}, "warn", "TTL 6 s, every 2 s): a crash may cost 3 ticks"),
        ({"period": 6.0}, None, ""),
        ({"grace": 9.9}, "warn", "grace 9.9 s, up to 10 s): after a crash the next tick is missed"),
        ({"grace": 10.0, "ttl": 5.9}, "warn", "REDISPATCH_GRACE, 10 s: a lost message is never sent again"),
        ({"alias": "advisory", "period": 1.0, "ttl": 60.0}, None, ""),  # free at once after a crash
    ],
)  # fmt: skip
def test_leases_that_do_not_fit(row: dict[str, Any], level: str | None, words: str) -> None:
    found = judged(**row)
    assert [one for one, _ in found][:1] == ([level] if level else [])
    assert not level or words in found[0][1]


def test_kill_needs_a_prefork_worker_wherever_it_may_be_delivered() -> None:
    threads = replace(WORKER, name="t@h", pool="thread")
    found = judged(Fleet(alive=(WORKER, threads)), on_lost="kill")
    assert found[0][0] == "fail"
    assert "t@h (thread) cannot kill" in found[0][1]
    assert judged(Fleet(alive=(WORKER, replace(threads, queues=("other",)))), on_lost="kill") == []
    assert judged(FLEET, on_lost="kill") == []


# code


def test_healthy_code() -> None:
    assert told(code.judge([NIGHTLY], FLEET, STRATEGIES)) == []


@pytest.mark.parametrize(
    ("row", "worker", "level", "words"),
    [
        ({"registered": False}, {}, "fail", "no task t is declared"),
        ({}, {"version": "0.0.9"}, "warn", f"(0.0.9: w1@h; {VERSION}: beat@h; here: {VERSION})"),
        ({}, {"version": ""}, "warn", "not told: w1@h"),
        ({}, {"stamp_version": STAMP_VERSION + 1}, "fail", f"w1@h ({STAMP_VERSION + 1})"),
        ({}, {"clock_offset": -3.0}, "warn", "w1@h (pid 7) -3.0 s"),
        ({}, {"pool": "gevent"}, "warn", "nightly have short leases (nightly: 6 s)"),
    ],
)
def test_sick_code(row: dict[str, Any], worker: dict[str, Any], level: str, words: str) -> None:
    fleet = Fleet(alive=(BEAT, replace(WORKER, **worker)))
    found = only(code.judge([replace(NIGHTLY, **row)], fleet, STRATEGIES))
    assert found[0] == level
    assert words in found[1]


def test_what_a_green_pool_does_not_endanger() -> None:
    fleet = Fleet(alive=(BEAT, replace(WORKER, pool="gevent")))
    for changes in ({"ttl": 60.0}, {"alias": "none"}, {"alias": "optimistic"}, {"queue": "elsewhere"}):
        assert told(code.judge([replace(NIGHTLY, **changes)], fleet, STRATEGIES)) == []


def test_a_clock_within_its_error_is_not_off() -> None:
    fleet = Fleet(alive=(BEAT, replace(WORKER, clock_offset=3.0, clock_error=2.5)))
    assert told(code.judge([NIGHTLY], fleet, STRATEGIES)) == []


# schedules


def test_a_healthy_catalog() -> None:
    quick = Waiting(name="n", in_force="a", wanted="database", open_ticks=1, since=2.0)
    idle = Waiting(name="n", in_force="a", wanted="database", open_ticks=0, since=9000.0)
    assert told(schedules.judge([Row(name="a")], [quick, idle], [NIGHTLY], {"database"})) == []


@pytest.mark.parametrize(
    ("row", "level", "words"),
    [
        ({"broken": "ValueError: bad"}, "fail", "a is broken and does not fire: ValueError: bad"),
        ({"far_away": True}, "fail", "further away than one period"),
        ({"finished": True}, "warn", "never fire again"),
        ({"starved": True}, "warn", "three times in a row"),
    ],
)
def test_sick_schedules(row: dict[str, Any], level: str, words: str) -> None:
    found = only(schedules.judge([Row(name="a", **row)], [], [], {"database"}))
    assert found[0] == level
    assert words in found[1]


def test_sick_lock_names() -> None:
    stuck = Waiting(name="n", in_force="redis", wanted="database", open_ticks=2, oldest=90.0, since=61.0)
    assert "2 ticks are open, the oldest for 90 s" in only(schedules.judge([], [stuck], [], {"database"}))[1]
    unknown = replace(stuck, since=None)
    assert only(schedules.judge([], [unknown], [], {"database"}))[0] == "warn"
    assert "'database' is not in LOCKS" in only(schedules.judge([], [], [NIGHTLY], {"redis"}))[1]
    gone = told(schedules.judge([], [replace(stuck, since=1.0)], [], {"redis"}))
    assert gone == [("fail", "lock name n: strategy 'database' is not in LOCKS; every run is blocked")]


def test_one_job_under_two_names_excludes_nothing() -> None:
    twin = replace(NIGHTLY, name="twin", lock_name="other")
    assert (
        "nightly, twin run t with the same arguments"
        in only(schedules.judge([], [], [NIGHTLY, twin], {"database"}))[1]
    )
    apart = replace(twin, job=("t", '["south"]', "{}"))
    assert told(schedules.judge([], [], [NIGHTLY, apart], {"database"})) == []
    declared = replace(NIGHTLY, own_lock_name="billing")
    assert told(schedules.judge([], [], [replace(declared, lock_name="billing")], {"database"})) == []
    assert "(nightly, billing)" in only(schedules.judge([], [], [declared], {"database"}))[1]


# life


def test_a_living_fleet() -> None:
    assert told(life.judge(FLEET, [NIGHTLY], Backlog(), [])) == []
    assert told(life.judge(FLEET, [replace(NIGHTLY, broadcast=True, queue="x")], Backlog(), [])) == []


@override_settings(AEGIS={"BROADCAST_QUEUE": None})
def test_a_delivery_to_every_worker_where_none_listens() -> None:
    assert told(life.judge(FLEET, [NIGHTLY], Backlog(), [])) == []
    found = only(life.judge(FLEET, [replace(NIGHTLY, broadcast=True)], Backlog(), []))
    assert found == ("fail", "nightly are delivered to every worker, and none listens")


@pytest.mark.parametrize(
    ("alive", "row", "level", "words"),
    [
        ((WORKER,), {}, "fail", "no beat is alive"),
        ((BEAT,), {}, "fail", "no worker is alive"),
        ((BEAT, WORKER), {"queue": "slow"}, "fail", "no live worker reads slow, to which nightly"),
        ((BEAT, replace(WORKER, queues=None)), {"queue": "slow"}, "warn", "do not tell their queues"),
    ],
)
def test_a_fleet_that_lacks_somebody(alive: tuple[Seen, ...], row: dict[str, Any], level: str, words: str) -> None:
    found = only(life.judge(Fleet(alive=alive), [replace(NIGHTLY, **row)], Backlog(), []))
    assert found[0] == level
    assert words in found[1]


def test_a_beat_that_runs_another_scheduler_is_thought_of() -> None:
    found = life.judge(Fleet(alive=(WORKER,)), [NIGHTLY], Backlog(), [])
    (failed,) = [one for one in found if one.level is Level.FAIL]
    assert "without -S or --scheduler, or with -S aegis" in failed.remedy


def test_who_fell_silent_is_named() -> None:
    fleet = Fleet(alive=(WORKER,), silent=(replace(BEAT, age=70.0),))
    found = told(life.judge(fleet, [NIGHTLY], Backlog(), []))
    assert found[0] == ("fail", "no beat is alive; the last pass was 70 s ago: nothing fires")
    assert "beat@h (pid 8) fell silent" in found[1][1]


@pytest.mark.parametrize(
    ("backlog", "level"),
    [
        (Backlog(open_ticks=3, oldest="a", age=9.0, overdue=-50.0), None),
        (Backlog(open_ticks=3, oldest="a", age=11.0, overdue=-50.0), "warn"),
        (Backlog(open_ticks=3, oldest="a", age=200.0, overdue=61.0), "fail"),
    ],
)
def test_ticks_that_wait(backlog: Backlog, level: str | None) -> None:
    assert [found for found, _ in told(life.judge(FLEET, [NIGHTLY], backlog, []))] == ([level] if level else [])


@pytest.mark.parametrize(
    ("held", "age", "words"),
    [
        (True, 7.0, "silent, still holds the lease: execution 5 of nightly (w1, pid 9, 7 s)"),
        (None, 7.0, "does not say"),
        (False, 61.0, "no beat has given it up"),
        (False, 7.0, ""),
    ],
)
def test_bodies_that_are_not_heard_of(held: bool | None, age: float, words: str) -> None:
    silent = Silent(execution=5, lock_name="nightly", worker="w1", pid=9, age=age, held=held)
    found = told(life.judge(FLEET, [NIGHTLY], Backlog(), [silent]))
    assert not words or words in found[0][1]
    assert bool(found) == bool(words)


# the database, and neighbours


def test_the_clock_and_the_room_of_the_database() -> None:
    assert told([database.judge_reach(Clock(offset=0.5, error=0.0))]) == []
    assert told([database.judge_reach(Clock(offset=3.0, error=2.5))]) == []
    assert "+3.000 s" in only([database.judge_reach(Clock(offset=3.0, error=0.1))])[1]
    assert only([database.judge_reach("OperationalError")])[0] == "fail"
    # 4 bodies: 2 each; 4 processes: heartbeats and one renewing strategy; presence; a beat has 2
    need = 4 * 2 + 4 * 2 + 1 + 2
    assert told([database.judge_room(need, 3, FLEET, [NIGHTLY], STRATEGIES)]) == []
    assert f"may take {need}" in only([database.judge_room(need - 1, 3, FLEET, [NIGHTLY], STRATEGIES)])[1]
    advisory = [replace(NIGHTLY, alias="advisory")]
    assert "may take 19 " in database.judge_room(500, 3, FLEET, advisory, STRATEGIES).sentence


def test_a_ledger_that_grows_for_ever_is_told() -> None:
    for days, keep in ((None, None), (90.0, None), (400.0, 30)):
        assert list(database.judge_age(days, keep)) == []
    assert "ticks of 91 days" in only(database.judge_age(91.2, None))[1]


def test_who_shares_a_server_is_named() -> None:
    others = {"the broker": {"10.0.0.1:6379"}, "the cache 'default'": {"10.0.0.1:6379", "10.0.0.2:6379"}}
    found = told(stores.judge({"redis": {"10.0.0.1:6379"}, "apart": {"10.0.0.3:6379"}}, others))
    assert found == [
        (
            "warn",
            "redis shares a server with the broker and the cache 'default': what fills or empties that ends leases",
        )
    ]
    assert told(stores.judge({"apart": {"10.0.0.3:6379"}}, others)) == []
    assert list(stores.judge({"database": set()}, others)) == []


@override_settings(
    CACHES={
        "default": {"BACKEND": "x", "LOCATION": ["redis://:p@localhost:7001/1", "redis://127.0.0.1:7002"]},
        "files": {"BACKEND": "x", "LOCATION": "/var/tmp/cache"},
        "local": {"BACKEND": "x"},
    },
    LOCKS={"redis": {"BACKEND": "locks.backends.redis.RedisLockBackend", "LOCATION": "redis://u:p@127.0.0.1:7001/5"}},
)
def test_two_names_of_one_server_are_seen_to_be_one() -> None:
    (found,) = told(stores.neighbours())
    assert found == (
        "warn", "redis shares a server with the cache 'default': what fills or empties that ends leases"
    )  # fmt: skip
