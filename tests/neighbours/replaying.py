"""By how much one person moves each exact sum, when both tables see the same released values.

A run draws its noise from a `Source`, and adds it to an exact sum. Here such noise is an array that
notices what it is added to: the run on the usual table is recorded (sums, standard deviations, what
was released), and in the run on a neighbour each release gives the *recorded* values, whatever its
own sum is. So all iterates are the same in both, and the difference of the k-th sums is what the
person changes there, given everything released before: the sensitivity that the theorem of adaptive
composition is about. In units of the noise it may be at most mu = sensitivity / std of the event
that was charged; where batches are disjoint, one release may differ and no other.

Learners that draw inside compiled loops are looked at from outside: what one step would add up, for
both tables, at the parameters of the run on the usual one.

Noise as wide as a smooth bound S(X) has no standard deviation that both share. There the exact
value may move by the smaller of both bounds, and their logarithms may be beta apart.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np
from numpy.typing import NDArray

from privrl.control import noised_q
from privrl.evaluation import gpope
from privrl.privacy.accounting import sensitivity
from privrl.privacy.events import (
    DiscreteGaussian,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    Repeated,
)
from privrl.privacy.mechanisms import clip
from privrl.privacy.mechanisms.smooth import SmoothMechanism
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation
from tests.neighbours.running import Command, Outcome, Stance, run
from tests.neighbours.tables import CHOSEN, Replacement, Row, people

Floats = NDArray[Any]

# Of everybody else's sums in another order of additions, in units of the noise.
_ROUNDING = 1e-9


@dataclass
class Release:
    """One noised sum."""

    exact: Floats
    std: Any
    released: Floats


@dataclass
class Tape:
    """What was released, in turn; with `given`, what is released instead."""

    given: list[Release] | None = None
    held: list[Release] = field(default_factory=list)

    def released(self, exact: Any, noise: Floats, std: Any) -> Floats:
        found = np.asarray(exact) + noise
        if self.given is not None and len(self.held) < len(self.given):
            before = self.given[len(self.held)].released
            found = before.copy() if before.shape == found.shape else found
        self.held.append(Release(np.array(exact), std, found.copy()))
        return found


class Noise(np.ndarray[Any, Any]):
    """Noise that notices what it is added to. It may be scaled before; nothing else is known."""

    tape: Tape
    std: Any

    @classmethod
    def of(cls, drawn: Any, std: Any, tape: Tape) -> "Noise":
        found = np.asarray(drawn).view(cls)
        found.tape, found.std = tape, std
        return found

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(one) if isinstance(one, Noise) else one for one in inputs]
        if method != "__call__" or options or len(inputs) != 2:
            raise AssertionError(f"The harness cannot follow noise through {ufunc} {method}.")
        place = 0 if isinstance(inputs[0], Noise) else 1
        other = plain[1 - place]
        if ufunc is np.add:
            return self.tape.released(other, plain[place], self.std)
        if ufunc is np.multiply:
            return Noise.of(ufunc(*plain), np.abs(self.std * np.asarray(other)), self.tape)
        raise AssertionError(f"The harness cannot follow noise through {ufunc}.")


@contextmanager
def noticed(tape: Tape) -> Iterator[None]:
    """All noise of sources is `Noise`."""
    normal, discrete = Source.normal, Source.discrete_gaussian

    def gaussian(self: Source, std: float, shape: tuple[int, ...]) -> Any:
        return Noise.of(normal(self, std, shape), std, tape)

    def whole(self: Source, std: int, shape: tuple[int, ...]) -> Any:
        return Noise.of(discrete(self, std, shape), std, tape)

    with mock.patch.multiple(Source, normal=gaussian, discrete_gaussian=whole):
        yield


# --- what was charged ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Charge:
    """What an event grants: so many releases, each moved by at most `mu` of its noise."""

    mu: float
    times: int | None
    """None: as many as there were, of which a person is in one."""


def charge(event: Event) -> Charge:
    """Of a noised sum, however often and on whatever sample."""
    if isinstance(event, Gaussian | DiscreteGaussian):
        return Charge(sensitivity(event.bound, Relation.REPLACE_ONE) / event.std, 1)
    if isinstance(event, Repeated):
        one = charge(event.event)
        return Charge(one.mu, None if one.times is None else one.times * event.times)
    if isinstance(event, PoissonSampled | FixedSizeSampled):
        return charge(event.event)
    # Disjoint batches, and others in which a person is once: some fields hold the event of a batch.
    inside = event.events if isinstance(event, Disjoint) else (getattr(event, "event", None),)
    known = [charge(one).mu for one in inside if isinstance(one, Event)]
    if len(known) != len(inside):
        raise AssertionError(f"The harness does not know what {event} charges for.")
    return Charge(max(known), None)


def draws(event: Event) -> bool:
    """Whether who takes part is drawn, in secret."""
    if isinstance(event, Repeated):
        return draws(event.event)
    return not isinstance(event, Gaussian | DiscreteGaussian | Disjoint)


def events(outcome: Outcome) -> list[Event]:
    """Those of the certificate that the run wrote, or returned."""
    files = {Path(name).name: content for name, (_, content) in outcome.files.items()}
    if "certificate.json" in files:
        found = json.loads(files["certificate.json"])
    else:
        told = json.loads(outcome.out)
        found = told["certificate"] if "certificate" in told else told["promise"]
    return [Event.from_dict(one) for one in found["events"]]


# --- both runs -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moved:
    """How far a person moved the releases of a run, in units of what was charged for."""

    most: float
    """At most 1."""

    differing: int
    """How many releases differ at all, of those in which a person is once."""

    releases: int
    problem: str = ""


Replays = Iterator[tuple[Replacement, Moved]]


def replays(
    command: Command,
    replacements: list[Replacement],
    stance: Stance,
    folder: Path,
    usual: Replacement | None = None,
) -> Replays:
    """Both runs, for each neighbour that is not refused; `usual` is who is there to begin with."""
    how = {
        "source": _by_source,
        "updates": _by_updates,
        "draws": _by_draws,
        "smooth": _by_smooth,
    }[command.noise]
    everybody = people()
    rows = [row for one in everybody for row in one]
    first = rows if usual is None else usual.table(everybody)
    yield from how(command, first, replacements, stance, folder)


def _by_source(
    command: Command,
    rows: list[Row],
    replacements: list[Replacement],
    stance: Stance,
    folder: Path,
) -> Replays:
    everybody, usual = people(), Tape()
    with noticed(usual):
        first = run(command, rows, folder, stance)
    assert first is not None
    if first.refused and stance == "neutral":
        return
    assert first.code == 0, f"{command.name}: {first.code} {first.err}"
    charged = events(first)
    charges, secret = [charge(event) for event in charged], any(map(draws, charged))
    for replacement in replacements:
        if replacement.moves and secret:
            # Who is drawn goes by places: another draw, as likely, which one seed does not show.
            continue
        other = Tape(usual.held)
        with noticed(other):
            second = run(command, replacement.table(everybody), folder, stance)
        if second is not None and second.code == 0:
            yield replacement, _moved(usual.held, other.held, charges)


def _moved(usual: list[Release], other: list[Release], charges: list[Charge]) -> Moved:
    if len(usual) != len(other):
        return Moved(np.inf, 0, len(usual), f"{len(usual)} releases, and {len(other)}")
    known = sum(one.times or 0 for one in charges)
    limits: list[tuple[float, bool]] = []
    for paid in charges:
        times = len(usual) - known if paid.times is None else paid.times
        limits += [(paid.mu, paid.times is None)] * times
    if len(limits) != len(usual):
        return Moved(np.inf, 0, len(usual), f"{len(limits)} of them were paid for")
    most, differing = 0.0, 0
    for (mu, once), one, two in zip(limits, usual, other, strict=True):
        if one.exact.shape != two.exact.shape or not np.array_equal(one.std, two.std):
            return Moved(np.inf, 0, len(usual), "other shapes, or other noise")
        distance = float(np.linalg.norm((two.exact - one.exact) / one.std))
        if not np.all(np.isfinite(two.exact)):
            return Moved(np.inf, 0, len(usual), "a sum that is not finite")
        most = max(most, distance / mu)
        differing += once and distance > _ROUNDING
    return Moved(most, differing, len(usual))


def wrong(moved: Moved) -> str:
    """What is wrong with it, if anything."""
    if moved.problem:
        return moved.problem
    if moved.most > 1.0 + _ROUNDING:
        return f"a sum moved by {moved.most:.3g} times what was charged for"
    if moved.differing > 1:
        return f"{moved.differing} of {moved.releases} disjoint batches differ"
    return ""


# --- noise that depends on the data --------------------------------------------------------------


@dataclass(frozen=True)
class Perturbed:
    """One release of a function with a smooth bound."""

    mechanism: SmoothMechanism
    exact: Floats
    bound: float


def _by_smooth(
    command: Command,
    rows: list[Row],
    replacements: list[Replacement],
    stance: Stance,
    folder: Path,
) -> Replays:
    """For `DPLSW` and `DPLSL`: nothing that they add up depends on what was released before."""
    everybody = people()
    outcome, usual = _perturbed(command, rows, folder, stance)
    assert outcome is not None
    if outcome.refused and stance == "neutral":
        return
    assert outcome.code == 0, f"{command.name}: {outcome.code} {outcome.err}"
    assert usual, f"{command.name} released nothing of a smooth bound."
    for replacement in replacements:
        second, other = _perturbed(command, replacement.table(everybody), folder, stance)
        if second is not None and second.code == 0:
            yield replacement, _moved_smoothly(usual, other)


def _perturbed(
    command: Command, rows: list[Row], folder: Path, stance: Stance
) -> tuple[Outcome | None, list[Perturbed]]:
    held: list[Perturbed] = []
    release = SmoothMechanism.release

    def kept(self: SmoothMechanism, value: Any, bound: Any, source: Source) -> Any:
        held.append(Perturbed(self, np.array(value), float(bound)))
        return release(self, value, bound, source)

    with mock.patch.object(SmoothMechanism, "release", kept):
        return run(command, rows, folder, stance), held


def _moved_smoothly(usual: list[Perturbed], other: list[Perturbed]) -> Moved:
    if [one.mechanism for one in usual] != [one.mechanism for one in other]:
        return Moved(np.inf, 0, len(usual), "other releases")
    most = 0.0
    for one, two in zip(usual, other, strict=True):
        bounds = np.array([one.bound, two.bound])
        if not (np.all(np.isfinite([one.exact, two.exact])) and np.all(np.isfinite(bounds))):
            return Moved(np.inf, 0, len(usual), "a value or bound that is not finite")
        if not np.all(bounds > 0.0):
            return Moved(np.inf, 0, len(usual), "a bound of nothing")
        distance = float(np.linalg.norm(two.exact - one.exact)) / float(bounds.min())
        apart = abs(float(np.diff(np.log(bounds))[0])) / one.mechanism.beta
        most = max(most, distance, apart)
    return Moved(most, 0, len(usual))


# --- compiled loops ------------------------------------------------------------------------------


def _by_updates(
    command: Command,
    rows: list[Row],
    replacements: list[Replacement],
    stance: Stance,
    folder: Path,
) -> Replays:
    """For `LoggedQ`, whose updates are compiled: sums at the usual run's parameters."""
    everybody = people()
    plan, data, sigma, key = _begun(command, rows, folder, stance)
    with jax.enable_x64(True):
        states = [noised_q.begin(plan, data, key)]
        for _ in range(plan.updates - 1):
            states.append(noised_q.advance(plan, data, states[-1], sigma, 1))
        sums = [_exact(plan, data, state) for state in states]
        for replacement in replacements:
            try:
                found = _begun(command, replacement.table(everybody), folder, stance)
            except LookupError:
                continue
            if found[0] != plan or found[2] != sigma:
                yield replacement, Moved(np.inf, 0, len(sums), "another plan, or other noise")
                continue
            moved = [
                np.linalg.norm(_exact(plan, found[1], state) - usual)
                for state, usual in zip(states, sums, strict=True)
            ]
            most = float(max(moved)) / sensitivity(plan.rule.bound, Relation.REPLACE_ONE)
            yield replacement, Moved(most, 0, len(sums))


def _exact(plan: Any, rows: Any, state: Any) -> Floats:
    return np.asarray(plan.rule.exact_update(rows, state.parameters, state.target, state.done))


def _begun(command: Command, rows: Any, folder: Path, stance: Stance) -> tuple[Any, Any, Any, Any]:
    """Plan, packed rows, noise and key with which a run of the learner begins."""
    held: dict[str, Any] = {}
    begin, advance = noised_q.begin, noised_q.advance

    def begins(plan: Any, data: Any, key: Any) -> Any:
        held.update(plan=plan, data=data, key=key)
        return begin(plan, data, key)

    def advances(plan: Any, data: Any, state: Any, sigma: Any, updates: Any) -> Any:
        held["sigma"] = sigma
        return advance(plan, data, state, sigma, updates)

    advances.trace = advance.trace  # type: ignore[attr-defined] # a run is compiled before it pays
    with mock.patch.multiple(noised_q, begin=begins, advance=advances):
        outcome = run(command, rows, folder, stance)
    if outcome is None or outcome.code != 0:
        raise LookupError
    return held["plan"], held["data"], held["sigma"], held["key"]


def _by_draws(
    command: Command,
    rows: list[Row],
    replacements: list[Replacement],
    stance: Stance,
    folder: Path,
) -> Replays:
    """For `GPOPE`: one unit is drawn, and only that of the chosen one may be another."""
    everybody = people()
    states = np.random.default_rng(0).standard_normal((3, 6))
    usual = _gradients(command, rows, folder, stance, states)
    assert usual is not None
    for replacement in replacements:
        found = _gradients(command, replacement.table(everybody), folder, stance, states)
        if found is None or replacement.moves:
            continue
        if found.shape != usual.shape:
            yield replacement, Moved(np.inf, 0, 1, "another number of people")
            continue
        norms = np.linalg.norm(found - usual, axis=-1).max(axis=1)
        others = np.delete(norms, CHOSEN)
        problem = "" if others.max() < _ROUNDING else "somebody else's gradient is another"
        yield replacement, Moved(float(norms[CHOSEN]) / 2.0, 0, len(norms), problem)


def _gradients(
    command: Command, rows: Any, folder: Path, stance: Stance, states: Floats
) -> Floats | None:
    """What each person would add at each state, in units of the bound: (people, states, 2 d)."""
    held: list[Any] = []
    packed = gpope._PackedUnits.of

    def kept(units: Any) -> Any:
        held.append(packed(units))
        return held[-1]

    with mock.patch.object(gpope._PackedUnits, "of", kept):
        outcome = run(command, rows, folder, stance)
    if outcome is None or outcome.code != 0:
        return None
    # A command runs it twice: once to try, on a key of nobody's.
    made = held[-1]
    with jax.enable_x64(True):
        arrays = jax.tree.map(jax.numpy.asarray, made.arrays)
        return np.array(
            [
                [clip.l2(gpope.gradient(arrays, made.widths, unit, at), 1.0) for at in states]
                for unit in range(arrays[2].shape[0])
            ]
        )
