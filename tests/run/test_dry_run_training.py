"""`privrl train --dry-run`: every learner says what it would do, and does nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from privrl import cli
from privrl.privacy import Budget, InputError, Ledger, Relation, Unit
from privrl.privacy.events import Gaussian
from privrl.run.runners import Runner, dry_run_in, train_in
from privrl.run.specs import LEARNERS

BUDGET = ["--epsilon", "1", "--delta", "1e-6"]
WORDS = {
    "actor-critic": ["--env", "Chain", "--people", "9", "--return-range", "0,1", *BUDGET],
    "functional-q": [
        *("--env", "Interval", "--reward-radius", "0.01", "--reward-range", "0,0.5"),
        *BUDGET,
    ],
    "prospect": [
        *("--env", "ObstacleGrid", "--reward-radius", "0.01", "--reward-range=-50,0"),
        *BUDGET,
    ],
    "pgc": ["--env", "CartPole", "--agents", "900", "--epsilon", "1"],
    "ono2020-pgc": [
        *("--env", "CartPole", "--agents", "9", "--epsilon", "1", "--mechanism", "laplace"),
    ],
    "seo2020-actor-critic": ["--env", "Chain", "--episodes", "9", *BUDGET],
    "wang2019-functional-q": ["--env", "Interval", "--epsilon", "0.9"],
    "rajabi2022-prospect": ["--env", "ObstacleSquare", "--epsilon", "0.9"],
}
TABLE = [
    *("--trajectory", "stay", "--state", "hr", "--state-range", "30:200", "--action", "dose"),
    *("--num-actions", "2", "--reward", "r", "--reward-range", "0,1", *BUDGET),
]


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = tmp_path / "stays.csv"
    # A row that no reader would take: a dry run does not look at rows.
    path.write_text("stay,hr,dose,r\n1,not a number,0,0.5\n")
    return str(path)


def test_every_learner_is_tried() -> None:
    assert {*WORDS, "logged-q"} == set(LEARNERS)


@pytest.mark.parametrize("learner", LEARNERS)
def test_nothing_is_played_paid_or_written(
    learner: str, table: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [table, *TABLE] if learner == "logged-q" else WORDS[learner]
    out = tmp_path / "run"
    before = sorted(tmp_path.iterdir())
    assert cli.run(["train", learner, *words, "--out", str(out), "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(tmp_path.iterdir()) == before
    assert told["dry_run"] is True
    assert told["folder"] == str(out)
    is_paper = (learner[-1] != "q" and "20" in learner) or learner == "wang2019-functional-q"
    assert (told["budget"] is None) == is_paper
    assert any("claim" in note for note in told["notes"]) == is_paper
    if not is_paper:
        assert told["budget"]["epsilon"] == 1.0


def test_a_ledger_is_asked_and_does_not_pay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "people.ledger"
    with Ledger.create(
        place, "people", unit=Unit.TRAJECTORY, relation=Relation.REPLACE_ONE
    ) as made:
        before = made.to_dict()
    words = ["train", "actor-critic", *WORDS["actor-critic"], "--out", str(tmp_path / "run")]
    assert cli.run([*words, "--ledger", str(place), "--dry-run"]) == 0
    assert "in the ledger" in capsys.readouterr().out
    with Ledger.open(place) as opened:
        assert opened.to_dict() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--variant", "wrong"], "--variant must be"),
        (["--logs", "csv"], "A log holds returns"),
        (["--name", "x"], "say which with --ledger"),
        (["--batch", "0"], "--batch must be at least 1"),
        (["--features", "network:a"], "network needs sizes"),
    ],
)
def test_what_a_run_would_refuse_is_refused(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*WORDS["actor-critic"], *words, "--out", str(tmp_path / "run")]
    assert cli.run(["train", "actor-critic", *given, "--dry-run"]) == 2
    assert sentence in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_a_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "result.json").write_text("{}")
    given = [*WORDS["actor-critic"], "--out", str(tmp_path)]
    assert cli.run(["train", "actor-critic", *given, "--dry-run"]) == 2
    assert "holds a run already" in capsys.readouterr().err


# --- what a run refuses, in its own sentence ------------------------------------------------------


RELATIONS = {Unit.AGENT: Relation.LOCAL, Unit.REWARD_FUNCTION: Relation.REWARD_RADIUS}


class Broken(gymnasium.Env[int, int]):
    """An environment that its pre-flight refuses."""

    observation_space: Any = spaces.Discrete(2)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        raise RuntimeError("no power")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a table and ledgers, and an environment that does not work."""
    columns = {"stay": [0, 1], "hr": [40.0, 50.0], "ward": ["a", "b"], "dose": [0, 1], "r": [0, 1]}
    pq.write_table(pa.table(columns), tmp_path / "stays.parquet")
    for name, unit, limit in (
        ("people", Unit.TRAJECTORY, None),
        ("little", Unit.TRAJECTORY, Budget(0.1, 1e-6)),
        ("agents", Unit.AGENT, None),
        ("reward", Unit.REWARD_FUNCTION, None),
    ):
        relation = RELATIONS.get(unit, Relation.REPLACE_ONE)
        with Ledger.create(
            tmp_path / name, name, unit=unit, relation=relation, limit=limit
        ) as made:
            if name == "people":
                made.spend(Gaussian(100.0, 1.0), run="taken", delta=1e-6)
    for name in ("finished/result.json", "failed/certificate.json", "begun/noise.key", "file"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    gymnasium.register("Broken-v0", lambda **_: Broken())
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    del gymnasium.registry["Broken-v0"]


WARDS = [
    *("--trajectory", "stay", "--state", "ward", "--states", "a,b", "--action", "dose"),
    *("--num-actions", "2", "--reward", "r", "--reward-range", "0,1", *BUDGET),
]
NETWORK = ["--planner", "network", "--features", "network:4"]
ALIKE: list[tuple[str, list[str], str]] = [
    # Ledgers.
    ("actor-critic", ["--ledger", "people", "--public"], "Nobody pays for what is declared"),
    ("functional-q", ["--ledger", "reward", "--public"], "Nobody pays for what is declared"),
    ("logged-q", ["--ledger", "people", "--public"], "Nobody pays for what is declared"),
    ("actor-critic", ["--ledger", "people", "--name", " "], "--name is empty"),
    ("actor-critic", ["--ledger", "people", "--name", "taken"], "has a run 'taken' already"),
    ("actor-critic", ["--ledger", "nowhere"], "no ledger"),
    ("actor-critic", ["--ledger", "agents"], "they do not add up"),
    ("actor-critic", ["--ledger", "little"], "limit"),
    ("functional-q", ["--ledger", "people"], "they do not add up"),
    ("prospect", ["--ledger", "people"], "they do not add up"),
    ("logged-q", ["--ledger", "agents"], "they do not add up"),
    # Folders.
    ("actor-critic", ["--out", "finished"], "holds a run already"),
    ("actor-critic", ["--out", "failed"], "a run would write its own"),
    ("actor-critic", ["--out", "begun"], "holds an interrupted run"),
    ("actor-critic", ["--out", "file"], "cannot be written to: File exists"),
    ("actor-critic", ["--out", "file/run"], "cannot be written to: Not a directory"),
    # Logs.
    ("pgc", ["--logs", "csv"], "A log holds scores"),
    ("seo2020-actor-critic", ["--public", "--logs", "words"], "There is no log format 'words'"),
    # Environments, features, sizes.
    ("actor-critic", ["--env", "Broken-v0", "--max-steps", "2"], "its pre-flight failed"),
    ("functional-q", ["--env", "Broken-v0"], "its pre-flight failed"),
    ("pgc", ["--env", "Broken-v0"], "cannot be compiled"),
    ("seo2020-actor-critic", ["--env", "CartPole"], "CartPole"),
    ("wang2019-functional-q", ["--env", "Chain"], "Chain"),
    ("rajabi2022-prospect", ["--env", "Chain"], "Chain"),
    ("ono2020-pgc", ["--env", "Chain", "--vary", "gravity=1,2"], "gravity"),
    (
        "actor-critic",
        ["--public", "--people", "1" + "0" * 14, "--delta", "1e-15"],
        "3.2 PB of memory",
    ),
    ("functional-q", ["--release", "weights", *NETWORK], "needs linear features"),
    ("functional-q", ["--release", "evaluations", *NETWORK], "needs linear features"),
    ("functional-q", ["--release", "updates", "--tau", "1"], "tau is for release 'weights'"),
    ("prospect", ["--steps", "10000000", "--samples", "1000000"], "320 TB of memory"),
    ("prospect", ["--reward-features", "table", "--env", "Interval"], "Interval"),
    ("logged-q", ["--features", "table"], "observes numbers, so there is no table"),
    ("wards", ["--action", "dose,stay"], "are for discrete actions"),
    ("wards", ["--features", "fourier:2", "--state-range", "0:1"], "are for discrete states"),
]


@pytest.mark.parametrize(("learner", "words", "sentence"), ALIKE)
def test_what_a_run_refuses_before_it_plays_is_refused_in_its_sentence(
    learner: str,
    words: list[str],
    sentence: str,
    place: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = WORDS.get(learner, ["stays.parquet", *(WARDS if learner == "wards" else TABLE)])
    learner = "logged-q" if learner == "wards" else learner
    out = [] if "--out" in words else ["--out", "run"]
    before = sorted(place.rglob("*"))
    told = []
    for more in (["--dry-run"], []):
        assert sorted(place.rglob("*")) == before
        assert cli.run(["train", learner, *given, *words, *out, *more]) == 2
        told.append(capsys.readouterr().err)
    assert told[0] == told[1]
    assert sentence in told[0]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ({"learner": "pgc", "agents": 900}, "Each agent keeps a ledger of its own, and these are"),
        ({"learner": "pgc", "agents": 900, "public": True}, "Nobody pays for what is declared"),
        (
            {"learner": "ono2020-pgc", "agents": 9, "mechanism": "laplace"},
            "The paper's claim is no certificate, so no ledger can pay",
        ),
    ],
)
def test_agents_keep_their_own_ledgers(words: dict[str, Any], sentence: str, place: Path) -> None:
    """In Python, since their commands have no such option."""
    runner: Any = Runner.of({"env": "CartPole", "epsilon": 1.0, **words})
    (place / "run").mkdir()
    for refuse in (train_in, dry_run_in):
        with pytest.raises(InputError, match=sentence):
            refuse(runner, place / "run", ledger=place / "agents")


@pytest.mark.parametrize("learner", ["actor-critic", "functional-q", "prospect"])
def test_without_a_budget_no_ledger_pays(
    learner: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = WORDS[learner]
    spent = {"--epsilon", "--delta", "--reward-radius"}
    kept = [one for k, one in enumerate(words) if not spent & {one, words[k - 1]}]
    kept += ["--variant", "none"] if learner == "actor-critic" else ["--release", "none"]
    ledger = "people" if learner == "actor-critic" else "reward"
    for more in ([], ["--dry-run"]):
        assert cli.run(["train", learner, *kept, "--ledger", ledger, "--out", "run", *more]) == 2
        assert "Without a budget there is nothing to pay for" in capsys.readouterr().err
