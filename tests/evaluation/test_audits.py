"""Whole fits under attack: what ships holds, and its sabotaged twins are caught."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from tacit import cli
from tacit.data import OneHot, Trajectories
from tacit.evaluation import DPLSW, PrivateGTD, PrivateLSTD, PrivateValue, audits, sums
from tacit.evaluation import dplsw as dplsw_module
from tacit.evaluation.private_gtd import Plan
from tacit.evaluation.selection import PermuteAndFlip, choose
from tacit.privacy import Unit, accounting, exact, noise
from tacit.privacy.audit import Target
from tacit.privacy.audit.attacks import observed
from tacit.privacy.audit.sabotage import TWINS, Twin, attacked, bite
from tacit.privacy.audit.targets import TARGETS
from tacit.privacy.mechanisms import GaussianMechanism, clip
from tacit.privacy.noise import Source, secure
from tests.auditing import own_targets, target_params, twin_params

OWN = own_targets(audits)
TEETH = [twin for twin in TWINS if twin.targets[0] in OWN]
# Of the rest the complete table is made by slow tests, and by `tacit audit --all --teeth`.
QUICK = {"private-gtd", "dplsl"}
QUICK_TEETH = {
    ("factor 2 forgotten", "private-lstd"),
    ("clip forgotten", "private-gtd-primal-dual"),
    ("distance halved", "private-choice"),
    ("scores not clamped", "private-choice"),
    ("people not grouped", "private-value-users"),
    ("range read off the data", "private-lstd"),
    ("diagnostics shown", "private-gtd"),
}
# Theta alone is seen of what GPOPE pays for; smoothing hides who visits a state, as it should.
HARDLY_SEEN = {"gpope", "gpope-sampled", "dplsw-visits"}


@pytest.mark.parametrize("name", target_params(audits, QUICK))
def test_what_ships_keeps_its_promise(name: str) -> None:
    found = attacked(TARGETS[name]())
    assert found.target == name
    assert not found.broken
    assert found.epsilon > 0.02 * found.certified or name in HARDLY_SEEN


@pytest.mark.parametrize(("twin", "name"), twin_params(audits, QUICK_TEETH))
def test_every_twin_is_caught(twin: Twin, name: str) -> None:
    assert bite(twin, name).caught


def test_every_target_has_a_twin_and_every_twin_a_target() -> None:
    bitten = {name for twin in TEETH for name in twin.targets}
    assert bitten == set(OWN)
    assert {(twin.name, name) for twin in TEETH for name in twin.targets} >= QUICK_TEETH


def test_a_calibration_is_not_carried_over_into_a_twin_nor_out_of_it() -> None:
    judge = PrivateValue(audits.BUDGET, weight_cap=1.0, horizon=1, reward_range=audits.RANGE)
    honest = judge.mechanism
    [factor_two] = [twin for twin in TEETH if twin.name == "factor 2 forgotten"]
    seen: list[object] = []

    @contextlib.contextmanager
    def watched() -> Iterator[None]:
        with factor_two.sabotage():
            seen.append(judge.mechanism)
            yield

    bite(replace(factor_two, sabotage=watched), "private-lstd", runs=40)
    # The noise that the twin calibrates is half of what is remembered of the honest code.
    [twin] = seen
    assert isinstance(twin, GaussianMechanism)
    assert isinstance(honest, GaussianMechanism)
    assert twin.std == pytest.approx(honest.std / 2, rel=1e-5)
    assert judge.mechanism == honest


def test_sabotage_ends_with_its_block() -> None:
    def shipped() -> list[object]:
        return [
            *(clip.l1, clip.l2, accounting.movement, exact.bernoulli_exp, noise.jax_normal),
            *(Source.normal, sums.shrinking, Plan.run, PermuteAndFlip.sums),
            *(Trajectories.unit_index, Trajectories.num_units, vars(dplsw_module)["smooth_bound"]),
            *(PrivateValue.fit, PrivateLSTD.fit, PrivateGTD.fit, DPLSW.fit),
        ]

    before = shipped()
    for twin in TEETH:
        changed: list[object] = []
        with contextlib.suppress(KeyError), twin.sabotage():
            changed = shipped()
            raise KeyError
        assert changed != before, twin.name
        assert shipped() == before, twin.name


# --- neighbours -----------------------------------------------------------------------------------


def _differ(first: Trajectories, second: Trajectories) -> set[int]:
    """Whose data is not the same."""
    assert first.num_units == second.num_units
    assert first.lengths.tolist() == second.lengths.tolist()
    rows = (first.states != second.states) | (first.rewards != second.rewards)
    rows |= first.actions != second.actions
    owner = np.repeat(np.asarray(first.unit_index), first.lengths)
    return {int(one) for one in owner[rows]}


def test_neighbours_differ_in_the_last_person_only() -> None:
    pairs = [
        tuple(audits._stays(world) for world in (0, 1)),
        tuple(audits._stays(world, 3) for world in (0, 1)),
        tuple(audits._walks(world, 5) for world in (0, 1)),
        tuple(audits._walks(world, 5, audits.NEVER) for world in (0, 1)),
        tuple(audits._only_visitor()),
    ]
    for first, second in pairs:
        assert _differ(first, second) == {first.num_units - 1}
    # All of the person's trajectories, and one person's only.
    users = pairs[1][0]
    assert users.unit is Unit.USER
    assert (users.num_units, users.num_trajectories) == (100, 300)


# --- what is seen ---------------------------------------------------------------------------------


def test_everything_in_a_result_is_seen() -> None:
    judge = PrivateLSTD(OneHot(2), audits.RANGE, audits.BUDGET)
    result = judge.fit(audits._walks(0, 3), seed=1)
    assert result.weights is not None
    seen = observed([audits.given_away(result)])
    others = [
        replace(result, weights=result.weights + 1e-9),
        replace(result, estimate=0.0),
        replace(result, details={"more": 1.0}),
        replace(result, diagnostics={"mspbe": 0.0}),
        replace(result, notes=("a word",)),
        replace(result, settings={**result.settings, "units": 4}),
    ]
    for other in others:
        assert not np.array_equal(seen, observed([audits.given_away(other)]))
    again = judge.fit(audits._walks(0, 3), seed=1)
    assert np.array_equal(seen, observed([audits.given_away(again)]))


def test_a_choice_is_seen() -> None:
    taken = choose([[1.0, 0.0]], low=0.0, high=1.0, epsilon=1.0, unit=Unit.USER, seed=0)
    other = replace(taken, index=1 - taken.index)
    assert not np.array_equal(audits.given_away(taken), audits.given_away(other))


def test_each_run_draws_noise_of_its_own() -> None:
    target = TARGETS["private-gtd"]()
    assert isinstance(target, Target)
    rows = np.stack([np.asarray(one) for one in target.draw(0, 5, secure())])
    assert len(np.unique(rows, axis=0)) == 5


# --- the command line -----------------------------------------------------------------------------


def test_fits_are_in_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert set(OWN) <= set(listed)
    assert "gaussian" in listed


def test_an_audit_of_fits_and_their_twins(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "dplsw-visits", "--teeth", "--runs", "800", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["broken"] for item in found["audits"]] == [False]
    assert [item["twin"] for item in found["twins"]] == ["not smoothed"]
    assert found["failed"] == 0
