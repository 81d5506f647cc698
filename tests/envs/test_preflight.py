"""Environments that do not work are refused before anybody pays, where nobody is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

from privrl import cli
from privrl.control import FunctionalQ, ProspectQ
from privrl.control.actor_critic import ActorCritic
from privrl.envs.host import GymnasiumEnv, HostEnvironment, is_live
from privrl.envs.preflight import run_preflight
from privrl.envs.registry import make
from privrl.privacy import Budget, Certificate, InputError, Ledger, Relation, Unit
from privrl.privacy.session import PrivacySession

BUDGET = Budget(5.0, 1e-6)
REWARDS: dict[str, Any] = {"reward_radius": 0.5, "reward_range": (0.0, 1.0), "steps": 20}
LEARNERS: dict[str, Callable[..., Any]] = {
    "actor-critic": lambda env, **more: ActorCritic(budget=BUDGET, max_steps=3, batch=2).learn(
        env, people=6, **more
    ),
    "functional-q": lambda env, **more: FunctionalQ(budget=BUDGET, **REWARDS).learn(env, **more),
    "prospect": lambda env, **more: ProspectQ(budget=BUDGET, **REWARDS).learn(env, **more),
}


class Ward(gymnasium.Env[Any, Any]):
    """Two beds; `made` has all of them, in the order in which they were made."""

    made: list["Ward"] = []  # noqa: RUF012 (it is emptied by each test)
    action_space: Any = spaces.Discrete(2)

    def __init__(self, fault: str = "", box: bool = False) -> None:
        self.fault, self.box, self.steps, self.resets, self.closed = fault, box, 0, 0, False
        self.observation_space: Any = spaces.Box(0.0, 1.0, (2,)) if box else spaces.Discrete(2)
        self.made.append(self)

    def _seen(self) -> Any:
        return np.array([0.0, 1.0], np.float32) if self.box else self.steps % 2

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.resets += 1
        if self.fault == "reset" or (self.fault == "second reset" and self.resets > 1):
            raise OSError("No bed is free")
        return self._seen() if self.fault == "one thing" else (self._seen(), {})

    def step(self, action: Any) -> Any:
        self.steps += 1
        ended = self.steps % 2 == 0
        match self.fault:
            case "step":
                raise RuntimeError("The sensor\nis not plugged in.")
            case "observation":
                return 7, 0.5, ended, False, {}
            case "shape":
                return np.zeros(3, np.float32), 0.5, ended, False, {}
            case "nan":
                return np.array([np.nan, 0.0], np.float32), 0.5, ended, False, {}
            case "reward":
                return self._seen(), float("inf"), ended, False, {}
            case "no reward":
                return self._seen(), None, ended, False, {}
            case "flag":
                return self._seen(), 0.5, "no", False, {}
            case "form":
                return self._seen(), 0.5, ended, {}
        return self._seen(), 0.5, ended, False, {}

    def close(self) -> None:
        self.closed = True


FAULTS = {
    "reset": "failed at its reset with OSError, No bed is free.",
    "second reset": "failed at its reset with OSError, No bed is free.",
    "one thing": "failed at its reset with something else than an observation and a dict.",
    "step": "failed at its step 1 with RuntimeError, The sensor is not plugged in.",
    "observation": "failed at its step 1 with something else than an observation of Discrete(2).",
    "shape": "failed at its step 1 with",
    "nan": "failed at its step 1 with something else than a finite observation.",
    "reward": "failed at its step 1 with something else than a reward that is a finite number.",
    "no reward": "failed at its step 1 with something else than a reward that is a finite number.",
    "flag": "failed at its step 1 with something else than true or false for an end.",
    "form": "failed at its step 1 with something else than five things from a step.",
}


@pytest.fixture
def ward() -> Iterator[str]:
    Ward.made.clear()
    # Gymnasium's own checker would find some of these, and only warn of others.
    gymnasium.register(
        "Ward-v0", lambda **given: Ward(**given), disable_env_checker=True, order_enforce=False
    )
    yield "Ward-v0"
    del gymnasium.registry["Ward-v0"]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_does_not_work_is_refused_in_the_environments_own_words(fault: str, ward: str) -> None:
    box = fault in ("shape", "nan")
    env = make(gymnasium.make(ward, fault=fault, box=box))
    with pytest.raises(InputError) as found:
        run_preflight(env, private=True)
    assert FAULTS[fault] in str(found.value)
    assert str(found.value).endswith(".")
    assert "\n" not in str(found.value)
    first, second = Ward.made
    assert first.resets == 0
    assert second.closed


def test_what_works_is_tried_for_a_few_episodes_and_closed(ward: str) -> None:
    for box in (False, True):
        Ward.made.clear()
        assert run_preflight(make(gymnasium.make(ward, box=box)), private=True) == "passed"
        first, second = Ward.made
        assert (first.resets, second.resets, second.closed) == (0, 3, True)


@pytest.mark.parametrize("learner", LEARNERS)
def test_nobody_pays_for_or_plays_in_an_environment_that_always_fails(
    learner: str, ward: str, tmp_path: Path
) -> None:
    """By its id, and as an object that Gymnasium made."""
    unit = Unit.TRAJECTORY if learner == "actor-critic" else Unit.REWARD_FUNCTION
    relation = Relation.REPLACE_ONE if learner == "actor-critic" else Relation.REWARD_RADIUS
    gymnasium.register("Broken-v0", lambda **given: Ward(**given), kwargs={"fault": "step"})
    try:
        with Ledger.create(tmp_path / "l", "all", unit=unit, relation=relation) as ledger:
            for env in ("Broken-v0", gymnasium.make("Broken-v0")):
                session = PrivacySession(ledger=ledger, run="one")
                with pytest.raises(InputError, match=r"RuntimeError, The sensor is not plugged in"):
                    LEARNERS[learner](env, session=session, folder=tmp_path / "run")
            assert not ledger.entries()
            assert not (tmp_path / "run").exists()
            # In the object, and in the first that was made of the id, nobody took a step.
            assert [one.steps for one in Ward.made] == [0, 0, 1, 1]
    finally:
        del gymnasium.registry["Broken-v0"]


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_object_needs_another_or_a_waiver_which_the_certificate_lists(
    learner: str, ward: str
) -> None:
    learn = LEARNERS[learner]
    with pytest.raises(InputError, match=r"give one that nobody is in with preflight_env=\.\.\.,"):
        learn(Ward())
    live, other = Ward(), Ward()
    given = learn(live, preflight_env=other)
    waived = learn(Ward(), preflight=False)
    by_id = learn(ward)
    assert other.resets == 3
    for found, words in (
        (given, "nobody was in the instance of the environment that was tried"),
        (by_id, "nobody was in the instance of the environment that was tried"),
        (waived, "the environment works: episodes in which it fails count as not played"),
    ):
        (listed,) = [one for one in found.certificate.assumptions if words in one.statement]
        assert listed.enforced.startswith("not enforced: the caller ")
    with pytest.raises(InputError, match="The sensor is not plugged in"):
        learn(Ward(), preflight_env=Ward("step"))


def test_what_is_no_other_instance_is_refused() -> None:
    env = HostEnvironment(Ward())
    for other, words in (
        (env, "an instance of its own"),
        (env.env, "an instance of its own"),
        (Ward(box=True), "another instance of Ward, with the same spaces"),
        ("Chain", "another instance of Ward, with the same spaces"),
        (3, "neither an environment nor the name"),
    ):
        with pytest.raises(InputError, match=words):
            run_preflight(env, private=True, other=other)
    with pytest.raises(InputError, match="which you waived"):
        run_preflight(env, private=True, preflight=False, other=Ward())
    with pytest.raises(InputError, match="must be True or False"):
        run_preflight(env, private=True, preflight="no")  # type: ignore[arg-type]


def test_one_that_cannot_be_made_twice_is_asked_for(ward: str) -> None:
    env = make(gymnasium.make(ward))
    del gymnasium.registry[ward]
    try:
        # Gymnasium makes it of what it remembers, unless that is broken.
        assert isinstance(env, HostEnvironment)
        assert env.env.spec is not None
        env.env.spec.kwargs["beds"] = 3
        with pytest.raises(InputError, match="could not be made a second time, for its pre-flight"):
            run_preflight(env, private=True)
        # Who goes on has been asked before.
        assert run_preflight(env, private=True, again=True) is None
        assert run_preflight(HostEnvironment(Ward()), private=True, again=True) is None
    finally:
        gymnasium.register(ward, lambda **given: Ward(**given))


def test_where_errors_are_shown_nothing_is_tried(ward: str) -> None:
    """Nobody is private, or it is a simulator of ours."""
    assert run_preflight(HostEnvironment(Ward("step")), private=False) is None
    ours = make(gymnasium.make("privrl/Chain-v0"))
    assert not is_live(ours)
    assert run_preflight(ours, private=True) is None
    with pytest.raises(RuntimeError, match="sensor"):
        LEARNERS["actor-critic"](Ward("step"), session=PrivacySession(public=True))


def test_what_is_live_is_what_may_be_somebody_elses(ward: str) -> None:
    """One of ours on the host is none, unless something around it changes what happens."""
    from privrl.envs.control import CartPoleParams

    heavy = gymnasium.make("privrl/CartPole-v0", params=CartPoleParams(gravity=20.0))
    ours = make(heavy)
    assert isinstance(ours, HostEnvironment)
    assert not is_live(ours)
    assert is_live(make(gymnasium.wrappers.TransformReward(heavy, lambda reward: -float(reward))))
    assert is_live(make(ward))
    assert is_live(make("Acrobot-v1"))
    assert not is_live(make("Taxi-v4"))


def test_what_is_made_from_one_of_ours_may_be_somebody_elses() -> None:
    """People may be asked in it, who answer otherwise when they play again under the same noise."""

    class Asked(GymnasiumEnv):
        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            seen, _, *rest = super().step(action)
            return seen, float(np.random.default_rng().random()), *rest

    class Clock(gymnasium.wrappers.TimeLimit):
        def step(self, action: Any) -> Any:
            seen, _, *rest = super().step(action)
            return seen, float(np.random.default_rng().random()), *rest

    class Lake(FrozenLakeEnv):
        def step(self, a: Any) -> Any:
            seen, _, *rest = super().step(a)  # type: ignore[no-untyped-call]
            return seen, float(np.random.default_rng().random()), *rest

    inside = gymnasium.make("privrl/Chain-v0").unwrapped
    assert isinstance(inside, GymnasiumEnv)
    assert not isinstance(make(FrozenLakeEnv()), HostEnvironment)
    for made in (make(Asked(inside.env)), make(Clock(inside, 5)), make(Lake())):
        assert isinstance(made, HostEnvironment)
        assert is_live(made)


WORDS = ["train", "actor-critic", "--people", "6", "--batch", "2", "--max-steps", "3"]
WORDS += ["--return-range", "0,1", "--epsilon", "5", "--delta", "1e-6"]


def test_the_command_line_tries_it_and_takes_a_waiver(
    ward: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gymnasium.register("Broken-v0", lambda **given: Ward(**given), kwargs={"fault": "step"})
    try:
        words = [*WORDS, "--env", "Broken-v0", "--out", str(tmp_path / "run")]
        assert cli.run(words) == 2
        told = capsys.readouterr()
        assert told.err == (
            "privrl: Broken-v0 does not work, so nobody should play in it: its pre-flight failed "
            "at its step 1 with RuntimeError, The sensor is not plugged in.\n"
        )
        assert told.out == ""
        assert not (tmp_path / "run").exists()
        assert cli.run([*words, "--no-preflight"]) == 0
    finally:
        del gymnasium.registry["Broken-v0"]
    certificate = Certificate.read(tmp_path / "run" / "certificate.json")
    assert any("the environment works" in one.statement for one in certificate.assumptions)
    secret = ["--reward-radius", "0.5", "--reward-range", "0,1", "--steps", "20"]
    for learner in ("functional-q", "prospect"):
        run = tmp_path / learner
        words = ["train", learner, "--env", ward, *secret, "--epsilon", "5", "--delta", "1e-6"]
        assert cli.run([*words, "--no-preflight", "--out", str(run)]) == 0
        certificate = Certificate.read(run / "certificate.json")
        assert any("the environment works" in one.statement for one in certificate.assumptions)
