"""What a timeline is made from, and the sentence by which each mark is known. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, tzinfo

from scheduler.charts.looks import outcome, refusal
from scheduler.charts.scale import Window, clock, duration_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One execution whose body began. ``label`` is short (the schedule), ``detail`` goes into the sentence.

    ``end`` is None while it runs. ``due`` draws the wait before it. ``overlap`` has the stretches in which
    another was inside: (start, end or None, whether it is proven).
    """

    worker: str
    start: datetime
    end: datetime | None
    state: str
    label: str
    url: str = ""
    detail: str = ""
    due: datetime | None = None
    overlap: tuple[tuple[datetime, datetime | None, bool], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """One try that was refused before the body: ``kind`` is its state, ``detail`` says by whom or why."""

    worker: str
    at: datetime
    kind: str
    label: str
    url: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    """Two or more inside at once under one lock name. ``parties`` and ``detail`` are for its sentence."""

    start: datetime
    end: datetime | None
    certain: bool
    label: str
    parties: tuple[str, ...] = ()
    detail: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """Puts marks into sentences, in one zone."""

    zone: tzinfo
    window: Window
    now: datetime | None

    def at(self, instant: datetime) -> str:
        """The local time of day."""
        return clock(instant, self.zone, self.window)

    def during(self, start: datetime, end: datetime | None) -> str:
        """``11:55:00 to 11:55:39``, or ``11:55:00, still running``."""
        return f"{self.at(start)} to {self.at(end)}" if end else f"{self.at(start)}, still running"

    def length(self, start: datetime, end: datetime | None) -> str:
        """How long, so far where it goes on; empty where that is not known."""
        until = end or self.now
        return duration_words((until - start).total_seconds()) if until and until >= start else ""

    def span(self, span: Span) -> str:
        """The whole sentence of an execution."""
        length = self.length(span.start, span.end)
        parts = [
            f"{span.label} on {span.worker}: {outcome(span.state).label.lower()}",
            self.during(span.start, span.end) + (f" ({length})" if length and span.end else ""),
            span.detail,
            *(self.overlap(start, end, certain) for start, end, certain in span.overlap),
        ]
        return ", ".join(part for part in parts if part)

    def overlap(self, start: datetime, end: datetime | None, certain: bool) -> str:
        """``overlap 11:55:30 to 11:55:39 proven``."""
        until = self.at(end) if end else "now"
        return f"overlap {self.at(start)} to {until} {'proven' if certain else 'possible'}"

    def refusal(self, sign: Refusal) -> str:
        """The whole sentence of a refusal."""
        what = f"{sign.label} on {sign.worker}: {refusal(sign.kind).label.lower()} at {self.at(sign.at)}"
        return f"{what}, {sign.detail}" if sign.detail else what

    def meeting(self, meeting: Meeting) -> str:
        """The whole sentence of an overlap."""
        parts = [
            f"{meeting.label}: {self.overlap(meeting.start, meeting.end, meeting.certain)}",
            " and ".join(meeting.parties),
            meeting.detail,
        ]
        return ", ".join(part for part in parts if part)
