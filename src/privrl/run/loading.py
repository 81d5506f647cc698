"""`privrl.load`: whatever was saved, by what its file says that it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from privrl.core import files
from privrl.core.errors import InputError, PrivRLError

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
_NOT_LOADED = {
    "privrl run": "the options of a run: load its folder",
    "privrl sweep": "the plan of a sweep, whose runs are in results.parquet",
    "privrl noise key": "the key of a run that is not finished: resume it",
    "privrl state": "a checkpoint of a run that is not finished: resume it",
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
    if not str(path):
        raise InputError("must be a file or a folder, not empty.", field="path")
    place = Path(path)
    if place.is_dir():
        place = _result_in(place)
    if _begins(place, _SQLITE):
        from privrl.privacy.ledger import Ledger

        return Ledger.open(place)
    data = files.load_json(place)
    kind = files.kind_of(data)
    if kind == "privrl claim":
        from privrl.privacy.certificate import Claim

        with _about(place):
            return Claim.from_dict(data)
    if isinstance(data, dict) and str(data.get("format")).endswith("-policy"):
        from privrl.data import load_policy

        return load_policy(place)
    if isinstance(data, dict) and str(data.get("format")).endswith(" reward model"):
        raise InputError(
            f"{str(place)!r} is a reward model: RewardModel.load(path, features) reads it, and the "
            "run's folder has what was learned with it."
        )
    if kind in _NOT_LOADED:
        raise InputError(f"{str(place)!r} is {_NOT_LOADED[kind]}.")
    if kind not in _READERS:
        raise InputError(f"{str(place)!r} is nothing that privrl saved.")
    module, owner, method = _READERS[kind]
    read: Callable[[Path], Any] = getattr(getattr(import_module(module), owner), method)
    with _about(place):
        return read(place)


def _result_in(folder: Path) -> Path:
    """The file with the result of the run in a folder."""
    for name in _RESULTS:
        if (folder / name).exists():
            return folder / name
    if (folder / "plan.json").exists():
        raise InputError(f"{str(folder)!r} holds a sweep: its runs are in results.parquet.")
    if (folder / "run.json").exists() or (folder / "noise.key").exists():
        raise InputError(f"{str(folder)!r} holds a run that is not finished: resume it first.")
    raise InputError(f"{str(folder)!r} holds no {' and no '.join(_RESULTS)}.")


@contextmanager
def _about(place: Path) -> Iterator[None]:
    """Errors name the file."""
    try:
        yield
    except PrivRLError as error:
        if str(place) in str(error):
            raise
        raise type(error)(f"{str(place)!r}: {error}") from None


def _begins(place: Path, mark: bytes) -> bool:
    try:
        files.check_regular(place)
        with place.open("rb") as file:
            return file.read(len(mark)) == mark
    except (OSError, ValueError) as error:
        raise InputError(f"{str(place)!r} cannot be read: {files.reason(error)}.") from None
