"""Cases: each runs in a folder of its own, with the tables and policies of the fuzz suite."""

import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any, Literal
from unittest import mock

from tests.fuzz.stock import tables
from tests.golden.canonical import canonical, read

Sort = Literal["figures", "learned"]
"""What a rounding can change: the last digits of figures, or anything that was learned."""


@dataclass(frozen=True)
class Case:
    """What is run, in the working directory, and how much of it is compared on other machines."""

    name: str
    call: Callable[[], Any]
    sort: Sort = "figures"


class Cases(dict[str, Case]):
    """Cases by their names."""

    def add(self, name: str, call: Callable[[], Any], sort: Sort = "figures") -> None:
        """Another one, under a name that is free."""
        assert name not in self, name
        self[name] = Case(name, call, sort)

    def case(self, call: Callable[[], Any]) -> Callable[[], Any]:
        """A function as a case of figures, by its own name."""
        self.add(call.__name__.strip("_").replace("_", "-"), call)
        return call

    def command(self, name: str, *words: str, sort: Sort = "figures", out: str = "run") -> None:
        """A command line, with the files in the folder `out` that it leaves behind."""

        def call() -> Any:
            return said(*words) | files(out)

        self.add(name, call, sort)


def said(*words: str) -> dict[str, Any]:
    """What a command prints, as JSON if it is, and its exit code."""
    from privrl import cli

    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = cli.run(" ".join(words).split() if len(words) == 1 else list(words))
    printed = out.getvalue()
    return {
        "code": code,
        "out": json.loads(printed) if printed.startswith("{") else printed,
        "err": err.getvalue(),
    }


def files(folder: str) -> dict[str, Any]:
    """What is in the files of a folder, by their names."""
    found = {path.name: read(path) for path in sorted(Path(folder).glob("*"))}
    return {name: content for name, content in found.items() if content is not None}


@contextmanager
def workshop() -> Iterator[Callable[[Case], Any]]:
    """Something that runs cases, and their tables for as long as it does."""
    with ExitStack() as stack:
        stock = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="golden-")))
        tables(stock)
        settings = {"COLUMNS": "80", "NO_COLOR": "1", "TERM": "dumb"}
        stack.enter_context(mock.patch.dict(os.environ, settings))

        def run(case: Case) -> Any:
            with tempfile.TemporaryDirectory(prefix="golden-") as folder:
                shutil.copytree(stock, folder, dirs_exist_ok=True)
                with chdir(folder), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    return canonical(case.call(), Path(folder))

        yield run
