"""One engine for every learner: interrupted runs, callbacks, logs, checkpoints, specs in them."""

import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import privrl
from privrl.control import PGC, ActorCritic, FunctionalQ, LoggedQ, OneOf, ProspectQ
from privrl.control.engine import CHECKPOINT, Stopped
from privrl.control.spec_json import decode_spec, encode_spec
from privrl.core.progress import TrainingProgress
from privrl.data import Fourier, Trajectories
from privrl.envs.control import CartPole
from privrl.envs.tabular import TabularMDP
from privrl.papers import rajabi2022, seo2020, wang2019
from privrl.privacy import Budget, InputError, Ledger, PrivacySession
from privrl.privacy.resuming import KEY_FILE
from privrl.run.logs import CsvLog

BUDGET = Budget(5.0, 1e-6)


def mdp(step_limit: int = 5) -> TabularMDP:
    moves = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.9, 0.1], [0.1, 0.9]]])
    rewards = np.array([[0.0, 1.0], [0.0, 1.0]])
    return TabularMDP.from_dense(
        moves, rewards, start=[0.5, 0.5], step_limit=step_limit, name="Two"
    )


TWO = mdp()
DATA = Trajectories.from_arrays(
    np.arange(30) % 3, np.arange(30) % 2, np.linspace(0, 1, 30), lengths=np.ones(30, int)
)
ACTOR_CRITIC = ActorCritic(budget=BUDGET, batch=4, return_range=(0.0, 5.0))
REWARDS: dict[str, Any] = {
    "budget": BUDGET,
    "reward_radius": 0.5,
    "reward_range": (0.0, 1.0),
    "steps": 40,
}
SLOW = pytest.mark.slow
LEARNERS: dict[str, tuple[Any, Any, int | None]] = {
    "actor-critic": (ACTOR_CRITIC, TWO, 12),
    "functional-q": (FunctionalQ(**REWARDS), TWO, None),
    "logged-q": (LoggedQ(2, (0.0, 1.0), Budget(1.0, 1e-3), num_states=3, updates=40), DATA, None),
    "prospect": (ProspectQ(**REWARDS, samples=4), TWO, None),
    "seo2020": (seo2020.ActorCritic(lambda_=0.0), TWO, 6),
    "wang2019": (wang2019.FunctionalQ(samples=200, batch=20, resets=2), "Interval", None),
    "rajabi2022": (rajabi2022.ProspectQ(iterations=4, samples=3, batch=2), "ObstacleSquare", None),
    "pgc": (
        PGC(epsilon=2.0, buffer=10, dynamics=OneOf(CartPole(), "gravity", (9.7, 9.8))),
        *(CartPole(), 40),
    ),
}
QUICK = ("actor-critic", "functional-q", "logged-q", "seo2020")


def stop_at(number: int) -> Callable[[TrainingProgress], bool]:
    """To stop a run after so many steps."""
    seen: list[TrainingProgress] = []

    def on_step(at: TrainingProgress) -> bool:
        seen.append(at)
        return len(seen) == number

    return on_step


@pytest.mark.parametrize("seed", [None, 3], ids=["secret", "seed"])
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in QUICK else SLOW) for one in LEARNERS]
)
def test_a_stopped_run_goes_on_bit_for_bit(name: str, seed: int | None, tmp_path: Path) -> None:
    """Without the spec: its folder tells. Copies come to the same, and with a seed a whole run."""
    spec, env, people = LEARNERS[name]
    run, session = tmp_path / "run", PrivacySession(seed=seed)
    with pytest.raises(Stopped) as stopped:
        privrl.learn(spec, env, people, session=session, folder=run, on_step=stop_at(1))
    at = stopped.value.progress
    assert 0 < at.done < at.planned
    assert at.share == at.done / at.planned
    assert at.metrics == {}
    assert (run / KEY_FILE).stat().st_mode & 0o777 == 0o600
    assert {one.name for one in run.iterdir()} <= {KEY_FILE, CHECKPOINT}
    shutil.copytree(run, tmp_path / "copy")
    found = privrl.resume(env, run)
    again = spec.resume(env, tmp_path / "copy") if hasattr(spec, "resume") else None
    assert not any(run.iterdir())
    assert again is None or again.to_dict() == found.to_dict()
    if seed is not None:
        whole = privrl.learn(spec, env, people, session=session)
        assert whole.to_dict() == found.to_dict()


def test_a_stopped_run_pays_once(tmp_path: Path) -> None:
    book, run = tmp_path / "ledger", tmp_path / "run"
    with Ledger.create(book, "all", unit=privrl.privacy.Unit.TRAJECTORY) as ledger:
        session = PrivacySession(ledger=ledger, run="one")
        with pytest.raises(Stopped):
            privrl.learn(ACTOR_CRITIC, TWO, 12, session=session, folder=run, on_step=stop_at(2))
        privrl.resume(TWO, run, ledger=ledger).certificate.verify(strict=True)
        assert sum(bool(entry.events) for entry in ledger.entries()) == 1


def test_what_is_told_is_public() -> None:
    """Returns are metrics only where the session says that they are public."""
    for public in (False, True):
        told: list[TrainingProgress] = []
        session = PrivacySession(seed=1, public=public)
        learned = ACTOR_CRITIC.learn(TWO, 12, session=session, on_step=told.append)
        assert [(at.done, at.planned, at.unit) for at in told] == [
            (done, 12, "people") for done in (4, 8, 12)
        ]
        assert all(set(at.metrics) == ({"return"} if public else set()) for at in told)
        if public:
            assert learned.curve is not None
            means = [at.metrics["return"] for at in told]
            assert means == pytest.approx(learned.curve.reshape(3, 4).mean(axis=1))


def test_a_bar_is_drawn_on_terminals_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ACTOR_CRITIC.learn(TWO, 12, progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("FORCE_COLOR", "1")
    ACTOR_CRITIC.learn(TWO, 12, progress=True)
    assert "of 12 people" in capsys.readouterr().err


# --- logs ----------------------------------------------------------------------------------------


class Remembers:
    """A logger without a position."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self.closed = False

    def write(self, rows: Sequence[Any]) -> None:
        self.rows += rows

    def close(self) -> None:
        self.closed = True


def test_logs_hold_returns_only_where_they_are_public_or_paid_for() -> None:
    public, log = PrivacySession(seed=1, public=True), Remembers()
    learned = ACTOR_CRITIC.learn(TWO, 12, session=public, loggers=[log])
    assert [row["episode"] for row in log.rows] == list(range(1, 13))
    assert learned.curve is not None
    assert [row["return"] for row in log.rows] == learned.curve.tolist()
    assert log.closed
    with pytest.raises(InputError, match="about people"):
        ACTOR_CRITIC.learn(TWO, 12, loggers=[log])
    with pytest.raises(InputError, match="nothing is played here"):
        LEARNERS["logged-q"][0].fit(DATA, loggers=[log])


@pytest.mark.slow
def test_a_paid_curve_is_logged_when_the_run_has_ended(tmp_path: Path) -> None:
    """Before that nothing is given away: where people play, a copy may still take over."""
    spec, log = (
        ActorCritic(budget=BUDGET, batch=4, return_range=(0.0, 5.0), curve="paid"),
        Remembers(),
    )
    with pytest.raises(Stopped):
        spec.learn(TWO, 12, folder=tmp_path, loggers=[log], on_step=stop_at(2))
    assert log.rows == []
    learned = privrl.resume(TWO, tmp_path, loggers=[log])
    assert log.rows == [
        {"episode": 4 * k + 4, "return": value} for k, value in enumerate(learned.curve)
    ]


def test_a_log_is_cut_where_the_checkpoint_is(tmp_path: Path) -> None:
    session = PrivacySession(seed=1, public=True)
    whole, half = CsvLog(tmp_path / "whole.csv"), CsvLog(tmp_path / "half.csv")
    ACTOR_CRITIC.learn(TWO, 12, session=session, loggers=[whole])
    given: dict[str, Any] = {"session": session, "folder": tmp_path / "run", "loggers": [half]}
    with pytest.raises(Stopped):
        ACTOR_CRITIC.learn(TWO, 12, on_step=stop_at(2), **given)
    with half.path.open("a") as file:
        file.write("9,0.0\n")  # which a crash left behind the checkpoint
    ACTOR_CRITIC.resume(TWO, tmp_path / "run", loggers=[CsvLog(half.path)])
    assert half.path.read_bytes() == whole.path.read_bytes()


@pytest.mark.parametrize("name", ["mlflow"])
def test_the_docs_logger_works(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of "In Python" in docs/train.md but what needs a program, with a stand-in for MLflow."""
    told: list[Any] = []
    stand_in = SimpleNamespace(
        log_metrics=lambda figures, step: told.append((step, figures)),
        end_run=lambda: told.append("end"),
    )
    monkeypatch.setitem(sys.modules, name, stand_in)
    monkeypatch.chdir(tmp_path)
    page = Path(__file__).parents[2] / "docs" / "train.md"
    part = page.read_text(encoding="utf-8").partition("## In Python")[2]
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", part.partition("### Many")[0], re.S):
        kept = [line for line in block.splitlines() if "privrl.resume(" not in line]
        exec("\n".join(kept), names)
    assert told[-1] == "end"
    assert [step for step, _ in told[:-1]] == list(range(1, 41))
    assert all(set(figures) == {"return"} for _, figures in told[:-1])


# --- checkpoints, and specs in them --------------------------------------------------------------


def test_checkpoints_of_earlier_versions_are_refused_in_a_sentence(tmp_path: Path) -> None:
    for names in (("state.npz", KEY_FILE), ("released.npz", KEY_FILE), (CHECKPOINT,)):
        folder = tmp_path / names[0]
        folder.mkdir()
        for name in names:
            (folder / name).write_text("{}")
        with pytest.raises(InputError, match="holds a run of an earlier version of privrl: go on"):
            privrl.resume(TWO, folder)
        assert {one.name for one in folder.iterdir()} == set(names)
    with pytest.raises(InputError, match="There is no run to resume"):
        privrl.resume(TWO, tmp_path / "nowhere")


def test_another_learner_or_environment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        privrl.learn(LEARNERS["seo2020"][0], TWO, 6, folder=tmp_path, on_step=stop_at(1))
    with pytest.raises(InputError, match="belongs to another agent"):
        privrl.resume(TWO, tmp_path, spec=ACTOR_CRITIC)
    changed = seo2020.ActorCritic(lambda_=0.0, gamma=0.5)
    with pytest.raises(InputError, match="not the settings that the run was begun with"):
        privrl.resume(TWO, tmp_path, spec=changed)
    with pytest.raises(InputError, match="not the environment or behaviour"):
        privrl.resume(mdp(6), tmp_path)
    privrl.resume(TWO, tmp_path)


@pytest.mark.parametrize("name", LEARNERS)
def test_specs_survive_their_json(name: str, tmp_path: Path) -> None:
    spec = LEARNERS[name][0]
    assert decode_spec(encode_spec(spec), tmp_path) == spec


def test_a_spec_without_a_json_form_is_asked_for(tmp_path: Path) -> None:
    spec = FunctionalQ(**REWARDS, reward_features=lambda states: np.ones((len(states), 1)))
    assert encode_spec(spec) is None
    with pytest.raises(InputError, match=r"say it with spec=\.\.\."):
        decode_spec(None, tmp_path)
    wrong = {"class": "os:system", "fields": {}}
    with pytest.raises(InputError, match="damaged"):
        decode_spec(wrong, tmp_path)
    whole = encode_spec(ActorCritic(budget=BUDGET, features=Fourier(2, [0.0], [1.0])))
    assert whole is not None
    with pytest.raises(InputError, match="damaged"):
        decode_spec(whole | {"fields": {"speed": 1}}, tmp_path)
