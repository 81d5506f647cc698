"""Many runs at once in NumPy: held against the algorithm, number by number and in law."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from privrl.core.types import Floats
from privrl.papers.seo2020 import ActorCritic, algorithm
from privrl.papers.seo2020.spec import Acting, Variant
from privrl.papers.seo2020.vectorised import (
    TRACE,
    Form,
    Played,
    Run,
    U,
    Uniforms,
    _act,
    _Runs,
    _spread,
    _World,
    play,
)
from tests.papers.seo2020.tables import small, two_parts

STEPS = 20


def same_draws(first: Floats, steps: Floats) -> Uniforms:
    """The draws that `algorithm.run` takes, the same for all runs."""
    return lambda _, episode: (float(first[episode]), steps[episode])


@pytest.mark.parametrize("acting", ["epsilon-greedy", "softmax"])
@pytest.mark.parametrize("lambda_", [0.0, 0.8])
def test_without_noise_it_is_the_algorithm(acting: Acting, lambda_: float) -> None:
    """Two runs with settings of their own, whose episodes end at different times."""
    rng = np.random.default_rng(3)
    first, steps = rng.random(30), rng.random((30, STEPS, 2))
    runs = [Run("none", 0.3, 0.2, 0.1, lambda_), Run("none", 0.05, 0.5, 0.01, lambda_)]
    form = Form(acting)
    found = play(small(), runs, 30, rng, form, uniforms=same_draws(first, steps))
    for k, one in enumerate(runs):
        config = ActorCritic(
            variant="none",
            lambda_=lambda_,
            actor_step=one.actor_step,
            critic_step=one.critic_step,
            correction_step=one.correction_step,
            acting=acting,
        )
        plain = algorithm.run(config, small(), first, steps, rng)
        np.testing.assert_allclose(found.actor[k], plain.u, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.critic[k], plain.v, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found.correction[k], plain.w, rtol=1e-9, atol=1e-12)
        assert found.returns[k].tolist() == pytest.approx(plain.returns)
        assert found.lengths[k].tolist() == plain.lengths


@pytest.mark.parametrize("world", [small, two_parts])
@pytest.mark.parametrize("variant", ["actor", "critic", "both"])
def test_with_next_to_no_noise_it_is_the_algorithm(
    monkeypatch: pytest.MonkeyPatch, variant: Variant, world: Callable[[], Any]
) -> None:
    """Norms and medians, beside runs of other variants. By softmax, as noise would break ties."""
    monkeypatch.setattr(Run, "sigma", 1e-14)
    rng = np.random.default_rng(3)
    first, steps = rng.random(30), rng.random((30, STEPS, 2))
    given: dict[str, Any] = {"actor_step": 0.05, "critic_step": 0.1, "correction_step": 0.05}
    runs = [Run(one, **given, lambda_=0.8) for one in (variant, "none", "actor", "critic")]
    found = play(world(), runs, 30, rng, Form("softmax"), uniforms=same_draws(first, steps))
    config = ActorCritic(variant, sigma=0.0, lambda_=0.8, acting="softmax", **given)
    plain = algorithm.run(config, world(), first, steps, rng)
    np.testing.assert_allclose(found.actor[0], plain.u, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.critic[0], plain.v, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.correction[0], plain.w, rtol=1e-9, atol=1e-11)
    assert found.lengths[0].tolist() == plain.lengths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "world"),
    [("actor", small), ("critic", small), ("both", small), ("both", two_parts)],
)
def test_with_noise_it_has_the_algorithms_law(variant: Variant, world: Callable[[], Any]) -> None:
    """Means and spreads of all weights and returns, over 1,000 runs of three episodes.

    |z| < 4.5 for some 50 numbers: by chance with a probability below 4e-4. A spread of n runs has a
    relative standard error of about 1 / sqrt(2 n) = 0.022 for normal weights, of which 0.15 is 4.7
    for a difference. With traces kept all rows are read, and otherwise noise stays pending.
    """
    rng, count, episodes = np.random.default_rng(4), 1000, 3
    first, steps = np.array([0.3, 0.9, 0.4]), rng.random((episodes, STEPS, 2))  # in both parts
    run = Run(variant, 0.05, 0.1, 0.05, 0.8)
    config = ActorCritic(
        *(variant, 10.0), lambda_=0.8, actor_step=0.05, critic_step=0.1, correction_step=0.05
    )
    plain = [algorithm.run(config, world(), first, steps, rng) for _ in range(count)]
    draws = same_draws(first, steps)
    theirs = {
        "actor": np.array([one.u for one in plain]),
        "critic": np.array([one.v for one in plain]),
        "correction": np.array([one.w for one in plain]),
        "returns": np.array([one.returns for one in plain]),
    }
    # Rows that no episode meets have noise alone.
    noised = "critic" if variant == "critic" else "actor"
    for traces in (None, ignore):
        found = play(world(), [run] * count, episodes, rng, uniforms=draws, traces=traces)
        for name, other in theirs.items():
            ours: Floats = getattr(found, name)
            error = np.sqrt((ours.var(axis=0) + other.var(axis=0)) / count)
            apart = np.abs(ours.mean(axis=0) - other.mean(axis=0))
            assert np.all(apart <= 4.5 * error + 1e-12), name
            if name == noised:
                unmet = np.arange(other.shape[1]) % 6 > 3
                spread = other[:, unmet].std(axis=0)
                np.testing.assert_allclose(ours[:, unmet].std(axis=0), spread, rtol=0.15)
                assert np.all(spread > 0.0)


def test_what_steps_leave_pending_is_the_covariance_of_their_noise() -> None:
    """Each step's noise, followed on its own to the trace and to the preference."""
    now = _Runs(_World(small()), [Run("actor", 0.1, 0.1, 0.1, 0.8)], np.arange(1))
    fades, deltas, stds = np.random.default_rng(0).normal(size=(3, 6))
    trace, weight = np.zeros((2, 6))
    for k, (fade, delta, std) in enumerate(zip(fades, deltas, stds, strict=True)):
        _spread(now, *(np.array([one]) for one in (fade, delta, std)))
        trace *= fade
        trace[k] = std
        weight += delta * trace
    by_hand = [weight @ weight, trace @ trace, trace @ weight]
    np.testing.assert_allclose(now.moving[U:TRACE, 0], np.tile(by_hand, (7, 1)).T, rtol=1e-12)


def ignore(*_: Any) -> None:
    """All rows are read at the end of each episode."""


def played(seed: int, runs: list[Run], form: Form) -> Played:
    return play(small(), runs, 5, np.random.default_rng(seed), form, traces=ignore)


def test_noise_on_the_visited_row_leaves_others_alone() -> None:
    runs = [Run("both", 0.1, 0.1, 0.05, 0.8)] * 3
    visited = played(0, runs, Form(rows="visited"))
    everywhere = played(0, runs, Form())
    assert np.all(visited.actor[:, 4:] == 0.0)
    assert np.all(visited.critic[:, 4:] == 0.0)
    assert np.all(everywhere.actor[:, 4:] != 0.0)
    assert np.all(everywhere.critic[:, 4:] != 0.0)
    plain = played(0, [replace(one, variant="none") for one in runs], Form())
    assert not np.array_equal(visited.actor, plain.actor)


def test_the_law_of_epsilon_greedy_by_hand() -> None:
    """Greedy probability 0.95 for 2 actions: gradient (0.05, -0.05); exploring by the other has the
    ratio 0.05 * 2."""
    u, exploration = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([0.1, 0.1])
    form = Form(law="epsilon-greedy")
    action, rho, gradient = _act(form, exploration, u, np.array([0.5, 0.09]))
    assert action.tolist() == [0, 1]
    assert rho.tolist() == pytest.approx([1.0, 0.1])
    assert gradient.T.tolist() == [pytest.approx([0.05, -0.05]), pytest.approx([-0.95, 0.95])]


def test_order_does_not_matter() -> None:
    """Runs come back in the order in which they were asked for."""
    rng = np.random.default_rng(0)
    first, steps = rng.random(4), rng.random((4, STEPS, 2))
    plain, noised = Run("none", 0.3, 0.2, 0.1, 0.8), Run("actor", 0.3, 0.2, 0.1, 0.8)
    draws = same_draws(first, steps)
    one = play(small(), [noised, plain], 4, np.random.default_rng(1), uniforms=draws)
    other = play(small(), [plain, noised], 4, np.random.default_rng(1), uniforms=draws)
    assert np.array_equal(one.returns[1], other.returns[0])
    assert np.array_equal(one.actor, other.actor[::-1])
