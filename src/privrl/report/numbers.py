"""Numbers for people: as many digits as the interval allows, and its ends rounded outwards.

Two digits of an interval's half-width are shown, and its estimate and ends to the same place. The
lower end is rounded down and the upper end up, so that a printed interval holds the computed one.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal

from privrl.report.figures import Figure

NONE = "not stated"
SPACE = "\u00a0"  # keeps a number and what belongs to it on one line

_MOST_DECIMALS = 8
_MANY = Context(prec=400)
_SUPERSCRIPT = str.maketrans(
    "-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
)
_WORDS = {6: "million", 9: "billion"}


@dataclass(frozen=True)
class Style:
    """How a group of numbers is written: in units of 10^exponent, to so many decimals."""

    exponent: int = 0
    decimals: int = 2

    @property
    def unit(self) -> str:
        """What follows a number, or nothing."""
        if self.exponent == 0:
            return ""
        return _WORDS.get(self.exponent) or f"× 10{str(self.exponent).translate(_SUPERSCRIPT)}"

    def near(self, value: float | None) -> str:
        """Rounded to the nearest."""
        return self._format(value, ROUND_HALF_EVEN)

    def low(self, value: float | None) -> str:
        """Rounded down."""
        return self._format(value, ROUND_FLOOR)

    def high(self, value: float | None) -> str:
        """Rounded up."""
        return self._format(value, ROUND_CEILING)

    def bare(self, value: float) -> str:
        """Rounded to the nearest, without the unit."""
        return self._digits(value, ROUND_HALF_EVEN)

    def interval(self, figure: Figure) -> str:
        """From where to where."""
        if figure.low is None or figure.high is None:
            return NONE
        if figure.low == -math.inf and figure.high == math.inf:
            return "no limits"
        low = "no lower limit" if figure.low == -math.inf else self._digits(figure.low, ROUND_FLOOR)
        # The unit, if there is one, is said once.
        if figure.high == math.inf:
            low = self.low(figure.low)
        high = "no upper limit" if figure.high == math.inf else self.high(figure.high)
        return f"{low} to {high}"

    def finer(self, by: int) -> "Style":
        """With more decimals."""
        return Style(self.exponent, self.decimals + by)

    def excludes_zero(self, figure: Figure) -> bool:
        """Whether the interval, as it is written, has 0 outside."""
        if figure.low is None or figure.high is None:
            return False
        above = figure.low > 0.0 and self._round(figure.low, ROUND_FLOOR) > 0
        return above or (figure.high < 0.0 and self._round(figure.high, ROUND_CEILING) < 0)

    def _format(self, value: float | None, rounding: str) -> str:
        if value is None or math.isnan(value):
            return NONE
        if math.isinf(value):
            return "no limit"
        digits = self._digits(value, rounding)
        return f"{digits}{SPACE}{self.unit}" if self.exponent else digits

    def _digits(self, value: float, rounding: str) -> str:
        rounded = self._round(value, rounding)
        text = f"{abs(rounded):,.{max(self.decimals, 0)}f}"
        return f"\u2212{text}" if rounded < 0 else text

    def _round(self, value: float, rounding: str) -> Decimal:
        # The shortest decimal that means the float, so that 0.29 is not rounded down to 0.28.
        exact = Decimal(repr(float(value))).scaleb(-self.exponent, _MANY)
        if not exact.is_finite():
            return exact
        return exact.quantize(Decimal(1).scaleb(-self.decimals), rounding, _MANY)


def exponent(numbers: Iterable[float]) -> int:
    """The power of ten for a group: 0 from a thousandth to below a million."""
    largest = max((abs(one) for one in numbers), default=0.0)
    if largest == 0.0 or 1e-3 <= largest < 1e6:
        return 0
    power = math.floor(math.log10(largest))
    return 3 * (power // 3) if 6 <= power < 12 else power


def style(figure: Figure, power: int) -> Style:
    """By the figure's half-width; without one, three digits of the largest of its numbers."""
    half = figure.half
    if half is not None and half > 0.0:
        return Style(power, _decimals(half, power, 2))
    largest = max((abs(one) for one in figure.numbers), default=0.0)
    return Style(power, _decimals(largest, power, 3) if largest > 0.0 else 2)


def _decimals(size: float, power: int, digits: int) -> int:
    place = digits - 1 - (math.floor(math.log10(size)) - power)
    return max(-12, min(place, _MOST_DECIMALS))


def percent(share: float, up: bool = False) -> str:
    """With one decimal, if need be; `up` for bounds that must not look better than they are."""
    found = 100 * Decimal(repr(min(max(float(share), 0.0), 1.0)))
    found = found.quantize(Decimal("0.1"), ROUND_CEILING if up else ROUND_HALF_EVEN)
    text = f"{found:.1f}".removesuffix(".0")
    return f"{text}{SPACE}%"


def share(part: float) -> str:
    """A part of a whole, in whole percents."""
    if 0.0 < part < 0.005:
        return f"less than 1{SPACE}%"
    return f"{100.0 * part:.0f}{SPACE}%"


def level(figure: Figure) -> str:
    """The name of the interval, for example "95 % interval"."""
    if figure.level is None:
        return "interval"
    return f"{100.0 * figure.level:.6g}{SPACE}% interval"


def count(value: float) -> str:
    """A whole number, with commas."""
    return f"{value:,.0f}"


def plain(value: float) -> str:
    """Four digits, as a certificate's card has them."""
    if not math.isfinite(value):
        return NONE
    text = f"{value:.4g}"
    if "e" not in text:
        return text.replace("-", "\u2212")
    digits, _, power = text.partition("e")
    raised = f"10{str(int(power)).translate(_SUPERSCRIPT)}"
    return raised if digits == "1" else f"{digits}{SPACE}×{SPACE}{raised}".replace("-", "\u2212")
