"""The experiments of seo2020: small ones, checked against what is known."""

import numpy as np
import pytest

from privrl.data import Tabular
from privrl.papers.seo2020 import ActorCriticRuns, certified, experiments, printed
from privrl.privacy import InputError
from privrl.privacy.session import PrivacySession

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def test_the_grid_holds_the_best_settings() -> None:
    """Table 2 was found in Table 1's ranges, so a misread number would show."""
    for name in experiments.NAMES:
        for setting, value in printed.TABLE_2[name].items():
            assert value in printed.TABLE_1[setting]
        assert set(printed.TABLE_3[name]) == set(experiments.VARIANTS)
        for variant, values in printed.TABLE_4[name].items():
            noised = {"actor": {"actor"}, "critic": {"critic"}, "both": {"actor", "critic"}}
            assert set(values) == noised[variant]


def test_settings_are_those_of_table_2() -> None:
    chosen = experiments.config("MDP-100", "actor")
    assert (chosen.critic_step, chosen.correction_step) == (0.01, 0.5)
    assert (chosen.actor_step, chosen.lambda_) == (0.5, 0.8)
    # sqrt(2 ln(1.25 / 1e-6)) / 10, by hand.
    assert chosen.multiplier == pytest.approx(0.529880, abs=1e-6)
    stricter = experiments.config("MDP-100", "actor", epsilon=1.0)
    assert stricter.multiplier == pytest.approx(5.29880, abs=1e-5)


def test_environments() -> None:
    assert experiments.environment("MDP-100").num_states == 100
    taxi = experiments.environment("Taxi-v2")
    assert (taxi.num_states, taxi.num_actions, taxi.step_limit) == (500, 6, 200)
    with pytest.raises(InputError, match="'MDP-100' or 'Taxi-v2'"):
        experiments.environment("Taxi")


def test_summary_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiments, "LAST", 2)
    returns = np.array([[0.0, 2.0, 4.0], [2.0, 2.0, 8.0]])
    actor, critic = np.zeros((2, 1, 1)), np.array([[0.0], [np.inf]])
    found = experiments.summary(
        ActorCriticRuns(actor, critic, critic, returns, np.full((2, 3), 5, np.int64))
    )
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
    chosen = experiments.config("MDP-100", "none")
    both = experiments.run(chosen, "MDP-100", [7, 8], 2)
    alone = experiments.run(chosen, "MDP-100", [8], 2)
    assert np.array_equal(both.returns[1], alone.returns[0])
    assert not np.array_equal(both.returns[0], both.returns[1])


def test_policies_are_judged_by_their_returns() -> None:
    """The best policy needs 110 steps in the mean, give or take 3.5."""
    env = experiments.environment("MDP-100")
    best = Tabular(np.tile([0.0, 1.0], (100, 1)))
    # Six standard errors of the mean of 200 episodes.
    assert certified.mean_return(env, best, 0) == pytest.approx(-109.0, abs=6 * 3.5 / np.sqrt(200))


@pytest.mark.slow
def test_the_claim_for_one_step_does_not_hold() -> None:
    found = experiments.attack("actor", 1.0, runs=1000)
    assert found.is_refuted
    assert found.epsilon > 4.0


@pytest.mark.slow
def test_learning_leaves_the_tables_as_they_were() -> None:
    """Learning runs in 64 bits and judging in 32, with the same tables: JAX may keep a width."""
    env = experiments.environment("MDP-100")
    certified.SHARED.learn(env, 20, session=PrivacySession(seed=0))
    uniform = Tabular(env.uniform())
    # 220 steps in the mean, give or take 16.
    assert certified.mean_return(env, uniform, 0, 50) == pytest.approx(
        -219.0, abs=6 * 16 / np.sqrt(50)
    )


@pytest.mark.slow
def test_people_are_simulated_within_their_budget() -> None:
    plain = certified.people("MDP-100", certified.SHARED, 60, [0, 1], batch=20)
    private = certified.people("MDP-100", certified.SHARED, 60, [0, 1], 1.0, batch=20)
    assert plain["certified"] is None
    assert private["certified"] <= 1.0
    assert private["certified"] == pytest.approx(1.0, rel=1e-3)
    assert -500.0 <= private["lowest"] <= private["return"] <= -98.0
