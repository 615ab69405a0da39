"""Charts as plain data: geometry is computed here, templates only print it.

Pure: no ORM, no settings, no clock. Every function takes plain rows, a window and a width in pixels, and
returns frozen dataclasses with numbers that are ready for SVG attributes (the templates print them inside
``{% localize off %}``) and with the table that says the same in words. Nothing relies on colour alone,
nothing is styled inline, and no script is needed.
"""

from __future__ import annotations

from scheduler.charts.bars import BarChart, Count, bars, strips
from scheduler.charts.scale import Marker, Window, bin_seconds
from scheduler.charts.timeline import Meeting, Refusal, Span, Timeline, timeline

__all__ = [
    "BarChart",
    "Count",
    "Marker",
    "Meeting",
    "Refusal",
    "Span",
    "Timeline",
    "Window",
    "bars",
    "bin_seconds",
    "strips",
    "timeline",
]
