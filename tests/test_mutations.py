"""Faults in the shipped code: unit tests and audits catch them.

A sample runs with the quick tests. The whole suite takes longest and runs at night; by hand it is
`python -m tests.mutation`.
"""

import contextlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from privrl.audit import mutations
from privrl.audit.catalogue import TARGETS, load
from privrl.audit.mutants import MUTANTS
from privrl.audit.mutations import Mutant, audit_mutant, patch_attribute
from privrl.evaluation import PrivateValue
from privrl.privacy import Budget, InputError, noise
from privrl.privacy.mechanisms import GaussianMechanism, clip
from privrl.privacy.noise import Source
from tests.mutation import ROOT, passed

load()

# One of each kind, and quick; all others run at night. Three with fewer runs than their own, at
# which audits state a power (`Audit.power`) of 0.99 or more.
QUICK_TESTS = {"choice-distance"}
SLOW_TESTS = {"noise-laplace", "sample-reused"}
QUICK_AUDITS = {
    ("noise-numpy", "gaussian"): 40_000,
    ("noise-discrete-laplace", "grid-laplace"): None,
    ("noise-reused", "gaussian-twice"): None,
    ("clip-nan", "gaussian-not-a-number"): None,
    ("shrink-nan", "private-gtd-not-a-number"): 100,
    ("factor-two-local", "laplace-report"): None,
    ("participations", "running-sums-toeplitz"): None,
    ("scores-not-clamped", "private-choice"): None,
    ("nan-sent", "pgc-privunit-broken"): None,
}
SLOW_AUDITS = {
    ("noise-reused", "private-gtd"): None,
    ("lstd-b-outside", "private-lstd"): None,
    ("weight-cap", "private-value"): 240,
    ("not-smoothed", "dplsw-visits"): None,
    ("epsilon-not-split", "pgc-privunit-twice"): None,
}
# What no mutant breaks: each of these has a sibling that some do.
WITHOUT = {"field-close", "sign-compiled", "laplace-report-compiled"}

PAIRS = [(mutant, name) for mutant in MUTANTS.values() for name in mutant.targets]


def _marks(quick: bool, slow: bool) -> Any:
    return () if quick else pytest.mark.slow if slow else pytest.mark.nightly


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(mutant, id=name, marks=_marks(name in QUICK_TESTS, name in SLOW_TESTS))
        for name, mutant in MUTANTS.items()
    ],
)
def test_unit_tests_catch_it(mutant: Mutant) -> None:
    assert passed(mutant) == []


@pytest.mark.parametrize(
    ("mutant", "name"),
    [
        pytest.param(
            *(mutant, name),
            id=f"{mutant.name}, {name}",
            marks=_marks((mutant.name, name) in QUICK_AUDITS, (mutant.name, name) in SLOW_AUDITS),
        )
        for mutant, name in PAIRS
    ],
)
def test_audits_catch_it(mutant: Mutant, name: str) -> None:
    """With power 0.95 one audit misses one time in twenty; two in a row, one time in 400."""
    runs = (QUICK_AUDITS | SLOW_AUDITS).get((mutant.name, name))
    assert any(audit_mutant(mutant, name, runs=runs).is_caught for _ in range(2))


def test_the_catalogue_is_complete() -> None:
    assert len(MUTANTS) >= 40
    assert {(mutant.name, name) for mutant, name in PAIRS} >= {*QUICK_AUDITS, *SLOW_AUDITS}
    assert set(MUTANTS) >= QUICK_TESTS | SLOW_TESTS
    targets = {name for _, name in PAIRS}
    assert targets <= set(TARGETS)
    assert set(TARGETS) - targets == WITHOUT
    for mutant in MUTANTS.values():
        assert mutant.breaks
        assert mutant.tests
        for test in mutant.tests:
            file, _, function = test.partition("::")
            assert f"\ndef {function.partition('[')[0]}(" in (ROOT / file).read_text()


def test_every_mutant_changes_something_and_ends_with_its_block() -> None:
    for mutant in MUTANTS.values():
        places = [place for place, _ in mutant.edits]
        before = [_at(place) for place in places]
        with contextlib.suppress(KeyError), mutant.apply():
            changed = [_at(place) for place in places]
            assert all(a is not b for a, b in zip(changed, before, strict=True)), mutant.name
            raise KeyError
        assert [_at(place) for place in places] == before, mutant.name


def test_a_mutant_takes_the_arguments_of_what_ships() -> None:
    """Otherwise its tests fail for a call that cannot be made, whatever the fault."""
    checked = 0
    for mutant in MUTANTS.values():
        for place, change in mutant.edits:
            faulty = inspect.getclosurevars(change).nonlocals.get("faulty")
            if faulty is None:  # which makes a function of its own
                continue
            shipped = _at(place)
            given = shipped.fget if isinstance(shipped, property) else shipped
            assert callable(given)
            taken = list(inspect.signature(faulty).parameters.values())[1:]
            wanted = list(inspect.signature(given).parameters)
            if any(one.kind is one.VAR_POSITIONAL for one in taken):
                taken = [one for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD]
                wanted = wanted[: len(taken)]
            assert len(taken) >= len(wanted), (mutant.name, place)
            for own, name in zip(taken, wanted, strict=False):
                # Positional-only: shared by mutants of functions that name it differently.
                assert own.name == name or own.kind is own.POSITIONAL_ONLY, (mutant.name, place)
            checked += 1
    assert checked >= 55


def _at(place: str) -> object:
    module, _, path = place.partition(":")
    found: Any = sys.modules[f"privrl.{module}"]
    *outer, name = path.split(".")
    for part in outer:
        found = getattr(found, part)
    return vars(found)[name]


def test_what_is_gone_cannot_be_mutated() -> None:
    for place in ("privacy.noise:Source.nothing", "privacy.noise:Nothing.normal"):
        with (
            pytest.raises(InputError, match="adapt the mutant"),
            patch_attribute(place, lambda shipped: shipped),
        ):
            pass


def test_a_function_is_exchanged_wherever_it_was_imported() -> None:
    from privrl.privacy.mechanisms import correlated_jax, functional_jax

    def everywhere() -> set[object]:
        return {vars(module)["jax_normal"] for module in (noise, correlated_jax, functional_jax)}

    shipped = noise.jax_normal
    with MUTANTS["noise-jax"].apply():
        assert everywhere() == {noise.jax_normal}
        assert noise.jax_normal is not shipped
    assert everywhere() == {shipped}


def test_a_mutant_leaves_nothing_behind() -> None:
    """Modules that are first imported while a mutant is at work must not keep its noise."""
    code = (
        "from privrl.privacy import noise\n"
        "from privrl.audit.mutants import MUTANTS\n"
        "with MUTANTS['noise-jax'].apply():\n"
        "    from privrl.privacy.mechanisms import correlated_jax, functional_jax\n"
        "assert functional_jax.jax_normal is noise.jax_normal is correlated_jax.jax_normal\n"
        "assert 'mutants' not in noise.jax_normal.__module__\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_calibration_is_not_carried_over_into_a_mutant_nor_out_of_it() -> None:
    budget = Budget(10.0, 1e-5)
    judge = PrivateValue(budget, weight_cap=1.0, horizon=1, reward_range=(-1.0, 1.0))
    plain = judge.mechanism
    factor_two = MUTANTS["factor-two"]
    seen: list[object] = []

    class Watched(Mutant):
        @contextmanager
        def apply(self) -> Iterator[None]:
            with super().apply():
                seen.append(judge.mechanism)
                yield

    fields = {name: getattr(factor_two, name) for name in factor_two.__dataclass_fields__}
    audit_mutant(Watched(**fields), "gaussian", runs=40)
    # The noise that the mutant calibrates is half of what is remembered of the shipped code.
    [mutated] = seen
    assert isinstance(mutated, GaussianMechanism)
    assert isinstance(plain, GaussianMechanism)
    assert mutated.std == pytest.approx(plain.std / 2, rel=1e-5)
    assert judge.mechanism == plain


def test_a_mutant_that_breaks_nothing_is_not_caught() -> None:
    idle = replace(
        MUTANTS["noise-numpy"],
        name="idle",
        edits=(("privacy.noise:Source.normal", lambda normal: lambda *given: normal(*given)),),
    )
    found = audit_mutant(idle, "gaussian", runs=4000)
    assert not found.is_caught
    assert found.found.false_alarm == mutations.FALSE_ALARM == 1e-3
    assert found.to_dict()["mutant"] == "idle"


def test_names_are_unique() -> None:
    with pytest.raises(InputError, match="already"):
        mutations.register(MUTANTS["noise-numpy"])


def test_shipped_functions_are_the_shipped_ones() -> None:
    """Nothing reads the name of a mutant but the tests' own conftest."""
    assert clip.l2.__module__ == "privrl.privacy.mechanisms.clip"
    assert Source.normal.__module__ == "privrl.privacy.noise"
    for file in (ROOT / "src").rglob("*.py"):
        assert "PRIVRL_MUTANT" not in file.read_text(), file
