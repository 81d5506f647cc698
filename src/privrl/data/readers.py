"""The doors: files, tables, arrays and Minari data sets, each checked by `privrl.data.decoder`."""

import csv
import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from privrl.core.errors import InputError, option
from privrl.core.files import is_there, parse_json, reason, regular
from privrl.core.types import AnyArray
from privrl.data import neutral
from privrl.data.arrow import differ
from privrl.data.columns import Arrays, Facts, Plan, check_options, plan
from privrl.data.decoder import Block, Decoder
from privrl.data.sources import (
    NOT_TEXT,
    NULL_WORDS,
    PRIVATE,
    Chunk,
    ahead,
    check_schema,
    first_line,
    header,
    open_parquet,
    parquet_chunks,
    private,
    sorted_chunks,
    table_chunks,
)
from privrl.data.trajectories import Behavior, Note, Trajectories

Paths = str | Path | Sequence[str | Path]


def files(paths: Paths, suffix: str) -> list[Path]:
    """The files meant by a path, a list of paths, a pattern or a folder; names in order."""
    if isinstance(paths, str | Path):
        given: list[str | Path] = [paths]
    elif isinstance(paths, Sequence):
        given = list(paths)
    else:
        raise InputError("paths must be a path, a list of paths, a pattern or a folder.")
    found: list[Path] = []
    for one in given:
        if not isinstance(one, str | Path):
            raise InputError(f"A path must be text, not {one!r}.")
        if not str(one) or "\0" in str(one):
            raise InputError(f"A path must name a file or a folder, not {str(one)!r}.")
        if "://" in str(one):
            raise InputError(
                f"{one} is not on this machine: copy it, or pass from_table what a library that "
                "can read it hands over."
            )
        path = Path(one)
        if _is_folder(path):
            inside = sorted(
                (p for p in path.rglob(f"*{suffix}") if p.is_file() and not _hidden(path, p)),
                key=_in_order,
            )
            if not inside:
                raise InputError(f"The folder {path} holds no *{suffix} file.")
            found += inside
        elif is_there(path) or not glob.has_magic(str(one)):
            found.append(path)
        else:
            matching = sorted(map(Path, glob.glob(str(one), recursive=True)), key=_in_order)
            if not matching:
                raise InputError(f"No file matches {str(one)!r}.")
            found += matching
    if not found:
        raise InputError("There is no file to read.")
    return found


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {reason(error)}.") from None


def _hidden(folder: Path, path: Path) -> bool:
    """Names that begin with a dot or an underscore are other tools' own files and folders."""
    return any(part[0] in "._" for part in path.relative_to(folder).parts)


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Numbers in names count as numbers: part-2 comes before part-10."""
    parts = re.split(r"([0-9]+)", str(path))
    return [(int(p), p) if i % 2 else (0, p) for i, p in enumerate(parts)]


def from_parquet(paths: Paths, sort: bool, columns: Mapping[str, Any]) -> Trajectories:
    checked, found = plan(columns), files(paths, ".parquet")
    rows, carried = inspected(found, checked)
    if checked.invalid == "neutral":
        shape = neutral.shape_of(schemas(found), checked, parquet=True)
        rows_of = neutral.rows_of_chunks(ahead(parquet_chunks(found, checked)), shape)
        return with_carried(of_people(neutral.in_memory(rows_of, shape), checked), carried)
    data = _load(ahead(parquet_chunks(found, checked)), checked, sort, title(found), rows)
    return with_carried(data, carried)


def schemas(paths: Iterable[Path]) -> Iterator[tuple[str, Any]]:
    """The names of files and their Arrow schemas."""
    for path in paths:
        with open_parquet(path) as file:
            yield str(path), file.schema_arrow


def of_people(found: neutral.People, checked: Plan, before: int = 0) -> Trajectories:
    """Trajectories of people who are numbered, from `before` on; so are their trajectories."""
    owned: dict[str, AnyArray] = {
        "trajectory_ids": np.arange(len(found.starts)) + before,
        **found.per_trajectory,
    }
    if checked.user is not None:
        owned["users"] = found.owners + before
    offsets = np.append(found.starts, len(found.columns["rewards"]))
    return built(Decoder(checked), offsets, found.columns, owned, True)


def inspected(paths: Iterable[Path], checked: Plan) -> tuple[int, dict[str, Any]]:
    """From the footers alone: every column is there; how many rows; what `to_parquet` said of them.

    If any file holds probabilities that were estimated from private data, the whole does.
    """
    rows = 0
    notes: list[Any] = []
    told: list[Any] = []
    read: list[Any] = []
    for path in paths:
        with open_parquet(path) as file:
            check_schema(str(path), file.schema_arrow, checked)
            rows += file.metadata.num_rows
            carried = _carried(file.schema_arrow)
        notes += carried.get("notes", ())
        read += carried.get("read", ())
        told.append(carried.get("behavior", {}))
    told.sort(key=lambda one: (one.get("source") != "estimated", one.get("public") is True))
    return rows, {"notes": notes, "behavior": told[0], "read": read}


def from_csv(
    paths: Paths, sort: bool, types: Mapping[str, Any] | None, columns: Mapping[str, Any]
) -> Trajectories:
    checked, found = plan(columns), files(paths, ".csv")
    if checked.invalid == "neutral":
        if types:
            problem = "types are those of the roles with " + option("invalid", "neutral")
            raise InputError(problem, remedy="leave them out.")
        shape = neutral.text_shape(found, checked)
        return of_people(neutral.in_memory(neutral.rows_of_text(found, shape), shape), checked)
    # Ids are text: as numbers 1 and 01 would be one person, and so would long ones. A column that
    # has another role as well is what that role needs.
    others = replace(checked, trajectory=checked.reward, user=None).names
    ids = (checked.trajectory, checked.user)
    kept = {name: pa.string() for name in ids if name is not None and name not in others}
    for name, kind in (types or {}).items():
        if name not in checked.names:
            raise InputError(f"types names {name!r}, which is not a column that is read.")
        try:
            kept[name] = pa.type_for_alias(kind) if isinstance(kind, str) else kind
        except ValueError as error:
            raise InputError(f"types names a type that Arrow does not know: {error}.") from None
        if not isinstance(kept[name], pa.DataType):
            raise InputError(f"types must give {name!r} the name of a type, not {kind!r}.")
    for path in found:
        named = pa.schema([(name, pa.string()) for name in header(path)])
        check_schema(str(path), named, checked)
    try:
        return _load(_csv_chunks(found, checked, kept), checked, sort, title(found))
    except InputError as error:
        # The types of columns were guessed from their cells, so every refusal is about those.
        raise error if error.text.endswith(PRIVATE) else private(error.text) from None


def _csv_chunks(paths: list[Path], checked: Plan, types: dict[str, Any]) -> Iterator[Chunk]:
    for path in paths:
        options = pa_csv.ConvertOptions(
            column_types=types,
            null_values=sorted(NULL_WORDS),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        try:
            regular(path)
            # A line with too few or too many cells stops the reading rather than being skipped.
            table = pa_csv.read_csv(path, convert_options=options)
        except FileNotFoundError:
            raise InputError(f"There is no file {path}.") from None
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise _csv_error(path, error, options) from None
        check_schema(str(path), table.schema, checked)
        yield from table_chunks(str(path), table.select(checked.names).to_reader(), checked)


def _csv_error(path: Path, error: Exception, options: Any) -> InputError:
    """Arrow quotes the line, which is private: keep what was expected and where."""
    if isinstance(error, UnicodeEncodeError):
        return InputError(f"{path} cannot be read: {NOT_TEXT}.")
    if isinstance(error, pa.ArrowInvalid):
        try:
            # Once more in one thread, which counts the rows.
            alone = pa_csv.ReadOptions(use_threads=False)
            pa_csv.read_csv(path, read_options=alone, convert_options=options)
        except (pa.ArrowException, OSError) as again:
            error = again
    text = str(error)
    row = re.match(r"(CSV parse error|In CSV column #\d+): Row #(\d+): ", text)
    # Arrow counts from 1, and the header too.
    place = "" if row is None else f", row {int(row[2]) - 2} (counting from 0)"
    cells = re.search(r"Expected (\d+) columns, got (\d+)", text)
    column = re.match(r"In CSV column #(\d+): ", text)
    if cells is not None:
        return InputError(f"{path}{place}: there are {cells[2]} cells instead of {cells[1]}.")
    if column is not None:
        with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
            name = next(csv.reader(file))[int(column[1])]
        return InputError(
            f"{path}, column {name!r}{place}: the value does not fit the type of the column."
        )
    reason = "" if text.startswith("CSV parse error") else f": {first_line(error)}"
    return InputError(f"{path} cannot be read as CSV{reason}.")


def from_table(table: Any, sort: bool, columns: Mapping[str, Any]) -> Trajectories:
    checked = plan(columns)
    if not hasattr(table, "__arrow_c_stream__"):
        raise InputError(
            f"A {type(table).__name__} is not a table: it must offer the Arrow C stream interface, "
            "as Arrow, pandas, Polars and DuckDB do."
        )
    try:
        reader = pa.RecordBatchReader.from_stream(table)
    except Exception as error:
        # The other library's own failure; its words may quote a cell.
        raise private(
            f"The table cannot be read: its library failed with {type(error).__name__}."
        ) from None
    chunks = table_chunks("The table", reader, checked)
    if checked.invalid == "neutral":
        shape = neutral.shape_of([("The table", reader.schema)], checked)
        data = of_people(neutral.in_memory(neutral.rows_of_chunks(chunks, shape), shape), checked)
        return with_carried(data, _carried(reader.schema))
    data = _load(chunks, checked, sort, "The table")
    return with_carried(data, _carried(reader.schema))


# --- putting blocks together ---------------------------------------------------------------------


class Growing:
    """A column that is filled batch by batch, in place when its length is known beforehand.

    The length comes from a file's footer, which may be wrong: then the batches are kept apart.
    """

    def __init__(self, capacity: int | None) -> None:
        self._capacity = capacity
        self._whole: AnyArray | None = None
        self._parts: list[AnyArray] = []
        self._filled = 0

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

    def done(self) -> AnyArray:
        if self._whole is not None:
            return self._whole[: self._filled]
        # A copy even of a single part: it may be the caller's own memory, who may change it later.
        return np.concatenate(self._parts)


def _load(
    chunks: Iterator[Chunk], checked: Plan, sort: bool, title: str, capacity: int | None = None
) -> Trajectories:
    if sort:
        chunks, capacity = sorted_chunks(chunks, checked), None
    decoder = Decoder(checked)
    columns: dict[str, Growing] = {}
    per_trajectory: dict[str, list[AnyArray]] = {}
    starts: list[AnyArray] = []
    for chunk in chunks:
        if chunk.batch.num_rows == 0:
            continue
        before = decoder.rows
        block = decoder.block(chunk)
        for name, values in block.columns.items():
            columns.setdefault(name, Growing(capacity)).add(values)
        starts.append(block.starts + before)
        for name, values in _owned(block).items():
            per_trajectory.setdefault(name, []).append(values)
    if decoder.rows == 0:
        raise InputError(f"{title} has no rows.")
    for name, values in decoder.close().items():
        per_trajectory[name].append(values)
    return built(
        decoder,
        np.concatenate([*starts, [decoder.rows]]),
        {name: column.done() for name, column in columns.items()},
        {name: np.concatenate(parts) for name, parts in per_trajectory.items()},
        sort,
    )


def _owned(block: Block) -> dict[str, AnyArray]:
    owned = {"trajectory_ids": block.ids, **block.ends}
    if block.users is not None:
        owned["users"] = block.users
    return owned


def built(
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


def with_carried(data: Trajectories, carried: Mapping[str, Any]) -> Trajectories:
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


def _carried(schema: Any) -> dict[str, Any]:
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


def title(found: Iterable[Path]) -> str:
    names = [str(path) for path in found]
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more files"


# --- arrays --------------------------------------------------------------------------------------


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
        columns["trajectory"] = _repeated("trajectory_ids", ids, sizes)
        last = np.cumsum(sizes) - 1
    else:
        columns["trajectory"] = _column("trajectory_ids", trajectory_ids, steps)
        ids = columns["trajectory"]
        last = np.append(np.flatnonzero(differ(ids)), steps - 1)
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
        columns["user"] = _repeated("users", arrays["users"], sizes)
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
    data = _load(table_chunks("The arrays", reader, checked), checked, False, "The arrays")
    final = arrays.get("final_states")
    return data if final is None else _with_final(data, final)


def _with_final(data: Trajectories, final_states: Any) -> Trajectories:
    """Attach the states after the last steps, held to what the other states are held to."""
    count = data.num_trajectories
    column = _column("final_states", final_states, count, two=True)
    facts = data.facts
    shadow = Plan(
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


def _repeated(label: str, values: Any, sizes: AnyArray) -> Any:
    column = _column(label, values, sizes.size)
    return column.take(pa.array(np.repeat(np.arange(sizes.size), sizes)))


# --- Minari --------------------------------------------------------------------------------------


def from_minari(
    dataset: Any, behavior_prob: str | None, num_states: int | None, num_actions: int | None
) -> Trajectories:
    """Observations have one entry more than actions: the last is the final state."""
    if isinstance(dataset, str):
        try:
            import minari
        except ImportError:
            raise InputError(
                "Reading a Minari data set by name needs Minari: pip install 'privrl[minari]'."
            ) from None
        try:
            dataset = minari.load_dataset(dataset)
        except (FileNotFoundError, ValueError) as error:
            raise InputError(f"Minari cannot load the data set: {first_line(error)}.") from None
    if not hasattr(dataset, "iterate_episodes"):
        raise InputError(f"A {type(dataset).__name__} is not a Minari data set or the name of one.")
    parts: dict[str, list[AnyArray]] = {}
    for position, episode in enumerate(dataset.iterate_episodes()):
        where = f"Minari episode {position} (counting from 0)"
        steps = len(episode.rewards)
        if steps == 0:
            raise InputError(f"{where} is empty.")
        if isinstance(episode.observations, dict | tuple) or isinstance(
            episode.actions, dict | tuple
        ):
            raise InputError(
                f"{where}: observations and actions must be arrays, not compound spaces."
            )
        observations = np.asarray(episode.observations)
        if len(observations) != steps + 1:
            raise InputError(f"{where} has {len(observations)} observations for {steps} steps.")
        for flag in (episode.terminations, episode.truncations):
            if np.any(np.asarray(flag)[:-1]):
                raise InputError(f"{where} goes on after it ended.")
        row: dict[str, Any] = {
            "states": _flat(observations[:-1]),
            "actions": _flat(np.asarray(episode.actions)),
            "rewards": np.asarray(episode.rewards, dtype=np.float64),
            "lengths": np.array([steps]),
            "trajectory_ids": np.array([episode.id]),
            "terminated": np.asarray(episode.terminations, dtype=bool)[-1:],
            "truncated": np.asarray(episode.truncations, dtype=bool)[-1:],
            "final_states": _flat(observations[-1:]),
        }
        if behavior_prob is not None:
            infos = episode.infos or {}
            if behavior_prob not in infos:
                raise InputError(f"{where} has no {behavior_prob!r} in its infos.")
            # Minari keeps infos of the reset too: with one entry more, the first is dropped.
            try:
                logged = np.asarray(infos[behavior_prob], dtype=np.float64).ravel()
            except (TypeError, ValueError):
                raise InputError(f"{where}: {behavior_prob!r} must be numbers.") from None
            if len(logged) not in (steps, steps + 1):
                raise InputError(f"{where} has {len(logged)} {behavior_prob!r} for {steps} steps.")
            row["behavior_probs"] = logged[-steps:]
        for name, values in row.items():
            parts.setdefault(name, []).append(values)
    if not parts:
        raise InputError("The Minari data set has no episodes.")
    for name in ("states", "actions"):
        if len({p.shape[1:] for p in parts[name]}) > 1:
            raise InputError(f"The Minari data set mixes {name} of different dimensions.")
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in parts.items()}
    joined |= {"num_states": num_states, "num_actions": num_actions}
    states, actions, rewards = (joined.pop(name) for name in ("states", "actions", "rewards"))
    data = from_arrays(states, actions, rewards, joined)
    return data.with_notes(Note("origin", "from a Minari data set"))


def _flat(values: AnyArray) -> AnyArray:
    """One row for each step, whatever the shape of an observation."""
    return values if values.ndim == 1 else values.reshape(len(values), -1)
