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

Why a nugget. Let two points be so close that their values differ by less noise than rounding leaves
of a variance. To call the second value determined by the first would be an error that tells:
neighbours may differ there by bound sqrt(2 (1 - k)), about 1e-7 bound, and with no noise between
the two answers that is seen. So `CholeskyPath` adds to every distinct point an independent normal
of variance NUGGET std^2, drawn once like everything else, and its covariance is K + NUGGET I.

- *Exactly.* (f + g)(x) + e(x), with e independent of f and g, is post-processing of f + g. In
  matrices: K + NUGGET I >= K (Loewner), so d' (K + NUGGET I)^-1 d <= d' K^-1 d <= ||d||^2.
- *With the factor rounded.* What is drawn has the covariance L L' of the computed factor L, which
  is K + NUGGET I + E with |E_ij| at most n + d + 10 roundoffs (the rows of L have length 1, and
  sums of up to n products are rounded; d coordinates enter the kernel). The norm of E is at most n
  times that, which is below NUGGET up to 8,000 points; then L L' >= K still. Beyond that the
  bound, which no example comes near, is part of the idealised arithmetic.
- *Later points* see the factor of K + NUGGET I, so they are conditioned on what was really given
  out. Every pivot is at least NUGGET in exact arithmetic, and is raised to it where it is not.

Only an exact repeat of a point repeats its value.
Arithmetic: 64-bit floating point, so certificates list "idealised real arithmetic".
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # which loads its parts when they are first used
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.mechanisms.functional import FunctionRelease, check_components
from privrl.privacy.mechanisms.gaussian import GaussianMechanism
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Budget, Relation

# New points are worked off in groups of this size, by products of matrices.
_GROUP = 128
# The share of independent noise at every point: a standard deviation of std / 8192.
NUGGET = 2.0**-26
# Coordinates and features are cut off here, so that products of them are finite.
_LARGEST = 1e100


def _clip_finite(name: str, values: ArrayLike) -> Array:
    """Numbers within the range of computation, NaN as 0: whatever is asked has an answer."""
    return np.clip(np.nan_to_num(as_float64(name, values)), -_LARGEST, _LARGEST)


@dataclass(frozen=True)
class ProductExponential:
    """prod_i exp(-rate_i |x_i - y_i|) for points of as many coordinates as there are rates."""

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        rates = tuple(checks.positive("each rate", rate) for rate in self.rates)
        if not rates or max(rates) > _LARGEST:
            raise InputError(
                f"must be at least one number, and at most {_LARGEST:g} each.", field="rates"
            )
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
        checks.set_checked(self, dimension=checks.count)

    def rows(self, x: Array) -> Array:
        """The features of every row of `x`."""
        found = _clip_finite("features", self.features(x))
        if found.ndim != 2 or len(found) != len(x):
            raise InputError(
                f"must give a row for each point, not shape {found.shape}.", field="features"
            )
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
        self.actions = None if actions is None else check_components(actions)
        self.reset()

    def reset(self) -> None:
        """Forget the path. What is drawn from now on is another one, and a new event."""
        raise NotImplementedError

    def to_domain(self, points: ArrayLike) -> Array:
        """`points` as they are understood: NaN as 0, and no coordinate beyond 1e100."""
        found = _clip_finite("points", points)
        if found.ndim == 0 or found.shape[-1] != self.kernel.dimension:
            raise InputError(
                f"must have {self.kernel.dimension} coordinates along the last axis, "
                f"not shape {found.shape}.",
                field="points",
            )
        # Zero has two signs in floating point; as a point it is one.
        return found + 0.0

    def __call__(self, points: ArrayLike) -> Array:
        """The path at `points`: their shape without the last axis, then `actions` if given."""
        inside = self.to_domain(points)
        values = self._at(inside.reshape(-1, inside.shape[-1])) * self.std
        tail = (self.actions,) if self.actions else ()
        return values.reshape(inside.shape[:-1] + tail)

    def _at(self, rows: Array) -> Array:
        raise NotImplementedError


class CholeskyPath(_Field):
    """One path of the process with covariance std^2 (kernel(x, y) + NUGGET [x = y]).

    Drawn where it is asked; asked again, a point has the same value, bit for bit. The module says
    why the nugget is there. For features `WeightsPath` is the path.

    With L the factor of the covariance of the points so far and z the standard normals they were
    made of, a new point x has l = L^-1 k(X, x) and the value l . z + sqrt(1 + NUGGET - l . l) times
    a fresh normal; l and the root are the next row of L.
    """

    kernel: ProductExponential

    def __init__(
        self,
        std: float,
        kernel: ProductExponential,
        source: Source,
        *,
        actions: int | None = None,
    ) -> None:
        # Features may be so small that their products vanish, and the noise with them.
        if not isinstance(kernel, ProductExponential):
            raise InputError("For features use a WeightsPath, which needs no factor.")
        super().__init__(std, kernel, source, actions=actions)

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
        old = scipy.linalg.solve_triangular(
            self._factor, self.kernel(self._points, new), lower=True
        )
        covariance = self.kernel(new, new) - old.T @ old
        rank, count = len(self._points), len(new)
        values = old.T @ self._normals
        columns = np.zeros((count, count))
        normals = np.zeros((count, values.shape[1]))
        for j in range(count):
            # At least the nugget on paper; so it is made to be, should rounding say otherwise.
            rest = math.sqrt(max(covariance[j, j], 0.0) + NUGGET)
            column = covariance[j:, j] / rest
            column[0] = rest
            covariance[j:, j:] -= np.outer(column, column)
            columns[j:, j] = column
            normals[j] = self.source.normal(1.0, (values.shape[1],))
            values[j:] += np.outer(column, normals[j])
        factor = np.zeros((rank + count, rank + count))
        factor[:rank, :rank] = self._factor
        factor[rank:, :rank] = old.T
        factor[rank:, rank:] = columns
        self._factor = factor
        self._points = np.concatenate([self._points, new])
        self._normals = np.concatenate([self._normals, normals])
        return values


class WeightsPath(_Field):
    """The path for a `FeatureKernel`, as phi(x) . w with weights w ~ N(0, std^2 I), drawn once.

    The process of the kernel: phi(x) . w and phi(y) . w have covariance std^2 phi(x) . phi(y). A
    value is determined by others only where features depend on one another, and there so are the
    values of the functions that are noised. So noising a linear function w . phi at all points and
    noising its weights are one mechanism.
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
            self._weights = self.source.normal(1.0, shape)
        if phi.shape[1] != len(self._weights):
            raise InputError(
                "must give the same number of features for all points.", field="features"
            )
        values = np.zeros((len(rows), self._weights.shape[1]))
        # Not a product of matrices: its rounding would depend on which points are asked together.
        for feature, weights in zip(phi.T, self._weights, strict=True):
            values += feature[:, None] * weights
        return values


@dataclass(frozen=True)
class FieldMechanism(FunctionRelease):
    """Adds a Gaussian process with covariance std^2 kernel(x, y) to a function of several numbers.

    `bound` is the largest norm, in the kernel's space, of what one unit contributes.
    """

    std: float
    kernel: Kernel
    bound: float

    def __post_init__(self) -> None:
        checks.set_checked(self, std=checks.positive, bound=checks.positive)

    @classmethod
    def from_budget(
        cls,
        kernel: Kernel,
        bound: float,
        budget: Budget,
        relation: Relation = Relation.REPLACE_ONE,
        *,
        times: int = 1,
    ) -> "FieldMechanism":
        """The least noise with which `times` released functions stay within `budget`."""
        plan = GaussianMechanism.from_budget(bound, budget, relation, times=times)
        return cls(plan.std, kernel, plan.bound)

    def _path(self, source: Source, actions: int | None) -> WeightsPath | CholeskyPath:
        if isinstance(self.kernel, FeatureKernel):
            return WeightsPath(self.std, self.kernel, source, actions=actions)
        return CholeskyPath(self.std, self.kernel, source, actions=actions)
