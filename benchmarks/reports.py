"""Local reports about unit vectors of 112 dimensions: error against theory, and time per report.

Errors are means over 20,000 reports about fresh dense unit vectors (normal, then scaled to norm 1),
next to the closed form and to the figures of an earlier study with other code, which divided
projected signs by their measured slope. `ratio` is the error over PrivUnit's at the same epsilon,
in closed form.

Times are microseconds per report in batches of 1,000 agents, NumPy (ChaCha20) and compiled JAX
alternating in one run, with compile time apart. Processor time is given beside the time on the
clock, since it says more on a machine that is busy with other things.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from benchmarks.measure import compare, seconds
from privrl.core.types import Array
from privrl.privacy.mechanisms.piecewise import HybridMechanism, PiecewiseMechanism
from privrl.privacy.mechanisms.report_laplace import GridLaplaceReport, LaplaceReport
from privrl.privacy.mechanisms.sign import ProjectedSign
from privrl.privacy.mechanisms.unit_vector import DuchiL2, PrivUnit
from privrl.privacy.noise import Source, secure

DIMENSION = 112
REPORTS = 20_000
AGENTS = 1_000
EPSILONS = (1.0, 2.0, 5.0, 10.0)

Plan = LaplaceReport | GridLaplaceReport | ProjectedSign | PiecewiseMechanism | PrivUnit

# Name, how to build the plan, and what the earlier study measured at each epsilon.
_MEAN_L1 = math.sqrt(2.0 * DIMENSION / math.pi)  # of a dense unit vector: what an oracle would set
ROWS: list[tuple[str, Callable[[float], Plan], tuple[float, ...] | None]] = [
    (
        "Laplace, L1 radius sqrt(d)",
        lambda e: LaplaceReport(e, DIMENSION, math.sqrt(DIMENSION)),
        (100_028, 25_101, 4_018, 1_002),
    ),
    (
        "Laplace, L1 radius sqrt(2d/pi), clipping about half",
        lambda e: LaplaceReport(e, DIMENSION, _MEAN_L1),
        (63_898, 16_003, 2_552, 640),
    ),
    (
        "Laplace on a grid, L1 radius sqrt(d)",
        lambda e: GridLaplaceReport(e, DIMENSION, math.sqrt(DIMENSION)),
        None,
    ),
    (
        "projected sign as printed, C = 1, divided by its shrinking",
        lambda e: ProjectedSign(e, DIMENSION, debias=False),
        (1_133, 408, 166, 82.7),
    ),
    (
        "projected sign, C = 1, debiased",
        lambda e: ProjectedSign(e, DIMENSION),
        (1_133, 408, 166, 82.7),
    ),
    (
        "projected sign, C = 0.1, debiased",
        lambda e: ProjectedSign(e, DIMENSION, 0.1),
        (790, 295, 122, 61.1),
    ),
    (
        "Duchi L2",
        lambda e: DuchiL2(e, DIMENSION, padded=False),
        (819, 301, 179, 174),
    ),
    ("piecewise, range 1", lambda e: PiecewiseMechanism(e, DIMENSION), None),
    ("piecewise, range 0.35", lambda e: PiecewiseMechanism(e, DIMENSION, 0.35), None),
    (
        "hybrid, range 1",
        lambda e: HybridMechanism(e, DIMENSION),
        (53_939, 13_228, 4_116, 2_056),
    ),
    (
        "hybrid, range 0.35",
        lambda e: HybridMechanism(e, DIMENSION, 0.35),
        (6_684, 1_723, 550, 277),
    ),
    (
        "PrivUnit, unpadded",
        lambda e: PrivUnit(e, DIMENSION, padded=False),
        (705, 180, 32.1, 10.0),
    ),
    ("PrivUnit, padded", lambda e: PrivUnit(e, DIMENSION), (705, 180, 32.1, 10.0)),
]


def run(rounds: int = 7) -> Iterator[dict[str, object]]:
    """Errors first, then times."""
    source = secure()
    best = {e: PrivUnit(e, DIMENSION, padded=False).error for e in EPSILONS}
    for name, build, reference in ROWS:
        for i, epsilon in enumerate(EPSILONS):
            plan = build(epsilon)
            measured, spread = _error(plan, source)
            theory = _theory(plan)
            yield {
                "mechanism": name,
                "epsilon": epsilon,
                "measured": measured,
                "standard_error": spread,
                "theory": theory,
                "earlier_study": reference[i] if reference else None,
                "ratio": theory / best[epsilon],
            }
    yield from _times(source, rounds)


def _vectors(source: Source, count: int) -> Array:
    rows = source.normal(1.0, (count, DIMENSION))
    return np.asarray(rows / np.sqrt(np.sum(rows**2, axis=1, keepdims=True)))


def _error(plan: Plan, source: Source) -> tuple[float, float]:
    """Mean squared error over `REPORTS` reports, and its standard error."""
    parts = []
    for _ in range(REPORTS // AGENTS):
        rows = _vectors(source, AGENTS)
        reports, _ = plan.release(rows, source)
        if isinstance(plan, ProjectedSign) and not plan.debias:
            reports = reports / plan.shrinkage
        parts.append(np.sum((reports - rows) ** 2, axis=1))
    squares = np.concatenate(parts)
    return float(np.mean(squares)), float(np.std(squares) / math.sqrt(squares.size))


def _theory(plan: Plan) -> float:
    """The closed form; for a piecewise plan it depends on the row's norm alone."""
    if isinstance(plan, PiecewiseMechanism):
        return plan.error(np.full(DIMENSION, 1.0 / math.sqrt(DIMENSION)))
    if isinstance(plan, ProjectedSign) and not plan.debias:
        return ProjectedSign(plan.epsilon, DIMENSION, plan.clip).error
    return plan.error


def _times(source: Source, rounds: int) -> Iterator[dict[str, object]]:
    from privrl.privacy.mechanisms import report_laplace_jax, sign_jax, unit_vector_jax

    rows = _vectors(source, AGENTS)
    for epsilon in (1.0, 10.0):
        compiled: list[tuple[str, Plan, Callable[..., object]]] = [
            ("Laplace", LaplaceReport(epsilon, DIMENSION), report_laplace_jax.reports),
            ("projected sign", ProjectedSign(epsilon, DIMENSION), sign_jax.reports),
            ("PrivUnit, padded", PrivUnit(epsilon, DIMENSION), unit_vector_jax.reports),
        ]
        for name, plan, reports in compiled:
            yield {
                "mechanism": name,
                "epsilon": epsilon,
                **_both(plan, reports, rows, source, rounds),
            }
        others: list[tuple[str, Plan]] = [
            ("Laplace on a grid", GridLaplaceReport(epsilon, DIMENSION)),
            ("hybrid", HybridMechanism(epsilon, DIMENSION)),
            ("Duchi L2", DuchiL2(epsilon, DIMENSION)),
        ]
        for name, plan in others:
            release = partial(plan.release, rows, source)
            release()
            times = [seconds(release) for _ in range(rounds)]
            yield {
                "mechanism": name,
                "epsilon": epsilon,
                "numpy_us_per_report": _per_report(statistics.median(times)),
                "spread": [_per_report(min(times)), _per_report(max(times))],
                "numpy_processor_us_per_report": _processor_time(release, rounds),
            }


def _both(
    plan: Plan, reports: Callable[..., object], rows: Array, source: Source, rounds: int
) -> dict[str, object]:
    """NumPy and compiled JAX in turn."""
    import jax

    with jax.enable_x64(True):
        given, key = jax.numpy.asarray(rows), source.key()
        run_jax = jax.jit(partial(reports, plan))

        def in_jax() -> object:
            return run_jax(given, key).block_until_ready()

        release = partial(plan.release, rows, source)
        first = seconds(in_jax)
        taken = compare(release, in_jax, rounds)
        processor = [_processor_time(work, rounds) for work in (release, in_jax)]
    return {
        "numpy_us_per_report": _per_report(taken["ours_s"]),
        "jax_us_per_report": _per_report(taken["theirs_s"]),
        "jax_over_numpy": taken["ratio"],
        "jax_over_numpy_quartiles": taken["ratio_quartiles"],
        "numpy_processor_us_per_report": processor[0],
        "jax_processor_us_per_report": processor[1],
        "jax_compile_s": first,
        "rounds": rounds,
    }


def _processor_time(work: Callable[[], object], rounds: int) -> float:
    """The median over rounds, in microseconds per report, of all threads together."""
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return _per_report(statistics.median(times))


def _per_report(taken: object) -> float:
    assert isinstance(taken, float)
    return taken / AGENTS * 1e6
