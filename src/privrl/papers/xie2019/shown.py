"""What targets of xie2019 have in common: names of estimators, and how numbers are compared."""

from collections.abc import Mapping
from typing import Any

from privrl.papers.reproduce.target import Difference, Kind, Quantity
from privrl.papers.xie2019.pilots import Pilot
from privrl.papers.xie2019.steps import decades

MODULE = "privrl.papers.xie2019"
LOST = "A curve: the copy of the paper that we have is its text."
ORDER, ORDERS = 1.0, 2.0
"""An order of magnitude; "orders" are at least two."""

NAMES: dict[str, tuple[str, Kind]] = {
    "gpope": ("GPOPE", "paper"),
    "gpope_low": ("GPOPE, 0.1 x step", "paper"),
    "gpope_high": ("GPOPE, 10 x step", "paper"),
    "gpope_whitened": ("GPOPE, whitened features", "paper"),
    "dp_lsw": ("DP-LSW (V1)", "paper"),
    "dp_lsl": ("DP-LSL (V2)", "paper"),
    "lstd": ("LSTD, not private", "plain"),
    "wis_lstd": ("WIS-LSTD, not private", "plain"),
    "zero": ("zero weights", "control"),
    "certified_gpope": ("GPOPE, certified noise", "certified"),
    "dp_lsl_calibrated": ("DP-LSL, calibrated", "certified"),
    "private_lstd": ("PrivateLSTD", "certified"),
    "private_gtd": ("PrivateGTD", "certified"),
    "updates_1": ("one update from a trajectory", "paper"),
    "updates_2": ("two updates from a trajectory", "paper"),
    "updates_4": ("four updates from a trajectory", "paper"),
    "constant_short": ("constant steps, N = m / 4", "paper"),
    "diminishing_short": ("diminishing steps, N = m / 4", "paper"),
    "constant_long": ("constant steps, by 1 / sqrt(N) shorter, N = 100 m", "paper"),
    "tuned_long": ("constant steps, N = 100 m", "paper"),
    "diminishing_long": ("diminishing steps, N = 100 m", "paper"),
}


def quantity(
    measure: str, where: Mapping[str, Any], at: str, pilot: Pilot | tuple[None, None]
) -> Quantity:
    name, kind = NAMES[measure]
    return Quantity(
        *(f"{name}, {at}" if at else name, measure, where),
        scale="log",
        pilot=pilot[0],
        spread=pilot[1],
        kind=kind,
        lost=LOST if kind in ("paper", "plain") else "",
    )


def decades_of(name: str, measure: str, where: Mapping[str, Any], pilot: Pilot) -> Quantity:
    """Over how many decades of steps half of the gain over zero weights is kept."""
    return Quantity(*(name, measure, where, decades), pilot=pilot[0], spread=pilot[1], lost=LOST)


def wide(name: str) -> Difference:
    """Wide: two decades, from 0.1 to 10 times a step, which is the paper's own range."""
    return Difference(f"{name}: above 2", {name: 1.0}, beyond=2.0, least=2.5)


BELOW_ZERO = 0.05
"""A tenth below zero weights is the least that counts as having learned anything."""

TUNED = "tuned on public data: N, h, averaging and the step"
TRIED = (
    "GPOPE was tuned on every combination of N / m in 4, 16, 64 (and 1 at m = 1,000), clip bounds "
    "0.01, 0.03, 0.1 (HIV 0.03, 0.1, 0.3; lower ones are as good), the last iterate or the mean of "
    "the last half, and 22 steps from 0.00001 to 100, for the least mean error with the paper's "
    "noise; on mountain car, on-policy, m = 5,000, epsilon 1, the second, which is steadier: 0.176 "
    "(standard error 0.016) instead of 0.173 (0.034). At N = 64 m as many gradients are drawn as "
    "PrivateGTD takes in 64 iterations; it has up to 200. On HIV at m = 4,000 and epsilon 1, seed "
    "0, N = 256 m gives 0.283 instead of 0.289, and 0.287 instead of 0.323 with certified noise."
)
"""What mountain car's and HIV's settings were chosen from."""
EPSILON = 0.1
"""Of the chain, and of "these same experiments" on mountain car."""
