"""What the dashboard counts: outcomes of ticks, collisions, bounds, windows. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.utils import timezone

from scheduler.collisions import Body
from scheduler.dashboard.bounds import interval, interval_words, none_of, upper_bound
from scheduler.dashboard.facts import RefusedRow, TickRow
from scheduler.dashboard.figures import Figures, Tally, count
from scheduler.dashboard.links import Links
from scheduler.dashboard.outcomes import Collided, outcome_of
from scheduler.dashboard.params import Params, shortest_span
from scheduler.dashboard.tiles import Tile, share, tiles
from scheduler.dashboard.timeline_window import latest_window
from scheduler.states import TickOutcome, TickState

NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def tick(number: int, outcome: str = "executed", **changes: object) -> TickRow:
    row = TickRow(
        id=number, schedule_id=1, schedule="report", task="t", fire_time=at(number), state="closed", outcome=outcome,
        lock_name="report", strategy="redis", guarded=True, missed=0,
    )  # fmt: skip
    return row._replace(**changes)


def body(number: int, tick_id: int, start: float, end: float, **changes: object) -> Body:
    known = {
        "execution_id": number, "tick_id": tick_id, "attempt": 1, "lock_name": "report", "lock_alias": "redis",
        "worker": f"worker{number}", "guarded": True, "began": True, "state": "executed", "started_at": at(start),
        "ended_at": at(end), "ran": end - start, "heartbeat_at": None, "returned_at": None,
        "forced": False,
    }  # fmt: skip
    return Body(**{**known, **changes})  # type: ignore[arg-type]


def counted(ticks: list[TickRow], bodies: list[Body], refused: list[RefusedRow] | None = None) -> Figures:
    return count(ticks, bodies, refused or [], step=60)


@pytest.mark.parametrize("outcome", TickOutcome.values)
def test_a_tick_that_is_over_came_to_its_own_outcome(outcome: str) -> None:
    state = TickState.MISFIRED if outcome == "misfired" else TickState.CLOSED
    assert outcome_of(1, state, outcome, Collided({})) == outcome


@pytest.mark.parametrize(("state", "word"), [("planned", "open"), ("dispatched", "open"), ("started", "running")])
def test_a_tick_that_is_not_over_says_so(state: str, word: str) -> None:
    assert outcome_of(1, state, "", Collided({})) == word


def test_the_worst_that_happened_is_the_word_and_possible_is_not_proven() -> None:
    everything = {"overlap": {1}, "duplicate": {1, 2}, "possible_overlap": {1, 2, 3}}
    words = [outcome_of(n, "closed", "failed", Collided(everything)) for n in (1, 2, 3, 4)]
    assert words == ["overlap", "duplicate", "possible_overlap", "failed"]


def test_an_overlap_falls_on_the_tick_of_the_newcomer() -> None:
    total = counted([tick(1), tick(2)], [body(1, 1, 0, 10), body(2, 2, 5, 8)]).total
    assert dict(total.outcomes) == {"executed": 1, "overlap": 1}
    assert dict(total.too_many) == {"overlap": 1}


def test_a_tick_that_overlaps_and_repeats_counts_once_and_each_body_by_what_it_is() -> None:
    bodies = [body(n, 1, n, n + 10, guarded=False) for n in range(4)]
    total = counted([tick(1, guarded=False)], bodies).total
    assert dict(total.outcomes) == {"overlap": 1}
    assert dict(total.too_many) == {"overlap": 3, "duplicate": 3}
    assert dict(total.hit) == {"overlap": 1, "duplicate": 1}
    assert total.latest is not None and total.latest.execution_id == 3


def test_a_meeting_of_outer_intervals_only_is_possible_and_kept_apart() -> None:
    total = counted([tick(1), tick(2)], [body(1, 1, 0, 10, ran=1.0), body(2, 2, 9, 12, ran=1.0)]).total
    assert dict(total.too_many) == {"possible_overlap": 1}


def test_a_body_of_another_tick_that_was_inside_before_the_window_still_collides() -> None:
    total = counted([tick(2)], [body(1, 1, -50, 10), body(2, 2, 5, 8)]).total
    assert (total.ticks, total.too_many["overlap"]) == (1, 1)


def test_a_collision_of_a_tick_outside_the_window_is_not_counted() -> None:
    assert counted([tick(1)], [body(1, 1, 0, 10), body(2, 2, 5, 8)]).total.too_many.total() == 0


def test_strategy_and_tick_guard_are_two_switches() -> None:
    figures = counted(
        [tick(1, guarded=False), tick(2)],
        [body(1, 1, 0, 1, guarded=False), body(2, 1, 2, 3, guarded=False), body(3, 2, 4, 5)],
    )
    assert {name: tally.collided for name, (tally, _) in figures.groups.items()} == {
        "redis, tick guard off": 1,
        "redis": 0,
    }
    assert list(figures.groups) == ["redis, tick guard off", "redis"], "the worst first"


def test_refusals_are_counted_by_who_refused_and_missed_ticks_for_what_they_stand_for() -> None:
    refused = [RefusedRow(1, "report", "t", state, n) for state, n in (("prevented", 5), ("duplicate", 2))]
    figures = counted([tick(1, "misfired", state="misfired", missed=12), tick(2, "misfired")], [], refused)
    (tally,) = figures.schedules.values()
    assert dict(tally.refusals) == {"prevented": 5, "duplicate": 2}
    assert tally.missed == 13


def test_bins_hold_every_tick_once() -> None:
    figures = counted([tick(n, "executed" if n % 2 else "prevented") for n in range(150)], [])
    assert [sum(one.values.values()) for one in figures.bins] == [60, 60, 30]
    assert figures.bins[0].start == NOON


def test_none_of_many_carries_the_exact_bound_rounded_up() -> None:
    assert none_of(2400) == "0 of 2,400 ticks (95 % bound 0.16 %)"
    assert none_of(0) == "no ticks yet"
    assert none_of(1) == "0 of 1 ticks (95 % bound 98 %)"
    for trials in (1, 2, 3, 10, 1000, 10**6):
        bound = upper_bound(trials)
        assert (1 - bound) ** trials == pytest.approx(0.025), "seeing none is just that unlikely at the bound"


def shown(total: Tally) -> dict[str, Tile]:
    links = Links(
        lists={"tick": "/ticks/", "execution": "/tries/"}, around=lambda moment, _: f"?{moment.execution_id}"
    )
    return {tile.label: tile for tile in tiles(total, links)}


def test_tiles_tell_none_with_its_bound_and_some_with_their_ticks() -> None:
    clean = shown(counted([tick(n) for n in range(100)], []).total)
    assert clean["Overlaps, proven"].foot == "0 of 100 ticks (95 % bound 3.7 %)"
    assert clean["Overlaps, proven"].tone == "mute"
    assert (clean["Ran once"].value, clean["Ran once"].tone) == ("100 %", "ok")
    broken = shown(counted([tick(1), tick(2)], [body(1, 1, 0, 9), body(2, 2, 5, 8)]).total)
    assert broken["Overlaps, proven"].foot == "two or more were inside at once, in 1 of 2 ticks"
    assert (broken["Overlaps, proven"].tone, broken["Overlaps, proven"].url) == ("bad", "?2")
    assert (broken["Overlaps, possible"].tone, broken["Overlaps, possible"].url) == ("mute", "")


def test_a_tile_counts_how_ticks_ended_also_where_they_collided_and_leads_there() -> None:
    ticks = [tick(1), tick(2, "lost"), tick(3, "failed"), tick(4, "abandoned"), tick(5, "blocked")]
    found = shown(counted(ticks, [body(1, 1, 0, 9), body(2, 2, 5, 8)]).total)
    assert (found["Lost lease"].value, found["Lost lease"].url) == ("1", "/ticks/?outcome__exact=lost")
    assert (found["Failed"].foot, found["Failed"].url) == (
        "1 failed, 1 crashed",
        "/ticks/?outcome__in=failed,abandoned",
    )
    assert (found["Blocked"].value, found["Missed"].url) == ("1", "")
    assert found["Ran once"].value == "20.0 %"


def test_a_share_is_never_rounded_to_all_or_to_nothing() -> None:
    assert [share(*pair) for pair in ((9_999, 10_000), (1, 10_000), (5, 5), (0, 5), (991, 1000))] == [
        "99.9 %", "0.1 %", "100 %", "0 %", "99.1 %",
    ]  # fmt: skip


def test_the_interval_of_a_rate_is_wilsons_and_of_none_the_exact_bound() -> None:
    low, high = interval(451, 2400)
    assert (round(low, 4), round(high, 4)) == (0.1728, 0.204)
    assert interval_words(451, 2400) == "17 to 21 %"
    assert interval(0, 2400) == (0.0, upper_bound(2400))
    assert interval_words(0, 2400) == "up to 0.16 %"
    assert interval_words(0, 0) == "no ticks"
    assert interval(5, 5)[1] == 1.0
    for hits, trials in ((1, 10), (9, 10), (1, 10_000)):
        assert interval(hits, trials)[0] < hits / trials < interval(hits, trials)[1]


def test_the_default_window_is_the_shortest_that_shows_something() -> None:
    ages = {0: "5m", 299: "5m", 301: "1h", 86_399: "24h", 86_401: "7d", 604_801: "24h"}
    assert {age: shortest_span(at(-age), NOON) for age in ages} == ages
    assert shortest_span(None, NOON) == "24h"


def test_the_default_timeline_is_as_wide_as_can_be_drawn_and_no_wider_than_needed() -> None:
    busy, _ = latest_window([at(-n / 20) for n in range(400)], NOON)
    assert busy.seconds == 10
    quiet, _ = latest_window([at(-300 * n) for n in range(10)], NOON)
    assert quiet.seconds == 3600
    fresh, _ = latest_window([at(-n) for n in range(90)], NOON)
    assert fresh.seconds == 120
    old, notes = latest_window([at(-7200), at(-7210)], NOON)
    assert old.end == at(-7199)
    assert [note.text for note in notes] == ["The latest try was 2 h ago: the window ends there."]


def test_links_keep_what_is_known_and_drop_the_rest() -> None:
    params = Params({"window": "1h", "schedule": "3", "evil": "x", "at": ""})
    assert params.url(window=None, to=at(0.5)) == "?schedule=3&to=2027-03-27T12:00:00.500Z"
    assert params.url("/page/", window=None, schedule=None) == "/page/"
    assert params.url(window=None, schedule=None) == "?"


@pytest.mark.parametrize("text", ["x", "2027-13-40T00:00", "1", "٣", "0001-01-01T00:00Z", "9999-12-31T23:59Z"])
def test_a_bad_instant_is_told_with_the_value_and_a_remedy(text: str) -> None:
    params = Params({"at": text})
    assert params.instant("at") is None
    assert params.problems == [f'at: "{text}" is not an instant; write it as 2027-03-27T12:00:00Z.']


def test_an_instant_without_an_offset_is_local_time() -> None:
    with timezone.override("Europe/Berlin"):
        assert Params({"from": "2027-03-27T13:00"}).instant("from") == NOON
        assert Params({"from": "2027-03-27T12:00Z"}).instant("from") == NOON


@pytest.mark.parametrize("text", ["x", "-1", "1.5", "٣", "9" * 30])
def test_a_bad_number_is_told(text: str) -> None:
    params = Params({"selected": text})
    assert params.number("selected") is None
    assert text in params.problems[0]
