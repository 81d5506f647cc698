"""Whole fits under attack: what ships is not refuted, and all that is covered is seen."""

import json
from dataclasses import replace

import numpy as np
import pytest

from privrl import cli
from privrl.audit import Target, Verdict
from privrl.audit.attacks import attack_features
from privrl.audit.catalogue import TARGETS
from privrl.audit.mutations import audit_target
from privrl.audit.targets import evaluation as audits
from privrl.audit.targets.evaluation.fits import RANGE, RARE_PROBABILITY
from privrl.audit.targets.evaluation.output_perturbation import _only_visitor
from privrl.audit.targets.evaluation.policy_value import _stays
from privrl.audit.targets.evaluation.value_function import _cohort
from privrl.audit.targets.whole_runs import BUDGET, result_numbers
from privrl.data import OneHot, Trajectories
from privrl.evaluation import PrivateLSTD
from privrl.evaluation.selection import choose
from privrl.privacy import Unit
from privrl.privacy.noise import secure
from privrl.privacy.session import PrivacySession
from tests.auditing import own_targets, target_params

OWN = own_targets(audits)
SLOW = {"private-gtd", "private-gtd-not-a-number", "private-value", "private-choice"}
# Smoothing hides who visits a state, as it should.
HARDLY_SEEN = {"dplsw-visits", "private-gtd-sampled"}
# So few runs are for faults that are coarse.
COARSE = {"private-gtd-not-a-number"}


@pytest.mark.parametrize("name", target_params(audits, slow=SLOW))
def test_what_ships_is_not_refuted(name: str) -> None:
    found = audit_target(TARGETS[name]())
    assert found.target == name
    assert found.verdict is (Verdict.INCONCLUSIVE if name in COARSE else Verdict.NOT_REFUTED)
    assert found.warning is None
    assert found.epsilon > 0.02 * found.certified or name in HARDLY_SEEN


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
        tuple(_stays(world) for world in (0, 1)),
        tuple(_stays(world, 3) for world in (0, 1)),
        tuple(_cohort(world, 5) for world in (0, 1)),
        tuple(_cohort(world, 5, RARE_PROBABILITY) for world in (0, 1)),
        tuple(_only_visitor()),
    ]
    for first, second in pairs:
        assert _differ(first, second) == {first.num_units - 1}
    # All of the person's trajectories, and one person's only.
    users = pairs[1][0]
    assert users.unit is Unit.USER
    assert (users.num_units, users.num_trajectories) == (100, 300)


# --- what is seen ---------------------------------------------------------------------------------


def test_everything_in_a_result_is_seen() -> None:
    judge = PrivateLSTD(OneHot(2), RANGE, BUDGET)
    result = judge.fit(_cohort(0, 3), session=PrivacySession(seed=1))
    assert result.weights is not None
    seen = attack_features([result_numbers(result)])
    others = [
        replace(result, weights=result.weights + 1e-9),
        replace(result, estimate=0.0),
        replace(result, details={"more": 1.0}),
        replace(result, diagnostics={"mspbe": 0.0}),
        replace(result, notes=("a word",)),
        replace(result, settings={**result.settings, "units": 4}),
    ]
    for other in others:
        assert not np.array_equal(seen, attack_features([result_numbers(other)]))
    again = judge.fit(_cohort(0, 3), session=PrivacySession(seed=1))
    assert np.array_equal(seen, attack_features([result_numbers(again)]))


def test_a_choice_is_seen() -> None:
    taken = choose(
        [[1.0, 0.0]], low=0.0, high=1.0, epsilon=1.0, unit=Unit.USER, session=PrivacySession(seed=0)
    )
    other = replace(taken, index=1 - taken.index)
    assert not np.array_equal(result_numbers(taken), result_numbers(other))


def test_every_iterate_is_seen() -> None:
    """All four thetas, what was added to each, and the noise in it, if it is the first world."""
    target = TARGETS["private-gtd"]()
    assert isinstance(target, Target)
    [row] = target.draw(0, 1, secure())
    tail = np.asarray(row)[-31:]
    thetas, added, noise = (tail[i : i + 8].reshape(4, 2) for i in (0, 8, 16))
    np.testing.assert_allclose(np.diff(thetas, axis=0), added[1:] * 0.5 / 5, rtol=1e-9)
    np.testing.assert_allclose(np.diff(noise, axis=0).ravel(), tail[24:30], rtol=1e-9)
    # At theta = 0 only the one person with rewards adds anything: one clip bound.
    assert np.linalg.norm(added[0] - noise[0]) == pytest.approx(0.1, rel=1e-9)


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


@pytest.mark.slow
def test_an_audit_of_fits_and_their_mutants(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "dplsw-visits", "--mutants", "--runs", "1200", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [item["verdict"] for item in found["audits"]] != ["refuted"]
    assert [item["mutant"] for item in found["mutants"]] == ["not-smoothed"]
    assert found["mutants"][0]["false_alarm"] == 1e-3
    assert found["failed"] == 0
