"""Runs that are interrupted, copied and gone on with: what is released twice is the same."""

import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from gymnasium import spaces

from privrl import cli
from privrl.control import FunctionalQ, LoggedQ, noised_q, reward_releases
from privrl.control.actor_critic import ActorCritic
from privrl.control.actor_critic.learner import ActorCriticTraining
from privrl.control.engine import CHECKPOINT
from privrl.core import files
from privrl.data import Tabular, Trajectories
from privrl.envs.tabular import TabularMDP
from privrl.privacy import Budget, Certificate, InputError, Ledger, NoiseOrigin, Relation, Unit
from privrl.privacy.resuming import KEY_FILE, NoiseKey
from privrl.privacy.session import PrivacySession
from privrl.run import training

COPIES = 6
SLOW = pytest.mark.slow
BUDGET = ["--epsilon", "5", "--delta", "1e-6"]
CHAIN = ["train", "actor-critic", "--env", "Chain", "--max-steps", "6", "--people", "40"]
CERTIFIED = [*CHAIN, "--batch", "4", "--return-range", "0,1", *BUDGET]
REWARDS = ["--env", "Chain", "--steps", "60", "--reward-range", "0,1", *BUDGET]
SECRET = ["train", "functional-q", *REWARDS, "--reward-radius", "0.5"]
RISK = ["train", "prospect", *REWARDS, "--samples", "4", "--reward-radius", "0.5"]
AGENTS = ["train", "pgc", "--env", "CartPole", "--agents", "40", "--buffer", "10", "--epsilon", "2"]


class Killed(BaseException):
    """What a kill is to those who cannot catch it."""


@pytest.fixture
def stops(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the next run stop when it is asked for the so-manieth time."""

    def soon(count: int) -> None:
        @contextmanager
        def interrupted() -> Iterator[Callable[[], bool]]:
            asked = iter([False] * count)
            yield lambda: next(asked, True)

        monkeypatch.setattr(training, "on_interrupt", interrupted)

    return soon


def copies(folder: Path, count: int = COPIES) -> list[Path]:
    made = [folder.with_name(f"{folder.name}-{number}") for number in range(count)]
    for one in made:
        shutil.copytree(folder, one)
    return made


def results(folder: Path) -> dict[str, bytes]:
    """What was released: every file but the one with the run's own words."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "run.json"}


def payments(path: Path) -> int:
    with Ledger.open(path) as ledger:
        return sum(bool(entry.events) for entry in ledger.entries())


def ledger_at(path: Path, unit: Unit) -> list[str]:
    secret = unit is Unit.REWARD_FUNCTION
    relation = Relation.REWARD_RADIUS if secret else Relation.REPLACE_ONE
    Ledger.create(path, "all", unit=unit, relation=relation).close()
    return ["--ledger", str(path)]


# --- simulators -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "unit", "asked"),
    [
        (CERTIFIED, Unit.TRAJECTORY, 3),
        pytest.param([*CERTIFIED, "--noise", "independent"], Unit.TRAJECTORY, 3, marks=SLOW),
        (SECRET, Unit.REWARD_FUNCTION, 0),
        pytest.param(SECRET, Unit.REWARD_FUNCTION, 1, marks=SLOW),
        pytest.param([*SECRET, "--release", "rewards"], Unit.REWARD_FUNCTION, 0, marks=SLOW),
        pytest.param(
            [*SECRET, "--release", "evaluations", "--evaluations", "3"],
            *(Unit.REWARD_FUNCTION, 1),
            marks=SLOW,
        ),
        ([*SECRET, "--release", "updates", "--clip", "1"], Unit.REWARD_FUNCTION, 2),
        pytest.param(RISK, Unit.REWARD_FUNCTION, 0, marks=SLOW),
        pytest.param(AGENTS, None, 2, marks=SLOW),
    ],
    ids=lambda x: "-".join(x[1:2] + x[-2:]) if isinstance(x, list) else str(x),
)
def test_copies_of_a_run_in_a_simulator_release_one_thing(
    words: list[str],
    unit: Unit | None,
    asked: int,
    tmp_path: Path,
    stops: Callable[[int], None],
) -> None:
    """Secret noise, one payment; `asked` says after how many questions the run is stopped."""
    run, book = tmp_path / "run", tmp_path / "ledger"
    paying = [] if unit is None else ledger_at(book, unit)
    stops(asked)
    assert cli.run([*words, *paying, "--out", str(run)]) == 130
    for name in (KEY_FILE, CHECKPOINT):
        if (run / name).exists():
            assert (run / name).stat().st_mode & 0o777 == 0o600
    stops(10**6)
    made = copies(run)
    for one in [*made, run]:
        assert cli.run([*words[:2], "--out", str(one), "--resume"]) == 0
    found = [results(one) for one in [*made, run]]
    assert all(one == found[0] for one in found)
    assert found[0].keys() & {KEY_FILE, CHECKPOINT, files.LOCK} == set()
    certificate = Certificate.read(run / "certificate.json")
    certificate.verify(strict=True)
    assert certificate.noise.is_secret
    assert any("key of the noise" in one.statement for one in certificate.assumptions)
    if unit is not None:
        assert payments(book) == 1
    # It is noise, and of this run alone.
    assert cli.run([*words, "--out", str(tmp_path / "another")]) == 0
    other = json.loads((tmp_path / "another" / "result.json").read_text())
    assert other != json.loads(found[0]["result.json"])


def mdp(pay: float = 1.0) -> TabularMDP:
    moves = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.9, 0.1], [0.1, 0.9]]])
    rewards = np.array([[0.0, pay], [0.0, 1.0]])
    return TabularMDP.from_dense(moves, rewards, start=[0.5, 0.5], step_limit=5, name="Two")


TWO = mdp()
AGENT = ActorCritic(budget=Budget(5.0, 1e-6), batch=4, noise="correlated", return_range=(0.0, 5.0))


@pytest.mark.parametrize("after", [False, True])
def test_killed_at_any_write_a_run_goes_on_to_what_its_copies_come_to(
    after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each file is replaced, and before and after the payment."""
    write, spend = files.write, Ledger.spend
    left = [0]

    def killing(real: Any) -> Any:
        def once(*args: Any, **more: Any) -> Any:
            left[0] -= 1
            if left[0] == 0 and not after:
                raise Killed
            found = real(*args, **more)
            if left[0] == 0:
                raise Killed
            return found

        return once

    env = TWO
    plain = AGENT.learn(env, people=12)
    for number in range(1, 20):
        book, run = tmp_path / f"ledger-{number}", tmp_path / f"run-{number}"
        ledger_at(book, Unit.TRAJECTORY)
        monkeypatch.setattr(files, "write", killing(write))
        monkeypatch.setattr(Ledger, "spend", killing(spend))
        left[0] = number
        with Ledger.open(book) as ledger:
            try:
                AGENT.learn(
                    env, people=12, session=PrivacySession(ledger=ledger, run="one"), folder=run
                )
                break
            except Killed:
                pass
            finally:
                monkeypatch.setattr(files, "write", write)
                monkeypatch.setattr(Ledger, "spend", spend)
        if number == 1 and not after:
            assert not (run / KEY_FILE).exists()
            assert payments(book) == 0
            continue
        with Ledger.open(book) as ledger:
            found = [AGENT.resume(env, one, ledger=ledger) for one in [*copies(run, 2), run]]
        assert payments(book) == 1
        assert all(one.to_dict() == found[0].to_dict() for one in found)
        assert found[0].to_dict() != plain.to_dict()
        assert not any(run.iterdir())
    # The key, the payment, and a state before and after the batches but the last.
    assert number == 1 + 2 + 3


@pytest.mark.parametrize("kind", ["correlated", pytest.param("independent", marks=SLOW)])
def test_copies_of_any_moment_come_to_what_the_run_itself_came_to(
    kind: Any, tmp_path: Path
) -> None:
    """The run is not interrupted: a copy is made after each batch, and after each stage."""
    run = tmp_path / "run"

    def copy(done: int, whole: int) -> None:
        shutil.copytree(run, tmp_path / f"copy-{done}")

    agent = replace(AGENT, noise=kind)
    found = agent.learn(TWO, people=12, folder=run, progress=copy)
    assert agent.learn(TWO, people=12).to_dict() != found.to_dict()
    for done in (4, 8, 12):
        again = agent.resume(TWO, tmp_path / f"copy-{done}")
        assert again.to_dict() == found.to_dict()
        shutil.rmtree(tmp_path / f"copy-{done}")
    learner = FunctionalQ(
        release="rewards" if kind == "correlated" else "evaluations",
        budget=Budget(1.0, 1e-6),
        reward_radius=0.5,
        reward_range=(0.0, 1.0),
        steps=40,
        evaluations=3,
    )
    values = learner.learn(TWO, folder=run, progress=copy)
    assert not np.array_equal(values.parameters, learner.learn(TWO).parameters)
    for done in (1, 2, 3):
        assert learner.resume(TWO, tmp_path / f"copy-{done}").to_dict() == values.to_dict()


def test_another_simulator_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """The same noise over the rewards of both would give away their difference."""

    def stop(done: int, whole: int) -> None:
        raise Killed

    with pytest.raises(Killed):
        AGENT.learn(TWO, people=12, progress=stop, folder=tmp_path / "people")
    with pytest.raises(InputError, match="not the environment or behaviour that"):
        AGENT.resume(mdp(2.0), tmp_path / "people")
    AGENT.resume(TWO, tmp_path / "people")
    learner = FunctionalQ(
        budget=Budget(1.0, 1e-6), reward_radius=0.5, reward_range=(0.0, 1.0), steps=40
    )
    right, left = (Tabular(np.array([[p, 1.0 - p]] * 2)) for p in (0.4, 0.6))
    with pytest.raises(Killed):
        learner.learn(TWO, behaviour=right, progress=stop, folder=tmp_path / "reward")
    for env, behaviour in ((mdp(0.9), right), (TWO, left), (TWO, None)):
        with pytest.raises(InputError, match="not the environment or behaviour that"):
            learner.resume(env, tmp_path / "reward", behaviour=behaviour)
    learner.resume(mdp(), tmp_path / "reward", behaviour=right)


# --- tables ---------------------------------------------------------------------------------------


def stays(path: Path, reward: float = 0.5) -> Path:
    draw, count = np.random.default_rng(0), 60
    rewards = draw.uniform(-1, 1, count)
    rewards[7] = reward
    columns = {
        "stay": np.arange(count),
        "hr": draw.uniform(30, 200, count),
        "dose": draw.integers(2, size=count),
        "r": rewards,
    }
    pq.write_table(pa.table(columns), path)
    return path


TABLE = [
    *("--trajectory", "stay", "--state", "hr", "--state-range", "30:200", "--action", "dose"),
    *("--num-actions", "2", "--reward", "r", "--reward-range", "-1,1", "--updates", "4"),
    *("--epsilon", "1", "--delta", "1e-3"),
]


def test_copies_of_a_run_on_a_table_release_one_thing_about_that_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The process dies after it has paid."""
    table, run, book = tmp_path / "stays.parquet", tmp_path / "run", tmp_path / "ledger"
    stays(table)
    words = ["train", "logged-q", str(table), *TABLE, *ledger_at(book, Unit.TRAJECTORY)]

    def die(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(noised_q, "final_parameters", die)
        with pytest.raises(Killed):
            cli.run([*words, "--out", str(run)])
    assert payments(book) == 1
    assert (run / KEY_FILE).stat().st_mode & 0o777 == 0o600
    made = copies(run)
    for one in made:
        assert cli.run(["train", "logged-q", "--out", str(one), "--resume"]) == 0
    found = [results(one) for one in made]
    assert all(one == found[0] for one in found)
    assert set(found[0]) == {"certificate.json", "policy.json", "result.json"}
    assert payments(book) == 1
    # One cell of one person is another table.
    stays(table, 0.6)
    capsys.readouterr()
    assert cli.run(["train", "logged-q", "--out", str(run), "--resume"]) == 2
    assert "This is not the data that the run was begun with" in capsys.readouterr().err
    stays(table)
    assert cli.run(["train", "logged-q", "--out", str(run), "--resume"]) == 0
    assert results(run) == found[0]


def test_a_table_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = Trajectories.from_arrays(
        np.arange(30) % 3, np.arange(30) % 2, np.linspace(0, 1, 30), lengths=np.ones(30, int)
    )
    agent = LoggedQ(2, (0.0, 1.0), Budget(1.0, 1e-3), num_states=3, updates=3)

    def die(*_: Any) -> Any:
        raise Killed

    with monkeypatch.context() as dying:
        dying.setattr(noised_q, "final_parameters", die)
        with pytest.raises(Killed):
            agent.fit(data, folder=tmp_path / "run")
    with pytest.raises(InputError, match="holds an interrupted run"):
        agent.fit(data, folder=tmp_path / "run")
    with pytest.raises(InputError, match="belongs to another agent"):
        LoggedQ(2, (0.0, 1.0), Budget(1.0, 1e-3), num_states=3, updates=4).resume(
            data, tmp_path / "run"
        )
    one, other = (agent.resume(data, folder) for folder in copies(tmp_path / "run", 2))
    assert one.to_dict() == other.to_dict()
    assert one.certificate.noise is NoiseOrigin.SECURE_KEY
    assert not np.array_equal(one.parameters, agent.fit(data).parameters)


# --- live environments ----------------------------------------------------------------------------


class Ward(gymnasium.Env[int, int]):
    """People, for all that anybody knows."""

    observation_space: Any = spaces.Discrete(2)
    action_space: Any = spaces.Discrete(2)
    played = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.played += 1
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, float(action), True, False, {}


@pytest.fixture
def ward() -> Iterator[str]:
    gymnasium.register("Ward-v0", lambda **_: Ward())
    yield "Ward-v0"
    del gymnasium.registry["Ward-v0"]


def nursing(ward: str) -> list[str]:
    words = ["train", "actor-critic", "--env", ward, "--max-steps", "1", "--people", "40"]
    return [*words, "--batch", "4", "--return-range", "0,1", *BUDGET]


def test_of_copies_of_a_run_among_people_one_goes_on(
    ward: str, tmp_path: Path, stops: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    run, book = tmp_path / "run", tmp_path / "ledger"
    stops(3)
    words = [*nursing(ward), *ledger_at(book, Unit.TRAJECTORY)]
    assert cli.run([*words, "--out", str(run)]) == 130
    made = copies(run)
    stops(2)
    assert cli.run(["train", "actor-critic", "--out", str(made[0]), "--resume"]) == 130
    later = copies(made[0], 2)
    stops(10**6)
    capsys.readouterr()
    for one in [*made[1:], run]:
        assert cli.run(["train", "actor-critic", "--out", str(one), "--resume"]) == 2
        told = capsys.readouterr().err
        assert "was gone on with elsewhere, by this ledger" in told
        assert told.count("\n") == 1
    codes = [
        cli.run(["train", "actor-critic", "--out", str(one), "--resume"])
        for one in [*later, made[0]]
    ]
    assert codes == [0, 2, 2]
    assert payments(book) == 1
    certificate = Certificate.read(later[0] / "certificate.json")
    certificate.verify(strict=True)
    statements = [one.statement for one in certificate.assumptions]
    assert not any("resumed once" in one for one in statements)
    assert any("not interrupted because" in one for one in statements)
    assert any("nobody was in the instance" in one for one in statements)


def test_among_people_without_a_ledger_the_certificate_says_so(
    ward: str, tmp_path: Path, stops: Callable[[int], None]
) -> None:
    run = tmp_path / "run"
    stops(3)
    assert cli.run([*nursing(ward), "--out", str(run)]) == 130
    made = copies(run, 2)
    stops(10**6)
    for one in made:
        assert cli.run(["train", "actor-critic", "--out", str(one), "--resume"]) == 0
        certificate = Certificate.read(one / "certificate.json")
        assert any("was resumed once" in each.statement for each in certificate.assumptions)
    # The noise is not the same, so that nobody sees the difference of what people did.
    assert results(made[0])["result.json"] != results(made[1])["result.json"]


WARD = ActorCritic(budget=Budget(5.0, 1e-6), batch=4, max_steps=1)


@pytest.mark.parametrize("at", [8, 16])
def test_a_run_whose_copy_goes_on_gives_nothing_away(at: int, tmp_path: Path) -> None:
    """The copy is made, and gone on with to its end, while the first still plays."""
    book, run = tmp_path / "ledger", tmp_path / "run"
    ledger_at(book, Unit.TRAJECTORY)
    found: list[Any] = []

    def copy(done: int, people: int) -> None:
        if done == at and not found:
            (one,) = copies(run, 1)
            with Ledger.open(book) as second:
                found.append(WARD.resume(Ward(), one, ledger=second))

    given: dict[str, Any] = {"folder": run, "progress": copy, "preflight": False}
    with Ledger.open(book) as ledger, pytest.raises(InputError, match=r"on (with )?elsewhere"):
        WARD.learn(Ward(), people=20, session=PrivacySession(ledger=ledger, run="one"), **given)
    found[0].certificate.verify(strict=True)
    with Ledger.open(book) as ledger, pytest.raises(InputError, match=r"elsewhere|has ended"):
        WARD.resume(Ward(), run, ledger=ledger)


def test_a_copy_of_the_last_state_comes_to_what_the_run_itself_comes_to(tmp_path: Path) -> None:
    """Nobody plays again: the same noise over the same sums, whoever is first to end the run."""
    book, run = tmp_path / "ledger", tmp_path / "run"
    ledger_at(book, Unit.TRAJECTORY)
    found: list[Any] = []
    nobody = Ward()

    def copy(done: int, people: int) -> None:
        if done == people:
            copies(run, 2)
            with Ledger.open(book) as second:
                found.append(WARD.resume(nobody, tmp_path / "run-0", ledger=second))

    given: dict[str, Any] = {"folder": run, "progress": copy, "preflight": False}
    with Ledger.open(book) as ledger:
        session = PrivacySession(ledger=ledger, run="one")
        found.append(WARD.learn(Ward(), people=20, session=session, **given))
        found.append(WARD.resume(nobody, tmp_path / "run-1", ledger=ledger))
        assert nobody.played == 0
        assert all(one.to_dict() == found[0].to_dict() for one in found)
        found[0].certificate.verify(strict=True)
        ends = [entry for entry in ledger.entries() if entry.note.startswith("ended ")]
        assert len(ends) == 1
        # It is noise, and of this run alone.
        again = WARD.learn(Ward(), people=20, preflight=False)
        assert again.to_dict()["actor"] != found[0].to_dict()["actor"]
    assert payments(book) == 1


class Unplugged:
    """A logger that fails once."""

    def __init__(self, at: str) -> None:
        self.at, self.rows = at, list[Any]()

    def write(self, rows: Any) -> None:
        self._fail("write")
        self.rows = list(rows)

    def close(self) -> None:
        self._fail("close")

    def _fail(self, name: str) -> None:
        if self.at == name:
            self.at = ""
            raise ConnectionError


@pytest.mark.parametrize("at", ["write", "close", "result", "end"])
def test_what_fails_after_the_last_of_the_people_loses_nothing(
    at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is marked as ended by then, so that nobody can play again."""
    book, run, log = tmp_path / "ledger", tmp_path / "run", Unplugged(at)
    ledger_at(book, Unit.TRAJECTORY)
    agent = replace(WARD, return_range=(0.0, 1.0), curve="paid")
    kinds: dict[str, Any] = {"result": ActorCriticTraining, "end": Ledger}
    if at in kinds:
        real = getattr(kinds[at], at)

        def fails_once(*args: Any) -> Any:
            monkeypatch.setattr(kinds[at], at, real)
            if at == "end":
                real(*args)
            raise ConnectionError

        monkeypatch.setattr(kinds[at], at, fails_once)
    with Ledger.open(book) as ledger:
        session = PrivacySession(ledger=ledger, run="one")
        given: dict[str, Any] = {"session": session, "folder": run, "preflight": False}
        with pytest.raises(ConnectionError):
            agent.learn(Ward(), people=20, loggers=[log], **given)
        assert ledger.generation(NoiseKey.read(run).token) == (0, True)
        nobody = Ward()
        found = agent.resume(nobody, run, ledger=ledger, loggers=[log])
    assert nobody.played == 0
    found.certificate.verify(strict=True)
    assert found.curve is not None
    assert [row["return"] for row in log.rows] == found.curve.tolist()
    assert len(log.rows) == 5
    assert payments(book) == 1
    assert not any(run.iterdir())


@pytest.mark.parametrize("keep", [False, True])
def test_the_end_of_a_superseded_run_is_not_given_away_later(keep: bool, tmp_path: Path) -> None:
    """Its last state is on disk when it is refused."""
    book, run = tmp_path / "ledger", tmp_path / "run"
    ledger_at(book, Unit.TRAJECTORY)
    found: list[Any] = []

    def copy(done: int, people: int) -> None:
        if done == 16:
            copies(run, 1)
        if done == people and not found:
            with Ledger.open(book) as second:
                found.append(WARD.resume(Ward(), tmp_path / "run-0", ledger=second))

    with Ledger.open(book) as ledger:
        given: dict[str, Any] = {"folder": run, "progress": copy, "preflight": False}
        with pytest.raises(InputError, match="what this copy found is not released"):
            WARD.learn(
                Ward(),
                people=20,
                session=PrivacySession(ledger=ledger, run="one"),
                keep=keep,
                **given,
            )
        with pytest.raises(InputError, match="what this copy found is not released"):
            WARD.resume(Ward(), run, ledger=ledger)
        # Without its ledger it is refused as well.
        with pytest.raises(InputError, match="begun with a ledger"):
            WARD.resume(Ward(), run)


def test_a_run_that_diverged_has_told_so_and_no_copy_goes_on(tmp_path: Path) -> None:
    agent = ActorCritic(budget=Budget(5.0, 1e-6), batch=4, max_steps=1, actor_step=1e308, clip=1e10)
    book, run = tmp_path / "ledger", tmp_path / "run"
    ledger_at(book, Unit.TRAJECTORY)

    def copy(done: int, people: int) -> None:
        if not (tmp_path / "run-0").exists():
            copies(run, 1)

    given: dict[str, Any] = {"folder": run, "progress": copy, "preflight": False}
    with Ledger.open(book) as ledger:
        with pytest.raises(InputError, match="grew without bound"):
            agent.learn(
                Ward(), people=20, session=PrivacySession(ledger=ledger, run="one"), **given
            )
        with pytest.raises(InputError, match="has ended"):
            agent.resume(Ward(), tmp_path / "run-0", ledger=ledger)
    assert not run.exists()


def test_a_superseded_run_does_not_tell_that_it_diverged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = replace(WARD, actor_step=1e308, clip=1e10)

    def elsewhere(*_: Any) -> None:
        raise InputError("Gone on with elsewhere.")

    monkeypatch.setattr(Ledger, "end", elsewhere)
    ledger_at(tmp_path / "ledger", Unit.TRAJECTORY)
    given: dict[str, Any] = {"folder": tmp_path / "run", "preflight": False}
    with Ledger.open(tmp_path / "ledger") as ledger:
        session = PrivacySession(ledger=ledger, run="one")
        with pytest.raises(InputError) as refused:
            agent.learn(Ward(), people=20, session=session, **given)
    told = "".join(traceback.format_exception(refused.value))
    assert "Gone on with elsewhere." in told
    assert "grew without bound" not in told


def test_the_last_state_of_a_superseded_copy_is_not_that_of_the_other(tmp_path: Path) -> None:
    """Not even beside the key of the copy that passed, as a backup of parts may put them."""
    book, run, other = tmp_path / "ledger", tmp_path / "run", tmp_path / "run-0"
    ledger_at(book, Unit.TRAJECTORY)

    def copy(done: int, people: int) -> None:
        if done == 16:
            copies(run, 1)
        if done == people:
            with Ledger.open(book) as second:
                WARD.resume(Ward(), other, ledger=second, keep=True)

    with Ledger.open(book) as ledger:
        session = PrivacySession(ledger=ledger, run="one")
        given: dict[str, Any] = {"folder": run, "progress": copy, "preflight": False}
        with pytest.raises(InputError, match="what this copy found is not released"):
            WARD.learn(Ward(), people=20, session=session, **given)
        shutil.copy(other / KEY_FILE, run / KEY_FILE)
        with pytest.raises(InputError, match="of another run than its key, or of another copy"):
            WARD.resume(Ward(), run, ledger=ledger)
        shutil.copy(other / CHECKPOINT, run / CHECKPOINT)
        found = [WARD.resume(Ward(), one, ledger=ledger).to_dict() for one in (run, other)]
        assert found[0] == found[1]


def test_what_cannot_be_removed_is_warned_of_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, run, unlink = tmp_path / "ledger", tmp_path / "run", Path.unlink
    ledger_at(book, Unit.TRAJECTORY)

    def failing(self: Path, missing_ok: bool = False) -> None:
        if self.name in (KEY_FILE, CHECKPOINT):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", failing)
    with Ledger.open(book) as ledger:
        session = PrivacySession(ledger=ledger, run="one")
        with pytest.warns(UserWarning, match="could not be removed") as warned:
            found = WARD.learn(Ward(), people=20, session=session, folder=run, preflight=False)
    assert [str(one.message).split("'")[1] for one in warned] == [
        *(str(run / CHECKPOINT), str(run / KEY_FILE)),
    ]
    found.certificate.verify(strict=True)


def test_a_round_that_fails_after_a_release_is_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it does follows from what was released, and another try would be another release."""
    learner = FunctionalQ(
        release="evaluations",
        budget=Budget(1.0, 1e-6),
        reward_radius=0.5,
        reward_range=(0.0, 1.0),
        steps=40,
        evaluations=3,
    )

    def fails(*_: Any, **__: Any) -> None:
        raise InputError("The environment observes infinities.")

    monkeypatch.setattr(reward_releases, "collect_greedy_rollout", fails)
    book, run = tmp_path / "ledger", tmp_path / "run"
    ledger_at(book, Unit.REWARD_FUNCTION)
    with Ledger.open(book) as ledger:
        session = PrivacySession(ledger=ledger, run="one")
        given: dict[str, Any] = {"folder": run, "preflight": False}
        with pytest.raises(InputError, match="observes infinities"):
            learner.learn(Ward(), session=session, **given)
        ((entry, end),) = [ledger.entries()]
        assert bool(entry.events)
        assert end.note.startswith("ended ")
    assert not run.exists()


@pytest.mark.parametrize("release", ["reward-model", "rewards", "evaluations"])
def test_a_secret_reward_that_is_read_again_is_released_by_one(
    release: Any, tmp_path: Path
) -> None:
    learner = FunctionalQ(
        release=release,
        budget=Budget(1.0, 1e-6),
        reward_radius=0.5,
        reward_range=(0.0, 1.0),
        steps=40,
    )

    def stop(done: int, stages: int) -> None:
        raise Killed

    book, run = tmp_path / "ledger", tmp_path / "run"
    ledger_at(book, Unit.REWARD_FUNCTION)
    given: dict[str, Any] = {"progress": stop, "preflight": False}
    with Ledger.open(book) as ledger:
        with pytest.raises(Killed):
            learner.learn(
                Ward(), session=PrivacySession(ledger=ledger, run="one"), folder=run, **given
            )
        first, second = copies(run, 2)
        found = learner.resume(Ward(), first, ledger=ledger, keep=True)
        with pytest.raises(InputError, match=r"has ended|gone on with elsewhere"):
            learner.resume(Ward(), second, ledger=ledger)
        # What was released may be planned on by everybody.
        third, fourth = copies(first, 2)
        for one in (third, fourth):
            again = learner.resume(Ward(), one, ledger=ledger)
            assert np.array_equal(again.parameters, found.parameters)
    assert payments(book) == 1


def test_a_kill_between_the_result_and_the_key_leaves_no_key_for_long(tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ["train", "functional-q", *REWARDS, "--reward-radius", "0.5", "--out", str(run)]
    assert cli.run(words) == 0
    for name in (KEY_FILE, CHECKPOINT, f".{KEY_FILE}.privrl-half"):
        (run / name).write_bytes(b"secret")
    assert cli.run(["train", "functional-q", "--out", str(run), "--resume"]) == 2
    assert sorted(results(run)) == [
        *("certificate.json", "policy.json", "result.json", "reward_model.json"),
    ]


# --- two at once ----------------------------------------------------------------------------------


def test_a_run_that_is_under_way_cannot_be_resumed_or_begun_beside_it(
    tmp_path: Path, stops: Callable[[int], None]
) -> None:
    told: list[str] = []
    run = tmp_path / "run"

    def beside() -> None:
        env, sweeping = TWO, training.Replicas((0,))
        program: Any = None
        for again in (
            lambda: AGENT.resume(env, run),
            lambda: AGENT.learn(env, people=12, folder=run),
            lambda: training.train(program, 1, sweeping, folder=run),
        ):
            try:
                again()
            except InputError as error:
                told.append(str(error))

    def ask(done: int, people: int) -> None:
        if not told:
            other = threading.Thread(target=beside)
            other.start()
            other.join()

    AGENT.learn(TWO, people=12, folder=run, progress=ask)
    assert len(told) == 3
    assert all(one.startswith("Another process is at work in ") for one in told)
    assert not any(run.iterdir())


PROGRAM = "import sys; from privrl.cli import main; main(sys.argv[1:])"


def began(words: list[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", PROGRAM, *words]
    return subprocess.Popen(command, cwd=os.getcwd(), stderr=subprocess.PIPE)


@pytest.mark.slow
def test_of_two_processes_that_resume_at_once_one_goes_on(
    tmp_path: Path, stops: Callable[[int], None]
) -> None:
    run = tmp_path / "run"
    words = ["train", "actor-critic", "--env", "MDP100", "--people", "4000", "--batch", "10"]
    stops(2)
    assert cli.run([*words, "--return-range=-500,0", *BUDGET, "--out", str(run)]) == 130
    (kept,) = copies(run, 1)
    both = [began(["train", "actor-critic", "--out", str(run), "--resume"]) for _ in range(2)]
    told = [process.communicate()[1].decode() for process in both]
    assert sorted(process.returncode for process in both) == [0, 2]
    refusal = next(one for one, done in zip(told, both, strict=True) if done.returncode)
    assert "Another process is at work" in refusal or "is finished" in refusal
    stops(10**6)
    assert cli.run(["train", "actor-critic", "--out", str(kept), "--resume"]) == 0
    assert results(kept) == results(run)


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(4))
def test_killed_at_a_random_moment_copies_come_to_the_same(attempt: int, tmp_path: Path) -> None:
    """SIGKILL, secret noise, and a ledger that pays once."""
    wait, killed = random.Random(attempt).uniform(0.0, 3.0), False
    for number in range(8):
        run, book = tmp_path / f"run{number}", tmp_path / f"ledger{number}"
        words = ["train", "actor-critic", "--env", "MDP100", "--people", "20000", "--batch", "10"]
        words += ["--return-range=-500,0", *BUDGET, *ledger_at(book, Unit.TRAJECTORY)]
        process = began([*words, "--out", str(run)])
        try:
            while not (run / KEY_FILE).exists():
                assert process.poll() is None
                time.sleep(0.005)
            time.sleep(wait)
            killed = process.poll() is None
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        # A process that has written its result is over, though it may still be there.
        killed = killed and not (run / "result.json").exists()
        if killed:
            break
        wait /= 2.0  # a machine on which the run is over by then
    assert killed
    made = [run, *copies(run, 2)]
    for one in made:
        assert cli.run(["train", "actor-critic", "--out", str(one), "--resume"]) == 0
    assert payments(book) == 1
    first, *others = (results(one) for one in made)
    # A kill may leave the lock's file, which is empty and stops nobody.
    assert all(one == first for one in others)
    assert set(first) == {"certificate.json", "policy.json", "result.json"}
