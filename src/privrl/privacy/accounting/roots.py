"""Brent's method, bit for bit as `scipy.optimize.brentq` runs it.

Ours, since every run calibrates noise before it starts, and to load `scipy.optimize` for these
lines takes a tenth of a second, which is half as long as all of this package takes.
"""

import math
from collections.abc import Callable

_RELATIVE = 4.0 * math.ulp(1.0)
_MOST_STEPS = 100


def brent(function: Callable[[float], float], a: float, b: float, tolerance: float) -> float:
    """Where `function`, of other sign in a than in b, is 0 (Brent 1973, chapter 4).

    Args:
        function: Continuous, between `a` and `b`.
        a: One end.
        b: The other end.
        tolerance: By how much what is returned may be off; after 100 steps it may be more.
    """
    # The guess before, the guess, and the end on the other side of the root; steps before and now.
    before, now, other = a, b, 0.0
    f_before, f_now, f_other = function(before), function(now), 0.0
    last = step = 0.0
    if f_before == 0.0:
        return before
    for _ in range(_MOST_STEPS):
        if f_before != 0.0 and f_now != 0.0 and (f_before < 0.0) != (f_now < 0.0):
            other, f_other = before, f_before
            last = step = now - before
        if abs(f_other) < abs(f_now):
            before, now, other = now, other, now
            f_before, f_now, f_other = f_now, f_other, f_now
        close = (tolerance + _RELATIVE * abs(now)) / 2.0
        half = (other - now) / 2.0
        if f_now == 0.0 or abs(half) < close:
            return now
        tried = math.inf
        if abs(last) > close and abs(f_now) < abs(f_before):
            if before == other:
                tried = -f_now * (now - before) / (f_now - f_before)
            else:
                to_before = (f_before - f_now) / (before - now)
                to_other = (f_other - f_now) / (other - now)
                below = to_other * to_before * (f_other - f_before)
                if below:  # it may underflow
                    tried = -f_now * (f_other * to_other - f_before * to_before) / below
        if 2.0 * abs(tried) < min(abs(last), 3.0 * abs(half) - close):
            last, step = step, tried
        else:
            last = step = half
        before, f_before = now, f_now
        now += step if abs(step) > close else math.copysign(close, half)
        f_now = function(now)
    return now
