"""What events cost: both accountants, filters, ledgers, certificates, limits, claims."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from privrl.audit import limits
from privrl.privacy import (
    ApproxDP,
    Budget,
    Certificate,
    DiscreteGaussian,
    DiscreteLaplace,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Laplace,
    Ledger,
    NoiseOrigin,
    OverBudget,
    PoissonSampled,
    PureDP,
    RandomAllocation,
    RandomizedResponse,
    Relation,
    Release,
    Repeated,
    Unit,
    UnsupportedError,
    account,
    calibrate,
    delta,
    second_accountant,
    shuffled_epsilon,
)
from privrl.privacy.filters import Filter, FilterKind
from tests.golden.running import Cases, said

CASES = Cases()

DELTAS = (1e-3, 1e-6, 1e-10)
EPSILONS = (0.5, 2.0)
LIMIT = Budget(4.0, 1e-5)

_BOTH: list[Event] = [Gaussian(4.0, 1.0), Laplace(5.0, 1.0)]

PLANS: dict[str, dict[str, list[Event]]] = {
    "gaussian": {
        "once": [Gaussian(3.0, 1.0)],
        "several": [Gaussian(3.0, 1.0), Gaussian(7.5, 2.0)],
        "repeated": [Repeated(Gaussian(20.0, 1.0), 25)],
    },
    "discrete-gaussian": {
        "line": [DiscreteGaussian(7.0, 2.0)],
        "space": [DiscreteGaussian(7.0, 2.0, 3)],
        "repeated": [Repeated(DiscreteGaussian(30.0, 3.0), 10)],
    },
    "laplace": {
        "once": [Laplace(2.0, 1.0)],
        "repeated": [Repeated(Laplace(9.0, 1.0), 12)],
        "with-gaussian": _BOTH,
    },
    "discrete-laplace": {
        "once": [DiscreteLaplace(5.0, 2.0)],
        "repeated": [Repeated(DiscreteLaplace(30.0, 2.5), 12)],
    },
    "randomised-response": {
        f"{one.relation}-{one.categories}": [one, Repeated(one, 3)]
        for one in (
            RandomizedResponse(0.7),
            RandomizedResponse(0.7, categories=5),
            RandomizedResponse(0.4, relation=Relation.REPLACE_ONE),
        )
    },
    "pure-and-approximate": {
        "pure": [PureDP(0.3)],
        "pure-add-remove": [Repeated(PureDP(0.1, relation=Relation.ADD_REMOVE), 20)],
        "pure-local": [PureDP(1.5, relation=Relation.LOCAL)],
        "pure-radius": [PureDP(0.2, relation=Relation.REWARD_RADIUS)],
        "approximate": [ApproxDP(0.3, 1e-8)],
        "mixed": [ApproxDP(0.3, 1e-8), PureDP(0.2), Gaussian(9.0, 1.0)],
    },
    "poisson": {
        "once": [PoissonSampled(Gaussian(1.5, 1.0), 0.05)],
        "repeated": [Repeated(PoissonSampled(Gaussian(2.0, 1.0), 0.01), 50)],
        "laplace": [PoissonSampled(Laplace(2.0, 1.0), 0.1)],
        "pure": [PoissonSampled(PureDP(0.5, relation=Relation.ADD_REMOVE), 0.1)],
        "discrete": [Repeated(PoissonSampled(DiscreteGaussian(6.0, 2.0), 0.02), 5)],
    },
    "fixed-size": {
        "once": [FixedSizeSampled(Gaussian(3.0, 1.0), 1000, 20)],
        "repeated": [Repeated(FixedSizeSampled(Gaussian(3.0, 1.0), 1000, 20), 30)],
        "laplace": [FixedSizeSampled(Laplace(2.0, 1.0), 100)],
    },
    "allocation": {
        "few": [RandomAllocation(Gaussian(2.0, 1.0), 8)],
        "many": [RandomAllocation(Gaussian(1.0, 0.5), 500)],
        "twice": [Repeated(RandomAllocation(Gaussian(4.0, 1.0), 8), 2)],
    },
    "disjoint": {
        "two": [Disjoint((Gaussian(3.0, 1.0), Laplace(3.0, 1.0)))],
        "repeated": [Repeated(Disjoint((Gaussian(9.0, 1.0), Laplace(20.0, 1.0))), 4)],
        "and-more": [
            Disjoint((Repeated(Gaussian(9.0, 1.0), 3), Gaussian(4.0, 1.0))),
            Disjoint((Laplace(8.0, 1.0), PureDP(0.1))),
        ],
    },
}


def told(ask: Callable[..., Any], *given: Any, **more: Any) -> Any:
    """What is answered, or the sentence with which it is refused."""
    try:
        return ask(*given, **more)
    except (InputError, OverBudget, UnsupportedError) as error:
        return {"refused": str(error)}


def _costs(events: list[Event], relation: Relation) -> Any:
    kinds = {kind: Filter.for_limit(LIMIT, kind) for kind in FilterKind}
    return {
        "events": [str(event) for event in events],
        "accounts": {repr(at): told(account, events, at, relation) for at in DELTAS},
        "deltas": {repr(at): told(delta, events, at, relation) for at in EPSILONS},
        "second accountant": {
            repr(at): told(second_accountant.bracket, events, at, relation) for at in DELTAS[:2]
        },
        "renyi": {
            order: told(second_accountant.renyi, events, order, relation) for order in (2, 9)
        },
        "filters": {kind: told(one.cost, events, relation) for kind, one in kinds.items()},
    }


def _plan(plans: dict[str, list[Event]]) -> Any:
    found: dict[str, Any] = {}
    for name, events in plans.items():
        for relation in Relation:
            asked = told(account, events, 1e-3, relation)
            refused = isinstance(asked, dict)
            found[f"{name}, {relation}"] = asked if refused else _costs(events, relation)
    return found


for _name, _plans in PLANS.items():
    CASES.add(f"account-{_name}", partial(_plan, _plans))


# --- calibration ----------------------------------------------------------------------------------

_BUILDS: dict[str, Callable[[float], Event | list[Event]]] = {
    "gaussian": lambda x: Gaussian(x, 1.0),
    "gaussian repeated": lambda x: Repeated(Gaussian(x, 1.0), 10),
    "laplace": lambda x: Laplace(x, 1.0),
    "discrete gaussian": lambda x: DiscreteGaussian(x, 3.0),
    "discrete laplace": lambda x: DiscreteLaplace(x, 3.0),
    "response": lambda x: RandomizedResponse(x, relation=Relation.REPLACE_ONE),
    "disjoint": lambda x: Disjoint((Gaussian(x, 1.0), Gaussian(2.0 * x, 3.0))),
}
# These take longer.
_COMPOSED: dict[str, Callable[[float], Event | list[Event]]] = {
    "fixed size": lambda x: Repeated(FixedSizeSampled(Gaussian(x, 1.0), 500, 5), 20),
    "poisson": lambda x: Repeated(PoissonSampled(Gaussian(x, 1.0), 0.01), 20),
    "allocation": lambda x: RandomAllocation(Gaussian(x, 1.0), 20),
    "both": lambda x: [Gaussian(x, 1.0), Laplace(x, 0.5)],
}


@CASES.case
def calibrations() -> Any:
    budgets = (Budget(0.3, 1e-6), Budget(2.0, 1e-4), Budget(1.0))
    found = {
        f"{name} at {budget.epsilon}, {budget.delta}": told(calibrate, build, budget)
        for name, build in _BUILDS.items()
        for budget in budgets
    }
    found |= {name: calibrate(build, Budget(2.0, 1e-4)) for name, build in _COMPOSED.items()}
    found["steps"] = calibrate(
        lambda n: Repeated(Gaussian(20.0, 1.0), int(n)), Budget(2.0, 1e-6), whole=True
    )
    return found


@CASES.case
def filters() -> Any:
    found: dict[str, Any] = {}
    for limit in (Budget(0.5, 1e-6), Budget(4.0, 1e-5), Budget(50.0, 1e-2), Budget(1.0)):
        for kind in (None, *FilterKind):
            name = f"{kind} at {limit.epsilon}, {limit.delta}"
            chosen = told(Filter.for_limit, limit, kind)
            if isinstance(chosen, dict):
                found[name] = chosen
                continue
            spent = told(chosen.cost, Gaussian(40.0, 1.0), Relation.REPLACE_ONE)
            left = spent if isinstance(spent, dict) else chosen.remaining(spent)
            found[name] = {"filter": chosen, "cap": chosen.cap, "cost": spent, "left": left}
    return found


@CASES.case
def shuffling() -> Any:
    return [
        shuffled_epsilon(reports, local, at)
        for reports, local in ((100, 0.5), (10_000, 1.0), (10**5, 2.0))
        for at in (1e-4, 1e-8)
    ]


# --- ledgers --------------------------------------------------------------------------------------


def _spent(filter_kind: str | None, limit: Budget | None, relation: Relation) -> Any:
    unit = Unit.REWARD_FUNCTION if relation is Relation.REWARD_RADIUS else Unit.USER
    radius = 0.1 if relation is Relation.REWARD_RADIUS else None
    with Ledger.create(
        "some.ledger", "some", unit=unit, relation=relation, people=5000, limit=limit,
        filter=filter_kind,
    ) as ledger:  # fmt: skip
        spends: list[tuple[list[Event], dict[str, Any]]] = [
            ([Gaussian(20.0, 1.0)], {"run": "first", "delta": 1e-6}),
            ([Gaussian(30.0, 1.0)], {"run": "second", "partition": "years", "slot": 1}),
            ([Gaussian(25.0, 1.0)], {"run": "second", "partition": "years", "slot": 2}),
            ([Repeated(Gaussian(60.0, 1.0), 4)], {"run": "third", "note": "four"}),
            ([Gaussian(0.01, 1.0)], {"run": "far too much"}),
        ]
        steps = []
        for events, given in spends:
            entry = told(ledger.spend, events, reward_radius=radius, **given)
            steps.append({"spent": entry, "left": ledger.remaining()})
        return {
            "steps": steps,
            "paid": {repr(at): ledger.account(at) for at in DELTAS},
            "paid by second": ledger.account(1e-6, "second"),
            "checked": ledger.check(),
            "whole": ledger.to_dict(),
            "shown": said("ledger show some.ledger --delta 1e-6 --json"),
            "printed": said("ledger show some.ledger --delta 1e-6"),
        }


@CASES.case
def ledger_costs() -> Any:
    found: dict[str, Any] = {}
    for name, kind, limit, relation in (
        ("renyi", "renyi", LIMIT, Relation.REPLACE_ONE),
        ("gaussian", "gaussian", LIMIT, Relation.ADD_REMOVE),
        ("radius", None, LIMIT, Relation.REWARD_RADIUS),
        ("free", None, None, Relation.REPLACE_ONE),
    ):
        found[name] = _spent(kind, limit, relation)
        Path("some.ledger").unlink()
    return found


# --- certificates ---------------------------------------------------------------------------------


def _certificates() -> Iterator[tuple[str, Certificate]]:
    for unit, relation, release in (
        (Unit.USER, Relation.REPLACE_ONE, Release.FINAL_MODEL),
        (Unit.TRAJECTORY, Relation.ADD_REMOVE, Release.EVERY_ITERATE),
        (Unit.REWARD_FUNCTION, Relation.REWARD_RADIUS, Release.FINAL_MODEL),
        (Unit.AGENT, Relation.LOCAL, Release.EACH_REPORT),
    ):
        radius = 0.01 if unit is Unit.REWARD_FUNCTION else None
        for noise in (NoiseOrigin.SECURE, NoiseOrigin.REPRODUCIBLE):
            yield (
                f"{unit}, {relation}, {noise}",
                Certificate.issue(
                    _BOTH, 1e-6, unit=unit, relation=relation, release=release, noise=noise,
                    reward_radius=radius,
                ),
            )  # fmt: skip


@CASES.case
def certificates() -> Any:
    found = {}
    for name, one in _certificates():
        Path("one.json").write_text(one.to_json())
        found[name] = {
            "certificate": one,
            "card": one.card(),
            "verified": one.verify(),
            "printed": said("verify one.json"),
            "strictly": said("verify one.json --strict --json")["code"],
        }
    return found


@CASES.case
def budget_commands() -> Any:
    asked = [
        ["Gaussian(3, 1)", "--delta", "1e-5"],
        ["Gaussian(?, 1)", "--epsilon", "1", "--delta", "1e-5"],
        ["Laplace(?, 1)", "--epsilon", "1"],
        [
            "Repeated(PoissonSampled(Gaussian(?, 1), 0.01), 100)",
            "--epsilon",
            "1",
            "--delta",
            "1e-5",
        ],
        ["Repeated(Gaussian(20, 1), ?)", "--epsilon", "1", "--delta", "1e-5", "--json"],
        ["Gaussian(3, 1)", "Laplace(9, 1)", "--delta", "1e-5", "--relation", "add-remove"],
        ["Gaussian(3, 1)", "--delta", "1e-5", "--relation", "local", "--json"],
        ["RandomAllocation(Gaussian(2, 1), 10)", "--delta", "1e-5", "--json"],
    ]
    found = {" ".join(words): said("budget", *words) for words in asked}
    saved = said(
        *("budget", "Gaussian(3, 1)", "--delta", "1e-5", "--relation", "reward-radius"),
        *("--unit", "reward-function", "--reward-radius", "0.1", "--save", "plan.json"),
    )
    found["saved"] = saved | {"certificate": json.loads(Path("plan.json").read_text())}
    found["verified"] = said("verify plan.json") | {"json": said("verify plan.json --json")}
    return found


@CASES.case
def budget_claims() -> Any:
    names = ("xie2019", "xie2019-theorem1", "wang2019", "rajabi2022", "seo2020", "ono2020")
    found = {name: said(f"budget --claim {name} --json") for name in (*names, "ono2020-sign")}
    found["all"] = said("budget --claim all")
    found["xie2019, other"] = said("budget --claim xie2019 sigma=2 trajectories=500 iterations=70")
    return found


# --- limits and risks -----------------------------------------------------------------------------


@CASES.case
def limits_commands() -> Any:
    asked = (
        "--epsilon 0.9 --delta 1e-4 --tasks 16",
        "--epsilon 0.9 --delta 1e-4 --distance 0.05 --radius 0.01",
        "--epsilon 2",
        "--epsilon 0.3 --delta 1e-6 --json",
    )
    worth = [[1.0, 0.2, 0.0], [0.1, 0.9, 0.3], [0.0, 0.5, 1.2]]
    apart = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    return {words: said(f"limits {words}") for words in asked} | {
        "ceiling": [limits.ceiling(worth, Budget(e, 1e-4)) for e in (0.1, 1.0, 3.0)],
        "ceiling, apart": limits.ceiling(worth, Budget(0.5, 1e-4), apart),
        "of events": limits.best_accuracy_of(_BOTH, Relation.REPLACE_ONE),
        "gdp": limits.best_accuracy_gdp(0.7),
        "group": limits.group_privacy(Budget(0.5, 1e-6), 3),
    }


@CASES.case
def risk_commands() -> Any:
    from privrl.risk import Prospect

    Prospect.tversky_kahneman().save("own.json")
    outcomes = ("--outcomes 20:0.05,0:0.95", "--samples=-3,1,1,2", "--outcomes=-5:0.3,1:0.3,7:0.4")
    return {
        f"{words} {who}": said(f"risk {words} --prospect {who} --json")
        for words in outcomes
        for who in ("neutral", "tversky-kahneman", "rajabi2022", "own.json")
    } | {"printed": said("risk --samples=-3,1,1,2"), "nobody": said("risk --json")}
