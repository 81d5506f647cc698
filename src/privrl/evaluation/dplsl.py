"""DP-LSL (Balle, Gomrokchi, Precup 2016): regularised least squares, output perturbed.

With first-visit returns F_{x,s} and numbers of visitors n_s as in `dplsw`, public rho_s >= 0, and a
ridge lambda, theta minimises

    sum over x, and s in x, of rho_s (F_{x,s} - phi_s' theta)^2  +  lambda/2 ||theta||^2,

    theta = H^-1 g,  H = sum_s rho_s n_s phi_s phi_s' + lambda/2 I,  g = sum_s rho_s n_s F_s phi_s,

and is released with N(0, (alpha S(X))^2 I).

Unit and relation: as for `DPLSW`. Sensitivity: exchange x for x', write theta' for the new solution
and v_s = phi_s' theta. Then H' (theta' - theta) = (g' - g) - (H' - H) theta
= sum_s rho_s phi_s u_s with u_s = [s in x'] (F_{x',s} - v_s) - [s in x] (F_{x,s} - v_s). Returns
lie in an interval of width W that contains 0, so |u_s| <= W + |v_s|; ||H'^-1|| <= 2/lambda; and

    ||theta' - theta||  <=  2/lambda ||Phi|| (W ||rho||_2 + ||rho||_inf ||Phi|| ||theta||).

H is B'B + lambda/2 I and g is B'y, the rows of B being sqrt(rho_s) phi_s' and y = sqrt(rho_s)
F_{x,s}, so that ||theta|| <= ||y|| / sqrt(2 lambda) <= W sqrt(sum_s rho_s n_s / (2 lambda)). Since
k exchanges raise n_s by at most k, and to at most m,

    L_k  =  2 W ||Phi|| / lambda (c sqrt(sum_s rho_s min(n_s + k, m)) + ||rho||_2),
    c    =  ||Phi|| ||rho||_inf / sqrt(2 lambda),

bounds the local sensitivity k exchanges away, and L_k(X) <= L_{k+1}(X') for neighbours. Theorem:
`privrl.privacy.mechanisms.smooth`.

With the published constants it is `privrl.papers.xie2019.DPLSL`.

Released, clipped and refused: as for `DPLSW`. States must be a table: Phi has a row for each.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.types import Floats
from privrl.evaluation.dplsw import OutputPerturbation, Solution, Visits


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
        low, high = self.returns_range()
        norm = float(np.linalg.norm(phi, 2))
        scale = 2.0 * (high - low) * norm / self.denominator(ridge, norm, float(rho.max()))
        return Solution(
            theta,
            lambda k: local_lsl(scale, norm, rho, ridge, visits.counts, m, k),
            {"ridge": ridge},
        )

    def denominator(self, ridge: float, norm: float, largest: float) -> float:
        """That of L_k, for ||Phi|| = `norm` and ||rho||_inf = `largest`."""
        return ridge


def solution(phi: Floats, rho: Floats, ridge: float, visits: Visits) -> Floats:
    """theta, whatever was visited: H is inverted along its axes, each lambda/2 long at least.

    A general solver would find H singular, and say so, where the ridge is lost in rounding: for
    some data and not for others. Where H or g is too large for numbers, theta counts as 0.
    """
    with np.errstate(all="ignore"):
        weighed = phi * rho[:, None]
        gram, g = weighed.T @ (visits.counts[:, None] * phi), weighed.T @ visits.sums
    if not (np.all(np.isfinite(gram)) and np.all(np.isfinite(g))):
        return np.zeros(g.shape)
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
    """L_k, for `scale` = 2 W ||Phi|| / lambda and `norm` = ||Phi||."""
    weight = np.zeros(k.shape)
    for count in np.unique(counts):
        weight += rho[counts == count].sum() * np.minimum(count + k, m)
    c = norm * float(rho.max()) / math.sqrt(2.0 * ridge)
    return scale * (c * np.sqrt(weight) + float(np.linalg.norm(rho)))
