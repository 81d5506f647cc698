"""The algebra of lazy noise, against explicit matrices; ranks against a plain trace."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray

from privrl.papers.seo2020 import lazy_noise, parts, ranks
from privrl.papers.seo2020.lazy_noise import Gap

Floats = NDArray[np.float64]

STEPS, REPLICAS, BLOCK = 37, 3, 4
DECAY = 0.9


def scalars() -> dict[str, Floats]:
    """Of each step and replica: ratios of 0 and beyond 1, steps without noise, huge and tiny."""
    rng = np.random.default_rng(1)
    ratio = rng.choice(
        [0.0, 1e-200, 0.3, 1.0, 2.5], (STEPS, REPLICAS), p=[0.05, 0.05, 0.2, 0.5, 0.2]
    )
    ratio[:, 0] = 1.0
    return {
        "ratio": ratio,
        "error": rng.normal(size=(STEPS, REPLICAS)),
        "scale": rng.uniform(0.0, 2.0, (STEPS, REPLICAS)),
        "std": rng.choice([0.0, 0.5, 3.0], (STEPS, REPLICAS)),
        "alive": rng.uniform(size=(STEPS, REPLICAS)) < 0.9,
    }


def by_matrices(given: dict[str, Floats], replica: int, begun: int, now: int) -> tuple[Any, ...]:
    """p, q, scaled q and the covariance from step `begun` (-1: the start) to `now`, inclusive.

    The noise of step `begun` itself counts, its transition does not.
    """
    one, scaled = np.eye(2), np.eye(2)
    covariance = np.zeros((2, 2))
    for t in range(max(begun, 0), now + 1):
        rho, delta, k, std = (
            given[name][t, replica] for name in ("ratio", "error", "scale", "std")
        )
        if not given["alive"][t, replica]:
            continue
        p = rho * DECAY
        step = np.array([[p, 0.0], [delta * p, 1.0]])
        into = rho * std * np.array([1.0, delta])
        if t == begun:
            covariance = np.outer(into, into)
            continue
        one = step @ one
        scaled = np.array([[p, 0.0], [k * delta * p, 1.0]]) @ scaled
        covariance = step @ covariance @ step.T + np.outer(into, into)
    return one[0, 0], one[1, 0], scaled[1, 0], covariance


@pytest.mark.slow
def test_gaps_are_products_of_matrices_from_every_step_to_every_other() -> None:
    given = scalars()
    with jax.enable_x64(True):

        def body(gaps: lazy_noise.Gaps, drawn: Any) -> Any:
            time, now = drawn
            step = lazy_noise.step_gap(
                now["ratio"], jnp.asarray(DECAY), now["error"], now["scale"], now["std"]
            )
            step = lazy_noise.select(
                now["alive"], step, lazy_noise.identity_gap((REPLICAS,), True, True)
            )
            gaps = lazy_noise.record(gaps, time, step)
            over = (time + 1) % BLOCK == 0
            closed = lazy_noise.close_block(gaps, time // BLOCK)
            gaps = jax.tree.map(lambda a, b: jnp.where(over, a, b), closed, gaps)
            marks = jnp.concatenate([jnp.zeros((1,), int), gaps.mark(jnp.arange(STEPS))])
            marks = jnp.broadcast_to(marks[:, None], (STEPS + 1, REPLICAS))
            block = jnp.where(over, STEPS, time // BLOCK)
            return gaps, lazy_noise.gap_since(gaps, marks, block)

        first = lazy_noise.initial_gaps(STEPS, BLOCK, REPLICAS, True, True)
        times = jnp.arange(STEPS)
        _, gaps = jax.jit(lambda: jax.lax.scan(body, first, (times, given)))()
    found = [np.asarray(part) for part in gaps]
    compared = 0
    for replica in range(REPLICAS):
        for now in range(STEPS):
            for begun in range(-1, now + 1):
                p, q, scaled, covariance = by_matrices(given, replica, begun, now)
                got = [float(part[now, begun + 1, replica]) for part in found]
                if begun >= 0 and not given["alive"][begun, replica]:
                    continue  # nobody was there to be marked
                expected = [p, q, scaled, covariance[0, 0], covariance[0, 1], covariance[1, 1]]
                np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-12)
                compared += 1
    assert compared > 1500


@pytest.mark.parametrize(
    ("e", "x", "u"),
    [
        (4.0, -3.0, 5.0),
        (0.0, 0.0, 5.0),  # a ratio of 0 has emptied the trace
        (4.0, 6.0, 9.0),  # one step: e and u move together
        (3.0, 0.7 * 3.0, 0.49 * 3.0 * (1.0 - 1e-15)),  # and rounding took U below that
        (1e-320, 0.0, 1.0),  # below what can be divided by
    ],
)
def test_two_normals_have_the_covariance_of_the_gap(e: float, x: float, u: float) -> None:
    with jax.enable_x64(True):
        trace, both, weight = (jnp.asarray(one) for one in (e, x, u))
        gap = Gap(jnp.ones(()), jnp.zeros(()), None, trace, both, weight)
        a, b, c = (float(one) for one in lazy_noise.covariance_factor(gap))
    np.testing.assert_allclose((a * a, a * b, b * b + c * c), (e, x, u), rtol=1e-12, atol=1e-300)


def test_a_tiny_ratio_adds_no_noise_to_preferences() -> None:
    """Its square underflows, but not what it leaves of a large variance; nor does X."""
    many, few, ratio = 1e6, 50.0, 1.2e-154
    with jax.enable_x64(True):

        def gap(trace: float, both: float) -> Gap:
            fields = (1.0, 0.0, 0.0, trace, both, 1.0)
            return Gap(*(jnp.asarray(one) for one in fields))

        step = lazy_noise.step_gap(*(jnp.asarray(one) for one in (ratio, 1.0, 0.0, 1.0, few)))
        after = lazy_noise.compose(gap(many, many**0.5), step)
        small = gap(3e-308, 5e-308**0.5)  # as if E had lost 2e-308 that way
        for one in (after, small):
            _, b, c = lazy_noise.covariance_factor(one)
            assert float(b * b + c * c) == pytest.approx(1.0, rel=1e-12)
        assert after.trace is not None
        assert float(after.trace) == pytest.approx(ratio * (ratio * (many + few**2)), rel=1e-9)


def test_a_tiny_ratio_and_a_huge_scale_cancel() -> None:
    """A bound of 0.3 for z = rho delta with rho = 1e-306 and delta = 1e3."""
    with jax.enable_x64(True):
        step = lazy_noise.step_gap(*(jnp.asarray(one) for one in (1e-306, 0.9, 1e3, 3e302, 1.0)))
        large = lazy_noise.step_gap(*(jnp.asarray(one) for one in (1e-306, 0.9, 1e3, 1e306, 1.0)))
    assert step.scaled_push is not None
    assert float(step.scaled_push) == pytest.approx(0.27, rel=1e-12)
    assert large.scaled_push is not None
    assert float(large.scaled_push) == pytest.approx(900.0, rel=1e-12)
    with jax.enable_x64(True):
        k = parts.clip_ratio(jnp.asarray(100.0), jnp.asarray([3e-308, 0.0]))
    assert np.all(np.isfinite(np.asarray(k)))


def test_a_trace_that_underflows_leaves_numbers() -> None:
    with jax.enable_x64(True):
        step = lazy_noise.step_gap(*(jnp.asarray([one]) for one in (1e-9, 0.9, 2.0, 1.0, 1.0)))

        def body(_: Any, gap: Gap) -> Gap:
            return lazy_noise.compose(gap, step)

        gap = jax.lax.fori_loop(0, 5000, body, lazy_noise.identity_gap((1,), True, True))
        spread = lazy_noise.covariance_factor(gap)
    assert float(gap.keep[0]) == 0.0
    assert np.all(np.isfinite(np.asarray(spread)))
    assert gap.weight is not None
    assert float(gap.weight[0]) == pytest.approx(5000 * (1e-9 * 2.0) ** 2, rel=1e-6)


def test_ranks_are_those_of_a_plain_trace() -> None:
    rng = np.random.default_rng(2)
    steps, replicas, states = 60, 4, 9
    visited = rng.integers(states, size=(steps, replicas))
    corrected = rng.integers(states, size=(steps, replicas))
    ratio = rng.choice([0.0, 0.5, 1.0, 3.0], (steps, replicas), p=[0.05, 0.25, 0.5, 0.2])
    error = rng.choice([0.0, -1.5, 0.7], (steps, replicas), p=[0.1, 0.5, 0.4])
    amount = rng.choice([0.0, 0.2, -3.0], (steps, replicas))
    # Entries that cancel exactly are no entries.
    error[5], amount[5], corrected[5] = 1.0, ratio[5], visited[5]
    ratio[4], ratio[5] = 0.0, np.maximum(ratio[5], 0.5)
    amount[5] = ratio[5]

    with jax.enable_x64(True):

        def body(now: ranks.Ranks, drawn: Any) -> Any:
            s, rho, delta, c, y = drawn
            now = ranks.visit(now, s, rho, jnp.asarray(DECAY))
            return now, (now.size, ranks.norm_and_median(now, delta, c, y))

        given = (visited.astype(np.int32), ratio, error, corrected.astype(np.int32), amount)
        _, (sizes, (norms, medians)) = jax.jit(
            lambda: jax.lax.scan(body, ranks.initial_ranks(states + 2, replicas), given)
        )()
    some_zero = False
    for replica in range(replicas):
        trace = np.zeros(states)
        for t in range(steps):
            trace = ratio[t, replica] * (DECAY * trace + (np.arange(states) == visited[t, replica]))
            ordered = np.sort(trace)[::-1]
            np.testing.assert_allclose(sizes[t, :states, replica], ordered, rtol=1e-13)
            z = error[t, replica] * trace
            z[corrected[t, replica]] -= amount[t, replica]
            nonzero = np.abs(z[z != 0.0])
            some_zero |= nonzero.size == 0
            assert float(norms[t, replica]) == pytest.approx(np.linalg.norm(z), rel=1e-12)
            expected = np.median(nonzero) if nonzero.size else 0.0
            assert float(medians[t, replica]) == pytest.approx(expected, rel=1e-14)
    assert some_zero
