"""Estimated behaviour: right in the limit, in (0, 1] always, and loud about what it cost."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.data import (
    Fourier,
    OneHot,
    PrivateEstimate,
    Softmax,
    Tabular,
    Trajectories,
    stream_parquet,
)
from privrl.privacy import InputError

TRUTH = Tabular(np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))


def logged(n: int = 30_000, **more: Any) -> Trajectories:
    rng = np.random.default_rng(0)
    states = rng.integers(0, 3, n)
    return Trajectories.from_arrays(
        states,
        TRUTH.sample(states, rng),
        np.zeros(n),
        lengths=np.full(n // 10, 10),
        terminated=True,
        **{"num_states": 3, "num_actions": 3} | more,
    )


@pytest.mark.parametrize("method", ["counts", "logistic"])
def test_finds_the_policy(method: Any) -> None:
    data = logged().with_estimated_behavior(method, 0.0, public=True)
    expected = TRUTH.prob(data.states, data.actions)
    assert data.behavior_probs is not None
    assert np.abs(data.behavior_probs - expected).max() < 0.02
    assert data.behavior.public
    assert not data.behavior.is_private_estimate


def test_logistic_on_vectors() -> None:
    rng = np.random.default_rng(1)
    n = 20_000
    states = rng.normal(50.0, 20.0, (n, 2))
    basis = Fourier(1, [0, 0], [100, 100])
    truth = Softmax(basis, rng.normal(size=(4, 2)))
    data = Trajectories.from_arrays(
        states, truth.sample(states, rng), np.zeros(n), lengths=[n], num_actions=2
    )
    expected = truth.prob(states, data.actions)
    found = data.with_estimated_behavior("logistic", 0.0, features=basis, public=True)
    assert found.behavior_probs is not None
    assert np.abs(found.behavior_probs - expected).mean() < 0.02
    plain = data.with_estimated_behavior("logistic", public=True).behavior_probs
    assert plain is not None
    assert np.abs(plain - expected).mean() < 0.15


def test_smoothing() -> None:
    states, actions = np.zeros(4, dtype=int), np.array([0, 0, 0, 1])
    data = Trajectories.from_arrays(
        states, actions, np.zeros(4), lengths=[4], num_states=1, num_actions=4
    )
    plain = data.with_estimated_behavior(smoothing=0.0, public=True).behavior_probs
    smooth = data.with_estimated_behavior(smoothing=1.0, public=True).behavior_probs
    np.testing.assert_allclose(np.asarray(plain), [0.75, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(np.asarray(smooth), [0.5, 0.5, 0.5, 0.25])


@pytest.mark.parametrize("method", ["counts", "logistic"])
@pytest.mark.parametrize("smoothing", [0.0, None])
def test_in_range(method: Any, smoothing: float | None) -> None:
    """Also where states tell actions apart perfectly."""
    n = 200
    states = np.arange(n) % 2
    data = Trajectories.from_arrays(
        states, states, np.zeros(n), lengths=[n], num_states=2, num_actions=2
    )
    found = data.with_estimated_behavior(method, smoothing, public=True).behavior_probs
    assert found is not None
    assert np.all((found > 0.0) & (found <= 1.0))


def test_loud(tmp_path: Path) -> None:
    with pytest.warns(PrivateEstimate, match="estimated from private data, not paid for"):
        data = logged(100).with_estimated_behavior()
    assert data.behavior.is_private_estimate
    words = "estimated from private data, not paid for"
    assert words in data.summary()
    assert words.upper() in repr(data)
    assert any(words in fact for fact in data.private_facts)
    # Parts of it, and what comes back from a file, say it too.
    part = data[:3]
    assert part.behavior.is_private_estimate
    names = data.to_parquet(tmp_path / "a.parquet")
    again = Trajectories.from_parquet(tmp_path / "a.parquet", **names)
    assert again.behavior.is_private_estimate
    assert any(words in fact for fact in again.private_facts)
    handed = Trajectories.from_table(data, **data.column_names)
    assert handed.behavior.is_private_estimate
    # One such file among others is enough; a stream says it of every batch.
    plain = logged(100).with_behavior(TRUTH)
    plain.take(np.arange(5)).to_parquet(tmp_path / "0.parquet")
    data.take(np.arange(5, 10)).to_parquet(tmp_path / "a.parquet")
    assert Trajectories.from_parquet(tmp_path, **names).behavior.is_private_estimate
    for batch in stream_parquet(tmp_path, batch_rows=30, **names):
        assert batch.behavior.is_private_estimate
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not logged(100).with_estimated_behavior(public=True).private_facts


def test_paid_for() -> None:
    """A policy that was paid for replaces the estimate, and what was said of it."""
    with pytest.warns(PrivateEstimate):
        data = logged(100).with_estimated_behavior()
    assert data.private_facts
    for after in (
        data.with_behavior(TRUTH),
        data.with_estimated_behavior(public=True, overwrite=True),
    ):
        assert not after.private_facts
        assert not after.behavior.is_private_estimate


def test_huge_states() -> None:
    states = np.array([[1e308, 5e-324], [-1e308, 0.0], [1e308, 0.0], [-1e308, 5e-324]] * 10)
    data = Trajectories.from_arrays(
        states, (states[:, 0] > 0).astype(int), np.zeros(40), lengths=[40], num_actions=2
    )
    found = data.with_estimated_behavior("logistic", public=True).behavior_probs
    assert found is not None
    assert found.min() > 0.9


def test_known_policy() -> None:
    data = logged(100).with_behavior(TRUTH)
    assert data.behavior_probs is not None
    np.testing.assert_array_equal(data.behavior_probs, TRUTH.prob(data.states, data.actions))
    assert not data.behavior.is_private_estimate
    never = Tabular(np.array([[1.0, 0.0, 0.0]] * 3))
    with pytest.raises(InputError, match="never takes the logged action"):
        logged(100).with_behavior(never)


def test_refusals() -> None:
    known = logged(100).with_behavior(TRUTH)
    with pytest.raises(InputError, match="overwrite=True"):
        known.with_estimated_behavior(public=True)
    known.with_estimated_behavior(public=True, overwrite=True)
    with pytest.raises(InputError, match="num_actions is needed"):
        logged(100, num_actions=None).with_estimated_behavior(public=True)
    with pytest.raises(InputError, match="num_states"):
        logged(100, num_states=None).with_estimated_behavior(public=True)
    with pytest.raises(InputError, match="method"):
        logged(100).with_estimated_behavior("guess", public=True)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="smoothing"):
        logged(100).with_estimated_behavior(smoothing=-1.0, public=True)
    with pytest.raises(InputError, match="discrete actions"):
        Trajectories.from_arrays(
            [0], np.zeros((1, 2)), [0.0], lengths=[1], num_states=1
        ).with_estimated_behavior(public=True)
    features = OneHot(3)
    assert logged(100).with_estimated_behavior("logistic", features=features, public=True)
