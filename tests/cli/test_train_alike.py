"""What `privrl train` does alike for every learner: folders, JSON, stops, payment, files."""

import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import privrl
from privrl import cli
from privrl.data import load_policy
from privrl.privacy import Budget, Certificate, Claim, InputError, Ledger
from privrl.run.runners import Runner, train_in
from tests.cli.problems import PROBLEMS, SEED, TABLE, Problem, write_stays


def _params(names: Iterable[str]) -> list[Any]:
    """Printed algorithms are for the slow suite: some take five seconds."""
    marks = {name: [pytest.mark.slow] if "20" in name else [] for name in names}
    return [pytest.param(name, marks=marks[name]) for name in marks]


LEARNERS = _params(PROBLEMS)
PAYING = [name for name, problem in PROBLEMS.items() if problem.unit is not None]
STOPPING = _params(name for name, problem in PROBLEMS.items() if problem.stops)
TAKING_FILES = _params(name for name, problem in PROBLEMS.items() if problem.config)
CLAIMING = [name for name, problem in PROBLEMS.items() if "claim.json" in problem.files]


@dataclass(frozen=True)
class Finished:
    """A run that is not touched any more."""

    learner: str
    problem: Problem
    folder: Path
    printed: str

    @property
    def said(self) -> str:
        return " ".join(self.printed.split())

    def words(self, *more: str) -> list[str]:
        return ["train", self.learner, *self.problem.words, *more]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module", autouse=True)
def _here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """In a folder with the table."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("train")
        write_stays(folder / TABLE)
        patch.chdir(folder)
        yield


@pytest.fixture(scope="module")
def _runs() -> dict[tuple[str, bool], Finished]:
    return {}


@pytest.fixture
def finish(_runs: dict[tuple[str, bool], Finished]) -> Callable[[str, bool], Finished]:
    """A learner's run, with secret randomness or from SEED with all diagnostics: once for all."""

    def once(learner: str, seeded: bool) -> Finished:
        if (learner, seeded) not in _runs:
            problem = PROBLEMS[learner]
            folder = Path("seeded" if seeded else "secret") / learner
            more = ["--seed", str(SEED), *problem.public] if seeded else []
            with redirect_stdout(io.StringIO()) as printed:
                done = cli.run(["train", learner, *problem.words, *more, "--out", str(folder)])
            assert done == 0
            _runs[learner, seeded] = Finished(learner, problem, folder, printed.getvalue())
        return _runs[learner, seeded]

    return once


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_run_fills_its_folder(
    learner: str, finish: Callable[[str, bool], Finished], capsys: pytest.CaptureFixture[str]
) -> None:
    run = finish(learner, False)
    for sentence in run.problem.printed:
        assert sentence in run.said
    for sentence in run.problem.printed_if_public:
        assert sentence not in run.said
    assert run.problem.hidden not in run.said
    assert "The seed makes the noise no secret" not in run.said
    assert run.printed.endswith(f"The result is {run.folder / 'result.json'}.\n")
    assert all(len(line) < 80 for line in run.printed.splitlines()[:-1])
    # Nothing about returns, and no checkpoint.
    assert names(run.folder) == list(run.problem.files)
    learned: Any = privrl.load(run.folder / "result.json")
    saved = json.loads((run.folder / "result.json").read_text())
    assert [saved.get(name) for name in ("curve", "score", "scores")] == [None] * 3
    if learner in CLAIMING:
        assert isinstance(learned.promise, Claim)
        assert run.problem.source in learned.promise.source
        assert json.loads((run.folder / "claim.json").read_text()) == learned.promise.to_dict()
    else:
        certificate = Certificate.read(run.folder / "certificate.json")
        certificate.verify(strict=True)
        assert learned.promise == certificate
    policy = load_policy(run.folder / "policy.json")
    states = run.problem.states
    np.testing.assert_allclose(policy.probabilities(states), learned.probabilities(states))

    before = {path: path.read_bytes() for path in run.folder.iterdir()}
    assert cli.run(run.words("--out", str(run.folder))) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert cli.run(["train", learner, "--out", str(run.folder), "--resume"]) == 2
    assert "is finished" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in run.folder.iterdir()} == before
    assert cli.run(["report", str(run.folder)]) == 2
    assert "holds what `privrl train` learned" in capsys.readouterr().err


@pytest.mark.parametrize("learner", LEARNERS)
def test_public_diagnostics_are_shown_and_logged(
    learner: str, finish: Callable[[str, bool], Finished]
) -> None:
    run = finish(learner, True)
    for sentence in (*run.problem.printed[:1], *run.problem.printed_if_public):
        assert sentence in run.said
    # With a seed nobody is protected, and nothing says so.
    promise: Any = privrl.load(run.folder / "result.json").promise
    certified = promise.certified if isinstance(promise, Claim) else promise
    assert ("The seed makes the noise no secret" in run.said) == (certified is not None)
    assert all(len(line) < 80 for line in run.printed.splitlines()[:-1])
    logs = ["log.csv"] if run.problem.log_lines else []
    assert names(run.folder) == sorted([*run.problem.files, *logs])
    if logs:
        lines = (run.folder / "log.csv").read_text().splitlines()
        assert len(lines) == run.problem.log_lines
        assert lines[0].startswith("episode,return")
    if learner not in CLAIMING:
        Certificate.read(run.folder / "certificate.json").verify()


@pytest.mark.parametrize("learner", LEARNERS)
def test_json_is_all_that_is_printed_and_a_seed_gives_the_same(
    learner: str,
    finish: Callable[[str, bool], Finished],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run, folder = finish(learner, True), tmp_path / learner
    capsys.readouterr()
    more = ["--seed", str(SEED), *run.problem.public, "--json", "--out", str(folder)]
    assert cli.run(run.words(*more)) == 0
    printed = json.loads(capsys.readouterr().out)
    saved = json.loads((folder / "result.json").read_text())
    assert {name: printed[name] for name in saved} == saved
    written = {path.name for path in folder.iterdir()} - {"run.json"}
    assert set(printed["files"].values()) <= {str(folder / name) for name in written}
    assert printed["files"]["result"] == str(folder / "result.json")
    for name in written:
        assert (folder / name).read_bytes() == (run.folder / name).read_bytes()


@pytest.mark.parametrize(
    "learner", [one for one in LEARNERS if PROBLEMS[str(one.values[0])].in_python is not None]
)
def test_in_python_the_same_is_learned(
    learner: str, finish: Callable[[str, bool], Finished]
) -> None:
    run = finish(learner, True)
    assert run.problem.in_python is not None
    same = run.problem.in_python(Path.cwd(), [])
    saved = json.loads((run.folder / "result.json").read_text())
    # Which run it was is not known in Python.
    origin = (saved.get("policy") or {}).pop("origin", None)
    assert origin is None or set(origin) == {"run", "learner"}
    assert json.loads(json.dumps(same.to_dict())) == saved


@pytest.mark.parametrize("learner", STOPPING)
def test_a_stopped_run_is_resumed_to_the_same_bytes(
    learner: str,
    finish: Callable[[str, bool], Finished],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    stops: Callable[[int], None],
) -> None:
    whole, cut = finish(learner, True), tmp_path / learner
    given = whole.words("--seed", str(SEED), *whole.problem.public, "--out", str(cut))
    resume = ["train", learner, "--out", str(cut), "--resume"]
    capsys.readouterr()
    for number, (count, sentence) in enumerate(whole.problem.stops):
        stops(count)
        assert cli.run(resume if number else given) == 130
        printed = capsys.readouterr()
        assert printed.out == ""
        assert sentence in printed.err
        assert f"privrl train {learner} --out {cut} --resume" in printed.err
        assert not (cut / "result.json").exists()
        secret = [*cut.glob("*.npz"), *cut.glob("*.key")]
        assert secret
        assert all(path.stat().st_mode & 0o077 == 0 for path in secret)
    assert cli.run(given) == 2
    assert "holds an interrupted run: resume it" in capsys.readouterr().err
    stops(1000)
    assert cli.run(resume) == 0
    assert names(cut) == names(whole.folder)
    for path in whole.folder.iterdir():
        if path.name != "run.json":  # which has the folder's name
            assert (cut / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("learner", PAYING)
def test_nobody_pays_for_what_is_public(
    learner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, book = PROBLEMS[learner], tmp_path / "ledger"
    assert problem.unit is not None
    Ledger.create(book, "people", unit=problem.unit, relation=problem.relation).close()
    words = ["train", learner, *problem.words, "--public", "--ledger", str(book)]
    for more in ([], ["--dry-run"]):
        assert cli.run([*words, "--out", str(tmp_path / "run"), *more]) == 2
        told = capsys.readouterr().err
        assert told == "privrl: Nobody pays for what is declared --public: leave --ledger out.\n"
    assert names(tmp_path) == ["ledger"]
    with Ledger.open(book) as opened:
        assert len(opened) == 0


@pytest.mark.parametrize("learner", PAYING)
def test_people_pay_once_however_often_a_run_is_stopped(
    learner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], stops: Callable[[int], None]
) -> None:
    problem, book, run = PROBLEMS[learner], str(tmp_path / "ledger"), tmp_path / "run"
    assert problem.unit is not None
    epsilon, delta = (
        float(problem.words[list(problem.words).index(name) + 1])
        for name in ("--epsilon", "--delta")
    )
    Ledger.create(
        book,
        "people",
        unit=problem.unit,
        relation=problem.relation,
        limit=Budget(1.2 * epsilon, delta),
        filter="gaussian",
    ).close()
    paying = ["train", learner, *problem.words, "--ledger", book]
    resume = ["train", learner, "--out", str(run), "--resume"]
    words = [*paying, "--name", "x", "--out", str(run)]
    for (count, _), paid in zip(problem.stops, problem.paid, strict=True):
        stops(count)
        assert cli.run(words) == 130
        with Ledger.open(book) as opened:
            assert len(opened.entries()) == paid
        words = resume
    stops(1000)
    assert cli.run(words) == 0
    with Ledger.open(book) as opened:
        assert [entry.run for entry in opened.entries()] == ["x"]
    Certificate.read(run / "certificate.json").verify(strict=True)
    # A name that the ledger has: the certificate would be that of both runs, and more than asked.
    capsys.readouterr()
    for more in (["--out", str(tmp_path / "other" / "x")], ["--name", "x", "--out", "more"]):
        assert cli.run([*paying, *more]) == 2
        assert "The ledger has a run 'x' already" in capsys.readouterr().err
    # A second run is beyond the limit: refused before anybody plays.
    assert cli.run([*paying, "--out", str(tmp_path / "more")]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("privrl: ")
    assert printed.count("\n") == 1
    assert not (tmp_path / "more").exists()
    assert cli.run(["ledger", "show", book, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["epsilon"] < 1.2 * epsilon
    with Ledger.open(book) as opened:
        assert len(opened.entries()) == 1


@pytest.mark.parametrize("learner", CLAIMING)
def test_no_ledger_can_pay_for_a_claim(learner: str, tmp_path: Path) -> None:
    runner: Runner = Runner.of({"learner": learner, "env": "Chain", "epsilon": 0.9})
    with pytest.raises(InputError, match="no ledger can pay"):
        train_in(runner, tmp_path, ledger=tmp_path / "ledger")


@pytest.mark.parametrize("learner", LEARNERS)
def test_what_cannot_be_kept_is_at_least_shown(
    learner: str,
    finish: Callable[[str, bool], Finished],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = finish(learner, False)
    learned: Any = privrl.load(run.folder / "result.json")

    def full(self: object, path: Path) -> None:
        raise InputError(f"{str(path)!r} cannot be written: No space left on device.")

    monkeypatch.setattr(type(learned), "save", full)
    capsys.readouterr()
    assert cli.run(run.words("--out", str(tmp_path / "run"))) == 2
    printed = capsys.readouterr()
    assert "No space left on device" in printed.err
    kind = "privrl claim" if learner in CLAIMING else "privrl certificate"
    assert json.loads(printed.out)["promise"]["kind"] == kind


@pytest.mark.parametrize("learner", TAKING_FILES)
def test_options_may_stand_in_a_file(
    learner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem, job, run = PROBLEMS[learner], tmp_path / "job.toml", tmp_path / "run"
    job.write_text(problem.config)
    config = ["train", learner, "--config", str(job)]
    assert cli.run([*config, "--epsilon", "5", "--out", str(run)]) == 0
    learned: Any = privrl.load(run / "result.json")
    assert problem.settings(learned.settings)
    assert learned.promise.epsilon == pytest.approx(5.0, rel=1e-3)
    capsys.readouterr()
    for text, sentence in problem.refused:
        job.write_text(text)
        assert cli.run(config) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("learner", ["actor-critic", "pgc"])
def test_files_that_are_there_already_stay(
    learner: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", learner, *PROBLEMS[learner].words]
    (tmp_path / "policy.json").write_text("mine")
    assert cli.run([*words, "--out", str(tmp_path)]) == 2
    assert "policy.json' is there already, and a run would write its own" in capsys.readouterr().err
    assert names(tmp_path) == ["policy.json"]
    (tmp_path / "policy.json").rename(tmp_path / "log.csv")
    assert cli.run([*words, "--public", "--out", str(tmp_path)]) == 2
    assert "log.csv' is there already" in capsys.readouterr().err
    assert (tmp_path / "log.csv").read_text() == "mine"
