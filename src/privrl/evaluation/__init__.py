"""Policy evaluation: a file per estimator, one interface `fit(data, policy) -> Result`.

Without privacy: `LSTD`, `WISLSTD`, `GTD2`, and for a policy's value `IS`, `PDIS`, `WIS`, `WPDIS`,
`DR`, `WDR`, `FQE`. With a certificate: `PrivateValue`, which is the number most people ask for,
`PrivateGTD` and `PrivateLSTD` for value functions, `GPOPE` (xie2019), `DPLSW` and `DPLSL` (Balle et
al. 2016) with certified noise; with their own they are in `privrl.papers.xie2019`.
"""

from privrl.evaluation.bellman_error import moments, mspbe
from privrl.evaluation.doubly_robust import DR, WDR
from privrl.evaluation.dplsl import DPLSL
from privrl.evaluation.dplsw import DPLSW
from privrl.evaluation.fqe import FQE
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.gtd2 import GTD2
from privrl.evaluation.importance import IS, PDIS, WIS, WPDIS
from privrl.evaluation.lstd import LSTD, WISLSTD
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.evaluation.private_value import PrivateValue
from privrl.evaluation.result import Interval, NotPrivate, Result
from privrl.evaluation.selection import choose
from privrl.evaluation.simulate import Schema, simulate_like

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
