"""The algorithm as printed against the loop that the benchmark times, from the same draws."""

from typing import Any

import numpy as np
import pytest

from benchmarks.paper_actor_critic import play
from privrl.papers.seo2020 import ActorCritic
from privrl.papers.seo2020.algorithm import run, scale_to_bound
from tests.papers.seo2020.tables import small


@pytest.mark.parametrize("lambda_", [0.0, 0.8])
@pytest.mark.parametrize("variant", ["none", "actor", "critic", "both"])
@pytest.mark.parametrize(
    "changes",
    [{}, {"acting": "softmax", "correction": "printed"}, {"clip": 0.3, "max_steps": 7}],
    ids=["default", "printed", "constant"],
)
def test_the_benchmark_times_the_same_algorithm(
    changes: dict[str, Any], variant: Any, lambda_: float
) -> None:
    """With noise, whose normals both draw from one generator in one order."""
    config = ActorCritic(variant=variant, lambda_=lambda_, actor_step=0.1, sigma=0.5, **changes)
    rng = np.random.default_rng(8)
    first, uniforms = rng.random(4), rng.random((4, 20, 2))
    found = run(config, small(), first, uniforms, np.random.default_rng(9))
    timed = play(config, small(), first, uniforms, np.random.default_rng(9))
    assert found.lengths == timed.length
    assert found.returns == timed.total
    for one, other in ((found.u, timed.u), (found.v, timed.v), (found.w, timed.w)):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_vectors_are_scaled_to_the_median_of_what_is_not_zero() -> None:
    printed, constant = ActorCritic(), ActorCritic(clip=2.0)
    vector, bound = scale_to_bound(printed, np.array([0.0, 3.0, -4.0, 0.0]))
    assert bound == 3.5
    np.testing.assert_allclose(vector, [0.0, 2.1, -2.8, 0.0])
    vector, bound = scale_to_bound(constant, np.array([3e-200, -4e-200]))
    assert bound == 2.0
    np.testing.assert_allclose(vector, [1.2, -1.6])
    for config, wanted in ((printed, 0.0), (constant, 2.0)):
        vector, bound = scale_to_bound(config, np.zeros(2))
        assert bound == wanted
        np.testing.assert_array_equal(vector, [0.0, 0.0])
