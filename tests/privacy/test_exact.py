"""Exact samplers: the laws on paper, from integers alone, and a scale ten percent off is seen."""

import math
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray

from privrl.privacy import InputError, exact
from privrl.privacy.exact import _BigIntSampler
from privrl.privacy.noise import secure
from tests.statistics import follows_discrete

DRAWS = 200_000


def gaussian_law(std: float) -> dict[int, float]:
    reach = math.ceil(12 * std) + 2
    weights = {k: math.exp(-(k**2) / (2 * std**2)) for k in range(-reach, reach + 1)}
    total = math.fsum(weights.values())
    return {k: w / total for k, w in weights.items()}


def laplace_law(scale: float) -> dict[int, float]:
    q = math.exp(-1 / scale)
    return {
        k: (1 - q) / (1 + q) * q ** abs(k)
        for k in range(-int(60 * scale) - 9, int(60 * scale) + 10)
    }


@pytest.mark.parametrize("std", [Fraction(1, 3), 1, Fraction(7, 2), 20])
def test_discrete_gaussian(std: Fraction | int) -> None:
    draws = exact.discrete_gaussian(secure().generator, std, DRAWS)
    assert draws.dtype == np.int64
    assert follows_discrete(draws, gaussian_law(float(std)))
    if std > 1:  # at 1/3 nearly everything is 0, and ten percent cannot be seen in 200,000 draws
        for wrong in (0.9, 1.1):
            assert not follows_discrete(draws, gaussian_law(float(std) * wrong))


@pytest.mark.parametrize("scale", [Fraction(1, 2), 1, Fraction(5, 3), 12])
def test_discrete_laplace(scale: Fraction | int) -> None:
    draws = exact.discrete_laplace(secure().generator, scale, DRAWS)
    assert follows_discrete(draws, laplace_law(float(scale)))
    for wrong in (0.9, 1.1):
        assert not follows_discrete(draws, laplace_law(float(scale) * wrong))


@pytest.mark.parametrize("x", [0, Fraction(1, 10), Fraction(1, 2), 1, Fraction(7, 3), 5])
def test_bernoulli_exp(x: Fraction | int) -> None:
    draws = exact.bernoulli_exp(secure().generator, x, DRAWS).astype(np.int64)
    p = math.exp(-x)
    assert follows_discrete(draws, {1: p, 0: 1 - p})
    if 0 < x < 5:  # at 5 there are too few successes for ten percent to be seen
        assert not follows_discrete(draws, {1: p * 0.9, 0: 1 - p * 0.9})


@pytest.mark.parametrize("p", [0, Fraction(1, 7), Fraction(999, 1000), 1, Fraction(3, 2**60)])
def test_bernoulli(p: Fraction | int) -> None:
    draws = exact.bernoulli(secure().generator, p, 20_000).astype(np.int64)
    assert follows_discrete(draws, {1: float(p), 0: 1 - float(p)})


class Odometer:
    """A generator that enumerates: every sequence of draws once, with its exact probability."""

    def __init__(self) -> None:
        self.digits: list[int] = []
        self.limits: list[int] = []
        self.position = 0

    def below(self, limit: int) -> int:
        if self.position == len(self.digits):
            self.digits.append(0)
            self.limits.append(limit)
        self.position += 1
        return self.digits[self.position - 1]

    def advance(self) -> bool:
        """On to the next sequence; False when there is none."""
        while self.digits and self.digits[-1] + 1 == self.limits[-1]:
            self.digits.pop()
            self.limits.pop()
        if not self.digits:
            return False
        self.digits[-1] += 1
        self.position = 0
        return True


@pytest.mark.parametrize(("law", "most_draws"), [("laplace", 9), ("gaussian", 10), ("exp", 8)])
def test_enumerated_probabilities(law: str, most_draws: int) -> None:
    """All sequences of at most `most_draws` random digits, as fractions: bounds, not samples.

    What is not decided by then has a known probability; so each outcome's probability is enclosed
    in an interval, and the law on paper must lie in it.
    """

    class TooLongError(Exception):
        pass

    odometer = Odometer()
    sampler = _BigIntSampler(secure().generator)

    def below(limit: int) -> int:
        if odometer.position >= most_draws:
            raise TooLongError
        return odometer.below(limit)

    sampler.uniform_below = below  # type: ignore[method-assign]
    found: dict[int, Fraction] = {}
    undecided = Fraction(0)
    while True:
        try:
            if law == "laplace":
                outcome = sampler.discrete_laplace(Fraction(2))
            elif law == "gaussian":
                outcome = sampler.discrete_gaussian(Fraction(1, 2))
            else:
                outcome = int(sampler.bernoulli_exp(Fraction(2, 3)))
        except TooLongError:
            outcome = None
        mass = Fraction(1, math.prod(odometer.limits))
        if outcome is None:
            undecided += mass
        else:
            found[outcome] = found.get(outcome, Fraction(0)) + mass
        if not odometer.advance():
            break
    assert sum(found.values()) + undecided == 1
    paper = {
        "laplace": lambda: laplace_law(2.0),
        "gaussian": lambda: gaussian_law(math.sqrt(0.5)),
        "exp": lambda: {1: math.exp(-2 / 3), 0: 1 - math.exp(-2 / 3)},
    }[law]()
    for outcome, mass in found.items():
        # Rejection restarts from scratch, so undecided sequences follow the same law in the end.
        assert float(mass) <= paper[outcome] + 1e-12
        assert paper[outcome] <= float(mass + undecided) + 1e-12
    assert undecided < (Fraction(1, 100) if law == "exp" else Fraction(7, 10))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["discrete_gaussian", "discrete_laplace"])
@pytest.mark.parametrize("parameter", [Fraction(3, 2), 6])
def test_one_by_one_agrees_with_whole_arrays(name: str, parameter: Fraction | int) -> None:
    sampler = _BigIntSampler(secure().generator)
    law = gaussian_law if name == "discrete_gaussian" else laplace_law
    argument = Fraction(parameter) ** 2 if name == "discrete_gaussian" else Fraction(parameter)
    draws: NDArray[np.int64] = np.array([getattr(sampler, name)(argument) for _ in range(20_000)])
    assert follows_discrete(draws, law(float(parameter)))
    whole = getattr(exact, name)(secure().generator, parameter, 20_000)
    assert follows_discrete(whole, law(float(parameter)))


def test_parameters_too_large_for_64_bits_take_the_other_path() -> None:
    generator = secure().generator
    wide = exact.discrete_gaussian(generator, 2**40, 200)
    # 200 draws: the sum of squares is chi-square with 200 degrees of freedom; 1e-6 at both ends.
    assert 0.5 < np.sqrt(np.mean((wide / 2.0**40) ** 2)) < 1.6
    odd = exact.discrete_laplace(generator, 0.1, 200)  # a fraction with a 55-bit denominator
    assert np.all(np.abs(odd) <= 3)
    with pytest.raises(InputError, match="does not fit"):
        exact.discrete_gaussian(generator, 2**70, 50)


def test_sizes() -> None:
    generator = secure().generator
    assert exact.discrete_gaussian(generator, 3, 0).shape == (0,)
    assert exact.discrete_laplace(generator, 3, 1).shape == (1,)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, "1", True, None])
def test_bad_parameters(bad: object) -> None:
    for sample in (exact.discrete_gaussian, exact.discrete_laplace):
        with pytest.raises(InputError):
            sample(secure().generator, bad, 1)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        exact.bernoulli(secure().generator, 1.5, 1)
    with pytest.raises(InputError):
        exact.bernoulli_exp(secure().generator, -0.5, 1)
