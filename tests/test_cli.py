"""The command line as people meet it: answers, refusals, exit codes, files."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from privrl import cli

PRIVRL = [sys.executable, "-c", "from privrl.cli import main; main()"]


def privrl(*arguments: str) -> int:
    return cli.run(list(arguments))


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    assert privrl(*arguments, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert isinstance(printed, dict)
    return printed


def test_epsilon_from_noise(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "budget", "Gaussian(1, 1)", "--delta", "1e-5")
    assert found["epsilon"] == pytest.approx(9.997, abs=1e-3)
    event = "Repeated(PoissonSampled(Gaussian(1, 1), 0.001), 1000)"
    found = answer(capsys, "budget", event, "--delta", "1e-5", "--relation", "add_remove")
    assert found["epsilon"] == pytest.approx(0.149, abs=1e-3)
    found = answer(capsys, "budget", "PureDP(0.5)", "Laplace(4, 1)")
    assert found["epsilon"] == pytest.approx(1.0)


def test_delta_from_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "budget", "Gaussian(1, 1)", "--epsilon", "9.997256")
    assert found["delta"] == pytest.approx(1e-5, rel=1e-4)


def test_noise_from_epsilon(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "budget", "Gaussian(?, 1)", "--epsilon", "1", "--delta", "1e-5")
    assert found["?"] == pytest.approx(7.461264, abs=1e-4)
    assert float(str(found["epsilon"])) <= 1.0
    steps = answer(
        capsys, "budget", "Repeated(Gaussian(30, 1), ?)", "--epsilon", "1", "--delta", "1e-5"
    )
    assert isinstance(steps["?"], int)
    population = answer(
        capsys,
        "budget",
        "FixedSizeSampled(Gaussian(2, 1), ?, 10)",
        "--epsilon",
        "1",
        "--delta",
        "1e-5",
    )
    assert isinstance(population["?"], int)
    assert population["?"] > 10
    within = answer(capsys, "budget", "PureDP(2)", "--epsilon", "1", "--delta", "0")
    assert within["within budget"] is False


def test_any_event(capsys: pytest.CaptureFixture[str]) -> None:
    for event in (
        "DiscreteGaussian(10, 3, dimension=4)",
        "DiscreteLaplace(10, 3)",
        "RandomizedResponse(1, categories=4, relation='replace-one')",
        "ApproxDP(0.5, 1e-8)",
        "FixedSizeSampled(Gaussian(2, 1), 100, 5)",
        "Disjoint([Gaussian(2, 1), Laplace(3, 1)])",
        "RandomAllocation(Gaussian(1, 1), 50)",
    ):
        assert float(str(answer(capsys, "budget", event, "--delta", "1e-5")["epsilon"])) > 0


def test_text_for_people_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert privrl("budget", "Gaussian(1, 1)", "--delta", "1e-5") == 0
    assert privrl("budget", "--claim", "xie2019", "sigma=1", "trajectories=1000") == 0
    out = capsys.readouterr().out
    assert "9.99726" in out
    assert "0.3565" in out
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.slow
def test_all_claims_fit_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert privrl("budget", "--claim", "all") == 0
    out = capsys.readouterr().out
    assert "3.286" in out
    assert max(map(len, out.splitlines())) <= 80


def test_claims_beside_certificates(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "budget", "--claim", "xie2019", "sigma=1", "--delta", "1e-5")
    assert found["kind"] == "privrl claim"
    assert found["epsilon"] == pytest.approx(0.3565, abs=1e-4)
    certified = found["certified"]
    assert isinstance(certified, dict)
    assert certified["kind"] == "privrl certificate"
    found = answer(capsys, "budget", "--claim", "wang2019", "--epsilon", "0.45")
    assert found["certified"] is None
    assert found["covers"]


def test_save_and_verify(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "certificate.json"
    plan = ["budget", "Gaussian(1, 1)", "--delta", "1e-5", "--save", str(path)]
    assert privrl(*plan) == 2
    assert "--unit" in capsys.readouterr().err
    assert not path.exists()
    assert privrl(*plan, "--unit", "trajectory") == 0
    assert list(tmp_path.iterdir()) == [path]
    capsys.readouterr()
    assert privrl("verify", str(path)) == 0
    out = capsys.readouterr().out
    assert "Verified" in out
    assert max(map(len, out.splitlines())) <= 80
    assert answer(capsys, "verify", str(path))["verified"] is True
    assert privrl("verify", str(path), "--strict") == 1
    assert "not-drawn" in capsys.readouterr().err
    path.write_text(path.read_text().replace("9.99", "1.99"))
    assert privrl("verify", str(path)) == 1
    assert capsys.readouterr().err == "privrl: This certificate was changed after it was issued.\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["budget"], "Say what was released"),
        (["budget", "Gaussian(0, 1)"], "std must be positive"),
        (["budget", "Gaussian(nan, 1)"], "is not an event"),
        (["budget", "Gaussian(1e999, 1)"], "std must be positive and finite"),
        (["budget", "Gaussian(1)"], "Gaussian takes std, bound"),
        (["budget", "Cauchy(1)"], "There is no event 'Cauchy'"),
        (["budget", "__import__('os').system('true')"], "is not an event"),
        (["budget", "Gaussian(1, 1"], "is not an event"),
        (["budget", "3"], "is not an event"),
        (["budget", "Gaussian(1, 1)"], "delta must be above 0"),
        (["budget", "Gaussian(1, 1)", "--delta", "2"], "delta must be at least 0 and below 1"),
        (["budget", "Gaussian(1, 1)", "--delta", "tiny"], "'--delta'"),
        (["budget", "Gaussian(1, 1)", "--relation", "friends"], "not a relation"),
        (["budget", "Gaussian(?, 1)"], "needs --epsilon"),
        (["budget", "Gaussian(?, 1)", "--epsilon", "0"], "epsilon must be positive"),
        (["budget", "Gaussian(?, ?)", "--epsilon", "1"], "One ? can be solved for"),
        (["budget", "PoissonSampled(Gaussian(1, 1), 1.5)"], "rate must be above 0 and at most 1"),
        (["budget", "FixedSizeSampled(Gaussian(1, 1), 5, 6)"], "must not be larger"),
        (
            ["budget", "PoissonSampled(Gaussian(1, 1), 0.5)", "--relation", "local"],
            "means nothing under local",
        ),
        (["budget", "--claim", "nobody"], "There is no claim 'nobody'"),
        (["budget", "--claim", "xie2019", "sigma=1", "sigma=2"], "sigma was given twice"),
        (["budget", "Gaussian(1, 1)", "--delta", "1e-5", "--epsilon", "nan"], "not NaN"),
        (["budget", "Gaussian(1, 1)", "--delta", "1e-5", "--unit", "user"], "belong to --save"),
        (["budget", "1or 2"], "is not an event"),
        (["budget", f"Repeated(Gaussian(1, 1), 1{'0' * 400})"], "times must be below 2^63"),
        (["budget", "Gaussian(1e-160, 1)", "--delta", "1e-5"], "out of proportion"),
        (["budget", "--claim", "xie2019", "sigma"], "give parameters like sigma=1"),
        (["budget", "--claim", "xie2019", "sigma=big"], "sigma must be a number"),
        (["budget", "--claim", "xie2019", "--save", "x.json"], "never a certificate"),
        (["verify", "nowhere.json"], "There is no file"),
        (["verify"], "Missing argument"),
        (["conjure"], "No such command"),
        (["budget", "--frequency", "3"], "No such option"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert privrl(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("privrl: ")
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [[], ["ledger"]])
def test_a_command_alone_shows_its_help(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(words) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage:")
    assert any(line.strip().startswith(("ledger ", "show ")) for line in lines)


def test_save_where_nothing_can_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    missing = tmp_path / "no" / "such" / "folder.json"
    plan = ["budget", "PureDP(1)", "--unit", "user", "--save", str(missing)]
    assert privrl(*plan) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_exit_codes_of_the_real_program(tmp_path: Path) -> None:
    ok = subprocess.run([*PRIVRL, "--version"], capture_output=True, text=True, check=False)
    assert ok.returncode == 0
    assert ok.stdout.startswith("privrl ")
    bad = subprocess.run([*PRIVRL, "budget", "3"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert "Traceback" not in bad.stderr


def test_help_does_not_load_the_heavy_libraries() -> None:
    code = (
        "import sys, privrl, privrl.cli; privrl.cli.run(['--help']);"
        "heavy = {'jax', 'scipy', 'scipy.stats', 'dp_accounting', 'matplotlib', 'randomgen'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stderr


# A run says which of these it has loaded by its first progress, and ends there.
_UNTIL_PROGRESS = """
import os, sys
from contextlib import contextmanager
from privrl import cli
from privrl.cli import common

@contextmanager
def progress(steps):
    def advance(what, share=None):
        if share:
            print(*sorted(set(os.environ["NEEDLESS"].split()) & set(sys.modules)), flush=True)
            os._exit(0)
    yield advance

common.progress_bar = progress
cli.main()
"""
_NEEDLESS = (
    *("dp_accounting", "matplotlib", "pyarrow", "tensorboard"),
    *("scipy.optimize", "scipy.sparse", "scipy.stats"),
    *("privrl.audit", "privrl.evaluation", "privrl.fleet", "privrl.papers", "privrl.report"),
    *("privrl.data.trajectories", "privrl.privacy.second_accountant", "privrl.run.sweep"),
)
_STARTS = {
    "actor-critic": (
        "--env Chain --max-steps 4 --people 4 --batch 2 --return-range 0,1 --noise independent",
        {"advance", "begin_one", "_as_replica", "_from_replica"},
    ),
    "functional-q": (
        "--env Interval --steps 20 --reward-range 0,0.5 --reward-radius 0.1",
        {"_random_rollout"},
    ),
}


@pytest.mark.parametrize("learner", _STARTS)
def test_a_run_starts_without_what_it_does_not_need(learner: str, tmp_path: Path) -> None:
    """Each of these takes a tenth of a second or more to load (`python -m benchmarks start`), and
    each operation on arrays that is not in a compiled function is a program more to be loaded."""
    words, programs = _STARTS[learner]
    options = [*words.split(), "--epsilon", "1", "--delta", "1e-3"]
    quick = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1", "JAX_LOG_COMPILES": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _UNTIL_PROGRESS, "train", learner, *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **quick, "NEEDLESS": " ".join(_NEEDLESS)},
    )
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
    assert set(re.findall(r"^Compiling jit\((\w+)\)", done.stderr, re.MULTILINE)) == programs


# --- audit ----------------------------------------------------------------------------------------


def test_an_audit_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "audit", "gaussian", "laplace", "--runs", "8000")
    assert found["failed"] == 0
    audits = found["audits"]
    assert isinstance(audits, list)
    assert [item["target"] for item in audits] == ["gaussian", "laplace"]
    assert all(0 < item["epsilon"] < 4.5 and item["curve"] for item in audits)
    assert found["mutants"] == []
    assert {item["verdict"] for item in audits} == {"not refuted"}
    assert all(item["warning"] is None and item["could_show"] > 4.0 for item in audits)


@pytest.mark.slow
def test_audits_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["gaussian", "laplace", "duchi"]
    found = answer(capsys, "audit", *names, "--runs", "4000", "--jobs", "2")
    assert isinstance(found["audits"], list)
    assert [item["target"] for item in found["audits"]] == names


def test_a_target_that_cannot_be_attacked_does_not_take_the_others_along(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_target.py").write_text(
        "from dataclasses import replace\n"
        "from privrl.audit.catalogue import find\n"
        "from privrl.privacy import InputError\n"
        "def draw(world, runs, source):\n"
        "    raise InputError('The data has two states.')\n"
        "target = replace(find('gaussian')(), draw=draw)\n"
    )
    assert privrl("audit", "broken_target:target", "gaussian", "--runs", "4000", "--json") == 1
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert [item["target"] for item in found["audits"]] == ["gaussian"]
    (sentence,) = found["errors"]
    assert sentence.startswith("broken_target:target cannot be attacked: ")
    assert "The data has two states." in sentence
    assert printed.err == f"privrl: {sentence}\n"


@pytest.mark.slow
def test_an_audit_for_people_fits_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert privrl("audit", "grid-gaussian-not-a-number", "--runs", "4000", "--mutants") == 0
    printed = capsys.readouterr().out
    assert "holds" not in printed
    assert "not refuted (could have shown up to" in printed
    assert "caught" in printed
    assert "NOT CAUGHT" not in printed
    assert max(map(len, printed.splitlines())) <= 80


def test_audits_that_cannot_be(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["audit"],
        ["audit", "nonsense"],
        ["audit", "no.such:module"],
        ["audit", "gaussian", "--runs", "3"],
        ["audit", "gaussian", "--confidence", "2"],
        ["audit", "gaussian", "--false-alarm", "0"],
    ):
        assert privrl(*arguments) == 2
        said = capsys.readouterr().err
        assert said.startswith("privrl: ")
        assert said.count("\n") == 1


def test_a_refuted_promise_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaks.py").write_text(
        "from privrl.privacy import Budget\n"
        "from privrl.audit import Target\n"
        "target = Target.from_mechanism(\n"
        "    lambda x, s: x, (0.0, 1.0), Budget(1.0), name='leak', runs=200\n)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert privrl("audit", "leaks:target") == 1
    assert "REFUTED" in capsys.readouterr().out
    # A module that cannot be used is bad input, which is not the same as a refuted promise.
    (tmp_path / "wrong.py").write_text("def target(x): pass\n")
    (tmp_path / "garbled.py").write_text("def target(:\n")
    for name in ("wrong:target", "garbled:target", ".leaks:target"):
        assert privrl("audit", name) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert privrl("audit", "leaks:target", "--mutants") == 2
    assert "No mutant breaks" in capsys.readouterr().err


def test_an_audit_that_could_not_have_shown_a_fault_does_not_reassure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A third of the noise, and so few runs that 7.9 of the promised 10 could have been shown."""
    (tmp_path / "third.py").write_text(
        "from privrl.privacy import Budget\n"
        "from privrl.audit import Target\n"
        "from privrl.privacy.mechanisms import GaussianMechanism\n"
        "budget = Budget(10.0, 1e-5)\n"
        "std = GaussianMechanism.from_budget(0.5, budget).std / 3.0\n"
        "def mechanism(x, source):\n"
        "    return x + source.normal(std, (1,))\n"
        "target = Target.from_mechanism(mechanism, (-0.5, 0.5), budget, name='third', runs=16000)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = answer(capsys, "audit", "third:target")
    assert isinstance(found["audits"], list)
    [item] = found["audits"]
    assert 7.5 < item["could_show"] < 8.0
    assert item["verdict"] == "inconclusive"
    # What it saw is six times as much as was promised, if the noise is Gaussian.
    assert "epsilon is at least" in item["warning"]
    assert privrl("audit", "third:target") == 0
    printed = capsys.readouterr().out
    assert "inconclusive (could have shown up to 7." in printed
    assert "warning: epsilon is at least" in printed
    assert "holds" not in printed


def test_what_can_be_attacked_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert privrl("audit", "--list") == 0
    assert "gaussian" in capsys.readouterr().out.split()


def test_limits(capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "limits", "--epsilon", "0.9", "--delta", "1e-4", "--tasks", "16")
    assert found["accuracy"] == pytest.approx(0.141, abs=5e-4)
    apart = ["--distance", "0.05", "--radius", "0.01"]
    found = answer(capsys, "limits", "--epsilon", "0.9", "--delta", "1e-4", *apart)
    assert found["steps"] == 5
    assert privrl("limits", "--epsilon", "0.9") == 0
    assert "0.7109" in capsys.readouterr().out
    assert privrl("limits", "--epsilon", "0.9", "--radius", "1") == 2
    assert "belong together" in capsys.readouterr().err
