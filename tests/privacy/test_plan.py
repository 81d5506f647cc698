"""Plans: what is drawn is what is paid for, and no privacy noise is drawn without one."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import privrl
from privrl.privacy import (
    Budget,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    InputError,
    PoissonSampled,
    RandomAllocation,
    Relation,
    Repeated,
    epsilon,
)
from privrl.privacy.noise import secure
from privrl.privacy.plan import (
    AllocatedBatches,
    DisjointBatches,
    FullBatches,
    NoisyPlan,
    PoissonBatches,
    Schedule,
    SingleSamples,
)
from tests.statistics import follows

ONE = Gaussian(6.0, 2.0)
EVENTS: list[tuple[Schedule, Event]] = [
    (FullBatches(5), Repeated(ONE, 5)),
    (DisjointBatches(), Disjoint((ONE,))),
    (PoissonBatches(1.0, 5), Repeated(ONE, 5)),
    (PoissonBatches(0.1, 5), Repeated(PoissonSampled(ONE, 0.1), 5)),
    (AllocatedBatches(9), RandomAllocation(ONE, 9)),
    (SingleSamples(50, 3), Repeated(FixedSizeSampled(ONE, 50, 1), 3)),
]


@pytest.mark.parametrize(("schedule", "event"), EVENTS)
def test_events_of_schedules(schedule: Schedule, event: Event) -> None:
    assert NoisyPlan(3.0, schedule, 2.0).event == event


@pytest.mark.parametrize("schedule", [FullBatches(20), DisjointBatches(), PoissonBatches(0.05, 30)])
def test_a_calibrated_plan_is_within_its_budget_and_not_far_below(schedule: Schedule) -> None:
    budget = Budget(1.0, 1e-5)
    plan = NoisyPlan.from_budget(budget, Relation.REPLACE_ONE, schedule, bound=0.5)
    assert 0.9999 < epsilon(plan.event, 1e-5, Relation.REPLACE_ONE) <= 1.0 + 1e-9
    beside = (Gaussian(10.0, 1.0),)
    more = NoisyPlan.from_budget(budget, Relation.REPLACE_ONE, schedule, beside=beside)
    assert more.noise_multiplier > plan.noise_multiplier
    assert epsilon((*beside, more.event), 1e-5, Relation.REPLACE_ONE) <= 1.0 + 1e-9


def test_noise_is_that_of_the_event() -> None:
    plan = NoisyPlan(1.5, DisjointBatches(), 2.0)
    assert plan.event == Disjoint((Gaussian(3.0, 2.0),))
    for scale in (1.0, 0.1):
        # Ten percent move the distribution function by 0.023: missed once in 10^15.
        noise = plan.release(np.full(100_000, 7.0), secure(), scale) - 7.0
        assert follows(noise, stats.norm(0, 3.0 * scale).cdf)
        for wrong in (0.9, 1.1):
            assert not follows(noise * wrong, stats.norm(0, 3.0 * scale).cdf)


def test_what_is_no_plan_is_refused() -> None:
    for wrong in (0.0, -1.0, float("inf")):
        with pytest.raises(InputError, match="noise_multiplier"):
            NoisyPlan(wrong, DisjointBatches())
        with pytest.raises(InputError, match="bound"):
            NoisyPlan(1.0, DisjointBatches(), wrong)


# --- noise has one place --------------------------------------------------------------------------

# What draws noise; a method of a source, or a function.
DRAWS = {"normal", "laplace", "discrete_gaussian", "discrete_laplace", "jax_normal"}
DRAWS |= {"standard_normal", "gumbel", "exponential", "bernoulli_exp", "bernoulli_sigmoid"}
ALLOWED = {
    "privacy/mechanisms/": "mechanisms",
    "privacy/noise.py": "what they draw with",
    "privacy/exact.py": "what they draw with",
    "audit/": "attacks, and mutants of what draws",
    "papers/rajabi2022/": "algorithms as printed, which are never certified",
    "papers/seo2020/": "algorithms as printed, which are never certified",
    "papers/wang2019/": "algorithms as printed, which are never certified",
    "papers/xie2019/": "trials on simulated data, which nobody is given",
    "envs/": "what happens in an environment",
    "data/features.py": "public random features",
    "control/heads.py": "public first weights",
    "evaluation/selection.py": "permute-and-flip, a mechanism of its own",
    "evaluation/simulate.py": "made-up worlds",
    "control/pgc/collection.py": "agents' answers, a mechanism of its own",
    "control/pgc/privatiser.py": "agents' answers, a mechanism of its own",
}


def test_no_noise_is_drawn_outside_of_mechanisms() -> None:
    root = Path(privrl.__file__).parent
    found = []
    used = set()
    calls = re.compile(rf"\b({'|'.join(DRAWS)})\(")  # no need to parse a file without one
    for path in sorted(root.rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text()
        for node in ast.walk(ast.parse(text)) if calls.search(text) else ():
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            draw = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if draw in DRAWS:
                allowed = next((one for one in ALLOWED if name.startswith(one)), None)
                used.add(allowed)
                if allowed is None:
                    found.append(f"{name}:{node.lineno}: {draw}")
    assert not found
    assert used == set(ALLOWED)  # what is not needed any more is struck off
