"""`privrl train logged-q` as people meet it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.control import LearnedQ, LoggedQ, noised_q
from privrl.data import Fourier, Trajectories, load_policy
from privrl.privacy import Budget, Certificate, Ledger, Relation, Unit
from privrl.privacy.resuming import KEY_FILE
from privrl.privacy.session import PrivacySession

TRAIN = ["train", "logged-q"]
COLUMNS = [
    *("--trajectory", "stay", "--user", "patient", "--time", "t", "--state", "hr,map"),
    *("--action", "dose", "--reward", "r"),
]
BUDGET = ["--epsilon", "1", "--delta", "1e-3"]
RANGE = ["--reward-range", "-1,1"]
COUNT = ["--num-actions", "2"]
STATES = ["--state-range", "30:200,40:140", "--features", "fourier:1"]
REST = [*COLUMNS, *BUDGET, *RANGE, *COUNT, *STATES, "--updates", "4"]
PEOPLE = 25


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Stays of three steps, two for each of 25 patients; more blood pressure wants a dose."""
    draw, stays = np.random.default_rng(0), 2 * PEOPLE
    count = 3 * stays
    pressure, dose = draw.uniform(40, 140, count), draw.integers(2, size=count)
    columns = {
        "stay": np.repeat(np.arange(stays), 3),
        "patient": np.repeat(np.arange(stays) % PEOPLE, 3),
        "t": np.tile(np.arange(3), stays),
        "hr": draw.uniform(30, 200, count),
        "map": pressure,
        "ward": draw.choice(["north", "south"], count),
        "dose": dose,
        "drug": np.where(dose == 1, "some", "none"),
        "p": np.full(count, 0.5),
        "r": np.where((pressure > 90) == (dose == 1), 1.0, -1.0),
    }
    path = tmp_path_factory.mktemp("data") / "stays.parquet"
    pq.write_table(pa.table(columns), path)
    return str(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_run_fills_its_folder(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run([*TRAIN, table, *REST, "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    said = " ".join(printed.split())
    assert "stays.parquet: values of actions from 25 people." in said
    assert "Certified: epsilon 1 at delta 0.001, user, replace-one." in said
    assert "Protected is each user," in said
    assert "What rewards are given for is not protected." in said
    assert "Judge the policy by privrl evaluate on other people" in said
    assert "--user" not in said
    assert printed.endswith(f"The result is {run / 'result.json'}.\n")
    assert all(len(line) < 80 for line in printed.splitlines()[:-1])
    assert names(run) == ["certificate.json", "policy.json", "result.json", "run.json"]
    certificate = Certificate.read(run / "certificate.json")
    certificate.verify(strict=True)
    learned = LearnedQ.load(run / "result.json")
    assert learned.certificate == certificate
    states = np.array([[60.0, 50.0], [90.0, 130.0]])
    policy = load_policy(run / "policy.json")
    np.testing.assert_allclose(policy.probabilities(states), learned.predict(states))
    before = (run / "result.json").read_bytes()
    assert cli.run([*TRAIN, table, *REST, "--out", str(run)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (run / "result.json").read_bytes() == before


def test_a_run_equals_that_in_python(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run([*TRAIN, table, *REST, "--seed", "3", "--json", "--out", str(run)]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["files"]["policy"] == str(run / "policy.json")
    saved = json.loads((run / "result.json").read_text())
    assert {name: printed[name] for name in saved} == saved
    data = Trajectories.from_parquet(
        table,
        trajectory="stay",
        user="patient",
        time="t",
        state=["hr", "map"],
        action="dose",
        reward="r",
        num_actions=2,
    )
    features = Fourier(1, (30.0, 40.0), (200.0, 140.0))
    learner = LoggedQ(2, (-1.0, 1.0), Budget(1.0, 1e-3), features, updates=4)
    same = learner.fit(data, session=PrivacySession(seed=3))
    # Which run it was is not known in Python.
    assert set(saved["policy"].pop("origin")) == {"run", "learner"}
    assert json.loads(json.dumps(same.to_dict())) == saved


def test_the_policy_that_was_learned_can_be_judged(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    public = [*COLUMNS, *RANGE, *COUNT, *STATES, "--public", "--terminated", "true"]
    assert cli.run([*TRAIN, table, *public, "--gamma", "0", "--out", str(run)]) == 0
    said = capsys.readouterr().out
    assert "Not private" in said
    assert "Protected" not in said
    assert names(run) == ["policy.json", "result.json", "run.json"]
    chosen = load_policy(run / "policy.json").probabilities(np.array([[90.0, 45.0], [90.0, 135.0]]))
    np.testing.assert_array_equal(chosen, [[1.0, 0.0], [0.0, 1.0]])
    words = ["evaluate", table, "--policy", str(run / "policy.json"), "--behavior-prob", "p"]
    words += [*COLUMNS, "--public", "--horizon", "1", "--out", str(tmp_path / "study")]
    assert cli.run([*words, "--json"]) == 0
    # Everybody who went the policy's way was paid 1, near enough.
    assert json.loads(capsys.readouterr().out)["results"][0]["estimate"] > 0.8


def test_words_of_states_and_actions(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TRAIN, table, "--trajectory", "stay", "--state", "ward", "--action", "drug"]
    words += ["--reward", "r", *BUDGET, *RANGE, "--updates", "2"]
    listed = [*words, "--states", "north,south,east", "--actions", "none,some"]
    assert cli.run([*listed, "--out", str(tmp_path / "run")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "values of actions from 50 trajectories." in said
    assert "name the column of people with --user if anybody can have several" in said
    assert LearnedQ.load(tmp_path / "run" / "result.json").head.shape == (3, 2)
    # Which words there are must be said, since it is private which of them occur.
    for given, sentence in (
        (["--num-states", "3", "--actions", "none,some"], "say with --states which words"),
        (["--states", "north,south", "--num-actions", "2"], "say with --actions which words"),
        (["--states", "north", "--actions", "none,some"], "is not among --states"),
    ):
        assert cli.run([*words, *given, "--out", str(tmp_path / "no")]) == 2
        assert sentence in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_a_ledger_pays_once_and_no_more_than_its_limit(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Ledger.create(
        tmp_path / "ledger",
        "patients",
        unit=Unit.USER,
        relation=Relation.REPLACE_ONE,
        limit=Budget(1.5, 1e-3),
        filter="gaussian",
    ).close()
    words = [*TRAIN, table, *REST, "--ledger", str(tmp_path / "ledger")]
    assert cli.run([*words, "--name", "first", "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert cli.run([*words, "--out", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "no").exists()
    with Ledger.open(tmp_path / "ledger") as opened:
        assert [entry.run for entry in opened.entries()] == ["first"]


def test_a_name_that_the_ledger_has_is_refused(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The certificate would be that of both runs, at a larger epsilon than was asked for."""
    Ledger.create(
        tmp_path / "ledger", "patients", unit=Unit.USER, relation=Relation.REPLACE_ONE
    ).close()
    words = [*TRAIN, table, *REST, "--ledger", str(tmp_path / "ledger")]
    assert cli.run([*words, "--out", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert cli.run([*words, "--out", str(tmp_path / "other" / "run")]) == 2
    assert "The ledger has a run 'run' already" in capsys.readouterr().err
    assert cli.run([*words, "--name", "run", "--out", str(tmp_path / "more")]) == 2
    assert "The ledger has a run 'run' already" in capsys.readouterr().err
    with Ledger.open(tmp_path / "ledger") as opened:
        assert len(opened) == 1


def test_an_interrupted_evaluation_is_left_as_it_is(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / KEY_FILE).write_text("{}")
    assert cli.run([*TRAIN, table, *REST, "--out", str(tmp_path / "run")]) == 2
    assert "holds an interrupted run: resume it" in capsys.readouterr().err
    assert names(tmp_path / "run") == [KEY_FILE]


def test_options_may_stand_in_a_file(
    table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / "job.toml"
    job.write_text(
        f"table = {json.dumps(table)}\n"
        'trajectory = "stay"\nuser = "patient"\nstate = ["hr", "map"]\naction = "dose"\n'
        'reward = "r"\nstate-range = [[30, 200], [40, 140]]\nreward-range = [-1, 1]\n'
        "num-actions = 2\nepsilon = 9\ndelta = 1e-3\nupdates = 2\n"
    )
    run = tmp_path / "run"
    assert cli.run([*TRAIN, "--config", str(job), "--epsilon", "5", "--out", str(run)]) == 0
    learned = LearnedQ.load(run / "result.json")
    assert learned.certificate.epsilon == pytest.approx(5.0, rel=1e-3)
    capsys.readouterr()
    for text, sentence in (
        ("env = 'Taxi-v4'", "env is not used: logged-q learns from a table."),
        ("episodes = 3", "There is no option 'episodes' of logged-q."),
        ("out = 'x'", "out belongs on the command line"),
        ("learner = 'actor-critic'", "is for the learner 'actor-critic', and you said"),
    ):
        job.write_text(text)
        assert cli.run([*TRAIN, "--config", str(job)]) == 2
        assert sentence in capsys.readouterr().err


NEXT = [*COLUMNS, *BUDGET, *RANGE, *COUNT]


@pytest.mark.parametrize(
    ("words", "sentences"),
    [
        (
            [],
            [
                "privrl: 9 options are needed:",
                "  --trajectory: which column tells one",
                "  --state: which columns describe",
                "  --action: which column holds",
                "  --reward: which column holds",
                "  --epsilon: the privacy budget for each person",
                "  --delta: the failure probability",
                "  --reward-range: the smallest",
                "  --num-actions: how many",
                "  --state-range: what each state could be",
                "  The columns are ",
                "  It is not measured",
            ],
        ),
        (
            COLUMNS,
            [
                "privrl: 5 options are needed:",
                "  --epsilon: the privacy budget for each person",
                "  --delta: the failure probability",
                "  --reward-range: the smallest",
                "  --num-actions: how many",
                "  --state-range: what each state could be",
                "  It is not measured",
            ],
        ),
    ],
)
def test_what_is_missing_is_asked_for_in_one_list(
    words: list[str], sentences: list[str], table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*TRAIN, table, *words]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(sentences)
    for line, begin in zip(lines, sentences, strict=True):
        assert line.startswith(begin)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*COLUMNS, "--epsilon", "1"], "--delta: the failure probability"),
        ([*COLUMNS, *BUDGET], "--reward-range: the smallest"),
        ([*COLUMNS, *BUDGET, *RANGE], "--num-actions: how many"),
        (NEXT, "state_range is needed: say with --state-range what each state could be"),
        ([*NEXT, "--state", "ward"], "num_states is needed: say with --num-states how many"),
        ([*NEXT, "--state-range", "0:1"], "state_range has 1 ranges for states of 2 numbers"),
        ([*REST, "--features", "wavelet:3"], "--features must be table, polynomial:2"),
        ([*REST, "--features", "network:a"], "network needs sizes, by commas"),
        ([*REST, "--delta", "0"], "delta must be above 0, because the noise is Gaussian"),
        ([*REST, "--epsilon", "-1"], "privrl: --epsilon must be positive"),
        ([*REST, "--epsilon", "nan"], "privrl: --epsilon must be a number, not NaN"),
        ([*REST, "--public"], "Data declared --public has no --epsilon and --delta to spend"),
        ([*REST, "--reward-range", "1,0"], "--reward-range must go up"),
        ([*REST, "--updates", "0"], "--updates must be at least 1"),
        ([*REST, "--step", "0"], "step must be"),
        ([*REST, "--clip", "1e300"], "bound 1e+300 is too large"),
        ([*REST, "--gamma", "1.5"], "gamma must be at most 1"),
        ([*REST, "--average", "2"], "average must be at most 1"),
        ([*REST, "--optimiser", "lion"], "optimiser must be 'sgd' or 'adam', not 'lion'"),
        ([*REST, "--reward", "prize"], "prize"),
        ([*REST, "--num-actions", "1"], "the action lies outside the 1 action"),
        ([*REST, "--name", "x"], "say which with --ledger"),
        ([*REST, "--ledger", "x"], "x"),
        ([*REST, "--env", "Taxi-v4"], "No such option: --env"),
        ([*REST, "--resume"], "leave out the table"),
    ],
)
def test_what_is_missing_or_wrong_is_said_in_one_sentence(
    words: list[str],
    sentence: str,
    table: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.run([*TRAIN, table, *words, "--out", str(tmp_path / "deep" / "run")]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("privrl: ")
    assert sentence in printed.err
    assert printed.err.count("\n") == 1 or "options are needed:\n" in printed.err
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(TRAIN) == 2
    assert "Say which table to read: privrl train logged-q stays.parquet" in capsys.readouterr().err
    public = [*TRAIN, "none.parquet", *COLUMNS]
    assert cli.run(public) == 2
    assert "There is no file none.parquet." in capsys.readouterr().err


def test_of_two_runs_that_begin_under_one_name_one_pays(
    table: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The other one came between this one's first look into the ledger and its payment."""
    monkeypatch.chdir(tmp_path)
    words = ["ledger", "create", "people", "--population", "icu", "--unit", "user"]
    assert cli.run([*words, "--relation", "replace-one", "--epsilon", "9", "--delta", "1e-2"]) == 0
    begin = [*TRAIN, table, *REST, "--ledger", "people", "--name", "same"]
    calibrated, began = noised_q.calibrate_noise, list[bool]()

    def meanwhile(*given: Any) -> Any:
        if not began:
            began.append(True)
            assert cli.run([*begin, "--out", "first"]) == 0
        return calibrated(*given)

    monkeypatch.setattr(noised_q, "calibrate_noise", meanwhile)
    assert cli.run([*begin, "--out", "second"]) == 2
    assert "has a run 'same' already: give this one another name" in capsys.readouterr().err
    assert not (tmp_path / "second").exists()
    with Ledger.open("people") as ledger:
        assert len(list(ledger.entries())) == 1
    assert cli.run([*begin[:-1], "other", "--out", "second"]) == 0
