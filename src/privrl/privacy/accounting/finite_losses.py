"""Privacy losses with finitely many values, and the exact law of their sums."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privrl.core.types import Array
from privrl.privacy.accounting import grid
from privrl.privacy.accounting.grid import GridPair, Tails
from privrl.privacy.accounting.losses import TAIL_SDS, Loss

# Finite laws are enumerated exactly up to this many distinct values.
MOST_ATOMS = 2_000_000


@dataclass(frozen=True)
class Atoms(Loss):
    """A finite law; `leak` is the mass of the infinite loss."""

    @property
    def leak(self) -> float:
        return 0.0

    @abstractmethod
    def atoms(self) -> tuple[Array, Array]:
        """Loss values and their probabilities given no leak."""

    def on_grid(self, interval: float) -> GridPair:
        losses, masses = self.atoms()
        return grid.from_atoms(losses, masses * (1.0 - self.leak), self.leak, interval)


@dataclass(frozen=True)
class Response(Atoms):
    """Randomised response among `categories`, preceded by telling all with probability `told`."""

    epsilon: float
    categories: int = 2
    told: float = 0.0

    @property
    def leak(self) -> float:
        return self.told

    @property
    def largest(self) -> float:
        return self.epsilon if self.told == 0.0 else math.inf

    @property
    def upper_truncation(self) -> float:
        return self.epsilon

    @property
    def spread(self) -> float:
        return self.epsilon

    def atoms(self) -> tuple[Array, Array]:
        # e^-epsilon as the unit of weight, so that a huge epsilon cannot overflow.
        lie = math.exp(-self.epsilon)
        weights = np.array([1.0, lie, (self.categories - 2) * lie])
        return np.array([self.epsilon, -self.epsilon, 0.0]), weights / weights.sum()

    def tails(self, losses: Array) -> Tails:
        # In the part that tells all, P shows a symbol of infinite loss and Q one of minus infinity.
        values, masses = self.atoms()
        above = losses[:, None] < values[None, :]
        kept = 1.0 - self.told
        # Under Q truth and lie change places, which is what e^-loss amounts to, without overflow.
        p, q = kept * masses, kept * masses[[1, 0, 2]]
        return Tails(above @ p + self.told, ~above @ p, above @ q, ~above @ q + self.told)

    def profile(self, epsilons: Array) -> Array:
        """delta at each epsilon >= 0."""
        values, masses = self.atoms()
        gains = -np.expm1(np.minimum(epsilons[:, None] - values[None, :], 0.0))
        return self.told + (1.0 - self.told) * np.asarray(gains @ masses)


@dataclass(frozen=True)
class DiscreteLaplaceShift(Atoms):
    """Discrete Laplace noise P(k) ~ e^(-rate |k|), shifted by `steps` against unshifted."""

    rate: float
    steps: int

    @property
    def largest(self) -> float:
        return self.rate * self.steps

    @property
    def spread(self) -> float:
        return self.largest

    def atoms(self) -> tuple[Array, Array]:
        # Noise k on the shifted side sees the loss rate (|k + steps| - |k|): all k >= 0 see the
        # largest, all k <= -steps its negative, and each value between is seen once.
        between = np.arange(-self.steps + 1, 0, dtype=np.float64)
        one = -math.expm1(-self.rate) / (1.0 + math.exp(-self.rate))
        tail = 1.0 / (1.0 + math.exp(-self.rate))
        losses = np.concatenate(
            ([self.largest], self.rate * (2 * between + self.steps), [-self.largest])
        )
        masses = np.concatenate(
            ([tail], one * np.exp(self.rate * between), [tail * math.exp(-self.largest)])
        )
        return losses, masses


@dataclass(frozen=True)
class DiscreteGaussianShift(Atoms):
    """Discrete Gaussian noise of parameter std, shifted by `steps` against unshifted."""

    std: float
    steps: int

    @property
    def spread(self) -> float:
        return self.steps / self.std

    @property
    def upper_truncation(self) -> float:
        return self.steps * (self.steps + 2.0 * TAIL_SDS * self.std + 4.0) / (2.0 * self.std**2)

    @property
    def leak(self) -> float:
        # The noise is sub-Gaussian with parameter std (Canonne, Kamath, Steinke 2020), so this
        # bounds what the enumeration leaves out.
        return 2.0 * math.exp(-(TAIL_SDS**2) / 2)

    def atoms(self) -> tuple[Array, Array]:
        reach = math.ceil(TAIL_SDS * self.std) + 1
        noise = np.arange(-reach, reach + 1, dtype=np.float64)
        weights = np.exp(-0.5 * (noise / self.std) ** 2)
        losses = self.steps * (self.steps + 2.0 * noise) / (2.0 * self.std**2)
        return losses, weights / weights.sum()


# --- laws of sums ---------------------------------------------------------------------------------


class Law(NamedTuple):
    """Loss values, the logarithms of their probabilities, and the mass of the infinite loss."""

    losses: Array
    log_masses: Array
    leak: float

    def delta(self, epsilon: float) -> float:
        gains = -np.expm1(np.minimum(epsilon - self.losses, 0.0))
        return self.leak + (1.0 - self.leak) * float(gains @ np.exp(self.log_masses))

    def epsilon(self, delta: float) -> float:
        """Exact: between two loss values, delta is linear in e^epsilon."""
        if delta < self.leak:
            return math.inf
        wanted = (delta - self.leak) / (1.0 - self.leak)
        order = np.argsort(-self.losses)
        losses, log_masses = self.losses[order], self.log_masses[order]
        positive = (losses > 0.0) & (log_masses > -np.inf)
        losses, log_masses = losses[positive], log_masses[positive]
        if not losses.size:
            return 0.0
        # In logarithms, since e^-loss is no double any more for losses beyond 745.
        upper = np.exp(np.logaddexp.accumulate(log_masses))
        log_lower = np.logaddexp.accumulate(log_masses - losses)
        with np.errstate(divide="ignore", invalid="ignore"):
            candidates = np.where(upper > wanted, np.log(upper - wanted) - log_lower, -np.inf)
        # With the largest k values above epsilon, it is candidates[k - 1], if the next is below it.
        following = np.append(losses[1:], 0.0)
        fits = np.flatnonzero(candidates >= following)
        return max(0.0, float(candidates[fits[0]])) if fits.size else 0.0


def self_compose(loss: Atoms, times: int) -> tuple[Array, Array] | None:
    """Values and log probabilities of the sum of `times` such losses, or None if too many."""
    if times == 1:
        values, masses = loss.atoms()
        with np.errstate(divide="ignore"):
            return values, np.log(masses)
    if not isinstance(loss, Response) or times + 1 > MOST_ATOMS:
        return None
    from scipy.stats import binom

    # How many answers were informative at all, and of these how many spoke for the truth.
    honest = 1.0 / (1.0 + math.exp(-loss.epsilon))
    if loss.categories == 2:
        true = np.arange(times + 1)
        return loss.epsilon * (2.0 * true - times), binom.logpmf(true, times, honest)
    if (times + 1) * (times + 2) // 2 > MOST_ATOMS:
        return None
    lie = math.exp(-loss.epsilon)
    informative = (1.0 + lie) / (1.0 + lie * (loss.categories - 1))
    told, true = np.tril_indices(times + 1)
    pairs = binom.logpmf(told, times, informative) + binom.logpmf(true, told, honest)
    return loss.epsilon * (2.0 * true - told), pairs
