"""`privrl reproduce`, of a paper that takes no time."""

import json
from pathlib import Path

import pytest

from privrl import cli
from privrl.papers.reproduce import catalogue
from tests.papers.reproduce import toy


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    known = {one.name: one for one in (toy.make_target(), toy.make_figure())}
    monkeypatch.setattr(catalogue, "load", lambda: known)
    monkeypatch.chdir(tmp_path)


def test_targets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        *("toy.table1", "toy.figure1"),
    ]
    assert cli.run(["reproduce", "--list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["place"] == "Section 1, Table 1"


def test_a_run_leaves_rows_pictures_and_a_verdict(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["reproduce", "toy.table1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["results"] == "reproduced"
    (verdict,) = found["verdicts"]
    assert (verdict["target"], verdict["word"]) == ("toy.table1", "reproduced")
    assert verdict["differences"][0]["outcome"] == "holds"
    there = sorted(one.name for one in Path("reproduced").iterdir())
    assert there == ["toy.runs.json", "toy.table1.svg"]
    assert cli.run(["reproduce", "report", "--results", "reproduced", "--out", "a.html"]) == 0
    assert "reproduced" in capsys.readouterr().out
    assert "toy.table1" in Path("a.html").read_text()


def test_a_verdict_is_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["reproduce", "all", "--quick", "--seeds", "100:103", "--out", "own"]
    assert cli.run(words) == 0
    assert "not comparable" in capsys.readouterr().out
    assert Path("own/toy.figure1.svg").exists()


def test_an_interrupted_run_goes_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, stopped = toy.trials, [True]

    def stop_once(*given: object) -> object:
        if given[2] == list(range(110, 120)) and stopped:
            stopped.pop()
            raise KeyboardInterrupt
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(toy, "trials", stop_once)
    assert cli.run(["reproduce", "toy.table1"]) == 130
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "say the same again" in printed.err
    toy.CALLS.clear()
    assert cli.run(["reproduce", "toy.table1"]) == 0
    assert 0 < len(toy.CALLS) < 24


def test_what_is_wrong_is_said_in_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for words, sentence in {
        ("toy.tabel1",): "no target 'toy.tabel1'. Near are toy.table1",
        (): "Say what to run",
        ("toy", "--seeds", "0:10"): "--seeds must be a range from 100 on",
        ("toy", "--seeds", "many"): "--seeds must be such as 100:120",
        ("toy", "--results", "x"): "--results is for report alone",
    }.items():
        assert cli.run(["reproduce", *words]) == 2
        printed = capsys.readouterr()
        assert sentence in printed.err
        assert printed.err.count("\n") == 1
    assert list(Path().iterdir()) == []
