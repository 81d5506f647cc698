"""`privrl init`: a commented configuration for `privrl evaluate`, from the columns of a table.

Only names and types of columns are looked at: of Parquet files the schema, of CSV files the header
line. Which column is what is guessed from its name, to be checked by whoever knows the table.
"""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.core.text import printable
from privrl.data.arrow import is_number
from privrl.run.specs.table import EvaluateOptions
from privrl.run.table_files import column_types, is_csv, table_files

# Words in the names of columns, the likeliest first; one letter is a whole name.
_WORDS = {
    "behavior_prob": "propensity pscore behavior behaviour prob probability p",
    "trajectory": "trajectory traj episode stay icustay admission encounter session visit",
    "user": "user patient person subject customer client member owner",
    "time": "time t step timestep hour day date timestamp",
    "action": "action a treatment decision dose arm intervention",
    "reward": "reward r outcome payoff",
    "terminated": "terminated terminal done died",
    "truncated": "truncated censored",
}
_NUMBERS = ("behavior_prob", "reward")
_STATES = {"state", "states", "s", "obs", "observation"}
_OTHERS = {"next", "target", "new"}
_COLUMNS = ("trajectory", "user", "time", "state", "action", "reward", "behavior_prob")
# What every evaluation needs besides, with an example of each in TOML.
_EXAMPLES = {
    "policy": '"policy.json"',
    "epsilon": "1",
    "delta": "1e-6",
    "reward_range": "[0, 1]",
    "horizon": "20",
    "weight_cap": "10",
}


def write_job(table: str | Path | Sequence[str | Path], path: str | Path = "job.toml") -> Path:
    """Write a commented configuration for the evaluation of a table, and return where it is.

    Args:
        table: Parquet or CSV files, a pattern, or a folder.
        path: Where to write. A file that is there already is left as it is, and refused.
    """
    named = [table] if isinstance(table, str | Path) else list(table)
    text = job_text([str(one) for one in named], str(path))
    if files.path_exists(path):
        raise InputError(f"{str(path)!r} is there already: say another file.")
    files.write(path, text.encode(), secret=False)
    return Path(path)


def job_text(table: Sequence[str], file: str = "job.toml") -> str:
    """The configuration, as TOML."""
    first = table_files(table)[0]
    types = dict(column_types(first))
    roles = guess_roles(types)
    guessed = {name for role in roles.values() for name in role}
    left = [name for name in types if name not in guessed]
    help_of = {name: one.text for name, one in EvaluateOptions.options().items()}

    def line(name: str, value: str, given: bool) -> list[str]:
        return [f"# {help_of[name]}", f"{'' if given else '# '}{name} = {value}"]

    lines = [
        "# What privrl evaluate is to do. A line that begins with # is not set.",
        "# Which column is what was guessed from their names alone: check every line.",
        f"# Next: privrl evaluate --config {shlex.quote(printable(file))} --dry-run",
        "",
        "# The columns of the table, by their names" + (":" if is_csv(first) else " and types:"),
        *(
            f"#   {_toml(one)}" + ("" if kind is None else f" ({kind})")
            for one, kind in types.items()
        ),
        "",
        *line("table", _toml(list(table)), given=True),
    ]
    for role in _COLUMNS:
        names = roles.get(role, left if role == "state" and left else ["..."])
        value = _toml(names) if role == "state" else _toml(names[0])
        lines += line(role, value, given=role in roles)
    for name, example in _EXAMPLES.items():
        lines += line(name, example, given=False)
    lines += ["", "# Options that some evaluations need: docs/evaluate.md says when."]
    for name in help_of:
        if name not in ("table", *_COLUMNS, *_EXAMPLES):
            value = _toml(roles[name][0]) if name in roles else "..."
            lines += line(name, value, given=name in roles)
    return "\n".join(lines) + "\n"


def guess_roles(types: Mapping[str, Any]) -> dict[str, list[str]]:
    """The columns of each role that names suggest; types are Arrow's, or None if unknown."""
    words = {name: _words(name) for name in types}
    found: dict[str, list[str]] = {}
    states = [name for name in types if words[name] and words[name][0] in _STATES]
    for exact in (True, False):
        for role, known in _WORDS.items():
            taken = {name for names in found.values() for name in names}
            fits = [
                name
                for word in known.split()
                for name, parts in words.items()
                if (parts == [word] or (not exact and len(word) > 1 and word in parts))
                and name not in (*taken, *states)
                and not _OTHERS & set(parts)
                and (role not in _NUMBERS or types[name] is None or is_number(types[name]))
            ]
            if fits:
                found.setdefault(role, fits[:1])
    return found | ({"state": states} if states else {})


def _words(name: str) -> list[str]:
    """The words of a name: stay_id and StayID are stay and id."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return [one for one in re.split(r"[^a-z]+", apart) if one and one != "id"]


def _toml(value: str | list[str]) -> str:
    # TOML's strings are JSON's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
