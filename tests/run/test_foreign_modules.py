"""Run folders and configurations from elsewhere: no code is run because a file says so."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from privrl import cli
from tests.cli.conftest import stops

__all__ = ["stops"]

MODULE = """
import pathlib
import gymnasium
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

pathlib.Path(__file__).with_name("was-imported").touch()
gymnasium.register("FromElsewhere-v0", lambda **_: FrozenLakeEnv(is_slippery=False))
"""
ENV = "from_elsewhere:FromElsewhere-v0"
TRAIN = ["train", "actor-critic"]
WORDS = ["--people", "8", "--batch", "2", "--max-steps", "4", "--return-range", "0,1"]
BUDGET = ["--epsilon", "5", "--delta", "1e-3"]


@pytest.fixture
def imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Puts a module where it can be imported, and tells whether it was."""
    (tmp_path / "from_elsewhere.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "from_elsewhere", raising=False)

    def was() -> bool:
        mark = tmp_path / "was-imported"
        found = mark.exists()
        mark.unlink(missing_ok=True)
        sys.modules.pop("from_elsewhere", None)
        return found

    return was


def run_json(env: object) -> str:
    words = {"learner": "actor-critic", "env": env, "people": 8, "epsilon": 5.0, "delta": 1e-3}
    told: dict[str, object] = {
        "words": words,
        "ledger": None,
        "name": "x",
        "seed": 1,
        "id": "0" * 32,
        "formats": [],
    }
    return json.dumps({"kind": "privrl run", "format": 2, **told})


def test_a_run_from_elsewhere_imports_nothing(
    imported: Callable[[], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(run_json(ENV))
    (run / "checkpoint.npz").write_bytes(b"")
    (run / "noise.key").write_text("{}")
    assert cli.run([*TRAIN, "--out", str(run), "--resume"]) == 2
    assert not imported()
    told = capsys.readouterr().err
    assert f"names the environment '{ENV}', for which a module is imported" in told
    # Nor is another one taken than the caller's.
    assert cli.run([*TRAIN, "--out", str(run), "--resume", "--env", "Chain"]) == 2
    assert not imported()
    assert "and you said 'Chain'" in capsys.readouterr().err


def test_a_sweep_from_elsewhere_imports_nothing(
    imported: Callable[[], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    about = json.loads(run_json(ENV))["words"]
    plan = {"grid": {"actor_step": [0.1]}, "seeds": 1, "episodes": 8, "replicas": 1}
    plan |= {"segment": None, "curves": False}
    told = {"kind": "privrl sweep", "format": 1, "plan": plan, "about": about}
    (tmp_path / "plan.json").write_text(json.dumps(told))
    assert cli.run(["sweep", "--out", str(tmp_path), "--resume"]) == 2
    assert not imported()
    assert "for which a module is imported" in capsys.readouterr().err


@pytest.mark.parametrize("command", [TRAIN, ["sweep", "actor-critic", "--grid", "actor_step=0.1"]])
def test_a_configuration_from_elsewhere_imports_nothing(
    command: list[str],
    imported: Callable[[], bool],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "c.toml").write_text(f'env = "{ENV}"\nepsilon = 5\ndelta = 1e-3\npeople = 8\n')
    config = ["--config", str(tmp_path / "c.toml"), "--out", str(tmp_path / "run")]
    assert cli.run([*command, *config]) == 2
    assert not imported()
    assert "for which a module is imported" in capsys.readouterr().err


@pytest.mark.slow
def test_who_says_the_module_again_goes_on(
    imported: Callable[[], bool],
    stops: Callable[[int], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run = ["--out", str(tmp_path / "run")]
    stops(1)
    assert cli.run([*TRAIN, "--env", ENV, *WORDS, *BUDGET, "--no-preflight", *run]) == 130
    assert imported()
    assert f"--resume --env {ENV}" in capsys.readouterr().err
    stops(1000)
    assert cli.run([*TRAIN, *run, "--resume"]) == 2
    assert not imported()
    assert cli.run([*TRAIN, *run, "--resume", "--env", ENV]) == 0
