"""Trajectories put together from checked blocks of rows, with notes on what was done to them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from privrl.core.errors import InputError
from privrl.core.files import parse_json
from privrl.core.types import AnyArray
from privrl.data import neutral
from privrl.data.columns import ColumnPlan
from privrl.data.decoder import Decoder
from privrl.data.sources import Chunk, sorted_chunks
from privrl.data.trajectories import Behavior, Note, Trajectories


class ColumnBuffer:
    """A column that is filled batch by batch, in place when its length is known beforehand.

    The length comes from a file's footer, which may be wrong: then the batches are kept apart.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self._capacity = capacity
        self._whole: AnyArray | None = None
        self._parts: list[AnyArray] = []
        self._filled = 0

    @classmethod
    def of(cls, values: AnyArray) -> "ColumnBuffer":
        """One that holds these."""
        made = cls()
        made.add(values)
        return made

    def add(self, values: AnyArray) -> None:
        if self._whole is None and self._capacity is not None:
            try:
                self._whole = np.empty((self._capacity, *values.shape[1:]), values.dtype)
            except (MemoryError, ValueError):
                self._capacity = None
        if self._whole is not None and self._filled + len(values) > len(self._whole):
            self._parts, self._whole = [self._whole[: self._filled]], None
            self._capacity = None
        if self._whole is None:
            self._parts.append(values)
            return
        wider = np.promote_types(values.dtype, self._whole.dtype)
        if wider != self._whole.dtype:
            # A later file may keep wider numbers than the first.
            self._whole = self._whole.astype(wider)
        end = self._filled + len(values)
        self._whole[self._filled : end] = values
        self._filled = end

    def to_array(self) -> AnyArray:
        if self._whole is not None:
            return self._whole[: self._filled]
        # A copy even of a single part: it may be the caller's own memory, who may change it later.
        return np.concatenate(self._parts)


@dataclass
class RowBuffer:
    """Checked rows that have not been made trajectories yet; `capacity` as for a column."""

    decoder: Decoder
    capacity: int | None = None
    rows: int = 0
    columns: dict[str, ColumnBuffer] = field(default_factory=dict)
    owned: dict[str, ColumnBuffer] = field(default_factory=dict)
    starts: ColumnBuffer = field(default_factory=ColumnBuffer)

    def add(self, chunk: Chunk) -> None:
        """The rows of a chunk, of which there must be some."""
        block = self.decoder.block(chunk)
        for name, values in block.columns.items():
            self.columns.setdefault(name, ColumnBuffer(self.capacity)).add(values)
        for name, values in block.per_trajectory.items():
            self.owned.setdefault(name, ColumnBuffer()).add(values)
        self.starts.add(block.starts + self.rows)
        self.rows += block.rows

    def close(self, title: str) -> None:
        """No rows follow."""
        if self.decoder.rows == 0:
            raise InputError(f"{title} has no rows.")
        for name, values in self.decoder.close().items():
            self.owned[name].add(values)


def load(
    chunks: Iterator[Chunk],
    checked: ColumnPlan,
    sort: bool,
    title: str,
    capacity: int | None = None,
) -> Trajectories:
    """All rows checked and put together; `capacity` is how many there are, if that is known."""
    if sort:
        chunks, capacity = sorted_chunks(chunks, checked), None
    buffer = RowBuffer(Decoder(checked), capacity)
    for chunk in chunks:
        if chunk.batch.num_rows:
            buffer.add(chunk)
    buffer.close(title)
    return build_trajectories(
        buffer.decoder,
        np.append(buffer.starts.to_array(), buffer.rows),
        {name: column.to_array() for name, column in buffer.columns.items()},
        {name: column.to_array() for name, column in buffer.owned.items()},
        sort,
    )


def from_people(found: neutral.People, checked: ColumnPlan, before: int = 0) -> Trajectories:
    """Trajectories of people who are numbered, from `before` on; so are their trajectories."""
    owned: dict[str, AnyArray] = {
        "trajectory_ids": np.arange(len(found.starts)) + before,
        **found.per_trajectory,
    }
    if checked.user is not None:
        owned["users"] = found.owners + before
    offsets = np.append(found.starts, len(found.columns["rewards"]))
    return build_trajectories(Decoder(checked), offsets, found.columns, owned, True)


def build_trajectories(
    decoder: Decoder,
    offsets: AnyArray,
    columns: dict[str, AnyArray],
    per_trajectory: dict[str, AnyArray],
    was_sorted: bool,
) -> Trajectories:
    """Trajectories from checked columns, with everything noted that was done to them."""
    checked = decoder.plan
    facts, notes = checked.facts, []
    for role in ("state", "action"):
        words = decoder.values.vocabularies.get(role)
        if words is not None and not words.given:
            order = sorted(range(len(words.words)), key=lambda i: str(words.words[i]))
            rank = np.empty(len(order), dtype=np.int32)
            rank[order] = np.arange(len(order), dtype=np.int32)
            columns[f"{role}s"] = rank[columns[f"{role}s"]]
            if role == "state" and "final_states" in per_trajectory:
                per_trajectory["final_states"] = rank[per_trajectory["final_states"]]
            found: dict[str, Any] = {
                f"num_{role}s": len(order),
                f"{role}_vocabulary": tuple(words.words[i] for i in order),
                f"{role}_vocabulary_read": True,
            }
            facts = replace(facts, **found)
            notes.append(
                Note(
                    "private",
                    f"the {role}s there are were read from the data, so that list, its order and "
                    f"its length are private: pass {role}_vocabulary to make them public facts",
                )
            )
    for name, rule in checked.nulls.items():
        if rule == "carry":
            notes.append(Note("nulls", f"nulls in {name!r} are carried forward in a trajectory"))
        elif rule == "fill":
            notes.append(Note("nulls", f"nulls in {name!r} are filled with {checked.fill[name]!r}"))
    if checked.terminated is None and checked.truncated is None:
        notes.append(
            Note(
                "ends",
                "nothing says how trajectories end, so all count as cut off and their last rows "
                "only supply a next state: pass terminated=True or a column if they ended",
            )
        )
    if checked.time is None:
        notes.append(Note("order", "no time column: steps are taken in the order of the rows"))
    if was_sorted:
        notes.append(Note("order", "rows were sorted by user, trajectory and time when loading"))
    return Trajectories(
        offsets=offsets.astype(np.int64),
        **columns,
        **per_trajectory,
        facts=facts,
        behavior=Behavior("logged") if checked.behavior_prob is not None else Behavior(),
        notes=tuple(notes),
        nulls_answered=dict(decoder.values.answered),
        invalid=checked.invalid,
    )


def with_metadata(data: Trajectories, carried: Mapping[str, Any]) -> Trajectories:
    """Restore what `to_parquet` wrote about the data, so that no warning is lost on disk."""
    if not carried:
        return data
    known = {"nulls", "private", "ends", "order", "origin"}
    notes = [
        Note(n["kind"], str(n["text"]))
        for n in carried.get("notes", ())
        if n.get("kind") in known - {"ends", "order"}
    ]
    told = carried.get("behavior", {})
    if data.behavior_probs is not None and told.get("source") in (
        "logged",
        "recorded",
        "estimated",
    ):
        method = told.get("method")
        data = replace(
            data,
            behavior=Behavior(
                told["source"], None if method is None else str(method), told.get("public") is True
            ),
        )
    # A vocabulary that was read from the data stays private when its words are passed back in.
    read: dict[str, Any] = {
        f"{role}_vocabulary_read": True
        for role in ("state", "action")
        if role in carried.get("read", ()) and getattr(data.facts, f"{role}_vocabulary")
    }
    return replace(data, facts=replace(data.facts, **read)).with_notes(*notes)


def read_metadata(schema: Any) -> dict[str, Any]:
    """What `to_parquet` wrote about the data into an Arrow schema."""
    try:
        metadata = schema.metadata or {}
        found = parse_json(metadata.get(b"privrl", metadata.get(b"tacit", b"{}")))
    except ValueError:
        return {}
    # The file may be anybody's: what does not have the form that `to_parquet` writes is dropped.
    if not isinstance(found, dict):
        return {}
    notes, told, read = found.get("notes"), found.get("behavior"), found.get("read")
    return {
        "notes": [
            n
            for n in (notes if isinstance(notes, list) else [])
            if isinstance(n, dict) and "text" in n
        ],
        "behavior": told if isinstance(told, dict) else {},
        "read": read if isinstance(read, list) else [],
    }
