"""Rajabi et al. (2022), "Privacy-preserving reinforcement learning beyond expectation", run again.

What is printed: Table I, the mean number of visits to each of four obstacles in a roll-out of 400
steps, with a prospect-theoretic objective and with the expectation, at three noise levels, acting
greedily and in proportion; Figure 2, the loss while learning, at three noise levels. Both are means
over 20 runs. Three observations are made of the table (`printed.STATEMENTS`); `verdicts` says which
were reproduced here, and which the printed numbers themselves show.

The printed weights, and the public code, raise negative numbers to fractional powers
(`privrl.papers.rajabi2022.algorithm` has the list), so that what was run for the paper is not
known. Here the estimator is the corrected one. Readings tried: the algorithm as printed on the
square of the text, and with the settings of the public code on the square of the code.

Nothing is rolled out. Where in its cell a point lies is drawn afresh in every step, so that a
policy of points visits cells like its mean over the points of each cell, of which there are
`POINTS` here, evenly placed; the tables of the grid do the rest. A visit is a step that ends in the
obstacle's cell. A roll-out ends at the target; that of the public code does not, and goes on past
it, next to the obstacle of 50: those visits are `visits_past_target`, and the printed numbers are
of that kind.

Each policy is judged as it is shown, with noise, and, as the public code does it, by the network
alone. Besides visits there are its nested CPT value at the start, how far it is below the best
there is, the mean of this over all cells, how often it does what a best policy for its own
objective would do where that one goes, and how likely it reaches the target.

None of this is certified, and no claim holds for these sigmas, which are not Theorem 1's. Rows are
plain dictionaries, for JSON.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import product
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np

from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs import ObstacleSquare
from privrl.envs.grid import ObstacleGrid
from privrl.papers.rajabi2022.fast import ProspectQRuns, train
from privrl.papers.rajabi2022.learner import ProspectQ
from privrl.papers.rajabi2022.printed import HORIZON, SIGMAS, STATEMENTS, TABLE_1, Objective
from privrl.papers.rajabi2022.spec import Acting
from privrl.risk import CPTSolution, Prospect, solve

Row = dict[str, Any]
Preset = Literal["printed", "public-code"]

RATE = 1.0
"""beta of the public code, since Theorem 1 says nothing of these sigmas."""

POINTS = 16
"""Points of each cell that a policy's mean is over: a lattice of four by four."""

PROSPECTS: dict[Objective, Prospect] = {
    "CPT": Prospect.rajabi2022(),
    "expectation": Prospect.neutral(),
}


def make_env(preset: Preset) -> ObstacleSquare:
    """Where it is learned: as in the text, or as in the code."""
    if preset not in get_args(Preset):
        raise InputError(f"must be 'printed' or 'public-code', not {preset!r}.", field="preset")
    return ObstacleSquare() if preset == "printed" else ObstacleSquare.published_code()


def learner(preset: Preset, objective: Objective, acting: Acting) -> ProspectQ:
    """The settings of a row but for its sigma."""
    make = ProspectQ.printed if preset == "printed" else ProspectQ.public_code
    return make(sigma=0.0, rate=RATE, prospect=PROSPECTS[objective], acting=acting)


@lru_cache(maxsize=16)
def _train_runs(
    preset: Preset, objective: Objective, acting: Acting, seeds: tuple[int, ...]
) -> ProspectQRuns:
    """All noise levels, one after the other; a seed means the same world at each."""
    keys = jnp.stack([jax.random.key(seed) for seed in seeds] * len(SIGMAS))
    settings = {"sigma": np.repeat(SIGMAS, len(seeds))}
    return train(keys, learner(preset, objective, acting), make_env(preset), settings)


# --- what a policy is worth -----------------------------------------------------------------------


class PolicyEvaluator:
    """Exact answers about policies of points, on the tables of a grid."""

    def __init__(self, env: ObstacleSquare, gamma: float) -> None:
        self.grid: ObstacleGrid = env.grid
        self.gamma = gamma
        side = math.isqrt(POINTS)
        inside = (np.indices((side, side)).reshape(2, -1).T + 0.5) / side
        corners = np.asarray(self.grid.position(np.arange(env.size**2))) - 0.5
        self.points: Floats = (corners[:, None] + inside).reshape(-1, 2)
        self.obstacles = [self.grid.cell(x, y) for x, y, _ in self.grid.obstacles]

    @cached_property
    def best(self) -> dict[Objective, CPTSolution]:
        """The exact optimum of each objective."""
        return {name: solve(self.grid, rho, self.gamma) for name, rho in PROSPECTS.items()}

    def tables(self, probs: Floats) -> Floats:
        """(..., cells, actions): means over the points of each cell, of (..., points, actions)."""
        split = probs.reshape(*probs.shape[:-2], self.grid.num_states, -1, probs.shape[-1])
        return np.asarray(split.mean(axis=-2))

    def cell_visits(self, policy: Floats, *, past_target: bool = False) -> Floats:
        """How many of the horizon's steps end in each cell: until the target, or also past it."""
        if not past_target:
            return self.grid.visits(policy, HORIZON)
        matrix = self._transitions_past_target(policy)
        now, total = self.grid.tables.start, np.zeros(self.grid.num_states)
        for _ in range(HORIZON):
            now = now @ matrix
            total += now
        return total

    def _transitions_past_target(self, policy: Floats) -> Floats:
        """The transition matrix of a roll-out that goes on past the target.

        The target is a corner like the start, turned by half a turn, which takes left for right and
        up for down.
        """
        tables, cells = self.grid.tables, self.grid.num_states
        matrix = np.zeros((cells, cells))
        probs = policy[:, :, None] * tables.probabilities
        rows = np.broadcast_to(np.arange(cells)[:, None, None], probs.shape)
        np.add.at(matrix, (rows, tables.successors), probs)
        turned = policy[-1, [1, 0, 3, 2], None] * tables.probabilities[0]
        matrix[-1] = 0.0
        np.add.at(matrix[-1], cells - 1 - tables.successors[0], turned)
        return matrix

    def row(self, policy: Floats, objective: Objective) -> Row:
        """What there is to say of a policy of cells."""
        steps = self.cell_visits(policy)
        best = self.best["CPT"].values
        own = self.best[objective]
        there = self.grid.tables.start + self.cell_visits(own.policy)
        # Nobody acts at the target.
        there[-1] = 0.0
        good = own.action_values >= own.values[:, None] - 1e-9
        agrees = np.sum(policy * good, axis=1)
        values = solve(self.grid, PROSPECTS["CPT"], self.gamma, policy).values
        return {
            "visits": steps[self.obstacles],
            "visits_past_target": self.cell_visits(policy, past_target=True)[self.obstacles],
            "cpt_value": values[0],
            "cpt_shortfall": best[0] - values[0],
            "mean_cpt_shortfall": np.mean(best - values),
            "agreement": there @ agrees / np.sum(there),
            "reaches_target": steps[-1],
        }


def references(presets: Sequence[Preset] = get_args(Preset)) -> Iterator[Row]:
    """Exactly best policies for both objectives, and any action, all alike."""
    for preset in presets:
        judge = PolicyEvaluator(make_env(preset), learner(preset, "CPT", "greedy").gamma)
        for objective in get_args(Objective):
            found = judge.row(judge.best[objective].policy, objective)
            yield _to_json({"experiment": "exact", "preset": preset, "policy": objective, **found})
        found = judge.row(judge.grid.uniform(), "CPT")
        yield _to_json({"experiment": "exact", "preset": preset, "policy": "uniform", **found})


def _to_json(row: Row) -> Row:
    """In JSON's own types."""
    return {
        name: np.asarray(value).tolist() if isinstance(value, np.ndarray | np.generic) else value
        for name, value in row.items()
    }


# --- Table I --------------------------------------------------------------------------------------


def table_1(seeds: Sequence[int], presets: Sequence[Preset] = get_args(Preset)) -> Iterator[Row]:
    """Table I: a row for each objective, noise level and way of acting, with and without noise."""
    count = len(seeds)
    for preset, objective, acting in product(presets, get_args(Objective), get_args(Acting)):
        # The public code learns once, and acts in both ways on that.
        learned = acting if preset == "printed" else "greedy"
        run = _train_runs(preset, objective, learned, tuple(seeds))
        judge = PolicyEvaluator(make_env(preset), run.program.learner.gamma)
        for shown in ("Q and noise", "Q alone"):
            noise = shown == "Q and noise"
            probs = run.program.probabilities(run.state, judge.points, acting, noise=noise)
            levels = np.split(judge.tables(probs), len(SIGMAS))
            for sigma, policies in zip(SIGMAS, levels, strict=True):
                if sigma == 0.0 and not noise:
                    continue
                found = [judge.row(policy, objective) for policy in policies]
                yield {
                    "experiment": "table 1",
                    "preset": preset,
                    "objective": objective,
                    "acting": acting,
                    "sigma": sigma,
                    "shown": shown,
                    "runs": count,
                    **_summary(found),
                    "printed": list(TABLE_1[objective, acting, sigma]),
                    **{
                        f"{name}_by_run": np.round([one[name] for one in found], 5).tolist()
                        for name in _VISITS
                    },
                }


def _summary(found: list[Row]) -> Row:
    """Means over runs, and the standard deviations of visits where there are several."""
    means = {name: np.mean([one[name] for one in found], axis=0) for name in found[0]}
    row = _to_json(means)
    if len(found) > 1:
        for name in _VISITS:
            row[f"{name}_deviation"] = np.std([one[name] for one in found], axis=0, ddof=1).tolist()
    return row


def verdicts(rows: Iterable[Row]) -> Iterator[Row]:
    """Which of the three observations hold, of what is shown and of Q alone, and of the paper's.

    Differences count that are larger than two standard errors, over runs of the same seeds: of the
    visits to all obstacles, or to the two with the highest penalties, averaged over what else
    varies. For the third, each next noise level must not be below the last, and the highest above
    none. The printed numbers have no errors, so there the sign decides.
    """
    kinds: dict[tuple[Preset, str, str], dict[Any, Floats]] = {}
    for row in rows:
        if row["experiment"] != "table 1":
            continue
        if row["runs"] < 2:
            raise InputError("A verdict needs at least two runs of each.")
        # Without noise, what is shown is Q alone.
        shown = ("Q and noise", "Q alone") if row["sigma"] == 0.0 else (row["shown"],)
        for kind, counted in product(shown, _VISITS):
            found = kinds.setdefault((row["preset"], kind, counted), {})
            by_run = np.asarray(row[f"{counted}_by_run"])
            found[row["objective"], row["acting"], row["sigma"]] = by_run
    about = {"experiment": "table 1, what is said"}
    for (preset, kind, counted), visits in kinds.items():
        own = {**about, "preset": preset, "shown": kind, "counted": counted}
        yield from ({**own, **one} for one in _check_findings(visits))
    paper = {key: np.asarray([value]) for key, value in TABLE_1.items()}
    own = {**about, "preset": "the paper's own numbers"}
    yield from ({**own, **one} for one in _check_findings(paper))


_VISITS = ("visits", "visits_past_target")


def _check_findings(visits: dict[Any, Floats]) -> Iterator[Row]:
    """Of visits (runs, obstacles) by objective, acting and sigma."""
    for said, chosen in zip(STATEMENTS[:2], (slice(None), slice(0, 2)), strict=True):
        saved = [
            (visits["expectation", acting, sigma] - visits["CPT", acting, sigma])[:, chosen].sum(1)
            for acting, sigma in product(get_args(Acting), SIGMAS)
        ]
        mean, errors = _mean_and_z(np.mean(saved, axis=0))
        yield {
            "said": said,
            "holds": errors > 2.0,
            "fewer_visits": round(mean, 4),
            "standard_errors": _round_finite(errors),
            "each": [round(float(np.mean(one)), 4) for one in saved],
        }
    total = {
        sigma: np.mean(
            [visits[o, a, sigma].sum(1) for o, a in product(get_args(Objective), get_args(Acting))],
            axis=0,
        )
        for sigma in SIGMAS
    }
    whole, errors = _mean_and_z(total[SIGMAS[-1]] - total[SIGMAS[0]])
    steps = [_mean_and_z(total[b] - total[a])[1] for a, b in ((0.0, 1.0), (1.0, 5.0))]
    yield {
        "said": STATEMENTS[2],
        "holds": errors > 2.0 and min(steps) > -2.0,
        "more_visits": round(whole, 4),
        "standard_errors": _round_finite(errors),
        "each": [round(float(np.mean(total[sigma])), 4) for sigma in SIGMAS],
    }


def _mean_and_z(differences: Floats) -> tuple[float, float]:
    """The mean over runs, and by how many standard errors it differs from 0; for one run the sign
    decides."""
    mean = float(np.mean(differences))
    if len(differences) < 2:
        return mean, math.copysign(math.inf, mean) if mean else 0.0
    error = float(np.std(differences, ddof=1)) / math.sqrt(len(differences))
    return mean, mean / max(error, 1e-9)


def _round_finite(errors: float) -> float | None:
    return round(errors, 2) if math.isfinite(errors) else None


# --- Figure 2 -------------------------------------------------------------------------------------


def figure_2(seeds: Sequence[int], presets: Sequence[Preset] = get_args(Preset)) -> Iterator[Row]:
    """Figure 2: the loss of the CPT objective, in 20 parts of the run, by noise level."""
    for preset in presets:
        losses = _train_runs(preset, "CPT", "greedy", tuple(seeds)).losses
        for sigma, own in zip(SIGMAS, np.split(losses, len(SIGMAS)), strict=True):
            parts = np.stack([p.mean(axis=1) for p in np.array_split(own, _PARTS, axis=1)], axis=1)
            row: Row = {
                "experiment": "figure 2",
                "preset": preset,
                "sigma": sigma,
                "runs": len(own),
                "mean": parts.mean(axis=0).tolist(),
            }
            if len(own) > 1:
                row["variance"] = parts.var(axis=0, ddof=1).tolist()
            yield row


_PARTS = 20
