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
import typer

from privrl import cli
from privrl.cli import option_names
from privrl.core.questions import MissingOptions
from privrl.data import (
    Fourier,
    OneHot,
    Polynomial,
    Softmax,
    Tabular,
    Trajectories,
    TrajectoryStream,
)
from privrl.evaluation import Schema, simulate_like
from privrl.privacy import Gaussian, InputError, LargeDelta, RandomAllocation
from privrl.run.request import Request

STATES = ("mild", "moderate", "severe")
ACTIONS = ("wait", "treat")
BOUNDS = {"epsilon", "reward_range", "weight_cap"}
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
    """Whoever starts with the table alone is asked for everything at once, and gets there."""
    complete, words, asked = said(folder), {}, []
    group: Any = typer.main.get_command(cli.app)
    context = group.commands["evaluate"].make_context("evaluate", [])
    words["table"] = complete["table"]
    while True:
        try:
            study = Request.of(words).run_study(seed=1)
            break
        except InputError as error:
            told = error.render(option_names.option_formatter(context))
            missing = [
                name
                for name in complete
                if name not in words and re.search(rf"--{name.replace('_', '-')}\b", told)
            ]
            assert missing, told
            asked.append(set(missing))
            words |= {name: complete[name] for name in missing}
    # What states and actions can be depends on what the columns hold, which is read last.
    assert asked == [set(complete) - {"table", "states", "actions"}, {"states"}, {"actions"}]
    assert study.certificate is not None
    assert study.certificate.epsilon <= 1.0


def test_all_that_is_missing_is_asked_for_in_one_list(folder: Path) -> None:
    with pytest.raises(MissingOptions) as refused:
        Request.of({"table": (str(folder / "stays.csv"),)}).run_study()
    error = refused.value
    names = ["trajectory", "state", "action", "reward", "policy", "behavior_prob"]
    names += ["epsilon", "delta", "reward_range", "horizon", "weight_cap"]
    assert [one.field for one in error.questions] == names
    lines = error.lines()
    assert lines[0] == "11 options are needed:"
    assert lines[-1] == "  The columns are stay, patient, condition, treatment, outcome, p."
    assert len(lines) == 1 + len(names) + 1


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"public": True}, {"policy", "behavior_prob", "horizon"}),
        ({"public": True, "gamma": 1.0}, {"policy", "behavior_prob", "horizon"}),
        ({"public": True, "gamma": 0.0, "target_prob": "p"}, {"behavior_prob"}),
        ({"gamma": 0.9, "behavior": "f.json", "policy": "g.json", "delta": 0.0}, BOUNDS),
    ],
)
def test_only_what_is_needed_is_asked_for(
    folder: Path, given: dict[str, Any], missing: set[str]
) -> None:
    columns = {name: COLUMNS[name] for name in ("trajectory", "state", "action", "reward")}
    request = Request.of({"table": (str(folder / "stays.csv"),), **columns, **given})
    assert {one.field for one in request.missing()} == missing


def test_questions_name_the_columns(folder: Path) -> None:
    with pytest.raises(InputError, match=r"The columns are stay, patient, condition, treatment"):
        Request.of({"table": (str(folder / "stays.csv"),)}).run_study()


@pytest.mark.parametrize(
    ("role", "name", "words"),
    [
        ("trajectory", "stays", "no column 'stays': did you mean 'stay'"),
        ("state", "condition,hart", "no column 'hart': it has"),
        ("user", "patent", "did you mean 'patient'"),
    ],
)
def test_a_misspelled_column_is_said_before_anything_else_is_asked(
    folder: Path, role: str, name: str, words: str
) -> None:
    with pytest.raises(InputError, match=words):
        Request.of({"table": (str(folder / "stays.csv"),), role: name}).run_study()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"table": ("nowhere.csv",)}, "There is no file nowhere.csv"),
        ({"table": ("notes.txt",)}, "neither Parquet nor CSV"),
        ({"reward_range": "0"}, "two numbers"),
        ({"reward_range": "1,0"}, "reward_range must go up"),
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
        ({"start": "0"}, "words of --states"),
        ({"states": None, "state": "stay", "start": "7"}, "whole numbers from 0 to 2"),
        (
            {"states": None, "state": "p,stay", "state_range": "0:1,0:9", "start": "0"},
            "one for each",
        ),
        ({"states": None, "state": "p,stay"}, "a table over discrete states"),
        ({"estimators": "value,lstd"}, "--terminated .* or take --gamma below 1"),
        ({"states": "Mild,moderate,severe"}, "the state is not among state_vocabulary"),
        ({"states": None}, "with state_vocabulary which words .* in the policy's order"),
        ({"actions": None}, "with action_vocabulary which words .* in the policy's order"),
        ({"state": "stay", "states": None}, "with state_vocabulary, in the policy's order"),
        ({"action": "treatment,p", "actions": None}, "name one column, as action="),
        ({"nulls": "fill"}, "refuse, carry .* not 'fill'"),
        ({"nulls": "carry"}, "'outcome' may hold nulls, .* add {'outcome': 'refuse'}, or"),
        ({"nulls": "carry,reward=refuse"}, "'p' may hold nulls, by its type, and nulls gives"),
        ({"nulls": "reward=carry"}, "'outcome' cannot be carried forward"),
        ({"nulls": "reward=low"}, "What --nulls gives outcome must be a number"),
        ({"nulls": "terminated=0"}, "--nulls names terminated, which no column"),
        ({"nulls": "reward=0,reward=1"}, "nulls gives reward two rules"),
        ({"horizon": 0}, "horizon must be at least 1, not 0"),
        ({"delta": 0.0}, "delta above 0"),
        ({"gamma": 2.0}, "gamma must be at most 1"),
        ({"target_prob": "p"}, "--policy and --target-prob"),
        ({"behavior": "followed.json"}, "--behavior and --behavior-prob"),
        ({"return_range": "1"}, "return_range must be two numbers"),
        ({"delta": 0.5, "gamma": 0.9}, "take a smaller delta"),
        ({"stream": True}, "for Parquet files"),
    ],
)
def test_what_cannot_be_meant(folder: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Request.of(said(folder, **changed)).run_study()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("semicolons.csv", b"stay;p\n4711;0,5\n", "semicolons between its columns"),
        ("tabs.csv", b"stay\tp\n4711\t0.5\n", "tabs between its columns"),
        ("latin.csv", "stay,gr\u00f6\u00dfe\n4711,1\n".encode("latin-1"), "UTF-8"),
        ("excel.csv", "stay,p\n4711,1\n".encode("utf-16"), "UTF-8"),
        ("empty.csv", b"", "no header"),
        ("stays.csv.gz", b"4711", "unpack it"),
        ("broken.parquet", b"4711", r"cannot be read as Parquet: [^.]*\.$"),
    ],
)
def test_tables_of_another_kind(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    """One sentence says what to do, and never quotes a cell."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=words) as refused:
        Request.of({"table": (str(tmp_path / name),)}).run_study()
    assert "4711" not in str(refused.value)


def test_names_of_columns_below_a_mark_and_in_capitals(tmp_path: Path) -> None:
    wide = ",".join(f"lab{k}" for k in range(1000))
    (tmp_path / "STAYS.CSV").write_bytes(f"\ufeffstay,{wide}\n".encode())
    with pytest.raises(InputError, match=r"The columns are stay, lab0, .*lab28 and 971 more\."):
        Request.of({"table": (str(tmp_path / "STAYS.CSV"),)}).run_study()


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"outcome": None}, "csv", "quotes around NA .* rule with nulls"),
        (
            {"outcome": None},
            "parquet",
            "a rule with nulls, such as {'outcome': 'fill'}",
        ),
        ({"p": 60.0}, "parquet", "divided by 100"),
        ({"stay": 0}, "parquet", "or pass sort=True"),
    ],
)
def test_bad_rows_are_answered_by_what_to_say(
    folder: Path, change: dict[str, Any], kind: str, words: str
) -> None:
    rows = table(stays()).to_pylist()
    rows[-1] |= change
    if kind == "csv":
        pa_csv.write_csv(pa.Table.from_pylist(rows), folder / "bad.csv")
    else:
        pq.write_table(pa.Table.from_pylist(rows), folder / "bad.parquet")
    with pytest.raises(InputError, match=words):
        Request.of(said(folder, table=(str(folder / f"bad.{kind}"),))).run_study()


def test_nothing_discounted_is_not_a_default(folder: Path) -> None:
    """0 is something to say: a discount of 0 leaves the first reward alone."""
    first = Request.of(said(folder, gamma=0.0))
    assert first.gamma == 0.0
    assert "--gamma 0.0" in first.command()
    study = first.run_study(seed=1)
    assert study.main.settings["gamma"] == 0.0
    assert {fact.name: fact.value for fact in study.facts}["return_range"] == "0 to 1"


def test_both_policies_choose_among_the_same(folder: Path) -> None:
    Tabular.uniform(3, 4).save(folder / "four.json")
    words = said(folder, behavior_prob=None, behavior=str(folder / "four.json"))
    with pytest.raises(InputError, match="judge has 2 actions, but the one that was followed has"):
        Request.of(words).run_study()


def test_value_functions_only_where_rewards_end(folder: Path) -> None:
    """By default nothing is spent on sums that do not exist."""
    assert len(Request.of(said(folder)).run_study(seed=1).results) == 1
    assert len(Request.of(said(folder, terminated="true")).run_study(seed=1).results) == 2
    assert len(Request.of(said(folder, terminated="false")).run_study(seed=1).results) == 1
    public = said(folder, epsilon=None, delta=None, public=True)
    found = [one.method for one in Request.of(public).run_study().results]
    assert found == ["WIS", "IS", "PDIS", "WPDIS"]
    ended = Request.of(public | {"terminated": "true"}).run_study().results
    assert [one.method for one in ended][-2:] == ["FQE", "LSTD"]


def test_public_data_needs_no_bounds(folder: Path) -> None:
    bounded = said(folder, epsilon=None, delta=None, public=True, terminated="true")
    free = {k: v for k, v in bounded.items() if k not in ("reward_range", "weight_cap")}
    studies = [Request.of(words).run_study() for words in (bounded, free)]
    bounded_results, free_results = (one.to_dict()["results"] for one in studies)
    assert bounded_results == free_results
    named = {fact.name for one in studies for fact in one.facts}
    assert not named & {"reward_range", "return_range", "weight_cap", "estimators"}


def test_start_states_by_their_words(folder: Path) -> None:
    by_word = Request.of(said(folder, start="severe,mild")).evaluation_spec(JUDGED)
    assert by_word.start.tolist() == [2, 0]
    codes = Request.of(said(folder, states="1,2,3", start="3")).evaluation_spec(JUDGED)
    assert codes.start.tolist() == [2]
    numbers = Request.of(said(folder, states=None, start="2")).evaluation_spec(JUDGED)
    assert numbers.start.tolist() == [2]
    box = said(folder, states=None, state="a", state_range="0:200", start="90.5,80")
    assert Request.of(box).evaluation_spec(None).start.tolist() == [[90.5], [80.0]]


def test_one_column_of_whole_numbers_can_be_a_vector(folder: Path) -> None:
    """Heart rates are whole numbers, but not the names of states."""
    basis = Polynomial(1, (0.0,), (300.0,))
    Softmax(basis, np.array([[0.1, 0.0], [0.0, 0.2]])).save(folder / "soft.json")
    words = said(folder, state="stay", states=None, policy=str(folder / "soft.json"))
    for box in ({}, {"state_range": "0:300"}):
        request = Request.of(words | box)
        policy, _ = request.load_policies()
        data = request.load(policy)
        assert isinstance(data, Trajectories)
        assert data.states.shape == (data.num_steps, 1)
        assert request.run_study(seed=1).certificate is not None
    with pytest.raises(InputError, match=r"soft\.json is not about states of 2 columns"):
        Request.of(words | {"state": "stay,p"}).run_study()


def test_rewards_at_the_end_need_less_noise(folder: Path) -> None:
    rows = table(stays())
    last = np.append(np.diff(rows["stay"].to_numpy()) != 0, True)
    ended = rows.set_column(4, "outcome", pa.array(rows["outcome"].to_numpy() * last))
    pq.write_table(ended, folder / "ended.parquet")
    words = said(folder, table=(str(folder / "ended.parquet"),))
    wide = Request.of(words).run_study(seed=4)
    narrow = Request.of(words | {"return_range": "0,1"}).run_study(seed=4)
    widths = []
    for study in (wide, narrow):
        held = study.main.details["behavior"]["interval"]
        widths.append(held["high"] - held["low"])
    assert widths[1] < 0.3 * widths[0]
    assert narrow.curve[0].half_width < 0.3 * wide.curve[0].half_width
    facts = {fact.name: fact for fact in narrow.facts}
    assert (facts["return_range"].value, facts["return_range"].origin) == ("0 to 1", "given")
    assert "--return-range 0,1" in narrow.command


def test_a_delta_that_somebody_fails_is_said(folder: Path) -> None:
    with pytest.warns(LargeDelta, match="not below 1/300") as warned:
        found = Request.of(said(folder, delta=0.01)).run_study(seed=1)
    assert len(warned) == 1
    assert any("300 who are" in note for note in found.notes)
    assert not any("Delta" in n for n in Request.of(said(folder)).run_study(seed=1).notes)


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
        assert read.run_study(seed=3).main.estimate == direct.run_study(seed=3).main.estimate
    over = Request.of({"horizon": 2}, folder / "job.toml")
    assert over.horizon == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('out = "here"', "say --out there"),
        ("return_range = [0]", "two numbers"),
        ("epsilon = ", "is not TOML"),
        ('horizon = "two"', "number"),
        ("public = 1", "true or false"),
    ],
)
def test_bad_configurations(folder: Path, text: str, words: str) -> None:
    (folder / "job.toml").write_text(text)
    with pytest.raises(InputError, match=words):
        Request.of(said(folder, horizon=None, gamma=0.9), folder / "job.toml").run_study()


def test_a_stream_gives_what_memory_gives(folder: Path) -> None:
    words = said(folder, table=(str(folder / "stays.parquet"),), user="patient")
    shares: list[float] = []

    def progress(what: str, share: float | None = None) -> None:
        if share is not None:
            shares.append(share)

    whole = Request.of(words).run_study(seed=2)
    streamed = Request.of(words | {"stream": True}).run_study(seed=2, progress=progress)
    assert streamed.main.estimate == pytest.approx(whole.main.estimate, abs=1e-9)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
    assert isinstance(Request.of(words | {"stream": True}).load(JUDGED), TrajectoryStream)


def test_the_number_of_rows_does_not_choose_the_algorithm(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = said(
        folder, table=(str(folder / "stays.parquet"),), user="patient", gamma=0.9, terminated=True
    )
    few = Request.of(words).run_study(seed=2)
    monkeypatch.setattr("privrl.run.table_files._rows", lambda _: 10**9)
    many = Request.of(words).run_study(seed=2)
    assert few.certificate is not None
    assert many.certificate is not None
    assert [one.method for one in few.results] == ["PrivateValue", "PrivateGTD"]
    assert many.certificate.to_json() == few.certificate.to_json()
    assert many.results[1].settings == few.results[1].settings


@pytest.mark.slow
def test_one_pass_gets_what_the_others_leave(folder: Path) -> None:
    words = said(
        folder, table=(str(folder / "stays.parquet"),), user="patient", gamma=0.9, terminated=True
    )
    study = Request.of(words | {"stream": True, "sort": True}).run_study(seed=2)
    assert study.certificate is not None
    first, second = study.certificate.events
    assert isinstance(first, Gaussian)
    # 150 people, and a budget that is 0.14-GDP: fifty steps are the fewest.
    assert second == RandomAllocation(Gaussian(study.results[1].settings["noise"], 1.0), 50)
    assert 0.999 <= study.certificate.epsilon <= 1.0
    study.certificate.verify()
    statements = [one.statement for one in study.certificate.assumptions]
    assert any("step is uniform" in one for one in statements)


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
        assert known.run_study(seed=5).main.estimate == pytest.approx(
            logged.run_study(seed=5).main.estimate, abs=1e-9
        )


def test_words_read_from_the_data_are_not_public(folder: Path) -> None:
    words = said(folder, actions=None, states=None, policy=None, target_prob="p")
    with pytest.raises(InputError, match="say with states which words"):
        Request.of(words).run_study()


def test_features_by_name(folder: Path) -> None:
    box = {"state": "a,b", "state_range": "0:1,-1:1"}
    assert isinstance(Request.of(said(folder)).state_features(None), OneHot)
    assert isinstance(Request.of(said(folder, **box)).state_features(None), Polynomial)
    found = Request.of(said(folder, **box, features="fourier:3")).state_features(None)
    assert isinstance(found, Fourier)
    assert found.order == 3
    with pytest.raises(InputError, match="1 ranges for states of 2 numbers"):
        Request.of(said(folder, state="a,b", state_range="0:1")).state_features(None)
    with pytest.raises(InputError, match="state_range is needed"):
        Request.of(said(folder, state="a,b", features="fourier:3")).state_features(None)


def test_facts_and_command_tell_everything(folder: Path) -> None:
    words = said(folder, user="patient", gamma=0.9)
    study = Request.of(words).run_study(seed=1)
    facts = {fact.name: fact for fact in study.facts}
    assert facts["number of people"].value == "150"
    assert facts["number of people"].origin == "counted"
    assert facts["reward_range"].value == "0 to 1"
    assert facts["gamma"].origin == "given"
    assert facts["states"].value == "mild, moderate, severe"
    for name in words:
        assert f"--{name.replace('_', '-')}" in study.command or name == "table"
    assert study.slices[0].labels == STATES
    assert Request.of(said(folder)).run_study(seed=1).notes[0].startswith("Each trajectory")


RULES = "state=carry,reward=0,behavior_prob=refuse"


def test_no_word_tells_whether_there_was_a_null(folder: Path) -> None:
    """A null that is answered by what stood there before leaves the study as it is."""
    rows = table(stays()).to_pylist()
    same = ("stay", "condition")
    repeats = [i for i in range(1, len(rows)) if all(rows[i][n] == rows[i - 1][n] for n in same)]
    studies = []
    for name, change in (("whole", {}), ("lacking", {"condition": None})):
        changed = [dict(row) for row in rows]
        changed[repeats[0]] |= change
        (folder / name).mkdir()
        path = folder / name / "stays.parquet"
        pq.write_table(pa.Table.from_pylist(changed), path)
        asked = Request.of(said(folder, table=(str(path),), nulls=RULES))
        found = asked.run_study(seed=0).to_dict()
        studies.append({k: v for k, v in found.items() if k not in ("created", "command")})
    assert studies[0] == studies[1]
    assert any(f"answered by the rule {RULES}" in note for note in studies[0]["notes"])


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        ("time=0", "Nulls in 't' are always refused: it says which row it is."),
        ("trajectory=none", "Nulls in 'stay' are always refused: it says which row it is."),
        ("user=none", "Nulls in 'patient' are always refused: it says which row it is."),
        ("reward=1e999", "fill must give a finite number or a word for 'outcome'."),
        ("state=bad", "fill gives 'condition' a value that is no state."),
        ("nothing=0", "nulls names 'nothing', which is not a column that is read."),
        ("next-state=carry", "--nulls names next_state, which no column was named for."),
    ],
)
def test_rules_for_nulls_are_refused_whatever_is_in_the_table(
    folder: Path, rule: str, told: str
) -> None:
    """Whether or not there is a null: these are about the rule."""
    rows = [{**row, "t": n} for n, row in enumerate(table(stays()).to_pylist())]
    path = folder / "timed.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    words = {"table": (str(path),), "time": "t", "user": "patient", "nulls": rule}
    asked = Request.of(said(folder, **words, invalid="neutral", people=150))
    with pytest.raises(InputError) as refusal:
        asked.load(JUDGED)
    assert str(refusal.value) == told


def test_rewards_are_not_carried(tmp_path: Path) -> None:
    """A stay with rewards 1 and two empty cells is worth 1, not 3."""
    rows = [f"{i},{t},0,0,{'1' if t == 0 else ''},1" for i in range(40) for t in range(3)]
    path = tmp_path / "stays.csv"
    path.write_text("\n".join(["stay,t,s,a,r,p", *rows]) + "\n")
    Tabular(np.array([[1.0, 0.0]])).save(tmp_path / "policy.json")
    words = {
        "table": (str(path),),
        "policy": str(tmp_path / "policy.json"),
        "trajectory": "stay",
        "state": "s",
        "action": "a",
        "reward": "r",
        "behavior_prob": "p",
        "time": "t",
        "public": True,
        "horizon": 3,
        "num_states": 1,
    }
    found = Request.of({**words, "nulls": RULES}).run_study()
    assert found.main.estimate == 1.0
    with pytest.raises(InputError, match="'r' may hold nulls, by its type"):
        Request.of({**words, "nulls": "carry"}).run_study()
