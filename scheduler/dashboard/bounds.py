"""How much a count is worth: the interval that k events in n trials put on their rate. Pure."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Decimal

CONFIDENCE = 0.95


def upper_bound(trials: int) -> float:
    """The upper end of the exact interval (Clopper and Pearson, 1934) for 0 of ``trials``, as a share.

    Two-sided, 95 %: 1 - 0.025 ** (1 / n), near 3.7 / n. (The "rule of three", 3 / n, is its one-sided kin.)
    """
    return 1.0 - ((1.0 - CONFIDENCE) / 2) ** (1 / trials) if trials else 1.0


# Of the normal distribution, for CONFIDENCE, two-sided.
_Z = 1.959963984540054


def interval(hits: int, trials: int) -> tuple[float, float]:
    """The 95 % interval for ``hits`` of ``trials``, as shares.

    None of n: from 0 to the exact bound, ``upper_bound``. Else the score interval of Wilson (1927), which Brown, Cai
    and DasGupta (2001, "Interval Estimation for a Binomial Proportion") recommend for any n.
    """
    if not hits or not trials:
        return 0.0, upper_bound(trials)
    rate, square = hits / trials, _Z * _Z
    middle = (rate + square / (2 * trials)) / (1 + square / trials)
    half = _Z / (1 + square / trials) * math.sqrt(rate * (1 - rate) / trials + square / (4 * trials * trials))
    return max(0.0, middle - half), min(1.0, middle + half)


def interval_words(hits: int, trials: int) -> str:
    """``17.3 to 20.4 %``; for none, its bound: ``up to 0.16 %``."""
    if not trials:
        return "no ticks"
    low, high = interval(hits, trials)
    if not hits:
        return f"up to {percent(high)}"
    return f"{100 * low:.{_digits(low)}f} to {percent(high)}"


def _digits(share: float) -> int:
    """Decimals with which a percentage shows two digits that count."""
    value = 100 * share
    return max(0, 1 - math.floor(math.log10(value))) if value > 0 else 0


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
