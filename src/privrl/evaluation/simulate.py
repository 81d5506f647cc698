"""Made-up trajectories of the same public shape, to try settings on for nothing.

`Schema` holds what anyone may know about a data set: how many people and trajectories, how long,
how many states or which box they lie in, how many actions, which rewards. `simulate_like` makes up
a world of that shape and plays it. Nothing is read from private values, so settings that are tuned
on its data, and curves of accuracy against epsilon, cost no privacy. What they show is how the
settings fare in *a* world of that size, not in yours.

The world, drawn by `key`: with discrete states, random transitions to a few successors and a random
table of rewards. With vectors, each action pulls the state towards a random point of the box, with
noise, and rewards are a random smooth wave over the box. Rewards fill the declared range. A step
ends the trajectory with probability `ending`; at the horizon it is cut off.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import FunctionPolicy, Note, Policy, Tabular, Trajectories
from privrl.data.keys import generator
from privrl.data.policies import choose
from privrl.evaluation.steps import check_range

_SUCCESSORS = 4


@dataclass(frozen=True)
class Schema:
    """The public shape of a data set."""

    num_trajectories: int
    """How many trajectories there are."""

    horizon: int
    """How long one can be at most."""

    num_actions: int
    """How many actions there are."""

    reward_range: tuple[float, float]
    """What any reward could be."""

    num_states: int | None = None
    """How many discrete states there are, or `low` and `high` instead."""

    low: tuple[float, ...] | None = None
    """The low corner of the box that states lie in."""

    high: tuple[float, ...] | None = None
    """The high corner."""

    num_users: int | None = None
    """How many people there are, if they are named; trajectories are dealt to them in turn."""

    ending: float = 0.0
    """With which probability a step ends its trajectory, by guess and not by counting."""

    def __post_init__(self) -> None:
        for name in ("num_trajectories", "horizon", "num_actions"):
            checks.count(name, getattr(self, name))
        checks.probability("ending", self.ending)
        check_range("reward_range", self.reward_range)
        if (self.num_states is None) == (self.low is None or self.high is None):
            raise InputError("Either num_states is needed, or low and high of the states' box.")
        if self.num_states is not None:
            checks.count("num_states", self.num_states)
        else:
            assert self.low is not None
            assert self.high is not None
            corners = [np.asarray(one, dtype=np.float64) for one in (self.low, self.high)]
            if corners[0].ndim != 1 or corners[0].shape != corners[1].shape:
                raise InputError("low and high must have one number for each coordinate.")
            if not np.all(corners[0] < corners[1]) or not np.all(np.isfinite(corners)):
                raise InputError(
                    "must be below high, and both finite, in every coordinate.", field="low"
                )
        if self.num_users is not None and checks.count("num_users", self.num_users) > (
            self.num_trajectories
        ):
            raise InputError("There cannot be more people than trajectories.")

    @classmethod
    def of(
        cls,
        data: Trajectories,
        *,
        horizon: int,
        reward_range: tuple[float, float],
        num_actions: int | None = None,
        low: tuple[float, ...] | None = None,
        high: tuple[float, ...] | None = None,
        ending: float = 0.0,
    ) -> "Schema":
        """The shape of `data`: how much there is, and what its declared facts say.

        Lengths, states and rewards are private: `horizon`, `reward_range` and the box are asked
        for, never measured. Counts are public under replace-one.
        """
        actions = data.num_actions if num_actions is None else num_actions
        if actions is None:
            raise InputError(
                "is needed: the data does not say how many there are.", field="num_actions"
            )
        discrete = data.discrete_states
        if discrete and data.num_states is None:
            raise InputError("is needed: declare it when loading the data.", field="num_states")
        return cls(
            num_trajectories=data.num_trajectories,
            horizon=horizon,
            num_actions=actions,
            reward_range=reward_range,
            num_states=data.num_states if discrete else None,
            low=None if discrete else low,
            high=None if discrete else high,
            num_users=data.num_users,
            ending=ending,
        )


def simulate_like(schema: Schema, key: Any, policy: Policy | None = None) -> Trajectories:
    """Trajectories of a made-up world of that shape, in which `policy`, or else chance,
    acts."""
    draws = generator(key)
    world: _Table | _Box = _Table(schema, draws) if schema.num_states else _Box(schema, draws)
    acting = policy or _uniform(schema)
    if acting.num_actions != schema.num_actions:
        raise InputError(
            f"The policy has {acting.num_actions} actions, but the schema {schema.num_actions}."
        )
    n, H = schema.num_trajectories, schema.horizon
    state = world.begin(n)
    states = np.zeros((n, H, *state.shape[1:]), dtype=state.dtype)
    actions, rewards = np.zeros((n, H), dtype=np.int64), np.zeros((n, H))
    probs, lengths = np.zeros((n, H)), np.full(n, H)
    final, done = state.copy(), np.zeros(n, dtype=bool)
    for t in range(H):
        p = np.asarray(acting.probabilities(state), dtype=np.float64)
        action = np.asarray(choose(np, p, draws.random(n)))
        states[:, t], actions[:, t] = state, action
        probs[:, t] = np.minimum(p[np.arange(n), action], 1.0)
        rewards[:, t] = world.reward(state, action)
        state = world.move(state, action)
        final[~done] = state[~done]
        ends = ~done & (draws.random(n) < schema.ending)
        lengths[ends] = t + 1
        done |= ends
    there = np.arange(H) < lengths[:, None]
    users = None
    if schema.num_users is not None:
        users = np.arange(n) % schema.num_users
    made = Trajectories.from_arrays(
        states[there],
        actions[there],
        rewards[there],
        lengths=lengths,
        users=users,
        behavior_probs=probs[there],
        terminated=done,
        truncated=~done,
        final_states=final,
        num_states=schema.num_states,
        num_actions=schema.num_actions,
    )
    return made.with_notes(Note("origin", "simulated from public facts: nobody is in it"))


def _uniform(schema: Schema) -> Policy:
    count = schema.num_actions
    if schema.num_states is not None:
        return Tabular.uniform(schema.num_states, count)
    return FunctionPolicy(lambda states: np.full((len(states), count), 1.0 / count), count)


class _Table:
    """Random successors and rewards."""

    def __init__(self, schema: Schema, draws: np.random.Generator) -> None:
        assert schema.num_states is not None
        self.draws, self.count = draws, schema.num_states
        shape = (schema.num_states, schema.num_actions)
        self.successors = draws.integers(0, self.count, (*shape, _SUCCESSORS))
        self.edges = np.cumsum(draws.dirichlet(np.ones(_SUCCESSORS), shape), axis=-1)
        low, high = schema.reward_range
        self.rewards = draws.uniform(low, high, shape)

    def begin(self, n: int) -> NDArray[Any]:
        return self.draws.integers(0, self.count, n)

    def reward(self, state: NDArray[Any], action: NDArray[Any]) -> Floats:
        return np.asarray(self.rewards[state, action])

    def move(self, state: NDArray[Any], action: NDArray[Any]) -> NDArray[Any]:
        edges = self.edges[state, action]
        k = np.minimum((edges <= self.draws.random(len(state))[:, None]).sum(axis=1), 3)
        return np.asarray(self.successors[state, action, k])


class _Box:
    """Actions that pull towards points, and rewards in waves."""

    def __init__(self, schema: Schema, draws: np.random.Generator) -> None:
        self.draws = draws
        self.low, self.high = (
            np.asarray(one, dtype=np.float64) for one in (schema.low, schema.high)
        )
        self.range = schema.reward_range
        self.points = draws.random((schema.num_actions, len(self.low)))
        self.waves = draws.normal(0.0, np.pi, (schema.num_actions, len(self.low)))
        self.phases = draws.uniform(0.0, 2.0 * np.pi, schema.num_actions)

    def begin(self, n: int) -> NDArray[Any]:
        return self.low + (self.high - self.low) * self.draws.random((n, len(self.low)))

    def reward(self, state: NDArray[Any], action: NDArray[Any]) -> Floats:
        unit = (state - self.low) / (self.high - self.low)
        wave = np.sin((unit * self.waves[action]).sum(axis=1) + self.phases[action])
        low, high = self.range
        return np.asarray(np.clip(low + (high - low) * (wave + 1.0) / 2.0, low, high))

    def move(self, state: NDArray[Any], action: NDArray[Any]) -> NDArray[Any]:
        unit = (state - self.low) / (self.high - self.low)
        moved = unit + 0.2 * (self.points[action] - unit)
        moved += self.draws.normal(0.0, 0.05, moved.shape)
        return np.asarray(self.low + (self.high - self.low) * np.clip(moved, 0.0, 1.0))
