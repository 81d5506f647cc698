"""Today's outputs are those of the golden files, and the comparison notices what is not."""

import json
import math
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.golden.canonical import GONE, RULES, canonical
from tests.golden.cases import CASES
from tests.golden.comparing import differences
from tests.golden.keeping import FILES, MACHINE, compared, here, written
from tests.golden.running import Case

QUICK = (
    *("account-gaussian", "account-randomised-response", "filters", "mechanism-smooth"),
    *("evaluate-value-gtd-lstd", "evaluate-grid-csv", "python-dplsw"),
)


def found(folder: Path, cases: list[Case], whole: bool = False) -> list[str]:
    return [f"{name}: {line}" for name, lines in compared(folder, cases, whole) for line in lines]


def test_quick_cases_are_as_they_were() -> None:
    assert found(FILES, [CASES[name] for name in QUICK]) == []


@pytest.mark.slow
def test_all_cases_are_as_they_were() -> None:
    assert found(FILES, list(CASES.values()), whole=True) == []


def test_every_case_has_a_file() -> None:
    assert {path.stem for path in FILES.glob("*.json")} == {*CASES, Path(MACHINE).stem}


# --- the comparison -------------------------------------------------------------------------------

VALUE = {"a": {"b": [1.0, 0.1, {"c": "epsilon 1 at delta 2"}]}, "n": 3, "none": None}


def kept(folder: Path, *values: Any) -> list[Case]:
    cases = [Case(f"case-{n}", partial(copy, value)) for n, value in enumerate(values)]
    assert [lines for _, lines in written(folder, cases, whole=True)] == [[]] * len(values)
    return cases


def other_machine(folder: Path) -> None:
    assert json.loads((folder / MACHINE).read_text()) == here()
    (folder / MACHINE).write_text('["another"]')


def test_what_differs_is_said_by_its_path(tmp_path: Path) -> None:
    cases = kept(tmp_path, VALUE)
    assert found(tmp_path, cases, whole=True) == []

    def gives(value: Any) -> list[str]:
        return found(tmp_path, [Case("case-0", lambda: value)])

    last = math.nextafter(0.1, 1.0)
    changed = {**VALUE, "a": {"b": [1.0, last, {"c": "epsilon 1 at delta 3"}]}}
    assert gives(changed) == [
        f"case-0: a.b[1]: 0.1 -> {last!r}",
        "case-0: a.b[2].c: '2' -> '3'",
    ]
    assert gives({"a": VALUE["a"], "n": 3}) == ["case-0: none: None -> (missing)"]
    assert gives({**VALUE, "m": 1}) == ["case-0: m: (new) -> 1"]
    assert gives({**VALUE, "n": 3.0}) == ["case-0: n: 3 -> 3.0"]
    assert gives({**VALUE, "a": {"b": [1.0]}}) == ["case-0: a.b: 3 items -> 1 items"]
    another = Case("another", lambda: VALUE)
    assert found(tmp_path, [*cases, another], whole=True) == ["another: (new case)"]
    assert found(tmp_path, [], whole=True) == ["case-0: (no such case any more)"]


def test_one_number_of_a_large_array_is_noticed(tmp_path: Path) -> None:
    many = [[float(n), 2.0] for n in range(50)]
    kept(tmp_path, {"x": many})
    many[40][0] = math.nextafter(many[40][0], 99.0)
    (line,) = found(tmp_path, [Case("case-0", lambda: {"x": many})])
    assert line.startswith("case-0: x.sha256: ")
    many.append([0.0, 0.0])
    lines = found(tmp_path, [Case("case-0", lambda: {"x": many})])
    assert "case-0: x.shape[0]: 50 -> 51" in lines


def test_on_another_machine_digits_may_differ_and_what_was_learned(tmp_path: Path) -> None:
    many = [0.1] * 50
    value = {"settings": {"rate": 0.1}, "figure": 0.1, "text": "0.10 of it", "many": many}
    kept(tmp_path, value)
    close = {
        "settings": {"rate": 0.1 * (1 + 1e-10)},
        "figure": 0.1 * (1 + 1e-10),
        "text": "0.11 of it",
        "many": [*many[:-1], 0.1 * (1 + 1e-10)],
    }
    far = {**close, "figure": 0.2, "many": [7.0] * 50}

    def gives(value: Any, **sort: Any) -> int:
        return len(found(tmp_path, [Case("case-0", lambda: value, **sort)]))

    assert gives(close) == 4
    other_machine(tmp_path)
    assert gives(close) == 0
    assert gives({**close, "text": "0.11 of that"}) == 1
    assert gives(far) == 1 + 8
    assert gives(far, sort="learned") == 0
    assert gives({**far, "settings": {"rate": 0.2}}, sort="learned") == 1
    assert gives({**far, "many": [7.0] * 51}, sort="learned") == 1
    assert gives({**far, "figure": None}, sort="learned") == 1


def test_numbers_are_stored_to_the_last_digit(tmp_path: Path) -> None:
    numbers = [math.nan, -0.0, math.inf, 1e-320, 0.1 + 0.2, 2**60]
    cases = kept(tmp_path, numbers)
    assert found(tmp_path, cases) == []
    stored = json.loads((tmp_path / "case-0.json").read_text())
    assert repr(stored) == repr(numbers)
    assert len(found(tmp_path, [Case("case-0", lambda: [0.0] * 6)])) == 6


# --- what is left out -----------------------------------------------------------------------------


def test_another_name_of_the_package_does_not_show() -> None:
    def named(name: str, version: str) -> Any:
        return {
            "kind": f"{name} certificate",
            name: version,
            "text": f"{name}: see `{name} verify`, or what breaks\n a line ({name} {version})",
            "class": f"{name.title()}Error",
        }

    assert canonical(named("tacit", "0.2.0")) == canonical(named("privrl", "1.0.0rc1"))


def test_only_what_is_listed_is_left_out() -> None:
    value = {"digest": "x", "nonce": "y", "epsilon": 1.0, "words": "at 2026-01-02T03:04:05+00:00"}
    assert canonical(value) == {
        "digest": "(left out)",
        "nonce": "(left out)",
        "epsilon": 1.0,
        "words": "at <time>",
    }
    assert all(GONE.values())
    assert all(rule.reason for rule in RULES)
    assert list(differences(canonical({"a": 1.5}), canonical({"a": 1.25}))) == ["a: 1.5 -> 1.25"]
