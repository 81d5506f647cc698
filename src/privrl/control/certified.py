"""The certified actor-critic, a batch of people at a time: noised sums, and nothing else, go on.

People are numbered 1, ..., N and fill public slots: person i is in batch ceil(i / B). All B people
of batch k act by the policy released after batch k - 1. With row_i the contribution of person i
(`increments`: L2 norm at most 1, in units of the clip bound C),

    X_k   =  sum over the batch of row_i  +  sigma Z_k
    u    <-  u + actor_step  s_k C X_k[actor]  / B
    v    <-  v + critic_step s_k C X_k[critic] / (B critic_weight)

where s_k is 1, or falls to 0 by a public schedule; with Adam the two means drive its moments
instead. Z_k is standard normal, independent from batch to batch, or correlated such that the noise
of the running sums partly cancels (`mechanisms.correlated`). An empty slot contributes zeros; the
last batch may have some, and is divided by B all the same. With a prospect, further coordinates of
X_k count the returns of the batch; a running estimate q of how returns are distributed is made of
them, and says what returns are worth in batch k + 1 (`prospect_rows`).

**Theorem.** Unit: one person with one episode in one public slot. Relation: replace-one; N and B
are public. All X_k together, hence all parameters and all estimates q after all batches and
whatever is computed from them, are one Gaussian with sensitivity 2 in units of C: the event
`Disjoint(Gaussian(sigma, 1))` with independent noise, and `Gaussian(sigma, S)` with correlated
noise, where S is the sensitivity of the whole public horizon ceil(N / B).

*Proof.* Exchange person i of batch k. Batches before k are as they were. Given what they released,
the sum of batch k moves by at most 2, because row_i is a function of i's own episode and of
released parameters and estimates, of norm at most 1. That the episode is itself drawn by chance,
with another law in the other world, only mixes such pairs of sums, and divergences are jointly
convex: a mixture is no easier to tell apart than the worst pair in it. Later batches read what was
released and other people's episodes only, so given the releases their laws are the same in both
worlds. That is adaptive parallel composition; for correlated noise it is the theorem of
`mechanisms.correlated` with one participation.

What it rests on, each thing enforced by what stands where: everything carried from batch to batch
(u, v, the moments of Adam, the sum for the average, q) is a function of X_1, ..., X_k, since
`ActorCriticState` holds nothing else; advantages use the released critic, never one that was fitted
to the batch, and are not normalised over the batch; returns are valued by the q of the batches
before, never by ranks or probabilities within the batch; slots and B are fixed before the run. What
the code cannot see is listed in the certificate: that each person fills one slot, and that the
environment does not carry one person's episode into another's.

A person sees their own actions, which were drawn for them by a policy that others taught: towards
everybody else they are protected by the figures, towards themselves nobody needs to be. This is
joint (billboard) privacy: the release is the parameters, and not the actions.

What a run shows on its way is public too: how many people are done. An environment of Gymnasium's
that fails, warns, or gives what is no observation or no reward would tell about the person with
whom it did: such an episode counts as an empty slot, in silence (`play_on_host`). How long a batch
takes is not hidden: it ends with its longest episode.

Arithmetic: 64-bit floating point, compiled. Three random streams: of the environment and of actions
(both drawn from `world`), and of the noise.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from privrl.control.increments import Rows
from privrl.control.kept import kept
from privrl.core.errors import InputError
from privrl.core.silence import silence
from privrl.core.types import Floats
from privrl.data import Policy
from privrl.data.policies import choose
from privrl.envs.base import Carry, Environment, Episodes, Transitions, begin
from privrl.envs.host import HostEnvironment
from privrl.nets import adam
from privrl.privacy.mechanisms import correlated_jax, gaussian_jax
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism, Strategy
from privrl.privacy.plan import DisjointBatches, NoisyPlan
from privrl.privacy.promise import Budget, Relation

SWEEPABLE = ("actor_step", "critic_step", "clip", "sigma", "gamma", "lambda_", "critic_weight")
"""The numbers of a run, which need no compiling anew."""

# So many 64-bit numbers of a batch are held at once; larger batches are summed in parts.
_MAX_NUMBERS = 2**22
# So many steps are played between two looks at whether anybody is left.
_BLOCK = 32
_REPLICAS = "replicas"


Noise = Literal["none", "independent", "correlated", "optimal"]
# Noise whose running sum is what the event covers.
CORRELATED_STRATEGIES = {"correlated": Strategy.SQUARE_ROOT_TOEPLITZ, "optimal": Strategy.OPTIMAL}


@lru_cache(maxsize=64)
def calibrate_noise(budget: Budget, horizon: int, noise: str) -> NoisyPlan | CorrelatedMechanism:
    """The least noise, in units of C, that stays within the budget.

    With independent noise a person is in one batch of all.
    """
    if noise not in CORRELATED_STRATEGIES:
        return NoisyPlan.from_budget(budget, Relation.REPLACE_ONE, DisjointBatches())
    return CorrelatedMechanism.from_budget(
        1.0, budget, horizon=horizon, strategy=CORRELATED_STRATEGIES[noise]
    )


class ActorCriticState(NamedTuple):
    """Where a run stands: released numbers, and random keys, which are secret."""

    actor: Any
    critic: Any
    moments: Any
    """(2, parameters): Adam's; or nothing."""

    total: Any
    """The sum of the parameters over the batches that are averaged; or nothing."""

    batch: Any
    """How many batches are done."""

    world: Any
    """Stream of the environment and of actions."""

    noise: Any
    """Stream of independent noise, or where the correlated noise stands; **secret**."""

    settings: dict[str, Any]
    returns: Any = None
    """q, the running estimate of how returns are distributed, which a prospect needs."""


@dataclass(frozen=True)
class ActorCriticPlan:
    """A run without its numbers: static, so that it can be compiled for."""

    rows: Rows
    people: int
    batch: int
    noise: Noise = "independent"
    optimiser: Literal["sgd", "adam"] = "sgd"
    schedule: Literal["constant", "linear"] = "constant"
    average: float = 0.0

    @property
    def horizon(self) -> int:
        """How many batches there are."""
        return -(-self.people // self.batch)

    @property
    def num_averaged(self) -> int:
        """How many last batches are averaged over; 0 for the last parameters alone."""
        return round(self.average * self.horizon)

    def chunks(self, length: int) -> tuple[int, int]:
        """In how many parts a batch is summed, and how large they are."""
        size = self.rows.dimension + 16 * length
        parts = -(-self.batch * size // _MAX_NUMBERS)
        return parts, -(-self.batch // parts)

    # --- beginning --------------------------------------------------------------------------------

    def begin(
        self,
        world: Any,
        noise: Any,
        settings: Mapping[str, Any],
        critic: Any = None,
    ) -> ActorCriticState:
        """Before the first batch; `critic` are parameters to start from."""
        dtype = jnp.result_type(float)
        actor = jnp.asarray(self.rows.actor.initial_parameters(), dtype)
        first = self.rows.critic.initial_parameters() if critic is None else critic
        size = sum(self.rows.sizes)
        stream = noise
        if self.noise in CORRELATED_STRATEGIES:
            stream = correlated_jax.init(self._stream, noise, self.rows.dimension)
        return ActorCriticState(
            actor,
            jnp.asarray(first, dtype),
            jnp.zeros((2, size if self.optimiser == "adam" else 0), dtype),
            jnp.zeros(size if self.num_averaged else 0, dtype),
            jnp.zeros((), jnp.int32),
            world,
            stream,
            {name: jnp.asarray(value, dtype) for name, value in settings.items()},
            None if self.rows.outlook is None else self.rows.outlook.begin(),
        )

    @cached_property
    def _stream(self) -> CorrelatedMechanism:
        """The noise in units of sigma."""
        return CorrelatedMechanism(1.0, 1.0, self.horizon, CORRELATED_STRATEGIES[self.noise])

    def with_noise_key(self, state: ActorCriticState, key: Any) -> ActorCriticState:
        """The same state with all the noise still to come from another key."""
        if self.noise in CORRELATED_STRATEGIES:
            return state._replace(noise=replace(state.noise, key=key))
        return state._replace(noise=key)

    # --- one batch --------------------------------------------------------------------------------

    def sum_rows(self, state: ActorCriticState, part: Any, first: Any) -> tuple[Any, Any]:
        """The sum of the rows of `part`, whose first slot in the batch is `first`; and the rows'
        returns and lengths. **Private**: never kept, never returned but to be noised."""

        outlook = self.rows.outlook
        worth = None if outlook is None else outlook.marginal_values(state.returns)

        def one(episode: Episodes) -> Any:
            return self.rows.row(state.actor, state.critic, state.settings, episode, worth)

        rows = jax.vmap(one)(part)
        slot = first + jnp.arange(rows.shape[0])
        there = slot < self._batch_size(state.batch)
        total = jnp.sum(jnp.where(there[:, None], rows, 0.0), axis=0)
        rewards = jnp.where(part.valid, part.transitions.reward, 0.0)
        return total, (jnp.sum(rewards, axis=1), jnp.sum(part.valid, axis=1))

    def noised(self, state: ActorCriticState, exact: Any) -> tuple[Any, Any]:
        """X_k, and where the noise stands then."""
        if self.noise == "none":
            return exact, state.noise
        if self.noise == "independent":
            key = jax.random.fold_in(state.noise, state.batch)
            return gaussian_jax.add(exact, state.settings["sigma"], key), state.noise
        stream, z = correlated_jax.next(state.noise)
        return exact + state.settings["sigma"] * z, stream

    def apply_update(self, state: ActorCriticState, noised: Any, stream: Any) -> ActorCriticState:
        """The state after a batch; it sees the noised sum and nothing of the people."""
        p, q = self.rows.sizes
        settings = state.settings
        mean = settings["clip"] * noised[: p + q] / self.batch
        mean = mean.at[p:].divide(settings["critic_weight"])
        step = jnp.concatenate(
            [jnp.full(p, settings["actor_step"]), jnp.full(q, settings["critic_step"])]
        )
        # Counted in 64 bits: of whole numbers in 32 bits, JAX makes fractions in 32 bits.
        done = jnp.asarray(state.batch, noised.dtype)
        if self.schedule == "linear":
            step = step * (1.0 - done / self.horizon)
        moments = state.moments
        if self.optimiser == "adam":
            mean, moments = adam(mean, moments, done + 1.0)
        moved = jnp.concatenate([state.actor, state.critic]) + step * mean
        total = state.total
        if self.num_averaged:
            late = state.batch >= self.horizon - self.num_averaged
            total = total + jnp.where(late, moved, 0.0)
        returns = state.returns
        if self.rows.outlook is not None:
            count = self._batch_size(state.batch)
            returns = self.rows.outlook.update_estimate(returns, noised[p + q :], count, done)
        return ActorCriticState(
            moved[:p],
            moved[p:],
            moments,
            total,
            state.batch + 1,
            state.world,
            stream,
            settings,
            returns,
        )

    def noisy_mean_return(self, noised: Any, batch: Any) -> Any:
        """The mean return of a batch, from its paid coordinates."""
        if self.rows.outlook is not None:
            counts = noised[sum(self.rows.sizes) :]
            return self.rows.outlook.mean(counts, self._batch_size(batch))
        if not self.rows.curve_weight:
            return jnp.nan
        assert self.rows.return_range is not None
        low, high = self.rows.return_range
        score = noised[-1] / (self.rows.curve_weight * self._batch_size(batch))
        return 0.5 * (low + high) + 0.5 * (high - low) * score

    def _batch_size(self, batch: Any) -> Any:
        """How many slots of a batch are filled, which is public."""
        # Of those in this batch and in batches to come; 64 bits hold any number.
        return jnp.minimum(self.batch, self.people - jnp.asarray(batch, int) * self.batch)

    def step(
        self, state: ActorCriticState, batch_of: Callable[[Any], Any], length: int
    ) -> tuple[ActorCriticState, Any]:
        """One batch, whose part number c is `batch_of(c)`: what everybody may see, and what not.

        The second is (paid mean return, (returns, lengths)); the last two are private.
        """
        parts, size = self.chunks(length)

        def add(total: Any, part: Any) -> Any:
            exact, played = self.sum_rows(state, batch_of(part), part * size)
            return total + exact, played

        zeros = jnp.zeros(self.rows.dimension, state.actor.dtype)
        exact, played = lax.scan(add, zeros, jnp.arange(parts))
        noised, stream = self.noised(state, exact)
        returns, lengths = (x.reshape(-1)[: self.batch] for x in played)
        seen = (self.noisy_mean_return(noised, state.batch), (returns, lengths))
        return self.apply_update(state, noised, stream), seen

    def final_parameters(self, state: ActorCriticState) -> tuple[Floats, Floats]:
        """The parameters of the actor and of the critic, averaged if asked for, in 64 bits."""
        p = self.rows.sizes[0]
        if self.num_averaged and int(state.batch) == self.horizon:
            mean = np.asarray(state.total, dtype=np.float64) / self.num_averaged
            return mean[:p], mean[p:]
        return np.asarray(state.actor, np.float64), np.asarray(state.critic, np.float64)


@kept(0)
def begin_one(
    plan: ActorCriticPlan, world: Any, noise: Any, settings: Any, critic: Any = None
) -> ActorCriticState:
    """`ActorCriticPlan.begin`, compiled."""
    return plan.begin(world, noise, settings, critic)


@partial(jax.jit, static_argnums=0)
def begin_replicas(plan: ActorCriticPlan, keys: jax.Array, settings: Any) -> ActorCriticState:
    """The states before the first batch of runs with these keys."""

    def one(key: jax.Array, own: Mapping[str, Any]) -> ActorCriticState:
        world, noise = jax.random.split(key)
        return plan.begin(world, noise, own)

    return jax.vmap(one)(keys, settings)


# --- playing --------------------------------------------------------------------------------------


def play(
    plan: ActorCriticPlan,
    env: Environment[Any, Any],
    state: ActorCriticState,
    length: int,
    part: Any,
    size: int,
) -> Episodes:
    """Part of a batch in a compiled environment, by the released policy.

    Everybody takes `_BLOCK` steps at a time, until the last one in any replica has ended: it is
    mapped over replicas under the name `_REPLICAS`, so that this is one question and not one for
    each.
    """
    blocks = -(-length // _BLOCK)
    steps = blocks * _BLOCK
    base = jax.random.fold_in(state.world, state.batch * plan.chunks(length)[0] + part)
    # All random numbers in one go: each generator in a program takes a while to compile.
    keys = jax.random.split(base, (1 + 2 * steps, size))
    probs = jax.vmap(jax.vmap(env._draw))(keys[1 : 1 + steps])
    drawn = jax.tree.map(
        lambda x: x.reshape(blocks, _BLOCK, *x.shape[1:]), (probs, _uniform(keys[1 + steps :]))
    )

    def one(carry: Any, chosen: Any) -> Any:
        now, alive = carry
        prob, uniform = chosen
        action = choose(jnp, plan.rows.probs(state.actor, now.observation), uniform)
        after = env._advance(prob, now.state, action.astype(jnp.int32), env.default_params)
        row = Transitions(
            now.observation,
            action.astype(jnp.int32),
            after.reward,
            after.observation,
            after.terminated,
            after.truncated,
        )
        on = alive & ~(after.terminated | after.truncated) & (after.state.time < length)
        return (Carry(after.state, after.observation), on), (row, alive)

    def block(number: Any, carry: Any) -> Any:
        """The next steps of everybody: (steps, people)."""
        now = jax.tree.map(lambda x: x[number], drawn)
        return lax.scan(jax.vmap(one), carry, now)

    begun = (jax.vmap(lambda key: begin(env, key))(keys[0]), jnp.ones(size, bool))
    shapes = jax.eval_shape(block, 0, begun)[1]
    empty = jax.tree.map(lambda x: jnp.zeros((blocks, *x.shape), x.dtype), shapes)

    def more(loop: Any) -> Any:
        number, (_, alive), _ = loop
        playing = lax.psum(jnp.any(alive), _REPLICAS)  # type: ignore[no-untyped-call]  # JAX's own
        return (number < blocks) & (playing > 0)

    def go_on(loop: Any) -> Any:
        number, carry, rows = loop
        carry, new = block(number, carry)
        return number + 1, carry, jax.tree.map(lambda a, b: a.at[number].set(b), rows, new)

    rows = lax.while_loop(more, go_on, (jnp.zeros((), jnp.int32), begun, empty))[2]
    return Episodes(
        *jax.tree.map(lambda x: jnp.moveaxis(x.reshape(-1, *x.shape[2:])[:length], 0, 1), rows)
    )


def _uniform(keys: Any) -> Any:
    """Numbers of 53 bits from [0, 1), of the bits that keys are."""
    words = jax.random.key_data(keys).astype(jnp.uint64)
    return ((words[..., 0] << 21) ^ (words[..., 1] >> 11)).astype(float) * 2.0**-53


@kept(0, 1, 2)
def advance(
    plan: ActorCriticPlan,
    env: Environment[Any, Any],
    length: int,
    states: ActorCriticState,
    batches: Any,
) -> tuple[ActorCriticState, Any]:
    """`batches` more batches in every replica, and what was seen of them in (replicas, horizon)
    arrays.

    The number is not known to the compiler, which thus makes the same code of one batch whatever
    the number is: runs in pieces equal whole runs bit for bit, and are compiled once.
    """

    def one(state: ActorCriticState) -> tuple[ActorCriticState, Any]:
        size = plan.chunks(length)[1]
        return plan.step(state, lambda part: play(plan, env, state, length, part, size), length)

    def body(carry: Any) -> Any:
        done, now, seen = carry
        after, new = jax.vmap(one, axis_name=_REPLICAS)(now)
        return done + 1, after, jax.tree.map(lambda a, b: a.at[:, done].set(b), seen, new)

    replicas = states.batch.shape[0]
    returns = jnp.zeros((replicas, plan.horizon, plan.batch))
    empty = jnp.zeros((replicas, plan.horizon)), (returns, returns.astype(int))
    _, states, seen = lax.while_loop(
        lambda carry: carry[0] < batches, body, (jnp.zeros((), jnp.int32), states, empty)
    )
    return states, seen


@partial(jax.jit, static_argnums=(0, 2))
def update_from_batch(
    plan: ActorCriticPlan, state: ActorCriticState, length: int, batch: Episodes
) -> tuple[ActorCriticState, Any]:
    """One batch that was played elsewhere, padded to whole parts."""
    parts, size = plan.chunks(length)
    cut = jax.tree.map(lambda x: jnp.reshape(x, (parts, size, *x.shape[1:])), batch)
    return plan.step(state, lambda part: jax.tree.map(lambda x: x[part], cut), length)


def play_on_host(
    env: HostEnvironment,
    policy: Policy,
    world: NDArray[np.uint32],
    people: range,
    slots: int,
    length: int,
    *,
    private: bool,
) -> Episodes:
    """The episodes of `people`, one after the other, padded to `slots` and to `length`.

    Each person has a random stream of their own, for the environment's reset and for actions. If
    they are `private`, an episode in which anything fails is one of no steps, and warnings are not
    shown: both would tell about the person. Otherwise errors are raised.
    """
    rows: list[list[_Row]] = []
    with silence() if private else nullcontext():
        for person in people:
            try:
                draw = np.random.default_rng([*world.tolist(), person])
                rows.append(_episode(env, policy, draw, length))
            except Exception:  # whatever an environment of the caller's may raise
                if not private:
                    raise
                rows.append([])
    shape, kind = env.observation_form
    valid = np.zeros((slots, length), dtype=bool)
    columns: list[NDArray[Any]] = []
    like = ((shape, kind), ((), int), ((), float), (shape, kind), ((), bool), ((), bool))
    for field, (one, dtype) in enumerate(like):
        column: NDArray[Any] = np.zeros((slots, length, *one), dtype)
        for i, row in enumerate(rows):
            if row:
                column[i, : len(row)] = [step[field] for step in row]
        columns.append(column)
    for i, row in enumerate(rows):
        valid[i, : len(row)] = True
    return Episodes(Transitions(*columns), valid)


def shapes_on_host(plan: ActorCriticPlan, env: HostEnvironment, length: int) -> Episodes:
    """What `play_on_host` gives for a batch, as shapes."""
    slots = math.prod(plan.chunks(length))

    def like(shape: tuple[int, ...], kind: type) -> Any:
        return jax.eval_shape(partial(jnp.zeros, (slots, length, *shape), kind))

    seen, (act, pay, end) = (
        like(*env.observation_form),
        (like((), one) for one in (int, float, bool)),
    )
    return Episodes(Transitions(seen, act, pay, seen, end, end), end)


_Row = tuple[Any, int, float, Any, bool, bool]


def _episode(
    env: HostEnvironment, policy: Policy, draw: np.random.Generator, length: int
) -> list[_Row]:
    """One person's steps."""
    to_array = partial(env.observation_array, *env.observation_form)
    seen, _ = env.env.reset(seed=int(draw.integers(2**31 - 1)))
    observation, rows = to_array(seen), []
    for uniform in draw.random(length):
        probs = policy.probabilities(observation[None])[0]
        action = int(choose(np, probs, np.asarray(uniform)))
        seen, reward, terminated, truncated, _ = env.env.step(env._to_action(action))
        after = to_array(seen)
        rows.append((observation, action, float(reward), after, bool(terminated), False))
        observation = after
        if terminated or truncated:
            break
    return rows


def episode_limit(env: Environment[Any, Any] | HostEnvironment, max_steps: int | None) -> int:
    """How many steps an episode takes at most."""
    limits = [limit for limit in (env.step_limit, max_steps) if limit is not None]
    if not limits:
        raise InputError(f"{env.name} sets no limit to an episode: say max_steps.")
    return min(limits)


def noise_kind(horizon: int, optimiser: str, schedule: str) -> Noise:
    """What "auto" means: correlated noise where running sums are what is used, optimally if it can.

    Their root mean square error is then smaller at every horizon: by a factor of 1.8 for 20
    batches, of 3.2 for 100.
    """
    if optimiser != "sgd" or schedule != "constant" or horizon == 1:
        return "independent"
    return "optimal" if Strategy.best(horizon) is Strategy.OPTIMAL else "correlated"
