"""Stays of several parties under names, and who met whom: one sweep over sorted ends. Pure."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A stay of ``id`` under ``name``: [start, end). Empty where end <= start, and then it meets nobody."""

    name: str
    id: Hashable
    start: datetime
    end: datetime


def arrivals(intervals: Iterable[Interval]) -> Iterator[tuple[Interval, tuple[Interval, ...]]]:
    """Each stay that is not empty, in order of its start, with those that were inside under its name by then.

    Of two that start together the later in the input arrives second. O(n log n) and the size of the answer.
    """
    inside: dict[str, list[tuple[datetime, int, Interval]]] = defaultdict(list)
    stays = sorted((i for i in intervals if i.start < i.end), key=lambda i: i.start)
    for number, stay in enumerate(stays):
        present = inside[stay.name]
        while present and present[0][0] <= stay.start:
            heapq.heappop(present)
        yield stay, tuple(other for _, _, other in sorted(present, key=lambda entry: entry[1]))
        heapq.heappush(present, (stay.end, number, stay))


def count_arrivals_to_company(stays: Iterable[tuple[str, datetime, datetime]]) -> int:
    """How many of (name, start, end) arrived while another was inside: n at once are n - 1."""
    busy_until: dict[str, datetime] = {}
    count = 0
    for name, start, end in sorted((s for s in stays if s[1] < s[2]), key=lambda s: s[1]):
        until = busy_until.get(name)
        count += until is not None and start < until
        busy_until[name] = end if until is None else max(until, end)
    return count


class Groups:
    """Parties that hang together: union by path halving (Tarjan and van Leeuwen, 1984)."""

    def __init__(self) -> None:
        self._above: dict[Hashable, Hashable] = {}

    def join(self, one: Hashable, other: Hashable) -> bool:
        """Put both into one group; False where they were in one already."""
        a, b = self._top(one), self._top(other)
        self._above[a] = b
        return a != b

    def _top(self, party: Hashable) -> Hashable:
        above = self._above
        while (up := above.setdefault(party, party)) != party:
            above[party] = party = above.setdefault(up, up)
        return party


def shared_stretches(intervals: Iterable[Interval]) -> dict[Hashable, list[tuple[datetime, datetime]]]:
    """For each id, the longest stretches of its stay in which it was not alone under its name."""
    by_name: dict[str, list[Interval]] = defaultdict(list)
    for interval in intervals:
        if interval.start < interval.end:
            by_name[interval.name].append(interval)
    shared: dict[Hashable, list[tuple[datetime, datetime]]] = defaultdict(list)
    for stays in by_name.values():
        crowded = _crowded(stays)
        ends = [end for _, end in crowded]
        for stay in stays:
            for start, end in crowded[bisect_left(ends, stay.start) :]:
                if start >= stay.end:
                    break
                if end > stay.start:
                    shared[stay.id].append((max(start, stay.start), min(end, stay.end)))
    return shared


def _crowded(stays: list[Interval]) -> list[tuple[datetime, datetime]]:
    """The longest stretches with two or more inside. At one instant departures come before arrivals."""
    steps = sorted([(i.start, 1) for i in stays] + [(i.end, -1) for i in stays])
    found: list[tuple[datetime, datetime]] = []
    depth, since = 0, None
    for at, step in steps:
        depth += step
        if depth >= 2 and since is None:
            since = at
        elif depth < 2 and since is not None:
            if found and found[-1][1] == since:
                since = found.pop()[0]
            found.append((since, at))
            since = None
    return found
