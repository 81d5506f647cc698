"""The fast version against the algorithm as printed, by hand, and lazy noise against dense."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privrl.control.program import Program, load_state, save_state
from privrl.envs import MDP100, TabularMDP, Taxi
from privrl.papers.seo2020 import ActorCritic, ActorCriticProgram, fast, parts, train
from privrl.papers.seo2020.algorithm import Run, run
from privrl.papers.seo2020.dense import DenseState, Transition, dense_episode, dense_update
from privrl.papers.seo2020.parts import LearnerState
from privrl.papers.seo2020.similarity import trace_similarity
from tests.papers.seo2020.tables import small

Floats = NDArray[np.float64]

KEYS = jax.random.split(jax.random.key(3), 3)
FALSE_ALARM = 1e-6
QUIET = ActorCritic(
    variant="both", sigma=0.0, actor_step=0.1, critic_step=0.05, correction_step=0.02, max_steps=40
)


pytestmark = pytest.mark.usefixtures("compiled_quickly")


@lru_cache
def drawn(blocks: int, episodes: int) -> tuple[Floats, Floats]:
    """All uniforms of `KEYS`: (episodes, replicas) of starts and (episodes, steps, 2, replicas)."""
    program = ActorCriticProgram(QUIET, small())
    state = program.init(KEYS)
    found = []
    with jax.enable_x64(True):
        compiled = jax.jit(lambda state: parts.uniforms(blocks, state))
        for _ in range(episodes):
            found.append([np.asarray(one) for one in compiled(state)])
            state = state._replace(episode=state.episode + 1)
    return np.stack([first for first, _ in found]), np.stack([rest for _, rest in found])


def same_as_numpy(config: ActorCritic, env: TabularMDP, episodes: int = 3) -> list[Run]:
    """Whether it is; nothing is pending without noise, so there is nothing to flush."""
    program = ActorCriticProgram(config, env)
    first, uniforms = drawn(program.form.blocks, episodes)
    state, seen = program.advance(program.init(KEYS), episodes)
    actor, critic, correction = program.weights(state)
    plain = []
    for replica in range(len(KEYS)):
        rng = np.random.default_rng(0)
        expected = run(config, env, first[:, replica], uniforms[:, :, :, replica], rng)
        plain.append(expected)
        np.testing.assert_array_equal(seen["length"][replica], expected.lengths)
        np.testing.assert_allclose(seen["return"][replica], expected.returns, rtol=1e-9)
        for ours, theirs in ((actor, expected.u), (critic, expected.v), (correction, expected.w)):
            np.testing.assert_allclose(ours[replica], theirs, rtol=1e-9, atol=1e-9)
    return plain


# --- without noise --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "changes"),
    [
        (MDP100(), {"variant": "none", "lambda_": 0.8}),
        (Taxi(), {"variant": "actor", "lambda_": 0.0, "acting": "softmax"}),
        (MDP100(), {"variant": "critic", "lambda_": 0.8, "correction": "printed"}),
    ],
)
def test_without_noise_it_is_the_algorithm_as_printed(
    env: TabularMDP, changes: dict[str, Any]
) -> None:
    plain = same_as_numpy(replace(QUIET, **changes), env)
    assert max(np.max(np.abs(one.u)) for one in plain) > 1e-3


@pytest.mark.slow
def test_saturated_preferences_do_no_harm() -> None:
    """Ratios and gradients become exactly 0, and with them whole traces."""
    config = replace(QUIET, actor_step=4000.0, exploration=0.5, lambda_=0.8, max_steps=None)
    plain = same_as_numpy(config, small(), 4)
    policy = [np.exp(one.u - one.u.max(axis=1, keepdims=True)) for one in plain]
    assert sum(np.sum(one[:4] == 0.0) for one in policy) >= 5


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize("lambda_", [0.0, 0.8])
@pytest.mark.parametrize("variant", ["none", "actor", "critic", "both"])
@pytest.mark.parametrize(
    ("env", "acting", "correction", "dense"),
    [
        (MDP100(), "epsilon-greedy", "next", False),
        (MDP100(), "softmax", "printed", False),
        (Taxi(), "epsilon-greedy", "printed", False),
        (Taxi(), "softmax", "next", False),
        (MDP100(), "epsilon-greedy", "printed", True),
        (Taxi(), "softmax", "next", True),
    ],
)
def test_every_form_is_the_algorithm_as_printed(
    env: TabularMDP, acting: Any, correction: Any, dense: bool, variant: Any, lambda_: float
) -> None:
    changes: dict[str, Any] = {
        "variant": variant,
        "lambda_": lambda_,
        "acting": acting,
        "correction": correction,
        "dense": dense,
    }
    same_as_numpy(replace(QUIET, **changes), env)


@pytest.mark.usefixtures("always_compiled_quickly")
@pytest.mark.slow
@pytest.mark.parametrize("max_steps", [1, 17])
@pytest.mark.parametrize("actions", [1, 3])
@pytest.mark.parametrize("states", [1, 7])
def test_small_tables_and_short_episodes(states: int, actions: int, max_steps: int) -> None:
    """Also a bound that is a constant; replicas with lambda 0 and above it side by side."""
    rng = np.random.default_rng(states + actions)
    shape = (states, actions, 2)
    env = TabularMDP.from_tables(
        rng.integers(states, size=shape),
        rng.dirichlet(np.ones(2), shape[:2]),
        rng.uniform(-1.0, 1.0, shape),
        rng.uniform(size=shape) < 0.1,
    )
    lambdas = np.array([0.0, 0.99, 0.5])
    config = replace(QUIET, clip=0.3, max_steps=max_steps)
    program = ActorCriticProgram(config, env)
    with jax.enable_x64(True):
        swept = {"lambda_": jnp.asarray(lambdas)}
    state, _ = program.advance(program.init(KEYS, swept), 4)
    first, uniforms = drawn(program.form.blocks, 4)
    for replica, lambda_ in enumerate(lambdas):
        one = replace(config, lambda_=float(lambda_))
        expected = run(
            one, env, first[:, replica], uniforms[..., replica], np.random.default_rng(0)
        )
        for ours, theirs in zip(
            program.weights(state), (expected.u, expected.v, expected.w), strict=True
        ):
            np.testing.assert_allclose(ours[replica], theirs, rtol=1e-9, atol=1e-9)


# --- by hand --------------------------------------------------------------------------------------


def by_hand(variant: Any) -> tuple[DenseState, dict[str, Any]]:
    """Three steps of three states and two actions, in plain arithmetic, with fixed noise."""
    gamma, lam, alpha_u, alpha_v, alpha_w, sigma = 0.9, 0.5, 0.2, 0.1, 0.3, 0.4
    actor_normals = np.arange(18.0).reshape(3, 3, 2) / 10.0 - 0.8
    critic_normals = np.array([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5], [-2.0, 0.3, 0.1]])
    steps = [(0, 1, 1.0, 1.0, 1, False), (1, 0, 0.5, -2.0, 1, False), (1, 1, 2.0, 3.0, 2, True)]
    u, v, w = np.zeros((3, 2)), np.zeros(3), np.zeros(3)
    eu, ev = np.zeros((3, 2)), np.zeros(3)
    gradients = []
    for (s, a, rho, r, after, ended), nu, nv in zip(
        steps, actor_normals, critic_normals, strict=True
    ):
        prob = math.exp(u[s, a]) / (math.exp(u[s, 0]) + math.exp(u[s, 1]))
        slope = np.array([-(1.0 - prob), -(1.0 - prob)])
        slope[a] = 1.0 - prob
        gradients.append(slope)
        on = 0.0 if ended else gamma
        delta = r + on * v[after] - v[s]
        ev = rho * (gamma * lam * ev)
        ev[s] += rho
        z = delta * ev
        z[after] -= on * (1.0 - lam) * (w @ ev)
        if variant in ("critic", "both"):
            c = np.median(np.abs(z[z != 0.0]))
            z = z / np.linalg.norm(z) * c + sigma * c * nv
        g = np.zeros((3, 2))
        g[s] = slope
        if variant in ("actor", "both"):
            c = np.median(np.abs(slope[slope != 0.0]))
            g = g / np.linalg.norm(g) * c + sigma * c * nu
        w_s = w[s]
        w = w + alpha_w * delta * ev
        w[s] -= alpha_w * w_s
        v = v + alpha_v * z
        eu = rho * (g + gamma * lam * eu)
        u = u + alpha_u * delta * eu
    given = {
        "numbers": {
            "gamma": gamma,
            "lambda_": lam,
            "actor_step": alpha_u,
            "critic_step": alpha_v,
            "correction_step": alpha_w,
            "sigma": sigma,
        },
        "steps": steps,
        "gradients": gradients,
        "actor": actor_normals,
        "critic": critic_normals,
    }
    return DenseState(*(jnp.asarray(one) for one in (u, v, w, eu, ev))), given


updated = jax.jit(dense_update, static_argnums=0)


@pytest.mark.parametrize("variant", ["none", "actor", "critic", "both"])
def test_three_steps_by_hand(variant: Any) -> None:
    with jax.enable_x64(True):
        expected, given = by_hand(variant)
        form = ActorCriticProgram(replace(QUIET, variant=variant), small()).form
        numbers = {name: jnp.full((1,), value) for name, value in given["numbers"].items()}
        now = DenseState(
            *(jnp.zeros(shape) for shape in ((2, 3, 1), (3, 1), (3, 1), (2, 3, 1), (3, 1)))
        )
        for number, (s, _, rho, r, after, ended) in enumerate(given["steps"]):
            now = updated(
                form,
                numbers,
                now,
                Transition(
                    jnp.asarray([s]),
                    jnp.asarray(given["gradients"][number])[:, None],
                    jnp.asarray([rho]),
                    jnp.asarray([r]),
                    jnp.asarray([after]),
                    jnp.asarray([ended]),
                ),
                jnp.asarray(given["actor"][number].T)[:, :, None] if form.noisy_actor else None,
                jnp.asarray(given["critic"][number])[:, None] if form.noisy_critic else None,
            )
        for ours, theirs in zip(now, expected, strict=True):
            got = np.asarray(ours)[..., 0]
            np.testing.assert_allclose(got.T if got.ndim == 2 else got, theirs, rtol=1e-12)


def test_the_first_step_by_hand() -> None:
    """From all zeros: delta = 1, the gradient is (-1/2, 1/2), its median 1/2, its norm 1/sqrt 2."""
    _, given = by_hand("actor")
    noise = given["actor"][0]
    moved = 0.2 * (np.array([-1.0, 1.0]) / math.sqrt(2.0) * 0.5 + 0.4 * 0.5 * noise[0])
    with jax.enable_x64(True):
        form = ActorCriticProgram(replace(QUIET, variant="actor"), small()).form
        numbers = {name: jnp.full((1,), value) for name, value in given["numbers"].items()}
        zero = DenseState(
            *(jnp.zeros(shape) for shape in ((2, 3, 1), (3, 1), (3, 1), (2, 3, 1), (3, 1)))
        )
        happened = Transition(
            jnp.asarray([0]),
            jnp.asarray([[-0.5], [0.5]]),
            jnp.ones((1,)),
            jnp.ones((1,)),
            jnp.asarray([1]),
            jnp.asarray([False]),
        )
        now = updated(form, numbers, zero, happened, jnp.asarray(noise.T)[..., None], None)
    np.testing.assert_allclose(np.asarray(now.u)[:, 0, 0], moved, rtol=1e-12)
    np.testing.assert_allclose(np.asarray(now.v)[:, 0], [0.1, 0.0, 0.0])
    np.testing.assert_allclose(np.asarray(now.w)[:, 0], [0.3, 0.0, 0.0])


# --- in law ---------------------------------------------------------------------------------------


@partial(jax.jit, static_argnames=("form", "episodes"))
def with_traces(form: Any, world: Any, state: LearnerState, episodes: int) -> Any:
    """The state after some episodes, the traces of the last one and all returns, per replica."""
    episode = dense_episode if form.dense else fast.lazy_episode

    def body(carry: Any, _: None) -> Any:
        after, (seen, kept) = episode(form, world, carry[0], True)
        return (after, kept), seen["return"]

    replicas, states, _ = state.rows.shape
    none = (jnp.zeros((states, form.actions, replicas)), jnp.zeros((states, replicas)))
    return jax.lax.scan(body, (state, none), None, length=episodes)


def played(
    config: ActorCritic, env: TabularMDP, replicas: int, episodes: int, seed: int, keep: bool
) -> dict[str, Floats]:
    """Everything, replicas first: weights, the last traces if kept, all returns."""
    program = ActorCriticProgram(config, env, sweeps_lambda=keep)
    state = program.init(jax.random.split(jax.random.key(seed), replicas))
    found: dict[str, Floats] = {}
    if keep:
        with jax.enable_x64(True):
            (state, kept), returns = with_traces(program.form, program._world, state, episodes)
        found["actor_trace"] = np.moveaxis(np.asarray(kept[0]), -1, 0)
        found["critic_trace"] = np.asarray(kept[1]).T
        found["returns"] = np.asarray(returns).T
    else:
        state, seen = program.advance(state, episodes)
        found["returns"] = np.asarray(seen["return"])
    state = state if config.dense else program.flush(state)
    found["u"], found["v"], found["w"] = program.weights(state)
    return {name: values.reshape(replicas, -1) for name, values in found.items()}


@lru_cache
def circuit() -> Any:
    """Seven states in one action: a rollout with stays and returns; two are never met."""
    successors = np.array([[1, 1], [2, 2], [2, 3], [4, 4], [1, 0], [0, 0], [0, 0]])[:, None]
    rewards = np.full((7, 1, 2), 0.7)
    uniforms = np.full((7, 1, 2), 0.5)
    start = np.eye(7)[0]
    return TabularMDP.from_tables(successors, uniforms, rewards, None, start, step_limit=21)


def open_loop(lambda_: float, sigma: float, episodes: int, steps: int) -> Floats:
    """The covariance of (e, u) of every entry: rho = 1, delta = 0.7, C = 0.5, alpha = 0.3."""
    p, delta = 0.99 * lambda_, 0.7
    step = np.array([[p, 0.0], [0.3 * delta * p, 1.0]])
    into = sigma * 0.5 * np.array([1.0, 0.3 * delta])
    covariance = np.zeros((2, 2))
    for _ in range(episodes):
        covariance[0] = covariance[:, 0] = 0.0
        for _ in range(steps):
            covariance = step @ covariance @ step.T + np.outer(into, into)
    return covariance


def fits(samples: Floats, covariance: Floats) -> bool:
    """Whether entries (n, entries, 2) have the covariance, each alone and all of them together.

    Second moments of whitened Gaussians: sums of squares are chi-square, and products of two
    independent ones have mean 0 and variance 1 (their mean over n is normal in effect).
    """
    n = len(samples)
    white = samples @ np.linalg.inv(np.linalg.cholesky(covariance)).T
    flat = white.reshape(n, -1)
    squares = np.sum(flat**2, axis=0)
    cross = (flat.T @ flat)[np.triu_indices(flat.shape[1], 1)] / math.sqrt(n)
    level = FALSE_ALARM / (len(squares) + len(cross))
    low, high = stats.chi2.ppf(level / 2.0, n), stats.chi2.isf(level / 2.0, n)
    bound = stats.norm.isf(level / 2.0)
    inside = (squares > low) & (squares < high)
    return bool(np.all(inside) and np.all(np.abs(cross) < bound))


@pytest.mark.slow
@pytest.mark.parametrize("dense", [False, True])
def test_lazy_noise_has_the_law_that_can_be_computed(dense: bool) -> None:
    """One action: no signal, and all scalars known; rows met, met often, and never met."""
    config = ActorCritic(
        variant="actor",
        sigma=0.9,
        clip=0.5,
        actor_step=0.3,
        critic_step=0.0,
        lambda_=0.8,
        dense=dense,
    )
    got = played(config, circuit(), 4000, 2, seed=11, keep=True)
    samples = np.stack([got["actor_trace"], got["u"]], axis=-1)
    assert fits(samples, open_loop(0.8, 0.9, 2, 21))
    assert not fits(samples, open_loop(0.8, 0.9 * 1.1, 2, 21))


def alike(first: Mapping[str, Floats], second: Mapping[str, Floats]) -> bool:
    """Whether two samples of everything agree: means and variances of each number, and of the
    products of neighbouring ones, and the distribution of each."""
    a = np.concatenate([first[name] for name in sorted(first)], axis=1)
    b = np.concatenate([second[name] for name in sorted(second)], axis=1)
    varies = np.ptp(np.concatenate([a, b]), axis=0) > 0.0
    a, b = a[:, varies], b[:, varies]
    # Far tails would spoil the normal law of a mean; squashed, each number is bounded. Nor may
    # they say how wide a number is, or nothing would be left to see where a few runs diverge.
    low, centre, high = np.quantile(a, (0.25, 0.5, 0.75), axis=0)
    width = np.where(high > low, high - low, np.std(a, axis=0))
    a, b = np.tanh((a - centre) / width), np.tanh((b - centre) / width)
    pairs = [(x[:, :-1] * x[:, 1:], x) for x in (a, b)]
    made = [np.concatenate([x, x**2, pair], axis=1) for pair, x in pairs]
    gap = made[0].mean(axis=0) - made[1].mean(axis=0)
    error = np.sqrt(sum(one.var(axis=0) / len(one) for one in made))
    tests = made[0].shape[1] + a.shape[1]
    close = np.abs(gap) < stats.norm.isf(FALSE_ALARM / tests / 2.0) * error
    shapes = [stats.ks_2samp(a[:, i], b[:, i], method="asymp").pvalue for i in range(a.shape[1])]
    return bool(np.all(close | (error == 0.0)) and min(shapes) > FALSE_ALARM / tests)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "lambda_", "keep", "replicas", "episodes"),
    [
        ("both", 0.8, False, 10_000, 2),
        *(
            (variant, lambda_, keep, 20_000, 3)
            for variant in ("actor", "critic", "both")
            for lambda_, keep in ((0.0, False), (0.8, True), (0.99, True))
        ),
        ("both", 0.8, True, 200_000, 3),
    ],
)
def test_lazy_noise_has_the_law_of_dense_noise(
    variant: Any, lambda_: float, keep: bool, replicas: int, episodes: int
) -> None:
    """In a closed loop: weights and returns, and traces where they are kept."""
    config = ActorCritic(
        variant=variant,
        sigma=0.5,
        lambda_=lambda_,
        actor_step=0.4,
        critic_step=0.2,
        correction_step=0.1,
        exploration=0.4,
    )
    size = (small(), replicas, episodes)
    lazy = played(config, *size, seed=1, keep=keep)
    dense = played(replace(config, dense=True), *size, seed=2, keep=keep)
    off = played(replace(config, sigma=0.55, dense=True), *size, seed=2, keep=keep)
    assert alike(lazy, dense)
    assert not alike(lazy, off)


# --- as a program ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [3, 40])
def test_advancing_by_ones_is_advancing_at_once(replicas: int) -> None:
    program = ActorCriticProgram(ActorCritic(variant="both", lambda_=0.8), small())
    assert isinstance(program, Program)
    keys = jax.random.split(jax.random.key(4), replicas)
    begun = program.init(keys, {"sigma": jnp.linspace(0.1, 0.3, replicas)})
    whole, expected = program.advance(begun, 4)
    parted, found = begun, []
    for _ in range(4):
        parted, seen = program.advance(parted, 1)
        found.append(seen)
    for name in ("return", "length"):
        together = np.concatenate([seen[name] for seen in found], axis=1)
        np.testing.assert_array_equal(together, expected[name])
    for one, other in zip(jax.tree.leaves(parted), jax.tree.leaves(whole), strict=True):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


LAMBDAS = [0.0, pytest.param(0.8, marks=pytest.mark.slow)]


@pytest.mark.parametrize("lambda_", LAMBDAS)
def test_a_state_is_saved_and_loaded(lambda_: float, tmp_path: Any) -> None:
    program = ActorCriticProgram(ActorCritic(variant="both", lambda_=lambda_), small())
    state, _ = program.advance(program.init(KEYS, {"sigma": jnp.array([0.1, 0.2, 0.3])}), 1)
    save_state(tmp_path / "state.npz", state, {})
    loaded, _ = load_state(tmp_path / "state.npz", program.init(KEYS))
    np.testing.assert_array_equal(np.asarray(loaded.rows), np.asarray(state.rows))


@pytest.mark.parametrize("lambda_", LAMBDAS)
def test_flushing_draws_pending_noise_once(lambda_: float) -> None:
    program = ActorCriticProgram(ActorCritic(variant="both", lambda_=lambda_), small())
    state, _ = program.advance(program.init(KEYS), 1)
    flushed = program.flush(state)
    actor, critic, _ = program.weights(flushed)
    before, value, _ = program.weights(state)
    never = slice(4, 6)
    assert np.all(before[:, never] == 0.0)
    assert np.all(value[:, never] == 0.0)
    assert np.all(actor[:, never] != 0.0)
    assert np.all(critic[:, never] != 0.0)
    np.testing.assert_array_equal(np.asarray(program.flush(flushed).rows), flushed.rows)
    # An episode later there is new noise, and not the old normals on another scale.
    later, _, _ = program.weights(program.flush(program.advance(flushed, 1)[0]))
    ratios = (later / actor)[:, never].reshape(len(KEYS), -1)
    assert np.all(np.ptp(ratios, axis=1) > 1e-6)


@pytest.mark.slow
def test_a_replica_does_not_see_the_others() -> None:
    config = ActorCritic(variant="both", lambda_=0.8)
    three = train(KEYS, config, small(), 4)
    one = train(KEYS[1:2], config, small(), 4)
    np.testing.assert_allclose(three.actor[1:2], one.actor, rtol=1e-9)
    np.testing.assert_array_equal(three.lengths[1:2], one.lengths)


@pytest.mark.slow
def test_similarity_of_traces() -> None:
    config = ActorCritic(variant="actor", sigma=0.0, clip=1.0, lambda_=0.8, actor_step=0.01)
    found = trace_similarity(KEYS, config, small(), 3)
    assert found.actor.shape == found.critic.shape == (3,)
    # Before anything is learned the two runs are one, and unit gradients are as long as C.
    assert found.critic[0] == pytest.approx(1.0)
    noisy = trace_similarity(KEYS, replace(config, sigma=50.0), small(), 3)
    assert abs(noisy.actor[0]) < found.actor[0]
    assert set(found.summary()) == {
        "actor_mean",
        "actor_variance",
        "critic_mean",
        "critic_variance",
    }
