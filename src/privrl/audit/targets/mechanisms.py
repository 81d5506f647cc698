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
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from privrl.audit.attacks import Outputs
from privrl.audit.auditor import Target
from privrl.audit.canaries import CanaryTarget, Coins
from privrl.audit.catalogue import add_target, target
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


People = Callable[[int, int], Array]
_WITH_NAN: dict[str, Any] = {
    "people": _people_with_nan,
    "runs": 40_000,
    "note": "one of the two neighbours is NaN",
}


def _repeat_total(total: Array, runs: int) -> Array:
    return np.broadcast_to(total, (runs, *total.shape))


# --- sums -----------------------------------------------------------------------------------------


def _gaussian(name: str, people: People = _people, **more: Any) -> Target:
    plan = GaussianMechanism.from_budget(1.0, BUDGET, REPLACE)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        total = clip.l2(people(world, 8), plan.bound).sum(axis=0)
        return plan.release(_repeat_total(total, runs), source)[0]

    return Target(name, draw, (plan.event,), REPLACE, **more)


add_target("gaussian", _gaussian)
add_target("gaussian-not-a-number", _gaussian, **_WITH_NAN)


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


def _grid_gaussian(name: str, people: People = _people, **more: Any) -> Target:
    plan = GridGaussianMechanism.from_budget(1.0, BUDGET, REPLACE, dimension=4)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return plan.release_many(people(world, 4), runs, source)[0]

    return Target(name, draw, (plan.event,), REPLACE, **more)


# Many: in several dimensions the promise is looser than the truth (`private-value-grid`).
add_target("grid-gaussian", _grid_gaussian, runs=1_200_000)


@target
def grid_laplace() -> Target:
    plan = GridLaplaceMechanism.from_budget(1.0, Budget(4.0), REPLACE, dimension=2)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return plan.release_many(_people(world, 2), runs, source)[0]

    totals = [plan.to_grid(_people(w, 2)).sum(axis=0) * plan.step for w in (0, 1)]
    ratio = _laplace_ratio(totals, plan.width * plan.step)
    return Target("grid-laplace", draw, (plan.event,), REPLACE, delta=0.0, log_ratio=ratio)


add_target("grid-gaussian-not-a-number", _grid_gaussian, **_WITH_NAN)


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


def _field(name: str, places: ArrayLike, weights: ArrayLike) -> Target:
    """Two opposite functions of two variables, sums of the kernel at `places`, of norm `bound`."""
    plan = FieldMechanism.from_budget(ProductExponential((1.0, 1.0)), 1.0, BUDGET, REPLACE)
    points, given = np.asarray(places), np.asarray(weights)
    gram = np.asarray(plan.kernel(points, points))
    scaled = given / math.sqrt(given @ gram @ given)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        sign = 1.0 if world else -1.0

        def function(x: Array) -> Array:
            return np.tile((sign * (plan.kernel(x, points) @ scaled))[:, None], runs)

        return plan.release(function, source, actions=runs)[0](points).T

    return Target(name, draw, (plan.event,), REPLACE)


add_target("field", _field, [[0.4, 0.4], [0.9, 0.1], [0.1, 0.8]], [1.0, 0.0, 0.0])
# Nothing but the difference between two points that are all but the same.
_CLOSE = [[0.5, 0.5], [0.5 + 2e-15, 0.5], [0.1, 0.9]]
add_target("field-close", _field, _CLOSE, [1.0, -1.0, 0.0])


@target
def reward_model() -> Target:
    """Two reward functions a radius apart everywhere."""
    points = np.linspace(0.0, 1.0, 32)
    plan = RewardModelMechanism.from_budget(0.1, BUDGET, points, Cosine(5, 0.0, 1.0))

    def draw(world: int, runs: int, source: Source) -> Outputs:
        rewards = np.sin(points) + (0.1 if world else 0.0)
        return np.array([plan.release(rewards, source)[0].coefficients for _ in range(runs)])

    return Target("reward-model", draw, (plan.event,), plan.relation, runs=40_000)


def _running_sums(name: str, strategy: Strategy, steps: tuple[int, ...]) -> Target:
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


add_target("running-sums-tree", _running_sums, Strategy.BINARY_TREE, (0,))
add_target("running-sums-refined-tree", _running_sums, Strategy.REFINED_TREE, (0,))
add_target("running-sums-independent", _running_sums, Strategy.INDEPENDENT, (0, 5, 10))


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


add_target("running-sums-toeplitz", _running_sums, Strategy.SQUARE_ROOT_TOEPLITZ, (0, 5, 10))
add_target("running-sums-optimal", _running_sums, Strategy.OPTIMAL, (0, 5, 10))
add_target("running-sums-banded", _running_sums, Strategy.BANDED, (0, 5, 10))


# --- local reports (LDP) --------------------------------------------------------------------------


def _report(name: str, make: Callable[..., LocalPlan], *settings: Any, **more: Any) -> Target:
    """One agent's vector against its opposite."""
    plan = make(*settings, **more)
    row = 50.0 * np.linspace(0.5, 1.0, plan.dimension)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        return plan.release(np.tile(row if world else -row, (runs, 1)), source)[0]

    return Target(name, draw, (plan.event,), LOCAL, delta=0.0, runs=200_000)


@target
def unit_vector() -> Target:
    plan = PrivUnit(4.0, 8, padded=False)
    row = np.linspace(0.5, 1.0, 8)

    def log_ratio(reports: Array) -> Array:
        # Which of the two caps a report lies in is all there is to know.
        cosine = reports @ row / (plan.length * np.linalg.norm(row))
        return np.where(cosine >= plan.cap, 1.0, 0.0) - np.where(-cosine >= plan.cap, 1.0, 0.0)

    return replace(_report("unit-vector", lambda: plan), log_ratio=log_ratio)


add_target("unit-vector-padded", _report, PrivUnit, 4.0, 8)
add_target("duchi", _report, DuchiL2, 4.0, 8, padded=False)
add_target("piecewise", _report, PiecewiseMechanism, 4.0)
add_target("hybrid", _report, HybridMechanism, 4.0)


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
    return replace(_report("laplace-report", lambda: plan), log_ratio=ratio)


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


def _compiled(
    name: str, module: str, make: Callable[..., LocalPlan], *settings: Any, **more: Any
) -> Target:
    """The same reports from a compiled loop, driven by one of the source's keys."""
    plan = make(*settings, **more)
    row = 50.0 * np.linspace(0.5, 1.0, plan.dimension)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        import jax

        reports = importlib.import_module(f"privrl.privacy.mechanisms.{module}").reports
        with jax.enable_x64(True):
            rows = jax.numpy.asarray(np.tile(row if world else -row, (runs, 1)))
            return np.asarray(reports(plan, rows, source.key()))

    return Target(name, draw, (plan.event,), LOCAL, delta=0.0, runs=40_000)


# With a larger epsilon reports outside of the cap are too rare to count.
add_target("unit-vector-compiled", _compiled, "unit_vector_jax", PrivUnit, 2.0, 8, padded=False)
# In one dimension a report's sign is all that its seed leaves to be seen.
add_target("sign-compiled", _compiled, "sign_jax", ProjectedSign, 2.0, 1, clip=1.0)
add_target("laplace-report-compiled", _compiled, "report_laplace_jax", LaplaceReport, 4.0, 1)


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
