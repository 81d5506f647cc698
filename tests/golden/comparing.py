"""Two JSON values side by side: every difference, by the path of keys."""

import difflib
import math
import re
from collections.abc import Iterator
from typing import Any, Literal

How = Literal["exact", "close", "shape"]
"""To the last digit; with a relative tolerance; or only what sort of thing is where."""

TOLERANCE, FLOOR = 1e-8, 1e-25
"""On another kind of machine: relative, since an epsilon is a root that is searched for; and what
rounding leaves of deltas, from a transform of numbers near 1."""

CERTAIN = frozenset(
    {
        *("certificate", "certificate.json", "claim", "claim.json", "promise", "settings"),
        *("run.json", "plan.json", "events", "shape"),
    }
)
"""Keys under which a learned result is compared with the tolerance on any machine."""

_NUMBER = re.compile(r"[-−]?\d[\d,.]*(e[-+]?\d+)?")


def differences(old: Any, new: Any, how: How = "exact", path: str = "") -> Iterator[str]:
    """Lines `path: old -> new`, for all that differs."""
    where = path or "."
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else key
            if key not in new:
                yield f"{inner}: {_short(old[key])} -> (missing)"
            elif key not in old:
                yield f"{inner}: (new) -> {_short(new[key])}"
            elif how == "exact" or key != "sha256":
                chosen: How = "close" if how == "shape" and key in CERTAIN else how
                yield from differences(old[key], new[key], chosen, inner)
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}: {len(old)} items -> {len(new)} items"
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, other, how, f"{path}[{number}]")
    elif isinstance(old, str) and isinstance(new, str):
        if how != "exact":
            old, new = _NUMBER.sub("#", old), _NUMBER.sub("#", new)
        if how != "shape" and old != new:
            yield f"{where}: {_words(old, new)}"
    elif not _same(old, new, how):
        yield f"{where}: {_short(old)} -> {_short(new)}"


def _same(old: Any, new: Any, how: How) -> bool:
    if how == "exact" or not (_is_number(old) and _is_number(new)):
        # By their digits, so that NaN is itself, and 1 is not 1.0, nor 0.0 -0.0.
        alike = type(old) is type(new) and (how == "shape" or repr(old) == repr(new))
        return alike
    return (
        how == "shape"
        or math.isclose(old, new, rel_tol=TOLERANCE, abs_tol=FLOOR)
        or repr(old) == repr(new)
    )


def _is_number(value: Any) -> bool:
    return type(value) in (int, float)


def _short(value: Any) -> str:
    said = repr(value)
    return said if len(said) <= 100 else f"{said[:97]}..."


def _words(old: str, new: str) -> str:
    """Which words of a text differ."""
    before, after = old.split(), new.split()
    matched = difflib.SequenceMatcher(None, before, after, autojunk=False)
    return "; ".join(
        f"{' '.join(before[a:b])!r} -> {' '.join(after[c:d])!r}"
        for tag, a, b, c, d in matched.get_opcodes()
        if tag != "equal"
    )
