"""What a case gave, as JSON that is the same from run to run."""

import csv
import hashlib
import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

PACKAGE = "<package>"

LARGEST = 32
"""Arrays of more numbers or words than this are stored by their shape, digest and first items."""

FIRST = 8

GONE = {
    "digest": "of a text that names the package and its version; in ledgers, of a nonce too",
    "previous": "the digest before, in ledgers",
    "head": "the digest of a ledger's last entry",
    "nonce": "is random",
    "time": "of an entry in a ledger",
    "created": "the time of a study",
    "finished": "the time at which a run ended",
    "seconds": "how long something took",
    PACKAGE: "its version, in certificates",
}
"""Keys whose values are left out, each with the reason; that the key is there is kept."""


@dataclass(frozen=True)
class Rule:
    """What is written instead of what, in any text, and why."""

    pattern: re.Pattern[str]
    instead: str
    reason: str


RULES = (
    Rule(re.compile(r"tacit|privrl", re.I), PACKAGE, "the package's name, which changes"),
    Rule(re.compile(rf"(?<={PACKAGE} )\d+\.\d+\.\d+\S*"), "<version>", "the package's version"),
    Rule(re.compile(r"\d{4}-\d\d-\d\dT[\d:]+\+00:00"), "<time>", "when it was run"),
    Rule(re.compile(r"\d+ [A-Z][a-z]+ \d{4}, \d\d:\d\d UTC"), "<time>", "the same, in a report"),
    Rule(re.compile(r"\b[0-9a-f]{32}\b"), "<id>", "a run's: random, or made of the package's name"),
    Rule(re.compile(r"\b[0-9a-f]{64}\b"), "<digest>", "keys, and digests of what is left out"),
    Rule(re.compile(r"\s+"), " ", "a name of another length breaks lines elsewhere"),
)


def canonical(value: Any, folder: Path | None = None) -> Any:
    """Numbers, words, lists and dictionaries, without what varies; `folder` is where it ran."""

    def text(given: str) -> str:
        if folder is not None:
            given = given.replace(str(folder), "<folder>")
        for rule in RULES:
            given = rule.pattern.sub(rule.instead, given)
        return given.strip()

    def plain(one: Any) -> Any:
        if isinstance(one, Enum):
            return plain(one.value)
        if one is None or type(one) in (bool, int, float):
            return one
        if isinstance(one, str):
            return text(one)
        if isinstance(one, bytes):
            return {"bytes": len(one), "sha256": hashlib.sha256(one).hexdigest()}
        if isinstance(one, Mapping):
            named = {text(str(key)): inner for key, inner in one.items()}
            return {key: "(left out)" if key in GONE else plain(of) for key, of in named.items()}
        if hasattr(one, "dtype") and hasattr(one, "shape"):
            return _array(np.asarray(one))
        if callable(getattr(one, "to_dict", None)):
            return plain(one.to_dict())
        if is_dataclass(one):
            return plain({field.name: getattr(one, field.name) for field in fields(one)})
        if isinstance(one, list | tuple):
            return _shortened(one) or [plain(inner) for inner in one]
        raise TypeError(f"{type(one).__name__} has no canonical form: {one!r}")

    return plain(value)


def _array(array: np.ndarray[Any, Any]) -> Any:
    if array.size <= LARGEST:
        return array.tolist()
    listed = array.ravel().tolist()
    if array.dtype.kind == "U":
        content = "\n".join(listed).encode()
    else:
        wide = array.astype(np.float64 if array.dtype.kind == "f" else np.int64)
        content = np.ascontiguousarray(wide).tobytes()
    return {
        "shape": list(array.shape),
        "sha256": hashlib.sha256(content).hexdigest(),
        "first": listed[:FIRST],
    }


def _shortened(listed: list[Any] | tuple[Any, ...]) -> Any:
    """A long list of numbers or words, or a table of them, as an array; None if it is not one."""
    try:
        array = np.array(listed)
    except ValueError:  # rows of different lengths, or of different things
        return None
    words = array.dtype.kind == "U" and all(type(one) is str for one in listed)
    if not (words or array.dtype.kind in "bif") or array.size <= LARGEST:
        return None
    return _array(array)


# --- files ----------------------------------------------------------------------------------------


def read(path: Path) -> Any:
    """What is in a file that a command wrote; None for what says nothing that is to be kept."""
    if path.suffix == ".json":
        return json.loads(path.read_text())
    if path.suffix == ".jsonl":
        return _columns([json.loads(line) for line in path.read_text().splitlines()])
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return _columns(
                [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(file)]
            )
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pydict()
    if path.suffix == ".html":
        seen = re.sub(r"<style.*?</style>|<script.*?</script>", " ", path.read_text(), flags=re.S)
        return html.unescape(re.sub(r"<[^>]*>", " ", seen))
    return None


def _columns(rows: list[dict[str, Any]]) -> dict[str, list[Any]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


def _number(word: str) -> Any:
    try:
        return float(word) if not word.lstrip("-").isdigit() else int(word)
    except ValueError:
        return word
