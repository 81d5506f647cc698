"""The experiments of seo2020: small ones, checked against what is known."""

import numpy as np
import pytest

from privrl.control.paper_actor_critic import Trained
from privrl.data import Tabular
from privrl.papers import seo2020
from privrl.privacy import InputError
from privrl.privacy.session import PrivacySession


def test_the_grid_holds_the_best_settings() -> None:
    """Table 2 was found in Table 1's ranges, so a misread number would show."""
    for name in seo2020.NAMES:
        for setting, value in seo2020.TABLE_2[name].items():
            assert value in seo2020.TABLE_1[setting]
        assert set(seo2020.TABLE_3[name]) == set(seo2020.VARIANTS)
        for variant, printed in seo2020.TABLE_4[name].items():
            noised = {"actor": {"actor"}, "critic": {"critic"}, "both": {"actor", "critic"}}
            assert set(printed) == noised[variant]


def test_settings_are_those_of_table_2() -> None:
    chosen = seo2020.config("MDP-100", "actor")
    assert (chosen.critic_step, chosen.correction_step) == (0.01, 0.5)
    assert (chosen.actor_step, chosen.lambda_) == (0.5, 0.8)
    # sqrt(2 ln(1.25 / 1e-6)) / 10, by hand.
    assert chosen.multiplier == pytest.approx(0.529880, abs=1e-6)
    stricter = seo2020.config("MDP-100", "actor", epsilon=1.0)
    assert stricter.multiplier == pytest.approx(5.29880, abs=1e-5)


def test_environments() -> None:
    assert seo2020.environment("MDP-100").num_states == 100
    taxi = seo2020.environment("Taxi-v2")
    assert (taxi.num_states, taxi.num_actions, taxi.step_limit) == (500, 6, 200)
    with pytest.raises(InputError, match="'MDP-100' or 'Taxi-v2'"):
        seo2020.environment("Taxi")


def test_summary_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seo2020, "LAST", 2)
    returns = np.array([[0.0, 2.0, 4.0], [2.0, 2.0, 8.0]])
    actor, critic = np.zeros((2, 1, 1)), np.array([[0.0], [np.inf]])
    found = seo2020.summary(Trained(actor, critic, critic, returns, np.full((2, 3), 5, np.int64)))
    assert found["runs"] == 2
    assert found["diverged"] == 1
    assert found["mean_return"] == 3.0
    assert found["last_return"] == 4.0
    # The last two episodes average 3 and 5: standard deviation sqrt(2), over sqrt(2).
    assert found["standard_error"] == pytest.approx(1.0)
    # Around the mean curve (1, 2, 6) they are off by 1, 0 and 2.
    assert found["deviation"] == pytest.approx(np.sqrt((1 + 0 + 4) / 3))
    assert found["steps"] == 5.0


@pytest.mark.slow
def test_a_seed_means_the_same_world() -> None:
    chosen = seo2020.config("MDP-100", "none")
    both = seo2020.run(chosen, "MDP-100", [7, 8], 2)
    alone = seo2020.run(chosen, "MDP-100", [8], 2)
    assert np.array_equal(both.returns[1], alone.returns[0])
    assert not np.array_equal(both.returns[0], both.returns[1])


def test_policies_are_judged_by_their_returns() -> None:
    """The best policy needs 110 steps in the mean, give or take 3.5."""
    env = seo2020.environment("MDP-100")
    best = Tabular(np.tile([0.0, 1.0], (100, 1)))
    # Six standard errors of the mean of 200 episodes.
    assert seo2020.judged(env, best, 0) == pytest.approx(-109.0, abs=6 * 3.5 / np.sqrt(200))


@pytest.mark.slow
def test_the_claim_for_one_step_does_not_hold() -> None:
    found = seo2020.attack("actor", 1.0, runs=1000)
    assert found.broken
    assert found.epsilon > 4.0


def test_learning_leaves_the_tables_as_they_were() -> None:
    """Learning runs in 64 bits and judging in 32, with the same tables: JAX may keep a width."""
    env = seo2020.environment("MDP-100")
    seo2020.SHARED.learn(env, 20, session=PrivacySession(seed=0))
    uniform = Tabular(env.uniform())
    # 220 steps in the mean, give or take 16.
    assert seo2020.judged(env, uniform, 0, 50) == pytest.approx(-219.0, abs=6 * 16 / np.sqrt(50))


@pytest.mark.slow
def test_people_are_simulated_within_their_budget() -> None:
    plain = seo2020.people("MDP-100", seo2020.SHARED, 60, [0, 1], batch=20)
    private = seo2020.people("MDP-100", seo2020.SHARED, 60, [0, 1], 1.0, batch=20)
    assert plain["certified"] is None
    assert private["certified"] <= 1.0
    assert private["certified"] == pytest.approx(1.0, rel=1e-3)
    assert -500.0 <= private["lowest"] <= private["return"] <= -98.0
