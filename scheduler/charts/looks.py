"""How each outcome looks and is called: word, colour family and pattern, the same on every chart. Pure.

Prevented and overlap differ in word, colour and number: prevented is the lock at work, overlap is
exclusivity broken. Colours live in ``aegis.css``; a style that needs a pattern has one of that name in
``_patterns.html``.
"""

from __future__ import annotations

from dataclasses import dataclass

# Styles whose fill is an SVG pattern; the others are plain fills and strokes of the style sheet.
PATTERNED = frozenset({"bad-hatch", "bad-faint", "bad-dots", "warn-dash", "warn-stripes", "warn-cross", "warn-grid"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """``label`` is the word, ``style`` the CSS class after ``aegis-``, ``glyph`` a path around (0, 0)."""

    key: str
    label: str
    style: str
    glyph: str = ""

    @property
    def pattern(self) -> str:
        """The pattern to fill with, or empty."""
        return self.style if self.style in PATTERNED else ""

    @property
    def tone(self) -> str:
        """The colour family: ``ok``, ``calm``, ``mute``, ``warn`` or ``bad``."""
        return self.style.partition("-")[0]


_CIRCLE = "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"
_DIAMOND = "M0,-5L5,0L0,5L-5,0z"
_SQUARES = "M-5,-4h6v6h-6zM-2,-1"
_TRIANGLE = "M-4.5,4L0,-4.5L4.5,4z"

# What a tick or an execution came to, from calm to bad: the order in which bars are stacked.
OUTCOMES: dict[str, Look] = {
    look.key: look
    for look in (
        Look(key="executed", label="Ran once", style="ok-solid"),
        Look(key="running", label="Running", style="ok-open"),
        Look(key="open", label="Not begun yet", style="mute-outline"),
        Look(key="prevented", label="Prevented", style="calm-outline"),
        Look(key="retried", label="Retried", style="mute-solid"),
        Look(key="revoked", label="Revoked", style="mute-outline"),
        Look(key="blocked", label="Blocked", style="warn-grid"),
        Look(key="misfired", label="Missed", style="warn-dotted"),
        Look(key="failed", label="Failed", style="warn-cross"),
        Look(key="abandoned", label="Crashed", style="warn-stripes"),
        Look(key="lost", label="Lost lease", style="warn-dash"),
        Look(key="possible_overlap", label="Possible overlap", style="bad-faint"),
        Look(key="duplicate", label="Duplicate", style="bad-dots"),
        Look(key="overlap", label="Overlap", style="bad-hatch"),
    )
}
POSSIBLE = Look(key="possible", label="Possible overlap", style="bad-faint")

# Tries that were refused before the body, drawn as small outlined signs.
REFUSALS: dict[str, Look] = {
    look.key: look
    for look in (
        Look(key="prevented", label="Prevented", style="calm-outline", glyph=_CIRCLE),
        Look(key="duplicate", label="Duplicate delivery refused", style="calm-outline", glyph=_SQUARES),
        Look(key="late", label="Late delivery refused", style="mute-outline", glyph=_TRIANGLE),
        Look(key="blocked", label="Blocked", style="warn-outline", glyph=_DIAMOND),
    )
}


def outcome(key: str) -> Look:
    """The look of an outcome; one that this version does not know is grey and called by its code."""
    return OUTCOMES.get(key) or Look(key=key, label=key.replace("_", " ").capitalize(), style="mute-outline")


def refusal(key: str) -> Look:
    """The look of a refusal; an unknown one is a grey circle."""
    unknown = Look(key=key, label=key.replace("_", " ").capitalize(), style="mute-outline", glyph=_CIRCLE)
    return REFUSALS.get(key, unknown)


def refusal_order(key: str) -> int:
    """Where a refusal stands in a legend, whichever came first; unknown ones at the end."""
    return list(REFUSALS).index(key) if key in REFUSALS else len(REFUSALS)


def badness(key: str) -> int:
    """Where an outcome stands from calm (0) to bad; unknown ones stand in the middle."""
    order = list(OUTCOMES)
    return order.index(key) if key in order else len(order) // 2
