"""GPOPE with the noise of the paper: the fast version of `privrl.papers.xie2019.algorithm`.

The estimator is the certified one, `privrl.evaluation.GPOPE`: compiled, one trajectory a step. Only
sigma differs: it is given, or the least with which Lemma 1 claims the budget. The result has the
paper's Claim, and beside it the certificate of what ran. Lemma 1 drops all orders above the second
and takes the distance between two clipped gradients to be h, where it is 2h; see
`privrl.privacy.claims`.
"""

import math
from dataclasses import dataclass, replace

from privrl.core import checks
from privrl.evaluation import gpope as certified
from privrl.evaluation.result import Promise
from privrl.privacy.certificate import Certificate
from privrl.privacy.claims import xie2019_lemma1
from privrl.privacy.plan import NoisyPlan, SingleSamples
from privrl.privacy.promise import Budget


@dataclass(frozen=True)
class GPOPE(certified.GPOPE):
    """Algorithm 1 as printed; `budget` is what Lemma 1 claims."""

    sigma: float | None = None
    """The noise, in units of h; by default what Lemma 1 asks for to claim the budget."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is not None:
            checks.positive("sigma", self.sigma)

    def noise(self, count: int) -> NoisyPlan:
        times = self.iterations or count
        sigma = self.sigma or lemma1_sigma(self.budget, count, times)
        return NoisyPlan(sigma, SingleSamples(count, times))

    def _promise(self, certificate: Certificate, noisy: NoisyPlan, count: int) -> Promise:
        times, sigma = self.iterations or count, noisy.noise_multiplier
        return replace(
            xie2019_lemma1(sigma, count, times, self.budget.delta), certified=certificate
        )


def lemma1_sigma(budget: Budget, trajectories: int, iterations: int) -> float:
    """The least sigma for which Lemma 1 claims the budget, in closed form.

    With x = e^(1/sigma^2), it claims p + 2 sqrt(p log(1/delta)) for
    p = N min(4 (x - 1), 2 x) / (2 m^2); of the two the first is smaller for x < 2.
    """
    log = -math.log(budget.delta)
    root = budget.epsilon / (math.sqrt(log + budget.epsilon) + math.sqrt(log))
    term = 2.0 * trajectories**2 * root**2 / iterations
    return 1.0 / math.sqrt(math.log1p(term / 4.0) if term < 4.0 else math.log(term / 2.0))
