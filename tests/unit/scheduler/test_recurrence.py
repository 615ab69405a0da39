"""Recurrence: fire times, windows, counting; what is refused and how."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.recurrence import InvalidRecurrence, Recurrence, cron, every, once, smallest_period

NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


class TestNextAfter:
    def test_strictly_after(self) -> None:
        assert cron("0 12 * * *").next_after(NOON) == NOON + timedelta(days=1)
        assert every(60, NOON).next_after(NOON) == NOON + timedelta(seconds=60)
        assert once(NOON).next_after(NOON) is None

    def test_once_before_its_instant(self) -> None:
        assert once(NOON).next_after(NOON - HOUR) == NOON

    def test_answers_in_utc_whatever_zone_it_is_asked_in(self) -> None:
        berlin = NOON.astimezone(timezone(timedelta(hours=5)))
        fire_time = cron("30 2 * * *", "Europe/Berlin").next_after(berlin)
        assert fire_time == at("2027-03-28T01:00")
        assert fire_time.tzinfo is UTC

    def test_interval_is_anchored_in_both_directions(self) -> None:
        grid = every(600, NOON)
        assert grid.next_after(NOON - timedelta(days=3650, seconds=1)) == NOON - timedelta(days=3650)
        assert grid.next_after(NOON + timedelta(days=3650)) == NOON + timedelta(days=3650, seconds=600)

    def test_fractions_of_a_second_do_not_drift(self) -> None:
        grid = every(1.5, NOON)
        assert grid.next_after(NOON + timedelta(seconds=3_000_000)) == NOON + timedelta(seconds=3_000_001.5)

    def test_naive_instant_is_refused(self) -> None:
        with pytest.raises(ValueError, match="naive"):
            cron("* * * * *").next_after(datetime(2027, 1, 1))

    def test_end_of_the_calendar_is_no_error(self) -> None:
        last = datetime.max.replace(tzinfo=UTC)
        assert cron("* * * * *", "Europe/Berlin").next_after(last) is None
        assert every(60, NOON).next_after(last) is None

    def test_nickname_is_its_five_fields(self) -> None:
        assert cron("@hourly").next_after(NOON) == NOON + HOUR
        assert cron(" @Daily ").next_after(NOON) == at("2027-03-28T00:00")

    def test_leap_day_far_away(self) -> None:
        assert cron("0 0 29 2 *").next_after(NOON) == at("2028-02-29T00:00")


class TestWindow:
    @pytest.mark.parametrize(
        "recurrence",
        [
            cron("0 * * * *", start_at=NOON, end_at=NOON + 2 * HOUR),
            every(3600, NOON - 5 * HOUR, start_at=NOON, end_at=NOON + 2 * HOUR),
        ],
        ids=["cron", "every"],
    )
    def test_both_ends_belong_to_it(self, recurrence: Recurrence) -> None:
        found = recurrence.fire_times(NOON - timedelta(days=1), NOON + timedelta(days=1), 10)
        assert found.times == (NOON, NOON + HOUR, NOON + 2 * HOUR)
        assert not found.more
        assert recurrence.count_in(NOON - timedelta(days=1), NOON + timedelta(days=1), 10) == (3, False)
        assert recurrence.count_in(NOON + 3 * HOUR, NOON + timedelta(days=1), 10) == (0, False)

    def test_outside_of_it_nothing_fires_once(self) -> None:
        assert once(NOON, end_at=NOON - HOUR).next_after(NOON - 2 * HOUR) is None
        assert once(NOON, start_at=NOON).next_after(NOON - 2 * HOUR) == NOON


RECURRENCES = st.one_of(
    st.builds(every, st.floats(1, 5000), st.just(NOON)),
    st.builds(once, st.integers(-9000, 9000).map(lambda s: NOON + timedelta(seconds=s))),
    st.builds(
        cron,
        st.sampled_from(["* * * * *", "*/7 * * * *", "15 * * * *", "30 2 * * *", "0 0 1 * *", "1 1 29 2 *"]),
        st.sampled_from(["UTC", "Europe/Berlin"]),
    ),
)
INSTANTS = st.integers(0, 10**11).map(lambda micro: NOON + timedelta(microseconds=micro))


@given(recurrence=RECURRENCES, after=INSTANTS, length=st.integers(0, 10**10))
def test_stretch_count_and_last_agree_with_next_after(recurrence: Recurrence, after: datetime, length: int) -> None:
    until = after + timedelta(microseconds=length)
    expected, t = [], after
    while (t := recurrence.next_after(t)) is not None and t <= until:
        expected.append(t)

    assert recurrence.fire_times(after, until, len(expected)).times == tuple(expected)
    assert not recurrence.fire_times(after, until, len(expected)).more
    assert recurrence.count_in(after, until, len(expected) + 1) == (len(expected), False)
    assert recurrence.last_in(after, until) == (expected[-1] if expected else None)
    if expected:
        short = recurrence.fire_times(after, until, len(expected) - 1)
        assert (short.times, short.more) == (tuple(expected[:-1]), True)


def test_counting_an_interval_needs_no_loop() -> None:
    year = timedelta(days=365)
    assert every(1, NOON).count_in(NOON, NOON + 30 * year, cap=5) == (30 * 365 * 86_400, False)


def test_counting_cron_stops_at_the_cap() -> None:
    assert cron("* * * * *").count_in(NOON, NOON + timedelta(days=3650), cap=100) == (100, True)


def test_last_of_a_decade_of_minutes_is_found_from_its_end() -> None:
    end = NOON + timedelta(days=3650, seconds=30)
    assert cron("* * * * *", "Europe/Berlin").last_in(NOON, end) == end - timedelta(seconds=30)
    assert cron("0 0 29 2 *").last_in(NOON, end) == at("2036-02-29T00:00")


@pytest.mark.parametrize(
    ("recurrence", "seconds"),
    [
        (every(90, NOON), 90),
        (once(NOON), None),
        (cron("* * * * *"), 60),
        (cron("*/7 * * * *"), 240),
        (cron("0 9-17 * * MON-FRI", "Europe/Berlin"), 3600),
        (cron("30 2 * * *", "Europe/Berlin"), 23.5 * 3600),  # 02:30, then 03:00 on the day without 02:30
        (cron("30 2,3 * * *", "Europe/Berlin"), 1800),  # 03:00 and 03:30 on that day
        (cron("0 0 13 * 5"), 86400),
        (cron("0 0 29 2 *"), 1461 * 86400),
    ],
)
def test_smallest_period(recurrence: Recurrence, seconds: float | None) -> None:
    assert smallest_period(recurrence) == seconds


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("61 * * * *", "Minute must be 0-59; you typed 61."),
        ("5-70 * * * *", "Minute must be 0-59; you typed 70."),
        ("* 24 * * *", "Hour must be 0-23; you typed 24."),
        ("* * 0 * *", "Day of month must be 1-31, or L for the last day; you typed 0."),
        ("* * * foo *", "Month must be 1-12 or JAN-DEC; you typed foo."),
        ("* * * * 8", "Day of week must be 0-7 or SUN-SAT (0 and 7 are Sunday); you typed 8."),
        ("a * * * *", "Minute must be 0-59; you typed a."),
        ("*/0 * * * *", "Minute step must be a whole number from 1; you typed */0."),
        ("/5 * * * *", "Minute step needs a range before it: write */5; you typed /5."),
        ("1,,2 * * * *", "Minute has an empty place in '1,,2'; remove the extra comma."),
        ("50-10 * * * *", "Minute range 50-10 runs backwards; write 50-59,0-10."),
        ("* * * * FRI-SUN", "Day of week range FRI-SUN runs backwards; write 5-7."),
        ("* * * * * *", "you typed six. For seconds use an interval instead."),
        ("* * * *", "you typed 4: '* * * *'."),
        ("@reboot", "@reboot is not known; write five fields, or one of @yearly,"),
        ("0 0 31 2 *", "This never fires: February has no day 31."),
        ("0 0 31 4,6 *", "This never fires: April and June have no day 31."),
        ("0 0 30,31 FEB *", "This never fires: February has no day 30."),
        ("0 0 */31 * MON#2", "This never fires:"),
        ("", "A cron expression is missing; give one."),
    ],
)
def test_refused_expression_names_field_value_and_remedy(expression: str, message: str) -> None:
    with pytest.raises(InvalidRecurrence) as caught:
        cron(expression)
    assert caught.value.field == "expression"
    assert message in caught.value.message


@given(text=st.text(alphabet="0123456789*/-,#@LWMONFEBsun \t\x00²", max_size=25))
def test_any_text_is_accepted_or_refused_with_a_sentence(text: str) -> None:
    try:
        recurrence = cron(text)
    except InvalidRecurrence as exc:
        refusal = exc.message
    else:
        refusal = ""
        assert recurrence.next_after(NOON) is not None
        assert recurrence.explain()
    assert not refusal or refusal.endswith(".")


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Berlin", "did you mean Europe/Berlin?"),
        ("europe/berlin", "did you mean Europe/Berlin?"),
        ("Europe/Berln", "did you mean Europe/Berlin?"),
        ("america/new york", "did you mean America/New_York?"),
        ("Europe", "not known"),
        ("../etc/passwd", "not known"),
        ("right/Europe/Berlin", "not known"),
        ("localtime", "not known"),
        ("zzzzz", "use a name such as Europe/Berlin."),
        ("", "not known"),
    ],
)
def test_unknown_zone_suggests_a_close_one(zone: str, hint: str) -> None:
    with pytest.raises(InvalidRecurrence) as caught:
        cron("* * * * *", zone)
    assert caught.value.field == "zone"
    assert hint in caught.value.message


@pytest.mark.parametrize(
    ("field", "arguments"),
    [
        ("every", {"kind": "every", "every": 0, "anchor": NOON}),
        ("every", {"kind": "every", "every": 0.5, "anchor": NOON}),
        ("every", {"kind": "every", "every": -5, "anchor": NOON}),
        ("every", {"kind": "every", "every": float("nan"), "anchor": NOON}),
        ("every", {"kind": "every", "every": float("inf"), "anchor": NOON}),
        ("every", {"kind": "every", "every": True, "anchor": NOON}),
        ("every", {"kind": "every", "every": "60", "anchor": NOON}),
        ("every", {"kind": "every", "anchor": NOON}),
        ("anchor", {"kind": "every", "every": 60}),
        ("anchor", {"kind": "every", "every": 60, "anchor": NOON.replace(tzinfo=None)}),
        ("at", {"kind": "once"}),
        ("at", {"kind": "once", "at": NOON.replace(tzinfo=None)}),
        ("at", {"kind": "cron", "expression": "* * * * *", "at": NOON}),
        ("every", {"kind": "cron", "expression": "* * * * *", "every": 60}),
        ("expression", {"kind": "cron", "expression": 5}),
        ("end_at", {"kind": "once", "at": NOON, "start_at": NOON, "end_at": NOON - HOUR}),
        ("kind", {"kind": "solar"}),
    ],
)
def test_refused_fields_are_named(field: str, arguments: dict) -> None:
    with pytest.raises(InvalidRecurrence) as caught:
        Recurrence(**arguments)
    assert caught.value.field == field
    assert caught.value.message.endswith(".")
