"""Table I and Figure 2 of Rajabi et al. (2022): exact visits, rows, and what is made of them."""

from dataclasses import replace
from typing import Any, get_args

import jax
import numpy as np
import pytest

from privrl.envs import ObstacleSquare, episodes
from privrl.papers.rajabi2022 import experiments as paper
from privrl.papers.rajabi2022 import printed
from privrl.papers.rajabi2022.spec import Acting
from privrl.privacy import InputError

KEY = jax.random.key(8)


def rows(cpt: float = 1.0, mean: float = 2.0, noise: float = 0.5, spread: float = 0.1) -> list[Any]:
    """A table in which everything said holds, for 10 runs."""
    rng = np.random.default_rng(3)
    found = []
    for objective in get_args(printed.Objective):
        for acting in get_args(Acting):
            for sigma in printed.SIGMAS:
                visits = np.full((10, 4), (cpt if objective == "CPT" else mean) + noise * sigma)
                found.append(
                    {
                        "experiment": "table 1",
                        "preset": "printed",
                        "objective": objective,
                        "acting": acting,
                        "sigma": sigma,
                        "shown": "Q and noise",
                        "runs": 10,
                        "visits_by_run": visits + spread * rng.normal(size=visits.shape),
                        "visits_past_target_by_run": visits,
                    }
                )
    return found


def holds(given: list[Any]) -> list[bool]:
    kind = ("Q and noise", "visits")
    found = [one for one in paper.verdicts(given) if (one.get("shown"), one.get("counted")) == kind]
    assert [one["said"] for one in found] == list(printed.STATEMENTS)
    return [one["holds"] for one in found]


def test_verdicts() -> None:
    # Of Q alone nothing is known here but what needs no noise.
    both = [{**one, "shown": "Q alone"} for one in rows() if one["sigma"] > 0.0]
    assert holds(rows() + both) == [True, True, True]
    assert holds(rows(cpt=2.0) + both)[:2] == [False, False]
    assert holds(rows(noise=-0.5) + both)[2] is False
    # Within the errors.
    assert holds(rows(mean=1.05, noise=0.01, spread=5.0) + both) == [False, False, False]
    # Fewer visits in all, but not to the obstacles with high penalties.
    other = rows(cpt=2.0)
    for one in other:
        if one["objective"] == "CPT":
            one["visits_by_run"] = one["visits_by_run"] - np.array([0.0, 0.0, 1.0, 1.0])
    assert holds(other + both)[:2] == [True, False]


def test_the_papers_own_numbers_are_judged_too() -> None:
    assert len(printed.TABLE_1) == 12
    both = [{**one, "shown": "Q alone"} for one in rows() if one["sigma"] > 0.0]
    last = list(paper.verdicts(rows() + both))[-3:]
    assert all(one["preset"] == "the paper's own numbers" for one in last)
    # By its own table, noise does not add visits.
    assert [one["holds"] for one in last] == [True, True, False]


def test_a_verdict_needs_several_runs() -> None:
    with pytest.raises(InputError, match="at least two runs"):
        list(paper.verdicts([{**one, "runs": 1} for one in rows()]))


def test_exact_policies() -> None:
    found = {(one["preset"], one["policy"]): one for one in paper.references()}
    for preset in get_args(paper.Preset):
        best, mean, blind = (found[preset, name] for name in ("CPT", "expectation", "uniform"))
        for name in ("cpt_shortfall", "mean_cpt_shortfall"):
            assert best[name] == pytest.approx(0.0, abs=1e-12)
        assert 0.0 < mean["cpt_shortfall"] < blind["cpt_shortfall"]
        assert best["agreement"] == pytest.approx(1.0)
        assert mean["agreement"] == pytest.approx(1.0)
        assert blind["agreement"] < 0.5
        assert max(best["visits"]) < 0.02
        assert max(mean["visits"]) < 0.02
        # Who goes on past the target stays next to the obstacle of 50.
        assert best["visits_past_target"][0] > 10.0
        assert mean["reaches_target"] == pytest.approx(1.0)


@pytest.mark.slow
def test_a_policy_of_points_visits_like_its_mean() -> None:
    """Against roll-outs in the square, of a policy that depends on the place in a cell."""
    square = ObstacleSquare(obstacles=((2, 1, 50.0), (1, 3, 25.0)), size=4, step_limit=400)
    judge = paper.PolicyEvaluator(square, 0.9)

    def likely(points: Any) -> Any:
        inside = points - np.floor(points)
        up = 0.2 + 0.5 * (inside[:, 0] > 0.5)
        return np.stack([0.05 + 0 * up, 0.9 - up, up, 0.05 + 0 * up], axis=1)

    table = judge.tables(likely(judge.points))
    np.testing.assert_allclose(table, np.tile([0.05, 0.45, 0.45, 0.05], (16, 1)))
    bounds = np.array([0.05, 0.05, 0.95])

    def policy(key: jax.Array, point: jax.Array) -> jax.Array:
        up = 0.2 + 0.5 * (point[0] % 1.0 > 0.5)
        below = jax.numpy.asarray(bounds) + jax.numpy.asarray([0.0, 0.9, 0.0]) - up * np.eye(3)[1]
        return jax.numpy.sum(jax.random.uniform(key) >= below, dtype=np.int32)

    count = 2_000
    played = jax.jit(lambda key: episodes(square, policy, key, count, steps=60))(KEY)
    cells = np.asarray(square.cells(played.transitions.next_observation))
    valid = np.asarray(played.valid)
    exact = judge.cell_visits(table)[judge.obstacles]
    for cell, truth in zip(judge.obstacles, exact, strict=True):
        visits = np.sum((cells == cell) & valid, axis=1)
        assert abs(visits.mean() - truth) < 4.9 * visits.std() / np.sqrt(count)


def test_steps_are_counted_where_they_end() -> None:
    """Straight to the obstacle of 50 and through it, if every action does what it says."""
    square = ObstacleSquare(intended=1.0)
    judge = paper.PolicyEvaluator(square, 0.9)
    right, up = np.eye(4)[1], np.eye(4)[2]
    policy = np.array([right if cell % 10 < 9 else up for cell in range(100)])
    steps = judge.cell_visits(policy)
    assert steps[judge.obstacles].tolist() == [1.0, 0.0, 0.0, 0.0]
    assert steps.sum() == 18.0  # of which the last ends at the target
    found = judge.row(policy, "expectation")
    assert found["reaches_target"] == 1.0
    assert found["visits"].tolist() == [1.0, 0.0, 0.0, 0.0]


def test_past_the_target_all_rows_are_distributions() -> None:
    for preset in get_args(paper.Preset):
        judge = paper.PolicyEvaluator(paper.make_env(preset), 0.9)
        policy = np.random.default_rng(0).dirichlet(np.ones(4), 100)
        onward = judge._transitions_past_target(policy)
        np.testing.assert_allclose(onward.sum(axis=1), 1.0)
        # The target leads to its two neighbours, or stays if the text is followed.
        assert set(np.flatnonzero(onward[-1])) <= {98, 89, 99}
        # Left from the target is what right is from the start: intended, or the other way.
        stays = policy[99, 1] + policy[99, 2] if preset == "printed" else 0.0
        assert onward[99, 99] == pytest.approx(stays)
        one = np.zeros((100, 4))
        one[:, 0] = 1.0
        assert judge._transitions_past_target(one)[99, 98] == pytest.approx(0.9)


@pytest.mark.slow
def test_tables_and_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    make = paper.learner
    short: dict[str, Any] = {"iterations": 60, "samples": 20}
    monkeypatch.setattr(paper, "learner", lambda *given: replace(make(*given), **short))
    paper._train_runs.cache_clear()
    found = list(paper.table_1([0, 1]))
    assert len(found) == 40
    for one in found:
        assert one["runs"] == 2
        np.testing.assert_allclose(np.mean(one["visits_by_run"], axis=0), one["visits"], atol=1e-4)
        assert one["cpt_shortfall"] >= 0.0
        assert one["printed"] == list(
            printed.TABLE_1[one["objective"], one["acting"], one["sigma"]]
        )
    assert len(list(paper.verdicts(found))) == 27
    curves = list(paper.figure_2([0, 1]))
    assert [one["sigma"] for one in curves] == list(printed.SIGMAS) * 2
    for one in curves:
        assert len(one["mean"]) == len(one["variance"]) == 20
    # Without noise the loss is smaller.
    assert curves[0]["mean"][0] < curves[2]["mean"][0]
    paper._train_runs.cache_clear()


def test_presets_have_names() -> None:
    with pytest.raises(InputError, match="preset must be"):
        paper.make_env("notebook")  # type: ignore[arg-type]
