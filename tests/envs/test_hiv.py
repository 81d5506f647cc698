"""The HIV patient: against SciPy's LSODA, its equilibria, and the traps of other versions."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp
from scipy.optimize import root

from privrl.envs import HIV, HIVParams
from privrl.envs.hiv import RATES, STARTS, _clip_to_bounds, derivative
from privrl.privacy import InputError

# Compiling takes longer than running.
pytestmark = pytest.mark.usefixtures("compiled_quickly")

Array = NDArray[np.float64]
KEY = jax.random.key(2)
EFFICACIES = ((0.0, 0.0), (0.7, 0.0), (0.0, 0.3), (0.7, 0.3))


def equations(t: float, y: Any, rti: float, pi: float) -> list[float]:
    """Adams et al. (2004), written down again from the paper rather than shared with ours."""
    T1, T2, T1s, T2s, V, E = y
    infection1 = (1 - rti) * 8e-7 * V * T1
    infection2 = (1 - 0.34 * rti) * 1e-4 * V * T2
    infected = T1s + T2s
    return [
        10000 - 0.01 * T1 - infection1,
        31.98 - 0.01 * T2 - infection2,
        infection1 - 0.7 * T1s - 1e-5 * E * T1s,
        infection2 - 0.7 * T2s - 1e-5 * E * T2s,
        (1 - pi) * 100 * 0.7 * infected - 13 * V - infection1 - infection2,
        1
        + 0.3 * infected / (infected + 100) * E
        - 0.25 * infected / (infected + 500) * E
        - 0.1 * E,
    ]


def lsoda(actions: Array, tolerance: float = 1e-9) -> tuple[float, Array]:
    """The return of a sequence of decisions, and the states after each."""
    y = np.array(STARTS["unhealthy"])
    total, states = 0.0, []
    for action in actions:
        rti, pi = EFFICACIES[int(action)]
        solved = solve_ivp(
            *(equations, (0.0, 5.0), y),
            method="LSODA",
            args=(rti, pi),
            t_eval=[5.0],
            rtol=tolerance,
            atol=tolerance,
        )
        y = solved.y[:, -1]
        total += 1000 * y[5] - 0.1 * y[4] - 20000 * rti**2 - 2000 * pi**2
        states.append(y)
    return total, np.array(states)


@partial(jax.jit, static_argnums=0)
def decide(
    env: HIV, substeps: int, keys: jax.Array, state: Any, action: jax.Array, params: HIVParams
) -> Any:
    """A decision for each of many patients.

    How many substeps it takes is a number that the program is given, and no constant of it: so all
    tests of one precision share one program, which takes longer to compile than to run.
    """
    counted = replace(env)
    object.__setattr__(counted, "substeps", substeps)
    return jax.vmap(counted.step)(keys, state, action, params)


def alike(count: int, initial: Any) -> HIVParams:
    """So many people with the default rates."""
    start = np.broadcast_to(STARTS[initial], (count, 6)).astype(jnp.result_type(float))
    rates = HIVParams()._replace(start=0.0)
    same: HIVParams = jax.tree.map(lambda rate: np.full(count, rate, start.dtype), rates)
    return same._replace(start=start)


def follow(
    actions: NDArray[Any],
    substeps: int = 15,
    bits: bool = False,
    params: HIVParams | None = None,
    initial: Any = "unhealthy",
) -> tuple[Array, Array]:
    """Rewards and states of patients who are treated so; `actions` is (patients, decisions)."""
    count = 100  # whatever is asked for, lest there be two programs
    env = HIV(initial=initial)
    with jax.enable_x64(bits):
        people = alike(count, initial) if params is None else params
        keys = jax.random.split(KEY, count)
        state, _ = jax.jit(jax.vmap(env.reset))(keys, people)
        rows = []
        for action in np.resize(actions, (count, actions.shape[1])).T:
            after = decide(HIV(), substeps, keys, state, jnp.asarray(action), people)
            state = after.state
            rows.append((after.reward, state.inner))
        rewards, states = (np.stack(part, axis=1) for part in zip(*rows, strict=True))
    return rewards[: len(actions)].astype(np.float64), states[: len(actions)].astype(np.float64)


def follow_in_hundreds(actions: NDArray[Any], substeps: int, params: HIVParams) -> Array:
    """The states of patients who differ."""
    found = []
    for start in range(0, len(actions), 100):
        some = slice(start, start + 100)
        people = jax.tree.map(lambda x, some=some: x[some], params)
        found.append(follow(actions[some], substeps, params=people)[1])
    return np.concatenate(found)


@pytest.fixture(scope="module")
def sequences() -> Array:
    """The four fixed policies, and a patient whose treatment changes all the time."""
    fixed = [np.full(200, action) for action in range(4)]
    wild = np.random.default_rng(0).integers(0, 4, 200)
    return np.array([*fixed, wild])


@pytest.fixture(scope="module")
def reference(sequences: Array) -> list[tuple[float, Array]]:
    return [lsoda(row) for row in sequences]


@pytest.mark.slow
def test_the_method_converges_at_its_order() -> None:
    """Halving the step divides the error by about sixteen: order 4, on a smooth stretch."""
    smooth = np.array([[3] * 6])
    exact = lsoda(smooth[0], 1e-12)[1][-1]
    errors = []
    for substeps in (12, 24):
        _, states = follow(smooth, substeps, bits=True)
        errors.append(np.max(np.abs(np.log(states[0, -1] / exact))))
    assert 10.0 < errors[0] / errors[1] < 26.0


@pytest.mark.slow
def test_the_reference_is_as_published(reference: list[tuple[float, Array]]) -> None:
    """With the task: none 3.432e6, both 7.022e6."""
    assert reference[0][0] == pytest.approx(3.432e6, rel=2e-4)
    assert reference[3][0] == pytest.approx(7.022e6, rel=2e-4)


@pytest.mark.parametrize("bits", [True, False])
def test_returns_are_those_of_lsoda(
    bits: bool, sequences: Array, reference: list[tuple[float, Array]]
) -> None:
    wanted = np.array([total for total, _ in reference])
    rewards, states = follow(sequences, bits=bits)
    returns = rewards.sum(axis=1)
    np.testing.assert_allclose(returns, wanted, rtol=1e-4)
    if bits:
        np.testing.assert_allclose(returns[:4], wanted[:4], rtol=1e-5)
        trajectory = np.array([rows for _, rows in reference])
        np.testing.assert_allclose(np.log10(states), np.log10(trajectory), atol=0.01)


@pytest.mark.slow
def test_random_treatment_is_as_good_as_stated() -> None:
    """A hundred patients against steps an eighth as long: half to 0.003 %, all to 0.03 %."""
    wild = np.random.default_rng(1).integers(0, 4, (100, 200))
    found, finest = (follow(wild, n, bits=True)[0].sum(axis=1) for n in (15, 120))
    errors = np.abs(found / finest - 1.0)
    assert np.median(errors) < 3e-5
    assert np.max(errors) < 3e-4


def test_nobody_goes_astray() -> None:
    """Patients for whom the step is far too coarse: wrong perhaps, but within what is possible."""
    params = HIV().patients(KEY, 300, 0.5)._replace(start_spread=jnp.ones(300))
    states = follow_in_hundreds(np.random.default_rng(3).integers(0, 4, (300, 100)), 10, params)
    assert np.all(states >= 0.0)
    assert np.all(states < 1e10)


def test_bounds_cut_off_only_the_impossible() -> None:
    """The exact solution never touches them, so that cutting off brings a step nearer to it."""
    params = HIVParams()
    y = np.array(STARTS["unhealthy"])
    for action, (rti, pi) in enumerate(EFFICACIES):
        for _ in range(3):
            after = lsoda_from(y, rti, pi, 0.4)
            kept = _clip_to_bounds(tuple(y), tuple(after), 0.4, params)
            np.testing.assert_array_equal(np.array(kept), np.float32(after), str(action))
            y = after
    far = tuple(y * 1e6)
    cut = np.array(_clip_to_bounds(tuple(y), far, 0.4, params))
    assert np.all(cut[:5] < np.array(far)[:5] / 10)
    for nothing in (-y, y * np.nan):
        assert np.all(np.array(_clip_to_bounds(tuple(y), tuple(nothing), 0.4, params)) == 0.0)


def lsoda_from(y: Array, rti: float, pi: float, days: float) -> Array:
    solved = solve_ivp(
        equations, (0.0, days), y, method="LSODA", args=(rti, pi), rtol=1e-9, atol=1e-9
    )
    end: Array = solved.y[:, -1]
    return end


def test_equilibria_stand_still() -> None:
    """Near each printed state, of whole cells, there is a point where nothing moves."""
    for name in ("unhealthy", "healthy"):
        start = np.array(STARTS[name])

        def slopes(logs: Array, start: Array = start) -> Array:
            y = start * np.exp(logs)
            return np.array(derivative(tuple(y), 0.0, 0.0, HIVParams())) / y

        found = root(slopes, np.zeros(6), tol=1e-12)
        assert found.success
        assert np.max(np.abs(slopes(found.x))) < 1e-8
        # Half a cell of 5 is ten per cent.
        assert np.all(np.abs(np.expm1(found.x)) < 0.5 / start + 0.01)


def test_the_uninfected_stay_so() -> None:
    _, (states,) = follow(np.zeros((1, 100), np.int32), initial="uninfected")
    assert np.all(states[:, 2:5] == 0.0)
    np.testing.assert_allclose(states[-1, :2], [1e6, 3198.0], rtol=1e-3)


def test_actions_rewards_and_observations() -> None:
    env = HIV()
    state, first = env.reset(KEY)
    np.testing.assert_allclose(first, np.log10(STARTS["unhealthy"]), rtol=1e-5)
    with jax.enable_x64(True):
        state, _ = env.reset(KEY)
        step = jax.jit(env.step)
        for action, (rti, pi) in enumerate(EFFICACIES):
            after = step(KEY, state, action)
            solved = lsoda(np.array([action]))[1][0]
            np.testing.assert_allclose(after.state.inner, solved, rtol=2e-3)
            # The reward is that of the state after the step, and the second drug costs 2000.
            v, e = np.asarray(after.state.inner)[4:]
            paid = 1000 * e - 0.1 * v - 20000 * rti**2 - 2000 * pi**2
            assert float(after.reward) == pytest.approx(paid, rel=1e-12)


def test_observations_are_cut_off() -> None:
    env = HIV(initial="uninfected")
    _, first = env.reset(KEY)
    assert first[2:5].tolist() == [-5.0, -5.0, -5.0]


def test_patients_differ() -> None:
    env = HIV()
    people = env.patients(KEY, 500, 0.2)
    assert people.k1.shape == (500,)
    assert people.start.shape == (500, 6)
    for name in RATES:
        logs = np.log(np.asarray(getattr(people, name)) / getattr(HIVParams(), name))
        # Mean and spread of 500 draws, at five standard errors.
        assert abs(logs.mean()) < 5 * 0.2 / np.sqrt(500)
        assert abs(logs.std() - 0.2) < 5 * 0.2 / np.sqrt(1000)
    for name in ("f", "cost_pi", "efficacy_pi", "pay_immunity"):
        assert np.all(np.asarray(getattr(people, name)) == np.float32(getattr(HIVParams(), name)))
    virus = follow_in_hundreds(np.full((500, 1), 3), 15, people)[:, 0, 4]
    assert len(np.unique(virus)) == 500
    assert np.all(np.isfinite(virus))
    same = env.patients(KEY, 2, 0.0)
    assert np.all(np.asarray(same.k1) == np.float32(8e-7))


def test_given_params_do_not_change_the_start() -> None:
    """`initial` holds whatever else is given, unless a start is."""
    healthy = np.log10(STARTS["healthy"])
    for params in (None, HIVParams(cost_pi=20000.0)):
        seen = HIV(initial="healthy").reset(KEY, params)[1]
        np.testing.assert_allclose(seen, healthy, rtol=1e-5)
    people = HIV(initial="healthy").patients(KEY, 2, 0.0, HIVParams(cost_pi=20000.0))
    np.testing.assert_allclose(np.log10(people.start), [healthy] * 2, rtol=1e-5)
    ones = HIV(initial="healthy").reset(KEY, HIVParams(start=np.full(6, 10.0)))[1]
    np.testing.assert_allclose(ones, 1.0, rtol=1e-6)


def test_starts_may_vary() -> None:
    env = HIV()
    params = env.default_params._replace(start_spread=0.5)
    keys = jax.random.split(KEY, 4000)
    drawn = np.asarray(jax.vmap(lambda key: env.reset(key, params)[0].inner)(keys))
    logs = np.log(drawn / np.array(STARTS["unhealthy"]))
    assert abs(logs.std() - 0.5) < 5 * 0.5 / np.sqrt(2 * 24_000)
    assert abs(logs.mean()) < 5 * 0.5 / np.sqrt(24_000)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InputError, match="unhealthy, healthy, uninfected"):
        HIV(initial="dead")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="substeps must be at least 10"):
        HIV(substeps=5)
    with pytest.raises(InputError, match="spread"):
        HIV().patients(KEY, 3, float("nan"))
    with pytest.raises(InputError, match="start must be T1, T2"):
        HIV().reset(KEY, HIVParams(start=(1.0, 2.0)))


def test_the_picture_shows_the_state() -> None:
    sick, well = (HIV(initial=name) for name in ("unhealthy", "healthy"))
    pictures = [env.render(env.reset(KEY)[0]) for env in (sick, well)]
    assert pictures[0].shape == (300, 400, 3)
    assert not np.array_equal(pictures[0], pictures[1])
