"""Whole runs of `learn` under attack: what ships is not refuted."""

import json

import numpy as np
import pytest

from privrl import cli
from privrl.audit import Target, Verdict
from privrl.audit.catalogue import TARGETS
from privrl.audit.mutations import audit_target
from privrl.audit.targets import actor_critic as audits
from privrl.audit.targets.whole_runs import FAR
from privrl.privacy.noise import secure
from tests.auditing import own_targets, target_params

OWN = own_targets(audits)
SLOW = {"actor-critic-first-batch"}
# So few runs are for faults that are coarse.
COARSE = {"actor-critic-hidden-critic"}
# What is seen of a run whose critic is hidden is what it does to others, and little.
HARDLY_SEEN = {"actor-critic-hidden-critic"}


@pytest.mark.parametrize("name", target_params(audits, slow=SLOW))
def test_what_ships_is_not_refuted(name: str) -> None:
    found = audit_target(TARGETS[name]())
    assert found.target == name
    assert found.verdict is (Verdict.INCONCLUSIVE if name in COARSE else Verdict.NOT_REFUTED)
    assert found.warning is None
    assert found.epsilon > 0.02 * found.certified or name in HARDLY_SEEN


def test_neighbours_differ_in_one_person_only() -> None:
    def lives(world: int) -> list[list[float]]:
        env = audits.Corridor(2, FAR[world])
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
