"""The floor of a composition: losses on a grid, tilted and convolved by FFT, errors taken off.

Losses are moved to the nearest point of a grid; over a composition these moves have a known mean,
which is put back, and a fluctuation, which Bernstein's inequality bounds and which is taken off
epsilon. The law is tilted exponentially before the FFT, so that round-off and wrap-around, which
are bounded and taken off as well, are small against the tail at which delta looks. Mass may be
dropped anywhere. What is left is the float64 rounding of the masses themselves, for which a share
1e-5 of delta is set aside.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import xlogy

from privrl.core.types import Floats
from privrl.privacy.second_accountant.pair_floor import MARGIN, law_of
from privrl.privacy.second_accountant.pairs import Pair, logsumexp

_TAIL = 2e-4  # share of delta that the largest losses may have to be dropped: they cost resolution
_SIZES = 2**14, 2**20  # smallest and largest number of grid points in the FFT's window
# Tilts for Chernoff's bound; the best is near sqrt(2 log 1/delta) over the deviation of the sum.
_POSITIVE: Floats = np.geomspace(1e-9, 1e9, 145)
_TILTS: Floats = np.r_[-_POSITIVE[::-3], 0.0, _POSITIVE]


@dataclass(frozen=True)
class _Window:
    """Where the FFT looks: nearly all of the law tilted by `tilt` is between `start` and `end`."""

    tilt: float
    start: float
    end: float
    before: float  # the tilt at which Chernoff's bound says that little is left of `start`
    after: float  # and the one for the right of `end`
    top: float  # Chernoff's epsilon, which the floor will hardly exceed


@dataclass(frozen=True)
class _Grid:
    """A part's law with losses `origin + step * index`; the mean of the moves is in `origin`."""

    mass: Floats
    index: NDArray[np.int64]
    origin: float
    step: float
    variance: float  # of the moves

    def cumulant(self, tilt: float) -> float:
        return float(logsumexp(self.mass + tilt * (self.origin + self.step * self.index)))


def composed_floor(
    parts: Sequence[tuple[Pair, int]], delta: float, backward: bool, enough: float
) -> float:
    """An epsilon at which `parts` surely lose more than `delta`; any number if below `enough`."""
    counts = [n for _, n in parts]
    rough = [_coarse_law(pair, backward, _TAIL * delta / (n * len(parts))) for pair, n in parts]
    windows = _windows(rough, counts, delta)
    if not windows or 1.01 * windows[0].top < enough:
        return 0.0

    def attempt(window: _Window, size: int) -> tuple[float, float]:
        shown = [_loss_range(law, n, window.tilt) for law, n in zip(rough, counts, strict=True)]
        step = max(window.end - window.start, *((high - low) / 16 for low, high in shown)) / size
        step = _grid_step(rough[counts.index(max(counts))], step)
        grids = [
            _build_grid(pair, backward, law, ends, step)
            for (pair, _), law, ends in zip(parts, rough, shown, strict=True)
        ]
        # Bernstein's inequality for the moves, none of which is more than a step from its mean.
        variance = sum(n * grid.variance for grid, n in zip(grids, counts, strict=True))
        odds = -math.log(MARGIN * delta)
        moved = step * odds / 3 + math.sqrt((step * odds / 3) ** 2 + 2 * variance * odds)
        goal = delta * (1 + 2 * MARGIN)
        return _fft_floor(grids, counts, window, goal, 2 * size), min(moved, step * sum(counts))

    # A cell of width h hides about h^2 / 12 of a part's variance, hence the size to start with.
    size = max(_SIZES[0], 2 ** math.ceil(math.log2(200 * math.sqrt(sum(counts)))))

    def coarse_floor(window: _Window) -> float:
        reached, moved = attempt(window, min(size, 2**17) // 2)
        return reached - min(moved, reached / 2)

    # Every tilt gives a floor; which one a good one shows at low resolution.
    window = max(windows, key=coarse_floor)
    while True:
        size = min(size, _SIZES[1])
        reached, moved = attempt(window, size)
        if moved < 2e-3 * reached or size == _SIZES[1]:
            return max(0.0, reached - moved)
        size *= 4


def _coarse_law(pair: Pair, backward: bool, ignored: float) -> tuple[Floats, Floats]:
    """The law in cells of all magnitudes, without the largest losses, of total mass `ignored`."""
    side = 1.1 * pair.limits.reach * np.geomspace(1e-13, 1, 2500)
    mass, loss = law_of(pair, backward, np.r_[-math.inf, -side[::-1], side, math.inf])
    keep = np.logaddexp.accumulate(mass[::-1])[::-1] > math.log(ignored)
    return mass[keep], loss[keep]


def _peak(tilt: Floats) -> Floats:
    """The log of the largest value of e^{-tilt x} (1 - e^{-x})."""
    return xlogy(tilt, tilt) - (1 + tilt) * np.log1p(tilt)


def _windows(
    laws: Sequence[tuple[Floats, Floats]], counts: Sequence[int], delta: float
) -> list[_Window]:
    """Windows for some tilts up to the one of Chernoff's bound; none if no epsilon is above 0."""
    cumulant = np.zeros_like(_TILTS)
    for (mass, loss), n in zip(laws, counts, strict=True):
        cumulant += n * np.array([logsumexp(mass + tilt * loss) for tilt in _TILTS])
    # delta(epsilon) <= e^{cumulant(t) - t epsilon + peak(t)} for every t > 0.
    zero = len(_TILTS) - len(_POSITIVE) - 1
    tops = (cumulant[zero + 1 : -1] - math.log(delta) + _peak(_POSITIVE[:-1])) / _POSITIVE[:-1]
    top, best = float(tops.min()), zero + 1 + int(np.argmin(tops))
    windows = []
    for at in (best, best - 1, best - 3, best - 8, zero):
        if top > 0 and at >= zero:
            tilt = _TILTS[at]
            # The log of the tilted mass that may be outside: little against delta at any epsilon.
            outside = np.clip(math.log(delta) - 8 - cumulant[at] - _peak(tilt), -34, -18)
            # When tilted, log P(L beyond x) <= cumulant(t) - cumulant(tilt) - (t - tilt) x.
            rise = cumulant - cumulant[at] - outside
            gaps = _TILTS - tilt
            x = np.divide(rise, gaps, where=gaps != 0, out=np.zeros_like(rise))
            i, j = int(np.argmax(x[:at])), at + 1 + int(np.argmin(x[at + 1 :]))
            windows.append(_Window(*map(float, (tilt, x[i], x[j], _TILTS[i], _TILTS[j], top))))
    return windows


def _grid_step(law: tuple[Floats, Floats], step: float) -> float:
    """At most `step`, at least half; divides half the gap between the largest two atoms."""
    mass, loss = law
    gap = float(np.ptp(loss[np.argsort(mass)[-2:]])) / 2
    return gap / math.ceil(gap / step) if gap > step else step


def _loss_range(law: tuple[Floats, Floats], n: int, tilt: float) -> tuple[float, float]:
    """The losses that matter under the tilted law; those outside are dropped."""
    mass, loss = law
    tilted = mass + tilt * loss
    shown = loss[tilted > logsumexp(tilted) - math.log(n) - 35]
    # A rough cell is 1.2 % of its loss wide.
    low, high = float(shown.min()), float(shown.max())
    return low - 0.02 * abs(low), high + 0.02 * abs(high)


def _build_grid(
    pair: Pair,
    backward: bool,
    rough: tuple[Floats, Floats],
    ends: tuple[float, float],
    step: float,
) -> _Grid:
    mass, loss = rough
    centre = float(loss[np.argmax(mass)])
    first, last = math.floor((ends[0] - centre) / step), math.ceil((ends[1] - centre) / step)
    cuts = centre + step * np.arange(first - 0.5, last + 1, dtype=np.float64)
    mass, loss = law_of(pair, backward, cuts)
    index = np.rint((loss - centre) / step).astype(np.int64)
    # Mean and variance of the moves, given that nothing dropped occurs.
    moves, weights = loss - centre - step * index, np.exp(mass - logsumexp(mass))
    mean = float(np.sum(weights * moves))
    return _Grid(mass, index, centre + mean, step, float(np.sum(weights * (moves - mean) ** 2)))


def _fft_floor(
    grids: Sequence[_Grid], counts: Sequence[int], window: _Window, delta: float, size: int
) -> float:
    """The largest epsilon at which the composition of the grids surely exceeds `delta`."""
    tilt, step = window.tilt, grids[0].step
    # An output of the FFT is a sum, in log2(size) rounds, of inputs times numbers of modulus 1. The
    # inputs sum to 1; so `unit` bounds its error. A power n has n times that, relative to modulus.
    unit = 8 * float(np.finfo(np.float64).eps) * math.log2(size)
    spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
    modulus, slips = np.ones(size // 2 + 1), np.ones(size // 2 + 1)
    tilts = tilt, window.before, window.after
    cumulant, origin, least, most = np.zeros(3), 0.0, 0.0, 0.0
    for grid, n in zip(grids, counts, strict=True):
        own = np.array([grid.cumulant(t) for t in tilts])
        losses = grid.origin + step * grid.index
        weights = np.bincount(grid.index % size, np.exp(grid.mass + tilt * losses - own[0]), size)
        factor = np.fft.rfft(weights)
        spectrum *= factor**n
        modulus *= (np.abs(factor) + unit) ** n
        slips += n / (np.abs(factor) + unit)
        cumulant, origin = cumulant + n * own, origin + n * grid.origin
        least, most = least + n * float(losses.min()), most + n * float(losses.max())
    # The window fills half of the FFT; a quarter of its width is left free on its left.
    first = math.ceil((window.start - (window.end - window.start) / 4 - origin) / step)
    indices = first + np.arange(size)
    losses, tilted = origin + step * indices, np.fft.irfft(spectrum, size)[indices % size]
    # The error of `tilted`, summed over it: round-off, and mass that was wrapped around.
    error = 2 * unit * float(np.sum(modulus * slips))
    for t, k, edge, beyond in (
        (window.before, cumulant[1], losses[0], least < losses[0]),
        (window.after, cumulant[2], losses[-1], most > losses[-1]),
    ):
        error += math.exp(min(0.0, k - cumulant[0] - (t - tilt) * edge)) if beyond else 0.0
    error *= math.exp(float(_peak(np.array(tilt))))
    scale = float(cumulant[0]) - math.log(delta)

    def surplus(epsilon: float) -> float:
        """The log of what delta(epsilon) at least is, relative to `delta`; -1 if it is nothing."""
        # What is so far above that the tilt makes nothing of it is left out.
        i, j = np.searchsorted(losses, (epsilon, epsilon + 60 / max(tilt, 1e-9)), side="right")
        above = losses[i:j] - epsilon
        tail = float(np.sum(tilted[i:j] * np.exp(-tilt * above) * -np.expm1(-above)))
        return math.log(tail - error) + scale - tilt * epsilon if tail > error else -1.0

    # The error counts more at a smaller epsilon. Above `low` it is less than delta / 2 and the
    # surplus falls; at the last of the losses nothing is left.
    share = math.log(2 * error) + scale
    low = max(0.0, share / tilt) if tilt > 0 else 0.0
    if (tilt == 0 and share > 0) or surplus(low) <= 0:
        return 0.0
    high = window.top if surplus(window.top) < 0 else float(losses[-1])
    found = brentq(surplus, low, high, xtol=1e-6 * window.top)
    return max(0.0, found - 2e-6 * window.top)
