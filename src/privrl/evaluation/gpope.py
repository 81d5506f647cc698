"""GPOPE, gradient perturbed off-policy evaluation (xie2019), with certified noise.

From theta_1 = w_1 = 0, for i = 1, ..., N, draw one of the m trajectories uniformly, take its A^,
b^, C^ (`bellman_error.unit_moments`: each averaged over the trajectory's steps, equation 2.2), and

    B_i  =  [-A^' w_i ;  A^ theta_i + C^ w_i - b^]                             (4.1)
    B~_i =  B_i / max(1, ||B_i||_2 / h)  +  h N(0, sigma^2 I)
    (theta_{i+1}, w_{i+1})  =  (theta_i, w_i) - beta_i B~_i

with beta_i = step ("constant") or step / i ("diminishing"). Released: theta_{N+1}, as the paper
does; or, with `average`, the mean of the last such share of the iterates, which costs nothing.

Unit: a trajectory, or a person with all of theirs, averaged; then one of m people is drawn.
Relation: replace-one; m is public. Sensitivity: given the draw, the clipped gradient is anywhere in
a ball of radius h, and so is that of whoever else is drawn, so the two laws are 2h apart. Theorem:
an iteration is the event FixedSizeSampled(Gaussian(sigma, 1), m, 1) (in units of h; the draws are
fresh and secret), the N of them compose adaptively.

sigma is the least with which N such events stay within the budget; with the paper's own, and its
claim, it is `privrl.papers.xie2019.GPOPE`.

Departures from the paper: the noise; contributions that are not finite count as zeros, and ratios
may be capped. The last two change nothing where the paper's algorithm is defined. Arithmetic:
64-bit floating point, compiled; draws are uniform up to m 2^-64.

Time is not protected: every step takes as long as the unit with the most entries needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import sparse

from privrl.core import checks
from privrl.core.types import Floats
from privrl.data import Features, Policy
from privrl.data.assumptions import data_assumptions
from privrl.evaluation.assumptions import CLIPPED, PUBLIC_SETTINGS, SECRET_DRAWS
from privrl.evaluation.bellman_error import (
    UnitMoments,
    check_reward_range,
    moments,
    mspbe,
    unit_moments,
    value_at,
)
from privrl.evaluation.result import Promise, Result
from privrl.evaluation.steps import Data, check_discount
from privrl.privacy.certificate import Assumption, Certificate
from privrl.privacy.events import Event
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.noise import Source
from privrl.privacy.plan import NoisyPlan, SingleSamples
from privrl.privacy.promise import Budget, Relation, Release, Unit, check_gaussian_budget
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession


@dataclass(frozen=True)
class GPOPE:
    """A value function, linear in `features`, from one trajectory at a time; see the module."""

    features: Features
    """Of states; the value is linear in them."""

    budget: Budget
    """The privacy budget; delta above 0."""

    clip: float
    """h, the largest norm of a gradient."""

    step: float
    """beta, the step size, or the first of them."""

    gamma: float = 0.99
    """The discount factor, from 0 to 1."""

    iterations: int | None = None
    """N; by default as many as there are trajectories."""

    schedule: Literal["constant", "diminishing"] = "constant"
    """beta_i = step, or step / i."""

    weight_cap: float | None = None
    """The largest importance ratio that counts, if any; clipping makes do without."""

    average: float = 0.0
    """Over which last share of the iterates to average; 0 for the last alone, as in the paper."""

    beside: tuple[Event, ...] = field(default=(), kw_only=True)
    """What else the budget pays for: the noise is the least with which all of it fits."""

    @classmethod
    def from_range(
        cls, features: Features, reward_range: tuple[float, float], budget: Budget, **more: Any
    ) -> "GPOPE":
        """One with h, beta and `average` from public numbers alone, for features of norm F and
        rewards of size R: h = F R / 10, beta = 0.3 / F^2, the mean of the last half."""
        norm, largest = (
            features.norm_bound,
            max(abs(end) for end in check_reward_range(reward_range)),
        )
        given = {"clip": 0.1 * norm * largest, "step": 0.3 / norm**2, "average": 0.5}
        return cls(features, budget, **(given | more))

    def __post_init__(self) -> None:
        check_discount(self.gamma)
        checks.positive("clip", self.clip)
        checks.positive("step", self.step)
        if self.iterations is not None:
            checks.count("iterations", self.iterations)
        checks.choice("schedule", self.schedule, ("constant", "diminishing"))
        if self.weight_cap is not None:
            checks.positive("weight_cap", self.weight_cap)
        checks.share("average", self.average)
        check_gaussian_budget(self.budget)

    def fit(
        self,
        data: Data,
        policy: Policy | None = None,
        *,
        start: Any = None,
        session: PrivacySession = SECRET_SESSION,
    ) -> Result:
        """The value function of `policy`, or of the policy that collected the data."""
        ready, public = self.prepare(data, policy, public=session.public), session.public
        warn_if_large(self.budget.delta, ready.count)
        opened = session.open(ready.unit, Relation.REPLACE_ONE)
        opened.pay(ready.plan.event, delta=self.budget.delta)
        result = ready.result(ready.run_iterations(opened.source), opened, start)
        if not public:
            return result
        assert result.weights is not None
        found = moments(data, policy, self.features, self.gamma)
        return replace(
            result,
            estimate=value_at(self.features, result.weights, start, data, public),
            diagnostics={"mspbe": mspbe(result.weights, found)},
        )

    def prepare(
        self, data: Data, policy: Policy | None = None, *, public: bool = False
    ) -> "PreparedRun":
        """Do all that comes before the payment: read the data, and calibrate the noise."""
        units = self._units(data, policy, certified=not public)
        return PreparedRun(self, self.noise(units.count), units, data_assumptions(data, public))

    def sweep(
        self, data: Data, policy: Policy | None, steps: Sequence[float], seeds: Sequence[int]
    ) -> Floats:
        """Weights (seeds, steps, d) of many runs side by side, on data that is *public*.

        For choosing a step size on simulated data; there is no certificate, nor anything private.
        """
        import jax

        from privrl.privacy.noise import reproducible

        units = self._units(data, policy, certified=False)
        keys = jax.numpy.stack([reproducible(seed).key() for seed in seeds])
        return self._run(units, self.noise(units.count), keys, steps)

    def noise(self, count: int) -> NoisyPlan:
        """That of a run over `count` units, in units of h."""
        return _cached_plan(self.budget, count, self.iterations or count, self.beside)

    def _promise(self, certificate: Certificate, noisy: NoisyPlan, count: int) -> Promise:
        """What the result carries, given the certificate of what ran."""
        return certificate

    def _units(self, data: Data, policy: Policy | None, certified: bool) -> UnitMoments:
        return unit_moments(
            data,
            policy,
            self.features,
            self.gamma,
            cap=self.weight_cap,
            dual=True,
            certified=certified,
        )

    def _run(
        self, units: UnitMoments, noisy: NoisyPlan, keys: Any, steps: Sequence[float]
    ) -> Floats:
        import jax

        times = self.iterations or units.count
        averaged = max(1, round(self.average * times))
        with jax.enable_x64(True):
            packed = _PackedUnits.of(units)
            program = _program(
                packed.widths, self.clip, times, averaged, self.schedule == "diminishing"
            )
            arrays = jax.tree.map(jax.numpy.asarray, packed.arrays)
            found = program(arrays, keys, jax.numpy.asarray(list(steps)), self.clip * noisy.std)
            return np.asarray(found, dtype=np.float64)


@lru_cache(maxsize=64)
def _cached_plan(budget: Budget, units: int, times: int, beside: tuple[Event, ...]) -> NoisyPlan:
    # A part in 10^4 more noise than needed is not seen, and each evaluation takes a while.
    schedule = SingleSamples(units, times)
    return NoisyPlan.from_budget(
        budget, Relation.REPLACE_ONE, schedule, beside=beside, tolerance=1e-4
    )


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run before its payment, which holds all that it needs of the data."""

    judge: GPOPE
    plan: NoisyPlan
    units: UnitMoments
    """Private."""

    assumptions: tuple[Assumption, ...]

    @property
    def unit(self) -> Unit:
        """Who is drawn."""
        return self.units.unit

    @property
    def count(self) -> int:
        """How many there are; public under replace-one."""
        return self.units.count

    def try_iterations(self) -> None:
        """Compile and run on a fixed key, for nobody to see: what memory lacks, it lacks here."""
        import jax

        self._weights(jax.random.key(0, impl="threefry2x32"))

    def run_iterations(self, source: Source) -> Floats:
        """theta: only after the payment."""
        return self._weights(source.key())

    def _weights(self, key: Any) -> Floats:
        found = self.judge._run(self.units, self.plan, key[None], [self.judge.step])
        return np.asarray(found[0, 0])

    def result(self, theta: Floats, opened: OpenSession, start: Any = None) -> Result:
        """What is told of a run that came to `theta`; `opened` has paid for it."""
        judge, noisy, count = self.judge, self.plan, self.count
        certificate = opened.certify(
            judge.budget.delta,
            release=Release.EVERY_ITERATE,
            assumptions=(CLIPPED, PUBLIC_SETTINGS, SECRET_DRAWS, *self.assumptions),
            compiled=True,
        )
        return Result(
            method="GPOPE",
            promise=judge._promise(certificate, noisy, count),
            estimate=value_at(judge.features, theta, start),
            weights=theta,
            features=judge.features,
            settings={
                "gamma": judge.gamma,
                "units": count,
                "iterations": judge.iterations or count,
                "clip": judge.clip,
                "step": judge.step,
                "schedule": judge.schedule,
                "sigma": noisy.noise_multiplier,
                "average": judge.average,
                "weight_cap": judge.weight_cap,
            },
        )


# --- compiled ------------------------------------------------------------------------------------


class _Entries(NamedTuple):
    """Stacked matrices as entries, those of unit i from starts[i] on."""

    values: Any
    rows: Any
    columns: Any
    starts: Any
    counts: Any


@dataclass(frozen=True)
class _PackedUnits:
    """Units in arrays of a few different sizes only, so that other data needs no new program."""

    arrays: tuple[_Entries, _Entries, Any]
    widths: tuple[int, int]

    @classmethod
    def of(cls, units: UnitMoments) -> "_PackedUnits":
        A, C = _to_entries(units.A, units), _to_entries(units.C, units)
        widths = tuple(_round_up(int(x.counts.max(initial=1))) for x in (A, C))
        padded = [_pad_entries(x, width) for x, width in zip((A, C), widths, strict=True)]
        return cls((padded[0], padded[1], units.b), (widths[0], widths[1]))


def _to_entries(matrices: Any, units: UnitMoments) -> _Entries:
    d = units.dimension
    found = sparse.csr_matrix(matrices).tocoo()
    owner = found.row // d
    counts = np.bincount(owner, minlength=units.count)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    return _Entries(
        found.data, (found.row % d).astype(np.int32), found.col.astype(np.int32), starts, counts
    )


def _pad_entries(entries: _Entries, width: int) -> _Entries:
    """With zeros at the end, so that a window of `width` fits behind the last start."""
    more = _round_up(entries.values.size + width) - entries.values.size
    values, rows, columns = (np.pad(x, (0, more)) for x in entries[:3])
    return _Entries(values, rows, columns, entries.starts, entries.counts)


def _round_up(size: int) -> int:
    """Up to an eighth more, or to 64, such that few different sizes occur."""
    unit = 1 << max(6, size.bit_length() - 4)
    return -(-size // unit) * unit


def gradient(arrays: Any, widths: tuple[int, int], unit: Any, state: Any) -> Any:
    """B_i of (4.1), of one unit's data and of (theta, w) alone."""
    import jax.numpy as jnp

    A, C, b = arrays
    theta, w = jnp.split(state, 2)
    a, i, j = _window(A, unit, widths[0])
    c, k, m = _window(C, unit, widths[1])
    zero = jnp.zeros_like(theta)
    primal = zero.at[j].add(-a * w[i])
    dual = zero.at[i].add(a * theta[j]).at[k].add(c * w[m]) - b[unit]
    return jnp.concatenate([primal, dual])


def _window(entries: _Entries, unit: Any, width: int) -> tuple[Any, Any, Any]:
    """The entries of a unit's matrix, with zeros behind them."""
    import jax.numpy as jnp
    from jax import lax

    begin = entries.starts[unit]
    values, rows, columns = (lax.dynamic_slice(x, (begin,), (width,)) for x in entries[:3])
    return jnp.where(jnp.arange(width) < entries.counts[unit], values, 0.0), rows, columns


@lru_cache(maxsize=16)
def _program(
    widths: tuple[int, int], bound: float, times: int, averaged: int, diminishing: bool
) -> Any:
    """(arrays, keys, steps, std) -> weights (keys, steps, d), compiled."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    from privrl.privacy.mechanisms import clip, gaussian_jax

    def run(arrays: Any, key: Any, step: Any, std: Any) -> Any:
        count, d = arrays[2].shape
        draws, noises = jax.random.split(key)

        def iteration(carry: Any, i: Any) -> Any:
            state, total = carry
            unit = jax.random.randint(jax.random.fold_in(draws, i), (), 0, count, dtype=jnp.int64)
            exact = clip.l2(gradient(arrays, widths, unit, state), bound)
            noised = gaussian_jax.add(exact, std, jax.random.fold_in(noises, i))
            beta = step / (i + 1.0) if diminishing else step
            state = state - beta * noised
            total = total + jnp.where(i >= times - averaged, state[:d], 0.0)
            return (state, total), None

        begin = jnp.zeros(2 * d), jnp.zeros(d)
        (_, total), _ = lax.scan(iteration, begin, jnp.arange(times))
        return total / averaged

    over_steps = jax.vmap(run, (None, None, 0, None))
    return jax.jit(jax.vmap(over_steps, (None, 0, None, None)))
