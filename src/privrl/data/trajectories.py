"""Trajectories: columns of steps, cut into trajectories by offsets, owned by users.

Rows of one trajectory stand together in the order of time. Row t holds the state, the action taken
in it, the reward that followed, and where known the probability with which the logged policy
(`behavior_probs`) and the policy to be judged (`target_probs`) take that action there.

The next state of a row is the state of the next row. A trajectory's last row has a next state only
if it was given (`final_states`, one for each trajectory); if the trajectory *terminated*, none is
needed, since nothing follows. If it was cut off instead (truncated, or neither flag set) and its
final state is not known, its last row only supplies the next state of the row before it: see
`transitions`.

Arrays are read-only. `states` and `actions` are 32-bit indices or rows of 64-bit floats. What was
done to the data on the way in, and what in here is private that looks like a setting, is said in
`notes`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import numpy as np
import pyarrow as pa

from privrl.core.errors import InputError
from privrl.core.text import printable
from privrl.core.types import AnyArray
from privrl.data import views, writing
from privrl.data.arrow import to_numpy
from privrl.data.columns import Arrays, Columns, Facts, Invalid
from privrl.data.keys import generator
from privrl.data.sources import private_error
from privrl.data.views import Padded, Trajectory, Transitions
from privrl.privacy.promise import Unit

if TYPE_CHECKING:
    from privrl.data.features import Features
    from privrl.data.policies import Policy


_BY_ROW = ("states", "actions", "rewards", "behavior_probs", "target_probs", "times")
_BY_TRAJECTORY = ("trajectory_ids", "terminated", "truncated", "users", "final_states")


@dataclass(frozen=True)
class Note:
    """Something a reader of any result from this data should know."""

    kind: Literal["nulls", "private", "ends", "order", "origin"]
    text: str


@dataclass(frozen=True)
class Behavior:
    """Where the behaviour probabilities come from."""

    source: Literal["none", "logged", "recorded", "estimated"] = "none"
    method: str | None = None
    public: bool = False

    @property
    def is_private_estimate(self) -> bool:
        """Whether they were fitted to data that nobody declared public: a cost not yet paid."""
        return self.source == "estimated" and not self.public

    def __str__(self) -> str:
        if self.source == "estimated":
            paid = (
                "the data was declared public"
                if self.public
                else "estimated from private data, not paid for"
            )
            return f"behaviour probabilities estimated ({self.method}): {paid}"
        return {
            "none": "no behaviour probabilities",
            "logged": "behaviour probabilities as the data has them",
            "recorded": "behaviour probabilities recorded at collection",
        }[self.source]


@dataclass(frozen=True, eq=False)
class Trajectories:
    """See the module. Made by `from_parquet`, `from_csv`, `from_table`, `from_arrays`,
    `from_minari` and `privrl.data.collect`, which check what they are given.

    `nulls_answered` counts all that were answered while loading: a part keeps the number of the
    whole, and a batch of a stream has the number so far. It is as private as the rows.
    """

    offsets: AnyArray
    states: AnyArray
    actions: AnyArray
    rewards: AnyArray
    trajectory_ids: AnyArray
    terminated: AnyArray
    truncated: AnyArray
    users: AnyArray | None = None
    behavior_probs: AnyArray | None = None
    target_probs: AnyArray | None = None
    times: AnyArray | None = None
    final_states: AnyArray | None = None
    facts: Facts = field(default_factory=Facts)
    behavior: Behavior = field(default_factory=Behavior)
    notes: tuple[Note, ...] = ()
    nulls_answered: Mapping[str, int] = field(default_factory=dict)
    invalid: Invalid = "refuse"
    """What became of values that are not valid when it was loaded; see `privrl.data.neutral`."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray) and value.flags.writeable:
                object.__setattr__(self, name, _read_only(value))

    # --- in ----------------------------------------------------------------------------------

    @classmethod
    def from_parquet(
        cls,
        paths: "str | Path | Sequence[str | Path]",
        *,
        sort: bool = False,
        **columns: Unpack[Columns],
    ) -> "Trajectories":
        """Read Parquet: a file, a list of files, a pattern such as `"part-*.parquet"`, a folder."""
        from privrl.data import readers

        return readers.from_parquet(paths, sort, columns)

    @classmethod
    def from_csv(
        cls,
        paths: "str | Path | Sequence[str | Path]",
        *,
        sort: bool = False,
        types: Mapping[str, Any] | None = None,
        **columns: Unpack[Columns],
    ) -> "Trajectories":
        """Read CSV with a header. `types` keeps a column as it says: `{"stay_id": "string"}`."""
        from privrl.data import readers

        return readers.from_csv(paths, sort, types, columns)

    @classmethod
    def from_table(
        cls, table: Any, *, sort: bool = False, **columns: Unpack[Columns]
    ) -> "Trajectories":
        """Read anything with the Arrow C stream interface: Arrow, pandas, Polars, DuckDB."""
        from privrl.data import readers

        return readers.from_table(table, sort, columns)

    @classmethod
    def from_arrays(
        cls,
        states: Any,
        actions: Any,
        rewards: Any,
        **arrays: Unpack[Arrays],
    ) -> "Trajectories":
        """From arrays with one entry per step, and either `lengths` or an id for each step.

        `users`, `terminated`, `truncated` and `final_states` have one entry per trajectory; with
        `lengths`, so do `trajectory_ids`, which are then optional.
        """
        from privrl.data import readers

        return readers.from_arrays(states, actions, rewards, arrays)

    @classmethod
    def from_minari(
        cls,
        dataset: Any,
        *,
        behavior_prob: str | None = None,
        num_states: int | None = None,
        num_actions: int | None = None,
    ) -> "Trajectories":
        """From a Minari data set or its name; `behavior_prob` names an entry of its infos."""
        from privrl.data import readers

        return readers.from_minari(dataset, behavior_prob, num_states, num_actions)

    # --- sizes -------------------------------------------------------------------------------

    @property
    def num_trajectories(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_steps(self) -> int:
        return len(self.rewards)

    @cached_property
    def lengths(self) -> AnyArray:
        """Steps of each trajectory."""
        return _read_only(np.diff(self.offsets))

    @property
    def num_states(self) -> int | None:
        """How many discrete states there are, if that was said."""
        return self.facts.num_states

    @property
    def num_actions(self) -> int | None:
        """How many discrete actions there are, if that was said."""
        return self.facts.num_actions

    @property
    def discrete_states(self) -> bool:
        return self.states.ndim == 1

    @property
    def discrete_actions(self) -> bool:
        return self.actions.ndim == 1

    @property
    def unit(self) -> Unit:
        """Whom a promise about this data protects: users, when there is a user column."""
        return Unit.TRAJECTORY if self.users is None else Unit.USER

    @cached_property
    def _user_index(self) -> tuple[AnyArray, AnyArray]:
        """Distinct users in the order of their first trajectory, and each trajectory's position."""
        if self.users is None:
            return self.trajectory_ids, _read_only(np.arange(self.num_trajectories))
        dictionary = pa.array(self.users).dictionary_encode()
        names: AnyArray = to_numpy(dictionary.dictionary)
        index: AnyArray = to_numpy(dictionary.indices).astype(np.int64)
        return _read_only(names), _read_only(index)

    @property
    def num_users(self) -> int | None:
        """How many people there are; None without a user column."""
        return None if self.users is None else len(self._user_index[0])

    @property
    def unit_ids(self) -> AnyArray:
        """The users, or without a user column the trajectories, each once."""
        return self._user_index[0]

    @property
    def unit_index(self) -> AnyArray:
        """For each trajectory, the position of its owner in `unit_ids`."""
        return self._user_index[1]

    @property
    def num_units(self) -> int:
        """How many owners there are: users, or trajectories."""
        return len(self._user_index[0])

    @property
    def private_facts(self) -> tuple[str, ...]:
        """What in here looks like a setting but was read from the data."""
        return tuple(note.text for note in self.notes if note.kind == "private")

    # --- parts -------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.num_trajectories

    def __iter__(self) -> Iterator[Trajectory]:
        return (self[position] for position in range(len(self)))

    @overload
    def __getitem__(self, which: int) -> Trajectory: ...
    @overload
    def __getitem__(self, which: slice) -> "Trajectories": ...
    def __getitem__(self, which: "int | slice") -> "Trajectory | Trajectories":
        """A trajectory by position, or several as trajectories again."""
        if isinstance(which, slice):
            begin, end, step = which.indices(len(self))
            chosen = np.arange(begin, end, step)
            if chosen.size == 0:
                raise InputError("The slice holds no trajectory.")
            return self.take(chosen)
        if not -len(self) <= which < len(self):
            raise IndexError(f"There are {len(self)} trajectories, so there is no {which}.")
        which = int(which) % len(self)
        rows = slice(int(self.offsets[which]), int(self.offsets[which + 1]))
        columns = {name: getattr(self, name) for name in _BY_ROW}
        parts: Any = {name: None if one is None else one[rows] for name, one in columns.items()}
        return Trajectory(
            id=self.trajectory_ids[which],
            user=None if self.users is None else self.users[which],
            terminated=bool(self.terminated[which]),
            truncated=bool(self.truncated[which]),
            final_state=None if self.final_states is None else self.final_states[which],
            **parts,
        )

    def take(self, positions: Any) -> "Trajectories":
        """The trajectories at these positions, in this order."""
        chosen = np.asarray(positions)
        if chosen.size == 0:
            raise InputError("There is no trajectory to take.")
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise InputError("Positions of trajectories must be a list of whole numbers.")
        if chosen.min() < 0 or chosen.max() >= len(self):
            raise InputError(f"Positions of trajectories must lie in 0 to {len(self) - 1}.")
        chosen = chosen.astype(np.int64)
        apart = np.diff(chosen)
        if not (apart > 0).all() and chosen.size != np.unique(chosen).size:
            raise InputError("A trajectory can be taken only once.")
        lengths = self.lengths[chosen]
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        rows: Any
        if (apart == 1).all():
            rows = slice(int(self.offsets[chosen[0]]), int(self.offsets[chosen[-1] + 1]))
        else:
            rows = np.arange(offsets[-1]) + np.repeat(self.offsets[chosen] - offsets[:-1], lengths)
        changed = {name: getattr(self, name) for name in (*_BY_ROW, *_BY_TRAJECTORY)}
        for name, column in changed.items():
            if column is not None:
                changed[name] = column[rows] if name in _BY_ROW else column[chosen]
        return replace(self, offsets=offsets, **changed)

    def by_user(self) -> Iterator[tuple[Any, "Trajectories"]]:
        """Each user's id and trajectories."""
        if self.users is None:
            raise InputError("There is no user column: name it when loading, as user='...'.")
        names, index = self._user_index
        order = np.argsort(index, kind="stable")
        ends = np.cumsum(np.bincount(index, minlength=len(names)))
        for name, chosen in zip(names, np.split(order, ends[:-1]), strict=True):
            yield name, self.take(chosen)

    def select(self, users: Any = None, trajectories: Any = None) -> "Trajectories":
        """The trajectories of these users, or those with these ids, in the order they have here."""
        if (users is None) == (trajectories is None):
            raise InputError("select needs either users or trajectories.")
        if users is not None and self.users is None:
            raise InputError("There is no user column: name it when loading, as user='...'.")
        held: Any = self.trajectory_ids if users is None else self.users
        wanted = set(
            np.atleast_1d(np.asarray(users if users is not None else trajectories)).tolist()
        )
        keep = np.fromiter((one in wanted for one in held.tolist()), bool, len(held))
        found = len(set(held[keep].tolist()))
        if found < len(wanted):
            what = "users" if users is not None else "trajectories"
            raise InputError(
                f"{len(wanted) - found} of the {len(wanted)} {what} are not in the data."
            )
        return self.take(np.flatnonzero(keep))

    def split(self, fractions: Sequence[float], key: Any) -> "tuple[Trajectories, ...]":
        """Random parts with whole users (or whole trajectories, without a user column)."""
        try:
            shares = np.asarray(fractions, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError("must be numbers, one for each part.", field="fractions") from None
        if shares.ndim != 1 or shares.size == 0 or not np.all(shares > 0):
            raise InputError("must be positive numbers, one for each part.", field="fractions")
        if abs(shares.sum() - 1.0) > 1e-9:
            raise InputError(f"must add up to 1, not {shares.sum():g}.", field="fractions")
        ends = np.rint(np.cumsum(shares) * self.num_units).astype(np.int64)
        if np.any(np.diff(ends, prepend=0) == 0):
            raise InputError(
                f"{self.num_units} {self.unit.value}s are too few for {shares.size} such parts."
            )
        place = np.empty(self.num_units, dtype=np.int64)
        place[generator(key).permutation(self.num_units)] = np.arange(self.num_units)
        part = np.searchsorted(ends, place, side="right")[self.unit_index]
        return tuple(self.take(np.flatnonzero(part == i)) for i in range(shares.size))

    def batches(self, batch_rows: int) -> "Iterator[Trajectories]":
        """Parts of at most `batch_rows` rows, with whole users, in the order of their first row."""
        owned = np.bincount(self.unit_index, weights=self.lengths, minlength=self.num_units)
        if owned.max() > batch_rows:
            raise private_error(
                f"A {self.unit.value} has more than {batch_rows} rows: raise batch_rows."
            )
        order = np.argsort(self.unit_index, kind="stable")
        begins = np.searchsorted(self.unit_index[order], np.arange(self.num_units + 1))
        rows = np.concatenate([[0], np.cumsum(owned)]).astype(np.int64)
        first = 0
        while first < self.num_units:
            end = int(np.searchsorted(rows, rows[first] + batch_rows, side="right")) - 1
            yield self.take(order[begins[first] : begins[end]])
            first = end

    # --- views for estimators ----------------------------------------------------------------

    def transitions(self) -> Transitions:
        """(s, a, r, s') for every step that has a next state or needs none.

        Left out are the last rows of trajectories that did not terminate and whose final state is
        not known: such a row only supplies the next state of the row before.
        """
        return views.transitions(self)

    def padded(self, max_length: int, too_long: Literal["refuse", "cut"] = "refuse") -> Padded:
        """Arrays (trajectory, step, ...) of public length `max_length`, and a mask.

        Longer trajectories are refused, or cut to their first `max_length` steps. A cut trajectory
        counts as truncated, and its final state is the state of the first step that was cut off.
        """
        return views.padded(self, max_length, too_long)

    # --- probabilities -----------------------------------------------------------------------

    def with_target(self, policy: "Policy") -> "Trajectories":
        """The same data with `target_probs`: how likely `policy` takes each logged action."""
        from privrl.data.coverage import check_covers

        check_covers(policy, self)
        return replace(self, target_probs=self._probabilities(policy))

    def with_behavior(self, policy: "Policy") -> "Trajectories":
        """The same data with `behavior_probs` of a known policy: a protocol, or a paid-for
        estimate.

        That the policy was not fitted to this data, or was paid for, is the caller's to know.
        """
        from privrl.data.coverage import check_covers

        check_covers(policy, self)
        probabilities = self._probabilities(policy)
        if self.invalid == "refuse" and not np.all(probabilities > 0.0):
            row = int(np.argmin(probabilities > 0.0))
            raise private_error(
                f"actions, row {row} (counting from 0): the policy never takes the logged action, "
                "so it is not how the data came about."
            )
        note = Note("origin", "behaviour probabilities computed from a policy that was given")
        return self._with_behavior_probs(probabilities, Behavior("logged", "policy"), note)

    def _probabilities(self, policy: "Policy") -> AnyArray:
        """Of the logged actions, by a policy that may be any function."""
        found = np.asarray(policy.prob(self.states, self.actions), dtype=np.float64)
        # Rows of a policy may add up to 1 within 1e-6.
        odd = ~((found >= 0.0) & (found <= 1.0 + 1e-6))
        if self.invalid == "neutral":
            # Certified fits give such rows no weight.
            found = np.where(odd, np.nan, found)
        elif odd.any():
            raise private_error(
                f"states, row {int(np.argmax(odd))} (counting from 0): the policy's probability "
                "lies outside [0, 1]."
            )
        return np.minimum(found, 1.0)

    def _with_behavior_probs(
        self, probabilities: AnyArray, behavior: Behavior, note: Note
    ) -> "Trajectories":
        """With other behaviour probabilities; what was said of those before is dropped."""
        kept = tuple(n for n in self.notes if n.text != str(self.behavior))
        data = replace(self, behavior_probs=probabilities, behavior=behavior, notes=kept)
        return data.with_notes(note)

    def with_estimated_behavior(
        self,
        method: Literal["counts", "logistic"] = "counts",
        smoothing: float | None = None,
        *,
        features: "Features | None" = None,
        public: bool = False,
        overwrite: bool = False,
    ) -> "Trajectories":
        """The same data with `behavior_probs` fitted to it: see `privrl.data.behavior`.

        The fit looks at private data. Unless it is declared `public`,
        `behavior.is_private_estimate` is true from here on, the notes say so, and a warning is
        raised now.
        """
        from privrl.data.behavior import estimate_behavior

        return estimate_behavior(self, method, smoothing, features, public, overwrite)

    def with_notes(self, *notes: Note) -> "Trajectories":
        """The same data with more notes."""
        return replace(self, notes=self.notes + tuple(n for n in notes if n not in self.notes))

    # --- out ---------------------------------------------------------------------------------

    def to_arrow(self) -> Any:
        """One Arrow table, a row for each step."""
        return writing.arrow_table(self, 0, self.num_trajectories)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def to_parquet(self, path: "str | Path") -> dict[str, Any]:
        """Write one Parquet file, whole or not at all, and return the names to read it back with.

        Pages carry checksums; notes, the origin of the probabilities and whether a vocabulary is
        private travel along.
        """
        return writing.write_parquet(self, path)

    @property
    def column_names(self) -> dict[str, Any]:
        """The keyword arguments that read this data back from `to_parquet` or `to_arrow`.

        A vocabulary is among them even if it was read from the data, so that indices stay what they
        are; the table remembers that it is private.
        """
        return writing.column_names(self)

    def summary(self) -> str:
        """What is in here, for the data's owner: the figures are exact, so do not publish them."""
        lengths, rewards = self.lengths, self.rewards
        with np.errstate(over="ignore"):
            mean = rewards.mean()
        people = f", {self.num_users:,} users" if self.users is not None else ""
        lines = [
            f"{self.num_trajectories:,} trajectories{people}, {self.num_steps:,} steps",
            f"  steps per trajectory: {lengths.min()} to {lengths.max()}, median "
            f"{float(np.median(lengths)):g}",
            f"  states: {_describe_values(self.states, self.facts.num_states)}",
            f"  actions: {_describe_values(self.actions, self.facts.num_actions)}",
            f"  rewards: {rewards.min():g} to {rewards.max():g}, mean {mean:g}",
            f"  ends: {int(self.terminated.sum()):,} terminated, "
            f"{int((~self.terminated).sum()):,} cut off",
            f"  {self.behavior}",
        ]
        if self.behavior_probs is not None:
            lines.append(f"  smallest behaviour probability: {self.behavior_probs.min():g}")
        for name, count in self.nulls_answered.items():
            lines.append(f"  nulls answered in {name!r}: {count:,}")
        lines += [f"  note: {printable(note.text)}" for note in self.notes]
        lines.append("  (exact figures of private data: for its owner, not for publication)")
        return "\n".join(lines)

    def __repr__(self) -> str:
        loud = f", {str(self.behavior).upper()}" if self.behavior.is_private_estimate else ""
        people = f", {self.num_users} users" if self.users is not None else ""
        return (
            f"Trajectories({self.num_trajectories} trajectories{people}, "
            f"{self.num_steps} steps{loud})"
        )


def _read_only(values: AnyArray) -> AnyArray:
    view = values.view()
    view.flags.writeable = False
    return view


def _describe_values(values: AnyArray, count: int | None) -> str:
    if values.ndim == 2:
        return f"vectors of {values.shape[1]}"
    return f"discrete, {count} of them" if count is not None else "discrete, number not said"
