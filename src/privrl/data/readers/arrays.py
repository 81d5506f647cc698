"""Trajectories from arrays with one entry for each step."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from privrl.core.errors import InputError
from privrl.core.types import AnyArray
from privrl.data.arrow import differs_from_previous
from privrl.data.columns import Arrays, ColumnPlan, Facts, check_options, plan
from privrl.data.decoder import Decoder
from privrl.data.readers.assembly import load
from privrl.data.sources import Chunk, table_chunks
from privrl.data.trajectories import Trajectories


def from_arrays(states: Any, actions: Any, rewards: Any, arrays: Mapping[str, Any]) -> Trajectories:
    """`arrays` are the keyword arguments of `Trajectories.from_arrays`."""
    check_options(arrays, Arrays)
    lengths, trajectory_ids = arrays.get("lengths"), arrays.get("trajectory_ids")
    steps = _length("rewards", rewards)
    if steps == 0:
        raise InputError("The arrays have no rows.")
    if lengths is None and trajectory_ids is None:
        raise InputError("from_arrays needs lengths, or trajectory_ids with one id for each step.")
    columns: dict[str, Any] = {}
    if lengths is not None:
        sizes = np.asarray(lengths)
        if sizes.ndim != 1 or sizes.dtype.kind not in "iu":
            raise InputError("lengths must be whole numbers, one for each trajectory.")
        if np.any(sizes < 1):
            position = int(np.argmax(sizes < 1))
            raise InputError(
                f"lengths, entry {position} (counting from 0): the trajectory is empty."
            )
        if int(sizes.sum()) != steps:
            raise InputError(
                f"lengths add up to {int(sizes.sum())}, but there are {steps} rewards."
            )
        ids = np.arange(sizes.size) if trajectory_ids is None else trajectory_ids
        columns["trajectory"] = _repeat_column("trajectory_ids", ids, sizes)
        last = np.cumsum(sizes) - 1
    else:
        columns["trajectory"] = _column("trajectory_ids", trajectory_ids, steps)
        ids = columns["trajectory"]
        last = np.append(np.flatnonzero(differs_from_previous(ids)), steps - 1)
        sizes = np.diff(last, prepend=-1)
    given: dict[str, Any] = {"trajectory": "trajectory"}
    for role, label, values in (
        ("state", "states", states),
        ("action", "actions", actions),
        ("reward", "rewards", rewards),
        ("time", "times", arrays.get("times")),
        ("behavior_prob", "behavior_probs", arrays.get("behavior_probs")),
        ("target_prob", "target_probs", arrays.get("target_probs")),
    ):
        if values is not None:
            columns[role] = _column(label, values, steps, two=role in ("state", "action"))
            given[role] = role
    if arrays.get("users") is not None:
        columns["user"] = _repeat_column("users", arrays["users"], sizes)
        given["user"] = "user"
    for role in ("terminated", "truncated"):
        flag = arrays.get(role)
        if isinstance(flag, bool) or flag is None:
            given[role] = flag
            continue
        values = np.asarray(flag)
        if values.shape != sizes.shape or values.dtype != np.bool_:
            raise InputError(f"{role} must be true or false for each of {sizes.size} trajectories.")
        flags = np.zeros(steps, dtype=bool)
        flags[last] = values
        columns[role], given[role] = pa.array(flags), role
    facts = {name: arrays[name] for name in Facts.__dataclass_fields__ if name in arrays}
    checked = plan({**given, **facts})
    reader = pa.table(columns).to_reader()
    data = load(table_chunks("The arrays", reader, checked), checked, False, "The arrays")
    final = arrays.get("final_states")
    return data if final is None else _with_final_states(data, final)


def _with_final_states(data: Trajectories, final_states: Any) -> Trajectories:
    """Attach the states after the last steps, held to what the other states are held to."""
    count = data.num_trajectories
    column = _column("final_states", final_states, count, two=True)
    facts = data.facts
    shadow = ColumnPlan(
        trajectory="trajectory",
        state="final_state",
        action="trajectory",
        reward="trajectory",
        facts=Facts(num_states=facts.num_states, state_vocabulary=facts.state_vocabulary),
    )
    decoder = Decoder(shadow)
    batch = pa.record_batch({"trajectory": np.arange(count), "final_state": column})
    block = decoder.block(Chunk("The arrays", batch))
    found = block.columns["states"]
    if found.shape[1:] != data.states.shape[1:]:
        raise InputError("final_states and states have different dimensions.")
    return replace(data, final_states=found.copy())


def _length(label: str, values: Any) -> int:
    try:
        return len(values)
    except TypeError:
        raise InputError(f"{label} must be an array with one entry for each step.") from None


def _column(label: str, values: Any, rows: int, two: bool = False) -> Any:
    """An array as an Arrow column; two axes make a column of lists."""
    if _length(label, values) != rows:
        raise InputError(f"{label} has {len(values)} entries, but there are {rows} rows.")
    if np.ma.is_masked(values):
        raise InputError(f"{label} has masked entries: every entry must be there.")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    try:
        array = np.asarray(values)
    except ValueError:
        raise InputError(f"{label} mixes dimensions: its entries have different lengths.") from None
    if array.ndim == 2 and two and array.dtype.kind in "iufb":
        if array.shape[1] == 0:
            raise InputError(f"{label} has entries of length 0.")
        flat = np.ascontiguousarray(array, dtype=np.float64).ravel()
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), array.shape[1])
    if array.ndim != 1:
        raise InputError(f"{label} has {array.ndim} axes, which is not what a column has.")
    try:
        return pa.array(array if array.dtype.kind != "U" else array.tolist())
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise InputError(f"{label} must hold numbers or words, and of one kind only.") from None


def _repeat_column(label: str, values: Any, sizes: AnyArray) -> Any:
    column = _column(label, values, sizes.size)
    return column.take(pa.array(np.repeat(np.arange(sizes.size), sizes)))
