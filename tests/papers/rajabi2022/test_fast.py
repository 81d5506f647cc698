"""The paper's Q-learning under prospect theory: against NumPy, exact values, its noise in law."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privrl.control.learned_q import NOT_PRIVATE, LearnedQ
from privrl.control.program import Program, load_state, save_state
from privrl.envs import CartPole, MountainCar, ObstacleGrid, ObstacleSquare
from privrl.papers.rajabi2022 import ProspectQ
from privrl.papers.rajabi2022 import fast as paper
from privrl.papers.rajabi2022.algorithm import PPCPTRL, IterationDraws, Outcome
from privrl.papers.rajabi2022.fast import (
    ProspectQProgram,
    ProspectQState,
    Randomness,
    draw_randomness,
    take_step,
)
from privrl.papers.rajabi2022.field import Field
from privrl.papers.rajabi2022.learner import make_result
from privrl.papers.wang2019 import draws
from privrl.papers.wang2019.learner import NO_CLAIM
from privrl.privacy import InputError
from privrl.privacy.certificate import Claim
from privrl.risk import Prospect, solve
from tests.statistics import FALSE_ALARM

Floats = NDArray[np.float64]

KEYS = jax.random.split(jax.random.key(5), 2)
SMALL = ObstacleSquare(size=2, obstacles=((1, 0, 5.0),), step_limit=20)
SIZES: dict[str, Any] = {"batch": 6, "iterations": 4, "samples": 9, "hidden": (5, 4), "rate": 2.0}


pytestmark = pytest.mark.usefixtures("compiled_quickly")


def small_printed(**changes: Any) -> ProspectQ:
    return ProspectQ.printed(**({**SIZES, "sigma": 0.5, "order": 2, "step": 0.2} | changes))


def small_code(**changes: Any) -> ProspectQ:
    own = {"sigma": 0.5, "noise": "cells", "lattice": 3, "minibatch": 8, "replay": 15, "clamp": 0.3}
    return ProspectQ.public_code(**({**SIZES, **own} | changes))


# --- what is claimed ------------------------------------------------------------------------------


def test_theorem_1_sets_sigma_and_beta_together() -> None:
    claim = ProspectQ.printed().promise
    assert isinstance(claim, Claim)
    assert ProspectQ.printed().noise_parameters == (claim.details["sigma"], claim.details["beta"])
    assert ProspectQ.printed().noise_parameters == pytest.approx((0.0489, 99.7), rel=0.01)
    assert "each single iteration" in claim.scope
    assert ProspectQ.printed(sigma=0.0, rate=1.0).promise == NOT_PRIVATE
    assert ProspectQ.public_code().promise == NO_CLAIM


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"gamma": 1.1}, "at most 1"),
        ({"prospect": "CPT"}, "prospect must be"),
        ({"sigma": 1.0}, "belong together"),
        ({"delta": 0.0}, "delta must be above 0"),
        ({"hidden": ()}, "hidden must be"),
        ({"acting": "softmax"}, "acting must be"),
        ({"successor": "worst"}, "successor must be"),
        ({"noise": "path"}, "noise must be"),
        ({"replay": 100}, "at least the minibatch"),
        ({"samples": 0}, "samples must be at least 1"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"clamp": 0.0}, "clamp must be positive"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        ProspectQ.printed(**changes)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="vectors are observed"):
        ProspectQProgram(ProspectQ.printed(), ObstacleGrid())
    with pytest.raises(InputError, match="compiles"):
        ProspectQProgram(ProspectQ.printed(), "ObstacleSquare")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="are too many"):
        ProspectQProgram(ProspectQ.printed(), CartPole())
    with pytest.raises(InputError, match="fewer than the minibatch"):
        ProspectQProgram(ProspectQ.public_code(iterations=10), ObstacleSquare())
    # Other vectors with bounds will do.
    program = ProspectQProgram(small_printed(), MountainCar())
    assert isinstance(program, Program)
    with pytest.raises(InputError, match="cannot be swept"):
        program.init(KEYS, {"batch": jnp.ones(2)})
    with pytest.raises(InputError, match="one for each of 2"):
        program.init(KEYS, {"sigma": jnp.ones(3)})
    with pytest.raises(InputError, match="There are 4 iterations"):
        program.advance(ProspectQProgram(small_printed(), SMALL).init(KEYS), 5)


# --- noise ----------------------------------------------------------------------------------------


def kernel(field: Field, x: Floats, rate: float) -> Floats:
    """The covariance at the rows of x, as the module states it."""
    found = np.ones((len(x), len(x)))
    for u in x.T:
        if field.kind == "cells":
            centre = (np.floor(u * field.side) + 0.5) / field.side
            found *= np.exp(-rate * np.abs(centre[:, None] - centre))
            continue
        j = np.arange(field.side)
        waves = np.where(j == 0, 1.0, np.sqrt(2.0)) * np.cos(np.pi * j * u[:, None])
        density = rate / (rate**2 + (np.pi * j) ** 2)
        found *= waves @ np.diag(density / density.sum()) @ waves.T
    return found


POINTS = np.array([[0.03, 0.9], [0.1, 0.85], [0.5, 0.5], [0.55, 0.9], [0.97, 0.01]])


@pytest.mark.parametrize("field", [Field("features", 11, 2), Field("cells", 10, 2)])
def test_weights_have_the_kernel(field: Field) -> None:
    """Of independent normals, by what each of them does."""
    for rate in (0.3, 40.0):
        with jax.enable_x64(True):
            each = np.asarray(jax.jit(field.weights)(jnp.eye(field.count), rate))
            values = each @ np.asarray(jax.jit(field.features)(jnp.asarray(POINTS))).T
        np.testing.assert_allclose(values.T @ values, kernel(field, POINTS, rate), atol=1e-10)


def test_the_noise_has_its_law() -> None:
    """Of fields as runs draw them: a tenth too much or too little would be noticed."""
    count = 3_000
    config = small_printed(rate=1.7, sigma=1.5)
    field = ProspectQProgram(config, SMALL).field
    path = ProspectQProgram(config, SMALL).init(jax.random.split(jax.random.key(1), count)).path
    with jax.enable_x64(True):
        features = np.asarray(field.features(jnp.asarray(POINTS)))
    values = np.asarray(path, np.float64) @ features.T  # (replicas, actions, points)
    size = 4 * len(POINTS)
    truth = np.kron(np.eye(4), 1.5**2 * kernel(field, POINTS, 1.7))
    spread = np.sqrt((np.outer(np.diag(truth), np.diag(truth)) + truth**2) / count)
    limit = stats.norm.isf(FALSE_ALARM / size**2)

    def far(given: Floats) -> float:
        """The largest difference of a covariance from the kernel's, in standard errors."""
        flat = given.reshape(count, size)
        return float(np.max(np.abs(flat.T @ flat / count - truth) / spread))

    assert far(values) < limit
    assert far(1.1 * values) > limit
    assert far(0.9 * values) > limit


def test_the_mean_variance_is_one() -> None:
    """On a fine lattice, for several rates; at the corner it is what the module says."""
    u = (np.arange(200) + 0.5) / 200
    for rate in (0.1, 1.0, 100.0):
        variance = np.diag(kernel(Field("features", 11, 1), u[:, None], rate))
        assert np.mean(variance) == pytest.approx(1.0, abs=1e-3)
        assert np.diag(kernel(Field("cells", 7, 2), POINTS, rate)) == pytest.approx(1.0)
    assert kernel(Field("features", 11, 2), np.zeros((1, 2)), 1.0)[0, 0] == pytest.approx(
        1.28, abs=0.01
    )


@pytest.mark.parametrize(
    "field", [Field("features", 5, 1), Field("features", 4, 2), Field("cells", 3, 3)]
)
def test_a_field_is_the_sum_of_its_features(field: Field) -> None:
    dimension = field.dimension
    rng = np.random.default_rng(dimension)
    with jax.enable_x64(True):
        weights = jnp.asarray(rng.normal(size=(3, field.count)))
        x = jnp.asarray(
            np.vstack([rng.random((6, dimension)), np.zeros(dimension), np.ones(dimension)])
        )
        found, rows = jax.jit(field.evaluate)(weights, x), jax.jit(field.features)(x)
        np.testing.assert_allclose(found, rows @ weights.T, atol=1e-12)


# --- an iteration, step by step -------------------------------------------------------------------


def square(x: Floats, action: int, prob: Floats) -> Outcome:
    """`SMALL` in plain arithmetic, from three uniform numbers."""
    size, tables = SMALL.size, SMALL.grid.tables
    cell = int(x[0] * size) + size * int(x[1] * size)
    way = int(np.sum(prob[0] >= tables.params().cumulative[cell, action, :-1]))
    after = int(tables.successors[cell, action, way])
    landed = np.array([after % size, after // size]) + prob[1:]
    reward = float(tables.rewards[cell, action, way])
    return Outcome(landed / size, reward, bool(tables.terminated[cell, action, way]))


def field_of(field: Field, path: Floats) -> Callable[[Floats], Floats]:
    """g at a scaled state, of weights (actions, count)."""

    def at(x: Floats) -> Floats:
        side = field.side
        if field.kind == "cells":
            return np.asarray(path[:, int(x[0] * side) * side + int(x[1] * side)])
        each = np.cos(np.pi * np.arange(side) * x[:, None])
        return np.asarray(path @ np.outer(*each).ravel())

    return at


def draws_of(
    config: ProspectQ, drawn: Randomness, replica: int, number: int, key: Any
) -> IterationDraws:
    """What one replica meets in an iteration."""
    steps = (number + 1) * config.batch
    own, there = jax.random.fold_in(key, number), min(steps, config.replay)
    picks = np.empty(0)
    if config.replay:
        picks = np.asarray(draws.subsets(own, jnp.asarray([there]), config.minibatch)[0])
        assert there < config.minibatch or len(set(picks.tolist())) == config.minibatch
    return IterationDraws(
        np.asarray(drawn.begun.inner[:, replica], np.float64) / SMALL.size,
        np.asarray(drawn.prob[:, replica], np.float64),
        np.asarray(drawn.share[:, replica]),
        picks,
    )


CONFIGS = {
    "printed": small_printed(),
    "public code": small_code(acting="proportional", resets="iteration"),
    "in proportion": small_printed(acting="proportional", temperature=0.5, target_every=3),
    "fair draws": small_printed(successor="drawn", behaviour="uniform", noise="cells", lattice=4),
    "the mean": small_code(prospect=Prospect.neutral(), backup="acting", replay=20),
}


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_it_is_the_numpy_loop(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    program = ProspectQProgram(config, SMALL)
    gammas = np.array([0.9, 0.6])
    begun = program.init(KEYS, {"gamma": gammas})
    state = begun
    ends = list[bool]()

    def world(x: Floats, action: int, prob: Floats) -> Outcome:
        found = square(x, action, prob)
        ends.append(found.ends)
        return found

    plain = [
        PPCPTRL(replace(config, gamma=gamma), world, (2, 4), np.asarray(weights, np.float64))
        for gamma, weights in zip(gammas, begun.weights, strict=True)
    ]
    probs = jax.jit(partial(draw_randomness, program.form, SMALL))
    paths = []
    for number in range(config.iterations):
        with jax.enable_x64(False):
            prob = jax.tree.map(np.asarray, probs(state))
        state, seen = program.advance(state, 1)
        paths.append(np.asarray(state.path, np.float64))
        for replica, one in enumerate(plain):
            own = draws_of(config, prob, replica, number, begun.replay[replica])
            found = np.array(one.iteration(own, field_of(program.field, paths[-1][replica])))
            assert seen["loss"][replica, 0] == pytest.approx(found[:, 0].mean(), rel=2e-3, abs=1e-4)
            assert seen["return"][replica, 0] == pytest.approx(found[:, 1].sum(), rel=1e-5)
    for replica, one in enumerate(plain):
        assert np.max(np.abs(one.weights - np.asarray(begun.weights[replica]))) > 1e-2
        np.testing.assert_allclose(state.weights[replica], one.weights, rtol=5e-3, atol=5e-4)
    # Episodes ended, and were begun afresh.
    assert any(ends)
    changes = [not np.array_equal(paths[0], path) for path in paths[1:]]
    assert set(changes) == {config.resets == "iteration"}
    # In two pieces, through a file, it is the same run.
    half, first = program.advance(program.init(KEYS, {"gamma": gammas}), 2)
    save_state(tmp_path / "state.npz", half, {})
    loaded, _ = load_state(tmp_path / "state.npz", half)
    whole, last = program.advance(loaded, 2)
    jax.tree.map(np.testing.assert_array_equal, _bits(whole), _bits(state))
    assert first["length"].tolist() == [[6, 6], [6, 6]]
    np.testing.assert_array_equal(last["loss"][:, 1], seen["loss"][:, 0])


def _bits(state: ProspectQState) -> Any:
    keys: dict[str, Any] = {name: jax.random.key_data(getattr(state, name)) for name in _KEYS}
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state._replace(**keys))]


_KEYS = ("world", "actor", "replay", "noise")


@pytest.mark.parametrize("acting", [pytest.param("greedy", marks=pytest.mark.slow), "proportional"])
def test_targets_are_exact_cpt_values_of_many_samples(acting: Any) -> None:
    """Successors in the shares that the table has, of values that are constant in each cell."""
    square = ObstacleSquare()
    prospect, gamma = Prospect.rajabi2022(), 0.9
    begun: Any = ProspectQProgram(small_printed(), SMALL).init(KEYS)
    rng = np.random.default_rng(4)
    values = rng.normal(size=(4, 100))
    tables = square.grid.tables

    def off(samples: int, cell: int) -> float:
        config = small_printed(samples=samples, acting=acting, noise="cells", lattice=10)
        form = ProspectQProgram(replace(config, prospect=prospect), square).form
        # The lattice counts x first, the grid y.
        path = values.reshape(4, 10, 10).swapaxes(1, 2).reshape(4, 100)
        own = jax.tree.map(lambda leaf: leaf[0], begun)._replace(
            weights=jnp.zeros(begun.weights.shape[1]),
            target=jnp.zeros(begun.weights.shape[1]),
            path=jnp.asarray(path, jnp.float32),
        )
        shares = (np.arange(samples) + 0.5) / samples
        point = np.array([cell % 10, cell // 10]) + 0.5
        prob = Randomness(
            square.state_at(jnp.asarray([0.5, 0.5])),
            jnp.asarray(np.column_stack([shares, rng.random((samples, 2))]), jnp.float32),
            jnp.asarray(0.4),
        )
        place = square.state_at(jnp.asarray(point, jnp.float32))
        taken = jax.jit(partial(take_step, form, square))(own, place, prob)
        action = int(taken.row.action)
        after = values[:, tables.successors[cell, action]]
        raised = np.exp(after)
        worth = after.max(0) if acting == "greedy" else np.sum(raised / raised.sum(0) * after, 0)
        x_n = tables.rewards[cell, action] + gamma * ~tables.terminated[cell, action] * worth
        exact = prospect.of_distribution(x_n, tables.probabilities[cell, action])
        return float(abs(taken.row.aim + values[action, cell] - exact))

    with jax.enable_x64(False):
        # Next to the target, an action that leads there or to one of two others.
        many = off(600, 98)
        assert many < 2e-5
        if acting == "greedy":
            assert off(7, 98) > 50 * many


# --- what is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config",
    [
        small_printed(),
        pytest.param(
            small_printed(acting="proportional", temperature=0.7, noise="cells", lattice=4),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_is_shown_is_q_and_noise(config: ProspectQ, tmp_path: Path) -> None:
    program = ProspectQProgram(config, SMALL)
    state = program.init(KEYS, {"sigma": np.array([2.0, 0.0])})
    points = np.random.default_rng(0).random((40, 2)) * 2.0
    shown = make_result(program, state, 3, public=False)
    np.testing.assert_allclose(shown.values(points), program.values(state, points)[0], atol=1e-5)
    likely = program.probabilities(state, points)[0]
    np.testing.assert_allclose(shown.probabilities(points), likely, atol=1e-5)
    assert shown.score is None
    assert "noise of one's own" in str(shown.promise)
    shown.save(tmp_path / "shown.json")
    same = LearnedQ.load(tmp_path / "shown.json")
    np.testing.assert_array_equal(same.values(points), shown.values(points))
    # Q alone is another function.
    alone = make_result(program, state, 3, public=False, noise=False)
    np.testing.assert_allclose(
        alone.values(points), program.values(state, points, noise=False)[0], atol=1e-5
    )
    assert np.max(np.abs(alone.values(points) - shown.values(points))) > 0.5
    alone.save(tmp_path / "alone.json")
    again = LearnedQ.load(tmp_path / "alone.json")
    np.testing.assert_array_equal(again.values(points), alone.values(points))
    # The second replica has no noise.
    np.testing.assert_array_equal(
        program.values(state, points)[1], program.values(state, points, noise=False)[1]
    )


def test_promises() -> None:
    own = small_printed(sigma=None, rate=None, step=0.001)
    program = ProspectQProgram(own, SMALL)
    shown = make_result(program, program.init(KEYS), 3, public=False)
    assert isinstance(shown.promise, Claim)
    assert shown.claim.source == "rajabi2022, Theorem 1"
    assert shown.settings["sigma"] == pytest.approx(own.noise_parameters[0])
    free = ProspectQProgram(replace(own, sigma=0.0, rate=1.0), SMALL)
    without = make_result(free, program.init(KEYS, {"sigma": 0.0}), None, public=False)
    assert "Not private" in without.privacy_statement


@pytest.mark.slow
def test_scores() -> None:
    program = ProspectQProgram(small_printed(), SMALL)
    shown = make_result(program, program.init(KEYS), 3, public=True)
    assert shown.score is not None
    assert -20.0 * 5.0 <= shown.score < 0.0


@pytest.mark.slow
@pytest.mark.parametrize("prospect", [Prospect.rajabi2022(), Prospect.neutral()])
def test_it_learns_what_it_is_for(prospect: Prospect) -> None:
    """On a small square, with fair draws and fresh targets: two thirds of what blind acting loses.

    Q jumps from cell to cell, which a network of this size only follows so far.
    """
    square = ObstacleSquare(size=3, obstacles=((1, 1, 5.0),))
    sizes: dict[str, Any] = {"samples": 30, "batch": 60, "hidden": (32, 32), "step": 0.005}
    ways: dict[str, Any] = {"successor": "drawn", "behaviour": "uniform", "optimiser": "rmsprop"}
    config = ProspectQ.printed(prospect=prospect, sigma=0.0, rate=1.0, **sizes, **ways)
    run = paper.train(jax.random.split(jax.random.key(1), 4), config, square)
    centres = np.asarray(square.grid.position(np.arange(9)))
    chosen = run.program.probabilities(run.state, centres)
    exact = solve(square.grid, prospect, config.gamma)
    lost = exact.values - np.sum(chosen * exact.action_values, axis=2)
    blind = exact.values - exact.action_values.mean(axis=1)
    assert np.mean(lost[:, :8]) < np.mean(blind[:8]) / 3.0
    assert run.losses[:, -50:].mean() < run.losses[:, :50].mean() / 2.0
