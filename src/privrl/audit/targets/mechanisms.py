"""Targets: every shipped mechanism, on neighbours chosen to hurt.

The contributions of the people in a target go in raw, far over every bound, and come out through
the shipped clipping.
"""

import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

import numpy as np

from privrl.audit.attacks import Outputs
from privrl.audit.auditor import Target
from privrl.audit.canaries import CanaryTarget, Coins
from privrl.audit.catalogue import target
from privrl.core.types import Array
from privrl.privacy.events import Event, Repeated
from privrl.privacy.mechanisms import (
    GaussianMechanism,
    GridGaussianMechanism,
    GridLaplaceMechanism,
    LaplaceMechanism,
    clip,
)
from privrl.privacy.mechanisms.correlated import CorrelatedMechanism, Strategy
from privrl.privacy.mechanisms.functional import FunctionalMechanism
from privrl.privacy.mechanisms.functional_fields import FieldMechanism, ProductExponential
from privrl.privacy.mechanisms.piecewise import HybridMechanism, PiecewiseMechanism
from privrl.privacy.mechanisms.report_laplace import GridLaplaceReport, LaplaceReport
from privrl.privacy.mechanisms.reward_model import Cosine, RewardModelMechanism
from privrl.privacy.mechanisms.sign import ProjectedSign
from privrl.privacy.mechanisms.smooth import SmoothMechanism
from privrl.privacy.mechanisms.unit_vector import DuchiL2, PrivUnit
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation

REPLACE, LOCAL = Relation.REPLACE_ONE, Relation.LOCAL
BUDGET = Budget(4.0, 1e-5)
"""What most targets promise: large enough for an attack to come near it."""


class LocalPlan(Protocol):
    """A mechanism that reports about a row for each agent."""

    @property
    def dimension(self) -> int:
        """The length of a row."""
        ...

    @property
    def event(self) -> Event:
        """What one report costs its agent."""
        ...

    def release(self, rows: Array, source: Source) -> tuple[Array, Event]:
        """A report for each row."""
        ...


def _people(world: int, dimension: int) -> Array:
    """Three people; the last one's data is replaced, from one corner of space to the other."""
    sign = 1.0 if world else -1.0
    return np.stack([np.zeros(dimension), np.ones(dimension), np.full(dimension, 50.0 * sign)])


def _people_with_nan(world: int, dimension: int) -> Array:
    people = _people(0, dimension)
    if world:
        people[-1] = np.nan
    return people


def _repeat_total(total: Array, runs: int) -> Array:
    return np.broadcast_to(total, (runs, *total.shape))


# --- sums -----------------------------------------------------------------------------------------


@target
def gaussian() -> Target:
    plan = GaussianMechanism.from_budget(1.0, BUDGET, REPLACE)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        total = clip.l2(_people(world, 8), plan.bound).sum(axis=0)
        return plan.release(_repeat_total(total, runs), source)[0]

    return Target("gaussian", draw, (plan.event,), REPLACE)


@target
def gaussian_not_a_number() -> Target:
    plan = GaussianMechanism.from_budget(1.0, BUDGET, REPLACE)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        total = clip.l2(_people_with_nan(world, 8), plan.bound).sum(axis=0)
        return plan.release(_repeat_total(total, runs), source)[0]

    note = "one of the two neighbours is NaN"
    return Target("gaussian-not-a-number", draw, (plan.event,), REPLACE, runs=40_000, note=note)


@target
def gaussian_twice() -> Target:
    """A sum and, after it, its opposite: noise that is used twice cancels."""
    plan = GaussianMechanism.from_budget(1.0, BUDGET, REPLACE, times=2)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        total = _repeat_total(clip.l2(_people(world, 2), plan.bound).sum(axis=0), runs)
        return np.hstack([plan.release(total, source)[0], plan.release(-total, source)[0]])

    return Target("gaussian-twice", draw, (Repeated(plan.event, 2),), REPLACE)


@target
def laplace() -> Target:
    plan = LaplaceMechanism.from_budget(1.0, Budget(4.0), REPLACE)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        total = clip.l1(_people(world, 2), plan.bound).sum(axis=0)
        return plan.release(_repeat_total(total, runs), source)[0]

    totals = [clip.l1(_people(world, 2), plan.bound).sum(axis=0) for world in (0, 1)]
    ratio = _laplace_ratio(totals, plan.scale)
    return Target("laplace", draw, (plan.event,), REPLACE, delta=0.0, log_ratio=ratio)


def _laplace_ratio(centres: list[Array], scale: float) -> Callable[[Array], Array]:
    def log_ratio(rows: Array) -> Array:
        first, second = (np.abs(rows - centre).sum(axis=1) for centre in centres)
        # Rounded: far out the ratio is constant but for its last bits, and these are another attack
        # (on floating point, which certificates idealise).
        return np.asarray(np.round((first - second) / scale, 9))

    return log_ratio


@target
def grid_gaussian() -> Target:
    plan = GridGaussianMechanism.from_budget(1.0, BUDGET, REPLACE, dimension=4)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return plan.release_many(_people(world, 4), runs, source)[0]

    # Many: in several dimensions the promise is looser than the truth (`private-value-grid`).
    return Target("grid-gaussian", draw, (plan.event,), REPLACE, runs=1_200_000)


@target
def grid_laplace() -> Target:
    plan = GridLaplaceMechanism.from_budget(1.0, Budget(4.0), REPLACE, dimension=2)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return plan.release_many(_people(world, 2), runs, source)[0]

    totals = [plan.to_grid(_people(w, 2)).sum(axis=0) * plan.step for w in (0, 1)]
    ratio = _laplace_ratio(totals, plan.width * plan.step)
    return Target("grid-laplace", draw, (plan.event,), REPLACE, delta=0.0, log_ratio=ratio)


@target
def grid_gaussian_not_a_number() -> Target:
    plan = GridGaussianMechanism.from_budget(1.0, BUDGET, REPLACE, dimension=4)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return plan.release_many(_people_with_nan(world, 4), runs, source)[0]

    note = "one of the two neighbours is NaN"
    name = "grid-gaussian-not-a-number"
    return Target(name, draw, (plan.event,), REPLACE, runs=40_000, note=note)


@target
def smooth() -> Target:
    """Neighbours as far apart as smooth sensitivity allows, in value and in noise.

    Promised at a large delta: all that is promised is one point of the curve, and it should lie
    where an attack can see it.
    """
    budget = Budget(1.0, 0.02)
    plan = SmoothMechanism.from_budget(budget, 4)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        bound = math.exp(-plan.beta) if world else 1.0
        value = np.array([bound if world else 0.0, 0.0, 0.0, 0.0])
        return np.array([plan.release(value, bound, source)[0] for _ in range(runs)])

    return Target("smooth", draw, (plan.event,), REPLACE, budget.delta, runs=100_000)


# --- functions and running sums -------------------------------------------------------------------


@target
def functional() -> Target:
    """Two functions whose difference is the kernel at a point, asked all over the interval."""
    plan = FunctionalMechanism.from_budget(3.0, 0.0, 1.0, 1.0, BUDGET, REPLACE)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        sign = 1.0 if world else -1.0

        def function(x: Array) -> Array:
            # Of norm 1 = bound; each run is a component of its own over the same points.
            return np.tile(sign * np.exp(-plan.rate * np.abs(x - 0.4))[:, None], runs)

        noised, _ = plan.release(function, source, actions=runs)
        return noised(np.array([0.9, 0.1, 0.4, 0.4, 0.41, 1.0])).T

    return Target("functional", draw, (plan.event,), REPLACE)


def _field_target(name: str, points: Array, weights: Array) -> Target:
    """Two opposite functions of two variables, sums of the kernel at `points`, of norm `bound`."""
    plan = FieldMechanism.from_budget(ProductExponential((1.0, 1.0)), 1.0, BUDGET, REPLACE)
    gram = np.asarray(plan.kernel(points, points))
    scaled = weights / math.sqrt(weights @ gram @ weights)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        sign = 1.0 if world else -1.0

        def function(x: Array) -> Array:
            return np.tile((sign * (plan.kernel(x, points) @ scaled))[:, None], runs)

        return plan.release(function, source, actions=runs)[0](points).T

    return Target(name, draw, (plan.event,), REPLACE)


@target
def field() -> Target:
    return _field_target(
        "field", np.array([[0.4, 0.4], [0.9, 0.1], [0.1, 0.8]]), np.array([1.0, 0, 0])
    )


@target
def field_close() -> Target:
    """Nothing but the difference between two points that are all but the same."""
    points = np.array([[0.5, 0.5], [0.5 + 2e-15, 0.5], [0.1, 0.9]])
    return _field_target("field-close", points, np.array([1.0, -1.0, 0.0]))


@target
def reward_model() -> Target:
    """Two reward functions a radius apart everywhere."""
    points = np.linspace(0.0, 1.0, 32)
    plan = RewardModelMechanism.from_budget(0.1, BUDGET, points, Cosine(5, 0.0, 1.0))

    def draw(world: int, runs: int, source: Source) -> Outputs:
        rewards = np.sin(points) + (0.1 if world else 0.0)
        return np.array([plan.release(rewards, source)[0].coefficients for _ in range(runs)])

    return Target("reward-model", draw, (plan.event,), plan.relation, runs=40_000)


def _running_sums_target(name: str, strategy: Strategy, steps: tuple[int, ...]) -> Target:
    """Somebody takes part in `steps` of 16; each run is a coordinate of its own."""
    plan = CorrelatedMechanism.from_budget(
        1.0,
        BUDGET,
        REPLACE,
        horizon=16,
        strategy=strategy,
        participations=len(steps),
        separation=5,
        band=4 if strategy is Strategy.BANDED else None,
    )

    def draw(world: int, runs: int, source: Source) -> Outputs:
        increments = np.zeros((plan.horizon, 1))
        for step in steps:
            increments[step] = clip.l2(_people(world, 1), plan.bound).sum(axis=0)
        return plan.release(np.tile(increments, runs), source)[0].T

    return Target(name, draw, (plan.event,), REPLACE, runs=100_000)


@target
def running_sums_tree() -> Target:
    return _running_sums_target("running-sums-tree", Strategy.BINARY_TREE, (0,))


@target
def running_sums_refined_tree() -> Target:
    return _running_sums_target("running-sums-refined-tree", Strategy.REFINED_TREE, (0,))


@target
def running_sums_independent() -> Target:
    return _running_sums_target("running-sums-independent", Strategy.INDEPENDENT, (0, 5, 10))


@target
def running_sums_resumed() -> Target:
    """Saved and resumed half way; each run is a coordinate of its own."""
    plan = CorrelatedMechanism.from_budget(1.0, BUDGET, REPLACE, horizon=8)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        first = clip.l2(_people(world, 1), plan.bound).sum(axis=0)
        stream = plan.start(source, runs)
        with TemporaryDirectory() as folder:
            state = Path(folder) / "stream"
            seen = [stream.next_sum(np.tile(first, runs)).total]
            seen += [stream.noise().total for _ in range(3)]
            stream.save(state)
            resumed = plan.load(state)
        seen += [resumed.noise().total for _ in range(4)]
        return np.stack(seen, axis=1)

    return Target("running-sums-resumed", draw, (plan.event,), REPLACE, runs=100_000)


@target
def running_sums_toeplitz() -> Target:
    return _running_sums_target("running-sums-toeplitz", Strategy.SQUARE_ROOT_TOEPLITZ, (0, 5, 10))


@target
def running_sums_optimal() -> Target:
    return _running_sums_target("running-sums-optimal", Strategy.OPTIMAL, (0, 5, 10))


@target
def running_sums_banded() -> Target:
    return _running_sums_target("running-sums-banded", Strategy.BANDED, (0, 5, 10))


# --- local reports (LDP) --------------------------------------------------------------------------


def _report_target(name: str, plan: LocalPlan, scale: float = 50.0) -> Target:
    """One agent's vector against its opposite."""
    row = scale * np.linspace(0.5, 1.0, plan.dimension)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return plan.release(np.tile(row if world else -row, (runs, 1)), source)[0]

    return Target(name, draw, (plan.event,), LOCAL, delta=0.0, runs=200_000)


@target
def unit_vector() -> Target:
    plan = PrivUnit(4.0, 8, padded=False)
    row = np.linspace(0.5, 1.0, 8)
    made = _report_target("unit-vector", plan)

    def log_ratio(reports: Array) -> Array:
        # Which of the two caps a report lies in is all there is to know.
        cosine = reports @ row / (plan.length * np.linalg.norm(row))
        return np.where(cosine >= plan.cap, 1.0, 0.0) - np.where(-cosine >= plan.cap, 1.0, 0.0)

    return replace(made, log_ratio=log_ratio)


@target
def unit_vector_padded() -> Target:
    return _report_target("unit-vector-padded", PrivUnit(4.0, 8))


@target
def duchi() -> Target:
    return _report_target("duchi", DuchiL2(4.0, 8, padded=False))


@target
def piecewise() -> Target:
    return _report_target("piecewise", PiecewiseMechanism(4.0))


@target
def hybrid() -> Target:
    return _report_target("hybrid", HybridMechanism(4.0))


@target
def sign_on_the_wire() -> Target:
    """Seeds and bits as they travel; the attack may expand them like anybody else."""
    plan = ProjectedSign(4.0, 6, clip=1.0)
    row = np.full(6, 50.0)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        sent, _ = plan.reports(np.tile(row if world else -row, (runs, 1)), source)
        wire = [plan.encode(report) for report in sent]
        vectors = plan.expand([plan.decode(message) for message in wire])
        bits = np.frombuffer(b"".join(wire), dtype=np.uint8).reshape(runs, -1)
        return np.hstack([vectors, vectors.sum(axis=1, keepdims=True), bits])

    return Target("sign-on-the-wire", draw, (plan.event,), LOCAL, delta=0.0, runs=40_000)


@target
def laplace_report() -> Target:
    # Two numbers: of many, all must be extreme for the ratio to be, which is rare.
    plan = LaplaceReport(4.0, 2)
    row = np.linspace(0.5, 1.0, 2)
    centres = [sign * row * plan.radius / row.sum() for sign in (-1.0, 1.0)]
    ratio = _laplace_ratio(centres, plan.mechanism.scale)
    return replace(_report_target("laplace-report", plan), log_ratio=ratio)


@target
def grid_laplace_report() -> Target:
    """Grid steps as they travel."""
    plan = GridLaplaceReport(4.0, 2)
    row = np.array([50.0, 25.0])

    def draw(world: int, runs: int, source: Source) -> Outputs:
        sent, _ = plan.release(np.tile(row if world else -row, (runs, 1)), source)
        wire = [plan.encode(report) for report in sent]
        return np.frombuffer(b"".join(wire), dtype="<i8").reshape(runs, -1).astype(np.float64)

    centre = plan.mechanism.to_grid(row[None, :])[0].astype(np.float64)
    ratio = _laplace_ratio([-centre, centre], plan.mechanism.width)
    made = Target("grid-laplace-report", draw, (plan.event,), LOCAL, delta=0.0, runs=40_000)
    return replace(made, log_ratio=ratio)


# --- the same, compiled ---------------------------------------------------------------------------


def _compiled_target(name: str, plan: LocalPlan, module: str) -> Target:
    """The same reports from a compiled loop, driven by one of the source's keys."""
    row = 50.0 * np.linspace(0.5, 1.0, plan.dimension)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        import jax

        reports = importlib.import_module(f"privrl.privacy.mechanisms.{module}").reports
        with jax.enable_x64(True):
            rows = jax.numpy.asarray(np.tile(row if world else -row, (runs, 1)))
            return np.asarray(reports(plan, rows, source.key()))

    return Target(name, draw, (plan.event,), LOCAL, delta=0.0, runs=40_000)


@target
def unit_vector_compiled() -> Target:
    # With a larger epsilon reports outside of the cap are too rare to count.
    plan = PrivUnit(2.0, 8, padded=False)
    return _compiled_target("unit-vector-compiled", plan, "unit_vector_jax")


@target
def sign_compiled() -> Target:
    # In one dimension a report's sign is all that its seed leaves to be seen.
    return _compiled_target("sign-compiled", ProjectedSign(2.0, 1, clip=1.0), "sign_jax")


@target
def laplace_report_compiled() -> Target:
    return _compiled_target("laplace-report-compiled", LaplaceReport(4.0, 1), "report_laplace_jax")


@target
def functional_compiled() -> Target:
    """The path for compiled loops, with the same two functions as above."""
    plan = FunctionalMechanism.from_budget(3.0, 0.0, 1.0, 1.0, BUDGET, REPLACE)
    points = np.array([0.9, 0.1, 0.4, 0.4, 0.41, 1.0])

    def draw(world: int, runs: int, source: Source) -> Outputs:
        import jax

        from privrl.privacy.mechanisms import functional_jax

        sign = 1.0 if world else -1.0
        with jax.enable_x64(True):
            state = functional_jax.init(8, runs)
            _, noise = functional_jax.query(plan, state, source.key(), jax.numpy.asarray(points))
        bump = sign * np.exp(-plan.rate * np.abs(points - 0.4))
        return (np.asarray(noise) + bump[:, None]).T

    return Target("functional-compiled", draw, (plan.event,), REPLACE, runs=100_000)


@target
def running_sums_compiled() -> Target:
    plan = CorrelatedMechanism.from_budget(1.0, BUDGET, REPLACE, horizon=8)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        import jax

        from privrl.privacy.mechanisms import correlated_jax

        with jax.enable_x64(True):
            noise = np.asarray(correlated_jax.all_noise(plan, source.key(), runs))
        first = clip.l2(_people(world, 1), plan.bound).sum(axis=0)
        return np.cumsum(noise + np.eye(8)[:, :1] * first, axis=0).T

    return Target("running-sums-compiled", draw, (plan.event,), REPLACE, runs=100_000)


# --- training -------------------------------------------------------------------------------------

STEPS = 8


def _descent(plan: GaussianMechanism, goals: Array, runs: int, source: Source) -> Array:
    """Every iterate of noisy gradient descent towards the mean of `goals`, one row for each run."""
    weights = np.zeros((runs, goals.shape[1]))
    seen = []
    for _ in range(STEPS):
        gradients = goals[None, :, :] - weights[:, None, :]
        total = clip.l2(gradients, plan.bound).sum(axis=1)
        weights = weights + 0.3 * plan.release(total, source)[0] / len(goals)
        seen.append(weights)
    return np.hstack(seen)


@target
def gradient_descent() -> Target:
    """Clip, sum, noise, step: the loop that every noisy learner is made of."""
    plan = GaussianMechanism.from_budget(1.0, BUDGET, REPLACE, times=STEPS)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return _descent(plan, _people(world, 2), runs, source)

    events = (Repeated(plan.event, STEPS),)
    return Target("gradient-descent", draw, events, REPLACE, runs=100_000, note="every iterate")


@target
def gradient_descent_canaries() -> CanaryTarget:
    """The same loop with two thousand people, each of whose data a coin decides.

    Stated at a tiny delta, since guessing many coins at once pays for delta many times.
    """
    budget = Budget(4.0, 1e-10)
    plan = GaussianMechanism.from_budget(1.0, budget, REPLACE, times=STEPS)
    canaries = 2000

    def train(coins: Coins, source: Source) -> Array:
        # Each canary pulls along an axis of its own, one way or the other.
        goals = 50.0 * np.diag(np.where(coins, 1.0, -1.0))
        return np.asarray(_descent(plan, goals, 1, source)[0].reshape(STEPS, canaries)[-1])

    events = (Repeated(plan.event, STEPS),)
    name = "gradient-descent-canaries"
    return CanaryTarget(name, train, canaries, events, REPLACE, budget.delta, runs=2)
