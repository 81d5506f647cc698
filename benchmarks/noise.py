"""What noise costs per million draws: secure, reproducible, and exact on a grid.

Each is drawn in one call of a million, alternating between kinds; the median of the rounds counts.
OpenDP's exact sampler is measured in the same run when it is installed, on fewer draws.
"""

import statistics
from collections.abc import Callable, Iterator

import numpy as np

from benchmarks.measure import seconds
from privrl.privacy.noise import reproducible, secure

MILLION = 1_000_000


def run(rounds: int = 5) -> Iterator[dict[str, object]]:
    """One row for each kind of noise."""
    chacha, pcg = secure(), reproducible(0)
    kinds: dict[str, Callable[[], object]] = {
        "normal, secure": lambda: chacha.normal(1.0, (MILLION,)),
        "normal, reproducible": lambda: pcg.normal(1.0, (MILLION,)),
        "laplace, secure": lambda: chacha.laplace(1.0, (MILLION,)),
        "laplace, reproducible": lambda: pcg.laplace(1.0, (MILLION,)),
        "grid gaussian, secure": lambda: chacha.discrete_gaussian(4096, (MILLION,)),
        "grid gaussian, reproducible": lambda: pcg.discrete_gaussian(4096, (MILLION,)),
        "grid laplace, secure": lambda: chacha.discrete_laplace(4096, (MILLION,)),
    }
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for draw in kinds.values():
        draw()
    for _ in range(rounds):
        for name, draw in kinds.items():
            times[name].append(seconds(draw))
    base = statistics.median(times["normal, reproducible"])
    for name, taken in times.items():
        middle = statistics.median(taken)
        yield {
            "noise": name,
            "seconds_per_million": middle,
            "spread": [min(taken), max(taken)],
            "times_reproducible_normal": middle / base,
        }
    yield _opendp()


def _opendp(draws: int = 5000) -> dict[str, object]:
    try:
        import opendp.prelude as dp
    except ImportError:
        return {"noise": "grid gaussian, OpenDP", "not_measured": "opendp is not installed"}
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    exact = dp.m.make_gaussian(*space, scale=4096.0)
    values = np.zeros(draws, dtype=np.int64).tolist()
    exact(values)
    taken = seconds(lambda: exact(values))
    return {
        "noise": "grid gaussian, OpenDP",
        "seconds_per_million": taken * MILLION / draws,
        "draws": draws,
    }
