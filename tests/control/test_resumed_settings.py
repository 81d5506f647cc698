"""Every setting of every learner is bound to its run: resuming with another one is refused.

Nothing is learned here: a run is begun up to its key, and what `resume` checks is before any step.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import privrl
from privrl.control import PGC, ActorCritic, FunctionalQ, LoggedQ, Network, OneOf, ProspectQ, engine
from privrl.control.noised_q import Descent
from privrl.control.q_specs import UNUSED_BY_PROSPECT
from privrl.data import OneHot, Polynomial, Trajectories
from privrl.envs.control import CartPole
from privrl.envs.tabular import TabularMDP
from privrl.papers import ono2020, rajabi2022, seo2020, wang2019
from privrl.privacy import Budget, InputError
from privrl.risk import Prospect


class Killed(BaseException):
    """What a kill is to those who cannot catch it."""


class Ward(gymnasium.Env[Any, int]):
    """People, for all that anybody knows."""

    observation_space: Any = spaces.Box(0.0, 1.0, (1,))
    action_space: Any = spaces.Discrete(2)


MOVES = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.9, 0.1], [0.1, 0.9]]])
TWO = TabularMDP.from_dense(
    MOVES, np.array([[0.0, 1.0], [0.0, 1.0]]), start=[0.5, 0.5], step_limit=5, name="Two"
)
DATA = Trajectories.from_arrays(
    np.arange(30) % 3, np.arange(30) % 2, np.linspace(0, 1, 30), lengths=np.ones(30, int)
)
VECTORS = Trajectories.from_arrays(
    np.linspace(0, 1, 30)[:, None], np.arange(30) % 2, np.zeros(30), lengths=np.ones(30, int)
)
BUDGET = Budget(5.0, 1e-6)
POLE = CartPole()
WIDE = Network((4,))


@dataclass(frozen=True)
class Case:
    """A run that is begun, and settings with which it must not go on."""

    spec: Any
    env: Any
    people: int | None
    changes: dict[str, Any]


@dataclass(frozen=True)
class Powers:
    """Features that have no JSON form; those of another power have the same shape."""

    power: int
    dimension = 2
    norm_bound = 1.0

    def __call__(self, states: Any) -> Any:
        import jax.numpy as jnp

        first = jnp.clip(jnp.asarray(states)[:, 0], 0.0, 1.0)
        return jnp.stack([jnp.full_like(first, 0.5), 0.5 * first**self.power], axis=1)


ACTOR_CRITIC: dict[str, Any] = {
    "variant": "actor",
    "budget": Budget(5.0, 1e-7),
    "gamma": 0.9,
    "lambda_": 0.5,
    "actor_step": 1.0,
    "critic_step": 0.5,
    "clip": 1.0,
    "max_steps": 3,
    "batch": 6,
    "noise": "independent",
    "optimiser": "adam",
    "schedule": "linear",
    "average": 0.5,
    "critic_weight": 0.2,
    "entropy": 0.1,
    "return_range": (0.0, 6.0),
}
SECRET: dict[str, Any] = {
    "release": "rewards",
    "budget": Budget(5.0, 1e-7),
    "reward_radius": 0.4,
    "reward_range": (0.0, 2.0),
    "gamma": 0.8,
    "steps": 50,
    "max_steps": 7,
    "reward_of": "step",
    "design": 3,
    "rounds": 400,
    "ridge": 1e-5,
    "updates": 2000,
}
REWARDS: dict[str, Any] = {
    "budget": BUDGET,
    "reward_radius": 0.5,
    "reward_range": (0.0, 1.0),
    "steps": 40,
}
FUNCTIONAL = SECRET | {
    "planner": "actor-critic",
    "iterations": 20,
    "actor_step": 5.0,
    "evaluations": 2,
    "horizon": 4,
    "features": OneHot(2),
    "reward_features": Polynomial(1, [0.0], [1.0]),
}
PROSPECT = SECRET | {
    "release": "updates",
    "planner": "network",
    "prospect": Prospect.neutral(),
    "samples": 5,
    "shrink": False,
    "features": OneHot(2),
    "reward_features": Polynomial(1, [0.0], [1.0]),
}
DESCENT: dict[str, Any] = {
    "updates": 90,
    "step": 0.2,
    "batch": 10,
    "clip": 0.5,
    "slope": 1.0,
    "target_every": 2,
    "optimiser": "adam",
    "average": 0.4,
}
COLLECTOR: dict[str, Any] = {
    "epsilon": 2.1,
    "mechanism": "sign",
    "hidden": (8,),
    "activation": "relu",
    "scale": (1.0, 1.0, 1.0, 2.0),
    "submissions": 2,
    "rate": 0.2,
    "buffer": 11,
    "decay": 0.5,
    "acting": "greedy",
    "optimiser": "sgd",
    "staleness": "none",
    "timing": "open",
    "flight": 8,
    "dynamics": OneOf(POLE, "gravity", (9.7, 9.8)),
    "control": "zero",
    "gamma": 0.9,
    "target": 150.0,
    "score_share": 0.6,
    "enough": 0.8,
    "vary": "gravity=9.7,9.8",
}
NOISY: dict[str, Any] = {
    "epsilon": 0.8,
    "delta": 1e-5,
    "gamma": 0.9,
    "step": 0.02,
    "batch": 10,
    "samples": 300,
    "hidden": (8,),
    "replay": 300,
    "loss": "huber",
    "clamp": 1.0,
    "optimiser": "rmsprop",
}
PRINTED: dict[str, Any] = {
    "variant": "actor",
    "epsilon": 9.0,
    "delta": 1e-5,
    "gamma": 0.9,
    "lambda_": 0.5,
    "actor_step": 0.4,
    "critic_step": 0.02,
    "correction_step": 0.4,
    "acting": "softmax",
    "exploration": 0.2,
    "clip": 1.0,
    "correction": "printed",
    "max_steps": 3,
    "dense": True,
}
ASKED: dict[str, Any] = {"epsilon": 8.0, "target": 195.0, "score_share": 0.5}

CASES: dict[str, Case] = {
    "actor-critic": Case(
        ActorCritic(budget=BUDGET, batch=4, return_range=(0.0, 5.0)),
        *(TWO, 12),
        ACTOR_CRITIC | {"curve": "paid", "features": WIDE, "critic_features": WIDE},
    ),
    "actor-critic with a paid curve": Case(
        ActorCritic(budget=BUDGET, batch=4, return_range=(0.0, 5.0), curve="paid"),
        *(TWO, 12),
        {"curve_weight": 0.3},
    ),
    "actor-critic with a prospect": Case(
        ActorCritic(budget=BUDGET, return_range=(0.0, 5.0), prospect=Prospect.neutral()),
        *(TWO, 12),
        {"prospect": Prospect.tversky_kahneman(), "curve_weight": 0.3, "bins": 10}
        | {"even_share": 0.02, "forgetting": 0.2},
    ),
    "actor-critic with features of its own": Case(
        ActorCritic(budget=BUDGET, features=Powers(1)),
        *(POLE, 12),
        {"features": Powers(2), "critic_features": Powers(3)},
    ),
    "actor-critic among people": Case(
        ActorCritic(
            budget=BUDGET,
            batch=4,
            max_steps=4,
            features="polynomial:1",
            state_range="0:1",
            return_range=(0.0, 5.0),
        ),
        *(Ward(), 12),
        ACTOR_CRITIC
        | {"features": "polynomial:2", "critic_features": "fourier:1", "state_range": "0:2"},
    ),
    "actor-critic with features of its own, among people": Case(
        ActorCritic(budget=BUDGET, features=Powers(1), max_steps=4),
        *(Ward(), 12),
        {"features": Powers(2), "critic_features": Powers(3)},
    ),
    "functional-q": Case(FunctionalQ(**REWARDS), TWO, None, FUNCTIONAL),
    "functional-q with a network": Case(
        FunctionalQ(
            **REWARDS,
            planner="network",
            network=WIDE,
            features="fourier:1",
            state_range="0:1",
        ),
        *("Interval", None),
        {"network": Network((5,)), "features": "fourier:2", "state_range": "0:2"},
    ),
    "functional-q by updates": Case(
        FunctionalQ(**REWARDS, release="updates", descent=Descent(slope=2.0)),
        *(TWO, None),
        {"descent": [Descent(**{"slope": 2.0, n: x}) for n, x in DESCENT.items()]},
    ),
    "functional-q by weights": Case(
        FunctionalQ(**REWARDS, release="weights"), TWO, None, {"descent": Descent(tau=1.0)}
    ),
    "functional-q among people": Case(
        FunctionalQ(**REWARDS, features="polynomial:1", state_range="0:1"),
        *(Ward(), None),
        FUNCTIONAL | {"features": "fourier:1", "state_range": "0:2"},
    ),
    "prospect": Case(ProspectQ(**REWARDS, samples=4), TWO, None, PROSPECT),
    "prospect by updates": Case(
        ProspectQ(**REWARDS, samples=4, release="updates", descent=Descent(clip=2.0)),
        *(TWO, None),
        {"descent": [Descent(**{"clip": 2.0, n: x}) for n, x in DESCENT.items() if n != "slope"]},
    ),
    "prospect with a network": Case(
        ProspectQ(
            **REWARDS,
            samples=4,
            planner="network",
            network=WIDE,
            features="fourier:1",
            state_range="0:1",
        ),
        *("Interval", None),
        {"network": Network((5,)), "features": "fourier:2", "state_range": "0:2"},
    ),
    "logged-q": Case(
        LoggedQ(2, (0.0, 1.0), Budget(1.0, 1e-3), num_states=3, updates=40),
        *(DATA, None),
        {
            "num_actions": 3,
            "reward_range": (0.0, 2.0),
            "budget": Budget(1.0, 1e-4),
            "features": OneHot(3),
            "num_states": 4,
            "gamma": 0.9,
            "updates": 41,
            "step": 1.0,
            "clip": 0.2,
            "target_every": 2,
            "optimiser": "adam",
            "average": 0.4,
        },
    ),
    "logged-q of vectors": Case(
        LoggedQ(2, (0.0, 1.0), BUDGET, features="fourier:1", state_range="0:1"),
        *(VECTORS, None),
        {"features": "fourier:2", "state_range": "0:2"},
    ),
    "pgc": Case(
        PGC(epsilon=2.0, buffer=10, baseline=20.0),
        *(POLE, 4000),
        {n: x for n, x in COLLECTOR.items() if n not in ("target", "score_share", "enough")}
        | {"baseline": 21.0},
    ),
    "pgc that may end early": Case(
        PGC(**ASKED, buffer=10),
        *(POLE, 4000),
        {name: COLLECTOR[name] for name in ("target", "score_share", "enough", "epsilon")},
    ),
    "ono2020": Case(
        ono2020.PGC(epsilon=2.0, buffer=10),
        *(POLE, 4000),
        {n: x for n, x in COLLECTOR.items() if n not in ("target", "score_share", "enough")}
        | {"activation": "tanh", "acting": "sampled", "optimiser": "adam", "staleness": "root"}
        | {"timing": "fixed", "clip": 0.02, "value_weight": 0.4, "entropy": 0.02},
    ),
    "ono2020 that may end early": Case(
        ono2020.PGC(**ASKED, buffer=10),
        *(POLE, 4000),
        {name: COLLECTOR[name] for name in ("target", "score_share", "enough")},
    ),
    "seo2020": Case(seo2020.ActorCritic(), TWO, 6, PRINTED | {"sigma": 0.5}),
    "wang2019": Case(
        wang2019.FunctionalQ(samples=200, batch=20, resets=2),
        *("Interval", None),
        NOISY
        | {"resets": 3, "acting": "epsilon-greedy", "updates": "step", "target": 50}
        | {"terminal": True, "edge": "public-code"},
    ),
    "wang2019 with noise of its own": Case(
        wang2019.FunctionalQ(samples=200, batch=20, resets=2, sigma=1.0, rate=1.0),
        *("Interval", None),
        {"sigma": 2.0, "rate": 2.0},
    ),
    "rajabi2022": Case(
        rajabi2022.ProspectQ(iterations=200, samples=3, batch=2),
        *("ObstacleSquare", None),
        NOISY
        | {"gamma": 0.8, "batch": 3, "samples": 4, "prospect": Prospect.neutral(), "lipschitz": 2.0}
        | {"largest_td_error": 2.0, "iterations": 5, "noise": "cells", "order": 5, "lattice": 5}
        | {"resets": "iteration", "acting": "proportional", "temperature": 2.0}
        | {"behaviour": "uniform", "backup": "max", "successor": "drawn", "target_every": 2}
        | {"minibatch": 100},
    ),
    "rajabi2022 with noise of its own": Case(
        rajabi2022.ProspectQ(iterations=4, samples=3, batch=2, sigma=1.0, rate=1.0),
        *("ObstacleSquare", None),
        {"sigma": 2.0, "rate": 2.0},
    ),
}
# Settings of `FunctionalQ` that `ProspectQ` refuses.
IDLE: dict[type[Any], set[str]] = {ProspectQ: set(UNUSED_BY_PROSPECT)}
REFUSED = re.compile("belongs to another agent|These are not the settings that the run was begun")


@pytest.fixture
def begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Case], Path]:
    """Begins a run and dies before anything is paid; whoever may go on dies there."""

    def die(*_: Any) -> Any:
        raise Killed

    monkeypatch.setattr(engine, "_begin", die)
    monkeypatch.setattr(engine, "_go_on", die)

    def begin(case: Case) -> Path:
        with pytest.raises(Killed):
            privrl.learn(case.spec, case.env, case.people, folder=tmp_path, preflight=False)
        return tmp_path

    return begin


@pytest.mark.parametrize("name", CASES)
def test_another_setting_is_refused(name: str, begun: Callable[[Case], Path]) -> None:
    """Before the first checkpoint, and with one."""
    case = CASES[name]
    folder = begun(case)

    def told(spec: Any) -> str:
        try:
            privrl.resume(case.env, folder, spec=spec)
        except InputError as error:
            return str(error)
        except Killed:
            return ""
        raise AssertionError

    for _ in range(2):
        assert told(replace(case.spec)) == ""
        for field, listed in case.changes.items():
            for value in listed if isinstance(listed, list) else [listed]:
                found = told(replace(case.spec, **{field: value}))
                assert REFUSED.search(found), (field, found)
        (folder / engine.CHECKPOINT).write_bytes(b"")


def test_every_setting_is_tried() -> None:
    for kind in {type(case.spec) for case in CASES.values()}:
        tried = {
            name for case in CASES.values() if type(case.spec) is kind for name in case.changes
        }
        assert {one.name for one in fields(kind)} == tried | IDLE.get(kind, set()), kind
    assert {one.name for one in fields(Descent)} == {*DESCENT, "tau"}
