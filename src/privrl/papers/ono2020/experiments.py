"""Ono and Takahashi (2020): Tables 1 to 3 and Figures 2 and 3, beside what the paper prints.

A pole on a cart, up to 200 steps, under gravities of 9.7, 9.8 and 9.9; 20 trials of 90,000 reports.
A trial *succeeds* when the mean of ten scores in a row reaches 195 for the first time; (25) and
(26) number it by the first of the ten. That is a mark that luck reaches too: a policy that noise
pushes about is a good one now and then. So every row has, beside the paper's figures, what the same
noise does with all gradients set to zero, and how many trials end well: *sustained* is a mean of at
least 195 over the last thousand scores.

The paper says of its rows at epsilon infinity (here None) no more than "non-private A3C". Taken are
gradients as they are, neither noised nor clipped, and the buffer of the mechanism beside. `targets`
has the other readings, and what comes of them.

Rows are plain dictionaries, for JSON.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from privrl.control.pgc.learned import first_success, is_sustained
from privrl.control.pgc.learner import PGC, Collector
from privrl.control.pgc.program import OneOf, play
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.envs.control import CartPole, CartPoleParams
from privrl.papers.ono2020 import learner as printed
from privrl.papers.ono2020.printed import EPSILONS, printed_row

Row = dict[str, Any]
Algorithm = Literal["laplace", "sign", "recipe"]

GRAVITIES = (9.7, 9.8, 9.9)
SUBMISSIONS = 90_000
SEEDS = range(100, 120)
TARGET, MEAN_OF, LAST = 195.0, 10, 1000

# With which the paper runs either mechanism.
_BUFFERS = {"laplace": 1, "sign": 100}


@dataclass(frozen=True)
class Falling(CartPole):
    """A reward of -1 where the pole falls, and 0 for every other step.

    The paper's rewards are 1 for each step. But its discount, its weights of the losses, its
    exploration from 1/2 to 0, its network and its mark, ten scores in a row of at least 195, are
    those of a script for A3C that is widely copied, and that rewards so.
    """

    def _move(self, draw: Any, inner: Any, action: Any, params: CartPoleParams) -> Any:
        after, _, fell = super()._move(draw, inner, action, params)
        return after, jnp.where(fell, -1.0, 0.0), fell


def learner(algorithm: Algorithm, epsilon: float | None, **changes: Any) -> Collector:
    """An agent of the tables; without an epsilon there is no noise."""
    own: dict[str, Any] = {} if epsilon is not None else {"mechanism": None}
    if algorithm == "recipe":
        return PGC(**{"epsilon": epsilon, **own, **changes})
    own = {"mechanism": algorithm} if epsilon is not None else own | {"buffer": _BUFFERS[algorithm]}
    return printed.PGC(**{"epsilon": epsilon, **own, **changes})


def scores(
    learners: Sequence[Collector],
    seeds: Sequence[int],
    submissions: int,
    env: CartPole | None = None,
) -> NDArray[np.float32]:
    """(learners, seeds, submissions): scores of all agents, played side by side, compiled.

    A score is how many steps the pole stood, whatever is paid for them.
    The learners may differ in how agents report, and in the numbers of `Collector.settings`.
    """
    world = CartPole() if env is None else env
    dynamics = OneOf(world, "gravity", GRAVITIES)
    made = [replace(one, dynamics=dynamics).program(world, submissions) for one in learners]
    first = made[0].program
    alike = [one.name for one in fields(first) if one.name != "arms"]
    if any(getattr(one.program, name) != getattr(first, name) for one in made for name in alike):
        raise InputError("These learners cannot be played side by side: let only numbers differ.")
    arms = tuple(arm for one in made for arm in one.program.arms)
    # Nothing is certified here, so quantiles are looked up.
    program = replace(first, arms=arms, quantile="table")
    with jax.enable_x64(True):
        keys = jnp.tile(jax.vmap(jax.random.key)(jnp.asarray(seeds, jnp.uint32)), len(made))
        settings = {
            name: jnp.repeat(jnp.asarray([one.settings_by_name[name] for one in made]), len(seeds))
            for name in program.sweepable
        }
        played = np.asarray(play(program, keys, settings, submissions)["length"], np.float32)
    return played.reshape(len(made), len(seeds), submissions)


def first_success_time(played: Any) -> float:
    """FST (26) of a trial's scores: the number, from 1, of the first of the first ten in a row with
    a mean of at least 195; infinity for never."""
    end = first_success(played, TARGET, MEAN_OF)
    return math.inf if end is None else float(end - MEAN_OF + 1)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of the trials of one learner."""

    epsilon: float | None
    submissions: int
    firsts: Floats
    """(26) of each trial."""

    sustained: int
    last: Floats
    """The mean of each trial's last scores."""

    @classmethod
    def of(cls, epsilon: float | None, played: NDArray[np.float32]) -> "Outcome":
        """Of scores (trials, submissions)."""
        return cls(
            epsilon,
            played.shape[1],
            np.array([first_success_time(one) for one in played]),
            sum(is_sustained(one, TARGET, LAST) for one in played),
            np.mean(played[:, -LAST:], axis=1, dtype=np.float64),
        )

    def success_ratio(self, submissions: float) -> float:
        """(27): the share of trials that have succeeded by then."""
        return float(np.mean(self.firsts <= submissions))

    @property
    def auc(self) -> float:
        """The area under Figure 3's curve, as a share of all."""
        after = np.maximum(self.submissions - self.firsts + 1.0, 0.0)
        return float(np.mean(after)) / self.submissions

    @property
    def row(self) -> Row:
        # Of an even number the mean of the two in the middle, or never if either is.
        half = np.sort(self.firsts)[[(len(self.firsts) - 1) // 2, len(self.firsts) // 2]]
        median = float(half[0] + half[1]) / 2.0
        return {
            "median_first_success": median if math.isfinite(median) else None,
            "success_ratio": self.success_ratio(self.submissions),
            "sustained": self.sustained,
            "last_mean": float(np.mean(self.last)),
            "last_least": float(np.min(self.last)),
        }


@dataclass(frozen=True, eq=False)
class Experiment:
    """The trials of an algorithm: an outcome for each epsilon, and its control where there is."""

    algorithm: Algorithm
    outcomes: tuple[Outcome, ...]
    controls: tuple[Outcome | None, ...]

    def tables(self) -> Iterator[Row]:
        """Tables 1 to 3, a row for each epsilon."""
        plain = next((one.auc for one in self.outcomes if one.epsilon is None), None)

        def relative(outcome: Outcome) -> float | None:
            return outcome.auc / plain if plain else None

        for outcome, control in zip(self.outcomes, self.controls, strict=True):
            yield {
                "part": "tables",
                "algorithm": self.algorithm,
                "epsilon": outcome.epsilon,
                "trials": len(outcome.firsts),
                "submissions": outcome.submissions,
                **outcome.row,
                "relative_auc": relative(outcome),
                "zero_gradient": None
                if control is None
                else {**control.row, "relative_auc": relative(control)},
                "printed": printed_row(self.algorithm, outcome.epsilon),
            }

    def figure_3(self, points: int = 60) -> Iterator[Row]:
        """Success ratios over submissions."""
        for outcome, control in zip(self.outcomes, self.controls, strict=True):
            at = _evenly_spaced(outcome.submissions, points)
            yield {
                "part": "figure3",
                "algorithm": self.algorithm,
                "epsilon": outcome.epsilon,
                "submissions": at,
                "success_ratio": [outcome.success_ratio(n) for n in at],
                "zero_gradient": None
                if control is None
                else [control.success_ratio(n) for n in at],
            }


def experiment(
    algorithm: Algorithm,
    epsilons: Sequence[float | None] = EPSILONS,
    seeds: Sequence[int] = SEEDS,
    submissions: int = SUBMISSIONS,
    *,
    control: bool = True,
    env: CartPole | None = None,
) -> Experiment:
    """All trials of an algorithm at once; with `control` also those without gradients.

    These are played by themselves, because their episodes are short: who is done waits.
    """

    def run_outcomes(agents: Sequence[Collector]) -> list[Outcome]:
        played = scores(agents, seeds, submissions, env)
        return [Outcome.of(one.epsilon, some) for one, some in zip(agents, played, strict=True)]

    outcomes = run_outcomes([learner(algorithm, epsilon) for epsilon in epsilons])
    # Without noise and without gradients a model never moves, so there is no such control.
    noised = [one for one in epsilons if one is not None] if control else []
    zeros = [learner(algorithm, epsilon, control="zero") for epsilon in noised]
    without = {one.epsilon: one for one in run_outcomes(zeros)} if zeros else {}
    return Experiment(
        algorithm, tuple(outcomes), tuple(without.get(epsilon) for epsilon in epsilons)
    )


def _evenly_spaced(submissions: int, points: int) -> list[int]:
    """So many numbers of submissions, evenly apart, the last of all included."""
    count = min(points, submissions)
    return [submissions * (place + 1) // count for place in range(count)]
