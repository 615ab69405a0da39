"""Misfire policy: nothing is left out, nothing fires twice, nothing fires early."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.misfire import POLICIES, Decision, Planned, SkippedStretch, decide
from scheduler.recurrence import Recurrence, cron, every, once

NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EACH_MINUTE = every(60, NOON)


def decided(policy: str, minutes: float, recurrence: Recurrence = EACH_MINUTE, **changes: float) -> Decision:
    """The decision for (noon, noon + minutes], grace 30 s, catch-up window 5 minutes unless changed."""
    arguments = {"grace": 30, "catch_up_window": 300, "limit": 1000} | changes
    return decide(recurrence, after=NOON, now=NOON + minutes * MINUTE, policy=policy, **arguments)


def due(minute: int, *, late: bool = False) -> Planned:
    return Planned(fire_time=NOON + minute * MINUTE, late=late)


def skipped(first: int, through: int) -> tuple[SkippedStretch]:
    return (SkippedStretch(first=NOON + first * MINUTE, through=NOON + through * MINUTE, count=through - first + 1),)


@pytest.mark.parametrize("policy", POLICIES)
def test_on_time_fires_under_any_policy(policy: str) -> None:
    assert decided(policy, 1.5) == Decision(ticks=(due(1),), skipped=(), next_fire_at=NOON + 2 * MINUTE)
    assert decided(policy, 0.5) == Decision(ticks=(), skipped=(), next_fire_at=NOON + MINUTE)


def test_a_fire_time_of_exactly_the_grace_is_on_time_and_a_moment_later_missed() -> None:
    assert decided("skip", 1.5).ticks == (due(1),)
    moment = 1 / 60_000_000
    assert decided("skip", 1.5 + moment).ticks == ()
    assert decided("fire_once", 1.5 + moment).ticks == (due(1, late=True),)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_window_shorter_than_the_grace_takes_nothing_from_what_is_on_time(policy: str) -> None:
    assert decided(policy, 1.5, catch_up_window=0) == Decision(
        ticks=(due(1),), skipped=(), next_fire_at=NOON + 2 * MINUTE
    )


def test_skip() -> None:
    assert decided("skip", 20.25) == Decision(
        ticks=(due(20),), skipped=skipped(1, 19), next_fire_at=NOON + 21 * MINUTE
    )
    assert decided("skip", 20.75) == Decision(ticks=(), skipped=skipped(1, 20), next_fire_at=NOON + 21 * MINUTE)


def test_fire_once_catches_up_the_latest_under_its_own_name() -> None:
    assert decided("fire_once", 20.75) == Decision(
        ticks=(due(20, late=True),), skipped=skipped(1, 19), next_fire_at=NOON + 21 * MINUTE
    )


def test_fire_once_needs_no_catch_up_where_one_is_due_now() -> None:
    assert decided("fire_once", 20.25) == Decision(
        ticks=(due(20),), skipped=skipped(1, 19), next_fire_at=NOON + 21 * MINUTE
    )


def test_fire_once_leaves_what_is_older_than_the_window() -> None:
    daily = cron("0 0 * * *")
    midnight = NOON.replace(hour=0) + timedelta(days=1)
    assert decided("fire_once", 13 * 60, daily).ticks == ()
    assert decided("fire_once", 13 * 60, daily).skipped == (
        SkippedStretch(first=midnight, through=midnight, count=1),
    )
    assert decided("fire_once", 13 * 60, daily, catch_up_window=7200).ticks == (
        Planned(fire_time=midnight, late=True),
    )


def test_fire_all_fires_the_window_and_skips_what_is_older() -> None:
    assert decided("fire_all", 20.25) == Decision(
        ticks=(*(due(n, late=True) for n in range(16, 20)), due(20)),
        skipped=skipped(1, 15),
        next_fire_at=NOON + 21 * MINUTE,
    )


def test_a_limit_leaves_the_rest_to_the_next_pass() -> None:
    first = decided("fire_all", 4.25, limit=3)
    assert first.ticks == tuple(due(n, late=True) for n in (1, 2, 3))
    assert first.next_fire_at == NOON + 4 * MINUTE

    second = decide(
        EACH_MINUTE,
        after=first.next_fire_at - timedelta(microseconds=1),
        now=NOON + 4.5 * MINUTE,
        policy="fire_all",
        grace=30,
        catch_up_window=300,
        limit=3,
    )
    assert second.ticks == (due(4),)


def test_one_instant_can_be_missed_too() -> None:
    instant = once(NOON + MINUTE)
    assert decided("fire_once", 3, instant) == Decision(ticks=(due(1, late=True),), skipped=(), next_fire_at=None)
    assert decided("skip", 3, instant) == Decision(ticks=(), skipped=skipped(1, 1), next_fire_at=None)


def test_a_clock_set_back_names_nothing_again() -> None:
    assert decided("fire_all", -30) == Decision(ticks=(), skipped=(), next_fire_at=NOON + MINUTE)


def test_years_of_missed_seconds_are_one_row() -> None:
    years = 10 * 365 * 24 * 60
    decision = decided("fire_once", years, every(1, NOON), grace=0)
    assert decision.ticks == (due(years),)
    assert decision.skipped[0].count == years * 60 - 1
    assert not decision.skipped[0].more


def test_years_of_missed_cron_minutes_are_counted_up_to_a_cap() -> None:
    years = 10 * 365 * 24 * 60
    (stretch,) = decided("skip", years + 0.75, cron("* * * * *")).skipped
    assert (stretch.first, stretch.through) == (NOON + MINUTE, NOON + years * MINUTE)
    assert (stretch.count, stretch.more) == (10_000, True)


def test_a_window_longer_than_the_calendar_is_no_error() -> None:
    assert len(decided("fire_all", 20.25, catch_up_window=1e15).ticks) == 20


@pytest.mark.parametrize(
    "wrong", [{"grace": -1}, {"catch_up_window": float("nan")}, {"limit": 0}, {"policy": "coalesce"}]
)
def test_nonsense_is_refused(wrong: dict) -> None:
    arguments = {"policy": "skip", "grace": 1, "catch_up_window": 1, "limit": 1} | wrong
    with pytest.raises(ValueError, match="must be"):
        decide(EACH_MINUTE, after=NOON, now=NOON + MINUTE, **arguments)


RECURRENCES = st.one_of(
    st.builds(every, st.integers(20, 3000), st.just(NOON)),
    st.builds(once, st.integers(0, 40_000).map(lambda s: NOON + timedelta(seconds=s))),
    st.builds(
        cron,
        st.sampled_from(["* * * * *", "*/7 * * * *", "5 */2 * * *", "30 2 * * *"]),
        st.just("Europe/Berlin"),
    ),
)


@given(
    recurrence=RECURRENCES,
    length=st.integers(1, 40_000 * 10**6),
    policy=st.sampled_from(POLICIES),
    grace=st.integers(0, 5000),
    window=st.integers(0, 50_000),
    limit=st.integers(1, 100),
)
def test_every_fire_time_is_handled_exactly_once(
    recurrence: Recurrence, length: int, policy: str, grace: int, window: int, limit: int
) -> None:
    now = NOON + timedelta(microseconds=length)
    decision = decide(
        recurrence, after=NOON, now=now, policy=policy, grace=grace, catch_up_window=window, limit=limit
    )

    expected = recurrence.fire_times(NOON, now, 100_000).times
    fired = [planned.fire_time for planned in decision.ticks]
    passed_over = [f for s in decision.skipped for f in expected if s.first <= f <= s.through]
    handled = [f for f in expected if decision.next_fire_at is None or f < decision.next_fire_at]
    assert sorted([*fired, *passed_over]) == handled
    assert len(set(fired)) == len(fired)
    assert fired == sorted(fired)
    assert all(f <= now for f in fired)
    assert sum(s.count for s in decision.skipped) == len(passed_over) or decision.skipped[0].more

    assert all(p.late == (now - p.fire_time > timedelta(seconds=grace)) for p in decision.ticks)
    late = [p for p in decision.ticks if p.late]
    assert all(now - p.fire_time <= timedelta(seconds=window) for p in late)
    assert len(late) <= {"skip": 0, "fire_once": 1, "fire_all": limit}[policy]
    assert len(handled) == len(expected) or len(fired) == limit
    on_time = [f for f in handled if now - f <= timedelta(seconds=grace)]
    assert set(on_time) <= set(fired)


DAILY = every(86_400, NOON)
DAY = timedelta(days=1)


def named(at: datetime, now: datetime, policy: str = "fire_once") -> Decision:
    """A schedule of every noon whose next fire time was stored as ``at``, by other rules than those of today."""
    after = at - timedelta(microseconds=1)
    return decide(DAILY, after=after, now=now, policy=policy, grace=60, catch_up_window=3600, named=at)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("moved", [timedelta(minutes=-30), timedelta(minutes=30)])
def test_a_fire_time_that_was_named_before_the_rules_changed_fires_under_its_name(
    policy: str, moved: timedelta
) -> None:
    """Later than today's rules say it would otherwise be lost: noon has passed, and tomorrow's is the next."""
    at = NOON + moved
    after_it = NOON if moved < timedelta(0) else NOON + DAY
    assert named(at, at + timedelta(seconds=1), policy) == Decision(
        ticks=(Planned(fire_time=at, late=False),), skipped=(), next_fire_at=after_it
    )


def test_a_named_fire_time_that_nobody_stored_in_time_is_missed_like_any_other() -> None:
    at = NOON + timedelta(minutes=30)
    decision = named(at, at + timedelta(hours=2))
    assert decision.ticks == ()
    assert decision.skipped == (SkippedStretch(first=at, through=at, count=1),)
    caught_up = named(at, at + timedelta(minutes=20))
    assert caught_up.ticks == (Planned(fire_time=at, late=True),)


@given(
    offset=st.integers(-100_000, 100_000),
    days=st.floats(0, 20),
    limit=st.integers(1, 5),
    policy=st.sampled_from(POLICIES),
)
def test_with_a_named_fire_time_nothing_is_left_out_and_nothing_comes_twice(
    offset: int, days: float, limit: int, policy: str
) -> None:
    at = NOON + timedelta(seconds=offset)
    now = at + days * DAY
    expected = sorted({at, *(f for n in range(-2, 30) if at < (f := NOON + n * DAY) <= now)})
    seen: list[datetime] = []
    skipped_count, after, name = 0, at - timedelta(microseconds=1), at
    while True:
        decision = decide(
            DAILY, after=after, now=now, policy=policy, grace=60, catch_up_window=1e6, limit=limit, named=name
        )
        seen += [planned.fire_time for planned in decision.ticks]
        skipped_count += sum(stretch.count for stretch in decision.skipped)
        assert decision.next_fire_at is not None
        if decision.next_fire_at > now:
            break
        name, after = decision.next_fire_at, decision.next_fire_at - timedelta(microseconds=1)
    assert len(seen) + skipped_count == len(expected)
    assert set(seen) <= set(expected) and len(seen) == len(set(seen))
