"""Learning agents: a file per algorithm.

>>> from tacit.control import QLearning
>>> QLearning(steps=1000).gamma
0.99

`ActorCritic`, `FunctionalQ`, `ProspectQ` and `PGC` are private, with a certificate or as a paper
has it. `QLearning` is *not*: it makes policies to evaluate, in simulated environments. JAX loads
when an agent learns.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.control.actor_critic import ActorCritic, CertifiedProgram
    from tacit.control.functional_q import FunctionalQ
    from tacit.control.increments import Network
    from tacit.control.learned_q import LearnedQ
    from tacit.control.logged_q import LoggedQ
    from tacit.control.noised_q import Descent
    from tacit.control.pgc import PGC, LearnedPGC
    from tacit.control.pgc_program import OneOf
    from tacit.control.prospect_q import ProspectQ
    from tacit.control.q_learning import Learned, QLearning

_HOMES = {
    "actor_critic": ("ActorCritic", "CertifiedProgram"),
    "functional_q": ("FunctionalQ",),
    "increments": ("Network",),
    "learned_q": ("LearnedQ",),
    "logged_q": ("LoggedQ",),
    "noised_q": ("Descent",),
    "pgc": ("PGC", "LearnedPGC"),
    "pgc_program": ("OneOf",),
    "prospect_q": ("ProspectQ",),
    "q_learning": ("Learned", "QLearning"),
}

__all__ = [
    "PGC",
    "ActorCritic",
    "CertifiedProgram",
    "Descent",
    "FunctionalQ",
    "Learned",
    "LearnedPGC",
    "LearnedQ",
    "LoggedQ",
    "Network",
    "OneOf",
    "ProspectQ",
    "QLearning",
]


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"tacit.control.{home}"), name)
    raise AttributeError(f"module 'tacit.control' has no attribute {name!r}")
