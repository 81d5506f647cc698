"""The parts of an error: kept wherever it goes, in the words of Python unless told otherwise."""

import ast
import copy
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import privrl
from privrl.core import checks
from privrl.core.errors import (
    InputError,
    LedgerError,
    Option,
    PrivRLError,
    Text,
    option,
    python_option,
)

SORT = InputError(
    "the rows are mixed up", remedy="sort them, or pass " + option("sort", True) + "."
)


def marked(one: Option) -> str:
    return f"<{one.name}|{one.value!r}|{one.given}>"


def raised() -> None:
    raise InputError("must be " + option("b") + ".", field="a", remedy="say " + option("c", 3))


def pickled(error: PrivRLError) -> Any:
    return pickle.loads(pickle.dumps(error))


def test_one_sentence_is_an_error_as_ever() -> None:
    error = InputError("There is no file x.")
    assert str(error) == error.problem == error.render(marked) == "There is no file x."
    assert (error.field, error.remedy, error.args) == (None, None, ("There is no file x.",))
    assert isinstance(error, ValueError)


def test_the_parts_make_one_sentence() -> None:
    assert str(SORT) == "the rows are mixed up: sort them, or pass sort=True."
    assert (SORT.problem, SORT.field) == ("the rows are mixed up", None)
    assert SORT.remedy == "sort them, or pass sort=True."
    assert SORT.render(marked).endswith("or pass <sort|True|False>.")
    with pytest.raises(InputError) as refused:
        checks.positive("epsilon", -1)
    error = refused.value
    assert (error.field, error.problem) == ("epsilon", "must be positive and finite, not -1.")
    assert str(error) == "epsilon must be positive and finite, not -1."
    assert error.render(marked).startswith("<epsilon|None|True> must be")


@pytest.mark.parametrize(
    ("check", "value"),
    [
        *[(checks.number, value) for value in ("x", float("nan"), 10**400)],
        *[(checks.positive, value) for value in (0, float("inf"))],
        *[(checks.non_negative, value) for value in (-1, float("inf"))],
        *[(checks.probability, value) for value in (-0.1, 1.0)],
        *[(checks.rate, value) for value in (0.0, 1.1)],
        *[(checks.count, value) for value in (0, 1.5, 2**63)],
        (checks.boolean, "no"),
    ],
)
def test_every_check_names_its_field(check: Callable[[str, object], Any], value: object) -> None:
    with pytest.raises(InputError, match=r"^bound (must|is)") as refused:
        check("bound", value)
    assert refused.value.field == "bound"
    assert refused.value.problem == str(refused.value).removeprefix("bound ")


def test_a_confidence_has_its_own_name() -> None:
    with pytest.raises(InputError, match=r"^confidence must be at least 0.5") as refused:
        checks.confidence(0.2)
    assert refused.value.field == "confidence"


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, pickled])
@pytest.mark.parametrize("kind", [InputError, LedgerError])
def test_copies_keep_the_parts(again: Callable[[Any], Any], kind: type[PrivRLError]) -> None:
    error = kind("is " + option("b") + " wrong", field="a", remedy="say " + option("c", {"d": 1}))
    found = again(error)
    assert type(found) is kind
    assert vars(found) == vars(error)
    assert str(found) == "a is b wrong: say c={'d': 1}"
    assert found.render(marked) == error.render(marked)
    assert "<b|None|False>" in found.render(marked)


def test_errors_cross_processes_with_their_parts() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        error = pool.submit(raised).exception()
    assert isinstance(error, InputError)
    assert error.render(marked) == "<a|None|True> must be <b|None|False>.: say <c|3|False>"
    assert (error.field, error.remedy) == ("a", "say c=3")


PARTS = st.lists(
    st.text()
    | st.builds(option, st.text(max_size=5), st.none() | st.booleans() | st.text(max_size=5)),
    max_size=6,
)


@given(PARTS, PARTS)
def test_whatever_is_added_up_nothing_is_lost_and_nothing_forged(
    first: list[str], second: list[str]
) -> None:
    """No text can be taken for a parameter, and plain strings hold Python's words alone."""
    problem, remedy = "", ""
    for part in first:
        problem = problem + part
    for part in reversed(second):
        remedy = part + remedy
    error = InputError(problem, remedy=remedy)
    assert str(error) == "".join(map(str, first)) + ": " + "".join(map(str, second))
    assert type(str(error)) is str
    options = [part for part in (*first, *second) if isinstance(part, Text)]
    seen: list[Option] = []
    error.render(lambda one: seen.append(one) or "")  # type: ignore[func-returns-value]
    assert [python_option(one) for one in seen] == options
    assert error.render(python_option) == str(error)


def named(tree: ast.AST) -> Iterator[ast.Call]:
    """Where a sentence names a parameter."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "option":
            yield node


def flattened(tree: ast.AST) -> Iterator[int]:
    """Where this is inside of what is formatted, so that only Python's words would be left."""
    for node in ast.walk(tree):
        formats = isinstance(node, ast.Call) and getattr(node.func, "attr", "") in (
            "format",
            "join",
        )
        modulo = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)
        if formats or modulo or isinstance(node, ast.JoinedStr):
            yield from (one.lineno for one in named(node))


def test_no_parameter_is_flattened_where_it_is_named() -> None:
    root = Path(privrl.__file__).parent
    texts = {path: path.read_text() for path in root.rglob("*.py")}
    # A file without this names no parameter; parsing all files takes seconds.
    trees = {path: ast.parse(text) for path, text in texts.items() if "option(" in text}
    assert [(path.name, line) for path, tree in trees.items() for line in flattened(tree)] == []
    assert sum(1 for tree in trees.values() for _ in named(tree)) > 15
    for wrong in ("f'{option(1)}'", "'{}'.format(option(1))", "'%s' % option(1)"):
        assert list(flattened(ast.parse(wrong))) == [1]
