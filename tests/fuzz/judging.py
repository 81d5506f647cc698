"""What a command must not do, whatever it is given.

Exit codes are 0, 2 with one sentence, and those that a command documents. A refusal leaves nothing
behind and nothing paid. With --json standard output is JSON. No message shows how it is made, or
quotes a cell of a table.
"""

import hashlib
import json
import os
import re
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.fuzz import kinds
from tests.fuzz.running import Label

# What only the code's own author would say.
INTERNAL = re.compile(
    r"NoneType|<class|Traceback|site-packages|/privrl/|object at 0x|\bnumpy\b|ndarray|np\.float|"
    r"dtype|KeyError|TypeError|ValueError|AttributeError|IndexError|AssertionError|Errno|jaxlib|"
    r"\bXLA\b|unexpected keyword|positional argument|'(str|list|dict|int|float|bool)' object|"
    r"unhashable|encountered in|broadcast|not subscriptable|mappingproxy|PosixPath|"
    r"MemoryError|RecursionError|sqlite|Arrow error|invalid literal|could not convert|codec can't"
)
# The compiler's own remark on a machine that is busy with other things.
_SLOW = re.compile(r"slow_operation_alarm|^\*{10,}$|Very slow compile|^The operation took")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x80-\x9f]")


def judged(label: Label, stock: Path, folder: Path) -> dict[str, Any]:
    """Make the case, run it, and say what was wrong."""
    work = folder / "work"
    work.mkdir()
    os.chdir(work)
    case = kinds.make(label, stock, work)
    shown = [ascii(word)[1:-1] for word in case.words]
    (folder / "words.json").write_text(json.dumps(shown))
    if case.call is not None:
        faults = case.call()
        return {"words": shown, "faults": faults, "code": 0, "notes": {}}
    _stay_here(case)
    before, paid = _held(work), _paid(case)
    code, failure = _run(case.words)
    out = (folder / "out").read_text(errors="replace")
    err = (folder / "err").read_text(errors="replace")
    faults = [] if failure is None else [f"traceback: {failure}"]
    if failure is None:
        faults += _said(case, code, out, err)
    if code != 0:
        faults += _left(case, before, _held(work), paid)
    for word in case.private:
        if word in out or word in err:
            faults.append(f"private: {word!r} is quoted")
    return {"words": shown, "faults": faults, "code": code, "notes": {}}


def _stay_here(case: "kinds.Case") -> None:
    """No case may name a place outside of its folder: commands write, and some people are root."""
    for word in case.words:
        for part in (word, word.partition("=")[2]):
            outside = os.path.isabs(part) or os.path.normpath(part or ".").startswith("..")
            if outside and not Path(os.path.abspath(part)).is_relative_to(Path.cwd()):
                raise AssertionError(f"{part!r} is outside of the case's folder")


def _run(words: list[str]) -> tuple[int, str | None]:
    from privrl import cli

    try:
        code: int = cli.run(words)
        sys.stdout.flush()
        return code, None
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        last = traceback.extract_tb(error.__traceback__)
        ours = [one for one in last if "/privrl/" in one.filename] or last
        place = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}"
        return 70, f"{type(error).__name__} at {place}: {str(error)[:160]}"


def _said(case: "kinds.Case", code: int, out: str, err: str) -> list[str]:
    faults = []
    helped = any(word in ("-h", "--help") for word in case.words)
    if code not in case.codes:
        faults.append(f"code: {code}")
    lines = [one for one in err.splitlines() if one.strip() and not _SLOW.search(one)]
    sentences = [one for one in lines if not one.startswith("privrl: warning: ")]
    if sentences and sentences[0].endswith(" options are needed:"):
        sentences = [one for one in sentences if not one.startswith("  ")]  # a line for each
    if code == 2 or (code == 1 and case.words[0] == "verify"):
        if len(sentences) != 1 or not sentences[0].startswith("privrl: "):
            faults.append(f"sentence: {sentences[:3]!r}")
        elif len(sentences[0]) > 1500 and max(map(len, case.words)) < 500:
            faults.append(f"sentence: {len(sentences[0])} characters")
        if "--json" in case.words and out:
            faults += _not_json(out)
        elif out and not case.shows:
            faults.append(f"output: {out[:80]!r}")
    elif code == 0:
        if sentences:
            faults.append(f"sentence: {sentences[:3]!r} and no refusal")
        if "--json" in case.words and not helped:
            faults += _not_json(out)
    for text, what in ((err, "standard error"), (out, "standard output")):
        # What the caller typed may be quoted, whatever it is.
        for word in sorted({*case.words, str(Path.cwd())}, key=len, reverse=True):
            if len(word) > 2:
                text = text.replace(word, "").replace(ascii(word)[1:-1], "")
        found = INTERNAL.search(text)
        if found and not helped:
            near = text[max(0, found.start() - 60) : found.end() + 60]
            faults.append(f"internal: {near!r} in {what}")
        if "--json" not in case.words and _CONTROL.search(text):
            faults.append(f"control: {_CONTROL.search(text)!r} in {what}")  # pragma: no branch
    return faults


def _not_json(out: str) -> list[str]:
    def refuse(word: str) -> object:
        raise ValueError(f"{word} is not JSON")

    try:
        json.loads(out, parse_constant=refuse)
    except ValueError as error:
        return [f"json: {error}: {out[:60]!r}"]
    return []


def _held(work: Path) -> dict[str, str]:
    """Everything in the folder, with a digest of what is in files."""
    found: dict[str, str] = {}
    for root, folders, files in os.walk(work):
        for name in [*folders, *files]:
            path = Path(root) / name
            kept = ""
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 10**7:
                with suppress(OSError):
                    kept = hashlib.sha256(path.read_bytes()).hexdigest()
            found[os.path.relpath(path, work)] = kept
    return found


def _left(
    case: "kinds.Case", before: dict[str, str], after: dict[str, str], paid: int | None
) -> list[str]:
    faults = []
    if not case.resumes:
        new = sorted(set(after) - set(before))
        if new:
            faults.append(f"left: {new[:4]}")
        changed = sorted(one for one in before if one in after and before[one] != after[one])
        if changed:
            faults.append(f"changed: {changed[:4]}")
    gone = sorted(set(before) - set(after))
    if gone and not case.resumes:
        faults.append(f"gone: {gone[:4]}")
    if paid is not None and _paid(case) != paid:
        faults.append(f"paid: {paid} entries became {_paid(case)}, and nothing was released")
    return faults


def _paid(case: "kinds.Case") -> int | None:
    """How many entries the ledger has; None if there is none that can be read."""
    from privrl.privacy import Ledger, PrivRLError

    if case.ledger is None:
        return None
    try:
        with Ledger.open(case.ledger) as ledger:
            return len(ledger.entries())
    except PrivRLError:
        return None
