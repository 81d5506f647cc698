"""Correlated against independent noise on running sums: how much smaller the error, and how fast.

Error: root mean square over all steps of the noise on the running sum, one participation,
epsilon 1, delta 1e-5, replace-one. `exact` is from the plan's standard deviations; `matrix` is from
the dense matrices, |B| times the largest column of M, where M is simple to write down; `simulated`
is from streams of both kinds of noise, 1000 coordinates wide.

Speed: a whole stream of 4,096 steps of 1000 coordinates, drawing included, against drawing all z
and multiplying them by the dense matrix B, whose making is not counted.
"""

import math
from collections.abc import Callable, Iterator

import numpy as np
from scipy.linalg import solve_triangular, toeplitz

from benchmarks.measure import compare, seconds
from tacit.privacy import Budget, epsilon
from tacit.privacy.grid import Array
from tacit.privacy.mechanisms.correlated import CorrelatedMechanism, Strategy, square_root
from tacit.privacy.noise import Source, secure

BUDGET = Budget(1.0, 1e-5)
LONG, WIDE = 4096, 1000


def run() -> Iterator[dict[str, object]]:
    """Rows of errors, then rows of seconds."""
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
    return [(s, None) for s in others] + [(Strategy.BANDED, band) for band in bands]


def _errors(horizon: int) -> Iterator[dict[str, object]]:
    base: dict[str, float] = {}
    for strategy, band in _kinds(horizon):
        plan = CorrelatedMechanism.calibrated(
            1.0, BUDGET, horizon=horizon, strategy=strategy, band=band
        )
        totals, _ = plan.release(np.zeros((horizon, WIDE)), secure())
        found = {"exact": _rms(plan.errors()), "simulated": _rms(totals)}
        if strategy is not Strategy.REFINED_TREE:
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

    from tacit.privacy.mechanisms import correlated_jax

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
