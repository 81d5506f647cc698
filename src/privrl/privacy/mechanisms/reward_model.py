"""Release the reward function once, as noisy coefficients; everything after that is free.

Unit: a reward function. Relation: `REWARD_RADIUS`; r and r' are neighbours if |r(x) - r'(x)| <= R
at every point x = s or (s, a). Let nu be a *public* probability measure with weights w_i at public
points x_i (a quadrature rule, or the points visited by a rollout that did not look at rewards), and
psi_1, ..., psi_q functions that are orthonormal in L2(nu). Released are, once,

    c_k = sum_i w_i r(x_i) psi_k(x_i) + N(0, std^2),    k = 1, ..., q.

Sensitivity: the noiseless vectors of r and r' differ by at most ||r - r'|| in L2(nu) (Bessel), and
that is at most R since nu is a probability. In any dimension q the release is mu-GDP with mu = R /
std (Dong, Roth, Su 2022): the event is Gaussian(std, R), whose bound under this relation *is* the
distance. The model r_hat = sum_k c_k psi_k is post-processing, and so are planning on it, tuning,
any value function, any risk measure, and any number of queries. It needs that dynamics, termination
and the choice of points do not depend on the reward.

Whatever features the caller has are made orthonormal. Write A for the matrix with rows sqrt(w_i)
phi(x_i), columns scaled to length 1. Columns that depend on others (pivoted QR; public data, so the
same columns whatever the rewards) are dropped, and A = Q T by QR. The proof does not trust Q: the
linear map that is applied to rewards is the matrix M of 64-bit numbers

    M_ki = g Q_ik sqrt(w_i),

and with B_ki = M_ki / sqrt(w_i) and |d_i| <= R, ||M d||^2 <= ||B B'|| sum_i w_i d_i^2 <= ||B B'||
(sum_i w_i) R^2. The spectral norm of a symmetric matrix is at most its largest absolute row sum,
which is computed for Q'Q and raised by more than the rounding errors of that computation (n + 16
units in the last place per entry), as is the sum of the weights. g is the reciprocal of the root of
their product, lowered by 8 (1 + sqrt(q)) roundoffs: the roundings of M itself are relative ones of
its entries, and the squares of Q add up to q. So M, taken exactly, has norm at most 1 from
the sup norm to L2. With a `reward_range` g is lowered further, by the rounding errors of computing
M r for the largest rewards, so that also the *computed* coefficients move by at most R; without
one, those are part of the idealised arithmetic.

Rewards are made total first: what is not finite becomes 0, and rewards are clipped to the
`reward_range`, or to +-1e300 where none is given. Clipping is 1-Lipschitz, so neighbours remain
neighbours. Replacing NaN is not; but that two reward functions are within R of each other says that
both are finite, so the guarantee never rests on it. A callable that raises an error says so to
whoever runs it: let it be total. Arithmetic: floating-point noise, so certificates list "idealised
real arithmetic".
"""

import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import Event, Gaussian, Repeated
from privrl.privacy.noise import Source, as_float64
from privrl.privacy.promise import Budget, Relation, Unit

Features = Callable[[Any], Any]

# A column is dropped if less than this share of it is new; it also bounds how much evaluation away
# from the points magnifies rounding errors.
_MIN_NEW_SHARE = 1e-8
_ROUNDOFF = float(np.finfo(np.float64).epsneg)
# Within this no product and no sum overflows.
_UNBOUNDED_RANGE = (-1e300, 1e300)
_FORMAT, _VERSION = "privrl reward model", 1
_OLD_FORMAT = "tacit reward model"  # by the package's name before


@dataclass(frozen=True, eq=False)
class RewardModel:
    """A released reward function: coefficients c with noise of `std` on each, and psi = phi T.

    `std` is 0 where nothing needed protection.
    """

    coefficients: Array
    transform: Array
    features: Features = field(repr=False)
    std: float

    def __call__(self, points: Any) -> Any:
        """The model's rewards at `points`, NumPy or JAX as the features are."""
        return self._phi(points) @ (self.transform @ self.coefficients)

    def uncertainty(self, points: Any) -> Any:
        """The standard deviation of the noise in the rewards at `points`: std |psi(x)|.

        The error also has a part that no noise explains: what of r the features cannot express.
        """
        psi = self._phi(points) @ self.transform
        return self.std * (psi**2).sum(-1) ** 0.5

    def _phi(self, points: Any) -> Any:
        phi = self.features(points)
        if np.shape(phi)[-1:] != self.transform.shape[:1]:
            raise InputError(
                f"The features gave the shape {np.shape(phi)}, not (n, {len(self.transform)})."
            )
        return phi if hasattr(phi, "__matmul__") else np.asarray(phi)

    def save(self, path: str | Path) -> None:
        """Write the model as JSON, whole or not at all; numbers survive bit for bit.

        The model is public, and so is its file: mode 0644, unless the process says otherwise.
        """
        text = json.dumps(
            {
                "format": _FORMAT,
                "version": _VERSION,
                "std": self.std,
                "coefficients": self.coefficients.tolist(),
                "transform": self.transform.tolist(),
                "features": _describe_features(self.features),
            },
            allow_nan=False,
        )
        files.write(path, text.encode(), secret=False)

    @classmethod
    def load(cls, path: str | Path, features: Features) -> "RewardModel":
        """The model in `path`, with the `features` it was made with, which no file can hold."""
        try:
            data = files.parse_json(files.read_text(path))
            if data["format"] not in (_FORMAT, _OLD_FORMAT) or data["version"] != _VERSION:
                raise KeyError
            coefficients = np.array(data["coefficients"], dtype=np.float64)
            transform = np.array(data["transform"], dtype=np.float64)
            std, description = data["std"], data["features"]
        except OSError as error:
            raise InputError(f"{path} cannot be read: {files.reason(error)}.") from None
        except (KeyError, TypeError, ValueError, RecursionError):
            raise InputError(f"{path} is not a reward model of this version of privrl.") from None
        fit = coefficients.ndim == 1 and transform.shape[1:] == coefficients.shape
        if not (fit and np.all(np.isfinite(coefficients)) and np.all(np.isfinite(transform))):
            raise InputError(f"{path} is not a reward model: its numbers do not fit together.")
        if description is not None and description != _describe_features(features):
            raise InputError(f"{path} was made with other features: {description}.")
        return cls(coefficients, transform, features, checks.non_negative("std", std))


@dataclass(frozen=True, eq=False)
class RewardModelMechanism:
    """Adds N(0, std^2) to the coefficients of a reward function, to hide it within `radius`.

    `points` are (n,) or (n, k), public; `features` takes them to (n, d); `weights` are those of the
    points, equal if not given, and are divided by their sum.
    """

    std: float
    radius: float
    points: ArrayLike = field(repr=False)
    features: Features
    weights: ArrayLike | None = field(default=None, repr=False)
    reward_range: tuple[float, float] | None = None
    matrix: Array = field(init=False, repr=False)
    transform: Array = field(init=False, repr=False)

    unit: ClassVar[Unit] = Unit.REWARD_FUNCTION
    relation: ClassVar[Relation] = Relation.REWARD_RADIUS

    def __post_init__(self) -> None:
        checks.set_checked(self, std=checks.positive, radius=checks.positive)
        object.__setattr__(self, "reward_range", _check_range(self.reward_range))
        points = _finite_array("points", self.points)
        if points.ndim not in (1, 2) or points.size == 0:
            raise InputError(
                "must be a list of numbers or a table with a row for each.", field="points"
            )
        weights = _normalise_weights(self.weights, len(points))
        phi = _finite_array("features", self.features(points))
        if phi.ndim != 2 or len(phi) != len(points):
            raise InputError(
                f"The features gave the shape {phi.shape} for {len(points)} points, not (n, d)."
            )
        basis, transform = _orthonormal(phi, weights)
        arrays = {
            "points": points,
            "weights": weights,
            "matrix": self._contraction(basis, weights),
            "transform": transform,
        }
        for name, array in arrays.items():
            array.setflags(write=False)  # the proof is about these numbers and no others
            object.__setattr__(self, name, array)

    @classmethod
    def from_budget(
        cls,
        radius: float,
        budget: Budget,
        points: ArrayLike,
        features: Features,
        weights: ArrayLike | None = None,
        reward_range: tuple[float, float] | None = None,
        *,
        times: int = 1,
    ) -> "RewardModelMechanism":
        """The least noise with which `times` releases about one reward stay within `budget`."""
        radius = checks.positive("radius", radius)
        unit = calibrate(
            lambda std: Repeated(Gaussian(std, 1.0), times), budget, Relation.REWARD_RADIUS
        )
        std = math.nextafter(unit * radius, math.inf)
        return cls(std, radius, points, features, weights, reward_range)

    @property
    def event(self) -> Event:
        """What one release does; its bound is the distance between neighbours' coefficients."""
        return Gaussian(self.std, self.radius)

    def coefficients(self, rewards: ArrayLike | Callable[[Any], ArrayLike]) -> Array:
        """M r, *without noise*: a private vector, for proofs and tests, never for release."""
        values = rewards(self.points) if callable(rewards) else rewards
        r = as_float64("rewards", values)
        if r.shape != self.matrix.shape[1:]:
            raise InputError(
                f"must be {self.matrix.shape[1]} numbers, one for each point, not shape {r.shape}.",
                field="rewards",
            )
        r = np.where(np.isfinite(r), r, 0.0)
        return np.asarray(self.matrix @ np.clip(r, *(self.reward_range or _UNBOUNDED_RANGE)))

    def release(
        self, rewards: ArrayLike | Callable[[Any], ArrayLike], source: Source
    ) -> tuple[RewardModel, Event]:
        """The model of `rewards`, and what was done.

        `rewards` are one number for each point, or a function that gives them.
        """
        exact = self.coefficients(rewards)
        noised = exact + source.normal(self.std, exact.shape)
        return RewardModel(noised, self.transform, self.features, self.std), self.event

    def _contraction(self, basis: Array, weights: Array) -> Array:
        """M of the module's docstring, for the columns of `basis`."""
        points, size = basis.shape
        gram = np.abs(basis.T @ basis)
        # Each entry is a sum of n products of columns whose lengths are the roots of the diagonal.
        error = 2.0 * (points + 16) * _ROUNDOFF * float(gram.diagonal().max())
        square = float(gram.sum(axis=1).max()) * (1.0 + 2.0 * size * _ROUNDOFF) + size * error
        total = math.fsum(weights) * (1.0 + 4.0 * _ROUNDOFF)
        factor = (1.0 - 8.0 * (1.0 + math.sqrt(size)) * _ROUNDOFF) / math.sqrt(square * total)
        if self.reward_range is not None:
            # Row k of |M| sums to at most 1 (Cauchy-Schwarz), so each of the coefficients of r and
            # of r' is off by at most (n + 2) roundoffs of the largest reward.
            largest = max(map(abs, self.reward_range))
            rounding = 4.0 * (points + 2) * _ROUNDOFF * largest * math.sqrt(size) / self.radius
            if rounding > 0.01:
                raise InputError(
                    f"radius {self.radius:g} is within the rounding errors of rewards as large as "
                    f"{largest:g}."
                )
            factor *= 1.0 - rounding
        return np.asarray((basis * (factor * np.sqrt(weights))[:, None]).T)


def _orthonormal(phi: Array, weights: Array) -> tuple[Array, Array]:
    """Q with orthonormal columns, up to rounding, and the matrix that takes phi(x) to psi(x)."""
    from scipy import linalg

    rooted = phi * np.sqrt(weights)[:, None]
    largest = np.abs(rooted).max(axis=0)
    # In two steps, so that squares neither overflow nor vanish.
    scaled = rooted / np.where(largest > 0.0, largest, 1.0)
    lengths = np.sqrt((scaled**2).sum(axis=0))
    columns = scaled / np.where(lengths > 0.0, lengths, 1.0)
    _, triangle, order = linalg.qr(columns, mode="economic", pivoting=True)
    kept = np.sort(order[: np.count_nonzero(np.abs(np.diagonal(triangle)) > _MIN_NEW_SHARE)])
    if kept.size == 0:
        raise InputError("The features are zero at every point: there is nothing to release.")
    basis, triangle = linalg.qr(columns[:, kept], mode="economic")
    signs = np.where(np.diagonal(triangle) < 0.0, -1.0, 1.0)
    basis, triangle = basis * signs, triangle * signs[:, None]
    inverse = linalg.solve_triangular(triangle, np.eye(kept.size))
    transform = np.zeros((phi.shape[1], kept.size))
    with np.errstate(over="ignore"):
        transform[kept] = inverse / lengths[kept, None] / largest[kept, None]
    if not np.all(np.isfinite(transform)):
        raise InputError("The features are too small for 64-bit numbers: scale them up.")
    return basis, transform


# --- public bases on a box ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Box:
    """Products of one-dimensional functions of degrees 0 to `order` in each coordinate.

    Orthonormal under the uniform measure on the box. Coordinates outside [low, high] are clamped to
    it and NaN is taken for the middle, so that every point has finite features.
    """

    order: int
    low: float | Sequence[float] = 0.0
    high: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        if self.order != 0:
            checks.set_checked(self, order=checks.count)
        low, high = _check_box(self.low, self.high)
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    def __call__(self, points: Any) -> Any:
        """(n, (order + 1)^k) features of (n,) or (n, k) points, in NumPy or JAX."""
        xp, x = _as_float_array(points)
        low, high = _check_box(self.low, self.high)
        if len(low) == 1 and (x.ndim < 2 or x.shape[-1] != 1):
            x = x[..., None]
        if x.ndim == 0 or x.shape[-1] != len(low):
            raise InputError(f"Points must have {len(low)} coordinates, not shape {x.shape}.")
        a, b = xp.asarray(low, dtype=x.dtype), xp.asarray(high, dtype=x.dtype)
        u = (xp.clip(x, a, b) - a) / (b - a)
        values = self._values(xp, xp.where(xp.isnan(u), 0.5, xp.clip(u, 0.0, 1.0)))
        product = values[..., 0, :]
        for coordinate in range(1, len(low)):
            product = product[..., :, None] * values[..., coordinate, None, :]
            product = product.reshape(*product.shape[:-2], -1)
        return product

    def _values(self, xp: ModuleType, u: Any) -> Any:
        """(..., k, order + 1): each one-dimensional function of each coordinate in [0, 1]."""
        raise NotImplementedError

    def to_dict(self) -> dict[str, Any]:
        """What `RewardModel.save` writes down, to know the features again."""
        low, high = _check_box(self.low, self.high)
        kind = type(self).__name__.lower()
        return {"kind": kind, "order": self.order, "low": list(low), "high": list(high)}


@dataclass(frozen=True)
class Cosine(_Box):
    """1 and sqrt(2) cos(pi j u): for rewards with corners, or that end anyhow at the edges."""

    def _values(self, xp: ModuleType, u: Any) -> Any:
        degree = xp.arange(self.order + 1)
        size = xp.where(degree == 0, 1.0, math.sqrt(2.0)).astype(u.dtype)
        return size * xp.cos(math.pi * u[..., None] * degree.astype(u.dtype))


@dataclass(frozen=True)
class Legendre(_Box):
    """sqrt(2 j + 1) P_j(2 u - 1), the orthonormal polynomials: for smooth rewards."""

    def _values(self, xp: ModuleType, u: Any) -> Any:
        x = 2.0 * u - 1.0
        values = [xp.ones_like(x), x][: self.order + 1]
        for j in range(1, self.order):
            values.append(((2 * j + 1) * x * values[j] - j * values[j - 1]) / (j + 1))
        return xp.stack([math.sqrt(2 * j + 1) * p for j, p in enumerate(values)], axis=-1)


def quadrature(
    count: int, low: float | Sequence[float] = 0.0, high: float | Sequence[float] = 1.0
) -> tuple[Array, Array]:
    """Gauss-Legendre points, (count^k, k), and weights for the uniform measure on a box.

    Exact for polynomials of degree up to 2 count - 1 in each coordinate.
    """
    lows, highs = _check_box(low, high)
    nodes, masses = np.polynomial.legendre.leggauss(checks.count("count", count))
    axes = [a + (b - a) * (nodes + 1.0) / 2.0 for a, b in zip(lows, highs, strict=True)]
    points = np.array(list(itertools.product(*axes)))
    weights = np.array([math.prod(w) for w in itertools.product(masses / 2.0, repeat=len(lows))])
    return points, weights


# --- reading what was given -----------------------------------------------------------------------


def _finite_array(name: str, value: object) -> Array:
    array = as_float64(name, value).copy()
    if not np.all(np.isfinite(array)):
        raise InputError("must be finite.", field=name)
    return array


def _normalise_weights(weights: ArrayLike | None, points: int) -> Array:
    if weights is None:
        return np.full(points, 1.0 / points)
    given = _finite_array("weights", weights)
    if given.shape != (points,):
        raise InputError(f"must be {points} numbers, one for each point.", field="weights")
    if np.any(given < 0.0) or not np.any(given > 0.0):
        raise InputError("must not be negative, and not all zero.", field="weights")
    # In two steps, so that the sum of huge weights does not overflow.
    scaled = given / given.max()
    return np.asarray(scaled / math.fsum(scaled))


def _check_range(given: tuple[float, float] | None) -> tuple[float, float] | None:
    if given is None:
        return None
    if not isinstance(given, Sequence | np.ndarray) or len(given) != 2:
        raise InputError(
            "must be two numbers: the least and the largest reward.", field="reward_range"
        )
    low, high = (checks.number("reward_range", bound) for bound in given)
    if not -math.inf < low < high < math.inf:
        raise InputError(
            "must be finite, the least reward below the largest.", field="reward_range"
        )
    return low, high


def _check_box(
    low: float | Sequence[float], high: float | Sequence[float]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    lows, highs = (
        tuple(np.atleast_1d(_finite_array("low and high", end)).tolist()) for end in (low, high)
    )
    if len(lows) != len(highs) or not all(
        a < b and math.isfinite(b - a) for a, b in zip(lows, highs, strict=False)
    ):
        raise InputError("low and high must be as many, each low below its high.")
    return lows, highs


def _as_float_array(points: Any) -> tuple[ModuleType, Any]:
    """The module to compute with, and the points as a floating-point array of it."""
    xp: ModuleType = np
    if type(points).__module__.partition(".")[0] in ("jax", "jaxlib"):
        import jax.numpy as jnp

        xp = jnp
    elif not (isinstance(points, np.ndarray) and np.issubdtype(points.dtype, np.floating)):
        points = as_float64("points", points)
    x = xp.asarray(points)
    return xp, x if xp.issubdtype(x.dtype, xp.floating) else x.astype(float)


def _describe_features(features: Features) -> Any:
    """The features' own description, if they have one that can be written down."""
    describe = getattr(features, "to_dict", None)
    if describe is None:
        return None
    try:
        return json.loads(json.dumps(describe()))
    except (InputError, TypeError):
        return None
