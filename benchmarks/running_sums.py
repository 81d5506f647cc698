"""Correlated against independent noise on running sums: how much smaller the error, and how fast.

Error: root mean square over all steps of the noise on the running sum, one participation,
epsilon 1, delta 1e-5, replace-one. `exact` is from the plan's standard deviations; `matrix` is from
the dense matrices, |B| times the largest column of M, where M is simple to write down; `simulated`
is from streams of both kinds of noise, 1000 coordinates wide. First come the rows that compare the
optimal strategy with the square root.

Speed: a whole stream of 4,096 steps of 1000 coordinates, drawing included, against drawing all z
and multiplying them by the dense matrix B, whose making is not counted.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import solve_triangular, toeplitz

from benchmarks.measure import compare, seconds
from privrl.core.types import Array
from privrl.privacy import Budget, epsilon, second_accountant
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism, Strategy
from privrl.privacy.mechanisms.correlated_factorisations import (
    LONGEST_OPTIMAL,
    optimal,
    square_root,
)
from privrl.privacy.noise import Source, secure

BUDGET = Budget(1.0, 1e-5)
LONG, WIDE = 4096, 1000


def run() -> Iterator[dict[str, object]]:
    """Rows of errors, then rows of seconds."""
    for horizon in (10, 50, 200):
        yield _optimal(horizon)
    for horizon in (10, 32, LONG):
        yield from _errors(horizon)
    source = secure()
    for strategy, band in _kinds(LONG):
        if strategy is not Strategy.INDEPENDENT:
            yield _speed(CorrelatedMechanism(1.0, 1.0, LONG, strategy, band), source)
    longest = CorrelatedMechanism(1.0, 1.0, 65536)
    yield {
        "speed": "square-root-toeplitz, 65,536 steps of 1,000",
        "ours_s": seconds(lambda: _stream(longest, source)),
    }
    yield from _compiled()


def _kinds(horizon: int) -> list[tuple[Strategy, int | None]]:
    bands = [band for band in (16, 64, 512) if band < horizon]
    others = [s for s in Strategy if s is not Strategy.BANDED]
    if horizon > LONGEST_OPTIMAL:
        others.remove(Strategy.OPTIMAL)
    return [(s, None) for s in others] + [(Strategy.BANDED, band) for band in bands]


def _errors(horizon: int) -> Iterator[dict[str, object]]:
    base: dict[str, float] = {}
    for strategy, band in _kinds(horizon):
        plan = CorrelatedMechanism.from_budget(
            1.0, BUDGET, horizon=horizon, strategy=strategy, band=band
        )
        totals, _ = plan.release(np.zeros((horizon, WIDE)), secure())
        found = {"exact": _rms(plan.errors()), "simulated": _rms(totals)}
        if strategy not in (Strategy.REFINED_TREE, Strategy.OPTIMAL):
            M = _matrix(plan)
            per_unit = np.linalg.norm(_times_inverse(M)) / math.sqrt(horizon)
            found["matrix"] = float(per_unit * np.linalg.norm(M, axis=0).max())
        base = base or found
        yield {
            "error": str(strategy) + (f", band {band}" if band else ""),
            "horizon": horizon,
            "epsilon": epsilon(plan.event, BUDGET.delta),
            "rms": found["exact"],
            **{f"gain_{how}": base[how] / value for how, value in found.items()},
        }


def _optimal(horizon: int) -> dict[str, object]:
    """The optimal strategy against the square root, and the bound that no strategy goes below.

    `rms` and `last` are of the optimal strategy, over all running sums and of the last, relative to
    the square root's; `above_bound` is how far its rms is above the dual bound of `optimal`.
    """
    optimal.cache_clear()
    taken = seconds(lambda: optimal(horizon))
    best, root = (
        CorrelatedMechanism.from_budget(1.0, BUDGET, horizon=horizon, strategy=strategy)
        for strategy in (Strategy.OPTIMAL, Strategy.SQUARE_ROOT_TOEPLITZ)
    )
    M, A = optimal(horizon)[1], np.tril(np.ones((horizon, horizon)))
    inverse = np.linalg.inv(M.T @ M)
    v = np.diagonal(inverse @ A.T @ A @ inverse)
    least = np.linalg.svd(A * np.sqrt(v), compute_uv=False).sum() / math.sqrt(v.sum() * horizon)
    own = _rms(best.errors()) * best.sensitivity / best.std
    bracket = second_accountant.bracket(best.event, BUDGET.delta)
    return {
        "error": "optimal against square-root-toeplitz",
        "horizon": horizon,
        "rms": _rms(best.errors()) / _rms(root.errors()),
        "last": float(best.errors()[-1] / root.errors()[-1]),
        "above_bound": float(own / least) - 1.0,
        "epsilon": epsilon(best.event, BUDGET.delta),
        "floor": bracket.floor,
        "ceiling": bracket.ceiling,
        "factorisation_s": taken,
    }


def _rms(values: Array) -> float:
    return math.sqrt(float(np.mean(values**2)))


def _matrix(plan: CorrelatedMechanism) -> Array:
    """M, dense."""
    if plan.strategy is Strategy.BINARY_TREE:
        ends, steps = np.arange(1, plan.horizon + 1)[:, None], np.arange(1, plan.horizon + 1)
        return ((steps <= ends) & (steps > ends - (ends & -ends))).astype(float)
    column = np.zeros(plan.horizon)
    kept = 1 if plan.strategy is Strategy.INDEPENDENT else plan.band or plan.horizon
    column[:kept] = square_root(kept)
    return np.asarray(toeplitz(column, np.zeros(plan.horizon)))


def _times_inverse(M: Array) -> Array:
    """B = A M^-1, dense."""
    A = np.tril(np.ones(M.shape))
    return np.asarray(solve_triangular(M, A.T, trans="T", lower=True)).T


def _stream(plan: CorrelatedMechanism, source: Source) -> None:
    stream, nothing = plan.start(source, WIDE), np.zeros(WIDE)
    for _ in range(plan.horizon):
        stream.next_sum(nothing)


def _speed(plan: CorrelatedMechanism, source: Source) -> dict[str, object]:
    # The time of a dense product does not depend on what is in the matrix.
    B = np.tril(np.ones((LONG, LONG)))
    drawn: Callable[[], object] = lambda: B @ source.normal(1.0, (LONG, WIDE))  # noqa: E731
    strategy = str(plan.strategy) + (f", band {plan.band}" if plan.band else "")
    return {
        "speed": f"{strategy}, 4,096 steps of 1,000",
        **compare(lambda: _stream(plan, source), drawn, rounds=5),
        "drawing_alone_s": seconds(lambda: source.normal(1.0, (LONG, WIDE))),
    }


def _compiled() -> Iterator[dict[str, object]]:
    import jax

    from privrl.privacy.mechanisms import correlated_jax

    plan = CorrelatedMechanism(1.0, 1.0, LONG)

    def scanned(key: jax.Array) -> jax.Array:
        state = correlated_jax.init(plan, key, WIDE)
        return jax.lax.scan(lambda s, _: correlated_jax.next(s), state, length=LONG)[1]

    def at_once(key: jax.Array) -> jax.Array:
        return correlated_jax.all_noise(plan, key, WIDE)

    key = secure().key()
    for name, work in (("scan", scanned), ("all_noise", at_once)):
        with jax.enable_x64(True):
            compiled = jax.jit(work)
            first = seconds(lambda f=compiled: f(key).block_until_ready())  # type: ignore[misc]
            taken = [
                seconds(lambda f=compiled: f(key).block_until_ready())  # type: ignore[misc]
                for _ in range(3)
            ]
        yield {
            "speed": f"square-root-toeplitz, compiled, {name}, 4,096 steps of 1,000",
            "ours_s": sorted(taken)[1],
            "spread": [min(taken), max(taken)],
            "compile_s": first - sorted(taken)[1],
        }
