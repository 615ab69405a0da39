"""How much "none" is worth: the bound that seeing no event in n trials puts on its rate. Pure."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal

CONFIDENCE = 0.95


def upper_bound(trials: int) -> float:
    """The upper end of the exact interval (Clopper and Pearson, 1934) for 0 of ``trials``, as a share.

    Two-sided, 95 %: 1 - 0.025 ** (1 / n), near 3.7 / n. (The "rule of three", 3 / n, is its one-sided kin.)
    """
    return 1.0 - ((1.0 - CONFIDENCE) / 2) ** (1 / trials) if trials else 1.0


def percent(share: float) -> str:
    """``0.16 %``: two digits that count, rounded up, so that a bound stays one."""
    if share >= 1:
        return "100 %"
    value = Decimal(repr(share * 100))
    digits = 1 - math.floor(math.log10(value)) if value else 0
    step = Decimal(1).scaleb(-max(0, digits))
    return f"{value.quantize(step, rounding=ROUND_CEILING)} %"


def none_of(trials: int, noun: str = "ticks") -> str:
    """``0 of 2,400 ticks (95 % bound 0.16 %)``; without a trial there is nothing to say a rate of."""
    if not trials:
        return f"no {noun} yet"
    return f"0 of {trials:,} {noun} (95 % bound {percent(upper_bound(trials))})"
