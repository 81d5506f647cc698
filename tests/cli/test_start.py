"""How `privrl` begins and ends: Ctrl-C while it imports, and standard output that takes no more."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.stock import EVALUATE, TABLE, Stock

# Ctrl-C in the very moment in which a module is about to be imported.
_INTERRUPTED = """
import os, signal, sys
module, sys.argv = sys.argv[1], ["privrl", *sys.argv[2:]]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from privrl.__main__ import main
main()
"""


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = Stock(tmp_path_factory.mktemp("stock"))
    made.make({"reading"})
    return made.folder


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("typer", ["--version"]),
        pytest.param("privrl.cli.evaluate", ["--help"], marks=pytest.mark.slow),
        ("numpy", ["check", "stays.csv", *TABLE]),
        pytest.param("pyarrow", ["check", "stays.csv", *TABLE], marks=pytest.mark.slow),
        pytest.param("privrl.run.request", ["check", "stays.csv", *TABLE], marks=pytest.mark.slow),
        pytest.param("rich.progress", ["check", "stays.csv", *TABLE], marks=pytest.mark.slow),
        ("scipy", ["budget", "Gaussian(1, 1)", "--delta", "1e-5"]),
        ("jax", ["train", "pgc", "--env", "CartPole", "--out", "run"]),
    ],
)
def test_ctrl_c_while_something_is_imported(module: str, words: list[str], stock: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module, *words],
        cwd=stock,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")


def _full(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    with open("/dev/full", "w") as full:
        return subprocess.run(
            [sys.executable, "-m", "privrl", *words],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_full_standard_output_is_said_in_a_sentence(tmp_path: Path) -> None:
    told = "Standard output or a temporary file cannot be written: No space left on device."
    for words in (["--version"], ["budget", "Gaussian(1, 1)", "--delta", "1e-5"]):
        found = _full(words, tmp_path)
        assert found.returncode == 2
        assert found.stderr.startswith(f"privrl: {told}")
        assert len(found.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_what_was_found_is_kept_when_standard_output_is_full(stock: Path) -> None:
    found = _full(["evaluate", "stays.csv", *EVALUATE, "--public", "--out", "kept"], stock)
    assert found.returncode == 2
    assert len(found.stderr.splitlines()) == 1
    assert (stock / "kept" / "study.json").exists()
    assert (stock / "kept" / "report.html").exists()


@pytest.mark.slow
def test_nobody_who_reads_on_is_no_fault(tmp_path: Path) -> None:
    end, begin = os.pipe()
    os.close(end)
    found = subprocess.run(
        [sys.executable, "-m", "privrl", "limits", "--epsilon", "1"],
        cwd=tmp_path,
        stdout=begin,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(begin)
    assert found.stderr == ""
