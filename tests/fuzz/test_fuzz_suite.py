"""Some hundred cases with the slow tests, ten thousand every night."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from privrl.run.specs import LEARNERS
from tests.fuzz import kinds

# Kinds whose cases compile no program.
QUICK = (
    *("csv", "parquet", "policies", "studies", "certificates", "ledgers", "events", "keys"),
    *("risks", "reading", "values", "paths"),
)


def fuzzed(*words: str) -> list[dict[str, Any]]:
    """The outcomes of cases, in a process that has imported nothing but what it needs."""
    source = str(Path(kinds.__file__).parents[2] / "src")
    held = os.environ.get("PYTHONPATH")
    found = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--json", *words],
        cwd=Path(kinds.__file__).parents[2],
        env={**os.environ, "PYTHONPATH": source if held is None else f"{source}:{held}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout, found.stderr
    told: list[dict[str, Any]] = json.loads(found.stdout)
    return told


def faults(outcomes: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {one["label"]: one["faults"] for one in outcomes if one["faults"]}


@pytest.fixture(scope="module")
def quick() -> list[dict[str, Any]]:
    return fuzzed("--cases", "300", *(word for kind in QUICK for word in ("--only", kind)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", QUICK)
def test_some_cases_of_each_kind(kind: str, quick: list[dict[str, Any]]) -> None:
    own = [one for one in quick if one["label"].startswith(f"{kind}:")]
    assert len(own) >= 5
    assert faults(own) == {}
    # Neither everything refused nor everything taken: the cases are near to good ones.
    if kind in ("csv", "parquet", "studies"):
        assert {one["code"] for one in own} == {0, 2}


@pytest.mark.nightly
def test_ten_thousand_cases() -> None:
    found = fuzzed("--cases", "10000", "--jobs", str(os.cpu_count() or 1))
    assert len(found) >= 10_000
    assert faults(found) == {}


def test_every_command_is_fuzzed() -> None:
    found = kinds._commands()
    assert {f"train {learner}" for learner in LEARNERS} <= found.keys()
    assert {"evaluate", "check", "sweep", "verify", "ledger show"} <= found.keys()
    assert all(command.params for command in found.values())
