"""Learning agents: a file per algorithm.

>>> from privrl.control import QLearning
>>> QLearning(steps=1000).gamma
0.99

`ActorCritic`, `FunctionalQ`, `ProspectQ`, `LoggedQ` and `PGC` are private, with a certificate.
`QLearning` is *not*: it makes policies to evaluate, in simulated environments. JAX loads when an
agent learns.
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.control.actor_critic import ActorCritic, CertifiedProgram
    from privrl.control.functional_q import FunctionalQ
    from privrl.control.heads import Network
    from privrl.control.learned_q import LearnedQ
    from privrl.control.logged_q import LoggedQ
    from privrl.control.noised_q import Descent
    from privrl.control.pgc.learned import LearnedPGC
    from privrl.control.pgc.learner import PGC
    from privrl.control.pgc.program import OneOf
    from privrl.control.prospect_q import ProspectQ
    from privrl.control.q_learning import LearnedQValues, QLearning

_HOMES = {
    "actor_critic": ("ActorCritic", "CertifiedProgram"),
    "functional_q": ("FunctionalQ",),
    "heads": ("Network",),
    "learned_q": ("LearnedQ",),
    "logged_q": ("LoggedQ",),
    "noised_q": ("Descent",),
    "pgc.learned": ("LearnedPGC",),
    "pgc.learner": ("PGC",),
    "pgc.program": ("OneOf",),
    "prospect_q": ("ProspectQ",),
    "q_learning": ("LearnedQValues", "QLearning"),
}

__all__ = [
    "PGC",
    "ActorCritic",
    "CertifiedProgram",
    "Descent",
    "FunctionalQ",
    "LearnedPGC",
    "LearnedQ",
    "LearnedQValues",
    "LoggedQ",
    "Network",
    "OneOf",
    "ProspectQ",
    "QLearning",
]


__getattr__ = lazy(__name__, _HOMES)
