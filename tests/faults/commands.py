"""Every command that pays, on problems so small that a trial takes a fraction of a second."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

RUN, LEDGER = "run", "ledger"
ROOMY = "roomy"
"""A ledger for many payments, which races may take in place of the other."""

_BUDGET = ("--epsilon", "2", "--delta", "1e-6")
_CHAIN = (
    *("train", "actor-critic", "--env", "Chain", "--max-steps", "6", "--people", "16"),
    *("--batch", "4", "--return-range", "0,1", *_BUDGET),
)
_WARD = (
    *("train", "actor-critic", "--env", "Ward-v0", "--max-steps", "1"),
    *("--people", "16", "--batch", "4", "--return-range", "0,1", *_BUDGET),
)
_REWARD = (
    *("--env", "Chain", "--steps", "40", "--reward-range", "0,1", "--reward-radius", "0.5"),
    *_BUDGET,
)
_TABLE = (
    *("--trajectory", "stay", "--state", "hr", "--state-range", "30:200", "--action", "dose"),
    *("--reward", "r", "--reward-range", "-1,1", *_BUDGET),
)
_JUDGED = ("--policy", "policy.json", "--behavior-prob", "p", "--horizon", "3", "--weight-cap", "4")
_EVALUATE = ("evaluate", "stays.parquet", *_TABLE, *_JUDGED)
_STATES = (*_EVALUATE, "--gamma", "0.9", "--features", "polynomial:1", "--estimators")

_FOLLOWED = (
    *("evaluate", "stays.parquet", "--trajectory", "stay", "--state", "ward", "--num-states", "2"),
    *("--action", "dose", "--num-actions", "2", "--reward", "r", "--reward-range", "-1,1"),
    *("--horizon", "3", *_BUDGET, "--estimators"),
)


@dataclass(frozen=True)
class Command:
    """A command that pays."""

    name: str
    words: tuple[str, ...]
    unit: str | None = "trajectory"
    """Of the ledger that pays; None for a command that takes none."""

    ledger: bool = True
    live: bool = False
    """People play again: of copies one goes on, and results differ."""

    prepare: tuple[Callable[[Path], None], ...] = field(default=())

    @property
    def verb(self) -> tuple[str, ...]:
        return self.words[:2] if self.words[0] == "train" else self.words[:1]

    @property
    def result(self) -> str:
        """The file by which a folder is known to be whole."""
        return "result.json" if self.words[0] == "train" else "study.json"

    def begin(self, folder: str = RUN) -> list[str]:
        """From the beginning, in the folder of trials."""
        ledger = ["--ledger", LEDGER, "--name", "one"] if self.ledger else []
        return [*self.words, *ledger, "--out", folder, "--json"]

    def resume(self, folder: str = RUN) -> list[str]:
        return [*self.verb, "--out", folder, "--resume", "--json"]

    def make(self, place: Path) -> None:
        """What there is before the command runs; the ledger has room for one payment."""
        from privrl.privacy import Budget, Ledger, Relation, Unit

        for step in self.prepare:
            step(place)
        if self.ledger:
            assert self.unit is not None
            relation = Relation.REPLACE_ONE
            if self.unit == "reward-function":
                relation = Relation.REWARD_RADIUS
            for name, epsilon in ((LEDGER, 2.0 * (1 + 1e-9)), (ROOMY, 50.0)):
                limit, unit = Budget(epsilon, 1e-6), Unit(self.unit)
                Ledger.create(
                    place / name, "all", unit=unit, relation=relation, limit=limit
                ).close()


def _stays(place: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from privrl.data import Polynomial, Softmax

    draw, count = np.random.default_rng(0), 40
    columns: dict[str, Any] = {
        "stay": np.repeat(np.arange(count), 2),
        "hr": draw.uniform(30, 200, 2 * count),
        "dose": draw.integers(2, size=2 * count),
        "r": draw.uniform(-1, 1, 2 * count),
        "p": np.full(2 * count, 0.5),
        "ward": np.tile([0, 1], count),
    }
    pq.write_table(pa.table(columns), place / "stays.parquet")
    features = Polynomial(1, (30.0,), (200.0,))
    Softmax(features, np.zeros((2, 2))).save(place / "policy.json")


def _ward(place: Path) -> None:
    """An environment of Gymnasium's, in which there may be people for all that anybody knows."""
    import gymnasium

    from tests.faults.ward import Ward

    if "Ward-v0" not in gymnasium.registry:
        gymnasium.register("Ward-v0", lambda **_: Ward())


_LEARNT = ("--num-actions", "2", "--updates", "4")
_REWARDS = "reward-function"

COMMANDS = (
    Command("evaluate", _EVALUATE, prepare=(_stays,)),
    Command("evaluate-free", _EVALUATE, ledger=False, prepare=(_stays,)),
    Command("evaluate-grid", (*_EVALUATE, "--grid"), prepare=(_stays,)),
    Command("evaluate-lstd", (*_STATES, "value,lstd"), prepare=(_stays,)),
    Command("evaluate-gtd", (*_STATES, "value,gtd"), prepare=(_stays,)),
    Command("evaluate-gpope", (*_STATES, "value,gpope"), prepare=(_stays,)),
    Command("evaluate-dplsl", (*_FOLLOWED, "value,dplsl"), prepare=(_stays,)),
    Command(
        "evaluate-stream",
        (*_STATES, "value,gtd", "--stream", "--sort"),
        prepare=(_stays,),
    ),
    Command("actor-critic", _CHAIN),
    Command("actor-critic-free", (*_CHAIN, "--curve", "paid", "--logs", "csv,jsonl"), ledger=False),
    Command("actor-critic-live", _WARD, live=True, prepare=(_ward,)),
    Command("functional-q", ("train", "functional-q", *_REWARD), unit=_REWARDS),
    Command(
        "functional-q-updates",
        ("train", "functional-q", *_REWARD, "--release", "updates", "--clip", "1"),
        unit=_REWARDS,
    ),
    Command(
        "functional-q-live",
        ("train", "functional-q", *_REWARD, "--env", "Ward-v0"),
        *(_REWARDS, True, True, (_ward,)),
    ),
    Command("prospect", ("train", "prospect", *_REWARD, "--samples", "4"), unit=_REWARDS),
    Command(
        "logged-q",
        ("train", "logged-q", "stays.parquet", *_TABLE, *_LEARNT),
        prepare=(_stays,),
    ),
    Command(
        "pgc",
        (
            *("train", "pgc", "--env", "CartPole", "--agents", "40", "--buffer", "10"),
            *("--epsilon", "2"),
        ),
        unit=None,
        ledger=False,
    ),
)
