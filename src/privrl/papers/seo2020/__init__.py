"""Seo and Yang (2020), "Differentially Private Actor and Its Eligibility Trace".

    ActorCritic(variant="actor", epsilon=10.0).learn("MDP-100", 500, public=True).claim

Read in this order:

1. `algorithm`: Algorithms 1 to 4 in the paper's line order, plain NumPy, with what the paper leaves
   open and where it errs.
2. `learner`: `ActorCritic`, the settings with their defaults, and the paper's claim.
3. The fast version, equal in law: `fast`, a step that draws noise only where it is read;
   `lazy_noise`, the proof; `ranks`, medians without sorting; `dense`, the same compiled with all
   noise drawn; `parts`, what the two share; `program`, many runs at once.
4. `printed`: Tables 1 to 4. `targets`: Tables 2 to 4 and Figures 2 to 5 for `privrl reproduce
   seo2020`, whose rows `trials` makes with `vectorised`, many runs at once in NumPy.
5. `experiments`: the paper's settings, and an attack on the claim; `similarity`: its measure of
   anonymity; `certified`: the learner of `privrl.control` with a certificate, on the same
   environments. docs/control/actor-critic.md says what was reproduced.

`spec` has the options of `privrl train seo2020-actor-critic`, `runner` how it is run.
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.papers.seo2020.learner import ActorCritic
    from privrl.papers.seo2020.program import ActorCriticProgram, ActorCriticRuns, train

__all__ = ["ActorCritic", "ActorCriticProgram", "ActorCriticRuns", "train"]

__getattr__ = lazy(
    __name__,
    {"learner": ("ActorCritic",), "program": ("ActorCriticProgram", "ActorCriticRuns", "train")},
)
