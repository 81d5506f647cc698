"""Whatever a setting is given: it is taken, or refused in one sentence that names it."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from privrl.control import PGC, FunctionalQ
from privrl.control.q_specs import DescentSpec
from privrl.privacy import Budget, InputError
from tests.control.test_resumed_settings import CASES

SPECS = {type(case.spec): case.spec for case in CASES.values()}
ODD: list[Any] = [
    *(np.zeros(3), np.array([]), np.array(["sign", "laplace"]), np.array([0.5]), np.zeros((2, 2))),
    *([1], (), {}, object(), float("nan"), float("-inf"), "x", -1, True, 10**400, len),
]


@pytest.mark.parametrize(
    "spec",
    [pytest.param(one, id=f"{kind.__module__}.{kind.__name__}") for kind, one in SPECS.items()],
)
def test_a_setting_is_taken_or_refused_in_a_sentence(spec: Any) -> None:
    told: dict[str, list[str]] = {field.name: [] for field in fields(spec)}
    for name, sentences in told.items():
        for value in ODD:
            try:
                replace(spec, **{name: value})
            except InputError as error:
                sentences.append(str(error))
    for name, sentences in told.items():
        assert all(one.endswith(".") and "\n" not in one for one in sentences), name
        # Most of them are nothing that any setting could be.
        assert len(sentences) > 0.5 * len(ODD), name


@pytest.mark.parametrize(
    "spec", [one for one in SPECS.values() if any(f.name == "budget" for f in fields(one))]
)
def test_what_looks_like_a_budget_is_none(spec: Any) -> None:
    """Its epsilon and delta were checked by nobody, and might change."""

    class Looks:
        epsilon, delta = 1.0, 1e-6

    for value in (Looks(), Looks, (1.0, 1e-6), {"epsilon": 1.0, "delta": 1e-6}):
        with pytest.raises(InputError, match="budget must be a Budget"):
            replace(spec, budget=value)


@pytest.mark.parametrize("value", [np.array(["sign", "laplace"]), np.zeros(3), np.zeros(1000)])
def test_an_array_is_no_mechanism(value: Any) -> None:
    with pytest.raises(
        InputError, match="mechanism must be 'privunit', 'sign', 'laplace' or 'none'"
    ):
        PGC(epsilon=1.0, mechanism=value)


@pytest.mark.parametrize("release", ["weights", "updates"])
def test_the_options_of_a_descent_are_no_descent(release: Any) -> None:
    with pytest.raises(InputError, match="descent must be a Descent, such as Descent"):
        FunctionalQ(
            release=release,
            budget=Budget(1.0, 1e-6),
            reward_radius=0.5,
            reward_range=(0.0, 1.0),
            descent=DescentSpec(clip=1.0),
        )
