"""Many agents who play at once and report when they are done, compiled: trials side by side.

A *replica* is one run of private gradient collection (Ono and Takahashi 2020): an aggregator, and
`flight` agents who play with copies of its model. Each takes a step per tick. Whose episode is over
reports a randomised gradient and leaves; the next agent takes the place, draws dynamics of its own,
and gets the model as it is then. Nobody waits for anybody: while an agent plays, the others'
reports move the model, and its own is about an old one when it comes.

With `timing` "open" that is all. With "fixed" agents come in rounds of `flight`. Who is done early
keeps the report until all are, and then they report, in the order of their places, before anybody
gets a new model. So how long somebody played decides nothing: not the order in which reports are
counted, not which model the next agent gets, and not how old a report's model is.

Ticks come in blocks of `block`. A place whose episode ends within a block stands idle to its end,
on average (block - 1) / 2 ticks for each episode, and none for one of a multiple of `block` steps.
Then those who are done report in the order of their places, each to its own replica. Reports are
made for those only who have something to report, a few at a time.

    gradient  ->  row: finite, of unit length if asked for   (`control.pgc.privatiser`)
    row       ->  report, with noise from the agent's own key (`privacy.mechanisms.*_jax`, 64 bits)
    report    ->  sum, and a new model when there are enough  (`control.pgc.aggregator.apply`)

Episodes and their gradients are in 32 bits unless `dtype` says otherwise; nothing is proved of
them. Rows, reports and models are in 64.

**What this is.** A simulation, in which one program knows all agents' episodes. Scores are recorded
for all of them, and are not private. Reports have the law that their plans say, so that what the
aggregator knows, the models included, is epsilon-DP for each agent if keys and scores are kept to
oneself; with open timing also who was done when.

Replicas are grouped in *arms*, which differ in how agents report: with C arms, of L replicas the
first L / C belong to the first. Everything else by which replicas may differ is a number among the
settings: those of the loss (`losses`), "rate" and "buffer" of the aggregator, and "decay": of N
agents in all, after n reports the rate is rate (1 - n / N)^decay. What happens in a replica depends
on its own key and settings only, not on the replicas beside it.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import groupby
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from privrl.control.kept import kept
from privrl.control.pgc import aggregator
from privrl.control.pgc.losses import (
    Loss,
    Model,
    Steps,
    Weights,
    epsilon_greedy,
    explore_uniformly,
    initial_sums,
    sample_action,
    softmax,
)
from privrl.control.pgc.program_state import Aggregators, CollectionState, Slots
from privrl.control.pgc.reports import Arm, Group
from privrl.control.pgc.spec import Acting, Optimiser, Staleness, Timing
from privrl.control.program import drop_weak_types
from privrl.control.replicas import run_in_parts
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs.base import Environment

Dynamics = Callable[[jax.Array], Any]
"""`dynamics(key)` gives the parameters of one agent's environment; pure, and hashable."""

# What is seen of up to so many reports is kept in arrays of one size.
_COLUMNS = 2**17
# So many reports are made at once.
_CHUNK = 32
# The paper's exploration: 1/2 at first, and 0 after 900 submissions.
_EXPLORE, _EXPLORE_FOR = 0.5, 900.0


@dataclass(frozen=True)
class OneOf:
    """Dynamics in which one parameter is one of some values, each equally often."""

    env: Environment[Any, Any]
    name: str
    values: tuple[float, ...]

    def __post_init__(self) -> None:
        if not isinstance(self.env, Environment):
            raise InputError(
                f"must be an environment of privrl.envs, not {self.env!r}.", field="env"
            )
        known = getattr(self.env.default_params, "_fields", ())
        if self.name not in known:
            others = f"it has {', '.join(known)}" if known else "it has none"
            raise InputError(f"{self.env.name} has no parameter {self.name!r}: {others}.")
        if not isinstance(self.values, tuple | list) or not len(self.values):
            raise InputError("must be a list of at least one value to choose.", field="values")
        values = tuple(checks.number(self.name, one) for one in self.values)
        if not all(map(math.isfinite, values)):
            raise InputError(f"Each value of {self.name} must be finite.")
        object.__setattr__(self, "values", values)

    def __call__(self, key: jax.Array) -> Any:
        # Less to compile than `jax.random.choice`, and uniform to one in 10^7.
        which = jnp.floor(jax.random.uniform(key) * len(self.values)).astype(jnp.int32)
        value = jnp.asarray(self.values)[which]
        return self.env.default_params._replace(**{self.name: value})


@dataclass(frozen=True)
class PGCProgram:
    """Private gradient collection as a `Program`: `init` and `advance` over many replicas."""

    env: Environment[Any, Any]
    model: Model
    arms: tuple[Arm, ...]
    agents: int
    """How many agents a replica has in all: the longest that it can be advanced."""

    acting: Acting = "sampled"
    """"sampled": by the policy's probabilities. "greedy": the likeliest action, with exploration
    that ends after 900 submissions, as in the paper. "explored": sampled, with that exploration."""

    dynamics: Dynamics | None = None
    """Of each agent; None for the environment's own parameters."""

    optimiser: Optimiser = "adam"
    staleness: Staleness = "root"
    timing: Timing = "open"
    """"open": an agent reports when its episode is over. "fixed": when all of its
    round are."""

    flight: int = 9
    block: int = 8
    dtype: Literal["float32", "float64"] = "float32"
    quantile: Literal["newton", "table"] = "table"
    """How PrivUnit's first coordinate is found: "newton" to 1e-13, or "table" to 1e-10, for
    simulations."""

    def __post_init__(self) -> None:
        checks.count("agents", self.agents)
        checks.count("flight", self.flight)
        checks.count("block", self.block)
        if self.env.step_limit is None:
            raise InputError(f"{self.env.name} needs a step limit: an episode must end.")
        for arm in self.arms:
            if arm.plan is not None and arm.plan.dimension != self.model.dimension:
                raise InputError(
                    f"A plan reports {arm.plan.dimension} numbers, and the model has "
                    f"{self.model.dimension} parameters."
                )
        if not self.arms:
            raise InputError("must say at least one way to report.", field="arms")

    @cached_property
    def loss(self) -> Loss:
        return Loss(self.model)

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        """The arms, neighbours that are compiled as one together."""
        alike = groupby(self.arms, key=lambda arm: arm._compile_key)
        return tuple(Group(tuple(arms), self.quantile) for _, arms in alike)

    @property
    def sweepable(self) -> tuple[str, ...]:
        return ("rate", "buffer", "decay", *self.loss.settings)

    # --- beginning --------------------------------------------------------------------------------

    def init(self, keys: jax.Array, settings: Mapping[str, jax.Array]) -> CollectionState:
        """The state before the first step: `settings` has all of `sweepable`, each (replicas,)."""
        replicas = keys.shape[0]
        if replicas % len(self.arms):
            raise InputError(
                f"There must be as many replicas for each of the {len(self.arms)} arms."
            )
        if set(settings) != set(self.sweepable):
            raise InputError(f"must be {', '.join(self.sweepable)}.", field="settings")
        own = {name: jnp.asarray(x, jnp.float64) for name, x in settings.items()}
        state: CollectionState = _init(self, keys, own)
        return state

    def advance(
        self, state: CollectionState, episodes: int
    ) -> tuple[CollectionState, dict[str, jax.Array]]:
        """Let every replica accept `episodes` more reports; scores are in their order."""
        checks.count("episodes", episodes)
        before = int(np.max(np.asarray(state.aggregators.accepted), initial=0))
        if before + episodes > self.agents:
            raise InputError(f"Each replica has {self.agents} agents: no more can report.")
        # Arrays are larger than they need be, so that few sizes are compiled, but not by far.
        columns = min(self.agents, max(_COLUMNS, 1 << (episodes - 1).bit_length()))
        state, seen = _advance(self, columns, state, jnp.asarray(episodes, jnp.int32))
        return state, {name: x[:, :episodes] for name, x in seen.items()}

    def initial_state(self, keys: jax.Array, settings: dict[str, Any]) -> CollectionState:
        """`init`, to be compiled."""
        replicas, d = keys.shape[0], self.model.dimension
        first, actions, arrivals, noise = jnp.moveaxis(
            jax.vmap(lambda key: jax.random.split(key, 4))(keys), 1, 0
        )
        theta = jax.vmap(self.model.initial_parameters)(first)
        shape = aggregator.moments_shape(d, self.optimiser)
        none = jnp.zeros(replicas, jnp.int32)
        aggregators = Aggregators(
            theta,
            jnp.zeros((replicas, *shape), jnp.float64),
            jnp.zeros((replicas, d), jnp.float64),
            *(none, none, none),
        )
        # Later agents are numbered by the reports before them, these by what no report has.
        numbers = jnp.tile(jnp.uint32(2**31) + jnp.arange(self.flight, dtype=jnp.uint32), replicas)
        keys = jax.vmap(jax.random.fold_in)(jnp.repeat(arrivals, self.flight), numbers)
        model = self._current_model(aggregators)
        off = jnp.zeros(replicas * self.flight, bool)
        slots = Slots(
            *model,
            initial_sums(model[0]),
            *self._new_agents(keys),
            *(off.astype(self.dtype), off, off),
        )
        return drop_weak_types(
            CollectionState(slots, aggregators, none, actions, arrivals, noise, settings)
        )

    def _current_model(self, now: Aggregators) -> tuple[Any, Any, Any]:
        """What an agent who comes now is sent: weights, version and exploration, for each place."""
        replicas, d = now.theta.shape
        theta = jnp.broadcast_to(
            now.theta.astype(self.dtype).T[:, :, None], (d, replicas, self.flight)
        )
        explore = jnp.maximum(0.0, _EXPLORE * (1.0 - now.accepted / _EXPLORE_FOR))
        return (
            self.model.weights(theta.reshape(d, -1)),
            jnp.repeat(now.version, self.flight),
            jnp.repeat(explore.astype(self.dtype), self.flight),
        )

    def _new_agents(self, keys: jax.Array) -> tuple[Any, Any, Any]:
        """State, parameters and observation of new agents, one for each key, along a last axis."""

        def one(key: jax.Array) -> Any:
            first, second = jax.random.split(key)
            given = self.env.default_params if self.dynamics is None else self.dynamics(first)
            given = self._cast_tree(jax.tree.map(jnp.asarray, given))
            state, observation = self.env.reset(second, given)
            return self._cast_tree(state), given, self._cast(observation)

        found: tuple[Any, Any, Any] = jax.vmap(one, out_axes=-1)(keys)
        return found

    def _cast(self, x: Any) -> Any:
        return x.astype(self.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    def _cast_tree(self, tree: Any) -> Any:
        return jax.tree.map(self._cast, tree)

    # --- playing ----------------------------------------------------------------------------------

    def play_block(self, slots: Slots, settings: dict[str, Any], on: Any, keys: jax.Array) -> Slots:
        """A block of ticks for the places that are `on`; `keys` (replicas,) are of this block."""
        ticks, flight, dtype = self.block, self.flight, jnp.dtype(self.dtype)

        def of_replicas(drawn: Any) -> Any:
            """From (replicas, ticks, flight, ...) to (ticks, ..., replicas x flight)."""
            moved = jnp.moveaxis(drawn, (0, 2), (-2, -1))
            return moved.reshape(*moved.shape[:-2], -1)

        def uniforms(key: jax.Array) -> Any:
            return jax.random.uniform(key, (ticks, flight), dtype)

        def probs(key: jax.Array) -> Any:
            # No number of `uniforms` is drawn from this.
            apart = jax.random.fold_in(key, jnp.uint32(2**32 - 1))
            every = jax.random.split(apart, (ticks, flight))
            return jax.vmap(jax.vmap(self.env._draw))(every)

        numbers = of_replicas(jax.vmap(uniforms)(keys))
        # Most environments draw nothing, and then no keys are split.
        by_chance = jax.eval_shape(self.env._draw, keys[0]) is not None
        prob = jax.tree.map(of_replicas, jax.vmap(probs)(keys)) if by_chance else None
        own = {name: settings[name].astype(dtype) for name in self.loss.settings}
        own = {name: jnp.repeat(x, flight) for name, x in own.items()}

        def tick(now: Slots, drawn: Any) -> tuple[Slots, Steps]:
            return self._tick(now, slots.weights, on, *drawn)

        # What does not change on the way is not carried along.
        light = slots._replace(weights=None, sums=None)
        after, steps = lax.scan(tick, light, (numbers, prob))
        steps = Steps(
            [jnp.moveaxis(x, 0, 1) for x in steps.inside],
            *(jnp.moveaxis(steps.probs, 0, 1), *steps[2:]),
        )
        new = slots.state.time == 0
        sums = self.loss.add(own, slots.weights, steps, slots.sums, new)
        return after._replace(weights=slots.weights, sums=sums)

    def _tick(
        self, slots: Slots, weights: Weights, on: Any, uniform: Any, prob: Any
    ) -> tuple[Slots, Steps]:
        """One step of everybody who is `on` and not done, and what to remember of it."""
        live = on & ~slots.over
        # Where an episode ended may not be a number, and even no part of that is one.
        inside = self.model.layer_inputs(weights, jnp.where(live, slots.observation, 0))
        preferences, value = self.model.outputs(weights, inside)
        probs = softmax(preferences)
        if self.acting == "greedy":
            action = epsilon_greedy(probs, slots.explore, uniform)
        elif self.acting == "explored":
            action = sample_action(explore_uniformly(probs, slots.explore), uniform)
        else:
            action = sample_action(probs, uniform)
        after = jax.vmap(self.env._advance, in_axes=-1, out_axes=-1)(
            prob, slots.state, action, slots.params
        )
        reward = after.reward.astype(self.dtype)

        def where_live(new: Any, old: Any) -> Any:
            return jax.tree.map(lambda a, b: jnp.where(live, a, b), new, old)

        now = slots._replace(
            state=where_live(self._cast_tree(after.state), slots.state),
            observation=where_live(self._cast(after.observation), slots.observation),
            score=where_live(slots.score + reward, slots.score),
            over=slots.over | (live & (after.terminated | after.truncated)),
        )
        value = jnp.broadcast_to(value, reward.shape)
        return now, Steps(inside, probs, value, action, reward, live)

    # --- reporting --------------------------------------------------------------------------------

    def gradients(self, slots: Slots, settings: Mapping[str, Any]) -> Any:
        """The gradients of the losses of slots whose episodes are over: (parameters, slots)."""
        cut = ~slots.state.ended
        ascent = self.loss.close(settings, slots.weights, slots.observation, cut, slots.sums)
        return -self.model.flatten(ascent)

    def make_reports(
        self, state: CollectionState, ready: Any, number: Any, reports: Any
    ) -> tuple[CollectionState, Any]:
        """`reports` (replicas x flight, d) with those of the places that are `ready`, to which then
        new agents have come; `number` says how many reports their replicas had before."""
        flight, replicas = self.flight, state.block.shape[0]
        beyond, trials = replicas * flight, replicas // len(self.arms)
        there: Any = state.slots.state, state.slots.params, state.slots.observation
        start = 0
        for group in self.groups:
            width = len(group.arms) * trials * flight

            def more(carry: Any, start: int = start, width: int = width) -> Any:
                return jnp.any(lax.dynamic_slice_in_dim(carry[0], start, width))

            def some(
                carry: Any, group: Group = group, start: int = start, width: int = width
            ) -> Any:
                left, there, found = carry
                slots = state.slots
                mine = lax.dynamic_slice_in_dim(left, start, width)
                # Those that do not exist are beyond the end: read somewhere, and written nowhere.
                at = jnp.nonzero(mine, size=min(_CHUNK, width), fill_value=beyond)[0]
                place = jnp.minimum(at, width - 1)
                at, replica = at + start, (place + start) // flight
                some = jax.tree.map(lambda x: jnp.take(x, place + start, axis=-1), slots)
                own = {name: state.settings[name][replica] for name in self.loss.settings}
                gradients = self.gradients(some, self._cast_tree(own)).T
                keys = jnp.stack([state.noise[replica], state.arrivals[replica]])
                keys = jax.vmap(jax.vmap(jax.random.fold_in))(
                    keys, jnp.broadcast_to(number[place + start], keys.shape)
                )
                new = group.reports(gradients, keys[0], place // (trials * flight))
                come = self._new_agents(keys[1])
                there = jax.tree.map(lambda x, y: x.at[..., at].set(y, mode="drop"), there, come)
                found = found.at[at].set(new, mode="drop")
                return left.at[at].set(False, mode="drop"), there, found

            ready, there, reports = lax.while_loop(more, some, (ready, there, reports))
            start += width
        slots = state.slots._replace(state=there[0], params=there[1], observation=there[2])
        return state._replace(slots=slots), reports

    def add_reports(
        self, now: Aggregators, has: Any, reports: Any, ages: Any, settings: Any
    ) -> Any:
        """The aggregators after one report each, for replicas that `has` one."""
        weight = aggregator.staleness_weight(ages.astype(jnp.float64), self.staleness)
        total = now.total + jnp.where(has[:, None], weight[:, None] * reports, 0.0)
        held = now.held + has
        full = held >= settings["buffer"]

        def update_models() -> tuple[Any, Any]:
            apply = partial(aggregator.apply, optimiser=self.optimiser)
            done = now.version.astype(jnp.float64)
            rate = aggregator.decayed_rate(
                *(settings["rate"], done, settings["buffer"], self.agents, settings["decay"])
            )
            theta, moments = jax.vmap(
                lambda t, m, s, v, rate, buffer: apply(t, m, s, v, rate=rate, buffer=buffer)
            )(
                *(now.theta, now.moments, total, done),
                *(rate, settings["buffer"]),
            )
            return (
                jnp.where(full[:, None], theta, now.theta),
                jnp.where(full[:, None, None], moments, now.moments),
            )

        theta, moments = lax.cond(jnp.any(full), update_models, lambda: (now.theta, now.moments))
        return Aggregators(
            *(theta, moments, jnp.where(full[:, None], 0.0, total)),
            *(jnp.where(full, 0, held), now.version + full, now.accepted + has),
        )


# So many replicas at most are played at once: what they have in mind fits a core's cache.
_MAX_REPLICAS = 50


def play(
    program: PGCProgram, keys: jax.Array, settings: Mapping[str, Any], episodes: int
) -> dict[str, Any]:
    """What is seen by `init` and `advance`, in parts, on all cores."""

    def by_trial(x: Any) -> Any:
        return jnp.swapaxes(jnp.reshape(x, (len(program.arms), -1)), 0, 1)

    own = by_trial(keys), {name: by_trial(x) for name, x in settings.items()}
    most = max(1, _MAX_REPLICAS // len(program.arms))
    _, seen = run_in_parts(_play_trials, (program, episodes), own, 1, most)
    return {name: jnp.swapaxes(x[:, 0], 0, 1).reshape(-1, episodes) for name, x in seen.items()}


@partial(jax.jit, static_argnums=(0, 1))
def _play_trials(program: PGCProgram, episodes: int, own: Any) -> Any:
    """`play` for trials of all arms: (trials, arms)."""
    keys, settings = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1).reshape(-1), own)
    _, seen = _advance(
        program, episodes, program.init(keys, settings), jnp.asarray(episodes, jnp.int32)
    )
    trials = len(own[0])
    return own, {
        name: jnp.swapaxes(x.reshape(-1, trials, episodes), 0, 1) for name, x in seen.items()
    }


@kept(0)
def _init(program: PGCProgram, keys: jax.Array, settings: dict[str, Any]) -> CollectionState:
    return program.initial_state(keys, settings)


@kept(0, 1)
def _advance(
    program: PGCProgram, columns: int, state: CollectionState, episodes: Any
) -> tuple[CollectionState, dict[str, Any]]:
    """`episodes` more submissions in every replica; what is seen of them is in so many columns.

    A replica stops with exactly so many accepted. If that is in the midst of those who were done
    after a block, the others keep their reports until the replica goes on: so runs in pieces equal
    whole runs, and a replica does not know whether the replicas beside it have stopped.
    """
    replicas, flight = state.block.shape[0], program.flight
    first = state.aggregators.accepted
    goal = first + episodes

    def by_replica(x: Any) -> Any:
        return x.reshape(*x.shape[:-1], replicas, flight)

    def has_reports(over: Any) -> Any:
        """Of replicas: whether there is somebody who is to report now."""
        return jnp.all(over, axis=1) if program.timing == "fixed" else jnp.any(over, axis=1)

    def block(carry: Any) -> Any:
        state, seen, reports = carry
        # Everybody plays on but in replicas that stopped, and in those that stopped in the midst.
        on = (state.aggregators.accepted < goal) & ~has_reports(by_replica(state.slots.over))
        keys = jax.vmap(jax.random.fold_in)(state.actions, state.block)
        slots = program.play_block(state.slots, state.settings, jnp.repeat(on, flight), keys)
        state = state._replace(slots=slots, block=state.block + on)
        state, seen, reports = submit(state, seen, reports)
        return reissue(state), seen, reports

    def submit(state: CollectionState, seen: Any, reports: Any) -> Any:
        slots = state.slots
        done = by_replica(slots.over & ~slots.sent) & has_reports(by_replica(slots.over))[:, None]
        rank = jnp.cumsum(done, axis=1) - done
        number = state.aggregators.accepted[:, None] + rank
        ready = done & (number < goal[:, None])
        state, reports = program.make_reports(state, ready.reshape(-1), number.reshape(-1), reports)
        every = reports.reshape(replicas, flight, -1)
        version = by_replica(slots.version)
        told = {"return": by_replica(slots.score), "length": by_replica(slots.state.time)}

        def submit_next(carry: Any) -> Any:
            place, now, seen = carry
            this = ready & (rank == place)
            has, at = jnp.any(this, axis=1), jnp.argmax(this, axis=1)[:, None]

            def of(x: Any) -> Any:
                return jnp.take_along_axis(x, at, axis=1)[:, 0]

            report = jnp.take_along_axis(every, at[:, :, None], axis=1)[:, 0]
            column = jnp.where(has, now.accepted - first, columns)
            seen = {
                name: x.at[jnp.arange(replicas), column].set(of(told[name]), mode="drop")
                for name, x in seen.items()
            }
            ages = now.version - of(version)
            return place + 1, program.add_reports(now, has, report, ages, state.settings), seen

        turns = jnp.max(jnp.sum(ready, axis=1))
        _, now, seen = lax.while_loop(
            lambda carry: carry[0] < turns,
            submit_next,
            (jnp.zeros((), turns.dtype), state.aggregators, seen),
        )
        sent = slots.sent | ready.reshape(-1)
        slots = state.slots._replace(sent=sent)
        return state._replace(slots=slots, aggregators=now), seen, reports

    def reissue(state: CollectionState) -> CollectionState:
        """Models for the new agents of replicas in which all who were done have been heard."""
        slots = state.slots
        heard = jnp.all(by_replica(slots.over == slots.sent), axis=1)
        free = slots.over & jnp.repeat(heard, flight)
        new = program._current_model(state.aggregators)
        old = slots.weights, slots.version, slots.explore
        model = jax.tree.map(lambda a, b: jnp.where(free, a, b), new, old)
        slots = slots._replace(
            weights=model[0],
            version=model[1],
            explore=model[2],
            score=jnp.where(free, 0.0, slots.score),
            over=slots.over & ~free,
            sent=slots.sent & ~free,
        )
        return state._replace(slots=slots)

    seen = {
        "return": jnp.zeros((replicas, columns), jnp.dtype(program.dtype)),
        "length": jnp.zeros((replicas, columns), jnp.int32),
    }
    reports = jnp.zeros((replicas * flight, program.model.dimension), jnp.float64)
    state, seen, _ = lax.while_loop(
        lambda carry: jnp.any(carry[0].aggregators.accepted < goal), block, (state, seen, reports)
    )
    return drop_weak_types(state), seen
