"""Mutations: faults put into the shipped code, which tests and audits must catch.

A *mutant* is the shipped code with one function exchanged, for as long as a `with` block lasts, in
one of the ways in which private software goes wrong. It names what it exchanges (`module:name`, an
error if there is no such thing any more), what that breaks, the unit tests that must fail, and the
audit targets whose promise it breaks. The catalogue is `privrl.audit.mutants`.

*Caught by an audit* means: a test of the declared trade-off curve, with attack, threshold and
epsilon fixed on runs that are not counted, refutes the promise. The false-alarm rate is
`FALSE_ALARM`, the power 0.95 or more. A Gaussian-shaped estimate alone is a warning and does not
count. The mutant's target is built and audited by the same code as that of the code that ships.
"""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from privrl.audit.auditor import FALSE_ALARM as EVERYDAY
from privrl.audit.auditor import Audit, Target, audit
from privrl.audit.canaries import CanaryAudit, CanaryTarget, audit_with_canaries
from privrl.audit.catalogue import find
from privrl.core.errors import InputError, PrivRLError
from privrl.core.progress import Progress, no_progress

FALSE_ALARM = 1e-3
"""How often code without a fault is called a mutant that was caught."""

Change = Callable[[Any], Any]
"""From what ships to what stands in its place."""


@dataclass(frozen=True)
class Mutant:
    """One fault, and who must notice it."""

    name: str
    breaks: str
    """What goes wrong, in a few words."""

    edits: tuple[tuple[str, Change], ...]
    """What is exchanged, as `module:name` below `privrl`, and by what."""

    tests: tuple[str, ...]
    """Unit tests (pytest's names for them) each of which must fail."""

    targets: tuple[str, ...] = ()
    """Audits whose promise the fault breaks."""

    runs: int | None = None
    """In each world, if fewer than the targets' own show so coarse a fault."""

    @contextmanager
    def apply(self) -> Iterator[None]:
        """The fault at work."""
        with ExitStack() as stack:
            for place, change in self.edits:
                stack.enter_context(patch_attribute(place, change))
            yield


MUTANTS: dict[str, Mutant] = {}
"""By name, in the order of the table."""


def register(mutant: Mutant) -> None:
    """Put a mutant into the catalogue."""
    if mutant.name in MUTANTS:
        raise InputError(f"There is a mutant {mutant.name!r} already.")
    MUTANTS[mutant.name] = mutant


def mutant(
    name: str,
    places: str,
    tests: str,
    targets: str = "",
    runs: int | None = None,
    *,
    makes: bool = False,
    also: Mapping[str, Change] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A function as a mutant; its docstring says what it breaks.

    Args:
        name: the mutant's.
        places: what is exchanged, as `module:name` below `privrl`, separated by spaces.
        tests: the unit tests that must fail, as pytest names them below `tests/`, likewise.
        targets: the audits whose promise the fault breaks, likewise.
        runs: see `Mutant`.
        makes: whether the function makes the faulty one of what ships. Otherwise it is the faulty
            one, and is given what ships before the arguments (`instead`).
        also: further edits.
    """

    def decorate(faulty: Callable[..., Any]) -> Callable[..., Any]:
        edits = dict.fromkeys(places.split(), faulty if makes else instead(faulty))
        found = tuple(f"tests/{test}" for test in tests.split())
        all_edits = (*edits.items(), *(also or {}).items())
        register(Mutant(name, faulty.__doc__ or "", all_edits, found, (*targets.split(),), runs))
        return faulty

    return decorate


def instead(faulty: Callable[..., Any]) -> Change:
    """The change to `faulty(shipped, *arguments)`, of a function, a method or a property."""

    def change(shipped: Any) -> Any:
        if isinstance(shipped, property):
            return property(lambda self: faulty(shipped.fget, self))

        def wrapper(*given: Any, **named: Any) -> Any:
            return faulty(shipped, *given, **named)

        return wrapper

    return change


@contextmanager
def patch_attribute(place: str, change: Change) -> Iterator[None]:
    """What stands at `module:name`, below `privrl`, exchanged for what `change` makes of it.

    A function of a module is exchanged in every module of ours that has imported it by name, also
    in one that is first imported meanwhile; a method or a property in its class. `change` makes
    something new, so that it can be told from what ships elsewhere.
    """
    module, _, path = place.partition(":")
    owner: Any = importlib.import_module(f"privrl.{module}")
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part, None)
    if owner is None or name not in vars(owner):
        raise InputError(f"There is no privrl.{place} any more: adapt the mutant that changes it.")
    shipped = vars(owner)[name]
    mutated = change(shipped)
    shared = not outer and callable(shipped)
    setattr(owner, name, mutated)
    if shared:
        _replace_everywhere(shipped, mutated)
    try:
        yield
    finally:
        setattr(owner, name, shipped)
        if shared:
            _replace_everywhere(mutated, shipped)


def _replace_everywhere(old: Any, new: Any) -> None:
    for module in _privrl_modules():
        for name, value in list(vars(module).items()):
            if value is old:
                setattr(module, name, new)


def _privrl_modules() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.startswith("privrl.")]


@contextmanager
def fresh_caches() -> Iterator[None]:
    """No calibration or compiled program of the code that ships serves a mutant, nor the reverse.

    Every cache (`functools.lru_cache`) of a function of ours is emptied, and what JAX compiled.
    """
    _clear_caches()
    try:
        yield
    finally:
        _clear_caches()


def _clear_caches() -> None:
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    for module in _privrl_modules():
        for value in list(vars(module).values()):
            empty = getattr(value, "cache_clear", None)
            if callable(empty):
                empty()


# --- audits ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What the audit of one mutant of one target found."""

    mutant: str
    found: Audit | CanaryAudit

    @property
    def is_caught(self) -> bool:
        """Whether the mutant's promise was refuted."""
        return self.found.is_refuted

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON."""
        return {"mutant": self.mutant, "caught": self.is_caught, **self.found.to_dict()}


def audit_mutant(
    mutant: Mutant, name: str, *, runs: int | None = None, confidence: float = 0.95
) -> Finding:
    """A target built and audited while the fault is at work."""
    with fresh_caches(), mutant.apply():
        first = mutant.runs if runs is None else runs
        found = audit_target(
            find(name)(), runs=first, confidence=confidence, false_alarm=FALSE_ALARM
        )
        return Finding(mutant.name, found)


def audit_target(
    built: Target | CanaryTarget,
    *,
    runs: int | None = None,
    confidence: float = 0.95,
    false_alarm: float = EVERYDAY,
    progress: Progress = no_progress,
) -> Audit | CanaryAudit:
    """`built` audited in the way that fits it; `runs` is for those that are run many times."""
    if isinstance(built, CanaryTarget):
        return audit_with_canaries(built, confidence=confidence, false_alarm=false_alarm)
    return audit(
        built, runs=runs, confidence=confidence, false_alarm=false_alarm, progress=progress
    )


def try_audit(name: str, **options: Any) -> Audit | CanaryAudit | str:
    """The audit of a target by its name, or, so that others go on, why there can be none.

    Args:
        name: The target, as in `privrl.audit.catalogue`.
        **options: Those of `audit_target`.
    """
    try:
        return audit_target(find(name)(), **options)
    except PrivRLError as error:
        return error.text  # which keeps the options that it names
