"""What facts about stores mean: judgements without a store."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from locks import Finding, Level
from locks.examination import of_redis, postgres, quorum, sessions
from locks.examination.postgres import PostgresFacts
from locks.examination.redis_server import RedisFacts

GOOD = RedisFacts(
    server="a:6379", run_id="abc", version=(7, 2), role="master", replicas=0, policy="noeviction", memory_used=0.1,
    appends=True, snapshots=False, now=1000.0, offset=0.0, offset_error=0.001, marker="abc:0:6100",
)  # fmt: skip
DATABASE = PostgresFacts(using="default", version=15, next_number=11, highest_number=10)


def bad(findings: Any) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def test_a_finding_has_a_next_step_unless_it_is_ok() -> None:
    with pytest.raises(ValueError, match="next step"):
        Finding(level=Level.WARN, topic="redis", sentence="x")
    with pytest.raises(ValueError, match="next step"):
        Finding(level=Level.OK, topic="redis", sentence="x", remedy="y")


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"silence": "TimeoutError"}, Level.FAIL, "no answer"),
        ({"role": "slave"}, Level.FAIL, "replica"),
        ({"replicas": 2}, Level.WARN, "2 replica"),
        ({"clustered": True}, Level.WARN, "cluster"),
        ({"policy": "volatile-ttl"}, Level.FAIL, "volatile-ttl"),
        ({"policy": None, "role": None, "unread": ("INFO", "CONFIG GET")}, Level.WARN, "could not look"),
        ({"appends": False, "snapshots": True}, Level.WARN, "snapshots"),
        ({"appends": False}, Level.WARN, "nothing"),
        ({"appends": False, "snapshots": None, "unread": ("CONFIG GET",)}, Level.WARN, "could not look"),
        ({"denied": ("PEXPIRE", "SET on aegis:*")}, Level.FAIL, "PEXPIRE, SET on aegis:"),
        ({"refuses_writes": "SET: OutOfMemoryError"}, Level.FAIL, "OutOfMemory"),
        ({"version": (4, 0)}, Level.FAIL, "too old"),
        ({"memory_used": 0.95}, Level.WARN, "95%"),
    ],
)
def test_one_redis(changes: dict[str, Any], level: Level, words: str) -> None:
    assert bad(of_redis.judge("redis", GOOD)) == []
    found = bad(of_redis.judge("redis", replace(GOOD, **changes)))
    assert found[0].level is level
    assert words in found[0].sentence
    assert found[0].remedy


def test_the_rights_that_are_missing_are_named_as_acl_setuser_takes_them() -> None:
    (found,) = bad(of_redis.judge("redis", replace(GOOD, denied=("SET on aegis:*", "EVAL"))))
    assert "grant +eval +set." in found.remedy


def test_what_cannot_be_looked_at_is_a_warning_and_no_more() -> None:
    blind = replace(
        GOOD, role=None, policy=None, appends=None, snapshots=None, version=None, memory_used=None,
        unread=("INFO", "CONFIG GET"),
    )  # fmt: skip
    found = bad(of_redis.judge("redis", blind))
    assert [finding.level for finding in found] == [Level.WARN] * 3
    assert all(finding.sentence.startswith("could not look") for finding in found)


def nodes(*changes: dict[str, Any], count: int = 3) -> list[RedisFacts]:
    known = [replace(GOOD, server=f"h{n}:6379", run_id=f"a{n}", marker=f"a{n}:0:6100") for n in range(count)]
    return [replace(node, **changed) for node, changed in zip(known, [*changes, *[{}] * count], strict=False)]


def test_a_healthy_quorum() -> None:
    assert bad(quorum.judge("redlock", nodes(), 6.1)) == []


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (nodes(count=4), Level.WARN, "4 nodes, 3 must agree, 1 may be down, as with 3"),
        (nodes({"silence": "TimeoutError"}), Level.WARN, "2 of 3 nodes answer (h0:6379: TimeoutError)"),
        (nodes({"silence": "x"}, {"silence": "x"}), Level.FAIL, "1 of 3 nodes answer"),
        (nodes({"run_id": "a1", "marker": "a1:0:6100"}), Level.FAIL, "h0:6379 and h1:6379 lead to one server"),
        (nodes({"server": "h1:7000"}), Level.WARN, "3 nodes on 2 host(s)"),
        (nodes({"marker": None}), Level.WARN, "2 of 3 nodes may vote; restarted or never asked: h0:6379"),
        (nodes({"marker": "other:0:6100"}), Level.WARN, "2 of 3 nodes may vote"),
        (nodes({"marker": "a0:994000:0"}), Level.WARN, "2 of 3 nodes may vote"),
        (nodes({"marker": None}, {"marker": None}), Level.WARN, "until then runs are blocked"),
        (nodes({"offset": 5.0}), Level.WARN, "within 5.000 s (h1:6379 and h0:6379"),
        (nodes({"role": "slave"}), Level.FAIL, "node h0:6379: it is a replica"),
        (nodes({"policy": "allkeys-lru"}), Level.FAIL, "node h0:6379: maxmemory-policy is allkeys-lru"),
        (nodes({"denied": ("INFO",)}), Level.FAIL, "NOPERM for INFO"),
        (nodes({"run_id": None, "marker": None}), Level.WARN, "do not tell their run id"),
    ],
)
def test_a_sick_quorum(facts: list[RedisFacts], level: Level, words: str) -> None:
    told = [(finding.level, finding.sentence) for finding in bad(quorum.judge("redlock", facts, 6.1))]
    assert any(found is level and words in sentence for found, sentence in told), told


def test_a_marker_of_an_earlier_run_is_no_vote() -> None:
    """Nor is one that a snapshot or another server brought along."""
    (found,) = bad(quorum.judge("redlock", nodes({"marker": "before:0:6100"}), 6.1))
    assert "2 of 3 nodes may vote" in found.sentence


def test_a_quarantine_that_is_over_lets_a_node_vote() -> None:
    assert bad(quorum.judge("redlock", nodes({"marker": "a0:993000:0"}), 6.1)) == []


def test_clocks_that_may_be_equal_are_not_told_apart() -> None:
    assert bad(quorum.judge("redlock", nodes({"offset": 5.0, "offset_error": 4.5}), 6.1)) == []


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({"silence": "OperationalError"}, Level.FAIL, "no answer"),
        ({"standby": True}, Level.FAIL, "standby"),
        ({"read_only": True}, Level.FAIL, "read-only"),
        ({"version": 13}, Level.FAIL, "13 is too old"),
        ({"synchronous_commit": "off"}, Level.FAIL, "is off"),
        ({"synchronous_commit": "local"}, Level.WARN, "is local"),
        ({"fsync": False}, Level.FAIL, "fsync is off"),
        ({"missing": ("aegis_locks_lease",)}, Level.FAIL, "do not exist"),
        ({"denied": ("aegis_locks_lease",)}, Level.FAIL, "may not use aegis_locks_lease"),
        ({"next_number": None, "highest_number": None}, Level.WARN, "may not read"),
        ({"next_number": 7, "highest_number": 10}, Level.WARN, "from a copy"),
        ({"next_number": 7, "highest_number": (2 << 40) + 1}, Level.WARN, "from timeline 3"),
    ],
)
def test_one_database(changes: dict[str, Any], level: Level, words: str) -> None:
    assert bad(postgres.judge(DATABASE)) == []
    (found,) = bad(postgres.judge(replace(DATABASE, **changes)))
    assert found.level is level
    assert words in found.sentence


def test_a_time_out_of_sessions_counts_where_it_can_end_a_lease() -> None:
    idle = replace(DATABASE, idle_session=2.0)
    inside = replace(DATABASE, idle_in_transaction=2.0)
    assert "idle_session_timeout is 2 s" in next(sessions.judge("advisory", idle, 2.0, in_transaction=False)).sentence
    assert "idle_in_tr" in next(sessions.judge("row_lock", inside, 2.0, in_transaction=True)).sentence
    assert list(sessions.judge("advisory", inside, 2.0, in_transaction=False)) == []
    assert list(sessions.judge("row_lock", idle, 2.0, in_transaction=True)) == []
    assert list(sessions.judge("advisory", replace(idle, idle_session=2.1), 2.0, in_transaction=False)) == []
