"""Mechanisms: what is calibrated, what it says it costs, and what it releases at a seed."""

from typing import Any

import numpy as np

from privrl.audit import Target, audit
from privrl.audit.catalogue import find
from privrl.privacy import Budget, Relation
from privrl.privacy.mechanisms import (
    CorrelatedMechanism,
    DuchiL2,
    FeatureKernel,
    FieldMechanism,
    FunctionalMechanism,
    GaussianMechanism,
    GridGaussianMechanism,
    GridLaplaceMechanism,
    GridLaplaceReport,
    HybridMechanism,
    LaplaceMechanism,
    LaplaceReport,
    PiecewiseMechanism,
    PrivUnit,
    ProductExponential,
    ProjectedSign,
    RewardModelMechanism,
    SmoothMechanism,
    Strategy,
)
from privrl.privacy.mechanisms.reward_model import Cosine
from privrl.privacy.noise import reproducible
from tests.golden.running import Cases

CASES = Cases()

BUDGETS = (Budget(0.5, 1e-6), Budget(3.0, 1e-4))
ROWS = np.random.default_rng(5).uniform(-0.4, 0.4, (6, 3))


def _made(plan: Any, value: Any) -> Any:
    released, event = plan.release(value, reproducible(11))
    shown = {
        name: getattr(plan, name)
        for name in (
            "std",
            "scale",
            "width",
            "step",
            "bound",
            "sensitivity",
            "error",
            "alpha",
            "beta",
        )
        if hasattr(plan, name)
    }
    return shown | {"event": event, "released": released}


@CASES.case
def mechanism_sums() -> Any:
    found: dict[str, Any] = {}
    for budget in BUDGETS:
        for relation in (Relation.REPLACE_ONE, Relation.ADD_REMOVE):
            at = f"{budget.epsilon}, {budget.delta}, {relation}"
            for times in (1, 7):
                gaussian = GaussianMechanism.from_budget(2.0, budget, relation, times=times)
                found[f"gaussian at {at}, {times}"] = _made(gaussian, ROWS.sum(axis=0))
                laplace = LaplaceMechanism.from_budget(2.0, budget, relation, times=times)
                found[f"laplace at {at}, {times}"] = _made(laplace, ROWS.sum(axis=0))
            for name, kind in (
                ("gaussian", GridGaussianMechanism),
                ("laplace", GridLaplaceMechanism),
            ):
                grid = kind.from_budget(1.0, budget, relation, dimension=3)
                found[f"grid {name} at {at}"] = _made(grid, ROWS)
    return found


@CASES.case
def mechanism_running_sums() -> Any:
    found: dict[str, Any] = {}
    for strategy in Strategy:
        band = 4 if strategy is Strategy.BANDED else None
        for times in (1, 3):
            plan = CorrelatedMechanism.from_budget(
                1.0, BUDGETS[0], horizon=12, strategy=strategy, band=band, participations=times,
                separation=4,
            )  # fmt: skip
            found[f"{strategy}, {times}"] = _made(plan, ROWS) | {"errors": plan.errors()}
    return found


@CASES.case
def mechanism_functions() -> Any:
    at = np.array([0.1, 0.7, 0.35, 0.35, 0.9])

    def given(x: Any) -> Any:
        return np.sin(3.0 * np.asarray(x)).reshape(len(x), -1)[:, 0]

    line = FunctionalMechanism.from_budget(1.5, 0.0, 1.0, 0.3, BUDGETS[1])
    plane = np.stack([at, at[::-1]], axis=1)
    kernels: dict[str, ProductExponential | FeatureKernel] = {
        "product": ProductExponential((1.0, 2.0)),
        "features": FeatureKernel(
            lambda x: np.concatenate([x, np.ones((len(x), 1))], axis=1) / 2, 2
        ),
    }
    fields = {
        name: FieldMechanism.from_budget(kernel, 0.3, BUDGETS[1], times=2)
        for name, kernel in kernels.items()
    }
    points = np.linspace(0.0, 1.0, 9)
    model = RewardModelMechanism.from_budget(
        0.01, BUDGETS[1], points, Cosine(3), reward_range=(0.0, 1.0)
    )
    released, event = model.release(np.sqrt(points), reproducible(11))
    noised, cost = line.release(given, reproducible(11))
    return {
        "line": {"std": line.std, "event": cost, "values": noised(at)},
        "model": {
            "std": model.std,
            "event": event,
            "coefficients": released.coefficients,
            "values": released(points),
            "uncertainty": released.uncertainty(points),
        },
    } | {
        name: {"std": plan.std, "values": plan.release(given, reproducible(11))[0](plane)}
        for name, plan in fields.items()
    }


@CASES.case
def mechanism_reports() -> Any:
    kinds = (PrivUnit, DuchiL2, PiecewiseMechanism, HybridMechanism, ProjectedSign)
    found: dict[str, Any] = {}
    for epsilon in (0.5, 4.0):
        for kind in (*kinds, LaplaceReport, GridLaplaceReport):
            plan: Any = kind(epsilon, 3)
            released, event = plan.release(ROWS, reproducible(11))
            error = plan.error(ROWS[0]) if callable(plan.error) else plan.error
            found[f"{kind.__name__} at {epsilon}"] = {
                "event": event,
                "released": released,
                "error": error,
            }
    return found


@CASES.case
def mechanism_smooth() -> Any:
    found: dict[str, Any] = {}
    for budget in BUDGETS:
        for dimension in (1, 5):
            for name, make in (
                ("published", SmoothMechanism.from_paper),
                ("calibrated", SmoothMechanism.from_budget),
            ):
                plan = make(budget, dimension)
                released, event = plan.release(np.arange(dimension), 0.3, reproducible(11))
                found[f"{name} at {budget.epsilon}, {dimension}"] = {
                    "alpha": plan.alpha,
                    "beta": plan.beta,
                    "event": event,
                    "released": released,
                }
    return found


@CASES.case
def audits() -> Any:
    names = ("gaussian", "laplace", "grid-laplace", "unit-vector")
    targets = {name: find(name)() for name in names}
    return {
        name: audit(target, runs=2000, source=reproducible(11))
        for name, target in targets.items()
        if isinstance(target, Target)
    }
