"""Words become learners from logged data of people."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl.control import Network
from privrl.core.errors import InputError
from privrl.data import Fourier, OneHot, Polynomial
from privrl.envs.base import Box, Discrete
from privrl.privacy import Budget
from privrl.run.runners import Runner, plan_sweep, resume_in, train_in
from privrl.run.runners.logged_q import LoggedQRunner

WORDS = {
    "table": ("stays.parquet",),
    "trajectory": "stay",
    "state": "hr,map",
    "state_range": "30:200,40:140",
    "action": "dose",
    "num_actions": 3,
    "reward": "r",
    "reward_range": "-1,2",
    "epsilon": 1.0,
    "delta": 1e-5,
}
BOX = (30.0, 40.0), (200.0, 140.0)
VECTORS = Box((-math.inf,) * 2, (math.inf,) * 2, ("",) * 2)


def stays(path: Path) -> str:
    """A table of sixty one-step stays of thirty people; beside it, an empty folder for the run."""
    (path.parent / "run").mkdir()
    draw = np.random.default_rng(0)
    count = 60
    columns = {
        "stay": np.arange(count),
        "patient": np.arange(count) // 2,
        "hr": draw.uniform(30, 200, count),
        "map": draw.uniform(40, 140, count),
        "ward": draw.choice(["north", "south"], count),
        "dose": draw.integers(3, size=count),
        "r": draw.uniform(-1, 2, count),
        "over": np.ones(count, bool),
    }
    pq.write_table(pa.table(columns), path)
    return str(path)


def test_what_was_said_is_what_the_agent_has() -> None:
    said = {
        "gamma": 0.5,
        "updates": 7,
        "step": 3.0,
        "clip": 0.2,
        "target_every": 4,
        "optimiser": "adam",
        "average": 0.0,
    }
    agent = LoggedQRunner.of({**WORDS, **said, "features": "fourier:3"}).agent()
    assert {name: getattr(agent, name) for name in said} == said
    assert (agent.num_actions, agent.reward_range) == (3, (-1.0, 2.0))
    assert agent.budget == Budget(1.0, 1e-5)
    assert agent.resolve_features(VECTORS) == Fourier(3, *BOX)
    # Without --epsilon it is nobody's, and has no noise.
    public = {k: v for k, v in WORDS.items() if k not in ("epsilon", "delta")}
    assert LoggedQRunner.of({**public, "public": True}).agent().budget is None


def test_a_runner_comes_back_from_its_words() -> None:
    runner = LoggedQRunner.of({**WORDS, "terminated": "true", "sort": True})
    assert runner.state == ("hr", "map")
    assert Runner.of(runner.to_dict()) == runner
    # As a file would have them.
    listed = {**WORDS, "table": "stays.parquet", "state": ["hr", "map"], "reward_range": [-1, 2]}
    listed |= {"state_range": [[30, 200], [40, 140]], "terminated": True, "sort": True}
    assert LoggedQRunner.of(listed) == runner


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ({}, Polynomial(2, *BOX)),
        ({"features": "polynomial:3"}, Polynomial(3, *BOX)),
        ({"features": "network:8,4"}, Network((8, 4), Polynomial(1, *BOX))),
        ({"state": "ward", "state_range": None, "states": "north,south"}, None),
        ({"state": "ward", "state_range": None, "num_states": 5, "features": "table"}, OneHot(5)),
        ({"state": "ward", "state_range": None, "num_states": 5, "features": "network"}, Network()),
    ],
)
def test_features_by_name(words: dict[str, Any], wanted: Any) -> None:
    agent = LoggedQRunner.of({**WORDS, **words}).agent()
    observed = VECTORS if agent.num_states is None else Discrete(agent.num_states)
    assert agent.resolve_features(observed) == wanted
    assert agent.num_states == {"north,south": 2}.get(words.get("states", ""), agent.num_states)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"env": "Taxi-v4"}, "env is not used: logged-q learns from a table"),
        ({"mode": "paper"}, "There are no modes any more. Leave mode out"),
        ({"policy": "x.json"}, "There is no option 'policy'"),
        ({"trajectry": "x"}, "Did you mean 'trajectory'?"),
        ({"ledger": "x"}, "ledger belongs on the command line"),
        ({"learner": "actor-critic"}, "learner must be 'logged-q' here"),
        ({"updates": 0}, "updates must be at least 1"),
        ({"clip": "much"}, "clip must be a number"),
        ({"epsilon": float("inf")}, "epsilon must be positive and finite"),
        ({"nulls": "guess"}, "nulls must be refuse, carry"),
        ({"sort": "yes"}, "sort must be true or false"),
    ],
)
def test_words_that_there_are_not(words: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence.replace("?", r"\?")):
        LoggedQRunner.of({**WORDS, **words})


def test_it_is_no_runner_for_a_sweep() -> None:
    with pytest.raises(InputError, match="There is no sweep over logged-q"):
        plan_sweep({"learner": "logged-q"}, (), ())
    with pytest.raises(InputError, match="There is no sweep over logged-q"):
        LoggedQRunner.of(WORDS).program()


def test_it_is_taught_into_a_folder(tmp_path: Path) -> None:
    words = {**WORDS, "table": stays(tmp_path / "stays.parquet"), "user": "patient"}
    runner = LoggedQRunner.of({**words, "terminated": "over", "updates": 3})
    found = train_in(runner, tmp_path / "run", seed=1)
    assert (found.done, found.planned) == (3, 3)
    assert set(found.written) == {"certificate", "policy", "result"}
    learned: Any = found.learned
    assert learned.settings["people"] == 30
    assert str(learned.certificate.unit) == "user"
    with pytest.raises(InputError, match="is finished: there is nothing to resume"):
        resume_in(tmp_path / "run")


def test_whoever_stops_it_before_it_is_paid_for_leaves_nothing(tmp_path: Path) -> None:
    words = {**WORDS, "table": stays(tmp_path / "stays.parquet")}
    with pytest.raises(KeyboardInterrupt):
        train_in(LoggedQRunner.of(words), tmp_path / "run", stop=lambda: True)
    assert not list((tmp_path / "run").glob("*"))


def test_a_killed_run_cannot_go_on(tmp_path: Path) -> None:
    words = {**WORDS, "table": stays(tmp_path / "stays.parquet"), "updates": 2}
    train_in(LoggedQRunner.of(words), tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(InputError, match="has no checkpoint, so it cannot go on: start it again"):
        resume_in(tmp_path / "run")
