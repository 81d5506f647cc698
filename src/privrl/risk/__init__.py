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

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.risk.prospect import Prospect, parse_prospect
    from privrl.risk.tables import CPTSolution, solve
    from privrl.risk.utilities import PowerUtility, Utility
    from privrl.risk.weights import IdentityWeight, Prelec, TverskyKahneman, Weight

_HOMES = {
    "prospect": ("Prospect", "parse_prospect"),
    "tables": ("CPTSolution", "solve"),
    "utilities": ("PowerUtility", "Utility"),
    "weights": ("IdentityWeight", "Prelec", "TverskyKahneman", "Weight"),
}

__all__ = [
    "CPTSolution",
    "IdentityWeight",
    "PowerUtility",
    "Prelec",
    "Prospect",
    "TverskyKahneman",
    "Utility",
    "Weight",
    "parse_prospect",
    "solve",
]


__getattr__ = lazy(__name__, _HOMES)
