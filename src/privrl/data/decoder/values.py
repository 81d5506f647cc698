"""What cells say: states, actions, rewards, probabilities and flags, with nulls answered."""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privrl.core.errors import InputError, option
from privrl.core.types import AnyArray
from privrl.data.arrow import (
    first_true,
    floats,
    is_list,
    is_number,
    normalize_array,
    to_numpy,
    valid_mask,
)
from privrl.data.columns import MOST_VALUES, ColumnPlan, Word
from privrl.data.decoder.order import integers
from privrl.data.sources import Chunk, cell_error, wrong_type_error

Kind = Literal["index", "word", "vector"]


@dataclass
class Vocabulary:
    """The words of one discrete column: given, or collected while reading."""

    words: list[Word]
    given: bool


@dataclass
class Values:
    """Checks and converts cells, column by column, in the order in which their rows come."""

    plan: ColumnPlan
    may_collect_words: bool = True
    kinds: dict[str, Kind] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)
    vocabularies: dict[str, Vocabulary] = field(default_factory=dict)
    answered: dict[str, int] = field(default_factory=dict)
    _carried: dict[str, Any] = field(default_factory=dict)

    def entries(
        self,
        chunk: Chunk,
        role: str,
        names: str | tuple[str, ...],
        new: AnyArray,
        free: bool = False,
    ) -> tuple[AnyArray, AnyArray | None]:
        """States or actions: 32-bit indices, or rows of 64-bit floats. `free` lets nulls pass.

        Also which entries are there, when `free`.
        """
        if isinstance(names, tuple):
            self.kinds.setdefault(role, "vector")
            out = np.empty((new.size, len(names)))
            there = np.ones(new.size, dtype=bool)
            for position, name in enumerate(names):
                values, valid = self._number(chunk, name, role)
                values, valid = self._apply_null_rule(chunk, role, name, values, valid, new, free)
                self._check_finite(chunk, name, values, role)
                out[:, position] = values
                if valid is not None:
                    there &= valid
            return out, there if free else None
        array = normalize_array(chunk.column(names))
        kind = self.kinds.get(role) or self._kind(chunk, role, names, array)
        if kind == "vector":
            decoded, valid = self._vector(chunk, role, names, array)
        elif kind == "word":
            decoded, valid = self._word(chunk, role, names, array)
        else:
            decoded, valid = self._index(chunk, role, names, array)
        # Only a column that was understood settles what the next ones must be.
        self.kinds[role] = kind
        decoded, valid = self._apply_null_rule(chunk, role, names, decoded, valid, new, free)
        if kind == "vector":
            self._check_finite(chunk, names, decoded, role)
        return decoded, (np.ones(new.size, dtype=bool) if valid is None else valid)

    def reward(self, chunk: Chunk, new: AnyArray) -> AnyArray:
        """Finite 64-bit floats."""
        name = self.plan.reward
        values, valid = self._number(chunk, name, "reward")
        values, _ = self._apply_null_rule(chunk, "reward", name, values, valid, new)
        self._check_finite(chunk, name, values, "reward")
        return values

    def probability(self, chunk: Chunk, name: str, new: AnyArray, zero: bool) -> AnyArray:
        """Probabilities, or densities where actions are vectors; `zero` lets 0 pass."""
        values, valid = self._number(chunk, name, "probability")
        values, _ = self._apply_null_rule(chunk, "probability", name, values, valid, new)
        density = self.kinds["action"] == "vector"
        fits = values >= 0.0 if zero else values > 0.0
        fits &= values < np.inf if density else values <= 1.0
        if not fits.all():
            interval = ("[0, " if zero else "(0, ") + (
                "infinity)" if density else "1] (percentages must be divided by 100 first)"
            )
            raise cell_error(
                chunk.place(first_true(~fits)),
                name,
                f"the {'density' if density else 'probability'} lies outside {interval}",
            )
        return values

    def flag(self, chunk: Chunk, name: str, new: AnyArray) -> AnyArray:
        """Truth values."""
        array = normalize_array(chunk.column(name))
        known = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_null)
        if not any(test(array.type) for test in known):
            raise wrong_type_error(chunk, name, array, "it must hold true and false, or 1 and 0")
        if pa.types.is_boolean(array.type) and not array.null_count:
            return to_numpy(array)
        values, valid = floats(array), valid_mask(array)
        values, _ = self._apply_null_rule(chunk, "flag", name, values, valid, new)
        odd = (values != 0.0) & (values != 1.0)
        if odd.any():
            raise cell_error(chunk.place(first_true(odd)), name, "it is neither true nor false")
        return np.asarray(values != 0.0)

    def _kind(self, chunk: Chunk, role: str, name: str, array: Any) -> Kind:
        t = array.type
        words, count = self.plan.facts.of(role)
        if words is not None:
            self.vocabularies[role] = Vocabulary(list(words), given=True)
            return "word"
        if pa.types.is_large_string(t):
            if count is not None:
                needed = f"each {role} must be a whole number (if they are words, "
                raise wrong_type_error(chunk, name, array, needed + _vocabulary_hint(role) + ")")
            if not self.may_collect_words:
                raise InputError(
                    f"{chunk.file}: column {name!r} holds words, so a stream needs "
                    + option(f"{role}_vocabulary"),
                    remedy=_vocabulary_hint(role) + ".",
                )
            self.vocabularies[role] = Vocabulary([], given=False)
            return "word"
        if pa.types.is_integer(t) or pa.types.is_boolean(t) or count is not None:
            return "index"
        if pa.types.is_floating(t) or pa.types.is_decimal(t) or is_list(t):
            return "vector"
        if pa.types.is_null(t):
            raise cell_error(
                chunk.place(0), name, f"the {role} is null, like the rest of its batch"
            )
        raise wrong_type_error(
            chunk, name, array, f"{'an' if role == 'action' else 'a'} {role} must be a number, a "
            "word or a list of numbers"
        )  # fmt: skip

    def _index(
        self, chunk: Chunk, role: str, name: str, array: Any
    ) -> tuple[AnyArray, AnyArray | None]:
        count = self.plan.facts.of(role)[1]
        valid = valid_mask(array)
        if pa.types.is_integer(array.type):
            values = to_numpy(array if valid is None else pc.fill_null(array, 0))
        elif pa.types.is_boolean(array.type) or pa.types.is_null(array.type):
            values = to_numpy(pc.cast(array, pa.int64()).fill_null(0))
        elif pa.types.is_floating(array.type) or pa.types.is_decimal(array.type):
            numbers = floats(array)
            # Beyond 2^53 neighbouring whole numbers are one float; no table is that long.
            odd = ~((numbers == np.floor(numbers)) & (np.abs(numbers) < 2.0**53))
            if odd.any():
                raise cell_error(
                    chunk.place(first_true(odd)), name, f"the {role} is not a whole number"
                )
            values = numbers.astype(np.int64)
        else:
            raise wrong_type_error(chunk, name, array, f"each {role} must be a whole number")
        top = MOST_VALUES if count is None else count
        if int(values.min()) < 0 or int(values.max()) >= top:
            table = f"the {count} {role}s 0 to {count - 1}" if count else "0 to 2**31 - 2"
            raise cell_error(
                chunk.place(first_true((values < 0) | (values >= top))),
                name,
                f"the {role} lies outside {table} (if the codes are others, list them with "
                + option(f"{role}_vocabulary")
                + ", in the policy's order)",
            )
        return values.astype(np.int32, copy=False), valid

    def _word(
        self, chunk: Chunk, role: str, name: str, array: Any
    ) -> tuple[AnyArray, AnyArray | None]:
        known = self.vocabularies[role]
        if not known.given:
            if not pa.types.is_large_string(array.type):
                raise wrong_type_error(chunk, name, array, f"each {role} must be a word, as before")
            present = set(known.words)
            fresh = [w for w in pc.unique(array).to_pylist() if w is not None and w not in present]
            known.words.extend(fresh)
        whole = isinstance(known.words[0], int) if known.words else False
        if pa.types.is_null(array.type) or not known.words:
            return np.zeros(len(array), dtype=np.int32), np.zeros(len(array), dtype=bool)
        if not (pa.types.is_integer if whole else pa.types.is_large_string)(array.type):
            needed = option(f"{role}_vocabulary") + f" holds {'numbers' if whole else 'words'}"
            raise wrong_type_error(chunk, name, array, needed)
        if whole:
            integers(chunk, name, array.fill_null(0))
            array = pc.cast(array, pa.int64(), safe=False)
        codes = pc.index_in(array, value_set=pa.array(known.words, array.type), skip_nulls=True)
        valid = valid_mask(array)
        if codes.null_count > array.null_count:
            absent = to_numpy(pc.and_(codes.is_null(), array.is_valid()))
            what = f"the {role} is not among " + option(f"{role}_vocabulary")
            raise cell_error(chunk.place(first_true(absent)), name, what)
        return to_numpy(codes.fill_null(0)).astype(np.int32), valid

    def _vector(
        self, chunk: Chunk, role: str, name: str, array: Any
    ) -> tuple[AnyArray, AnyArray | None]:
        if not is_list(array.type):
            values, valid = self._number(chunk, name, role)
            dimension = self.dimensions.setdefault(role, 1)
            if dimension != 1:
                raise cell_error(
                    chunk.place(0), name, f"the {role} is one number, but {dimension} before"
                )
            return values[:, None], valid
        if pa.types.is_fixed_size_list(array.type):
            lengths = np.full(len(array), array.type.list_size)
        else:
            lengths = to_numpy(array.value_lengths().fill_null(0))
        there = valid_mask(array)
        present = np.ones(len(array), dtype=bool) if there is None else there
        if present.any() or pa.types.is_fixed_size_list(array.type):
            dimension = self.dimensions.setdefault(role, int(lengths[first_true(present)]))
        else:
            dimension = self.dimensions.get(role, 0)
            if dimension == 0:
                raise cell_error(
                    chunk.place(0), name, f"the {role} is null before any of its lists is seen"
                )
        mixed = present & (lengths != dimension)
        if dimension == 0 or mixed.any():
            raise cell_error(
                chunk.place(first_true(mixed) if dimension else first_true(present)),
                name,
                f"the {role} is an empty list"
                if dimension == 0
                else f"the {role} does not have {dimension} "
                f"{'entry' if dimension == 1 else 'entries'} like the rows before it",
            )
        flat = array.flatten()
        if not is_number(flat.type):
            raise wrong_type_error(chunk, name, array, f"each {role} must be a list of numbers")
        valid = None
        if flat.null_count:
            inner = to_numpy(flat.is_valid()).reshape(-1, dimension)
            present = present.copy()
            present[present] = inner.all(axis=1)
            flat = pc.fill_null(flat, pa.scalar(0).cast(flat.type))
        entries = floats(flat).reshape(-1, dimension)
        if there is None:
            values = entries
        else:
            values = np.zeros((len(array), dimension))
            values[there] = entries
        if not present.all():
            valid = present
        return values, valid

    def _number(self, chunk: Chunk, name: str, role: str) -> tuple[AnyArray, AnyArray | None]:
        """64-bit floats, with 0 where there is a null, and where there is none."""
        array = normalize_array(chunk.column(name))
        if not (is_number(array.type) or pa.types.is_null(array.type)):
            raise wrong_type_error(chunk, name, array, f"the {role} must be a number")
        return floats(array), valid_mask(array)

    def _check_finite(self, chunk: Chunk, name: str, values: AnyArray, role: str) -> None:
        finite = np.isfinite(values)
        if not finite.all():
            row = first_true(np.asarray(~finite.reshape(len(values), -1).all(axis=1)))
            word = "NaN" if np.isnan(values[row]).any() else "infinite"
            raise cell_error(chunk.place(row), name, f"the {role} is {word}")

    def _apply_null_rule(
        self,
        chunk: Chunk,
        role: str,
        name: str,
        values: AnyArray,
        valid: AnyArray | None,
        new: AnyArray,
        free: bool = False,
    ) -> tuple[AnyArray, AnyArray | None]:
        """Apply the rule for nulls. `free` leaves them be, to be judged by the caller."""
        if free:
            return values, valid
        rule = self.plan.rule(name)
        if valid is not None:
            missing = ~valid
            if rule == "refuse":
                raise _null_error(chunk.place(first_true(missing)), role, name)
            values = values.copy()
            if rule == "fill":
                values[missing] = self._fill_value(role, name)
            else:
                values = self._carry_forward(chunk, name, values, valid, new)
            self.answered[name] = self.answered.get(name, 0) + int(missing.sum())
        if rule == "carry":
            self._carried[name] = values[-1].copy()
        return values, None

    def _carry_forward(
        self, chunk: Chunk, name: str, values: AnyArray, valid: AnyArray, new: AnyArray
    ) -> AnyArray:
        here = np.arange(new.size)
        source = np.maximum.accumulate(np.where(valid, here, -1))
        begin = np.maximum.accumulate(np.where(new, here, -1))
        # Where no row of this batch gives the value, the trajectory may have begun in an earlier
        # one.
        earlier = (source < 0) & (begin < 0)
        lost = (source < begin) | (earlier & (name not in self._carried))
        if lost.any():
            raise cell_error(
                chunk.place(first_true(lost)),
                name,
                "the value is null and its trajectory holds none before it to carry forward",
                "fill it in the table first",
            )
        carried = values[np.maximum(source, 0)]
        if earlier.any():
            carried[earlier] = self._carried[name]
        return carried

    def _fill_value(self, role: str, name: str) -> float | int:
        given = self.plan.fill[name]
        kind = self.kinds.get(role)
        if kind == "word":
            words = self.vocabularies[role]
            if given not in words.words:
                if words.given:
                    among = option(f"{role}_vocabulary") + "."
                    raise InputError(
                        f"gives {name!r} a value that is not among " + among, field="fill"
                    )
                if not isinstance(given, str):
                    raise InputError(
                        f"gives {name!r} a number, but the column holds words.", field="fill"
                    )
                words.words.append(given)
            return words.words.index(given)
        if isinstance(given, str):
            raise InputError(f"gives {name!r} a word, but the column holds numbers.", field="fill")
        number = float(given)  # type: ignore[arg-type]  # `columns` refused what is no number
        if kind == "index":
            count = self.plan.facts.of(role)[1]
            if number != int(number) or not 0 <= number < (count or MOST_VALUES):
                raise InputError(f"gives {name!r} a value that is no {role}.", field="fill")
            return int(number)
        return number


def _null_error(place: tuple[str, int], role: str, name: str) -> InputError:
    what, quoted = "the value is null", ""
    if place[0].lower().endswith(".csv"):
        what += ", as empty cells and NA are"
        quoted = "put quotes around NA if it is a word, or "
    rule = option("", {name: "carry" if role == "state" else "fill"})
    remedy = quoted + "give its column a rule with " + option("nulls") + ", such as " + rule
    return cell_error(place, name, what, remedy)


def _vocabulary_hint(role: str) -> str:
    """What to say about words."""
    words = option(f"{role}_vocabulary") + " which words there can be, such as "
    return "say with " + words + option("", ["low", "high"]) + ", in the policy's order"
