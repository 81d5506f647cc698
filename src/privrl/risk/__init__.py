"""What people prefer: cumulative prospect theory (Tversky and Kahneman 1992).

>>> from privrl.risk import Prospect
>>> tickets = Prospect.tversky_kahneman()
>>> round(float(tickets.of_distribution([0.0, 100.0], [0.95, 0.05])), 2)  # a long shot
7.57
>>> round(float(tickets.utility(5.0)), 2)  # its mean, for certain
4.12

`Prospect` values samples, distributions and densities; `solve` values and optimises whole decision
processes given by tables. All of it takes NumPy and JAX arrays, but for densities and tables.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privrl.risk.prospect import Prospect, prospect_of
    from privrl.risk.tables import Solved, solve
    from privrl.risk.utilities import PowerUtility, Utility
    from privrl.risk.weights import Prelec, Straight, TverskyKahneman, Weight

_HOMES = {
    "prospect": ("Prospect", "prospect_of"),
    "tables": ("Solved", "solve"),
    "utilities": ("PowerUtility", "Utility"),
    "weights": ("Prelec", "Straight", "TverskyKahneman", "Weight"),
}

__all__ = [
    "PowerUtility",
    "Prelec",
    "Prospect",
    "Solved",
    "Straight",
    "TverskyKahneman",
    "Utility",
    "Weight",
    "prospect_of",
    "solve",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"privrl.risk.{home}"), name)
    raise AttributeError(f"module 'privrl.risk' has no attribute {name!r}")
