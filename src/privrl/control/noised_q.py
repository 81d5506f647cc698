"""Q-learning with noise in every update: of a linear Q, of a network, under risk, for people.

Transitions (s_i, a_i, r_i, s_i') are fixed. With theta the parameters and theta' the target ones,
which are those after an earlier update, and g_i = 0 where s_i' ended the episode and gamma else,

    delta_i = r_i + g_i max_a Q_theta'(s_i', a) - Q_theta(s_i, a_i)
    X_t     = G(delta, theta) + sigma bound Z_t,        Z_t standard normal, t = 1, ..., T
    theta  <- theta + step X_t / divisor,               or Adam's step, from X_t alone

so that all parameters on the way, and whatever is computed from them, come from X_1, ..., X_T: all
of these may be released. What is noised is G, of which a *rule* (`update_rules`) says how large its
sensitivity can be.

Theorem. Given X_1, ..., X_{t-1}, X_t is a Gaussian whose mean moves by at most `bound` (twice that
for `People`); the composition over t is adaptive. Event: Repeated(Gaussian(sigma bound, bound), T).

Arithmetic: 64-bit floating point, compiled.
"""

import math
import time
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from privrl.control.heads import Head
from privrl.control.kept import kept
from privrl.control.q_specs import DescentSpec
from privrl.control.rollouts import SampledRollout, pool_successors
from privrl.control.update_rules import Data, ProspectUpdates, Rule, Updates, Weights
from privrl.core import resources
from privrl.core.errors import InputError
from privrl.core.progress import StepProgress
from privrl.core.types import Floats
from privrl.nets import adam
from privrl.privacy.mechanisms import gaussian_jax
from privrl.privacy.mechanisms.reward_model import RewardModelMechanism
from privrl.privacy.plan import FullBatches, NoisyPlan
from privrl.privacy.promise import Budget, Relation
from privrl.risk import Prospect

# So many numbers of people's rows are computed at once.
_MAX_NUMBERS = 2**21
_FULL_BATCH = 2**31 - 1
# A piece of a run that shows progress is made twice as long while it takes less, in seconds.
_PIECE_SECONDS = 0.5


# --- a run ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class NoisedQPlan:
    """A run but for its data and its noise: static, so that it can be compiled for."""

    rule: Rule
    updates: int
    step: float
    divisor: float = 1.0
    target_every: int = 1
    """After how many updates the target parameters become the present ones."""

    optimiser: Literal["sgd", "adam"] = "sgd"
    average: float = 0.0
    """Over which last share of the updates parameters are averaged; 0 for the last ones."""

    @property
    def num_averaged(self) -> int:
        """How many last updates are averaged over."""
        return round(self.average * self.updates)


@dataclass(frozen=True)
class Descent(DescentSpec):
    """How a Q is learned by noised updates, but for the noise: for `Weights` and `Updates`."""

    def plan(
        self, release: Literal["weights", "updates"], head: Head, radius: float
    ) -> NoisedQPlan:
        """The run for a secret reward function."""
        rule: Rule
        if release == "weights":
            for name in ("batch", "clip", "slope"):
                if getattr(self, name) is not None:
                    raise InputError("is for release 'updates': leave it out.", field=name)
            rule = Weights(head, radius, self.tau)
        else:
            if self.tau is not None:
                raise InputError("tau is for release 'weights': leave it out.")
            if self.clip is None and self.slope is None:
                raise InputError("Release 'updates' needs a bound: say clip, slope, or both.")
            rule = Updates(head, radius, self.batch or _FULL_BATCH, self.clip, self.slope)
        return self._make_plan(rule)

    def prospect_plan(self, head: Head, prospect: Prospect) -> NoisedQPlan:
        """The run for a secret reward function whose outcomes are weighed."""
        if self.slope is not None:
            raise InputError(
                "slope bounds nothing here, since CPT values are not smooth: leave it out, and say "
                "clip."
            )
        if self.tau is not None:
            raise InputError("tau is for release 'weights': leave it out.")
        if self.clip is None:
            raise InputError("Release 'updates' needs a bound: say clip.")
        return self._make_plan(
            ProspectUpdates(head, prospect, self.batch or _FULL_BATCH, self.clip)
        )

    def _make_plan(self, rule: Rule) -> NoisedQPlan:
        return NoisedQPlan(
            rule,
            self.updates,
            self.step,
            target_every=self.target_every,
            optimiser=self.optimiser,
            average=self.average,
        )

    def to_dict(self) -> dict[str, Any]:
        """The settings in JSON's own types."""
        return asdict(self)


DEFAULT_DESCENTS: dict[str, Descent] = {
    "weights": Descent(),
    "updates": Descent(1000, 0.01, 200, None, 2.0, None, 10, "adam", 0.3),
}
"""What each release takes where nothing was said; found on `Interval` with seeds 0 to 5."""


class NoisedQState(NamedTuple):
    """Where a run stands: released numbers, and a random key, which is secret."""

    parameters: Any
    target: Any
    moments: Any
    """(2, parameters): Adam's; or nothing."""

    total: Any
    """The sum of the parameters over the updates that are averaged."""

    done: Any
    """How many updates there were."""

    noise: Any
    """**Secret**."""


@lru_cache(maxsize=64)
def calibrate_noise(budget: Budget, relation: Relation, plan: NoisedQPlan) -> NoisyPlan:
    """The least noise with which all updates stay within the budget."""
    every = FullBatches(plan.updates)
    return NoisyPlan.from_budget(budget, relation, every, bound=plan.rule.bound)


@kept(0)
def begin(plan: NoisedQPlan, data: Data, key: Any) -> NoisedQState:
    """Before the first update."""
    first = plan.rule.initial_parameters(data)
    return NoisedQState(
        first,
        first,
        jnp.zeros((2, first.size if plan.optimiser == "adam" else 0), first.dtype),
        jnp.zeros_like(first),
        jnp.zeros((), jnp.int32),
        key,
    )


def noised(plan: NoisedQPlan, data: Data, state: NoisedQState, sigma: Any) -> Any:
    """X_t."""
    exact = plan.rule.exact_update(data, state.parameters, state.target, state.done)
    return gaussian_jax.add(
        exact, sigma * plan.rule.bound, jax.random.fold_in(state.noise, state.done)
    )


def apply_update(plan: NoisedQPlan, state: NoisedQState, x: Any) -> NoisedQState:
    """The state after an update; it sees X_t and nothing private."""
    mean, moments = x / plan.divisor, state.moments
    done = state.done + 1
    if plan.optimiser == "adam":
        mean, moments = adam(mean, moments, jnp.asarray(done, mean.dtype))
    parameters = state.parameters + plan.step * mean
    late = state.done >= plan.updates - plan.num_averaged
    return NoisedQState(
        parameters,
        jnp.where(done % plan.target_every == 0, parameters, state.target),
        moments,
        state.total + jnp.where(late, parameters, 0.0),
        done,
        state.noise,
    )


@kept(0)
def advance(
    plan: NoisedQPlan, data: Data, state: NoisedQState, sigma: Any, updates: Any
) -> NoisedQState:
    """So many more updates; runs in pieces equal whole runs bit for bit."""

    def body(carry: Any) -> Any:
        left, now = carry
        return left - 1, apply_update(plan, now, noised(plan, data, now, sigma))

    after: NoisedQState = lax.while_loop(lambda carry: carry[0] > 0, body, (updates, state))[1]
    return after


def run_updates(
    plan: NoisedQPlan,
    data: Data,
    state: NoisedQState,
    noisy: NoisyPlan | None,
    progress: StepProgress | None,
) -> NoisedQState:
    """All updates, without noise if there is no plan for it.

    With `progress`, in pieces of about a second, after each of which it is told.
    """
    sigma = 0.0 if noisy is None else noisy.noise_multiplier
    done, size = 0, plan.updates if progress is None else 1
    while done < plan.updates:
        size = min(size, plan.updates - done)
        begun = time.monotonic()
        state = advance(plan, data, state, sigma, size)
        state.done.block_until_ready()
        done += size
        if progress is not None:
            progress(done, plan.updates)
            if time.monotonic() - begun < _PIECE_SECONDS:
                size *= 2
    return state


def check_memory(plan: NoisedQPlan, data: Data, remedy: str, *, told: bool) -> None:
    """Compile the run before anybody pays; `told` if its size follows from public numbers."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    state = jax.eval_shape(partial(begin, plan), data, key)
    given = (plan, data, state, 1.0, 1)
    resources.precompile(advance, *given, what="Such a run", remedy=remedy, told=told)


def final_parameters(plan: NoisedQPlan, data: Data, state: NoisedQState) -> Floats:
    """The parameters of the head, averaged if asked for."""
    parameters = state.parameters
    if plan.num_averaged and int(state.done) == plan.updates:
        parameters = state.total / plan.num_averaged
    return np.asarray(plan.rule.theta(data, parameters), np.float64)


# --- data -----------------------------------------------------------------------------------------


def clip_rewards(reward: Any, reward_range: tuple[float, float]) -> Floats:
    """Rewards as numbers of the range, whatever they were; no two get further apart, if finite."""
    r = np.asarray(reward, np.float64)
    return np.asarray(np.clip(np.where(np.isfinite(r), r, 0.0), *reward_range))


def transitions(
    head: Head,
    observation: Any,
    action: Any,
    reward: Any,
    after: Any,
    goes_on: Any,
    reward_range: tuple[float, float],
    *,
    orthonormal: bool,
) -> Data:
    """A rollout's transitions, rewards made total as the reward model does.

    `orthonormal` for the rule `Weights`: the features of (s_i, a_i) are made so.
    """
    r = clip_rewards(reward, reward_range)
    # Not `jnp.asarray`, which compiles a program for each shape and type.
    columns = np.asarray(action, np.int32), np.asarray(after), np.asarray(goes_on, float), r
    data = Data(*map(jax.device_put, (np.asarray(observation), *columns)))
    if not orthonormal:
        return data
    features: Any = head.spec
    phi = np.asarray(features(np.asarray(observation)), np.float64)
    taken = np.asarray(action)[:, None] == np.arange(head.outputs)
    # Parameters are (d, A) in rows, so features of a pair are (d, A) too.
    rows = (phi[:, :, None] * taken[:, None, :]).reshape(len(phi), -1)
    plan = RewardModelMechanism(1.0, 1.0, np.arange(float(len(rows))), lambda _: rows)
    return data._replace(
        contraction=jnp.asarray(plan.matrix, float), transform=jnp.asarray(plan.transform, float)
    )


def sampled_transitions(
    rollout: SampledRollout, gamma: float, reward_range: tuple[float, float]
) -> Data:
    """A rollout's transitions with their successors, rewards made total; for `ProspectUpdates`.

    Discrete states are pooled after that.
    """
    rollout = replace(rollout, paid=clip_rewards(rollout.paid, reward_range))
    if rollout.led.ndim == 2:
        rollout = pool_successors(rollout)
    return Data(
        jnp.asarray(rollout.observation),
        jnp.asarray(rollout.action, jnp.int32),
        jnp.asarray(rollout.led),
        jnp.asarray(np.where(rollout.ends, 0.0, gamma), float),
        jnp.asarray(rollout.paid, float),
        row=jnp.asarray(rollout.row, jnp.int32),
        probs=None if rollout.unequal_probs is None else jnp.asarray(rollout.probs, float),
    )


def people_transitions(
    head: Head,
    observation: Any,
    action: Any,
    reward: Any,
    after: Any,
    goes_on: Any,
    person: Any,
) -> Data:
    """People's transitions, packed in parts: nobody's are in two of them.

    A part has as many rows as memory allows, or as the person with most rows has.
    """
    columns = [np.asarray(x) for x in (observation, action, after, goes_on, reward)]
    owner = np.asarray(person)
    order = np.argsort(owner, kind="stable")
    counts = np.unique(owner, return_counts=True)[1]
    width = max(math.prod(head.shape), 1)
    most = max(_MAX_NUMBERS // width, int(counts.max(initial=1)))
    # The part of each person, and their number in it: a part is full when the next has no room.
    parts, numbers, part, rows, number = [], [], 0, 0, 0
    for count in counts.tolist():
        if rows + count > most:
            part, rows, number = part + 1, 0, 0
        parts.append(part)
        numbers.append(number)
        rows, number = rows + count, number + 1
    part_of, number_of = np.array(parts, int), np.array(numbers, int)
    size = int(number_of.max(initial=0)) + 1
    of_row = np.repeat(part_of, counts)
    place = np.arange(len(order)) - np.searchsorted(of_row, of_row)
    length = int(place.max(initial=0)) + 1

    def pack(values: Any, empty: Any, dtype: Any) -> Any:
        made = np.full((part + 1, length, *values.shape[1:]), empty, dtype)
        made[of_row, place] = values
        return jnp.asarray(made)

    kind = np.int32 if columns[0].dtype.kind in "iu" else np.float64
    seen, acted, then, going, paid = (column[order] for column in columns)
    return Data(
        pack(seen, 0, kind),
        pack(acted, -1, np.int32),
        pack(then, 0, kind),
        pack(going, 0.0, np.float64),
        pack(paid, 0.0, np.float64),
        pack(np.repeat(number_of, counts), size, np.int32),
        pack(np.repeat(1.0 / np.maximum(counts, 1), counts), 0.0, np.float64),
        jnp.zeros((part + 1, size, 0)),
    )
