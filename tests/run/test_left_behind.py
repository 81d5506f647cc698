"""What a kill leaves in a run's folder, and who takes it away."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from privrl import cli
from privrl.control.engine import CHECKPOINT
from privrl.core import files
from privrl.privacy import InputError
from privrl.privacy.resuming import KEY_FILE

BUDGET = ["--epsilon", "5", "--delta", "1e-6"]
PEOPLE = ["train", "actor-critic", "--env", "Chain", "--max-steps", "6", "--people", "40"]
PEOPLE += ["--batch", "4", "--return-range", "0,1", *BUDGET]
SECRET = ["train", "functional-q", "--env", "Chain", "--steps", "60", "--reward-range", "0,1"]
SECRET += ["--reward-radius", "0.5", *BUDGET]

# Kills itself when it calls a function of `os` on a path with a certain name for the n-th time.
_DYING = """
import os, signal, sys
from privrl import cli
call, name, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
real = getattr(os, call)
def dying(path, *rest, **options):
    global left
    if name in os.path.basename(os.fspath(path)):
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return real(path, *rest, **options)
setattr(os, call, dying)
sys.exit(cli.run(sys.argv[4:]))
"""


def held(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "call", "name", "time"),
    [
        (PEOPLE, "replace", ".checkpoint.npz.", 1),
        (PEOPLE, "replace", ".checkpoint.npz.", 3),
        (PEOPLE, "replace", ".certificate.json.", 1),
        (PEOPLE, "replace", ".result.json.", 1),
        (PEOPLE, "unlink", CHECKPOINT, 1),
        (PEOPLE, "unlink", KEY_FILE, 1),
        (SECRET, "replace", ".checkpoint.npz.", 1),
        (SECRET, "replace", ".result.json.", 1),
        (SECRET, "unlink", CHECKPOINT, 1),
    ],
)
def test_a_folder_that_is_finished_holds_no_secrets(
    command: list[str], call: str, name: str, time: int, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = [sys.executable, "-c", _DYING, call, name, str(time), *command, "--out", str(run)]
    assert subprocess.run(words, capture_output=True, check=False).returncode == -signal.SIGKILL
    before = held(run)
    assert before & {KEY_FILE, CHECKPOINT} or any("npz" in one for one in before)
    # Going on finishes it, or says that it is.
    over = (run / "result.json").exists()
    assert cli.run([*command[:2], "--out", str(run), "--resume"]) == (2 if over else 0)
    after = held(run)
    assert "result.json" in after
    assert not after & {KEY_FILE, CHECKPOINT}
    assert not [one for one in after if one.startswith(".")]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("again", [["--resume"], [*PEOPLE[2:]]])
def test_whoever_comes_to_a_finished_folder_tidies_it(
    again: list[str], whole: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("result.json", KEY_FILE, CHECKPOINT, "run.json", "notes.txt"):
        (run / name).write_text("{}")
    (run / "result.json").write_text('{"kind": "privrl actor-critic"}')
    if not whole:
        (run / "run.json").unlink()
    for name in (KEY_FILE, CHECKPOINT, "certificate.json"):
        (run / f".{name}.abcd1234.privrl-half").write_text("half")
    (run / ".mine").write_text("kept")
    assert cli.run([*PEOPLE[:2], "--out", str(run), *again]) == 2
    told = capsys.readouterr().err
    assert "is finished" in told or "holds a run already" in told
    assert held(run) == {"result.json", "notes.txt", ".mine"} | ({"run.json"} if whole else set())


@pytest.mark.parametrize("again", [["--resume"], [*PEOPLE[2:]]])
@pytest.mark.parametrize("result", ["{}", "[1]", "not JSON", '{"kind": "another"}'])
def test_files_of_other_programs_stay(result: str, again: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    own = {"result.json", CHECKPOINT, KEY_FILE}
    for name in own:
        (run / name).write_text(result)
    assert cli.run([*PEOPLE[:2], "--out", str(run), *again]) == 2
    assert held(run) == own


def test_what_is_half_written_goes_with_the_next_who_has_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise SystemError

    with monkeypatch.context() as dying:
        # As a kill would have it: nothing is tidied.
        dying.setattr("os.replace", killed)
        dying.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(SystemError):
            files.write(tmp_path / "key", b"secret", secret=True)
    (left,) = held(tmp_path)
    assert left.startswith(".key.")
    with files.lock_folder(tmp_path):
        assert held(tmp_path) == {files.LOCK}
        # Others are kept out, and so is their tidying.
        files.write(tmp_path / "key", b"secret", secret=True)
    assert held(tmp_path) == {"key"}
    with pytest.raises(InputError, match="cannot be written"):
        files.write(tmp_path / "nowhere" / "key", b"", secret=True)
