"""`python -m tests.declarations`: how often each option of a command is declared in the source.

A declaration says type, default, range or choices and help: a call of `option` in the body of a
class, or of `typer.Option`. `with_default` refers to one and is none. Counted are, for `evaluate`
and each learner, the classes that the command line, configuration files and Python's own class are
made of. Printed is a row for each command, and every option that is declared more than once; the
exit code is 1 if there is any.
"""

import ast
import inspect
import sys
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path

import privrl
from privrl.control.q_specs import LoggedQSpec
from privrl.core.spec import Spec
from privrl.run.evaluation import EvaluationSpec
from privrl.run.runners.base import runner_of
from privrl.run.specs import LEARNERS, spec_of
from privrl.run.specs.base import RunOptions
from privrl.run.specs.table import EvaluateOptions


@cache
def _declared(kind: type) -> frozenset[str]:
    """The fields that a class body declares, by `option` or as plain fields of a dataclass.

    The parts of a budget are declared where the budget is.
    """
    if not is_dataclass(kind) or kind.__module__.partition(".")[0] != "privrl":
        return frozenset()
    tree = ast.parse(inspect.cleandoc("\n" + inspect.getsource(kind)))
    body = next(node for node in tree.body if isinstance(node, ast.ClassDef)).body
    found = set()
    for node in body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name):
            continue
        name, value = node.target.id, node.value
        if name not in {one.name for one in fields(kind)}:
            continue  # a ClassVar
        called = ast.unparse(value.func) if isinstance(value, ast.Call) else None
        if called == "option":
            assert isinstance(value, ast.Call)
            given = {one.arg for one in value.keywords}
            found |= {"epsilon", "delta"} if "budget" in given else {name}
        elif called not in ("with_default", "field") and name != "budget":
            found.add(name)
    return frozenset(found)


def count(options: Iterable[str], classes: Iterable[type]) -> dict[str, list[str]]:
    """The classes that declare each option."""
    listed = list(dict.fromkeys(one for kind in classes for one in kind.__mro__))
    return {
        name: [kind.__qualname__ for kind in listed if name in _declared(kind)] for name in options
    }


def commands() -> Mapping[str, dict[str, list[str]]]:
    """By command: the classes that declare each of its options."""
    shared = RunOptions.options()
    asked = [*EvaluateOptions.options(), *shared]
    own = count(asked, [EvaluateOptions, EvaluationSpec, RunOptions])
    # What a table's options refer to, where they declare none themselves.
    referred = count(asked, [LoggedQSpec])
    found = {"evaluate": {name: places or referred[name] for name, places in own.items()}}
    for learner in LEARNERS:
        task, runner = spec_of(learner), runner_of(learner)
        within = [
            one.metadata["within"]
            for one in fields(task.SPEC)  # type: ignore[arg-type]  # every spec is a dataclass
            if one.metadata.get("within")
        ]
        classes: list[type[Spec]] = [task, runner, task.SPEC, runner.LEARNER, RunOptions]
        counted = count([*task.all_options(), *shared], classes)
        # Those of a spec within another one, where the outer one has none such.
        nested = count(task.all_options(), within)
        found[learner] = {name: places or nested[name] for name, places in counted.items()}
    return found


def typer_options() -> list[str]:
    """Modules of commands that declare options without a spec; all but --version have one."""
    folder = Path(privrl.__file__).parent / "cli"
    modules = [one for one in folder.glob("*.py") if one.name not in ("__init__.py", "derived.py")]
    words = ("typer.Option", "typer.Argument", "from typer import")
    return [one.name for one in modules if any(w in one.read_text("utf-8") for w in words)]


def main() -> int:
    faults = 0
    for command, declared in commands().items():
        times = [len(places) for places in declared.values()]
        print(f"{command:24}{len(times):4} options, {times.count(1):4} declared once")
        for name, places in declared.items():
            if len(places) != 1:
                faults += 1
                print(f"    {name}: {len(places)} times ({', '.join(places)})")
    for name in typer_options():
        faults += 1
        print(f"    cli/{name} declares options of its own")
    return min(faults, 1)


if __name__ == "__main__":
    sys.exit(main())
