"""Time zones: a zone by name, and when its clocks change.

Pure. ``zoneinfo`` tells the offset of an instant but not when offsets change; ``clock_changes`` finds that by
probing once a day and then halving, because no zone has ever changed twice within a day.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

_PROBE = timedelta(days=1)
_SECOND = timedelta(seconds=1)

# Names that zoneinfo opens but that mean different things on different hosts, or count leap seconds.
_NOT_ZONES = ("posix/", "right/")
_HOST_ZONES = frozenset({"localtime", "posixrules", "Factory"})


class UnknownZone(ValueError):
    """No such time zone. ``suggestion`` is the closest name, or empty."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.suggestion = _closest(name)
        super().__init__(f"unknown time zone {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """At ``at`` (UTC, the first instant of the new offset) the clocks go from ``old`` to ``new``."""

    at: datetime
    old: timedelta
    new: timedelta

    @property
    def forward(self) -> bool:
        """Whether local times are missing (True) or come twice (False)."""
        return self.new > self.old

    @property
    def span(self) -> tuple[datetime, datetime]:
        """The local times that are missing or repeated: naive, first included, last excluded."""
        naive = self.at.replace(tzinfo=None)
        return naive + min(self.old, self.new), naive + max(self.old, self.new)


def zone_named(name: str) -> ZoneInfo:
    """The zone of that IANA name. Raises ``UnknownZone`` with a suggestion where a close name exists."""
    if not name or name in _HOST_ZONES or name.startswith(_NOT_ZONES):
        raise UnknownZone(name)
    try:
        return ZoneInfo(name)
    # ValueError: a path that leaves the zone folder. OSError: the name of a folder, such as "Europe".
    except (ZoneInfoNotFoundError, ValueError, OSError) as exc:
        raise UnknownZone(name) from exc


def offset_at(instant: datetime, zone: ZoneInfo) -> timedelta:
    """What the zone's clocks are ahead of UTC at that instant."""
    offset = instant.astimezone(zone).utcoffset()
    return offset if offset is not None else timedelta(0)


def clock_changes(zone: ZoneInfo, after: datetime, until: datetime) -> Iterator[ClockChange]:
    """The changes of the zone's offset in (after, until], in order. Both are aware; probes once a day."""
    low, old = after.astimezone(UTC), offset_at(after, zone)
    end = until.astimezone(UTC)
    while low < end:
        high = min(low + _PROBE, end)
        new = offset_at(high, zone)
        if new != old:
            high = _first_with_other_offset(zone, low, high, old)
            new = offset_at(high, zone)
            yield ClockChange(at=high, old=old, new=new)
        low, old = high, new


def _first_with_other_offset(zone: ZoneInfo, low: datetime, high: datetime, old: timedelta) -> datetime:
    """The first whole second in (low, high] whose offset is not ``old``, by halving."""
    low = low.replace(microsecond=0)
    top = high.replace(microsecond=0)
    # A change within the very second of ``high`` began at that whole second, changes being whole seconds.
    while top - low > _SECOND:
        middle = low + (top - low) // 2
        middle = middle.replace(microsecond=0)
        if offset_at(middle, zone) == old:
            low = middle
        else:
            top = middle
    return top


@cache
def _known_zones() -> dict[str, str]:
    return {name.lower(): name for name in available_timezones()}


def _closest(name: str) -> str:
    """A known zone that looks like ``name``: by case, by city, else by spelling."""
    known = _known_zones()
    wanted = name.strip().lower().replace(" ", "_")
    if wanted in known:
        return known[wanted]
    city = sorted(full for low, full in known.items() if wanted and low.rpartition("/")[2] == wanted)
    close = difflib.get_close_matches(wanted, known, n=1)
    return (city or [known[low] for low in close] or [""])[0]
