"""`privrl.load`: whatever was saved, by what its file says that it is."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError

# By the kind that stands in a file: the module, the class, and its method that reads a path.
_READERS = {
    "privrl study": ("privrl.run.study", "Study", "load"),
    "privrl evaluation": ("privrl.evaluation.result", "Result", "load"),
    "privrl actor-critic": ("privrl.control.actor_critic", "LearnedActorCritic", "load"),
    "privrl functional q": ("privrl.control.learned_q", "LearnedQ", "load"),
    "privrl q-learning": ("privrl.control.q_learning", "LearnedQValues", "load"),
    "privrl collected policy": ("privrl.control.pgc.learned", "LearnedPGC", "load"),
    "privrl prospect": ("privrl.risk.prospect", "Prospect", "load"),
    "privrl certificate": ("privrl.privacy.certificate", "Certificate", "read"),
}
# The files of a run's folder that hold its result, the first that is there.
_RESULTS = ("study.json", "result.json")
_SQLITE = b"SQLite format 3\0"


def load(path: str | Path) -> Any:
    """What was saved at `path`: a study, a result, an agent, a policy, a certificate, a ledger, ...

    Args:
        path: A file that this package wrote, under its present or its earlier name; or the folder
            of a run, of which the result is read.

    Returns:
        The object, such as a `privrl.run.study.Study`. A `Ledger` is open: close it, or use it in a
        `with` statement.
    """
    place = Path(path)
    if place.is_dir():
        found = [place / name for name in _RESULTS if (place / name).exists()]
        if not found:
            raise InputError(f"{str(path)!r} holds no {' and no '.join(_RESULTS)}.")
        place = found[0]
    if _begins(place, _SQLITE):
        from privrl.privacy.ledger import Ledger

        return Ledger.open(place)
    data = files.load_json(place)
    kind = files.kind_of(data)
    if kind == "privrl claim":
        from privrl.privacy.certificate import Claim

        return Claim.from_dict(data)
    if isinstance(data, dict) and str(data.get("format")).endswith("-policy"):
        from privrl.data import load_policy

        return load_policy(place)
    if kind not in _READERS:
        raise InputError(f"{str(path)!r} is nothing that privrl saved, or cannot be loaded.")
    module, owner, method = _READERS[kind]
    read: Callable[[Path], Any] = getattr(getattr(import_module(module), owner), method)
    return read(place)


def _begins(place: Path, mark: bytes) -> bool:
    try:
        files.check_regular(place)
        with place.open("rb") as file:
            return file.read(len(mark)) == mark
    except (OSError, ValueError) as error:
        raise InputError(f"{str(place)!r} cannot be read: {files.reason(error)}.") from None
