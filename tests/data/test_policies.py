"""Policies: probabilities, draws, and a file format that says no to everything else."""

import copy
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl.data import (
    Cells,
    ConcatFeatures,
    CosineProducts,
    EpsilonGreedy,
    Fourier,
    FunctionPolicy,
    Network,
    NetworkOutputs,
    OneHot,
    Policy,
    Polynomial,
    Radial,
    RandomFourier,
    Softmax,
    Tabular,
    load_policy,
    policy_from_dict,
    policy_from_json,
)
from privrl.data.policies import choose
from privrl.data.policy_json import schema
from privrl.privacy import InputError
from tests.statistics import FALSE_ALARM

pytestmark = pytest.mark.usefixtures("compiled_quickly")

RNG = np.random.default_rng(0)
BOX = Fourier(2, [0, 0], [1, 1])
DISCRETE: dict[str, Policy] = {
    "tabular": Tabular(RNG.dirichlet(np.ones(3), 5)),
    "softmax": Softmax(OneHot(5), RNG.normal(size=(5, 3)), 0.5),
    "greedy": EpsilonGreedy(RNG.normal(size=(5, 3)), 0.1),
    "greedy, linear": EpsilonGreedy(RNG.normal(size=(5, 3)), 0.1, OneHot(5)),
    "network, one-hot": Network(
        ((RNG.normal(size=(5, 3)), RNG.normal(size=3)),), features=OneHot(5)
    ),
}
VECTORS: dict[str, Policy] = {
    "softmax": Softmax(BOX, RNG.normal(size=(9, 3))),
    "softmax, radial": Softmax(Radial.grid(2, [0, 0], [1, 1]), RNG.normal(size=(4, 3))),
    "softmax, random": Softmax(RandomFourier(6, [0, 0], [1, 1]), RNG.normal(size=(6, 3))),
    "greedy": EpsilonGreedy(RNG.normal(size=(6, 3)), 0.25, Polynomial(2, [0, 0], [1, 1])),
    "network": Network(
        (
            (RNG.normal(size=(2, 4)), RNG.normal(size=4)),
            (RNG.normal(size=(4, 3)), RNG.normal(size=3)),
        ),
        "tanh",
    ),
    "network, greedy": Network(
        ((RNG.normal(size=(2, 3)), RNG.normal(size=3)),), "tanh", epsilon=0.25
    ),
    "greedy, in parts": EpsilonGreedy(
        RNG.normal(size=(22, 3)),
        0.2,
        ConcatFeatures(
            (
                NetworkOutputs(
                    (
                        (RNG.normal(size=(2, 4)), RNG.normal(size=4)),
                        (RNG.normal(size=(4, 4)), RNG.normal(size=4)),
                    ),
                    [0, 0],
                    [1, 2],
                ),
                CosineProducts(3, [0, 0], [1, 1]),
                Cells(3, [0, 0], [1, 1]),
            )
        ),
    ),
}
ALL = [(n, p, np.arange(5)) for n, p in DISCRETE.items()] + [
    (n, p, RNG.random((5, 2))) for n, p in VECTORS.items()
]
each = pytest.mark.parametrize(
    ("policy", "states"), [(p, s) for _, p, s in ALL], ids=[n for n, _, _ in ALL]
)


@each
def test_probabilities(policy: Policy, states: Any) -> None:
    p = policy.probabilities(states)
    assert p.shape == (5, 3)
    assert np.all(p >= 0)
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    actions = np.array([0, 1, 2, 0, 1])
    np.testing.assert_array_equal(policy.prob(states, actions), p[np.arange(5), actions])
    np.testing.assert_allclose(policy.log_prob(states, actions), np.log(p[range(5), actions]))
    assert policy.prob(states[:1], np.array([3])).tolist() == [0.0]
    compiled = jax.jit(policy.probabilities)(jnp.asarray(states))
    np.testing.assert_allclose(compiled, p, atol=1e-4)
    drawn = policy.sample(jnp.asarray(states), jax.random.key(0))
    assert drawn.shape == (5,)


@each
def test_round_trip(policy: Policy, states: Any, tmp_path: Path) -> None:
    text = policy.to_json()
    again = policy_from_json(text)
    assert type(again) is type(policy)
    assert again.to_json() == text
    np.testing.assert_array_equal(again.probabilities(states), policy.probabilities(states))
    policy.save(tmp_path / "policy.json")
    assert load_policy(tmp_path / "policy.json").to_json() == text
    assert [p.name for p in tmp_path.iterdir()] == ["policy.json"]
    assert valid(schema(), json.loads(text))


def test_by_hand() -> None:
    greedy = EpsilonGreedy(np.array([[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]]), 0.2)
    np.testing.assert_allclose(
        greedy.probabilities([0, 1, 2]), [[0.1, 0.9], [0.9, 0.1], [0.9, 0.1]]
    )
    soft = Softmax(OneHot(2), np.array([[0.0, math.log(3.0)], [0.0, 0.0]]))
    np.testing.assert_allclose(soft.probabilities([0, 1]), [[0.25, 0.75], [0.5, 0.5]])
    net = Network(
        (
            (np.array([[1.0, -1.0]]), np.array([0.0, 0.0])),
            (np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0.0, 0.0])),
        )
    )
    # relu(2, -2) = (2, 0)
    np.testing.assert_allclose(net.probabilities([[2.0]])[0, 0], 1 / (1 + math.exp(-2.0)))
    best = Network(net.layers, epsilon=0.2)
    np.testing.assert_allclose(best.probabilities([[2.0], [-1.0]]), [[0.9, 0.1], [0.1, 0.9]])


def test_total() -> None:
    """What is no state acts uniformly; nothing raises and nothing is NaN."""
    strange = np.array([-1.0, 5.0, 1e300, math.nan, math.inf, 0.5])
    for name in ("tabular", "greedy", "softmax"):
        p = DISCRETE[name].probabilities(strange)
        np.testing.assert_allclose(p, 1 / 3)
    wild = np.array([[math.nan, 0.0], [math.inf, -math.inf], [1e308, 1e308]])
    for policy in VECTORS.values():
        with np.errstate(all="ignore"):
            p = policy.probabilities(wild)
        np.testing.assert_allclose(p.sum(axis=1), 1.0)


def test_draws_follow() -> None:
    p = np.array([[0.1, 0.0, 0.6, 0.3]])
    policy = Tabular(p)
    n = 100_000
    for drawn in (
        policy.sample(np.zeros(n, dtype=int), 7),
        np.asarray(policy.sample(jnp.zeros(n, dtype=int), jax.random.key(7))),
    ):
        counts = np.bincount(drawn, minlength=4)
        assert counts[1] == 0
        # Chernoff with a union over the cells: far beyond it, the draws are wrong.
        room = math.sqrt(n * math.log(8 / FALSE_ALARM) / 2)
        assert np.all(np.abs(counts - n * p[0]) < room)
    same = policy.sample(np.zeros(50, dtype=int), 7)
    np.testing.assert_array_equal(same, policy.sample(np.zeros(50, dtype=int), 7))


@settings(max_examples=300)
@given(
    st.lists(st.sampled_from([0.0, 1e-30, 1e-9, 0.1, 0.3, 1.0]), min_size=1, max_size=6).filter(
        any
    ),
    st.sampled_from([0.0, 1e-300, 0.5, float(np.nextafter(1.0, 0.0)), 1.0]),
)
def test_no_impossible_draw(p: list[float], uniform: float) -> None:
    array = np.array(p)
    assert array[int(choose(np, array, np.asarray(uniform)))] > 0.0


def test_function() -> None:
    policy = FunctionPolicy(lambda s: np.full((len(s), 2), 0.5), 2)
    assert policy.probabilities(np.zeros(3)).tolist() == [[0.5, 0.5]] * 3
    with pytest.raises(InputError, match="cannot be written"):
        policy.to_json()
    with pytest.raises(InputError, match=r"row 1 .*add up to 1"):
        FunctionPolicy(lambda s: np.array([[0.5, 0.5], [0.5, 0.6]]), 2).probabilities([0, 1])
    with pytest.raises(InputError, match="shape"):
        FunctionPolicy(lambda s: np.ones((2, 3)), 2).probabilities([0, 1])
    # One row for all states, or no rows, is not an answer for each.
    with pytest.raises(InputError, match="shape"):
        FunctionPolicy(lambda s: np.array([[0.5, 0.5]]), 2).probabilities([0, 1])
    with pytest.raises(InputError, match="shape"):
        FunctionPolicy(lambda s: np.array([0.5, 0.5]), 2).probabilities([0, 1])


def test_what_is_no_action() -> None:
    policy = Tabular(np.array([[0.25, 0.75]]))
    actions = np.array([1.0, 0.5, math.nan, math.inf, -1.0, 2.0, 1e30])
    found = policy.prob(np.zeros(7, dtype=int), actions)
    assert found.tolist() == [0.75, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    compiled = policy.prob(jnp.zeros(7, dtype=int), jnp.asarray(actions))
    np.testing.assert_allclose(compiled, found)


def test_whole_numbers_in_json() -> None:
    """To JSON, and to the schema, 2 and 2.0 are the same number."""
    given = copy.deepcopy(VECTORS["softmax"].to_dict())
    given["features"]["order"] = 2.0
    assert valid(schema(), given)
    assert policy_from_dict(given).to_json() == VECTORS["softmax"].to_json()


REFUSED: list[Callable[[dict[str, Any]], object]] = [
    lambda d: d.pop("format"),
    lambda d: d.update(format="policy"),
    lambda d: d.update(version=2),
    lambda d: d.update(version=True),
    lambda d: d.update(kind="other"),
    lambda d: d.update(kind=None),
    lambda d: d.update(extra=1),
    lambda d: d.pop("weights"),
    lambda d: d.update(weights=[]),
    lambda d: d.update(weights=[[]]),
    lambda d: d.update(weights="none"),
    lambda d: d.update(weights=[["1"]] * 9),
    lambda d: d.update(weights=[[True]] * 9),
    lambda d: d.update(weights=[[None]] * 9),
    lambda d: d.update(temperature=0),
    lambda d: d.update(temperature="hot"),
    lambda d: d.update(temperature=None),
    lambda d: d["features"].pop("kind"),
    lambda d: d["features"].update(kind="wavelet"),
    lambda d: d["features"].update(order=0),
    lambda d: d["features"].update(order=2.5),
    lambda d: d["features"].update(order=True),
    lambda d: d["features"].update(low=[]),
    lambda d: d["features"].update(low="0"),
    lambda d: d["features"].update(normalised=1),
    lambda d: d["features"].update(extra=1),
    lambda d: d.update(features=None),
    lambda d: d.update(features=[]),
    lambda d: d.update(origin=None),
    lambda d: d.update(origin={}),
    lambda d: d.update(origin={"run": "0" * 32}),
    lambda d: d.update(origin={"run": "somewhere", "learner": "logged-q"}),
    lambda d: d.update(origin={"run": "0" * 32, "learner": 3}),
    lambda d: d.update(origin={"run": "0" * 32, "learner": "logged-q", "digest": "0"}),
]
# Beyond what a schema can say: shapes and sums.
REFUSED_SHAPES: list[Callable[[dict[str, Any]], object]] = [
    lambda d: d["weights"].pop(),
    lambda d: d["weights"][0].pop(),
    lambda d: d["features"].update(low=[0.0]),
    lambda d: d["features"].update(low=[2.0, 0.0]),
]


@pytest.mark.parametrize("change", REFUSED + REFUSED_SHAPES, ids=range(len(REFUSED) + 4))
def test_malformed(change: Callable[[dict[str, Any]], object]) -> None:
    given = copy.deepcopy(VECTORS["softmax"].to_dict())
    change(given)
    with pytest.raises(InputError) as caught:
        policy_from_dict(given)
    text = str(caught.value)
    assert text.endswith(".")
    assert "\n" not in text
    # What the schema allows and what is read differ in shapes only.
    assert valid(schema(), given) == (change in REFUSED_SHAPES)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "3",
        "null",
        '{"format": "privrl-policy", "version": 1, "kind": "tabular", "table": [[NaN]]}',
        '{"format": "privrl-policy", "version": 1, "kind": "tabular", "table": [[1e999]]}',
        '{"format": "privrl-policy", "version": 1, "kind": "tabular", "table": [[0.5, 0.6]]}',
        '{"format": "privrl-policy", "version": 1, "kind": "tabular", "table": [[-0.5, 1.5]]}',
        '{"format": "privrl-policy", "version": 1, "kind": "network", "layers": [[1]]}',
        '{"format": "privrl-policy", "version": 1, "kind": "network", "layers": []}',
        '{"format": "privrl-policy", "version": 1, "kind": "epsilon-greedy", "values": [[1]],'
        ' "epsilon": 1.5}',
        "[" * 100_000,
        '{"format": "privrl-policy", "version": 1, "kind": "tabular", "table": [[1.0]],'
        ' "table": [[0.5, 0.5]]}',
        '{"format": "privrl-policy", "version": 1, "kind": "tabular", "table": '
        + "[" * 900
        + "1"
        + "]" * 900
        + "}",
        '{"format": "privrl-policy", "version": 1, "kind": "softmax", "weights": [[1.0]],'
        f' "features": {{"kind": "fourier", "order": {10**300}, "low": [0, 0], "high": [1, 1]}}}}',
        # Every score would be infinite, and the policy uniform.
        '{"format": "privrl-policy", "version": 1, "kind": "softmax", "weights": [[1.0, 2.0]],'
        ' "features": {"kind": "one-hot", "num_states": 1}, "temperature": 1e-320}',
    ],
)
def test_malformed_text(text: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        policy_from_json(text)
    assert "\n" not in str(caught.value)
    path = tmp_path / "policy.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"policy\.json"):
        load_policy(path)


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_policy(tmp_path / "none.json")
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not text"):
        load_policy(tmp_path / "x.json")
    with pytest.raises(InputError, match="cannot be written"):
        DISCRETE["tabular"].save(tmp_path / "none" / "x.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="cannot be written"):
        DISCRETE["tabular"].save(tmp_path / "folder")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "x.json"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Network(((np.ones((2, 3)), np.ones(2)),)),
        lambda: Network(((np.ones((2, 3)), np.ones(3)), (np.ones((2, 3)), np.ones(3)))),
        lambda: Network(((np.ones((2, 3)), np.ones(3)),), "sine"),
        lambda: Network(((np.ones((2, 3)), np.ones(3)),), epsilon=1.5),
        lambda: Network(((np.ones((2, 3)), np.ones(3)),), features=OneHot(4)),
        lambda: Network(((np.ones((2, 3)), np.ones(3)),)).probabilities([[1.0]]),
        lambda: Softmax(OneHot(2), np.ones((3, 2))),
        lambda: Softmax(None, np.ones((3, 2))),  # type: ignore[arg-type]
        lambda: EpsilonGreedy(np.ones((3, 2)), -0.1),
        lambda: Tabular(np.ones(3)),
        lambda: Tabular.uniform(0, 2),
        lambda: DISCRETE["tabular"].sample([0], key="seed"),
    ],
)
def test_refusals(make: Callable[[], object]) -> None:
    with pytest.raises(InputError):
        make()


@each
def test_origins_travel(policy: Policy, states: Any) -> None:
    """The run that learned a policy is in its file, and changes nothing else."""
    run = "0123456789abcdef" * 2
    marked = policy.with_origin(run, "logged-q")
    assert policy.origin is None
    assert "origin" not in policy.to_dict()
    assert valid(schema(), marked.to_dict())
    again = policy_from_json(marked.to_json())
    assert again.origin == {"run": run, "learner": "logged-q"}
    assert again.to_json() == marked.to_json()
    np.testing.assert_array_equal(again.probabilities(states), policy.probabilities(states))


def test_frozen() -> None:
    policy = DISCRETE["tabular"]
    assert isinstance(policy, Tabular)
    with pytest.raises(ValueError, match="read-only"):
        policy.table[0, 0] = 1.0


def test_schema_by_a_validator() -> None:
    """The published schema, read by somebody else's validator, if there is one."""
    jsonschema = pytest.importorskip("jsonschema")
    checker = jsonschema.Draft202012Validator(schema())
    checker.check_schema(schema())
    for _, policy, _ in ALL:
        assert checker.is_valid(policy.to_dict())
    for change in REFUSED:
        given = copy.deepcopy(VECTORS["softmax"].to_dict())
        change(given)
        assert not checker.is_valid(given)


# A validator for the keywords that policy.schema.json uses, and no others.
KNOWN = {
    "$schema", "$id", "$defs", "$ref", "title", "description", "type", "required", "properties",
    "additionalProperties", "const", "enum", "oneOf", "items", "minItems", "minimum", "maximum",
    "exclusiveMinimum", "pattern",
}  # fmt: skip


def valid(rule: Any, value: Any, root: Any = None) -> bool:
    root = rule if root is None else root
    if isinstance(rule, bool):
        return rule
    assert set(rule) <= KNOWN, set(rule) - KNOWN
    number = isinstance(value, int | float) and not isinstance(value, bool)
    types: dict[str, bool] = {
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
        "number": number,
        "integer": number and value == int(value),
        "boolean": isinstance(value, bool),
        "string": isinstance(value, str),
    }

    def equal(a: Any, b: Any) -> bool:
        return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)

    checks = [
        "type" not in rule or types[rule["type"]],
        "const" not in rule or equal(value, rule["const"]),
        "enum" not in rule or any(equal(value, one) for one in rule["enum"]),
    ]
    if "$ref" in rule:
        name = rule["$ref"].removeprefix("#/$defs/")
        checks.append(valid(root["$defs"][name], value, root))
    if "oneOf" in rule:
        checks.append(sum(valid(one, value, root) for one in rule["oneOf"]) == 1)
    if number:
        checks.append(value >= rule.get("minimum", -math.inf))
        checks.append(value <= rule.get("maximum", math.inf))
        checks.append(value > rule.get("exclusiveMinimum", -math.inf))
    if isinstance(value, str):
        checks.append(re.search(rule.get("pattern", ""), value) is not None)
    if isinstance(value, list):
        checks.append(len(value) >= rule.get("minItems", 0))
        checks.append("items" not in rule or all(valid(rule["items"], v, root) for v in value))
    if isinstance(value, dict):
        known = rule.get("properties", {})
        checks.append(all(name in value for name in rule.get("required", ())))
        checks.append(all(valid(known[n], v, root) for n, v in value.items() if n in known))
        checks.append(rule.get("additionalProperties", True) or set(value) <= set(known))
    return all(checks)
