"""Chart geometry: inside the drawing, in proportion, never too many marks, and the table says the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.charts import Count, Meeting, Refusal, Span, Window, bars, bin_seconds, strips, timeline
from scheduler.charts.scale import TimeScale, count_ticks, time_ticks
from scheduler.charts.timeline import Timeline

BERLIN = ZoneInfo("Europe/Berlin")
NOON = datetime(2027, 3, 27, 12, tzinfo=UTC)
MINUTE = Window(start=NOON, end=NOON + timedelta(seconds=60))


def t(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def window(start: str, **length: float) -> Window:
    first = datetime.fromisoformat(start).replace(tzinfo=BERLIN).astimezone(UTC)
    return Window(start=first, end=first + timedelta(**length))


class TestScale:
    @pytest.mark.parametrize(
        ("shown", "labels"),
        [
            (
                window("2027-03-26T11:54:50", seconds=60),
                "11:54:50 11:55:00 11:55:10 11:55:20 11:55:30 11:55:40",
            ),
            (window("2027-03-26T11:52:10", minutes=25), "11:55 12:00 12:05 12:10 12:15"),
            (window("2027-03-26T22:30", hours=4), "22:30|23:00|23:30|27 Mar|00:30|01:00|01:30|02:00"),
            # The clocks go forward at 02:00, and back at 03:00: labels stay round on both sides.
            (window("2027-03-28T00:00", hours=8), "28 Mar|01:00|03:00|04:00|05:00|06:00|07:00|08:00"),
            (window("2027-10-31T01:00", hours=4), "01:00|01:30|02:00|02:30|02:00|02:30|03:00|03:30"),
            (window("2027-03-26T00:00", days=6, hours=23), "26 Mar|27 Mar|28 Mar|29 Mar|30 Mar|31 Mar|1 Apr"),
        ],
    )
    def test_labels_are_round_local_times(self, shown: Window, labels: str) -> None:
        ticks = time_ticks(TimeScale(window=shown, left=0, right=800), BERLIN)
        assert [tick.label for tick in ticks] == labels.split("|" if "|" in labels else " ")

    def test_a_label_without_room_to_its_right_ends_at_its_line(self) -> None:
        shown = window("2027-03-26T11:00:00", minutes=30, seconds=1)
        ticks = time_ticks(TimeScale(window=shown, left=0, right=800), BERLIN)
        assert [(tick.label, tick.last) for tick in ticks[-2:]] == [("11:25", False), ("11:30", True)]

    def test_odd_offsets_are_round_too(self) -> None:
        ticks = time_ticks(TimeScale(window=MINUTE, left=0, right=800), ZoneInfo("Asia/Kathmandu"))
        assert ticks[0].label == "17:45:00"
        hours = Window(start=NOON, end=NOON + timedelta(hours=6))
        ticks = time_ticks(TimeScale(window=hours, left=0, right=800), ZoneInfo("Asia/Kathmandu"))
        assert [tick.label for tick in ticks] == ["18:00", "19:00", "20:00", "21:00", "22:00", "23:00"]

    @given(start=st.integers(0, 4 * 10**8), length=st.floats(0.5, 4 * 10**7), width=st.integers(300, 2000))
    def test_ticks_lie_apart_inside_the_drawing(self, start: int, length: float, width: int) -> None:
        begin = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(seconds=start)
        scale = TimeScale(
            window=Window(start=begin, end=begin + timedelta(seconds=length)), left=150, right=150 + width
        )
        places = [tick.at for tick in time_ticks(scale, BERLIN)]
        assert all(150 <= place <= 150 + width for place in places)
        # An hour less where the clocks go forward or back between two days.
        assert all(b - a > 70 for a, b in pairwise(places))

    @given(most=st.integers(0, 10**7))
    def test_counts_reach_above_the_highest_in_few_round_steps(self, most: int) -> None:
        levels = count_ticks(most)
        assert levels[0] == 0
        assert levels[-1] >= max(1, most)
        assert len(levels) <= 5
        assert str(levels[1]).rstrip("0") in {"1", "2", "5"}

    def test_a_window_needs_a_length_and_a_zone(self) -> None:
        with pytest.raises(ValueError, match="end after"):
            Window(start=NOON, end=NOON)
        with pytest.raises(ValueError, match="aware"):
            Window(start=NOON.replace(tzinfo=None), end=NOON)

    def test_bins_are_round_and_few(self) -> None:
        assert bin_seconds(MINUTE, 60) == 1
        assert bin_seconds(window("2027-03-26T00:00", days=1)) == 1800
        assert bin_seconds(window("2027-03-26T00:00", days=7), 60) == 10800


DAY = window("2027-03-26T00:00", days=1)


def counts(per_bin: list[dict[str, int]], step: int) -> list[Count]:
    return [Count(start=DAY.start + timedelta(seconds=n * step), values=v) for n, v in enumerate(per_bin)]


class TestBars:
    def test_bad_outcomes_lie_on_top_and_even_one_is_seen(self) -> None:
        chart = bars(
            counts([{"overlap": 1, "executed": 900, "prevented": 99}], 1800),
            window=DAY,
            step=1800,
            zone=BERLIN,
            title="Ticks",
        )
        (stack,) = chart.stacks
        assert [mark.look.key for mark in stack] == ["executed", "prevented", "overlap"]
        assert [mark.y for mark in stack] == sorted((mark.y for mark in stack), reverse=True)
        assert stack[-1].height >= 3
        assert stack[0].height == pytest.approx(chart.plot.height * 0.9, abs=0.1)
        assert stack[-1].name == "00:00 to 00:30: 1 overlap"
        assert chart.y_ticks[-1].label == "1,000"

    @given(
        per_bin=st.lists(
            st.dictionaries(
                st.sampled_from(["executed", "prevented", "overlap", "lost", "new"]), st.integers(0, 10**5)
            ),
            max_size=1440,
        ),
        step=st.sampled_from([60, 300, 1800]),
    )
    def test_few_marks_inside_the_drawing_and_the_table_adds_up(
        self, per_bin: list[dict[str, int]], step: int
    ) -> None:
        per_bin = per_bin[: 86_400 // step]
        chart = bars(counts(per_bin, step), window=DAY, step=step, zone=BERLIN, title="Ticks")
        marks = [mark for stack in chart.stacks for mark in stack]
        assert len(marks) <= 500
        for mark in marks:
            assert chart.plot.x <= mark.x
            assert mark.x + mark.width <= chart.plot.right + 0.2
            assert mark.width >= 2
        for left, right in pairwise(chart.stacks):
            assert left[0].x + left[0].width <= right[0].x + 0.2

        written = sum(int(cell.text.replace(",", "")) for row in chart.table.rows for cell in row.cells)
        assert written == sum(n for values in per_bin for n in values.values())
        assert written == sum(int(item.total.replace(",", "")) for item in chart.legend)

    def test_bars_narrower_than_can_be_pointed_at_are_merged(self) -> None:
        chart = bars(counts([{"executed": 1}] * 1440, 60), window=DAY, step=60, zone=BERLIN, title="Ticks")
        assert chart.note == "1 bar = 10 min"
        assert len(chart.stacks) == 144

    def test_strips_share_one_scale(self) -> None:
        groups = {"none": counts([{"overlap": 90}], 1800), "redis": counts([{"executed": 3}], 1800)}
        none, redis = strips(groups, window=DAY, step=1800, zone=BERLIN)
        assert [tick.label for tick in none.y_ticks] == [tick.label for tick in redis.y_ticks]
        assert (none.title, none.id, redis.id) == ("none", "strip-1", "strip-2")

    def test_nothing_says_so(self) -> None:
        chart = bars([], window=DAY, step=1800, zone=BERLIN, title="Ticks")
        assert chart.stacks == ()
        assert chart.summary.startswith("No ticks in this window.")

    def test_links_name_bin_and_outcome(self) -> None:
        chart = bars(
            counts([{"executed": 1}], 1800),
            window=DAY,
            step=1800,
            zone=BERLIN,
            title="Ticks",
            link=lambda start, end, key: f"{(end - start).seconds}-{key}",
        )
        assert chart.stacks[0][0].url == "1800-executed"
        assert chart.table.rows[0].cells[0].url == "1800-executed"


def drawn(spans: list[Span], **options: object) -> Timeline:
    arguments: dict = {"window": MINUTE, "workers": [], "zone": UTC, "now": MINUTE.end} | options
    return timeline(spans=spans, **arguments)


def span(worker: str, start: float, end: float | None, **more: object) -> Span:
    return Span(
        worker=worker, start=t(start), end=None if end is None else t(end), label="invoices",
        **({"state": "executed"} | more),
    )  # fmt: skip


class TestTimeline:
    def test_idle_workers_have_a_lane_and_unknown_ones_come_last(self) -> None:
        chart = drawn([span("w2", 0, 5), span("stray", 1, 2)], workers=["w1", "w2"])
        assert [(lane.name, lane.idle) for lane in chart.lanes] == [
            ("w1", True),
            ("w2", False),
            ("stray", False),
        ]

    def test_overlap_is_hatched_on_both_bars_over_the_same_stretch(self) -> None:
        met = ((t(40), t(49), True),)
        chart = drawn(
            [span("w1", 10, 49, overlap=met, state="lost"), span("w2", 40, 55, overlap=met)],
            meetings=[
                Meeting(
                    start=t(40),
                    end=t(49),
                    certain=True,
                    label="invoices",
                    parties=("w1 token 9", "w2 token 10"),
                )
            ],
        )
        first, second = (lane.bars[0].hatches[0] for lane in chart.lanes)
        assert (first.x, first.width) == (second.x, second.width)
        assert first.look.pattern == "bad-hatch"
        (meeting,) = chart.meetings
        assert (meeting.x, meeting.width) == (first.x, first.width)
        assert meeting.name == ("invoices: overlap 12:00:40 to 12:00:49 proven, w1 token 9 and w2 token 10")
        assert "3 overlaps" not in chart.summary
        assert "1 overlap (1 proven)" in chart.summary

    def test_a_running_bar_ends_at_now_and_is_open(self) -> None:
        chart = drawn([span("w1", 30, None, state="running")], now=t(45))
        (bar,) = chart.lanes[0].bars
        assert bar.x + bar.width == pytest.approx(chart.now_x, abs=0.1)
        assert bar.arrow
        assert bar.name == "invoices on w1: running, 12:00:30, still running"

    def test_a_bar_that_began_before_the_window_starts_at_its_edge(self) -> None:
        (bar,) = drawn([span("w1", -100, 10)]).lanes[0].bars
        assert bar.x == 150
        assert bar.name.endswith("(1 min 50 s)")

    def test_outside_of_the_window_nothing_is_drawn(self) -> None:
        chart = drawn([span("w1", -20, -10), span("w1", 61, 70)], workers=["w1"])
        assert chart.lanes[0].idle
        assert chart.table.rows == ()

    def test_a_refusal_is_a_sign_in_its_own_strip(self) -> None:
        refused = Refusal(worker="w1", at=t(10), kind="prevented", label="invoices", detail="held by w2")
        chart = drawn([span("w1", 0, 30)], refusals=[refused])
        (lane,) = chart.lanes
        assert lane.signs[0].y > lane.bars[0].y + lane.bars[0].height
        assert lane.signs[0].name == "invoices on w1: prevented at 12:00:10, held by w2"
        assert [look.label for look in chart.sign_legend] == ["Prevented"]

    def test_table_has_a_row_for_each_mark(self) -> None:
        refused = Refusal(worker="w1", at=t(10), kind="blocked", label="orders")
        chart = drawn([span("w1", 20, 30), span("w2", 5, 6)], refusals=[refused])
        assert [row.cells[0].text for row in chart.table.rows] == ["w2", "w1", "w1"]
        assert [row.cells[2].text for row in chart.table.rows] == ["Ran once", "Blocked", "Ran once"]

    def test_lanes_beyond_the_limit_are_counted(self) -> None:
        chart = drawn([span(f"w{n:02}", 0, 5) for n in range(42)])
        assert len(chart.lanes) == 30
        assert chart.note == "Workers 1 to 30 of 42 are shown."

    def test_many_marks_are_binned_and_nothing_bad_is_lost(self) -> None:
        spans = [span(f"w{n % 4}", n / 100, n / 100 + 0.5) for n in range(5000)]
        spans[17] = span("w1", 30, 31, state="failed", overlap=((t(30), t(31), True),))
        chart = drawn(
            spans, zoom=lambda start, end: f"?{start:%S}-{end:%S}", refusals=[],
            meetings=[Meeting(start=t(30), end=t(31), certain=n == 0, label="x") for n in range(600)],
        )  # fmt: skip
        cells = [cell for lane in chart.lanes for cell in lane.cells]
        assert not any(lane.bars for lane in chart.lanes)
        assert len(cells) + len(chart.meetings) <= 500
        assert chart.note == "Binned: 1 cell = 1 s, 5,000 marks; zoom in for single ones."
        assert len(chart.table.rows) == len(cells)
        (worst,) = [cell for cell in cells if "1 failed" in cell.name and cell.url == "?30-31"]
        assert [part.look.key for part in worst.parts] == ["executed", "failed", "overlap"]
        assert sum(part.height for part in worst.parts) == pytest.approx(26, abs=0.2)
        assert chart.meetings[0].name == "12:00:30 to 12:00:31: 600 overlaps, 1 proven"


SPANS = st.builds(
    lambda worker, start, length, state, ends: span(
        f"w{worker}",
        start,
        start + length if ends else None,
        state=state,
        overlap=((t(start), t(start + length / 2), True), (t(start + length), None, False)),
    ),
    st.integers(0, 3),
    st.floats(-10, 70),
    st.floats(0, 40),
    st.sampled_from(["executed", "lost", "running", "never heard of"]),
    st.booleans(),
)


@given(spans=st.lists(SPANS, max_size=40), most=st.sampled_from([5, 500]))
def test_every_mark_lies_inside_the_drawing_and_none_covers_another(spans: list[Span], most: int) -> None:
    chart = drawn(spans, now=t(50), most_marks=most)
    for lane in chart.lanes:
        for mark in (*lane.bars, *lane.cells):
            assert chart.plot.x <= mark.x
            assert mark.x + mark.width <= chart.plot.right + 0.1
        for bar in lane.bars:
            assert lane.y < bar.y
            assert bar.y + bar.height < lane.bottom
            for hatch in bar.hatches:
                assert bar.x - 0.1 <= hatch.x
                assert hatch.x + hatch.width <= bar.x + bar.width + 0.1
        rows: dict[float, float] = {}
        for bar in lane.bars:
            assert rows.get(bar.y, 0) <= bar.x
            rows[bar.y] = bar.x + bar.width
        for cell in lane.cells:
            assert all(lane.y < part.y and part.y + part.height < lane.bottom for part in cell.parts)
