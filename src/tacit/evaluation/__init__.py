"""Policy evaluation: a file per estimator, one interface `fit(data, policy) -> Result`.

Without privacy: `LSTD`, `WISLSTD`, `GTD2`, and for a policy's value `IS`, `PDIS`, `WIS`, `WPDIS`,
`DR`, `WDR`, `FQE`. With a certificate: `PrivateValue`, which is the number most people ask for,
`PrivateGTD` and `PrivateLSTD` for value functions, and from the papers `GPOPE` (xie2019), `DPLSW`
and `DPLSL` (Balle et al. 2016).
"""

from tacit.evaluation.bellman_error import moments, mspbe
from tacit.evaluation.doubly_robust import DR, WDR
from tacit.evaluation.dplsl import DPLSL
from tacit.evaluation.dplsw import DPLSW
from tacit.evaluation.fqe import FQE
from tacit.evaluation.gpope import GPOPE
from tacit.evaluation.gtd2 import GTD2
from tacit.evaluation.importance import IS, PDIS, WIS, WPDIS
from tacit.evaluation.lstd import LSTD, WISLSTD
from tacit.evaluation.private_gtd import PrivateGTD
from tacit.evaluation.private_lstd import PrivateLSTD
from tacit.evaluation.private_value import PrivateValue
from tacit.evaluation.result import Interval, NotPrivate, Result
from tacit.evaluation.selection import choose
from tacit.evaluation.simulate import Schema, simulate_like

__all__ = [
    "DPLSL",
    "DPLSW",
    "DR",
    "FQE",
    "GPOPE",
    "GTD2",
    "IS",
    "LSTD",
    "PDIS",
    "WDR",
    "WIS",
    "WISLSTD",
    "WPDIS",
    "Interval",
    "NotPrivate",
    "PrivateGTD",
    "PrivateLSTD",
    "PrivateValue",
    "Result",
    "Schema",
    "choose",
    "moments",
    "mspbe",
    "simulate_like",
]
