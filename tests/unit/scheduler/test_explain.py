"""What people read about a recurrence: English, previews, warnings."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from scheduler.recurrence import cron, every, once, warnings

SPRING = datetime(2027, 3, 27, 0, tzinfo=UTC)
AUTUMN = datetime(2027, 10, 30, 23, 15, tzinfo=UTC)


def rows(expression: str, zone: str, start: datetime, count: int = 5) -> list[tuple[str, str]]:
    return [(row.local_text, row.note) for row in cron(expression, zone).preview(start, count)]


def test_preview_marks_the_run_that_the_spring_change_moves() -> None:
    assert rows("30 2 * * *", "Europe/Berlin", SPRING, 3) == [
        ("Sat 27 Mar 2027 02:30 (+01:00)", ""),
        ("Sun 28 Mar 2027 03:00 (+02:00)", "clocks go forward: 02:30 does not exist"),
        ("Mon 29 Mar 2027 02:30 (+02:00)", ""),
    ]


def test_runs_beside_each_other_are_written_alike() -> None:
    found = every(20, SPRING).preview(SPRING.replace(second=30), 3)
    assert [row.local_text[16:24] for row in found] == ["00:00:40", "00:01:00", "00:01:20"]


def test_preview_marks_the_matches_that_a_wildcard_loses() -> None:
    start = datetime(2027, 3, 28, 0, 45, tzinfo=UTC)
    assert rows("*/30 2 * * *", "Europe/Berlin", start, 2) == [
        ("Mon 29 Mar 2027 02:00 (+02:00)", "clocks go forward: 02:00 to 02:30 is skipped"),
        ("Mon 29 Mar 2027 02:30 (+02:00)", ""),
    ]


def test_preview_tells_the_two_passes_of_the_autumn_hour_apart() -> None:
    assert rows("*/30 1-3 * * *", "Europe/Berlin", AUTUMN, 6) == [
        ("Sun 31 Oct 2027 01:30 (+02:00)", ""),
        ("Sun 31 Oct 2027 02:00 (+02:00)", "clocks go back: 02:00 comes twice, this is the first"),
        ("Sun 31 Oct 2027 02:30 (+02:00)", "clocks go back: 02:30 comes twice, this is the first"),
        ("Sun 31 Oct 2027 02:00 (+01:00)", "clocks go back: 02:00 comes twice, this is the second"),
        ("Sun 31 Oct 2027 02:30 (+01:00)", "clocks go back: 02:30 comes twice, this is the second"),
        ("Sun 31 Oct 2027 03:00 (+01:00)", ""),
    ]
    assert rows("30 2 * * *", "Europe/Berlin", AUTUMN, 2) == [
        ("Sun 31 Oct 2027 02:30 (+02:00)", "clocks go back: 02:30 comes twice, runs once, the first time"),
        ("Mon 1 Nov 2027 02:30 (+01:00)", ""),
    ]


def test_preview_is_what_fires() -> None:
    recurrence = cron("*/7 1-3 * * *", "Australia/Lord_Howe")
    preview = recurrence.preview(SPRING, 50)
    assert [row.at for row in preview] == list(recurrence.fire_times(SPRING, preview[-1].at, 50).times)


def test_preview_ends_with_the_window() -> None:
    assert [row.at for row in once(SPRING).preview(SPRING)] == []
    assert len(every(3600, SPRING, end_at=SPRING.replace(hour=3)).preview(SPRING)) == 3


def messages(expression: str, zone: str = "UTC") -> list[str]:
    return [warning.message for warning in warnings(cron(expression, zone), SPRING)]


def test_either_day_is_or() -> None:
    (message,) = messages("0 0 13 * 5")
    assert message == (
        "Day of month and day of week are combined with OR, as in crontab(5): this fires on every 13th "
        "and on every Friday. (Celery's crontab means AND.)"
    )
    assert "on every 1st and every 22nd and on every Monday and every Sunday." in messages("0 0 1,22 * MON,SUN")[0]
    assert messages("0 0 */2 * 5")[0].startswith("*/2 restarts every month"), "a star makes it AND"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("*/7 * * * *", "*/7 restarts every hour: the last gap is 4 minutes."),
        ("*/59 * * * *", "*/59 restarts every hour: the last gap is 1 minute."),
        ("*/90 * * * *", "*/90 fires only in minute 0: the step is as long as the hour."),
        ("0 */5 * * *", "*/5 restarts every day: the last gap is 4 hours."),
        ("0 0 1 */5 *", "*/5 restarts every year: the last gap is 2 months."),
    ],
)
def test_uneven_steps(expression: str, message: str) -> None:
    assert messages(expression) == [message]


def test_even_steps_and_plain_times_are_not_warned_about() -> None:
    assert messages("*/15 */6 * */3 *") == []
    assert messages("30 2 * * *") == []
    assert messages("*/10 * * * *", "Europe/Berlin") == []
    assert messages("30 12 * * *", "Europe/Berlin") == []


def test_clock_changes_of_the_next_400_days() -> None:
    remedy = "Use UTC or a time from 03:00."
    spring = "on 28 Mar 2027 in Europe/Berlin, where the clocks go forward."
    autumn = "on 31 Oct 2027 in Europe/Berlin, where the clocks go back,"
    assert messages("30 2 * * *", "Europe/Berlin") == [
        f"02:30 does not exist and runs at 03:00 {spring} {remedy}",
        f"02:30 comes twice {autumn} and runs once, the first time. {remedy}",
    ]
    assert messages("*/10 2 * * *", "Europe/Berlin") == [
        f"02:00 to 02:50 is skipped {spring} {remedy}",
        f"02:00 to 02:50 comes twice {autumn} and runs both times. {remedy}",
    ]
    assert messages("30 2 * * MON", "Europe/Berlin") == [], "changes are on Sundays"


def test_english() -> None:
    assert cron("30 2 * * *").explain() == "At 02:30 every day"
    assert cron("@hourly").explain() == "At the start of every hour"
    assert [every(s, SPRING).explain() for s in (1, 60, 300, 5400, 86400, 1.5)] == [
        "Every second",
        "Every minute",
        "Every 5 minutes",
        "Every 1 hour 30 minutes",
        "Every day",
        "Every 1.5 seconds",
    ]
    assert once(SPRING, zone="Europe/Berlin").explain() == "Once, on 27 Mar 2027 at 01:00:00"
