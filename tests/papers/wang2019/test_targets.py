"""Figures 1 and 2 of Wang and Hegde (2019): baselines, Proposition 10, and what trials give."""

import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.core.types import Floats
from privrl.envs import Interval
from privrl.papers.reproduce.estimate import estimates, matches
from privrl.papers.reproduce.target import Target
from privrl.papers.wang2019 import baselines, proposition, targets, trials
from privrl.papers.wang2019.algorithm import Algorithm1, EpisodeDraws, Sample, rmsprop
from privrl.papers.wang2019.baselines import Baseline, NoiseOn
from privrl.papers.wang2019.learner import FunctionalQ

pytestmark = pytest.mark.usefixtures("compiled_quickly")

STEPS, EPISODES, CLIP = 10, 6, 0.05
SMALL = FunctionalQ.public_code(
    samples=STEPS * EPISODES, batch=10, resets=1, hidden=(5, 4), sigma=0.0, replay=20, target=20
)


# --- the baselines --------------------------------------------------------------------------------


class NoPath:
    """A path of zeros."""

    def insert(self, x: float) -> None:
        pass

    def __call__(self, x: float) -> Floats:
        return np.zeros((2, 2))


class PlainBaseline(Algorithm1):
    """Algorithm 1 without a path, with noise on rewards or on clipped gradients."""

    normals: Iterator[Floats]
    noise = 0.0

    def update(self, batch: list[Sample]) -> None:
        learner, network = self.learner, self.network
        mean = np.zeros_like(self.weights)
        for s in batch:
            y = s.reward + s.discount * np.max(self.q(self.target, s.after))
            error = float(np.clip(self.q(self.weights, s.x)[s.action] - y, -1.0, 1.0))
            own = error * network.gradient(self.weights, np.array([s.x]), s.action)
            mean += own * min(1.0, CLIP / float(np.linalg.norm(own))) / len(batch)
        gradient = np.clip(mean + self.noise * CLIP * next(self.normals), -1.0, 1.0)
        gradient, self.squares = rmsprop(gradient, self.squares)
        self.weights = self.weights - learner.step * gradient


@pytest.mark.slow
@pytest.mark.parametrize("noise_on", ["rewards", "gradients"])
def test_baselines_equal_the_plain_algorithm(noise_on: NoiseOn) -> None:
    env = Interval(step_limit=STEPS)
    form = Baseline(noise_on, SMALL, env, CLIP)
    noise, keys = 0.7, jax.random.split(jax.random.key(5), 2)
    with jax.enable_x64(False):
        state = baselines.init(form, keys, [noise, noise])
        # An episode takes over what it is given, so that no two may be one.
        state = state._replace(target=state.target + 0.0)
        weights, streams = np.asarray(state.weights[1], np.float64), state.keys
        drawn = [baselines.draw_randomness(form, streams[1], jnp.int32(k)) for k in range(EPISODES)]
        returns = []
        for _ in range(EPISODES):
            state, seen = baselines._episode(form, state)
            returns.append(float(seen[1]))
        normals = [
            np.asarray(jax.random.normal(key, weights.shape, jnp.float32), np.float64)
            for one in drawn
            for key in one.gradients
        ]
    randoms = [jax.tree.map(np.asarray, one._replace(gradients=None)) for one in drawn]
    rewards = iter(np.concatenate([one.rewards for one in randoms]))
    paid: list[float] = []

    def world(x: float, action: int, move: float) -> tuple[float, float]:
        after = min(1.0, max(0.0, x + 0.25 * move * (1.0 if action == 0 else -1.0)))
        paid.append(0.5 - abs(after - 0.5))
        added = noise * float(next(rewards)) if noise_on == "rewards" else 0.0
        return after, paid[-1] + added

    kind = Algorithm1 if noise_on == "rewards" else PlainBaseline
    plain = kind(SMALL, world, STEPS, 2, weights, NoPath)
    if isinstance(plain, PlainBaseline):
        # There is no update before the first batch is whole.
        plain.noise, plain.normals = noise, iter(normals[SMALL.batch - 1 :])
    for one in randoms:
        plain.episode(EpisodeDraws(one.start, one.moves, one.explores, one.any_action, one.picks))
    sums = np.reshape(paid, (EPISODES, STEPS)).sum(axis=1)
    np.testing.assert_allclose(returns, sums, rtol=1e-5)
    assert np.max(np.abs(plain.weights - weights)) > 0.01
    np.testing.assert_allclose(state.weights[1], plain.weights, atol=2e-4)


def test_noise_of_baselines() -> None:
    """By the composition of Theorem 5's proof; the accountant says that it is enough."""
    assert baselines.noise_multiplier(0.9, 1e-4, 5000, 1.0) == pytest.approx(
        math.sqrt(10_000.0 * math.log(math.e + 9000.0)) / 0.9
    )
    rows = {row["series"].split(":")[0]: row for row in trials.comparison_privacy()}
    assert rows["input perturbation"]["epsilon"] < rows["input perturbation"]["claimed"]
    # DP-SGD is given T / B updates, and makes nearly T.
    assert rows["DP-SGD"]["epsilon"] > rows["DP-SGD"]["claimed"]
    assert rows["Algorithm 1, C inside the root"]["epsilon"] is None
    claimed = [row["claimed"] for row in trials.noise_privacy()[:5]]
    assert claimed == sorted(claimed, reverse=True)
    assert claimed[-1] > 1.0


def test_readings_of_theorem_5() -> None:
    assert trials.theorem_noise(0.9, True)[0] == pytest.approx(6.2, rel=0.01)
    assert trials.theorem_noise(0.45, True)[0] == pytest.approx(16.9, rel=0.01)
    assert trials.theorem_noise(0.9, False)[0] == pytest.approx(0.1035, rel=0.01)
    assert trials.theorem_noise(0.45, False)[0] == pytest.approx(0.466, rel=0.01)


# --- Proposition 10 -------------------------------------------------------------------------------


def test_the_optimum_solves_bellmans_equation() -> None:
    states, gamma = 40, 0.9
    q = proposition.optimal_values(states, gamma)
    place = (np.arange(states) + 0.5) / states
    worth = 0.5 - np.abs(place - 0.5) + gamma * q.max(axis=1)
    for sign, action in ((1, 0), (-1, 1)):
        after = np.clip(np.arange(states)[:, None] + sign * np.arange(1, 11), 0, states - 1)
        np.testing.assert_allclose(q[:, action], worth[after].mean(axis=1), atol=1e-9)


def test_algorithm_1_converges_to_the_optimum_less_its_path() -> None:
    """By expected updates of line 22, on a few states."""
    states, gamma = 12, 0.9
    g = proposition.draw_path(states, 1.0, np.random.default_rng(1))
    place = (np.arange(states) + 0.5) / states
    reward = 0.5 - np.abs(place - 0.5)
    q = np.zeros((states, 2))
    for _ in range(600):
        ahead = reward + gamma * np.max(q + g, axis=1)
        for sign, action in ((1, 0), (-1, 1)):
            after = np.clip(np.arange(states)[:, None] + sign * np.arange(1, 4), 0, states - 1)
            y = ahead[after].mean(axis=1)
            q[:, action] -= 0.5 * (q[:, action] + g[:, action] - y)
    np.testing.assert_allclose(q, proposition.optimal_values(states, gamma) - g, atol=1e-8)


def test_paths_have_their_covariance() -> None:
    source = np.random.default_rng(7)
    paths = np.array([proposition.draw_path(9, 2.0, source)[[0, 4, 8]] for _ in range(20_000)])
    found = np.einsum("nia,nja->ij", paths, paths) / (2 * len(paths))
    apart = np.abs(np.subtract.outer([0, 4, 8], [0, 4, 8])) / 9
    np.testing.assert_allclose(found, np.exp(-2.0 * apart), atol=0.035)


def test_the_bound_fails_with_many_states() -> None:
    """It is 2 sqrt(2) sigma / (sqrt(n pi) (1 - gamma)), and goes to 0; the error does not."""
    assert proposition.bound(1.0, 100, 0.9) == pytest.approx(20 * math.sqrt(2.0 / (100 * math.pi)))
    few, many = (
        np.mean([proposition.mean_error(n, 0.9, 1.0, 1.0, s) for s in range(30)])
        for n in (100, 2000)
    )
    assert few < proposition.bound(1.0, 100, 0.9)
    assert many > proposition.bound(1.0, 2000, 0.9)
    assert many == pytest.approx(few, rel=0.3)


# --- trials ---------------------------------------------------------------------------------------


def test_rows_from_returns() -> None:
    returns = np.concatenate([np.full((2, 30), 10.0), np.full((2, 70), 19.0)], axis=1)
    returns[1] = 5.0
    good, bad = trials._curves(returns, [100, 101])
    assert (good["last"], good["gain"], good["limited"]) == (19.0, 9.0, 1.0)
    # Ten episodes reach 18 in the mean with nine of them at 19: after 39 episodes.
    assert good["thousands"] == 39 * 50 / 1000
    assert (bad["last"], bad["thousands"], bad["limited"]) == (5.0, 5.0, 0.0)
    assert good["samples"] == [250 * k for k in range(1, 21)]
    assert good["curve"][:7] == [10.0] * 6 + [19.0]
    assert "curve" not in trials._curves(returns, [trials.CURVES, trials.CURVES + 1])[0]


@pytest.mark.slow
@pytest.mark.parametrize("target", targets.TARGETS, ids=lambda one: one.name)
def test_every_setting_gives_what_its_quantities_need(target: Target) -> None:
    experiment = target.experiment
    run = getattr(trials, experiment.run.partition(":")[2])
    rows = []
    # Of those that differ in numbers alone, one.
    first = {(one["method"], one.get("paths")): one for one in reversed(experiment.settings)}
    for setting in first.values():
        options = experiment.options(experiment.readings[0], setting)
        found = run(options, {**setting, "samples": 300}, [100, 101])
        rows += [{**setting, **row} for row in found]
    known = estimates(target, rows)
    wanted = {
        q.name for q in target.quantities if any(matches(one, q.where) for one in first.values())
    }
    assert set(known) == wanted
