"""What noisy numbers are likely to be, given how much noise is in each: free post-processing.

Released are y_i = r_i + s_i z_i, z_i independent standard normal, with *public* s_i; each r_i is
known to lie from low to high. Suppose that r_i are draws from one law G. Then its likelihood,

    sum_i log int phi((y_i - r) / s_i) G(dr),

is that of a mixture, and the law that raises it most has few atoms (Kiefer and Wolfowitz 1956).
Here atoms are possible at a lattice and at the y_i themselves, and their weights go up by so many
rounds of expectation maximisation from equal ones. Each r_i is then estimated by its posterior mean
(Robbins 1956). Where the r_i are mostly alike, that tells those few apart that are not, and takes
the noise out of the rest; where they are all different, y_i stay about as they are.

Nothing here sees a private number.
"""

import numpy as np

from privrl.core.types import Floats

# Equally spaced atoms, and rounds: enough that more of either do not matter to a plan.
_LATTICE, _ROUNDS = 201, 200
_MAX_STDS = 40.0


def posterior_means(noisy: Floats, std: Floats, low: float, high: float) -> Floats:
    """The likely numbers behind `noisy` (n,), whose noise has the `std` (n,), all above 0."""
    atoms = np.union1d(np.linspace(low, high, _LATTICE), np.clip(noisy, low, high))
    # Noise never goes so far beyond the range; and what overflows has no probability at all.
    with np.errstate(over="ignore"):
        seen = np.clip(noisy, low - _MAX_STDS * std, high + _MAX_STDS * std)
        logs = -0.5 * ((seen[:, None] - atoms) / std[:, None]) ** 2
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    weights = np.full(atoms.size, 1.0 / atoms.size)
    for _ in range(_ROUNDS):
        shares = likely * weights
        shares /= shares.sum(axis=1, keepdims=True)
        weights = shares.mean(axis=0)
    return np.asarray(np.clip(shares @ atoms, low, high))
