"""Valid tables, drawn at random, for tests that read or break them."""

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

COLUMNS: dict[str, Any] = {
    "trajectory": "stay",
    "time": "t",
    "state": ["hr", "map"],
    "action": "dose",
    "reward": "r",
    "behavior_prob": "p",
    "target_prob": "q",
    "user": "patient",
    "terminated": "died",
    "truncated": "left",
    "num_actions": 4,
}

DISCRETE: dict[str, Any] = {
    "trajectory": "stay",
    "time": "t",
    "state": "cell",
    "action": "drug",
    "reward": "r",
    "user": "patient",
    "num_states": 7,
    "action_vocabulary": ["none", "low", "high"],
}


def table(rng: np.random.Generator, users: int = 5, longest: int = 6) -> Any:
    """A table that fits `COLUMNS` and `DISCRETE` alike; users have one to three trajectories."""
    stays = rng.integers(1, 4, users)
    owner = np.repeat(np.arange(users), stays)
    lengths = rng.integers(1, longest + 1, owner.size)
    rows = int(lengths.sum())
    stay = np.repeat(rng.permutation(1000)[: owner.size], lengths)
    begin = np.repeat(np.cumsum(lengths) - lengths, lengths)
    last = np.zeros(rows, dtype=bool)
    last[np.cumsum(lengths) - 1] = True
    died = last & (rng.random(rows) < 0.5)
    step: NDArray[Any] = np.arange(rows) - begin
    names = np.array([f"patient-{n}" for n in rng.permutation(users)], dtype=object)
    return pa.table(
        {
            "stay": stay,
            "patient": pa.array(names[np.repeat(owner, lengths)].tolist()),
            "t": step * 2 + rng.integers(0, 2, rows),
            "hr": rng.normal(80, 10, rows),
            "map": rng.integers(50, 90, rows),
            "cell": rng.integers(0, 7, rows),
            "dose": rng.integers(0, 4, rows),
            "drug": np.array(["none", "low", "high"])[rng.integers(0, 3, rows)].tolist(),
            "r": rng.normal(0, 1, rows),
            "p": rng.uniform(0.05, 1.0, rows),
            "q": rng.uniform(0.0, 1.0, rows),
            "died": died,
            "left": last & ~died & (rng.random(rows) < 0.5),
        }
    )


def same(a: Any, b: Any) -> None:
    """Two `Trajectories` hold the same data."""
    for name in (
        "offsets",
        "states",
        "actions",
        "rewards",
        "trajectory_ids",
        "terminated",
        "truncated",
        "users",
        "behavior_probs",
        "target_probs",
        "times",
        "final_states",
    ):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_array_equal(left, right, err_msg=name)
    assert a.facts == b.facts
