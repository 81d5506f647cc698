"""Table I and Figure 2 of Rajabi et al. (2022): what is printed, and the public code by hand."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.core.types import Floats
from privrl.papers.rajabi2022 import public_code, targets
from privrl.papers.rajabi2022.public_code import PublicCode
from privrl.papers.reproduce.estimate import estimates, matches
from privrl.papers.wang2019 import draws
from privrl.papers.wang2019.algorithm import Network, rmsprop

pytestmark = pytest.mark.usefixtures("compiled_quickly")

TEXT = """
    3.74 1.31 1.125 7.58 1.595 0.54
    0.74 2.63 4.26 0.115 1.825 3.49
    0.02 0.85 0.055 0.365 0.575 1.695
    0 0.2 0.81 0.165 0.815 3.605
    7.995 4.14 4.57 8.595 3.615 2.415
    0.63 1.49 2.59 0.705 1.56 4.43
    0.06 0.165 0.055 0.28 0.525 1.47
    0.08 2.375 0.05 0.215 1.045 3.385
"""
"""Table I by columns: obs1 to obs4 with CPT, then without; DP-5, DP-1, No DP, Max.Q above RandQ."""


def test_every_printed_number_of_table_1() -> None:
    columns = [[float(x) for x in line.split()] for line in TEXT.strip().splitlines()]
    known = targets.TABLE_I.by_name
    found = []
    for objective in ("CPT", "No CPT"):
        for k in range(1, 5):
            rows = [
                f"{a} {level}" for a in ("Max.Q", "RandQ") for level in ("DP-5", "DP-1", "No DP")
            ]
            column = []
            for row in rows:
                printed = known[f"{row}, {objective}, obs{k}"].printed
                assert printed is not None
                column.append(printed.value)
            found.append(column)
    assert found == columns


def test_sums_of_table_1() -> None:
    total = targets.TABLE_I.by_name["all visits: No CPT, DP-1"].printed
    worst = targets.TABLE_I.by_name["visits to obs1 and obs2: CPT, No DP"].printed
    assert total is not None
    assert worst is not None
    assert total.value == pytest.approx(
        (4.14 + 1.49 + 0.165 + 2.375 + 3.615 + 1.56 + 0.525 + 1.045) / 2
    )
    assert worst.value == pytest.approx((1.125 + 4.26 + 0.54 + 3.49) / 2)


def test_figure_2() -> None:
    values = [one.printed.value for one in targets.FIGURE.quantities if one.printed is not None]
    assert values == [7.8, 8.0, 20.5]


# --- the public code ------------------------------------------------------------------------------


def test_weights_are_the_printed_ones() -> None:
    """Complex above 1; for samples around 5 their sum is about 86 where 4 would be right."""
    gains, losses = public_code.estimator_weights(100)
    assert losses.sum() == pytest.approx(1.0)
    drawn = np.random.default_rng(0).normal(5.0, 1.0, (300, 100))
    rho = np.mean([float(public_code.cpt_value(one, gains, losses)) for one in drawn])
    assert rho == pytest.approx(86.0, rel=0.03)
    # By hand, for one weight.
    above, below = 1.5**0.61, 0.5**0.61
    turned = below * complex(math.cos(0.61 * math.pi), math.sin(0.61 * math.pi))
    assert public_code.weight(1.5, 0.61) == pytest.approx(above / (above + turned) ** (1 / 0.61))
    assert public_code.weight(0.5, 0.61).imag == pytest.approx(0.0)


def test_losses_have_the_right_weights() -> None:
    gains, losses = public_code.estimator_weights(50)
    assert float(public_code.cpt_value(np.full(50, -3.0), gains, losses)) == pytest.approx(
        -(3.0**0.88), rel=1e-5
    )


def test_neighbours() -> None:
    cells, probs = public_code.neighbours("below")
    np.testing.assert_allclose(probs.sum(axis=2), 1.0)
    # From the corner right and up exist; left and below lead to either, all alike.
    assert probs[0, 0].tolist() == pytest.approx([0.9, 0.0, 0.1, 0.0])
    assert probs[0, 1].tolist() == [0.5, 0.0, 0.5, 0.0]
    assert cells[55].tolist() == [56, 54, 65, 45]
    assert probs[55, 3].tolist() == pytest.approx([0.1 / 3, 0.1 / 3, 0.1 / 3, 0.9])
    assert public_code.neighbours("left")[0][55].tolist() == [56, 54, 65, 54]


def test_a_point_right_of_all_others_has_the_wrong_mean() -> None:
    path = jnp.asarray(np.random.default_rng(1).normal(size=(4, public_code._POINTS)), jnp.float32)
    none = jnp.zeros_like(path)
    low, high, new = 10, 40, 104
    normals = jnp.asarray([0.5, -1.0, 0.0, 2.0], jnp.float32)
    found = np.asarray(
        public_code.extend(path, none, jnp.asarray([low, high]), jnp.int32(new), normals)
    )
    gap = (new - high) / 64
    value = math.exp(-gap) * path[:, low] + math.sqrt(1 - math.exp(-2 * gap)) * normals
    np.testing.assert_allclose(path[:, new] + found[:, new], value, rtol=1e-4, atol=1e-5)
    assert not found[:, : high + 1].any()
    assert not found[:, new + 1 :].any()
    u = (70 - high) / 64
    np.testing.assert_allclose(
        found[:, 70], found[:, new] * math.sinh(u) / math.sinh(gap), rtol=1e-4
    )
    still = public_code.extend(path, none, jnp.asarray([low, high]), jnp.int32(high), normals)
    assert not np.asarray(still).any()


@pytest.mark.slow
def test_episodes_equal_a_plain_loop() -> None:
    form = PublicCode(episodes=2, steps=3, samples=4, batch=3)
    sigma, costs = 2.0, form.costs()
    gains, losses = public_code.estimator_weights(form.samples)
    cells, probs = public_code.neighbours("below")
    with jax.enable_x64(False):
        state = public_code.init(form, jax.random.key(4)[None], jnp.asarray([sigma]))
        network = Network((2, 16, 16, 4))
        weights = np.asarray(state.weights[0], np.float64)
        squares = np.zeros_like(weights)
        path, change, key0 = state.path[0], state.change[0], state.keys[0]
        ends: list[int] = []
        rows: list[tuple[Floats, int, float, Floats]] = []

        def noised(x: Floats) -> Floats:
            at = round(float(np.hypot(*x)) * 64)
            g = sigma * np.asarray(path[:, at] + change[:, at], np.float64)
            return network.q(weights, x) + g

        for episode in range(form.episodes):
            own = jax.random.split(jax.random.fold_in(key0, episode), 3)
            x = np.asarray(jax.random.uniform(own[0], (2,), jnp.float32), np.float64)
            at = round(float(np.hypot(*x)) * 64)
            ends = ends or [at, at]
            normals = jax.random.normal(jax.random.fold_in(own[0], 1), (4,), jnp.float32)
            far = max(ends[1], at)
            change = public_code.extend(path, change, jnp.asarray(ends), jnp.int32(far), normals)
            ends = [min(ends[0], at), far]
            for key in jax.random.split(own[1], form.steps):
                parts = jax.random.split(key, 5)
                cell = int(x[0]) + 10 * int(x[1])
                action = int(jax.random.randint(parts[0], (), 0, 4))
                share = np.asarray(jax.random.uniform(parts[1], (4, 1), jnp.float32))
                reaches = np.cumsum(probs[cell, action])[:-1].astype(np.float32)
                to = [cells[cell, int(np.sum(one >= reaches))] for one in share]
                inside = np.asarray(jax.random.uniform(parts[2], (4, 2), jnp.float32), np.float64)
                after = [np.array([c % 10, c // 10]) + i for c, i in zip(to, inside, strict=True)]
                places = [round(float(np.hypot(*one)) * 64) for one in after]
                normals = jax.random.normal(parts[3], (4,), jnp.float32)
                far = max(ends[1], *places)
                change = public_code.extend(
                    path, change, jnp.asarray(ends), jnp.int32(far), normals
                )
                ends = [min(ends[0], *places), far]
                extra = np.asarray(jax.random.normal(parts[4], (4,), jnp.float32))
                x_n = [
                    (0.0 if c == 99 else costs[cell]) + 0.9 * noised(one).max() + z
                    for c, one, z in zip(to, after, extra, strict=True)
                ]
                ordered = np.sort(x_n)
                rho = (
                    gains @ np.maximum(ordered, 0) ** 0.88
                    - losses @ np.maximum(-ordered, 0) ** 0.88
                )
                best = after[int(np.argmin(x_n))]
                rows.append((x, action, rho, best))
                x = best
            picks = draws.subsets(own[2], jnp.asarray([len(rows)]), form.batch)[0]
            gradient, total = np.zeros_like(weights), 0.0
            for pick in picks:
                s, action, rho, best = rows[int(pick)]
                error = noised(s)[action] - (0.7 * noised(best).max() - rho)
                total += (0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5) / form.batch
                slope = network.gradient(weights, s, action)
                gradient += np.clip(error, -1, 1) * slope / form.batch
            gradient, squares = rmsprop(np.clip(gradient, -1, 1), squares)
            weights = weights - form.learner.step * gradient
            state, seen = public_code._episode(form, state)
            assert float(seen["loss"][0]) == pytest.approx(total, rel=2e-3)
    np.testing.assert_allclose(state.weights[0], weights, atol=2e-4)


# --- rows -----------------------------------------------------------------------------------------


def test_rows_have_columns_in_the_order_of_the_reading() -> None:
    losses = np.concatenate([[np.nan, np.nan], np.linspace(9.0, 1.0, 6)])
    visits = {"greedy": np.array([50.0, 25.0, 10.0, 5.0]), "proportional": np.zeros(4)}
    plain = targets._row(3, losses, visits, {})
    coded = targets._row(3, losses, visits, {"order": [0, 3, 1, 2]})
    assert [plain[f"greedy_obs{k}"] for k in range(1, 5)] == [50.0, 25.0, 10.0, 5.0]
    assert [coded[f"greedy_obs{k}"] for k in range(1, 5)] == [50.0, 5.0, 25.0, 10.0]
    assert (plain["visits"], plain["worst"], coded["worst"]) == (45.0, 37.5, 27.5)
    assert plain["first"] == 9.0
    assert plain["loss"] == pytest.approx(losses[-2:].mean())
    assert plain["curve"][:3] == [9.0, 9.0, 9.0]


def test_privacy_rows_claim_and_certify_nothing() -> None:
    one, five, certified = targets.privacy_rows()
    assert one["claimed"] > five["claimed"]
    assert one["epsilon"] is None
    assert 0.999 < certified["epsilon"] <= 1.0


@pytest.mark.slow
def test_a_quick_run_of_the_public_code_gives_all_quantities() -> None:
    rows = []
    for setting in targets.RUNS.settings:
        if setting.get("sigma", 0.0) != 0.0 or setting.get("objective") == "expectation":
            continue
        options = targets.RUNS.options(targets.RUNS.readings[2], setting)
        found = targets.trials(options, {**setting, "episodes": 15, "samples": 5}, [100, 101])
        rows += [{**setting, **row} for row in found]
    for target in targets.TARGETS:
        wanted = {q.name for q in target.quantities if any(matches(one, q.where) for one in rows)}
        assert set(estimates(target, rows)) == wanted
        assert wanted
