"""Arrow arrays as NumPy arrays: the few conversions that reading needs, all vectorised."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from privrl.core.types import AnyArray


def normalize_array(array: Any) -> Any:
    """Without dictionaries, and with one type for all words."""
    if pa.types.is_dictionary(array.type):
        # Not `dictionary_decode`, which knows nothing of Polars' string views.
        array = normalize_array(array.dictionary).take(array.indices)
    t = array.type
    if pa.types.is_string(t) or (
        hasattr(pa.types, "is_string_view") and pa.types.is_string_view(t)
    ):
        array = pc.cast(array, pa.large_string())
    return array


def normalize_batch(batch: Any) -> Any:
    """A batch of plain columns: those of many files then have one type and can be joined."""
    return pa.record_batch(
        [normalize_array(column) for column in batch.columns], batch.schema.names
    )


def is_list(t: Any) -> bool:
    return bool(pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t))


def is_number(t: Any) -> bool:
    return bool(
        pa.types.is_integer(t)
        or pa.types.is_floating(t)
        or pa.types.is_decimal(t)
        or pa.types.is_boolean(t)
    )


def to_numpy(array: Any) -> AnyArray:
    """A NumPy view of numbers without nulls; truth values and words are copied.

    Arrow's own `to_numpy` imports pandas on first use, if it is installed, which takes a second.
    """
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    t = array.type
    if pa.types.is_boolean(t):
        array, t = pc.cast(array, pa.uint8()), pa.uint8()
        return to_numpy(array).view(np.bool_)
    if pa.types.is_integer(t) or pa.types.is_floating(t):
        begin, size = array.offset, len(array)
        letter = "f" if pa.types.is_floating(t) else "i" if pa.types.is_signed_integer(t) else "u"
        kind = np.dtype(f"{letter}{t.bit_width // 8}")
        if size == 0:
            return np.empty(0, dtype=kind)
        return np.frombuffer(array.buffers()[1], dtype=kind)[begin : begin + size]
    words = np.empty(len(array), dtype=object)
    words[:] = array.to_pylist()
    return words


def valid_mask(array: Any) -> AnyArray | None:
    return None if array.null_count == 0 else to_numpy(array.is_valid())


def floats(array: Any) -> AnyArray:
    """64-bit floats, with 0 in place of nulls."""
    if pa.types.is_boolean(array.type):
        array = pc.cast(array, pa.uint8())
    if array.type != pa.float64():
        array = pc.cast(array, pa.float64(), safe=False)
    if array.null_count:
        array = pc.fill_null(array, 0.0)
    values: AnyArray = to_numpy(array)
    return values


def differs_from_previous(ids: Any) -> AnyArray:
    """Whether each entry but the first differs from the one before it; nulls differ from all."""
    if isinstance(ids, np.ndarray):
        return np.asarray(ids[1:] != ids[:-1])
    return to_numpy(pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1)).fill_null(True))


def item(ids: Any, row: int) -> Any:
    return int(ids[row]) if isinstance(ids, np.ndarray) else ids[row].as_py()


def take_rows(ids: Any, rows: AnyArray) -> AnyArray:
    if isinstance(ids, np.ndarray):
        return ids[rows]
    taken: AnyArray = to_numpy(ids.take(pa.array(rows)))
    return taken


def first_true(mask: AnyArray) -> int:
    return int(np.argmax(mask))


def first_null(array: Any) -> int:
    return first_true(to_numpy(array.is_null()))
