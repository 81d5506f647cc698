"""GPOPE: step by step as printed, its draws and its certificate."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privrl.data import OneHot, Polynomial, Tabular
from privrl.evaluation.bellman_error import UnitMoments, unit_moments
from privrl.evaluation.gpope import GPOPE, _PackedUnits, gradient
from privrl.papers.xie2019 import algorithm
from privrl.privacy import (
    Budget,
    Certificate,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Ledger,
    NoiseOrigin,
    Repeated,
    Unit,
)
from privrl.privacy.mechanisms import clip
from privrl.privacy.noise import Source, jax_normal, secure
from privrl.privacy.plan import NoisyPlan, SingleSamples
from privrl.privacy.session import PrivacySession
from tests.evaluation.test_bellman_error import JUDGED, simulated, solution, weights_of
from tests.evaluation.test_private_gtd import people, person
from tests.statistics import follows_discrete

Floats = NDArray[np.float64]

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BUDGET = Budget(1.0, 1e-5)
SCHEDULE = SingleSamples(7, 20)
# Noise that rounding swallows.
SILENT = NoisyPlan(1e-200, SCHEDULE)


def plain(**changed: Any) -> GPOPE:
    given: dict[str, Any] = {
        "features": OneHot(3),
        "budget": BUDGET,
        "clip": 0.5,
        "step": 0.1,
        "gamma": 0.9,
        "iterations": 20,
    }
    return GPOPE(**{**given, **changed})


def _matrices(units: UnitMoments) -> tuple[Floats, Floats]:
    n, d = units.b.shape
    A, C = (
        (x if isinstance(x, np.ndarray) else x.toarray()).reshape(n, d, d)
        for x in (units.A, units.C)
    )
    return A, C


def _as_printed(
    units: UnitMoments, key: Any, clip: float, step: float, sigma: float, times: int, dim: bool
) -> Floats:
    """Algorithm 1 in NumPy, with the draws and the noise of the compiled one; every theta."""
    (A, C), b = _matrices(units), units.b
    count, d = b.shape
    with jax.enable_x64(True):
        draws, noises = jax.random.split(key)
        at = [jax.random.fold_in(draws, i) for i in range(times)]
        drawn = [int(jax.random.randint(x, (), 0, count, dtype=jax.numpy.int64)) for x in at]
        noise = [jax_normal(jax.random.fold_in(noises, i), (2 * d,)) for i in range(times)]
    return algorithm.gpope(
        A, b, C, drawn, np.asarray(noise), clip=clip, step=step, sigma=sigma, diminishing=dim
    )


@pytest.mark.parametrize(
    ("schedule", "features", "average", "last"),
    [("constant", OneHot(3), 0.5, 10), ("diminishing", Polynomial(1, 0.0, 2.0), 0.0, 1)],
)
def test_it_is_algorithm_1_step_by_step(
    schedule: str, features: Any, average: float, last: int
) -> None:
    data, key = simulated(7, 1), secure().key()
    judge = plain(schedule=schedule, features=features, average=average)
    units = judge._units(data, Tabular(JUDGED), certified=True)
    found = judge._run(units, NoisyPlan(0.7, SCHEDULE), key[None], [0.1, 0.3])
    for k, step in enumerate((0.1, 0.3)):
        wanted = _as_printed(units, key, 0.5, step, 0.7, 20, schedule == "diminishing")
        np.testing.assert_allclose(found[0, k], wanted[-last:].mean(0), rtol=1e-9, atol=1e-12)


def test_one_trajectory_by_hand() -> None:
    # One unit, A = C = 1/2 and b = 1: theta_3 = beta A w_2 with w_2 = beta b.
    units = UnitMoments(
        np.array([[0.5]]), np.array([[1.0]]), None, np.array([[0.5]]), Unit.TRAJECTORY
    )
    judge = plain(features=OneHot(1), clip=10.0, iterations=2)
    assert judge._run(units, SILENT, secure().key()[None], [0.2])[0, 0, 0] == pytest.approx(
        0.2**2 * 0.5
    )


def test_without_noise_one_trajectory_converges_to_lstd() -> None:
    features = Polynomial(1, 0.0, 2.0)
    data = simulated(12, 3, users=1)  # one person: every draw is the same
    judge = plain(features=features, clip=1e3, iterations=20_000)
    units = judge._units(data, None, certified=True)
    found = judge._run(units, SILENT, secure().key()[None], [0.5])[0, 0]
    np.testing.assert_allclose(found, solution(units), rtol=1e-6)


def test_draws_are_uniform() -> None:
    # With A = 1, C = 0, theta_3 = beta^2 b of the first draw.
    b = np.arange(1.0, 8.0)[:, None]
    units = UnitMoments(np.ones((7, 1)), b, None, np.zeros((7, 1)), Unit.TRAJECTORY)
    judge = plain(features=OneHot(1), clip=100.0, iterations=2)
    keys = jax.random.split(secure().key(), 9000)
    first = np.rint(judge._run(units, SILENT, keys, [1.0])[:, 0, 0]).astype(int)
    assert follows_discrete(first, dict.fromkeys(range(1, 8), 1 / 7))
    # So many draws that missing this has a probability below 1e-12.
    assert not follows_discrete(first, {k: (0.2 if k == 1 else 0.8 / 6) for k in range(1, 8)})


_GRADIENT = jax.jit(gradient, static_argnums=1)


@settings(max_examples=40)
@given(
    st.lists(person, min_size=3, max_size=3),
    st.lists(st.floats(width=64), min_size=6, max_size=6),
    st.sampled_from([1e-6, 0.01, 1.0, 1e6]),
    st.sampled_from([None, 4.0, 1e300]),
)
def test_a_clipped_gradient_is_within_the_bound_for_any_data(
    owned: list[Any], state: list[float], bound: float, cap: float | None
) -> None:
    """Hence two of them, of neighbours or of whoever is drawn, are at most 2h apart."""
    units = unit_moments(people(*owned), None, OneHot(3), 0.9, cap=cap, dual=True)
    with jax.enable_x64(True):
        packed = _PackedUnits.of(units)
        arrays = jax.tree.map(jax.numpy.asarray, packed.arrays)
        for unit in range(3):
            B = _GRADIENT(arrays, packed.widths, unit, jax.numpy.asarray(state))
            clipped = np.asarray(clip.l2(np.asarray(B), bound))
            assert np.isfinite(clipped).all()
            assert np.linalg.norm(clipped) <= bound * (1.0 + 1e-15)


def test_wild_data_gives_finite_weights() -> None:
    pair = [([(0, np.nan, 5e-324), (1, 1e308, 1.0)], False)], [([(2, -np.inf, 1.0)], True)]
    # As many as elsewhere, whose noise is calibrated once.
    result = plain().fit(people(*pair * 25))
    assert np.isfinite(weights_of(result)).all()


# --- the promise ---------------------------------------------------------------------------------


def test_certified() -> None:
    result = plain().fit(simulated(50, 1), start=[0, 1])
    certificate = result.certificate
    assert isinstance(result.promise, Certificate)
    assert 0.9 <= certificate.epsilon <= 1.0
    certificate.verify(strict=True)
    assert certificate.noise is NoiseOrigin.SECURE_KEY
    assert certificate.events == (
        Repeated(FixedSizeSampled(Gaussian(result.settings["sigma"], 1.0), 50, 1), 20),
    )
    assert result.estimate == pytest.approx(float(result.predict([0, 1]).mean()))
    assert result.diagnostics is None


def test_the_ledger_is_charged_before_keys_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("no key today")

    with Ledger.create(tmp_path / "l", "clinic", unit=Unit.TRAJECTORY) as ledger:
        monkeypatch.setattr(Source, "key", broken)
        with pytest.raises(RuntimeError):
            plain().fit(simulated(50, 1), session=PrivacySession(ledger=ledger, run="first"))
        assert [entry.run for entry in ledger.entries()] == ["first"]


def test_sweeps_are_fits_side_by_side() -> None:
    data = simulated(50, 1)
    swept = plain().sweep(data, None, [0.1, 0.2], [4, 5])
    assert swept.shape == (2, 2, 3)
    for s, seed in enumerate((4, 5)):
        for k, step in enumerate((0.1, 0.2)):
            alone = weights_of(plain(step=step).fit(data, session=PrivacySession(seed=seed)))
            np.testing.assert_allclose(swept[s, k], alone, rtol=1e-12)


def test_public_data_shows_more() -> None:
    result = plain().fit(simulated(50, 1), session=PrivacySession(public=True))
    assert result.diagnostics is not None
    assert result.diagnostics["mspbe"] >= 0.0
    assert result.estimate is not None


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"clip": 0.0}, "clip"),
        ({"step": -1.0}, "step"),
        ({"iterations": 0}, "iterations"),
        ({"gamma": -0.1}, "gamma"),
        ({"schedule": "other"}, "schedule"),
        ({"weight_cap": -1.0}, "weight_cap"),
        ({"average": 2.0}, "average"),
        ({"budget": Budget(1.0)}, "delta above 0"),
    ],
)
def test_what_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        plain(**changed)
