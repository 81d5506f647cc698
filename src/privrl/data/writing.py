"""Trajectories out again: as an Arrow table or a Parquet file, with what is noted of them."""

import json
import os
from dataclasses import asdict
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privrl.core.errors import InputError
from privrl.core.types import AnyArray
from privrl.data.columns import Word

if TYPE_CHECKING:
    from privrl.data.trajectories import Trajectories


# Rows per written row group.
WRITE_ROWS = 1 << 18


def write_parquet(data: "Trajectories", path: "str | Path") -> dict[str, Any]:
    """See `Trajectories.to_parquet`."""
    target = Path(path)
    step = max(1, int(WRITE_ROWS // max(1.0, float(data.lengths.mean()))))
    writer = None
    try:
        with NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}-", delete=False) as t:
            temporary = Path(t.name)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}.") from None
    try:
        for begin in range(0, data.num_trajectories, step):
            table = arrow_table(data, begin, min(begin + step, data.num_trajectories))
            if writer is None:
                writer = pq.ParquetWriter(temporary, table.schema, write_page_checksum=True)
            writer.write_table(table)
        assert writer is not None
        writer.close()
        os.replace(temporary, target)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}.") from None
    finally:
        temporary.unlink(missing_ok=True)
    return column_names(data)


def column_names(data: "Trajectories") -> dict[str, Any]:
    """See `Trajectories.column_names`."""
    names: dict[str, Any] = {
        role: role
        for role in ("trajectory", "state", "action", "reward", "terminated", "truncated")
    }
    for role, column in (
        ("user", data.users),
        ("time", data.times),
        ("behavior_prob", data.behavior_probs),
        ("target_prob", data.target_probs),
        ("next_state", data.final_states),
    ):
        if column is not None:
            names[role] = role
    facts = data.facts
    for what in ("state", "action"):
        words = getattr(facts, f"{what}_vocabulary")
        if words is not None:
            names[f"{what}_vocabulary"] = list(words)
        elif getattr(facts, f"num_{what}s") is not None:
            names[f"num_{what}s"] = getattr(facts, f"num_{what}s")
    return names


def arrow_table(data: "Trajectories", begin: int, end: int) -> Any:
    """Trajectories `begin` to `end` as one Arrow table, a row for each step."""
    part = data.take(np.arange(begin, end))
    owner = np.repeat(np.arange(end - begin), part.lengths)
    last = part.offsets[1:] - 1
    columns: dict[str, Any] = {"trajectory": pa.array(part.trajectory_ids).take(pa.array(owner))}
    if part.users is not None:
        columns["user"] = pa.array(part.users).take(pa.array(owner))
    if part.times is not None:
        columns["time"] = pa.array(part.times)
    columns["state"] = _entries(part.states, part.facts.state_vocabulary)
    columns["action"] = _entries(part.actions, part.facts.action_vocabulary)
    columns["reward"] = pa.array(part.rewards)
    if part.behavior_probs is not None:
        columns["behavior_prob"] = pa.array(part.behavior_probs)
    if part.target_probs is not None:
        columns["target_prob"] = pa.array(part.target_probs)
    for role in ("terminated", "truncated"):
        flags = np.zeros(part.num_steps, dtype=bool)
        flags[last] = getattr(part, role)
        columns[role] = pa.array(flags)
    if part.final_states is not None:
        following = np.minimum(np.arange(1, part.num_steps + 1), part.num_steps - 1)
        after = part.states[following]
        after[last] = part.final_states
        columns["next_state"] = _entries(after, part.facts.state_vocabulary)
    carried = {
        "behavior": asdict(data.behavior),
        "notes": [asdict(note) for note in data.notes],
        "read": [
            role for role in ("state", "action") if getattr(data.facts, f"{role}_vocabulary_read")
        ],
    }
    return pa.table(columns).replace_schema_metadata({"privrl": json.dumps(carried)})


def _entries(values: AnyArray, vocabulary: tuple[Word, ...] | None) -> Any:
    """A column of states or actions: indices, words, or lists of one length."""
    if values.ndim == 2:
        flat = pa.array(np.ascontiguousarray(values).ravel())
        return pa.FixedSizeListArray.from_arrays(flat, values.shape[1])
    return pa.array(values) if vocabulary is None else pa.array(vocabulary).take(pa.array(values))
