"""From a bare table to a command: every question in turn, then the answer."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tacit.data import Fourier, OneHot, Polynomial, Tabular, Trajectories, TrajectoryStream
from tacit.evaluation import Schema, simulate_like
from tacit.privacy import InputError
from tacit.run.request import Request

STATES = ("mild", "moderate", "severe")
ACTIONS = ("wait", "treat")
LOGGED = Tabular(np.array([[0.5, 0.5], [0.4, 0.6], [0.3, 0.7]]))
JUDGED = Tabular(np.array([[0.6, 0.4], [0.4, 0.6], [0.2, 0.8]]))
COLUMNS = {
    "trajectory": "stay",
    "state": "condition",
    "action": "treatment",
    "reward": "outcome",
    "behavior_prob": "p",
}


def stays(people: int = 300) -> Trajectories:
    schema = Schema(people, 5, 2, (0.0, 1.0), num_states=3, ending=0.1, num_users=people // 2)
    return simulate_like(schema, 0, LOGGED)


def table(data: Trajectories) -> pa.Table:
    rows = np.repeat(np.arange(len(data)), data.lengths)
    assert data.users is not None
    return pa.table(
        {
            "stay": rows,
            "patient": np.asarray(data.users)[rows],
            "condition": np.array(STATES)[data.states],
            "treatment": np.array(ACTIONS)[data.actions],
            "outcome": data.rewards,
            "p": data.behavior_probs,
        }
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = table(stays())
    pa_csv.write_csv(rows, tmp_path / "stays.csv")
    pq.write_table(rows.sort_by([("patient", "ascending")]), tmp_path / "stays.parquet")
    JUDGED.save(tmp_path / "policy.json")
    LOGGED.save(tmp_path / "followed.json")
    return tmp_path


def said(folder: Path, **changed: Any) -> dict[str, Any]:
    words: dict[str, Any] = {
        "table": (str(folder / "stays.csv"),),
        "policy": str(folder / "policy.json"),
        **COLUMNS,
        "states": ",".join(STATES),
        "actions": ",".join(ACTIONS),
        "epsilon": 1.0,
        "delta": 1e-5,
        "reward_range": "0,1",
        "horizon": 5,
        "weight_cap": 4.0,
    }
    return {name: value for name, value in (words | changed).items() if value is not None}


def test_following_the_questions_leads_to_an_answer(folder: Path) -> None:
    """Whoever starts with the table alone and answers each question gets there."""
    complete, words, asked = said(folder), {}, []
    words["table"] = complete["table"]
    while True:
        try:
            study = Request.of(words).study(seed=1)
            break
        except InputError as error:
            missing = next(
                name
                for name in complete
                if name not in words and re.search(rf"--{name.replace('_', '-')}\b", str(error))
            )
            asked.append(missing)
            words[missing] = complete[missing]
    assert asked[:5] == ["trajectory", "state", "action", "reward", "policy"]
    assert set(asked) == set(complete) - {"table"}
    assert study.certificate is not None
    assert study.certificate.epsilon <= 1.0


def test_questions_name_the_columns(folder: Path) -> None:
    with pytest.raises(InputError, match=r"The columns are stay, patient, condition, treatment"):
        Request.of({"table": (str(folder / "stays.csv"),)}).study()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"table": ("nowhere.csv",)}, "There is no file nowhere.csv"),
        ({"table": ("notes.txt",)}, "neither Parquet nor CSV"),
        ({"reward_range": "0"}, "two numbers"),
        ({"reward_range": "1,0"}, "lowest first"),
        ({"reward_range": "0,much"}, "must be a number"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"estimators": "magic"}, "There is no estimator 'magic'"),
        ({"estimators": "gtd"}, "must contain value"),
        ({"estimators": "value:0"}, "share of value"),
        ({"estimators": "value,value"}, "twice"),
        ({"features": "fourier:2"}, "are a table"),
        ({"grid": True, "estimators": "value,gtd"}, "alone"),
        ({"states": "mild,severe"}, "moderate|vocabulary|not among|states"),
        ({"public": True}, "no --epsilon"),
        ({"start": "0:1"}, "one for each"),
        ({"stream": True}, "for Parquet files"),
    ],
)
def test_what_cannot_be_meant(folder: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Request.of(said(folder, **changed)).study()


def test_unknown_names_are_refused_with_a_hint(folder: Path) -> None:
    with pytest.raises(InputError, match="Did you mean 'epsilon'"):
        Request.of({"epsilom": 1.0})


def test_a_configuration_says_the_same_as_options(folder: Path) -> None:
    words = said(folder)
    lines = [f"{name} = {json.dumps(value)}" for name, value in words.items()]
    (folder / "job.toml").write_text("\n".join(lines).replace("reward_range", "reward-range"))
    (folder / "job.json").write_text(json.dumps(words | {"reward_range": [0, 1]}))
    direct = Request.of(words)
    for config in ("job.toml", "job.json"):
        read = Request.of({}, folder / config)
        assert read.command() == direct.command() or config == "job.json"
        assert read.study(seed=3).main.estimate == direct.study(seed=3).main.estimate
    over = Request.of({"horizon": 2}, folder / "job.toml")
    assert over.horizon == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [("epsilon = ", "is not TOML"), ('horizon = "two"', "number"), ("public = 1", "true or false")],
)
def test_bad_configurations(folder: Path, text: str, words: str) -> None:
    (folder / "job.toml").write_text(text)
    with pytest.raises(InputError, match=words):
        Request.of({}, folder / "job.toml")


def test_a_stream_gives_what_memory_gives(folder: Path) -> None:
    words = said(folder, table=(str(folder / "stays.parquet"),), user="patient")
    shares: list[float] = []

    def progress(what: str, share: float | None = None) -> None:
        if share is not None:
            shares.append(share)

    whole = Request.of(words).study(seed=2)
    streamed = Request.of(words | {"stream": True}).study(seed=2, progress=progress)
    assert streamed.main.estimate == pytest.approx(whole.main.estimate, abs=1e-9)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert isinstance(Request.of(words | {"stream": True}).load(JUDGED), TrajectoryStream)


def test_a_known_protocol_stands_in_for_probabilities(folder: Path) -> None:
    """In memory and on a stream: the policy that was followed gives the logged probabilities."""
    logged = Request.of(said(folder, table=(str(folder / "stays.parquet"),), user="patient"))
    words = said(
        folder,
        table=(str(folder / "stays.parquet"),),
        user="patient",
        behavior_prob=None,
        behavior=str(folder / "followed.json"),
    )
    for stream in (False, True):
        known = Request.of(words | ({"stream": True} if stream else {}))
        assert known.study(seed=5).main.estimate == pytest.approx(
            logged.study(seed=5).main.estimate, abs=1e-9
        )


def test_words_read_from_the_data_are_not_public(folder: Path) -> None:
    words = said(folder, actions=None, states=None, policy=None, target_prob="p")
    with pytest.raises(InputError, match="--states which words"):
        Request.of(words).study()


def test_features_by_name(folder: Path) -> None:
    box = {"state": "a,b", "state_range": "0:1,-1:1"}
    assert isinstance(Request.of(said(folder))._features(None), OneHot)
    assert isinstance(Request.of(said(folder, **box))._features(None), Polynomial)
    found = Request.of(said(folder, **box, features="fourier:3"))._features(None)
    assert isinstance(found, Fourier)
    assert found.order == 3
    with pytest.raises(InputError, match="1 ranges for 2 states"):
        Request.of(said(folder, state="a,b", state_range="0:1"))._features(None)
    with pytest.raises(InputError, match="state_range is needed"):
        Request.of(said(folder, state="a,b", features="fourier:3"))._features(None)


def test_facts_and_command_tell_everything(folder: Path) -> None:
    words = said(folder, user="patient", gamma=0.9)
    study = Request.of(words).study(seed=1)
    facts = {fact.name: fact for fact in study.facts}
    assert facts["number of people"].value == "150"
    assert facts["reward_range"].value == "0 to 1"
    assert facts["gamma"].origin == "given"
    assert facts["states"].value == "mild, moderate, severe"
    for name in words:
        assert f"--{name.replace('_', '-')}" in study.command or name == "table"
    assert study.slices[0].labels == STATES
    assert Request.of(said(folder)).study(seed=1).notes[0].startswith("Each trajectory")
