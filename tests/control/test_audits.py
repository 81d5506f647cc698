"""Whole runs of `learn` under attack: what ships holds, and its sabotaged twins are caught."""

import contextlib
import json

import numpy as np
import pytest

from tacit import cli
from tacit.control import ActorCritic, audits
from tacit.control.certified import Plan
from tacit.privacy import accounting, noise
from tacit.privacy.audit import Target
from tacit.privacy.audit.sabotage import TWINS, Twin, attacked, bite
from tacit.privacy.audit.targets import TARGETS
from tacit.privacy.mechanisms import clip
from tacit.privacy.noise import secure
from tests.auditing import own_targets, target_params, twin_params

OWN = own_targets(audits)
TEETH = [twin for twin in TWINS if twin.targets[0] in OWN]
# The complete table is made by slow tests, and by `tacit audit --all --teeth`.
QUICK: set[str] = set()
QUICK_TEETH = {("critic without noise", "actor-critic-hidden-critic")}
# What is seen of a run whose critic is hidden is what it does to others, and little.
HARDLY_SEEN = {"actor-critic-hidden-critic"}


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
    assert {name for twin in TEETH for name in twin.targets} == set(OWN)
    assert {(twin.name, name) for twin in TEETH for name in twin.targets} >= QUICK_TEETH


def test_sabotage_ends_with_its_block() -> None:
    def shipped() -> list[object]:
        return [
            *(clip.l2, accounting.movement, noise.jax_normal),
            *(Plan.noised, Plan.exact, ActorCritic.learn),
        ]

    before = shipped()
    for twin in TEETH:
        changed: list[object] = []
        with contextlib.suppress(KeyError), twin.sabotage():
            changed = shipped()
            raise KeyError
        assert changed != before, twin.name
        assert shipped() == before, twin.name


def test_neighbours_differ_in_one_person_only() -> None:
    def lives(world: int) -> list[list[float]]:
        env = audits.Corridor(2, audits.FAR[world])
        found = []
        for action in (0, 1, 0, 1):
            env.reset()
            first = env.step(action)
            second = first if first[3] else env.step(action)
            found.append([first[0], first[1], second[0], second[1]])
        return found

    one, other = np.array(lives(0)), np.array(lives(1))
    assert np.flatnonzero((one != other).any(axis=1)).tolist() == [2]


def test_each_run_draws_noise_of_its_own() -> None:
    target = TARGETS["actor-critic"]()
    assert isinstance(target, Target)
    rows = np.stack([np.asarray(one) for one in target.draw(0, 5, secure())])
    assert len(np.unique(rows, axis=0)) == 5


def test_runs_are_in_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["audit", "--list", "--json"]) == 0
    assert set(OWN) <= set(json.loads(capsys.readouterr().out))
