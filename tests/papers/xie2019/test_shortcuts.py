"""What the targets of xie2019 compute side by side is what each estimator finds by its own `fit`.

`privrl.papers.xie2019.trials` takes the moments of a data set once and runs all estimators on them.
Here each estimator gets the trajectories themselves.
"""

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from privrl.control import LearnedQValues
from privrl.core.types import AnyArray, Floats
from privrl.data import Features, FunctionFeatures, Trajectories
from privrl.evaluation.bellman_error import mspbe
from privrl.evaluation.dplsl import DPLSL
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.lstd import LSTD
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.papers import xie2019
from privrl.papers.xie2019 import algorithm, chain, control, lanes, trials
from privrl.papers.xie2019.steps import STEPS, at_factor
from privrl.privacy import Budget
from privrl.privacy.noise import jax_normal, reproducible
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import weights_of

pytestmark = pytest.mark.usefixtures("compiled_quickly")

SEED, SIZE = 3, 20
SMALL = {
    "is_swept": True,
    "fresh": 2_000,
    "sizes": [1_000],
    "epsilons": [1.0],
    "shrink": 1_000 // SIZE,
}
GIVEN = trials.Chosen(2, True, 0.01, 0.4642, 0.1)
"""Of GPOPE; averaged, which is more than the last iterate."""

NAMES = (
    pytest.param(control.ON),
    pytest.param(control.OFF),
    pytest.param(control.TREATED, marks=pytest.mark.slow),
)


@cache
def task(name: str) -> control.Task:
    """The task, but with action values that nobody learned."""
    draw = np.random.default_rng(0)
    features: Features = control.CAR
    if name == control.TREATED:
        features = control.PATIENT
        weights = 1e5 * draw.standard_normal((features.dimension, 4))
    else:
        # cos(pi v) falls as the car is faster to the right: it is pushed where it goes.
        wave = np.asarray(features(np.array([[-1.2, -0.07], [-1.2, 0.0], [-1.2, 0.07]])))
        (place,) = np.flatnonzero(np.all(np.abs(wave.T - [1.0, 0.0, -1.0]) < 1e-9, axis=1))[:1]
        weights = 0.01 * draw.standard_normal((features.dimension, 3))
        weights[place] += [1.0, 0.0, -1.0]
    values = LearnedQValues(weights, features, np.zeros(1), np.zeros(1, dtype=np.int64), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(control, "learned", lambda name: values)
        return control.task(name)


@cache
def judged(name: str) -> trials.Judged:
    return trials.Judged(task(name), 40, public=40)


@cache
def data_of(name: str) -> Trajectories:
    data = task(name).collect(SIZE, SEED)
    # Otherwise nobody could tell how steps are weighed, nor what follows a last one.
    assert name == control.TREATED or (len(set(data.lengths)) > 5 and np.any(data.terminated))
    return data


@pytest.fixture
def unlearned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "judged", lambda name, fresh: judged(name))


def row_of(name: str) -> dict[str, Any]:
    options = {"chosen": {"1000 at 1": list(GIVEN)}, "whitened": {"1000 at 1": list(GIVEN)}}
    (row,) = trials.on_control(options, {"task": name, **SMALL}, [SEED])
    return row


def drawn(times: int, count: int, d: int) -> tuple[AnyArray, Floats]:
    """The draws and the noise of GPOPE's `fit` with the seed."""
    with jax.enable_x64(True):
        draws, noises = jax.random.split(reproducible(SEED).key())
        at = [jax.random.fold_in(draws, i) for i in range(times)]
        some = [int(jax.random.randint(x, (), 0, count, dtype=jax.numpy.int64)) for x in at]
        noise = [jax_normal(jax.random.fold_in(noises, i), (2 * d,)) for i in range(times)]
        return np.array(some), np.asarray(noise)


def swept(units: lanes.Units, epsilon: float) -> dict[str, Floats]:
    """`trials.sweep` with these."""
    count, d = units.b.shape
    draws, noise = drawn(round(GIVEN.passes * count), count, d)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.random, "default_rng", lambda seed: noise)
        patch.setattr(lanes, "draw", lambda *given: draws)
        return trials.sweep(units, GIVEN, epsilon, SEED)


def gpope(kind: str, m: int, **given: Any) -> GPOPE:
    estimator = xie2019.GPOPE if kind == "lemma1" else GPOPE
    step = GIVEN.step if kind == "lemma1" else GIVEN.certified_step
    return estimator(
        **given, clip=GIVEN.clip, step=step, iterations=round(GIVEN.passes * m), average=0.5
    )


def check_gpope(found: dict[str, Floats], kind: str, fitted: Floats) -> None:
    step = GIVEN.step if kind == "lemma1" else GIVEN.certified_step
    assert STEPS[at_factor(step, 1.0)] == step
    np.testing.assert_allclose(found[kind][at_factor(step, 1.0)], fitted, rtol=1e-9, atol=1e-13)


# --- the chain ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", trials.KINDS)
def test_gpope_of_the_chain_is_its_fit(kind: str) -> None:
    units = trials._chain_units(SIZE, SEED)
    judge = gpope(kind, SIZE, features=chain.FEATURES, budget=chain.BUDGET, gamma=chain.GAMMA)
    with trials._quietly():
        fit = judge.fit(chain.simulate(SIZE, SEED), session=PrivacySession(seed=SEED))
    check_gpope(swept(units, chain.BUDGET.epsilon), kind, weights_of(fit))


def test_rows_of_the_chain_are_fits() -> None:
    (row,) = trials.chain_others({}, {"m": 1_000, "shrink": 10}, [SEED])
    data = chain.simulate(100, SEED)
    weights = np.append(np.full(39, 1.0 / 39.0), 0.0)
    given: dict[str, Any] = {
        "features": chain.FEATURES,
        "reward_range": (0.0, 1.0),
        "budget": Budget(0.1, 1e-5),
        "gamma": 0.99,
    }
    judges: dict[str, Any] = {
        "dp_lsw": xie2019.DPLSW(**given, state_weights=weights),
        "dp_lsl": xie2019.DPLSL(**given, state_weights=weights),
        "dp_lsl_calibrated": DPLSL(**given, state_weights=weights, return_bound=1.0),
        "private_lstd": PrivateLSTD(**given),
        "private_gtd": chain.private_gtd(1_000),
    }
    with trials._quietly():
        for name, judge in judges.items():
            fit = judge.fit(data, session=PrivacySession(seed=SEED))
            assert row[name] == pytest.approx(mspbe(weights_of(fit), chain.exact()), rel=1e-9), name
    plain = LSTD(chain.FEATURES, chain.GAMMA, weighting="trajectories").fit(data)
    assert row["lstd"] == pytest.approx(mspbe(weights_of(plain), chain.exact()), rel=1e-6)
    assert row["zero"] == pytest.approx(mspbe(np.zeros(40), chain.exact()), rel=1e-12)


# --- mountain car and HIV -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", trials.KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_gpope_is_its_fit(name: str, kind: str) -> None:
    here = judged(name)
    judge = gpope(kind, SIZE, **here.task.options(1.0))
    with trials._quietly():
        fit = judge.fit(data_of(name), here.task.target, session=PrivacySession(seed=SEED))
    check_gpope(swept(here.units(data_of(name)), 1.0), kind, weights_of(fit))


@pytest.mark.parametrize("kind", trials.KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_gpope_in_whitened_features_is_its_fit(name: str, kind: str) -> None:
    here = judged(name)
    given = here.task.options(1.0)

    def whitened(states: Any) -> Floats:
        return np.asarray(given["features"](states)) @ here.change.T

    features = FunctionFeatures(whitened, len(here.change), 1e3)
    judge = gpope(kind, SIZE, **{**given, "features": features})
    with trials._quietly():
        fit = judge.fit(data_of(name), here.task.target, session=PrivacySession(seed=SEED))
    check_gpope(swept(here.whiten(here.units(data_of(name))), 1.0), kind, weights_of(fit))


@pytest.mark.usefixtures("unlearned")
@pytest.mark.parametrize("name", NAMES)
def test_rows_are_fits(name: str) -> None:
    here, row, data = judged(name), row_of(name), data_of(name)
    judges: dict[str, Any] = {
        "private_gtd": control.private_gtd(here.task, 1_000, 1.0, here.gram),
        "private_lstd": control.private_lstd(here.task, 1_000, 1.0, here.gram),
    }
    with trials._quietly():
        for kind, judge in judges.items():
            fit = judge.fit(data, here.task.target, session=PrivacySession(seed=SEED))
            wanted = mspbe(weights_of(fit), here.truth)
            assert row[kind] == pytest.approx(wanted, rel=1e-6), kind
    if name == control.ON:
        fit = control.dp_lsw(1.0, "published").fit(cells(data), session=PrivacySession(seed=SEED))
        assert row["dp_lsw"] == pytest.approx(mspbe(weights_of(fit), here.truth), rel=1e-6)
    units = here.units(data)
    plain = here.whiten(units)
    rng = [SEED, SIZE, 1000]
    found = [run_alone(one, rng)[at] for one in (units, plain) for at in (0, 1)]
    for weights, entry in zip(
        (found[0], found[1], found[2] @ here.change),
        ("gpope", "certified_gpope", "gpope_whitened"),
        strict=True,
    ):
        assert row[entry] == pytest.approx(mspbe(weights, here.truth), rel=1e-6), entry
    d = here.task.features.dimension
    assert row["zero"] == pytest.approx(mspbe(np.zeros(d), here.truth), rel=1e-9)


@pytest.mark.usefixtures("unlearned")
def test_few_steps_give_what_all_of_them_give() -> None:
    options, small = {"chosen": {"1000 at 1": list(GIVEN)}}, {"task": control.ON, **SMALL}
    (swept_row,) = trials.on_control(options, small, [SEED])
    (row,) = trials.on_control(options, {**small, "is_swept": False}, [SEED])
    assert set(swept_row) - set(row) == {"gpope_sweep", "certified_gpope_sweep"}
    assert len(trials.few_steps(GIVEN)) == 6
    for name, value in row.items():
        assert value == pytest.approx(swept_row[name], rel=1e-9), name


def run_alone(units: lanes.Dense, seed: list[int]) -> Floats:
    """GPOPE's weights with the noise of each kind, by Algorithm 1: (2, d)."""
    draw, d, times = np.random.default_rng(seed), units.b.shape[1], round(GIVEN.passes * SIZE)
    some, noise = lanes.draw(SIZE, times, 1, draw), draw.standard_normal((times, 2 * d))
    found = []
    for kind, step in zip(trials.KINDS, (GIVEN.step, GIVEN.certified_step), strict=True):
        thetas = algorithm.gpope(
            *(units.A, units.b, units.C, [int(one) for one in some], noise),
            clip=GIVEN.clip,
            step=step,
            sigma=trials.sigma(kind, 1.0, SIZE, times),
        )
        found.append(thetas[-(times // 2) :].mean(axis=0))
    return np.array(found)


def cells(data: Trajectories) -> Trajectories:
    """On a grid of 20 x 20, a step after the other."""
    low, high = np.array(control.CAR.low), np.array(control.CAR.high)
    found = []
    for state in np.asarray(data.states):
        x, v = (min(19, int(20.0 * share)) for share in (state - low) / (high - low))
        found.append(20 * x + v)
    return Trajectories.from_arrays(
        np.array(found),
        np.asarray(data.actions),
        np.asarray(data.rewards),
        lengths=data.lengths,
        terminated=data.terminated,
        truncated=data.truncated,
        num_states=400,
        num_actions=3,
    )


@pytest.mark.parametrize("name", NAMES)
def test_plain_lstd_is_its_fit(name: str) -> None:
    here, data = judged(name), data_of(name)
    found = trials._lstd(here.units(data), np.ones(SIZE))
    judge = LSTD(here.task.features, here.task.gamma, weighting="trajectories")
    wanted = weights_of(judge.fit(data, here.task.target))
    check_solution(here, found, wanted)


@pytest.mark.parametrize("name", NAMES)
def test_weighing_trajectories_by_their_steps_is_wis_lstd_of_lambda_0(name: str) -> None:
    here, data = judged(name), data_of(name)
    found = trials._lstd(here.units(data), np.asarray(data.lengths, dtype=float))
    check_solution(here, found, wis_lstd(here.task, data, 0.0))
    # The per-step algorithm itself: with traces it is another one.
    assert not np.allclose(found, wis_lstd(here.task, data, 0.5), rtol=1e-3)


def check_solution(here: trials.Judged, found: Floats, wanted: Floats) -> None:
    """Weights are hardly determined where few have been; their errors are, and their values."""
    errors = lanes.errors(np.array([found, wanted]), here.truth)
    assert errors[0] == pytest.approx(errors[1], rel=1e-5)
    phi = np.asarray(here.task.features(data_of(here.task.name).states))
    np.testing.assert_allclose(phi @ found, phi @ wanted, rtol=1e-6, atol=1e-6)


def wis_lstd(task: control.Task, data: Trajectories, lam: float) -> Floats:
    """WIS-LSTD(lambda) of Mahmood, van Hasselt and Sutton (2014), a step after the other."""
    d, gamma = task.features.dimension, task.gamma
    A, b = np.zeros((d, d)), np.zeros(d)
    states, actions = np.asarray(data.states), np.asarray(data.actions)
    rewards, final = np.asarray(data.rewards), np.asarray(data.final_states)
    assert data.final_states is not None
    for k in range(data.num_trajectories):
        z, u, V = np.zeros(d), np.zeros(d), np.zeros((d, d))
        first, last = int(data.offsets[k]), int(data.offsets[k + 1]) - 1
        for t in range(first, last + 1):
            here = states[t : t + 1]
            phi = np.asarray(task.features(here))[0]
            after = states[t + 1 : t + 2] if t < last else final[k : k + 1]
            following = np.asarray(task.features(after))[0]
            g = 0.0 if t == last and data.terminated[k] else gamma
            rho = 1.0
            if task.target is not None:
                taken = int(actions[t])
                rho = float(
                    task.target.probabilities(here)[0, taken]
                    / task.behavior.probabilities(here)[0, taken]
                )
            z = rho * (gamma * lam * z + phi)
            b = b + rewards[t] * z + (rho - 1.0) * u
            A = A + np.outer(z, phi - g * following) + (rho - 1.0) * V
            u = g * lam * (rho * u + rewards[t] * z)
            V = g * lam * (rho * V + np.outer(z, phi - following))
    return np.asarray(np.linalg.lstsq(A, b, rcond=None)[0])
