"""GTD2 as a saddle point (Sutton et al. 2009; Liu et al. 2015; the un-noised form of xie2019).

With A, b, C the means over trajectories of `privrl.evaluation.bellman_error`, the point where the
mean squared projected Bellman error is 0 is the saddle of

    L(theta, w) = w' (b - A theta) - w' C w / 2,

approached by, at iteration k and with A_k, b_k, C_k of a random batch of trajectories or of all,

    theta <- theta + alpha_k A_k' w,        w <- w + eta alpha_k (b_k - A_k theta - C_k w)

with the old theta on the right. Steps are constant, alpha_k = alpha, or diminishing,
alpha_k = alpha / (1 + k / decay)^power. With `average`, the mean of the second half of the iterates
is returned: with constant steps and batches the last iterate goes on wandering, its mean does not.

Nothing here is private. The loop is compiled, in 64 bits.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, Policy, Trajectories
from privrl.evaluation.bellman_error import moments, mspbe
from privrl.evaluation.lstd import start_features
from privrl.evaluation.result import NotPrivate, Result
from privrl.evaluation.steps import check_discount, check_in_memory, steps


@dataclass(frozen=True)
class GTD2:
    """Gradient steps to the value function whose projected Bellman error is 0."""

    features: Features
    """Of states; the value is linear in them."""

    gamma: float
    """The discount factor, from 0 to 1."""

    step: float
    """alpha, the first step size of theta."""

    iterations: int
    """How many steps are taken."""

    dual_ratio: float = 1.0
    """eta, the step size of w in units of that of theta."""

    schedule: Literal["constant", "diminishing"] = "constant"
    """Whether alpha stays or goes down as alpha / (1 + k / decay)^power."""

    decay: float = 100.0
    """For "diminishing": after so many iterations the step begins to shrink."""

    power: float = 0.75
    """For "diminishing": above 1/2 and at most 1 for convergence with batches."""

    batch: int | None = None
    """Trajectories per iteration, drawn with replacement; all of them if nothing is said."""

    average: bool = True
    """Whether the second half of the iterates is averaged."""

    seed: int = 0
    """For the batches."""

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        for name in ("step", "dual_ratio", "decay", "power"):
            checks.positive(name, getattr(self, name))
        checks.count("iterations", self.iterations)
        if self.batch is not None:
            checks.count("batch", self.batch)
        checks.choice("schedule", self.schedule, ("constant", "diminishing"))

    def fit(self, data: Trajectories, policy: Policy | None = None, *, start: Any = None) -> Result:
        """The value function of `policy`; `estimate` is its mean over `start` or first states."""
        check_in_memory(data)
        held = moments(data, policy, self.features, self.gamma)
        if self.batch is None:
            theta = self._run(lambda key: (held.A, held.b, held.C), len(held.b))
        else:
            theta = self._run_batched(data, policy, self.batch)
        if not np.all(np.isfinite(theta)):
            raise InputError("The iterates ran away: take a smaller step.")
        m, _ = start_features(self.features, data, start)
        names = ("gamma", "step", "iterations", "dual_ratio", "schedule", "batch", "average")
        return Result(
            method="GTD2",
            promise=NotPrivate(),
            estimate=float(m @ theta),
            weights=theta,
            features=self.features,
            settings={name: getattr(self, name) for name in names},
            diagnostics={"mspbe": mspbe(theta, held)},
        )

    def step_sizes(self) -> Floats:
        """alpha_k for every iteration."""
        k = np.arange(self.iterations)
        if self.schedule == "constant":
            return np.full(self.iterations, self.step)
        return np.asarray(self.step / (1.0 + k / self.decay) ** self.power)

    def _run_batched(self, data: Trajectories, policy: Policy | None, batch: int) -> Floats:
        """A, b, C of a batch are formed from its steps, gathered from the flat columns."""
        import jax
        import jax.numpy as jnp

        at = steps(data, policy, self.features, self.gamma)
        lengths = np.bincount(at.trajectories, minlength=at.num_trajectories)
        begins = np.concatenate([[0], np.cumsum(lengths)[:-1]])
        longest, last = int(lengths.max()), len(at.rewards) - 1

        def sample_moments(key: Any) -> tuple[Any, Any, Any]:
            who = jax.random.randint(key, (batch,), 0, at.num_trajectories)
            offset = jnp.arange(longest)
            rows = jnp.minimum(jnp.asarray(begins)[who][:, None] + offset, last).ravel()
            there = (offset < jnp.asarray(lengths)[who][:, None]).ravel()
            share = jnp.where(there, jnp.asarray(at.shares)[rows], 0.0) / batch
            phi = jnp.asarray(at.phi)[rows]
            weighed = phi * (share * jnp.asarray(at.ratios)[rows])[:, None]
            A = weighed.T @ jnp.asarray(at.direction)[rows]
            return A, weighed.T @ jnp.asarray(at.rewards)[rows], (phi * share[:, None]).T @ phi

        return self._run(sample_moments, self.features.dimension)

    def _run(self, sums: Any, d: int) -> Floats:
        import jax
        import jax.numpy as jnp

        first = self.iterations // 2

        def advance(carry: Any, now: Any) -> tuple[Any, None]:
            theta, w, total = carry
            key, alpha, k = now
            A, b, C = sums(key)
            primal = theta + alpha * (A.T @ w)
            dual = w + self.dual_ratio * alpha * (b - A @ theta - C @ w)
            return (primal, dual, total + jnp.where(k >= first, primal, 0.0)), None

        with jax.enable_x64(True):
            keys = jax.random.split(jax.random.key(self.seed), self.iterations)
            begin = (jnp.zeros(d), jnp.zeros(d), jnp.zeros(d))
            inputs = (keys, jnp.asarray(self.step_sizes()), jnp.arange(self.iterations))
            run = jax.jit(lambda start, xs: jax.lax.scan(advance, start, xs)[0])
            theta, _, total = run(begin, inputs)
            found = total / (self.iterations - first) if self.average else theta
            return np.asarray(found, dtype=np.float64)
