"""Actor-critic with eligibility traces (after seo2020), certified.

    ActorCritic(budget=Budget(10.0, 1e-6)).learn("Taxi-v4", people=500).policy

Plays people in batches and releases noised sums only: `privrl.control.certified` has the algorithm,
the theorem and its proof, `privrl.control.increments` what one person adds. Released: all the
parameters on the way; a certificate comes with them. Learning curves look at returns, so there is
one only if the people are declared `public`, or if it was *paid* for: `curve="paid"` gives each
person's return a coordinate of its own in the clipped row, which costs no budget and a little
signal.

With a `prospect` it is not the mean return that is maximised but its CPT value over people: what
somebody prefers who overweighs small probabilities and minds losses more than gains
(`privrl.control.prospect_rows`). How returns are distributed is then paid for in the same way, and
released.

    ActorCritic(budget=Budget(10.0, 1e-6), prospect=Prospect.tversky_kahneman(),
                return_range=(0.0, 20.0)).learn(env, people=20_000).prospect_value

Variants hide outputs and change nothing else: "both" gives the actor and the critic, "actor" and
"critic" one of them, at the same cost. "none" adds no noise, and says that it is not private.

Departures from the paper, whose own algorithms are in `privrl.papers.seo2020`: whole episodes
instead of single steps, one clip for the actor and the critic together instead of normalised
gradients, sampled softmax actions, so that no importance ratios and no second weights of
GTD(lambda) are needed, and noise for a promise about people instead of steps.

`spec` has the settings, `learner` how a run is paid for and resumed, `program` the compiled run,
`start` a critic to start from, `result` what was learned.
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.control.actor_critic.learner import ActorCritic
    from privrl.control.actor_critic.program import CertifiedProgram
    from privrl.control.actor_critic.result import (
        NOT_PRIVATE,
        LearnedActorCritic,
        ReturnDistribution,
    )
    from privrl.control.engine import Diverged

__all__ = [
    "NOT_PRIVATE",
    "ActorCritic",
    "CertifiedProgram",
    "Diverged",
    "LearnedActorCritic",
    "ReturnDistribution",
]

__getattr__ = lazy(
    __name__,
    {
        "learner": ("ActorCritic",),
        "program": ("CertifiedProgram",),
        "result": ("Diverged", "NOT_PRIVATE", "LearnedActorCritic", "ReturnDistribution"),
    },
)
