"""What follows from the released sums, where people are few."""

import numpy as np
import pytest

from privrl.evaluation.private_figures import Figures, Terms, moments

TERMS = Terms(weight_cap=4.0, returns=(-1.0, 1.0), level=0.95, never_clips=False)


@pytest.mark.parametrize("n", [2, 5])
def test_few_people_have_the_variance_of_a_sample(n: int) -> None:
    """Without noise the sampling variance of a mean is the textbook's, with n - 1."""
    y = np.random.default_rng(n).uniform(-1.0, 1.0, n)
    found = Figures(moments(np.zeros(n), y).sum(axis=0), np.zeros((8, 8)), n, TERMS)
    _, sampling, noise = found.half((0.0, 0.0, 1.0))
    assert sampling == pytest.approx(y.var(ddof=1) / n)
    assert noise == 0.0


def test_one_person_says_nothing_of_the_spread() -> None:
    found = Figures(moments(np.ones(1), np.full(1, 0.5)).sum(axis=0), np.zeros((8, 8)), 1, TERMS)
    half, sampling, _ = found.half((0.0, 0.0, 1.0))
    assert sampling == pytest.approx(0.25)
    assert half > 0.5


@pytest.mark.parametrize("d", [0.0, -1.0])
@pytest.mark.parametrize("shift", [0.0, 0.05, 0.5])
def test_noise_that_swaps_the_ends_does_not_make_an_interval_narrow(d: float, shift: float) -> None:
    """Weight adds up to 1 at most: where noise says more, the ends keep both their errors apart."""
    draw = np.random.default_rng(0)
    w, y, n = np.full(500, 0.25), draw.uniform(-1.0, 1.0, 500), 500
    sums = moments(w, y).sum(axis=0)
    sums[0] += shift * n / 4.0
    found = Figures(sums, 25.0 * np.eye(8), n, TERMS)
    halves = [found.half((-side * 4.0, 4.0, d))[0] for side in (-1.0, 1.0)]
    interval = found.bounds(d)
    assert interval.high - interval.low == pytest.approx(sum(halves))
    assert interval.parts["clipping"] == 0.0
    ends = [side + (-side * 4.0 * sums[0] + 4.0 * sums[1] + d * sums[2]) / n for side in (-1, 1)]
    assert (interval.low + halves[0]) == pytest.approx(sum(ends) / 2.0)
