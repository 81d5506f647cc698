"""Algorithm 1 of Xie et al. (2019), GPOPE, line by line in NumPy.

Each trajectory has its A^, b^ and C^, averages over its steps (equation 2.2). GPOPE looks for the
saddle point of the projected Bellman error,

    min over theta, max over w, of   (b - A theta)' w - w' C w / 2,

one trajectory at a time, with a clipped and noised gradient. Draws and noise are arguments here, so
that tests can hand over those of the compiled version (`privrl.papers.xie2019.gpope`) and compare.
"""

from collections.abc import Sequence

import numpy as np

from privrl.core.types import Floats


def gpope(
    A: Floats,
    b: Floats,
    C: Floats,
    draws: Sequence[int],
    noise: Floats,
    *,
    clip: float,
    step: float,
    sigma: float,
    diminishing: bool = False,
) -> Floats:
    """Every iterate theta_2, ..., theta_{N+1}, of which the paper releases the last: (N, d).

    Args:
        A: (m, d, d), of each trajectory; C too.
        b: (m, d).
        draws: (N,) which trajectory is drawn, uniformly, in each iteration.
        noise: (N, 2d) standard normals.
        clip: h, the largest norm of a gradient.
        step: beta, the step size, or the first of them.
        sigma: the noise multiplier.
        diminishing: whether beta_i = step / i, instead of step.
    """
    d = b.shape[1]
    theta, w = np.zeros(d), np.zeros(d)  # Input; A, b and C of line 3 are arguments
    thetas = []
    for i, (x, zeta) in enumerate(zip(draws, noise, strict=True), start=1):  # lines 1 and 2
        gradient = np.concatenate([-A[x].T @ w, A[x] @ theta + C[x] @ w - b[x]])  # line 4, (4.1)
        clipped = gradient / max(1.0, float(np.linalg.norm(gradient)) / clip)  # line 5
        noised = clipped + clip * sigma * zeta  # line 6
        beta = step / i if diminishing else step
        theta, w = theta - beta * noised[:d], w - beta * noised[d:]  # line 7
        thetas.append(theta)
    return np.array(thetas)
