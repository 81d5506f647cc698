"""Gambles at which people and the mean disagree, learned privately: a CPT actor-critic.

Rajabi et al. (2022) leave an actor-critic for cumulative prospect theory to future work.
`ActorCritic(prospect=...)` is one, certified, and this is where it is judged: on choices between a
sure amount and a gamble for which Tversky and Kahneman's (1992) median person chooses otherwise
than the mean. All four of their pattern are here: small probabilities of gains are sought and small
probabilities of losses shunned, and the other way round where probabilities are large.

An episode is one choice of one person. If the gamble is taken with probability q, returns are the
prize with probability q p, the sure amount with probability 1 - q, and nothing otherwise; their CPT
value as a function of q is known exactly. It is not linear, so the best q may lie between 0 and 1
(`best_prob`): somebody who overweighs small probabilities likes to leave it to chance whether
to bet. An agent *chooses* the gamble if it takes it more often than not.

Rows are plain dictionaries, for JSON. Settings were chosen on seeds 0 to 9; what is reported is
from seeds 100 to 109.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import jax
import numpy as np

from privrl.control import ActorCritic, CertifiedProgram
from privrl.core.types import Floats
from privrl.envs.tabular import TabularMDP
from privrl.privacy.promise import Budget
from privrl.risk import Prospect

Row = dict[str, Any]

SEEDS = range(100, 110)
DELTA = 1e-6
EPSILONS = (1.0, 10.0)
PEOPLE = (2_000, 20_000)
PROSPECTS: dict[str, Prospect] = {
    "tversky-kahneman": Prospect.tversky_kahneman(),
    "neutral": Prospect.neutral(),
}

_SURE, _BET = 0, 1
_START, _PAID, _LOST = range(3)


@dataclass(frozen=True)
class Gamble:
    """`prize` with `prob`, or else nothing; or `sure`."""

    name: str
    prize: float
    prob: float
    sure: float

    @property
    def return_range(self) -> tuple[float, float]:
        return min(self.prize, 0.0), max(self.prize, 0.0)

    @cached_property
    def env(self) -> TabularMDP:
        """One choice, then the end."""
        probs, rewards = np.zeros((2, 3, 2, 3))
        probs[1:, :, _LOST] = 1.0
        probs[_START, _SURE, _PAID], rewards[_START, _SURE, _PAID] = 1.0, self.sure
        probs[_START, _BET, _PAID], rewards[_START, _BET, _PAID] = self.prob, self.prize
        probs[_START, _BET, _LOST] = 1.0 - self.prob
        return TabularMDP.from_dense(
            probs,
            rewards,
            [False, True, True],
            start=[1.0, 0.0, 0.0],
            step_limit=1,
            name=self.name,
        )

    def value(self, prospect: Prospect, taken: Any) -> Floats:
        """The CPT value of taking the gamble with each of these probabilities."""
        q = np.asarray(taken, np.float64)[..., None]
        probs = np.concatenate([self.prob * q, 1.0 - q, (1.0 - self.prob) * q], axis=-1)
        found = prospect.of_distribution(np.array([self.prize, self.sure, 0.0]), probs)
        return np.asarray(found, np.float64)

    def is_worth_taking(self, prospect: Prospect) -> bool:
        """Whether the gamble is worth more than the sure amount."""
        sure, bet = self.value(prospect, [0.0, 1.0])
        return bool(bet > sure)

    def best_prob(self, prospect: Prospect) -> float:
        """With which probability it is best taken, to three digits."""
        grid = np.linspace(0.0, 1.0, 1001)
        return float(grid[np.argmax(self.value(prospect, grid))])


GAMBLES = (
    Gamble("long shot", 20.0, 0.05, 1.5),
    Gamble("insurance", -20.0, 0.05, -1.5),
    Gamble("sure thing", 4.0, 0.8, 3.0),
    Gamble("way out", -4.0, 0.8, -3.0),
)
"""A lottery ticket; a policy against a rare loss; a gain and a loss that are likely: the last two
are Problems 3 and 3' of Kahneman and Tversky (1979), in thousands."""

SETTINGS: Row = {"curve_weight": 0.5}
BATCHES = 20
"""What all agents here have that is not a default; found with seeds 0 to 9."""


def agent(gamble: Gamble, prospect: Prospect, epsilon: float | None, people: int) -> ActorCritic:
    """The learner of a row; without an epsilon it adds no noise."""
    private: Row = {"variant": "none"} if epsilon is None else {"budget": Budget(epsilon, DELTA)}
    return ActorCritic(
        prospect=prospect,
        return_range=gamble.return_range,
        batch=-(-people // BATCHES),
        **private,
        **SETTINGS,
    )


def choices(
    seeds: Sequence[int] = SEEDS,
    *,
    gambles: Iterable[Gamble] = GAMBLES,
    prospects: Iterable[str] = tuple(PROSPECTS),
    epsilons: Iterable[float | None] = (*EPSILONS, None),
    people: Iterable[int] = PEOPLE,
) -> Iterator[Row]:
    """What is chosen in each gamble, by each prospect, budget and number of people."""
    for gamble, name, count, epsilon in product(gambles, prospects, people, epsilons):
        prospect = PROSPECTS[name]
        taken = bet_probabilities(agent(gamble, prospect, epsilon, count), gamble, count, seeds)
        values = gamble.value(prospect, taken)
        best = gamble.best_prob(prospect)
        right = (taken > 0.5) == gamble.is_worth_taking(prospect)
        spread = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
        yield {
            "gamble": gamble.name,
            "prospect": name,
            "epsilon": epsilon,
            "delta": None if epsilon is None else DELTA,
            "people": count,
            "seeds": len(taken),
            "should_bet": gamble.is_worth_taking(prospect),
            "right": float(right.mean()),
            "bets": float(taken.mean()),
            "best_bets": best,
            "value": float(values.mean()),
            "error": None if spread is None else float(spread),
            "best_value": float(gamble.value(prospect, best)),
            "even_value": float(gamble.value(prospect, 0.5)),
        }


def bet_probabilities(
    agent: ActorCritic, gamble: Gamble, people: int, seeds: Sequence[int]
) -> Floats:
    """With which probability the gamble is taken after learning, for each seed; all at once."""
    program = CertifiedProgram(agent, gamble.env, people)
    with jax.enable_x64(True):
        keys = jax.vmap(jax.random.key)(np.asarray(seeds))
        state, _ = program.advance(program.init(keys, {}), people)
        tables = np.asarray(state.actor, np.float64).reshape(len(seeds), 3, 2)
    preference = tables[:, _START, _BET] - tables[:, _START, _SURE]
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * preference)))


def run() -> Iterator[Row]:
    yield from choices()
