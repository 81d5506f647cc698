"""Shuffling: known figures, and the clones enumerated by hand."""

import math

import pytest
from scipy import stats

from privrl.privacy import InputError, shuffled_epsilon
from privrl.privacy.shuffling import _clones_delta


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        (100, (0.644, 2.00, 5.0, 10.0)),
        (1000, (0.182, 0.545, 5.0, 10.0)),
        (10_000, (0.053, 0.155, 1.15, 10.0)),
        (90_000, (0.016, 0.048, 0.316, 10.0)),
    ],
)
def test_table(reports: int, expected: tuple[float, ...]) -> None:
    for local, figure in zip((1.0, 2.0, 5.0, 10.0), expected, strict=True):
        found = shuffled_epsilon(reports, local, 1e-6)
        assert found.epsilon == pytest.approx(figure, abs=2e-3)
        assert "trusted shuffler" in found.trust


@pytest.mark.parametrize("n", [1, 2, 7, 30])
@pytest.mark.parametrize("eps0", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("eps", [0.0, 0.1, 0.7])
def test_against_enumeration(n: int, eps0: float, eps: float) -> None:
    weight = math.exp(eps0) / (math.exp(eps0) + 1)
    p: dict[tuple[int, int], float] = {}
    q: dict[tuple[int, int], float] = {}
    for c in range(n):
        for a in range(c + 1):
            mass = stats.binom.pmf(c, n - 1, math.exp(-eps0)) * stats.binom.pmf(a, c, 0.5)
            for one, other in ((p, q), (q, p)):
                first = (a + 1, c - a) if one is p else (a, c - a + 1)
                one[first] = one.get(first, 0.0) + weight * mass
                other[first] = other.get(first, 0.0) + (1 - weight) * mass
    exact = sum(max(0.0, p[x] - math.exp(eps) * q.get(x, 0.0)) for x in p)
    assert _clones_delta(n, eps0, eps) == pytest.approx(exact, abs=1e-12)


def test_never_worse_than_local() -> None:
    assert shuffled_epsilon(1, 0.7, 1e-9).epsilon <= 0.7
    assert shuffled_epsilon(5, 20.0, 1e-9).epsilon <= 20.0


@pytest.mark.parametrize("bad", [(0, 1.0, 1e-6), (10, 0.0, 1e-6), (10, 1.0, 0.0), (10, 1.0, 1.0)])
def test_bad_input(bad: tuple[int, float, float]) -> None:
    with pytest.raises(InputError):
        shuffled_epsilon(*bad)
