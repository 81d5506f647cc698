"""Feature maps whose norm is bounded for every input there is, by public constants.

A privacy proof that rests on ||phi(s)|| <= B needs B to hold for the states nobody expected: NaN,
infinities, values outside every range. So each map here

- is *total*: a coordinate outside [low, high] is clamped to it, a NaN becomes the middle of its
  range;
- has an L2 `norm_bound` proven in its docstring, in floating point and not only on paper, for 64
  and 32 bits, NumPy and JAX alike (states of 16 bits or fewer are widened first: in 8 bits of
  precision 256 and 257 are one number);
- is fixed by *public* settings: `low` and `high` say what a state could be, not what the data held.

A map takes (n, k) vectors, or (n,) indices, to (n, d); further leading axes are kept. With
`normalised=True` the bound is 1.

Rounding. Write s for `_scale(d)`, 1/sqrt(d) rounded *down* to 24 bits, so that it is the same
number in 32 and 64 bits and d s^2 <= 1 holds exactly. Multiplication is rounded monotonically, so
|x| <= 1 gives |fl(x s)| <= s. Bounds that are square roots are rounded up.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import partial
from types import ModuleType
from typing import Any, ClassVar, Protocol, cast, runtime_checkable

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.data.keys import is_jax

# A map with more features than this is a slip of the order, not a wish.
MOST_FEATURES = 1_000_000


@runtime_checkable
class Features(Protocol):
    """What estimators ask of a feature map."""

    @property
    def dimension(self) -> int:
        """How many features there are."""
        ...

    @property
    def norm_bound(self) -> float:
        """No state's features have a larger L2 norm."""
        ...

    def __call__(self, states: Any) -> Any:
        """(n, d) features of (n,) or (n, k) states."""
        ...


_KINDS: dict[str, Any] = {}


class NamedFeatures:
    """A map that is fixed by its settings, the fields of its dataclass: it has a JSON form."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            _KINDS[cls.kind] = cls

    def to_dict(self) -> dict[str, Any]:
        """The kind and the settings, which `features_from_dict` reads."""
        settings: Any = self
        named = {one.name: _to_json(getattr(self, one.name)) for one in fields(settings)}
        return {"kind": self.kind, **named}


@dataclass(frozen=True)
class OneHot(NamedFeatures):
    """One feature for each of `num_states` discrete states.

    A row has a single 1, or, for anything that is no state (an index out of range, a fraction,
    NaN), nothing but zeros. So its norm is 1 or 0: the bound is 1. Floats of 32 bits tell all
    indices apart, since there are at most 10^6 < 2^24 of them.
    """

    num_states: int
    kind: ClassVar[str] = "one-hot"

    def __post_init__(self) -> None:
        checks.set_checked(self, num_states=checks.count)
        _check_size(self.num_states)

    @property
    def dimension(self) -> int:
        return self.num_states

    @property
    def norm_bound(self) -> float:
        return 1.0

    def __call__(self, states: Any) -> Any:
        xp, x = _array(states)
        hot = x[..., None] == xp.arange(self.num_states)
        return hot.astype(x.dtype if xp.issubdtype(x.dtype, xp.floating) else float)


class BoxFeatures(NamedFeatures):
    """Common to maps over a box: low and high for each coordinate, kept as tuples.

    Where not said otherwise, no feature is beyond [-1, 1]: d of them have norm at most sqrt(d).
    """

    low: Any
    high: Any
    normalised: bool = False

    @property
    def dimension(self) -> int:
        raise NotImplementedError

    @property
    def norm_bound(self) -> float:
        return 1.0 if self.normalised else _root(self.dimension)

    def _check_box(self) -> None:
        low, high = _numbers("low", self.low), _numbers("high", self.high)
        if len(low) != len(high):
            raise InputError(f"low has {len(low)} entries and high has {len(high)}.")
        for position, (a, b) in enumerate(zip(low, high, strict=True)):
            if not (b > a and math.isfinite(b - a)):
                raise InputError(
                    f"must be above low, by a finite difference, in coordinate {position}.",
                    field="high",
                )
        _set_fields(self, low=low, high=high)

    def to_unit_cube(self, states: Any) -> tuple[ModuleType, Any]:
        """States as points of [0, 1]^k, whatever they were: clamped, and 1/2 in place of NaN."""
        xp, x = _array(states)
        if not xp.issubdtype(x.dtype, xp.floating):
            x = x.astype(float)
        width = len(self.low)
        if width == 1 and (x.ndim == 0 or x.ndim == 1 or x.shape[-1] != 1):
            x = x[..., None]
        if x.ndim == 0 or x.shape[-1] != width:
            raise InputError(f"States must have {width} coordinates, not {x.shape[-1:] or 'none'}.")
        # In 32 bits a range may be empty or infinite that was neither in 64: stay total.
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            low, high = xp.asarray(self.low, dtype=x.dtype), xp.asarray(self.high, dtype=x.dtype)
            u = (xp.clip(x, low, high) - low) / (high - low)
        return xp, xp.where(xp.isnan(u), 0.5, xp.clip(u, 0.0, 1.0)).astype(x.dtype)


@dataclass(frozen=True)
class Fourier(BoxFeatures):
    """cos(pi c.u) for every c in {0, ..., order}^k, with u the state scaled to [0, 1]^k.

    (Konidaris, Osentoski and Thomas 2011.) Each cosine, clamped to [-1, 1] against rounding, has
    square at most 1, so d of them have norm at most sqrt(d). Normalised, each is multiplied by
    s <= 1/sqrt(d), and d s^2 <= 1.
    """

    order: int
    low: Any
    high: Any
    normalised: bool = False
    kind: ClassVar[str] = "fourier"

    def __post_init__(self) -> None:
        checks.set_checked(self, order=checks.count)
        self._check_box()
        _check_size(_power(self.order + 1, len(self.low)))

    @property
    def dimension(self) -> int:
        return int((self.order + 1) ** len(self.low))

    def __call__(self, states: Any) -> Any:
        xp, u = self.to_unit_cube(states)
        grid = itertools.product(range(self.order + 1), repeat=len(self.low))
        c = xp.asarray(np.array(list(grid), dtype=np.float64), dtype=u.dtype)
        waves = xp.clip(xp.cos(math.pi * (u @ c.T)), -1.0, 1.0)
        return _normalize(waves, self.dimension, self.normalised)


@dataclass(frozen=True)
class RandomFourier(BoxFeatures):
    """sqrt(2/d) cos(w.u + b), w normal with standard deviation 1/bandwidth, b uniform: an RBF
    kernel.

    (Rahimi and Recht 2007.) `seed` draws w and b; it is public, like the rest. Cosines are clamped
    to [-1, 1], so the norm is at most sqrt(d) t with t the factor, rounded down so that d t^2 <= 2:
    the bound is sqrt(2). Normalised, the factor is s, with d s^2 <= 1.
    """

    num_features: int
    low: Any
    high: Any
    bandwidth: float = 0.2
    seed: int = 0
    normalised: bool = False
    kind: ClassVar[str] = "random-fourier"

    def __post_init__(self) -> None:
        checks.set_checked(self, num_features=checks.count, bandwidth=checks.positive)
        checks.set_checked(self, seed=partial(checks.count, least=0))
        self._check_box()
        _check_size(self.num_features)

    @property
    def dimension(self) -> int:
        return self.num_features

    @property
    def norm_bound(self) -> float:
        return 1.0 if self.normalised else math.nextafter(math.sqrt(2.0), math.inf)

    def __call__(self, states: Any) -> Any:
        xp, u = self.to_unit_cube(states)
        draw = np.random.default_rng(self.seed)
        # A width as small as 1e-308 would draw infinite frequencies, and their cosine is no number.
        w = np.clip(
            draw.standard_normal((len(self.low), self.num_features)) / self.bandwidth, -1e30, 1e30
        )
        b = draw.uniform(0.0, 2.0 * math.pi, self.num_features)
        phase = u @ xp.asarray(w, dtype=u.dtype) + xp.asarray(b, dtype=u.dtype)
        waves = xp.clip(xp.cos(phase), -1.0, 1.0)
        factor = _scale(self.dimension if self.normalised else self.dimension / 2.0)
        return waves * xp.asarray(factor, dtype=waves.dtype)


@dataclass(frozen=True)
class Radial(BoxFeatures):
    """exp(-|u - c|^2 / (2 width^2)) around each centre c, with u the state scaled to [0, 1]^k.

    `centers` are in the units of the states, `width` in those of the scaled box. The exponent is
    never positive, so each feature is in [0, 1] (clamped against rounding) and d of them have norm
    at most sqrt(d), or 1 when normalised.
    """

    centers: Any
    low: Any
    high: Any
    width: float = 0.2
    normalised: bool = False
    kind: ClassVar[str] = "radial"

    def __post_init__(self) -> None:
        self._check_box()
        checks.set_checked(self, centers=partial(_matrix, width=len(self.low)))
        checks.set_checked(self, width=checks.positive)

    @classmethod
    def grid(
        cls, per_dimension: int, low: Any, high: Any, width: float = 0.2, normalised: bool = False
    ) -> "Radial":
        """Centres on a regular grid, corners included."""
        count = checks.count("per_dimension", per_dimension, least=2)
        box = list(zip(_numbers("low", low), _numbers("high", high), strict=False))
        _check_size(_power(count, len(box)))
        axes = [np.linspace(a, b, count).tolist() for a, b in box]
        return cls(list(itertools.product(*axes)), low, high, width, normalised)

    @property
    def dimension(self) -> int:
        return len(self.centers)

    def __call__(self, states: Any) -> Any:
        xp, u = self.to_unit_cube(states)
        _, c = self.to_unit_cube(xp.asarray(self.centers, dtype=u.dtype))
        # At most 1/width per coordinate; clamped, so that a tiny width cannot overflow into NaN.
        apart = xp.clip((u[..., None, :] - c) / max(self.width, 1e-15), -1e15, 1e15)
        bumps = xp.clip(xp.exp(-0.5 * xp.sum(apart * apart, axis=-1)), 0.0, 1.0)
        return _normalize(bumps, self.dimension, self.normalised)


@dataclass(frozen=True)
class Polynomial(BoxFeatures):
    """Every product of powers of total degree at most `degree`, of the state scaled to [-1, 1]^k.

    A product of numbers in [-1, 1], rounded or not, is in [-1, 1], so d of them have norm at most
    sqrt(d), or 1 when normalised. The first feature is the constant 1.
    """

    degree: int
    low: Any
    high: Any
    normalised: bool = False
    kind: ClassVar[str] = "polynomial"

    def __post_init__(self) -> None:
        checks.set_checked(self, degree=partial(checks.count, least=0))
        self._check_box()
        # There are at least as many; the number itself may be too long to be worked out.
        _check_size(len(self.low) * self.degree)
        _check_size(self.dimension)

    @property
    def dimension(self) -> int:
        return math.comb(len(self.low) + self.degree, self.degree)

    def __call__(self, states: Any) -> Any:
        xp, u = self.to_unit_cube(states)
        x = xp.clip(2.0 * u - 1.0, -1.0, 1.0)
        factors = range(len(self.low))
        columns = []
        for degree in range(self.degree + 1):
            for chosen in itertools.combinations_with_replacement(factors, degree):
                term = xp.ones_like(x[..., 0])
                for coordinate in chosen:
                    term = term * x[..., coordinate]
                columns.append(term)
        return _normalize(xp.stack(columns, axis=-1), self.dimension, self.normalised)


@dataclass(frozen=True)
class FunctionFeatures:
    """Any function of the states, *made* to keep its bound.

    `function` takes the states and returns (n, dimension). Each row is clipped to L2 norm `bound`
    by `privrl.privacy.mechanisms.clip.l2`, which proves that the result is within it in floating
    point, and a row with a NaN or an infinity becomes zeros. What the function itself does with a
    strange state (an exception, for one) is its author's to settle.
    """

    function: Callable[[Any], Any]
    num_features: int
    bound: float

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise InputError("must be something that can be called with states.", field="function")
        checks.set_checked(self, num_features=checks.count, bound=checks.positive)

    @property
    def dimension(self) -> int:
        return self.num_features

    @property
    def norm_bound(self) -> float:
        return self.bound

    def __call__(self, states: Any) -> Any:
        from privrl.privacy.mechanisms import clip

        rows = self.function(states)
        shape = np.shape(rows)
        if len(shape) == 0 or shape[-1] != self.num_features:
            raise InputError(
                f"The feature function gave the shape {shape}, not (n, {self.num_features})."
            )
        return clip.l2(rows, self.bound)

    def to_dict(self) -> dict[str, Any]:
        raise InputError(
            "A function cannot be written to a file: use one of the named feature maps."
        )


def features_from_dict(given: object) -> Features:
    """The feature map that `to_dict` described."""
    if not isinstance(given, Mapping) or not isinstance(given.get("kind"), str):
        raise InputError("features must be an object that says its kind.")
    kind = given["kind"]
    if kind not in _KINDS:
        raise InputError(f"There are no features of kind {kind!r}: use {', '.join(_KINDS)}.")
    settings = {name: value for name, value in given.items() if name != "kind"}
    check_settings(f"Features of kind {kind!r}", _KINDS[kind], settings)
    if not isinstance(settings.get("normalised", False), bool):
        raise InputError("must be true or false.", field="normalised")
    # To JSON, 3 and 3.0 are the same number.
    for one in fields(_KINDS[kind]):
        value = settings.get(one.name)
        if one.type is int and isinstance(value, float) and value.is_integer():
            settings[one.name] = int(value)
    made: Features = _KINDS[kind](**settings)
    return made


def check_settings(title: str, kind: Any, settings: Mapping[str, Any]) -> None:
    """Refuse settings that are not fields of the dataclass `kind`, or lack one without default."""
    known = {one.name: one.default is MISSING for one in fields(kind)}
    for name in sorted(set(known) - set(settings)):
        if known[name]:
            raise InputError(f"{title} cannot be made without {name!r}.")
    for name in sorted(set(settings) - set(known)):
        raise InputError(f"{title} cannot be made with {name!r}.")


# --- helpers -------------------------------------------------------------------------------------


def _set_fields(target: object, **values: object) -> None:
    """Assign during construction of a frozen value."""
    for name, value in values.items():
        object.__setattr__(target, name, value)


def _to_json(value: Any) -> Any:
    """A setting with lists for tuples, and the JSON form of what has one."""
    if isinstance(value, tuple):
        return [_to_json(entry) for entry in value]
    return value.to_dict() if hasattr(value, "to_dict") else value


def _array(states: Any) -> tuple[ModuleType, Any]:
    """The module to compute with, and the states as an array of numbers of it."""
    if is_jax(states):
        import jax.numpy as jnp

        wide = jnp.issubdtype(states.dtype, jnp.floating) and states.dtype.itemsize < 4
        return jnp, states.astype(jnp.float32) if wide else states
    try:
        x = np.asarray(states)
    except ValueError:
        raise InputError("States must all have the same length.") from None
    if x.dtype.kind not in "iufb":
        raise InputError(f"States must be numbers, not {x.dtype}.")
    if x.dtype.kind == "f" and x.dtype.itemsize < 4:
        x = x.astype(np.float64)
    return np, x


def _scale(count: float) -> float:
    """1/sqrt(count), rounded down to 24 bits: count times its square is at most 1, exactly."""
    down = np.float32(1.0 / math.sqrt(count))
    while float(down) ** 2 * count > 1.0 - 1e-15:
        down = np.nextafter(down, np.float32(0.0))
    return float(down)


def _normalize(values: Any, dimension: int, normalised: bool) -> Any:
    return values * values.dtype.type(_scale(dimension)) if normalised else values


def _root(dimension: int) -> float:
    """sqrt(dimension), rounded up."""
    root = math.sqrt(dimension)
    return root if math.isqrt(dimension) ** 2 == dimension else math.nextafter(root, math.inf)


def _power(base: int, exponent: int) -> int:
    """Not worked out if it is beyond every limit."""
    return base**exponent if exponent * math.log2(base) < 64 else 2**64


def _check_size(count: int) -> None:
    if count > MOST_FEATURES:
        raise InputError(f"That makes more than {MOST_FEATURES} features.")


def _numbers(name: str, value: object) -> tuple[float, ...]:
    """A finite number, or several."""
    entries = value if isinstance(value, Sequence | np.ndarray) else [value]
    if isinstance(entries, str) or len(entries) == 0:
        raise InputError("must be a number, or a list with one for each coordinate.", field=name)
    plain = [e.item() if isinstance(e, np.generic) else e for e in entries]
    found = tuple(checks.number(name, entry) for entry in plain)
    if not all(math.isfinite(x) for x in found):
        raise InputError("must be finite: say what any state could be.", field=name)
    return found


def _matrix(name: str, value: object, width: int) -> tuple[tuple[float, ...], ...]:
    rows = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(rows, Sequence) or isinstance(rows, str) or len(rows) == 0:
        raise InputError("must be a list of points.", field=name)
    points = tuple(_numbers(name, row) for row in cast(Sequence[object], rows))
    if any(len(point) != width for point in points):
        raise InputError(f"must have {width} coordinates each.", field=name)
    return points
