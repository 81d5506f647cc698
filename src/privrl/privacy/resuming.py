"""What a run keeps in its folder, so that going on with it, or with a copy of it, costs nothing.

    with begin_run(folder):                   # before anybody pays
        kept = NoiseKey.begin(folder, about, live=False, runs_on={"env": env})
    with resume_run(folder) as kept:          # to go on
        kept.check({"env": env})

`noise.key` (mode 0600, on disk before anybody pays, removed at the end) holds a secret of 256 bits,
a public token by which a ledger knows the run, what the run was told, and keyed digests (HMAC with
the secret, since a plain one of private data would itself tell about it) of what the run is on. A
run is on one of two things:

**Data, or a simulator of the caller's.** All that is random in the run (noise, simulator, sampling)
comes from the secret and from where the run stands. *Claim*: whatever is made of any number of
copies of the folder, resumed in any order and any number of times, costs what was paid for once.
*Proof*: with x the data or the simulator and the settings, every continuation computes the same
function F(secret, x) of the same x, or is refused by the digest. So all of them together release
(F, ..., F), which is post-processing of F, and one F is what was paid for. A process that dies
after the payment has lost nothing: the secret was there before, and F is computed again. That F is
the same to the last bit takes the same versions on the same kind of machine, so these are part of
the digest; what is beyond that is "idealised real arithmetic", which certificates list.

**Live environments.** People who play again do something else. The same noise over two different
sums would give away their difference, so a continuation draws its noise afresh, from a key of the
operating system; and two continuations would be two releases about the people who play in both. So
only one is let. The first process is generation 0. To go on, a process claims the next generation
from a folder of the last one, and writes it there; before it gives anything away, it marks the run
as ended in its own generation. Both are transactions of the ledger. *Claim*: of a run and all
copies of its folder one result is given away, and it is distributed as if the run had never been
interrupted, by people who did what they did in the episodes that count. *Proof*: `Ledger.claim`
lets one process have each generation, and none once the run has ended; `Ledger.end` lets only the
last generation end it. So of all generations one, G, passes the end, and nothing is given away but
what its process came to. That process saves its last state before it asks for the end; whoever has
this state and G on disk can end the run once more, and neither plays nor draws, so it gives the
same, which is post-processing. What is given away are the noised sums of G's checkpoint and its
own: each person is in one of them, each has noise of a key that covers nothing else that is given
away, and each was computed from those before it. That is one run in the sense of the learner's
theorem. Sums of processes that died or were refused are given to nobody; the actions that were
drawn by them were seen by the person alone who acted (which the learners' certificates list). What
no code can see is why a run was interrupted, and whether there is a ledger at all: certificates
list both. A process that is killed between its claim and writing it down is known by the claim's
random mark, which it had written before: its folder may claim once more. That is a generation of
its own, so the proof holds as it stands; of copies of that folder the first that claims is let,
since it puts a mark of its own behind the one that the others have.

Two at once in the same folder are refused by a lock (`files.lock_folder`), which `begin_run` and
`resume_run` hold for the whole run.
"""

import dataclasses
import functools
import hashlib
import hmac
import inspect
import json
import os
import platform
import re
import secrets
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.privacy.certificate import Assumption

if TYPE_CHECKING:
    from privrl.privacy.ledger import Ledger
    from privrl.privacy.noise import Source

KEY_FILE = "noise.key"
_KIND = "privrl noise key"
_FORMAT = 1

SECRET_FOLDER = Assumption(
    "nobody but its owner could read the run's folder, or copies of it: it held the key of the "
    "noise",
    "mode 0600, and removed at the end; copies, backups and snapshots are the caller's",
)
RESUMED_ONCE = Assumption(
    "the run was resumed once at most from each state of it, and no copy of its folder was",
    "not enforced: without a ledger nobody counts",
)
INTERRUPTED = Assumption(
    "the run was not interrupted because of what people did in it",
    "not enforced: it is the caller's",
)


@dataclass(frozen=True)
class NoiseKey:
    """One run's `noise.key`; see the module."""

    folder: Path
    secret: bytes
    token: str
    """By which a ledger knows the run; public."""

    live: bool
    """Whether people would play again."""

    about: Mapping[str, Any]
    """What the run was told, in JSON's own types."""

    digests: Mapping[str, str]
    generation: int = 0
    """How often a run on live environments was gone on with."""

    marks: tuple[str, ...] = ()
    """Of claims of a later generation that this folder's process may have made before it died."""

    begun_here: bool = True
    """Whether this process began the run, and did not go on with it."""

    # --- in and out -------------------------------------------------------------------------------

    @classmethod
    def begin(
        cls,
        folder: str | Path,
        about: Mapping[str, Any],
        *,
        live: bool,
        runs_on: Mapping[str, Any],
    ) -> "NoiseKey":
        """A fresh key, on disk when this returns; `runs_on` are the things it is on, by name."""
        secret = secrets.token_bytes(32)
        kept = cls(Path(folder), secret, secrets.token_hex(16), live, dict(about), {})
        listed = {"machine": machine_fingerprint(), "about": kept._settings_json(), **runs_on}
        kept = replace(kept, digests={k: kept._digest(v) for k, v in listed.items()})
        kept._write()
        return kept

    @classmethod
    def read(cls, folder: str | Path) -> "NoiseKey":
        """The key of a run that was interrupted."""
        path = Path(folder) / KEY_FILE
        data = files.read_json(path, _KIND, _FORMAT, "the key of a run")
        if data["kind"] != _KIND:
            raise InputError(
                f"{str(folder)!r} holds a run of the time when privrl was called tacit: go on with "
                "the version that the run was begun with."
            )
        try:
            return cls(
                Path(folder),
                bytes.fromhex(data["secret"]),
                str(data["token"]),
                bool(data["live"]),
                dict(data["about"]),
                {str(k): str(v) for k, v in data["digests"].items()},
                int(data["generation"]),
                tuple(map(str, data.get("marks", ()))),
                begun_here=False,
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(f"{str(path)!r} is damaged.") from None

    def _write(self) -> None:
        data = {
            "kind": _KIND,
            "format": _FORMAT,
            "secret": self.secret.hex(),
            "token": self.token,
            "live": self.live,
            "about": dict(self.about),
            "digests": dict(self.digests),
            "generation": self.generation,
            "marks": list(self.marks),
        }
        files.write(self.folder / KEY_FILE, json.dumps(data).encode(), secret=True)

    def remove(self) -> None:
        """Forget the key: the run has ended, or nothing was paid."""
        forget(self.folder)

    # --- what it runs on --------------------------------------------------------------------------

    def check(self, runs_on: Mapping[str, Any]) -> None:
        """Refuse what is not what the run was begun on.

        Where people play again the noise is fresh, so that only the settings are to be the same.
        """
        listed = {"machine": machine_fingerprint(), "about": self._settings_json(), **runs_on}
        if self.about["seed"] is not None:
            del listed["machine"]  # What a seed gives away is no secret, on whatever machine.
        if self.live:
            listed = {name: listed[name] for name in ("about", "agent") if name in listed}
        for name, value in listed.items():
            if not hmac.compare_digest(self.digests.get(name, ""), self._digest(value)):
                raise InputError(_MISMATCH_MESSAGES[name if name in _MISMATCH_MESSAGES else ""])

    def _settings_json(self) -> str:
        """What the run was told, as text: its seed decides the noise, too."""
        return json.dumps(dict(self.about), sort_keys=True)

    def _digest(self, value: object) -> str:
        return keyed_digest(self._derive_key(b"digest"), value)

    def _derive_key(self, purpose: bytes) -> bytes:
        return hmac.digest(self.secret, purpose, "sha256")

    # --- noise ------------------------------------------------------------------------------------

    def source(self, name: str = "") -> "Source":
        """Where the run's noise comes from: the key's, or among people a fresh one.

        A run of several releases has a source for each, by its name; they are independent.
        """
        from privrl.privacy.noise import secure, source_from_key

        own = f"noise {name}" if name else "noise"
        return secure() if self.live else source_from_key(self._derive_key(own.encode()))

    # --- generations ------------------------------------------------------------------------------

    def claim_next_generation(self, ledger: "Ledger | None") -> "NoiseKey":
        """Before anybody plays again: claim the next generation, if it takes one."""
        if not self.live:
            return self
        generation = self.generation + 1
        if ledger is not None:
            # The mark is on disk before the claim: whoever dies after it is known by it.
            ledger.check_claim(self._run, self.token, self.generation, self.marks)
            mark = secrets.token_hex(8)
            replace(self, marks=(*self.marks, mark))._write()
            generation = ledger.claim(self._run, self.token, self.generation, mark, self.marks)
        after = replace(self, generation=generation, marks=())
        after._write()
        return after

    def check_not_superseded(self, ledger: "Ledger | None") -> None:
        """Refuse to go on playing if a copy has taken over."""
        if self.live and ledger is not None:
            last, ended = ledger.generation(self.token)
            if ended or last != self.generation:
                raise InputError(
                    f"A copy of the run {self._run!r} goes on elsewhere, by its ledger: this one "
                    "ends here."
                )

    def end(self, ledger: "Ledger | None") -> None:
        """Before anything is given away: mark the run as ended, if no copy has taken over."""
        if self.live and ledger is not None:
            ledger.end(self._run, self.token, self.generation)

    @property
    def _run(self) -> str:
        return str(self.about["run"])

    def assumptions(self, ledger: "Ledger | None") -> tuple[Assumption, ...]:
        """What a certificate of this run rests on, beyond what the learner knows."""
        if self.about["seed"] is not None:
            return ()  # Such noise protects nobody, with or without a folder.
        if not self.live:
            return (SECRET_FOLDER,)
        once = () if ledger is not None else (RESUMED_ONCE,)
        return (SECRET_FOLDER, *once, *((INTERRUPTED,) if self.generation else ()))


def forget(folder: str | Path) -> None:
    """Remove a run's key."""
    try:
        (Path(folder) / KEY_FILE).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(
            f"The key of the noise in {str(folder)!r} could not be removed: {error.strerror}. With "
            "it the noise can be taken off the result: remove it."
        ) from None


@contextmanager
def begin_run(folder: str | Path | None, checkpoint: str = KEY_FILE) -> Iterator[None]:
    """Have a folder for a run that begins, made before anybody pays; None for no folder.

    `checkpoint` is the name of another file that a run which was interrupted has in it.
    """
    if folder is None:
        yield
        return
    with files.create_folder(folder), files.lock_folder(folder):
        if any((Path(folder) / name).exists() for name in (KEY_FILE, checkpoint)):
            raise InputError(f"{str(folder)!r} holds an interrupted run: resume it first.")
        yield


@contextmanager
def resume_run(folder: str | Path) -> Iterator[NoiseKey]:
    """Have the folder of a run that was interrupted, and its key."""
    if not (Path(folder) / KEY_FILE).exists():
        raise InputError(f"There is no run to resume in {str(folder)!r}.")
    with files.lock_folder(folder):
        yield NoiseKey.read(folder)


_MISMATCH_MESSAGES = {
    "machine": "This run was begun with other versions, or on another kind of machine, where the "
    "same noise would cover other numbers: go on where it was begun.",
    "data": "This is not the data that the run was begun with, and the same noise over both would "
    "give away the difference: say the same data, or begin another run.",
    "about": "The key of this run is not as it was written, and says other settings than those "
    "that the run was begun with: put it back as it was.",
    "agent": "These are not the settings that the run was begun with: say the same.",
    "policy": "This is not the policy that the run was begun with: give the same.",
    "sums": "The sums are not those that the run was begun with, so something computes otherwise "
    "that the policy or the features call, and the same noise over both would give away the "
    "difference: have it as it was, or begin another run.",
    "": "This is not the environment or behaviour that the run was begun with, and the same noise "
    "over both would give away the difference: say the same, or begin another run.",
}


@functools.lru_cache(1)
def machine_fingerprint() -> tuple[str, ...]:
    """What decides the last bits of floating-point numbers, as far as one can tell."""
    # Of ourselves, the version of the code that runs, rather than of what was installed once.
    own = sys.modules[__name__.partition(".")[0]]
    versions = [f"privrl {own.__version__}"]
    # That of randomgen too, which makes the noise of a key.
    for package in ("numpy", "scipy", "jax", "jaxlib", "randomgen"):
        try:
            versions.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            versions.append(package)
    flags = os.environ.get("XLA_FLAGS", "")
    return (*versions, sys.version, platform.machine(), _processor(), flags)


# What tells generations apart, on x86, ARM, POWER, RISC-V and s390: virtual machines hide the name.
_PROCESSOR = frozenset(
    {
        *("vendor_id", "model name", "cpu family", "model"),
        *("cpu implementer", "cpu variant", "cpu part", "cpu", "isa", "uarch", "machine"),
    }
)
# Of the instructions those that compute: a new kernel lists more of the others on the same machine.
_ARITHMETIC = re.compile(r"avx|fma|f16c|s?sse|amx|neon|asimd|sve|sme|bf16|i8mm|fp|vx|vector", re.I)


def _processor(told_by: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's name, and a digest of what it is and which instructions it computes with."""
    name, told = platform.processor(), set()
    with suppress(OSError, ValueError):
        # Of all cores, in any order: there may be several kinds.
        for line in sorted(set(told_by.read_text(encoding="utf-8").splitlines())):
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "model name":
                name = value
            if key.lower() in _PROCESSOR:
                told.add(f"{key}: {value}")
            elif key.lower() in ("flags", "features"):
                told |= {flag for flag in value.split() if _ARITHMETIC.match(flag)}
    digest = hashlib.sha256("\n".join(sorted(told)).encode()).hexdigest()
    return f"{name} {digest[:16]}"


# --- digests of things ----------------------------------------------------------------------------


def keyed_digest(key: bytes, value: object) -> str:
    """HMAC-SHA256 of a value: settings, arrays, dataclasses and what they are made of.

    Of a class that is not this package's, the code of its methods counts too, with their defaults
    and whatever else the class holds, so that a simulator that was changed is another one; what its
    methods call elsewhere is not followed. Of an object all attributes count, but for cached
    properties, which follow from the others; and of one of another library what it pickles.
    """
    mac = hmac.new(key, digestmod=hashlib.sha256)
    _update_digest(mac.update, value, ())
    return mac.hexdigest()


def _update_digest(put: Callable[[Any], None], value: Any, inside: tuple[int, ...]) -> None:
    """Each kind by its name and its length, so that no two values look the same."""

    def put_tagged(kind: str, content: bytes = b"") -> None:
        put(f"{kind}:{len(content)}:".encode())
        put(content)

    def put_all(kind: str, values: Any) -> None:
        listed = list(values)
        put_tagged(kind, str(len(listed)).encode())
        for one in listed:
            _update_digest(put, one, (*inside, id(value)))

    if id(value) in inside:
        put_tagged("again")
    elif value is None or isinstance(value, bool | int | float | complex | str):
        put_tagged(type(value).__name__, repr(value).encode("utf-8", "surrogatepass"))
    elif isinstance(value, bytes):
        put_tagged("bytes", value)
    elif isinstance(value, Enum):
        put_all("enum", [type(value).__qualname__, value.name])
    elif isinstance(value, type):
        put_all("class", [value.__module__, value.__qualname__, *_class_code(value)])
    elif isinstance(value, Mapping):
        put_all("mapping", sorted(value.items(), key=lambda one: repr(one[0])))
    elif isinstance(value, set | frozenset):
        put_all("set", sorted(map(repr, value)))
    elif isinstance(value, types.CodeType):
        consts = [one for one in value.co_consts if not isinstance(one, types.EllipsisType)]
        put_all("code", [value.co_code, value.co_names, value.co_varnames, *consts])
    elif hasattr(value, "dtype") and hasattr(value, "shape") and hasattr(value, "__array__"):
        _update_digest_array(put, value, (*inside, id(value)), put_tagged)
    elif isinstance(value, list | tuple):
        put_all("list", value)
    elif isinstance(value, functools.partial):
        put_all("partial", [value.func, value.args, value.keywords])
    elif isinstance(value, types.FunctionType):
        parts = [value.__module__, value.__qualname__, value.__code__]
        put_all("function", [*parts, *_captured_values(value)])
    elif hasattr(value, "__wrapped__"):
        put_all("wrapped", [value.__wrapped__])
    elif isinstance(value, types.ModuleType):
        put_tagged("module", value.__name__.encode())
    else:
        named = getattr(value, "__name__", None)
        put_all("object", [type(value), named, *_attributes(value), *_pickle_parts(value)])


def _attributes(value: Any) -> list[Any]:
    """All that an object has, by name, but for what it caches."""
    own = dict(getattr(value, "__dict__", {}))
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                own[name] = getattr(value, name)
    if dataclasses.is_dataclass(value):
        own |= {one.name: getattr(value, one.name) for one in dataclasses.fields(value)}
    kind = type(value)
    cached = functools.cached_property
    return [
        (name, one)
        for name, one in sorted(own.items(), key=lambda named: named[0])
        if not isinstance(inspect.getattr_static(kind, name, None), cached)
    ]


def _pickle_parts(value: Any) -> list[Any]:
    """What an object of a class that pickles in its own way is made of: containers, tables."""
    kind: Any = type(value)
    if kind.__reduce_ex__ is object.__reduce_ex__ and kind.__reduce__ is object.__reduce__:
        return []
    try:
        parts: Any = value.__reduce_ex__(4)
        if isinstance(parts, str):
            return [parts]
        return [*parts[:3], *(list(items) for items in parts[3:5] if items is not None)]
    except Exception:  # a library's own, which may be anything: there is nothing to be had
        return []


def _captured_values(function: types.FunctionType) -> list[Any]:
    """What a function has with it: defaults, and what it closes over."""
    found: list[Any] = [function.__defaults__, function.__kwdefaults__]
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # nothing in it yet
            found.append(cell.cell_contents)
    return found


def _class_code(kind: type) -> list[Any]:
    """What is in a class of the caller's, with what it inherits from such."""
    ours = __name__.partition(".")[0]
    found: list[Any] = []
    for one in kind.__mro__:
        if one.__module__.partition(".")[0] in (ours, *sys.stdlib_module_names, "jax", "numpy"):
            continue
        for name, member in sorted(vars(one).items()):
            inner = getattr(member, "fget", None) or getattr(member, "__func__", member)
            inner = getattr(inner, "func", inner)  # cached properties
            if isinstance(inner, types.FunctionType):
                found += [name, inner.__code__, *_captured_values(inner)]
            elif not (name.startswith("__") or inspect.isdatadescriptor(member)):
                found += [name, inner]
    return found


def _update_digest_array(
    put: Callable[[Any], None], value: Any, inside: tuple[int, ...], say: Callable[..., None]
) -> None:
    import numpy as np

    if str(value.dtype).startswith("key<"):
        import jax

        value = jax.random.key_data(value)
    array = np.asarray(value)
    say("array", f"{array.dtype.str} {array.shape}".encode())
    if array.dtype.hasobject:
        listed = array.ravel().tolist()
        if all(type(one) is str for one in listed):
            # Ids, of which there are many.
            words = [one.encode("utf-8", "surrogatepass") for one in listed]
            say("lengths", " ".join(map(str, map(len, words))).encode())
            say("words", b"".join(words))
            return
        for one in listed:
            _update_digest(put, one, inside)
    else:
        put(np.ascontiguousarray(array).tobytes())
