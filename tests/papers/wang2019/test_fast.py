"""The paper's Q-learning with functional noise: by hand, against NumPy, and its path in law."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import combinations, count, pairwise, permutations
from pathlib import Path as File
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privrl.control.learned_q import NOT_PRIVATE
from privrl.control.program import Program, load_state, save_state
from privrl.envs import CartPole, Interval, Taxi
from privrl.papers.wang2019 import FunctionalQ
from privrl.papers.wang2019 import fast as paper
from privrl.papers.wang2019 import path as paths
from privrl.papers.wang2019.algorithm import Algorithm1, EpisodeDraws, LazyPath, Network, Path
from privrl.papers.wang2019.fast import (
    FunctionalQProgram,
    FunctionalQState,
    backward,
    draw_randomness,
    forward,
    train,
)
from privrl.papers.wang2019.learner import NO_CLAIM
from privrl.papers.wang2019.spec import Edge
from privrl.privacy import InputError
from privrl.privacy.certificate import Claim

Floats = NDArray[np.float64]

KEYS = jax.random.split(jax.random.key(3), 3)
FALSE_ALARM = 1e-6
# Two programs, `small_printed()` and `small_code()`, of which most tests of whole runs take one.
SMALL: dict[str, Any] = {"samples": 60, "batch": 10, "resets": 6, "hidden": (5, 4)}
SHORT_STEPS = 10
SHORT = Interval(step_limit=SHORT_STEPS)


pytestmark = pytest.mark.usefixtures("compiled_quickly")


def small_printed(**changes: Any) -> FunctionalQ:
    return FunctionalQ.printed(**({**SMALL, "sigma": 0.0, "rate": 1.0} | changes))


def small_code(**changes: Any) -> FunctionalQ:
    return FunctionalQ.public_code(
        **({**SMALL, "sigma": 0.0, "replay": 20, "target": 20} | changes)
    )


# --- what is claimed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "sigma", "rate"),
    [
        (FunctionalQ.printed(), 6.2, 24.0),
        (FunctionalQ.printed(epsilon=0.45), 17.0, None),
        (FunctionalQ.printed(step=0.001), 1.9, None),
        (FunctionalQ.printed(updates="step", resets=5000), 318.0, None),
    ],
)
def test_theorem_5_sets_sigma_and_beta_together(
    config: FunctionalQ, sigma: float, rate: float | None
) -> None:
    claim, found = config.promise, config.noise_parameters
    assert isinstance(claim, Claim)
    assert found == (claim.details["sigma"], claim.details["beta"])
    assert found[0] == pytest.approx(sigma, rel=0.03)
    if rate is not None:
        assert found[1] == pytest.approx(rate, rel=0.03)
    assert claim.epsilon == config.epsilon
    assert config.delta < claim.delta <= 2.0 * config.delta


def test_a_sigma_of_ones_own_has_no_claim() -> None:
    assert FunctionalQ.public_code(sigma=0.0).promise == NOT_PRIVATE
    assert FunctionalQ.public_code().promise == NO_CLAIM


def test_resets_are_in_whole_batches_as_printed() -> None:
    assert FunctionalQ.printed().period == 128
    assert FunctionalQ.printed(resets=1).period == 39 * 128
    assert FunctionalQ.printed(resets=10).period == 4 * 128
    assert FunctionalQ.public_code().period == 50
    assert FunctionalQ.public_code(resets=1).period == 5000


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"gamma": 1.1}, "at most 1"),
        ({"step": 0.0}, "step must be positive"),
        ({"sigma": 1.0}, "belong together"),
        ({"rate": 1.0}, "belong together"),
        ({"sigma": -1.0, "rate": 1.0}, "sigma must be"),
        ({"delta": 0.0}, "delta must be above 0"),
        ({"hidden": ()}, "hidden must be"),
        ({"hidden": 16}, "hidden must be"),
        ({"hidden": (0,)}, "hidden must be at least 1"),
        ({"acting": "softmax"}, "acting must be"),
        ({"replay": 100}, "at least the batch"),
        ({"replay": 70_000}, "below 65,536"),
        ({"resets": 40}, "at most 39"),
        ({"samples": 100}, "samples must be at least"),
        ({"clamp": 0.0}, "clamp must be positive"),
        ({"target": 0}, "target must be at least 1"),
        ({"terminal": 1}, "terminal must be"),
        ({"edge": "left"}, "edge must be"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(InputError, match=match):
        FunctionalQ.printed(**changes)


def test_environments_that_do_not_fit_are_refused() -> None:
    for env in (CartPole(), Taxi()):
        with pytest.raises(InputError, match="one number is observed"):
            FunctionalQProgram(FunctionalQ.printed(), env)
    with pytest.raises(InputError, match="sets no limit"):
        FunctionalQProgram(FunctionalQ.printed(), Interval(step_limit=None))
    with pytest.raises(InputError, match="compiles"):
        FunctionalQProgram(FunctionalQ.printed(), "Interval")  # type: ignore[arg-type]


def test_sweeps_are_checked() -> None:
    program = FunctionalQProgram(small_code(), SHORT)
    assert isinstance(program, Program)
    with pytest.raises(InputError, match="cannot be swept"):
        program.init(KEYS, {"batch": jnp.ones(3)})
    with pytest.raises(InputError, match="one for each of 3"):
        program.init(KEYS, {"sigma": jnp.ones(2)})
    with pytest.raises(InputError, match="60 samples are 6 episodes"):
        program.advance(program.init(KEYS), 7)


# --- without noise --------------------------------------------------------------------------------


def interval(x: float, action: int, share: float) -> tuple[float, float]:
    """`Interval` in plain arithmetic: where an action leads, and what that pays."""
    after = min(1.0, x + 0.25 * share) if action == 0 else max(0.0, x - 0.25 * share)
    return after, 0.5 - abs(after - 0.5)


def draws_of(drawn: Any, replica: int) -> EpisodeDraws:
    """What one replica's episode meets."""
    return EpisodeDraws(
        drawn.begun.inner[replica],
        drawn.prob[:, replica],
        drawn.explores[:, replica],
        drawn.any_action[:, replica],
        drawn.picks[:, replica],
    )


def plain_run(program: FunctionalQProgram, weights: Floats, path: Callable[[], Path]) -> Algorithm1:
    form = program.form
    return Algorithm1(program.learner, interval, form.horizon, form.actions, weights, path)


class Silence:
    """No noise."""

    def insert(self, x: float) -> None:
        pass

    def __call__(self, x: float) -> Floats:
        return np.zeros((2, 2))


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        small_printed(),
        small_printed(batch=8),
        small_code(),
        small_printed(batch=8, step=0.05, resets=1, updates="step"),
        small_code(batch=8, optimiser="sgd", loss="squared", clamp=0.05, step=0.2, terminal=False),
        small_printed(batch=8, replay=16, updates="step", resets=7, step=0.1),
    ],
)
def test_without_noise_it_is_the_numpy_loop(config: FunctionalQ) -> None:
    program = FunctionalQProgram(config, SHORT)
    state = program.init(KEYS)
    first = np.asarray(state.weights, np.float64)
    plain = [plain_run(program, first[replica], Silence) for replica in range(len(KEYS))]
    probs = jax.jit(partial(draw_randomness, program.form, SHORT))
    for _ in range(6):
        with jax.enable_x64(False):
            prob = jax.tree.map(np.asarray, probs(state))
        state, seen = program.advance(state, 1)
        for replica, one in enumerate(plain):
            total = one.episode(draws_of(prob, replica))
            assert seen["return"][replica, 0] == pytest.approx(total, rel=1e-4)
    for replica, one in enumerate(plain):
        assert np.max(np.abs(one.weights - first[replica])) > 1e-3
        np.testing.assert_allclose(state.weights[replica], one.weights, rtol=2e-3, atol=2e-4)


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize("edge", ["correct", "public-code"])
@pytest.mark.parametrize("make", [small_printed, small_code])
def test_with_one_path_it_is_the_numpy_loop(make: Any, edge: Edge) -> None:
    """Both draw the path at a new state from the same normals, given its neighbours."""
    config = make(resets=1, sigma=0.3, rate=2.0, edge=edge)
    program = FunctionalQProgram(config, SHORT)
    state = program.init(KEYS[:1])
    first = np.asarray(state.weights[0], np.float64)
    normals: list[Floats] = []
    asked = (normals.pop(0).reshape(-1, 2) for _ in count())
    plain = plain_run(program, first, lambda: LazyPath(0.3, 2.0, asked, edge))
    probs = jax.jit(partial(draw_randomness, program.form, SHORT))
    for _ in range(6):
        with jax.enable_x64(False):
            prob = jax.tree.map(np.asarray, probs(state))
        state, seen = program.advance(state, 1)
        normals.extend(prob.normals[:, 0].astype(np.float64))
        total = plain.episode(draws_of(prob, 0))
        assert normals == []
        assert seen["return"][0, 0] == pytest.approx(total, rel=1e-4)
    assert np.max(np.abs(plain.weights - first)) > 1e-3
    np.testing.assert_allclose(state.weights[0], plain.weights, rtol=2e-3, atol=2e-4)


def drawn_so_far(path: paths.Path) -> tuple[Floats, Floats]:
    """Points (replicas, n) in the order in which they were asked for, and the values there."""
    merged, waits = int(path.merged[0]), int(path.waits[0])
    points = np.concatenate([path.points[:, :merged], path.late_points[:, :waits]], axis=1)
    values = np.concatenate([path.values[:, :merged], path.late_values[:, :waits]], axis=1)
    return points.astype(np.float64), values.astype(np.float64)


class Recorded:
    """The path that a run drew, at the states it met."""

    def __init__(self) -> None:
        self.points, self.values = np.empty(0), np.empty((0, 1, 2))

    def record(self, path: paths.Path) -> None:
        points, values = drawn_so_far(path)
        self.points, self.values = points[0], values[0].reshape(points.shape[1], -1, 2)

    def insert(self, x: float) -> None:
        pass

    def __call__(self, x: float) -> Floats:
        return np.asarray(self.values[np.argmin(np.abs(self.points - x))])


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize("config", [small_printed(sigma=0.3), small_code(resets=3, sigma=0.3)])
def test_with_a_path_for_each_batch_it_is_the_numpy_loop(config: FunctionalQ) -> None:
    """Resets come where episodes begin, so that a run has one path in each of them."""
    program = FunctionalQProgram(config, SHORT)
    assert config.period % SHORT_STEPS == 0
    state = program.init(KEYS)
    first = np.asarray(state.weights[0], np.float64)
    path = Recorded()
    plain = plain_run(program, first, lambda: path)
    probs = jax.jit(partial(draw_randomness, program.form, SHORT))
    seen_paths = []
    for _ in range(6):
        with jax.enable_x64(False):
            prob = jax.tree.map(np.asarray, probs(state))
        state, seen = program.advance(state, 1)
        path.record(state.path)
        seen_paths.append(path(0.5)[0, 0])
        total = plain.episode(draws_of(prob, 0))
        assert seen["return"][0, 0] == pytest.approx(total, rel=1e-4)
    assert len(set(seen_paths)) >= config.resets
    assert np.max(np.abs(plain.weights - first)) > 1e-3
    np.testing.assert_allclose(state.weights[0], plain.weights, rtol=2e-3, atol=2e-4)


def test_slopes_of_the_numpy_network_are_differences() -> None:
    network, rng = Network((2, 5, 4, 3)), np.random.default_rng(1)
    weights, x = rng.normal(size=2 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3), rng.random(2)
    for action in range(3):
        up, down = (
            np.array([network.q(weights + s * nudge, x)[action] for nudge in 1e-6 * np.eye(54)])
            for s in (1.0, -1.0)
        )
        found = network.gradient(weights, x, action)
        np.testing.assert_allclose(found, (up - down) / 2e-6, atol=1e-7)


def test_the_gradient_is_that_of_automatic_differentiation() -> None:
    form = FunctionalQProgram(FunctionalQ.printed(hidden=(7, 3, 5)), Interval()).form
    size = sum((rows + 1) * columns for rows, columns in form.shapes)
    rng = np.random.default_rng(1)
    with jax.enable_x64(False):
        weights = jnp.asarray(rng.normal(size=(4, size)), jnp.float32)
        x = jnp.asarray(rng.random((4, 9)), jnp.float32)
        errors = jnp.asarray(rng.normal(size=(4, 2, 9)), jnp.float32)

        def scalar(given: jax.Array) -> jax.Array:
            return jnp.sum(errors * forward(form, given, x)[-1])

        def by_hand(given: jax.Array) -> jax.Array:
            return backward(form, given, forward(form, given, x), errors)

        expected = jax.jit(jax.grad(scalar))(weights)
        np.testing.assert_allclose(jax.jit(by_hand)(weights), expected, rtol=2e-5, atol=2e-5)


def test_one_update_by_hand() -> None:
    """One hidden unit, two samples: Q(x, a) = c_a relu(w x + b) + d_a, in plain arithmetic."""
    weights = np.array([[2.0, 0.5, 1.0, -1.0, 0.25, 0.0]])  # w, b, c_0, c_1, d_0, d_1

    def gradient(first: float, second: float) -> Floats:
        """From the errors of Q(0.5, 0) = 1.75 and of Q(0.25, 1) = -1, averaged."""
        return np.array(
            [
                (first * 0.5 - second * 0.25) / 2.0,
                (first - second) / 2.0,
                first * 1.5 / 2.0,
                second * 1.0 / 2.0,
                first / 2.0,
                second / 2.0,
            ]
        )

    program = FunctionalQProgram(small_code(batch=2, hidden=(1,)), SHORT)
    state = program.init(KEYS[:1], {"step": jnp.asarray([0.1])})
    plain: dict[str, Any] = {"optimiser": "sgd"}
    for changes, aims, expected in (
        (plain, (1.0, -0.5), 0.1 * gradient(0.75, -0.5)),
        (plain | {"clamp": 0.3}, (1.0, -0.5), 0.1 * np.clip(gradient(0.75, -0.5), -0.3, 0.3)),
        # Huber's gradient is cut off at 1, the square's is not.
        (plain, (-3.25, 3.0), 0.1 * gradient(1.0, -1.0)),
        (plain | {"loss": "squared", "clamp": None}, (-3.25, 3.0), 0.1 * gradient(5.0, -4.0)),
        # RMSprop's first step: the root of 0.01 g^2 is |g| / 10.
        ({}, (1.0, -0.5), 0.1 * 10.0 * np.sign(gradient(0.75, -0.5))),
    ):
        form = FunctionalQProgram(small_code(batch=2, hidden=(1,), **changes), SHORT).form
        with jax.enable_x64(False):
            kept = np.zeros(state.rows.shape, np.float32)
            kept[0, 0, :3], kept[0, 1, :3] = (0.5, 0.0, aims[0]), (0.25, 1.0, aims[1])
            state = state._replace(
                rows=jnp.asarray(kept), weights=jnp.asarray(weights, jnp.float32)
            )
            update = jax.jit(partial(paper.update, form))
            ours, _ = update(state, jnp.asarray([[0, 1]], jnp.int32))
        np.testing.assert_allclose(ours, weights - expected, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize("config", [small_code(), small_printed()])
def test_a_run_in_two_pieces_is_the_whole_run(config: FunctionalQ, tmp_path: File) -> None:
    """Also when the state went through a file in between."""
    program = FunctionalQProgram(config, SHORT)
    begun = program.init(KEYS, {"sigma": jnp.asarray([0.0, 0.3, 0.7])})
    whole, seen = program.advance(begun, 6)
    first, seen_first = program.advance(begun, 2)
    save_state(tmp_path / "state.npz", first, {})
    kept, _ = load_state(tmp_path / "state.npz", begun)
    second, seen_second = program.advance(kept, 4)
    same(whole, second)
    joined = np.concatenate([seen_first["return"], seen_second["return"]], axis=1)
    np.testing.assert_array_equal(seen["return"], joined)
    np.testing.assert_array_equal(seen["length"], 10)
    assert len(np.unique(np.asarray(whole.weights)[:, 0])) == 3


def same(first: FunctionalQState, second: FunctionalQState) -> None:
    """Whether two states are, bit for bit."""
    for ours, theirs in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        is_key = jnp.issubdtype(ours.dtype, jax.dtypes.prng_key)
        data = jax.random.key_data if is_key else np.asarray
        np.testing.assert_array_equal(data(ours), data(theirs))


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
def test_replicas_are_divided_and_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    program = FunctionalQProgram(small_code(sigma=0.3), SHORT)
    begun = program.init(jax.random.split(jax.random.key(1), 5))
    monkeypatch.setattr(paper, "_REPLICAS", 3)
    whole, seen = program.advance(begun, 2)
    for replicas in ([0, 1, 2], [3, 4, 4]):
        chosen: FunctionalQState = jax.tree.map(lambda leaf: leaf[np.array(replicas)], begun)  # noqa: B023
        apart, seen_apart = program.advance(chosen, 2)
        same(apart, jax.tree.map(lambda leaf: leaf[np.array(replicas)], whole))  # noqa: B023
        np.testing.assert_array_equal(seen["return"][np.array(replicas)], seen_apart["return"])


# --- minibatches ----------------------------------------------------------------------------------


def test_a_minibatch_is_any_set_equally_likely() -> None:
    config = small_code(batch=3, replay=20)
    count = 40_000
    keys = jax.random.split(jax.random.key(5), count)
    number = jnp.asarray([3, 6, 25], jnp.int32)
    picks = np.asarray(
        jax.jit(jax.vmap(lambda key: paper._minibatch_indices(config, key, number)))(keys)
    )
    assert set(np.unique(picks[:, 0])) == {0, 1, 2}
    found = [tuple(sorted(row)) for row in picks[:, 1].tolist()]
    sets = list(combinations(range(6), 3))
    counts = [found.count(one) for one in sets]
    assert sum(counts) == count
    assert stats.chisquare(counts).pvalue > FALSE_ALARM
    # The last 20 of 25, none of them twice.
    late = np.sort(picks[:, 2], axis=1)
    assert np.all(np.diff(late, axis=1) > 0)
    assert late.min() == 5
    assert late.max() == 24
    pairs = np.bincount((late - 5).ravel(), minlength=20)
    assert stats.chisquare(pairs).pvalue > FALSE_ALARM
    # With replacement, 1 - (5/6)(4/6) of the sets of 6 would have had a repeat.
    assert len({one for one in found if len(set(one)) < 3}) == 0


# --- the path -------------------------------------------------------------------------------------


def whitened(points: Floats, values: Floats, sigma: float, rate: float) -> Floats:
    """Innovations: each value given those before it, in units of its standard deviation.

    (replicas, n) and (replicas, n, K), points all distinct; independent standard normals if the law
    is right, also where a point was chosen in the light of what was drawn before it.
    """
    gaps = np.abs(points[:, :, None] - points[:, None, :])
    roots = np.linalg.cholesky(sigma**2 * np.exp(-rate * gaps))
    return np.asarray(np.linalg.solve(roots, values))


def deviates(innovations: Floats) -> bool:
    """Whether rows (replicas, d) are not independent standard normals, at the false-alarm rate.

    By all means and second moments, each of which is a mean over replicas of known variance.
    """
    replicas, size = innovations.shape
    excess = (innovations.T @ innovations / replicas - np.eye(size)) * math.sqrt(replicas)
    excess = excess / np.where(np.eye(size) > 0, math.sqrt(2.0), 1.0)
    means = innovations.mean(axis=0) * math.sqrt(replicas)
    tests = size * (size + 3) // 2
    limit = stats.norm.isf(FALSE_ALARM / tests / 2.0)
    return bool(max(np.abs(excess).max(), np.abs(means).max()) > limit)


REPLICAS = 10_000
SIGMA, RATE = 0.7, 3.0


def rollout() -> tuple[Floats, Floats, Floats]:
    """Points in the order asked, the first path at some of them, and the second at all.

    Four, merged; three more, of which one repeats; a fresh path; three more, with a merge between.
    """
    asked = np.array([0.5, 0.1, 0.9, 0.3, 0.95, 0.3, 0.02, 0.51, 1.0, 0.4], np.float32)
    with jax.enable_x64(False):
        sigma, rate = (jnp.full((REPLICAS,), one, jnp.float32) for one in (SIGMA, RATE))

        insert = jax.jit(partial(paths.insert, edge="correct"))
        redraw = jax.jit(partial(paths.redraw, actions=2, edge="correct"))
        merge = jax.jit(paths.merge)
        key = jax.random.key(11)

        def put(path: paths.Path, number: int) -> paths.Path:
            noise = jax.random.normal(jax.random.fold_in(key, number), (REPLICAS, 2), jnp.float32)
            x = jnp.full((REPLICAS,), asked[number], jnp.float32)
            found: paths.Path = insert(path, x, noise, sigma, rate)[0]
            return found

        path = paths.init(REPLICAS, 12, 4, 2)
        for number in range(4):
            path = put(path, number)
        path = merge(path)
        for number in range(4, 7):
            path = put(path, number)
        path = merge(path)
        first = path.values[:, :7]
        keys = jax.random.split(jax.random.fold_in(key, 100), REPLICAS)
        path = redraw(path, keys, sigma, rate)
        for number in range(7, 10):
            path = put(path, number)
            if number == 8:
                path = merge(path)
        second = merge(path).values[:, :10]
    return asked.astype(np.float64), np.asarray(first, np.float64), np.asarray(second, np.float64)


def test_the_path_has_the_exact_law() -> None:
    points, first, second = rollout()
    np.testing.assert_array_equal(first[:, 5], first[:, 3])
    np.testing.assert_array_equal(second[:, 5], second[:, 3])
    new = [k for k in range(10) if k != 5]
    spread = np.broadcast_to(points[new], (REPLICAS, len(new)))

    def both(sigma: float, rate: float) -> Floats:
        """Of the first path and the second, which are independent."""
        early = whitened(spread[:, :6], first[:, new[:6]], sigma, rate)
        late = whitened(spread, second[:, new], sigma, rate)
        return np.concatenate([early, late], axis=1).reshape(REPLICAS, -1)

    assert not deviates(both(SIGMA, RATE))
    # A law that is off by a tenth is found out.
    assert deviates(both(1.1 * SIGMA, RATE))
    assert deviates(both(SIGMA, 1.1 * RATE))


def test_long_paths_have_the_exact_law() -> None:
    """Over the edges of blocks and of chunks."""
    replicas, size = 6, 2500
    rng = np.random.default_rng(2)
    even = np.linspace(0.0, 1.0, size, dtype=np.float32)
    x = np.stack([rng.permutation(even) for _ in range(replicas)])
    with jax.enable_x64(False):
        sigma, rate = (
            jnp.full((replicas,), SIGMA, jnp.float32),
            jnp.full((replicas,), RATE, jnp.float32),
        )
        path = paths.init(replicas, size, 500, 2)
        merge = jax.jit(paths.merge)
        for at in range(0, size, 500):
            late = jnp.asarray(x[:, at : at + 500])
            path = merge(
                path._replace(late_points=late, waits=jnp.full((replicas,), 500, jnp.int32))
            )
        np.testing.assert_array_equal(path.ordered[:, :size], np.sort(x, axis=1))
        keys = jax.random.split(jax.random.key(4), replicas)
        path = jax.jit(partial(paths.redraw, actions=2, edge="correct"))(path, keys, sigma, rate)
    order = np.argsort(x, axis=1)
    sites = np.take_along_axis(x, order, axis=1).astype(np.float64)
    values = np.take_along_axis(np.asarray(path.values, np.float64), order[:, :, None], axis=1)

    def innovations(sigma: float) -> Floats:
        keeps = np.exp(-RATE * np.diff(sites, axis=1))[:, :, None]
        steps = (values[:, 1:] - keeps * values[:, :-1]) / np.sqrt(1.0 - keeps**2) / sigma
        # One of each that is followed by the next, and another component.
        rows = np.concatenate([steps[:, :-1], steps[:, 1:]], axis=2)[:, ::2]
        return np.asarray(rows.reshape(-1, 4))

    assert not deviates(innovations(SIGMA))
    assert deviates(innovations(1.1 * SIGMA))
    assert len(np.unique(np.asarray(path.values[:, :size]))) > 0.99 * values.size


def innovations_of(state: FunctionalQState, sigma: float) -> Floats:
    """Of the whole path of a run, (replicas, n * K), with fresh normals in place of repeats."""
    rng = np.random.default_rng(7)
    points, values = drawn_so_far(state.path)
    size = points.shape[1]
    assert size == 45
    equal = points[:, :, None] == points[:, None]
    first = np.argmax(equal, axis=2)
    repeats = first < np.arange(size)
    # Both ends of the interval are met more than once, in some replicas.
    assert np.mean(repeats.any(axis=1)) > 0.1
    kept = np.take_along_axis(values, first[:, :, None], axis=1)
    np.testing.assert_array_equal(values, kept)
    # A repeat is put far away from everything.
    points = np.where(repeats, 1e3 * np.arange(1, size + 1), points)
    values = np.where(repeats[:, :, None], sigma * rng.normal(size=values.shape), values)
    return whitened(points, values, sigma, 1.0).reshape(len(points), -1)


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize("resets", [1, 4, 9, 36])
def test_the_path_of_a_run_has_the_exact_law(resets: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Actions, and with them states, depend on the noise: innovations are normal all the same.

    Resets come every 9 samples, in the midst of episodes of 4; or never, or with each of them.
    """
    monkeypatch.setattr(paper, "_REPLICAS", 3000)
    config = small_code(samples=36, batch=4, replay=8, target=8, resets=resets, sigma=0.5)
    program = FunctionalQProgram(config, Interval(step_limit=4))
    state = program.init(jax.random.split(jax.random.key(8), 3000))
    state, _ = program.advance(state, program.form.episodes)
    assert not deviates(innovations_of(state, 0.5))
    assert deviates(innovations_of(state, 0.55))


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
def test_what_samples_are_to_meet_has_the_noise_of_both_paths() -> None:
    """After two resets and a copy, in a run that stopped in between."""
    config = small_code(sigma=0.4)
    program = FunctionalQProgram(config, SHORT)
    state, _ = program.advance(program.init(KEYS), 5)
    form = program.form
    points, noise = drawn_so_far(state.path)
    assert points.shape[1] == 55
    with jax.enable_x64(False):
        target = np.asarray(forward(form, state.target, jnp.asarray(points, jnp.float32))[-1])
    rows = np.asarray(state.rows)
    for number in range(50):
        slot = number + number // 10
        x, action, aim, goes_on, reward = rows[:, number].T
        np.testing.assert_array_equal(x, points[:, slot])
        np.testing.assert_allclose(goes_on, 0.0 if number % 10 == 9 else config.gamma)
        np.testing.assert_allclose(reward, 0.5 - np.abs(points[:, slot + 1] - 0.5), atol=1e-6)
        replica = np.arange(3)
        ahead = (target[:, :, slot + 1] + noise[:, slot + 1, 2:]).max(axis=1)
        expected = reward + goes_on * ahead - noise[replica, slot, action.astype(int)]
        np.testing.assert_allclose(aim, expected, rtol=1e-4, atol=1e-5)
    assert np.std(noise) > 0.1


# --- the wrong edge -------------------------------------------------------------------------------


def covariance(points: Floats, order: tuple[int, ...], rate: float) -> Floats:
    """Of values with the wrong edge, asked for in that order, at sigma 1.

    Each value is a mixture of earlier ones and fresh noise: values = mix @ noise.
    """
    size = len(points)
    mix = np.zeros((size, size))
    done: list[int] = []
    for number, k in enumerate(order):
        left = [j for j in done if points[j] < points[k]]
        right = [j for j in done if points[j] > points[k]]
        near_left = max(left, key=lambda j: points[j], default=None)
        near_right = min(right, key=lambda j: points[j], default=None)
        u = math.inf if near_left is None else rate * (points[k] - points[near_left])
        v = math.inf if near_right is None else rate * (points[near_right] - points[k])
        whole = -math.expm1(-2.0 * (u + v))
        if near_left is not None:
            first = min(done, key=lambda j: points[j])
            source = first if near_right is None else near_left
            mix[k] += math.exp(-u) * -math.expm1(-2.0 * v) / whole * mix[source]
        if near_right is not None:
            mix[k] += math.exp(-v) * -math.expm1(-2.0 * u) / whole * mix[near_right]
        mix[k, number] = math.sqrt(-math.expm1(-2.0 * u) * -math.expm1(-2.0 * v) / whole)
        done.append(k)
    return mix @ mix.T


def test_the_wrong_edge_forgets_the_last_point() -> None:
    """0.6, 0.8, 1: the last has the correlation of the first two with the second, not its own."""
    found = {}
    with jax.enable_x64(False):
        one = jnp.ones((REPLICAS,), jnp.float32)
        for edge in ("correct", "public-code"):
            insert = jax.jit(partial(paths.insert, edge=edge))
            path = paths.init(REPLICAS, 3, 3, 1)
            for number, x in enumerate((0.6, 0.8, 1.0)):
                noise = jax.random.normal(jax.random.key(number), (REPLICAS, 1), jnp.float32)
                path, _ = insert(path, x * one, noise, one, one)
            values = np.asarray(path.late_values)[:, :, 0]
            found[edge] = float(np.corrcoef(values[:, 1], values[:, 2])[0, 1])
    wide = stats.norm.isf(FALSE_ALARM / 2.0) / math.sqrt(REPLICAS)
    assert found["correct"] == pytest.approx(math.exp(-0.2), abs=wide)
    assert found["public-code"] == pytest.approx(math.exp(-0.4), abs=wide)
    assert found["correct"] - found["public-code"] > 2.0 * wide


@pytest.mark.slow
def test_the_wrong_edge_in_random_order() -> None:
    """Second moments are those of all orders, averaged; the correct ones are found out."""
    points = np.array([0.1, 0.4, 0.8, 1.0])
    size, rate = len(points), 2.0
    orders = list(permutations(range(size)))
    expected = np.mean([covariance(points, order, rate) for order in orders], axis=0)
    correct = np.exp(-rate * np.abs(points[:, None] - points))
    with jax.enable_x64(False):
        one = jnp.ones((REPLICAS,), jnp.float32)
        path = paths.init(REPLICAS, 5, 5, 4)
        # The last point is met twice.
        late = jnp.asarray([*points, 1.0], jnp.float32)
        path = path._replace(
            late_points=jnp.broadcast_to(late, (REPLICAS, 5)),
            waits=jnp.full((REPLICAS,), 5, jnp.int32),
        )
        keys = jax.random.split(jax.random.key(9), REPLICAS)
        redraw = jax.jit(partial(paths.redraw, actions=2, edge="public-code"))
        path = redraw(jax.jit(paths.merge)(path), keys, one, rate * one)
    values = np.asarray(path.values, np.float64)[:, :5]
    np.testing.assert_array_equal(values[:, 4], values[:, 3])
    products = values[:, :4, None] * values[:, None, :4]
    # The two actions of a network share the order, and components are else independent.
    means, errors = products.mean(axis=0), products.std(axis=0) / math.sqrt(REPLICAS)
    limit = stats.norm.isf(FALSE_ALARM / means.size / 2.0)
    assert np.all(np.abs(means - expected[:, :, None]) < limit * errors)
    assert np.any(np.abs(means - correct[:, :, None]) > 2.0 * limit * errors)


# --- learning -------------------------------------------------------------------------------------


def best_return(env: Interval, cells: int = 400) -> tuple[float, Floats, Floats]:
    """The optimum by value iteration on a grid, the grid, and each action's moves between cells."""
    grid = np.linspace(0.0, 1.0, cells + 1)
    sizes = (np.arange(200) + 0.5) / 200 * 0.25
    ahead = [np.clip(grid[:, None] + sign * sizes, 0.0, 1.0) for sign in (1.0, -1.0)]
    values = np.zeros(cells + 1)
    assert env.step_limit is not None
    for _ in range(env.step_limit):
        q = [np.mean(0.5 - np.abs(a - 0.5) + np.interp(a, grid, values), axis=1) for a in ahead]
        values = np.maximum(*q)
    return float(values.mean()), grid, np.stack(ahead)


def return_of(policy: NDArray[np.int64], grid: Floats, ahead: Floats, steps: int) -> float:
    values = np.zeros(len(grid))
    chosen = np.where((policy == 0)[:, None], ahead[0], ahead[1])
    for _ in range(steps):
        values = np.mean(0.5 - np.abs(chosen - 0.5) + np.interp(chosen, grid, values), axis=1)
    return float(values.mean())


@pytest.mark.slow
def test_the_public_code_learns_without_noise() -> None:
    env = Interval()
    best, grid, ahead = best_return(env)
    program = FunctionalQProgram(FunctionalQ.public_code(sigma=0.0), env)
    state, seen = program.advance(program.init(jax.random.split(jax.random.key(0), 16)), 100)
    policies = program.values(state, grid).argmax(axis=2)
    found = [return_of(policy, grid, ahead, 50) for policy in policies]
    assert np.mean(found) > 0.98 * best
    # While learning, one action in twenty is any.
    assert np.mean(np.asarray(seen["return"])[:, -10:]) > 0.95 * best
    random = return_of(np.zeros(len(grid), np.int64), grid, ahead, 50)
    assert random < 0.5 * best


@pytest.mark.slow
def test_noise_does_harm() -> None:
    keys = jnp.concatenate([jax.random.split(jax.random.key(1), 16)] * 2)
    sigmas = jnp.repeat(jnp.asarray([0.0, 1.0]), 16)
    found = train(keys, FunctionalQ.public_code(), Interval(), {"sigma": sigmas})
    quiet, noisy = found.returns[:, -10:].mean(axis=1).reshape(2, 16)
    assert stats.ttest_ind(quiet, noisy).pvalue < FALSE_ALARM
    assert quiet.mean() > noisy.mean() + 3.0


def test_states_of_the_first_and_the_last_bound_are_ends() -> None:
    """Observations are scaled by public bounds, and cut off there."""
    form = replace(FunctionalQProgram(FunctionalQ.printed(), Interval()).form, low=-1.0, high=3.0)
    with jax.enable_x64(False):
        scaled = form.scale_observations(jnp.asarray([[-2.0], [-1.0], [1.0], [5.0]]))
    np.testing.assert_allclose(scaled, [0.0, 0.0, 0.5, 1.0])


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
def test_nothing_is_learned_beyond_the_last_sample() -> None:
    """55 samples are six episodes of 10, and six batches of 8: the seventh would end at 56."""
    program = FunctionalQProgram(small_printed(samples=55, batch=8), SHORT)
    assert program.form.episodes == 6
    before, _ = program.advance(program.init(KEYS), 5)
    after, _ = program.advance(before, 1)
    np.testing.assert_array_equal(before.weights, after.weights)


def test_values_are_those_of_each_replica() -> None:
    program = FunctionalQProgram(small_code(), SHORT)
    state: FunctionalQState = program.init(KEYS)
    found = program.values(state, [0.0, 0.3, 1.0])
    plain = plain_run(program, np.asarray(state.weights[1], np.float64), Silence)
    assert found.shape == (3, 3, 2)
    for k, x in enumerate((0.0, 0.3, 1.0)):
        np.testing.assert_allclose(found[1, k], plain.q(plain.weights, x), rtol=1e-4, atol=1e-6)
    assert all(not np.array_equal(a, b) for a, b in pairwise(found))
