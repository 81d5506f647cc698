"""The functional mechanism in several dimensions: Gaussian processes with any kernel, exactly.

    FieldMechanism(std, kernel, bound).release(function, source)    # noised(points), and the event

Unit, relation and theorem are those of `functional`: `bound` is the norm, in the kernel's space, of
what one unit contributes, and all answers together are one Gaussian(std, bound), whatever the
points. For finitely many points X and d = f - f' the best test has mu^2 = d(X)' K^+ d(X) / std^2,
and that is at most ||d||^2 / std^2 for any positive semidefinite kernel, singular or not.

Two kernels, and what their norms mean:

- `ProductExponential(rates)`: prod_i exp(-rate_i |x_i - y_i|). Beware: its space holds only
  functions with square-integrable *mixed* derivatives. A network with oblique kinks, such as ReLU
  of x + y, is not in it at all: no bound exists, and no noise of this kind protects it.
- `FeatureKernel(features)`: phi(x) . phi(y). A function w . phi has norm |w| at most, so `bound` is
  an ordinary L2 bound on weights.

There is no Markov property to use in several dimensions. `CholeskyPath` adds rows to a Cholesky
factor, n^2 operations for a new point among n. For features there is a better way: noise on the
weights *is* the path, `WeightsPath`, at the cost of one product.
Arithmetic: 64-bit floating point, so certificates list "idealised real arithmetic".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_triangular

from tacit.privacy import checks
from tacit.privacy.errors import InputError
from tacit.privacy.events import Event, Gaussian
from tacit.privacy.grid import Array
from tacit.privacy.mechanisms.functional import NoisedFunction
from tacit.privacy.mechanisms.gaussian import GaussianMechanism
from tacit.privacy.noise import Source
from tacit.privacy.promise import Budget, Relation

# New points are worked off in groups of this size, by products of matrices.
_GROUP = 128
# A point's value is determined by earlier ones if all but this share of its variance is, times the
# number of these: what rounding leaves of a variance that is zero.
_ROUNDING = 16.0 * float(np.finfo(np.float64).eps)
# Coordinates and features are cut off here, so that products of them are finite.
_LARGEST = 1e100


def _total(values: ArrayLike) -> Array:
    """Numbers within the range of computation, NaN as 0: whatever is asked has an answer."""
    return np.clip(np.nan_to_num(np.asarray(values, dtype=np.float64)), -_LARGEST, _LARGEST)


@dataclass(frozen=True)
class ProductExponential:
    """prod_i exp(-rate_i |x_i - y_i|) for points of as many coordinates as there are rates."""

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        rates = tuple(checks.positive("each rate", rate) for rate in self.rates)
        if not rates or max(rates) > _LARGEST:
            raise InputError(f"rates must be at least one number, and at most {_LARGEST:g} each.")
        object.__setattr__(self, "rates", rates)

    @property
    def dimension(self) -> int:
        """How many coordinates a point has."""
        return len(self.rates)

    def __call__(self, x: Array, y: Array) -> Array:
        """The covariance of every row of `x` with every row of `y`, at std 1."""
        distance = np.zeros((len(x), len(y)))
        for i, rate in enumerate(self.rates):
            distance += rate * np.abs(x[:, None, i] - y[None, :, i])
        return np.exp(-distance)


@dataclass(frozen=True)
class FeatureKernel:
    """phi(x) . phi(y), where `features` maps rows of `dimension` coordinates to rows of features.

    Features that are not finite count as 0.
    """

    features: Callable[[Array], ArrayLike]
    dimension: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "dimension", checks.count("dimension", self.dimension))

    def rows(self, x: Array) -> Array:
        """The features of every row of `x`."""
        found = _total(self.features(x))
        if found.ndim != 2 or len(found) != len(x):
            raise InputError(f"features must give a row for each point, not shape {found.shape}.")
        return found

    def __call__(self, x: Array, y: Array) -> Array:
        """The covariance of every row of `x` with every row of `y`, at std 1."""
        return self.rows(x) @ self.rows(y).T


Kernel = ProductExponential | FeatureKernel


class _Field:
    """What the two paths below share: points, shapes and the scale."""

    def __init__(
        self, std: float, kernel: Kernel, source: Source, *, actions: int | None = None
    ) -> None:
        self.std = checks.positive("std", std)
        self.kernel = kernel
        self.source = source
        self.actions = None if actions is None else checks.count("actions", actions)
        self.reset()

    def reset(self) -> None:
        """Forget the path. What is drawn from now on is another one, and a new event."""
        raise NotImplementedError

    def inside(self, points: ArrayLike) -> Array:
        """`points` as they are understood: NaN as 0, and no coordinate beyond 1e100."""
        try:
            found = _total(points)
        except (TypeError, ValueError):
            raise InputError("points must be an array of numbers.") from None
        if found.ndim == 0 or found.shape[-1] != self.kernel.dimension:
            raise InputError(
                f"points must have {self.kernel.dimension} coordinates along the last axis, "
                f"not shape {found.shape}."
            )
        # Zero has two signs in floating point; as a point it is one.
        return found + 0.0

    def __call__(self, points: ArrayLike) -> Array:
        """The path at `points`: their shape without the last axis, then `actions` if given."""
        inside = self.inside(points)
        values = self._at(inside.reshape(-1, inside.shape[-1])) * self.std
        tail = (self.actions,) if self.actions else ()
        return values.reshape(inside.shape[:-1] + tail)

    def _at(self, rows: Array) -> Array:
        raise NotImplementedError


class CholeskyPath(_Field):
    """One path of the process with covariance std^2 kernel(x, y), drawn where it is asked.

    Asked again, a point has the same value, bit for bit. A value that those before it determine
    (features can be fewer than points) is computed from them: it counts as determined when no more
    of its variance is left than 4e-15 times the number of points, so that with a thousand points a
    value is off by 2e-6 std at the most.

    With L the factor of the covariance of the points so far (those not determined by others) and z
    the standard normals they were made of, a new point x has l = L^-1 k(X, x) and the value
    l . z + sqrt(k(x, x) - l . l) times a fresh normal; l and the root are the next row of L.
    """

    def reset(self) -> None:
        """Forget the path. What is drawn from now on is another one, and a new event."""
        self._known: dict[bytes, Array] = {}
        self._points = np.empty((0, self.kernel.dimension))
        self._factor = np.empty((0, 0))
        self._normals = np.empty((0, self.actions or 1))

    def _at(self, rows: Array) -> Array:
        keys = [row.tobytes() for row in rows]
        new = {key: i for i, key in enumerate(keys) if key not in self._known}
        order = list(new.values())
        for start in range(0, len(order), _GROUP):
            group = rows[order[start : start + _GROUP]]
            for row, value in zip(group, self._draw(group), strict=True):
                self._known[row.tobytes()] = value
        return np.array([self._known[key] for key in keys]).reshape(len(keys), self.actions or 1)

    def _draw(self, new: Array) -> Array:
        """Values at new points, which join those on which later ones depend."""
        rank, count = len(self._points), len(new)
        old = solve_triangular(self._factor, self.kernel(self._points, new), lower=True)
        covariance = self.kernel(new, new)
        variances = covariance.diagonal().copy()
        covariance -= old.T @ old
        values = old.T @ self._normals
        columns = np.zeros((count, count))
        kept: list[int] = []
        normals: list[Array] = []
        for j in range(count):
            rest = covariance[j, j]
            if rest <= _ROUNDING * (rank + len(kept) + 1) * variances[j]:
                continue
            column = covariance[j:, j] / math.sqrt(rest)
            covariance[j:, j:] -= np.outer(column, column)
            columns[j:, len(kept)] = column
            fresh = self.source.generator.standard_normal((values.shape[1],))
            values[j:] += np.outer(column, fresh)
            kept.append(j)
            normals.append(fresh)
        factor = np.zeros((rank + len(kept), rank + len(kept)))
        factor[:rank, :rank] = self._factor
        factor[rank:, :rank] = old[:, kept].T
        factor[rank:, rank:] = columns[kept, : len(kept)]
        self._factor = factor
        self._points = np.concatenate([self._points, new[kept]])
        self._normals = np.concatenate([self._normals, *(fresh[None] for fresh in normals)])
        return values


class WeightsPath(_Field):
    """The path for a `FeatureKernel`, as phi(x) . w with weights w ~ N(0, std^2 I), drawn once.

    The same law as `CholeskyPath`, since phi(x) . w and phi(y) . w have covariance
    std^2 phi(x) . phi(y). So noising a linear function w . phi at all points and noising its
    weights are one mechanism.
    """

    kernel: FeatureKernel

    def __init__(
        self, std: float, kernel: FeatureKernel, source: Source, *, actions: int | None = None
    ) -> None:
        if not isinstance(kernel, FeatureKernel):
            raise InputError("Weights need features: use a FeatureKernel.")
        super().__init__(std, kernel, source, actions=actions)

    def reset(self) -> None:
        """Forget the weights. What is drawn from now on is another path, and a new event."""
        self._weights: Array | None = None

    def _at(self, rows: Array) -> Array:
        phi = self.kernel.rows(rows)
        if self._weights is None:
            shape = (phi.shape[1], self.actions or 1)
            self._weights = self.source.generator.standard_normal(shape)
        if phi.shape[1] != len(self._weights):
            raise InputError("features must give the same number of features for all points.")
        values = np.zeros((len(rows), self._weights.shape[1]))
        # Not a product of matrices: its rounding would depend on which points are asked together.
        for feature, weights in zip(phi.T, self._weights, strict=True):
            values += feature[:, None] * weights
        return values


@dataclass(frozen=True)
class FieldMechanism:
    """Adds a Gaussian process with covariance std^2 kernel(x, y) to a function of several numbers.

    `bound` is the largest norm, in the kernel's space, of what one unit contributes.
    """

    std: float
    kernel: Kernel
    bound: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", checks.positive("std", self.std))
        object.__setattr__(self, "bound", checks.positive("bound", self.bound))

    @classmethod
    def calibrated(
        cls,
        kernel: Kernel,
        bound: float,
        budget: Budget,
        relation: Relation = Relation.REPLACE_ONE,
        *,
        times: int = 1,
    ) -> "FieldMechanism":
        """The least noise with which `times` released functions stay within `budget`."""
        plan = GaussianMechanism.calibrated(bound, budget, relation, times=times)
        return cls(plan.std, kernel, plan.bound)

    @property
    def event(self) -> Event:
        """What the release of one function does, however often the function is asked."""
        return Gaussian(self.std, self.bound)

    def release(
        self,
        function: Callable[[Array], ArrayLike],
        source: Source,
        *,
        actions: int | None = None,
    ) -> tuple[NoisedFunction, Event]:
        """`function`, of `actions` components if given, with noise from `source`; what was done."""
        path: WeightsPath | CholeskyPath
        if isinstance(self.kernel, FeatureKernel):
            path = WeightsPath(self.std, self.kernel, source, actions=actions)
        else:
            path = CholeskyPath(self.std, self.kernel, source, actions=actions)
        return NoisedFunction(function, path), self.event
