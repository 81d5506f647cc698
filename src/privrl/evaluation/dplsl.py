"""DP-LSL (Balle, Gomrokchi, Precup 2016): regularised least squares, output perturbed.

With first-visit returns F_{x,s} and numbers of visitors n_s as in `dplsw`, public rho_s >= 0, and a
ridge lambda, theta minimises

    sum over x, and s in x, of rho_s (F_{x,s} - phi_s' theta)^2  +  lambda/2 ||theta||^2,

    theta = H^-1 g,  H = sum_s rho_s n_s phi_s phi_s' + lambda/2 I,  g = sum_s rho_s n_s F_s phi_s,

and is released with N(0, (alpha S(X))^2 I).

Unit and relation: as for `DPLSW`; and as there all is in units of W, the width of the interval in
which returns lie: F_{x,s} and theta stand for F_{x,s} / W and theta / W below, and S(X) is W times
what follows. theta is linear in F, so it is W times this one.

Sensitivity: exchange x for x', write theta' for the new solution and v_s = phi_s' theta. Then
H' (theta' - theta) = (g' - g) - (H' - H) theta = sum_s rho_s phi_s u_s with
u_s = [s in x'] (F_{x',s} - v_s) - [s in x] (F_{x,s} - v_s). Returns lie in an interval of width 1
that contains 0, so |u_s| <= 1 + |v_s|; ||H'^-1|| <= 2/lambda; and

    ||theta' - theta||  <=  2/lambda ||Phi|| (||rho||_2 + ||rho||_inf ||Phi|| ||theta||).

H is B'B + lambda/2 I and g is B'y, the rows of B being sqrt(rho_s) phi_s' and y = sqrt(rho_s)
F_{x,s}, so that ||theta|| <= ||y|| / sqrt(2 lambda) <= sqrt(sum_s rho_s n_s / (2 lambda)). Since
k exchanges raise n_s by at most k, and to at most m,

    L_k  =  2 ||Phi|| / lambda (c sqrt(sum_s rho_s min(n_s + k, m)) + ||rho||_2),
    c    =  ||Phi|| ||rho||_inf / sqrt(2 lambda),

bounds the local sensitivity k exchanges away, and L_k(X) <= L_{k+1}(X') for neighbours. Theorem:
`privrl.privacy.mechanisms.smooth`.

Range of numbers: every L_k lies between 2 ||Phi|| ||rho||_2 / lambda and L_m, which are public. A
ridge is refused where the former is too small; where W L_m is too large, all L_k count as infinite.

With the published constants it is `privrl.papers.xie2019.DPLSL`.

Released, clipped, cut at the horizon and refused: as for `DPLSW`. States must be a table: Phi has a
row for each.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.evaluation.dplsw import OutputPerturbation, Solution, Visits
from privrl.evaluation.sums import SMALLEST

# Of W L_m; theta is at most m times that, with what rounding makes of a ridge lost in it.
_MOST = 1e280


@dataclass(frozen=True)
class DPLSL(OutputPerturbation):
    """Ridge regression on first-visit returns; see the module."""

    ridge: float | None = None
    """lambda; by default 4 sqrt(m), as in the authors' experiments."""

    method: ClassVar[str] = "DP-LSL"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge is not None:
            checks.positive("ridge", self.ridge)

    def solve(self, visits: Visits) -> Solution:
        phi, rho, m = self.phi(), self.weights_of_states(), visits.units
        ridge = 4.0 * math.sqrt(m) if self.ridge is None else self.ridge
        theta = solution(phi, rho, ridge, visits)
        norm = float(np.linalg.norm(phi, 2))
        nobody = np.zeros(len(rho), dtype=np.int64)
        with np.errstate(all="ignore"):
            scale = float(2.0 * np.float64(norm) / self.denominator(ridge, norm, float(rho.max())))
            least, most = local_lsl(scale, norm, rho, ridge, nobody, m, np.array([0, m]))
        if least < SMALLEST:
            raise InputError("is too large to compute with.", field="ridge")
        if not most * self.width < _MOST:

            def local(k: NDArray[np.int64]) -> Floats:
                return np.full(k.shape, math.inf)
        else:

            def local(k: NDArray[np.int64]) -> Floats:
                return local_lsl(scale, norm, rho, ridge, visits.counts, m, k)

        return Solution(theta, local, {"ridge": ridge})

    def denominator(self, ridge: float, norm: float, largest: float) -> float:
        """That of L_k, for ||Phi|| = `norm` and ||rho||_inf = `largest`."""
        return ridge


def solution(phi: Floats, rho: Floats, ridge: float, visits: Visits) -> Floats:
    """theta, whatever was visited: H is inverted along its axes, each lambda/2 long at least.

    A general solver would find H singular, and say so, where the ridge is lost in rounding: for
    some data and not for others. H and g are numbers, as `check_size` holds.
    """
    weighed = phi * rho[:, None]
    gram, g = weighed.T @ (visits.counts[:, None] * phi), weighed.T @ visits.sums
    values, axes = np.linalg.eigh(gram)
    with np.errstate(all="ignore"):
        return np.asarray(axes @ ((axes.T @ g) / (np.maximum(values, 0.0) + ridge / 2.0)))


def local_lsl(
    scale: float,
    norm: float,
    rho: Floats,
    ridge: float,
    counts: NDArray[np.int64],
    m: int,
    k: NDArray[np.int64],
) -> Floats:
    """L_k, for `scale` = 2 ||Phi|| / lambda and `norm` = ||Phi||."""
    weight = np.zeros(k.shape)
    for count in np.unique(counts):
        weight += rho[counts == count].sum() * np.minimum(count + k, m)
    c = norm * float(rho.max()) / math.sqrt(2.0 * ridge)
    return scale * (c * np.sqrt(weight) + float(np.linalg.norm(rho)))
