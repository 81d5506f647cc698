"""Wang and Hegde (2019), "Privacy-preserving Q-learning with functional noise", run again.

What is printed: Figure 1, learning curves at six noise levels with one path for the whole run
(J = 1) and with a fresh one for each batch (J = T / B), averaged over ten seeds. There is no number
to compare them with; what the text says of their order is in `printed.STATEMENTS`, and `verdicts`
says whether it holds here.

What is not printed, and what stands here for it: everything about the task, the network and its
learning is from the authors' public code (`FunctionalQ.public_code`), which differs from
Algorithm 1 (`FunctionalQ.printed`) in most that matters. Its sigmas are those of the figure, and
its beta is 1, not Theorem 5's. It resets the path with each episode, which makes J = 100; read as
printed J = T / B is 39. And its path has a wrong right edge, so all is run with both edges.

None of this is certified, and no claim holds for these sigmas: Theorem 5 asks for more. The
certified algorithms are judged on the same task in `privrl.papers.wang2019.certified`. Rows are
plain dictionaries, for JSON.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from privrl.core.errors import InputError
from privrl.envs import Interval
from privrl.papers.wang2019.fast import train
from privrl.papers.wang2019.learner import FunctionalQ
from privrl.papers.wang2019.printed import SIGMAS, STATEMENTS
from privrl.papers.wang2019.spec import Edge

Row = dict[str, Any]
Preset = Literal["printed", "public-code"]

RESETS: dict[Preset, tuple[int, ...]] = {"printed": (1, 39), "public-code": (1, 39, 100)}
"""J = 1 and J = T / B; the public code has a path for each of its 100 episodes."""

LAST = 10
"""Episodes at the end that count as what was learned."""

OPTIMUM = 20.71
"""The best return there is, by value iteration: always towards the middle. Acting at random earns
10.86."""


def learner(preset: Preset, resets: int, edge: Edge = "correct") -> FunctionalQ:
    """The settings of a curve but for its sigma."""
    if preset not in get_args(Preset):
        raise InputError(f"must be 'printed' or 'public-code', not {preset!r}.", field="preset")
    make = FunctionalQ.printed if preset == "printed" else FunctionalQ.public_code
    return make(resets=resets, sigma=0.0, rate=1.0, edge=edge)


def keys(seeds: Iterable[int]) -> jax.Array:
    """A key for each seed, so that a seed means the same world at every noise level."""
    return jnp.stack([jax.random.key(seed) for seed in seeds])


def figure_1(
    seeds: Sequence[int],
    presets: Sequence[Preset] = get_args(Preset),
    edges: Sequence[Edge] = get_args(Edge),
) -> Iterator[Row]:
    """The curves of Figure 1, as printed and as coded, with the right and the wrong edge."""
    count = len(seeds)
    curves = [(preset, resets) for preset in presets for resets in RESETS[preset]]
    for (preset, resets), edge in product(curves, edges):
        settings: dict[str, Any] = {"sigma": np.repeat(SIGMAS, count)}
        chosen = learner(preset, resets, edge)
        found = train(keys(list(seeds) * len(SIGMAS)), chosen, Interval(), settings)
        for sigma, returns in zip(SIGMAS, np.split(found.returns, len(SIGMAS)), strict=True):
            yield {
                "experiment": "figure 1",
                "preset": preset,
                "resets": resets,
                "edge": edge,
                "sigma": sigma,
                "runs": count,
                **_summary("last", returns[:, -LAST:].mean(axis=1)),
                **_summary("mean", returns.mean(axis=1)),
                "curve": [float(part.mean()) for part in np.array_split(returns, 10, axis=1)],
            }


def _summary(name: str, values: NDArray[np.float64]) -> Row:
    """Of a number for each run: the mean, and the standard deviation where there are several."""
    deviation = float(values.std(ddof=1)) if values.size > 1 else None
    return {f"{name}_return": float(values.mean()), f"{name}_deviation": deviation}


def verdicts(rows: Iterable[Row]) -> Iterator[Row]:
    """Whether what the text says holds, by preset and edge, from rows of at least two runs each.

    Differences count that are larger than two standard errors.
    """
    found: dict[tuple[Preset, Edge], dict[tuple[int, float], Row]] = {}
    for row in rows:
        if row["runs"] < 2:
            raise InputError("A verdict needs at least two runs of each.")
        curves = found.setdefault((row["preset"], row["edge"]), {})
        curves[row["resets"], row["sigma"]] = row
    for (preset, edge), curves in found.items():
        many = sorted({resets for resets, _ in curves} - {1})
        about = {"experiment": "figure 1, what is said", "preset": preset, "edge": edge}
        for resets in many:
            # The mean over the whole curve: who learns later has less of it.
            falls = [_z_score(curves[resets, a], curves[resets, b], "mean") for a, b in _STEPS]
            whole = _z_score(curves[resets, SIGMAS[0]], curves[resets, SIGMAS[-1]], "mean")
            yield {
                **about,
                "resets": resets,
                "said": STATEMENTS[0],
                "holds": whole > 2.0 and min(falls) > -2.0,
                "standard_errors": [round(one, 2) for one in falls],
            }
            least = min(curves[resets, s]["last_return"] for s in SIGMAS if s <= 0.4)
            share = least / OPTIMUM
            yield {
                **about,
                "resets": resets,
                "said": STATEMENTS[1],
                "holds": share > _LIMITED_SHARE,
                "share": round(share, 3),
            }
            gains = [_z_score(curves[resets, s], curves[1, s], "last") for s in SIGMAS[1:]]
            yield {
                **about,
                "resets": resets,
                "said": STATEMENTS[2],
                # One number for all levels: a sum of so many of variance 1.
                "holds": sum(gains) / math.sqrt(len(gains)) > 2.0,
                "standard_errors": [round(one, 2) for one in gains],
            }


_STEPS = tuple(pairwise(SIGMAS))
# What is left of the best return, for the loss to be called limited.
_LIMITED_SHARE = 0.9


def _z_score(first: Row, second: Row, name: str) -> float:
    """By how many standard errors the first is above the second."""
    variances = [row[f"{name}_deviation"] ** 2 / row["runs"] for row in (first, second)]
    difference: float = first[f"{name}_return"] - second[f"{name}_return"]
    return difference / max(math.sqrt(sum(variances)), 1e-9)
