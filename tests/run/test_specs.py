"""Options are declared once, in specs: what follows from that."""

import ast
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from privrl import cli
from privrl.core.errors import InputError
from privrl.run.runners.base import runner_of
from privrl.run.specs import LEARNERS, spec_of
from privrl.run.specs.__main__ import page
from privrl.run.specs.base import RunOptions
from privrl.run.specs.table import EvaluateOptions
from tests import declarations

CLI = Path(cli.__file__).parent


@pytest.mark.parametrize("learner", LEARNERS)
def test_an_option_has_a_line_of_help(learner: str) -> None:
    task = spec_of(learner)
    assert task.learner == learner
    assert task.__doc__
    for name, one in (task.all_options() | EvaluateOptions.options()).items():
        assert 5 < len(one.help) < 130, name
        assert one.text.endswith((".", "?")), name
        assert not one.text.startswith("The same"), name


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_learner_has_the_options_of_its_spec_and_no_others(learner: str) -> None:
    """What the command line reads is what Python's class takes: one declaration for both."""
    task: Any = spec_of(learner)
    runner: Any = runner_of(learner)
    assert issubclass(runner, task)
    assert runner.all_options() == task.all_options()
    learner_class, spec = runner.LEARNER, task.SPEC
    assert issubclass(learner_class, spec)
    own = [one.name for one in fields(spec)]
    assert [one.name for one in fields(learner_class)] == own


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_task_and_its_learner_declare_different_options(learner: str) -> None:
    task = spec_of(learner)
    assert not task.options().keys() & task.SPEC.options().keys()


@pytest.mark.parametrize("learner", LEARNERS)
def test_the_command_line_has_the_options_of_the_spec(
    learner: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["train", learner, "--help"]) == 0
    told = capsys.readouterr().out
    for one in spec_of(learner).all_options().values():
        assert (one.name.upper() if one.argument else f"{one.flag} ") in told, one.name


def test_every_option_is_declared_once() -> None:
    """`python -m tests.declarations` prints the counts."""
    for command, declared in declarations.commands().items():
        repeated = {name: places for name, places in declared.items() if len(places) != 1}
        assert not repeated, command
    assert not declarations.typer_options()


def test_commands_that_have_a_spec_declare_no_option_of_their_own() -> None:
    for name in ("train.py", "evaluate.py", "check.py", "sweep.py"):
        tree = ast.parse((CLI / name).read_text(encoding="utf-8"))
        called = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
        assert "typer.Option" not in called, name
    assert not list(CLI.glob("train_*.py"))


def test_specs_do_not_import_jax() -> None:
    """Help has to come at once."""
    code = (
        "import sys; from privrl.run.specs import LEARNERS, spec_of\n"
        "for one in LEARNERS: spec_of(one)\n"
        "assert not {'jax', 'scipy', 'pyarrow'} & sys.modules.keys(), sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_unknown_learner_is_refused() -> None:
    with pytest.raises(InputError, match="There is no learner 'dqn': what can be trained is actor"):
        spec_of("dqn")
    with pytest.raises(InputError, match="learner must be text"):
        spec_of(3)


def test_options_of_a_run_are_not_those_of_a_spec() -> None:
    for learner in LEARNERS:
        assert not RunOptions.options().keys() & spec_of(learner).all_options().keys()


def test_the_page_of_options_in_the_docs_is_made_from_the_specs() -> None:
    """Else: python -m privrl.run.specs > docs/options.md."""
    shown = Path(__file__).parents[2] / "docs" / "options.md"
    assert shown.read_text(encoding="utf-8") == page()


def test_a_word_of_pythons_needs_no_underscore() -> None:
    task = spec_of("actor-critic").read({"lambda": 0.3})
    assert task.settings == task.said == {"lambda_": 0.3}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["sweep", "pgc", "--lanes", "3"], "No such option: --lanes. It is called --replicas now."),
        (["train", "pgc", "--mode", "paper"], "No such option: --mode. A paper's algorithm is"),
        (
            ["train", "functional-q", "--design", "-1"],
            "--design must be at least 0, not -1",
        ),
        (["train", "rajabi2022-prospect", "--samples", "9" * 9], "must be at most 1,000,000, not"),
    ],
)
def test_what_is_not_an_option_any_more_or_too_large(
    words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    env = ["--env", "ObstacleSquare", "--epsilon", "1"] if "rajabi2022-prospect" in words else []
    assert cli.run([*words, *env]) == 2
    assert told in capsys.readouterr().err
