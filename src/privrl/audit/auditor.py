"""The auditor: attacks a mechanism on two neighbouring inputs and bounds its epsilon from below.

    found = audit(target)
    found.epsilon      no smaller epsilon is true, with the stated confidence
    found.verdict      refuted, not refuted, or inconclusive

A `Target` says how to run the mechanism in either of two worlds (two neighbouring inputs) and what
it promises. The runs are split in three: on the first, attacks are fitted (`attacks.py`); on the
second, the best attack and its threshold are chosen; on the third, which nobody has looked at, hits
and false alarms are counted (`bounds.py`). So the bound holds at its confidence however cleverly
the attack was picked.

Three readings of the same runs:

- `epsilon`: the least epsilon at the promise's delta that any mechanism with these counts can have;
- `gaussian`: the least mu, if the privacy loss is Gaussian in shape, and the epsilon that goes with
  it. Tighter, and an assumption;
- `verdict`: whether the counts contradict the promise's *whole* curve, delta(epsilon) for every
  epsilon. This needs no assumption, and far fewer runs than pushing `epsilon` over the certified
  figure; it is decided with a false-alarm rate (`false_alarm`) of one in a million by default,
  whatever `confidence` is. (A bound at 95 % may come out above the certified figure of an honest
  mechanism, one time in 20 if the mechanism is as bad as promised and no worse; it is the verdict
  that counts.)

An audit that refutes nothing is *not refuted* or *inconclusive*, never "holds". It is inconclusive
if it had no power: all guesses right would have shown less than the promised epsilon (`could_show`
is below it), and the curve would not have been seen to be crossed by noise of 0.8 times what was
promised (`would_catch` is below that).

The curve is tested twice, each time with half of the error. Once by Clopper and Pearson's intervals
on both rates, at the threshold that was best for each reading. And once at one threshold and one
epsilon, both fixed on runs that are not counted, by the exact distribution of the difference
hits - e^epsilon false alarms (`bounds.excess_p_value`), which needs about half as many runs.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy import special

from privrl.audit import attacks, bounds
from privrl.audit.attacks import Attack, Failure, Outputs
from privrl.audit.bounds import Counts
from privrl.audit.thresholds import Objective, ThresholdTest, choose_tests, roc_curve
from privrl.core import checks, resources
from privrl.core.errors import InputError
from privrl.core.progress import Progress, no_progress
from privrl.core.types import Array
from privrl.privacy import accounting
from privrl.privacy.certificate import Certificate
from privrl.privacy.events import ApproxDP, Event, Gaussian, PureDP, as_events
from privrl.privacy.noise import Source, secure
from privrl.privacy.promise import Budget, Relation, WordEnum

FALSE_ALARM = 1e-6
"""How often a promise that is kept is called refuted, at most, unless another rate is asked for."""

LESS_NOISE = 0.8
"""An audit is meant to notice noise of this share of what was promised."""

FAR_ABOVE = 1.5
"""A Gaussian-shaped estimate of so many times the promise is worth a warning."""

_CHUNK = 4_000_000  # numbers drawn at a time
_PROFILE_POINTS = 33
_SMOOTHING_RADIUS = 8  # thresholds on either side


class Verdict(WordEnum):
    """What an audit says about a promise."""

    REFUTED = "refuted"
    NOT_REFUTED = "not refuted"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Target:
    """What is attacked: a way to run it in either world, and what it promises."""

    name: str
    draw: Callable[[int, int, Source], Outputs]
    """`draw(world, runs, source)`: what so many independent runs in world 0 or 1 give away, as an
    array with a row for each run, or as a list with an array or bytes for each."""

    events: tuple[Event, ...]
    """What one run does, for `accounting`: the promise."""

    relation: Relation
    """In what sense the two worlds are neighbours."""

    delta: float = 1e-5
    """Where epsilon is stated; 0 for a pure promise."""

    runs: int = 400_000
    """How many runs in each world give an audit some power."""

    log_ratio: Callable[[Array], Array] | None = None
    """The logarithm of the second world's density over the first's, where it is known; it is given
    the numbers of many runs as rows, 0 in place of what is not finite."""

    note: str = ""
    """What a reader of the table should know."""

    def __post_init__(self) -> None:
        parse_promise(self)

    @classmethod
    def from_mechanism(
        cls,
        mechanism: Callable[[Any, Source], Any],
        neighbours: tuple[Any, Any],
        promise: "Certificate | Budget | tuple[Event, ...]",
        *,
        name: str = "mechanism",
        relation: Relation = Relation.REPLACE_ONE,
        delta: float = 1e-5,
        runs: int = 1000,
    ) -> "Target":
        """A mechanism or a whole training function, run once for each call.

        `mechanism(input, source)` returns an array or bytes; an error it raises is an output too.
        A `Budget` promises nothing beyond its own epsilon and delta.
        """

        if len(neighbours) != 2:
            raise InputError(f"Two neighbouring inputs are needed, not {len(neighbours)}.")

        def draw(world: int, count: int, source: Source) -> Outputs:
            return [_run_once(mechanism, neighbours[world], source) for _ in range(count)]

        if isinstance(promise, Certificate):
            events: tuple[Event, ...] = promise.events
            relation, delta = promise.relation, promise.delta
        elif isinstance(promise, Budget):
            delta = promise.delta
            events = (
                PureDP(promise.epsilon, relation=relation)
                if delta == 0.0
                else ApproxDP(promise.epsilon, delta, relation=relation),
            )
        else:
            events = as_events(promise)
        return cls(name, draw, events, relation, delta, runs)


def parse_promise(target: Any) -> None:
    """Check what a target promises and how often it is run, and bring it into its own types."""
    object.__setattr__(target, "events", as_events(target.events))
    object.__setattr__(target, "relation", Relation.parse(target.relation))
    object.__setattr__(target, "delta", checks.probability("delta", target.delta))
    object.__setattr__(target, "runs", checks.count("runs", target.runs))


def _run_once(mechanism: Callable[[Any, Source], Any], given: Any, source: Source) -> object:
    try:
        return mechanism(given, source)
    except Exception as error:  # an error is an output: it may depend on the input
        return Failure(error)


@dataclass(frozen=True)
class GaussianFit:
    """What the counts say if the privacy loss is Gaussian in shape."""

    mu: float
    epsilon: float


@dataclass(frozen=True)
class Audit:
    """What an attack on one target found."""

    target: str
    relation: Relation
    certified: float
    delta: float
    epsilon: float
    confidence: float
    gaussian: GaussianFit
    verdict: Verdict
    false_alarm: float
    """How often a promise that is kept is called refuted, at most."""

    attack: str
    counts: Counts
    runs: int
    """In each world, for fitting, choosing and counting together."""

    could_show: float
    """The largest epsilon that so many runs can show, were every guess right."""

    would_catch: float | None
    """If the privacy loss is Gaussian in shape: noise smaller than promised by this factor (0.9: a
    tenth too small) is exposed in about half of such audits by the best attack. 0 if none is;
    `None` for a pure promise, to which no Gaussian shape corresponds."""

    failures: tuple[float, float]
    """The share of runs that ended in an error, in each world."""

    curve: tuple[tuple[float, float], ...] = field(repr=False)
    """Rates of false alarms and of hits of the winning attack, threshold by threshold."""

    power: float
    """The probability that an audit like this one refutes the promise, if the rates of hits and of
    false alarms at the threshold that was fixed beforehand are those that were seen."""

    note: str = ""

    @property
    def is_refuted(self) -> bool:
        """Whether the promise is refuted."""
        return self.verdict is Verdict.REFUTED

    @property
    def warning(self) -> str | None:
        """What a Gaussian-shaped estimate far above the promise gives cause to say; no verdict."""
        shaped = self.gaussian.epsilon
        if self.delta == 0.0 or shaped <= FAR_ABOVE * self.certified:
            return None
        return f"epsilon is at least {shaped:.3g} if the privacy loss is Gaussian in shape"

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON; an unbounded figure is null."""
        plain = asdict(self)
        counts = plain.pop("counts")
        return {
            **plain,
            "relation": self.relation.value,
            "certified": _finite_or_none(self.certified),
            "epsilon": _finite_or_none(self.epsilon),
            "gaussian": {k: _finite_or_none(bound) for k, bound in plain["gaussian"].items()},
            "verdict": self.verdict.value,
            "warning": self.warning,
            "hits": [counts["hits"], counts["hit_runs"]],
            "false_alarms": [counts["false_alarms"], counts["false_alarm_runs"]],
            "failures": list(self.failures),
            "curve": [list(point) for point in self.curve],
        }


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def audit(
    target: Target,
    *,
    runs: int | None = None,
    confidence: float = 0.95,
    false_alarm: float = FALSE_ALARM,
    source: Source | None = None,
    progress: Progress = no_progress,
) -> Audit:
    """Attack `target` with so many runs in each world."""
    total = target.runs if runs is None else checks.count("runs", runs)
    if total < 40:
        raise InputError(f"An audit needs at least 40 runs in each world, not {total}.")
    confidence = checks.confidence(confidence)
    false_alarm = check_false_alarm(false_alarm)
    rng = secure() if source is None else source
    promise = _Promise(target)
    try:
        arena = _AttackRunner(target, rng, total, progress, together=True)
        return _run_audit(promise, total, confidence, false_alarm, arena)
    except _RunError:
        # Which of the runs failed matters. Nothing seen so far is used: everything begins anew.
        arena = _AttackRunner(target, rng, total, progress, together=False)
        return _run_audit(promise, total, confidence, false_alarm, arena)


def check_false_alarm(rate: float) -> float:
    """A rate of false alarms that can be held to."""
    if not 1e-9 <= checks.number("false_alarm", rate) <= 0.1:
        raise InputError(f"must be from 1e-9 to 0.1, not {rate:g}.", field="false_alarm")
    return float(rate)


def decide_verdict(refuted: bool, could_show: float, certified: float, powerful: bool) -> Verdict:
    """The verdict of an audit that could have shown so much; see the module."""
    if refuted:
        return Verdict.REFUTED
    if could_show < certified and not powerful:
        return Verdict.INCONCLUSIVE
    return Verdict.NOT_REFUTED


def _run_audit(
    promise: "_Promise", total: int, confidence: float, false_alarm: float, arena: "_AttackRunner"
) -> Audit:
    target = arena.target
    fitting, choosing = total // 4, total // 8
    judged = total - fitting - choosing
    candidates = arena.fit_attacks(fitting)
    tried = [arena.scores(candidates, world, choosing) for world in (0, 1)]
    error = false_alarm / 2.0

    def at_high_confidence(worth: Objective) -> Objective:
        """Judged at a confidence far above the bound's own: a threshold that looks good by luck,
        as the extreme ones do, would look worse on fresh runs."""
        return lambda hits, alarms, runs: worth(
            bounds.clopper_pearson_lower(hits, runs, error),
            bounds.clopper_pearson_upper(alarms, runs, error),
        )

    objectives = (
        at_high_confidence(lambda hit, alarm: bounds.epsilon(hit, alarm, target.delta)),
        at_high_confidence(bounds.gaussian_mu),
        at_high_confidence(promise.excess),
        promise.smoothed_z_scores,
    )
    for_epsilon, for_shape, for_curve, for_test = picks = choose_tests(tried, objectives)
    used = sorted({pick.attack for pick in picks})
    place = {attack: i for i, attack in enumerate(used)}
    point = promise.worst_point(for_test.counts(tried, for_test.attack))
    fresh = [arena.scores([candidates[i] for i in used], world, judged) for world in (0, 1)]

    def fresh_counts(pick: ThresholdTest) -> Counts:
        return pick.counts(fresh, place[pick.attack])

    counts, tested = fresh_counts(for_epsilon), fresh_counts(for_test)
    mu = float(bounds.gaussian_mu(*bounds.rate_bounds(fresh_counts(for_shape), confidence)))
    # Half of the error for the test at one point, the other half for intervals at three thresholds.
    each = error / 3.0
    refuted = bounds.excess_p_value(tested, *point) <= error or any(
        promise.is_violated_by(fresh_counts(pick), each)
        for pick in (for_epsilon, for_shape, for_curve)
    )
    could_show = bounds.max_detectable_epsilon(judged, target.delta, confidence)
    would_catch = promise.detectable_noise_factor(judged, error)
    powerful = would_catch is not None and would_catch >= LESS_NOISE
    return Audit(
        target=target.name,
        relation=target.relation,
        certified=promise.epsilon,
        delta=target.delta,
        epsilon=bounds.epsilon_from_counts(counts, target.delta, confidence),
        confidence=confidence,
        gaussian=GaussianFit(mu, _epsilon_of_mu(mu, target.delta)),
        verdict=decide_verdict(refuted, could_show, promise.epsilon, powerful),
        false_alarm=false_alarm,
        attack=candidates[for_epsilon.attack].name,
        counts=counts,
        runs=total,
        could_show=could_show,
        would_catch=would_catch,
        failures=(arena.failed[0] / total, arena.failed[1] / total),
        curve=roc_curve([scores[place[for_epsilon.attack]] for scores in fresh]),
        power=bounds.excess_power(tested, *point, error),
        note=target.note,
    )


# --- the promise ----------------------------------------------------------------------------------


class _Promise:
    """What the target promises: epsilon at delta, and delta at a grid of epsilons."""

    def __init__(self, target: Target) -> None:
        self.epsilon = accounting.epsilon(target.events, target.delta, target.relation)
        if not math.isfinite(self.epsilon):
            raise InputError(
                f"{target.name} promises nothing at delta {target.delta:g}: state a larger delta."
            )
        grid = np.linspace(0.0, 1.25 * self.epsilon, _PROFILE_POINTS)
        self.epsilons = np.append(grid, self.epsilon)
        self.deltas = np.array(
            [accounting.delta(target.events, float(e), target.relation) for e in self.epsilons]
        )
        self.mu = _mu_of_epsilon(self.epsilon, target.delta) if target.delta else None

    def excess(self, hit_rate: Array, false_alarm_rate: Array) -> Array:
        """By how much rates break hit <= e^epsilon false alarm + delta(epsilon), at the worst."""
        allowed = np.multiply.outer(false_alarm_rate, np.exp(self.epsilons)) + self.deltas
        return np.asarray(np.max(np.asarray(hit_rate)[..., None] - allowed, axis=-1))

    def z_scores(self, hits: Array, false_alarms: Array, runs: int) -> Array:
        """By how many standard errors counts break the promise, at each of its epsilons.

        More false alarms than were seen are allowed for, by two standard errors: few may be luck.
        """
        hit, seen = np.asarray(hits)[..., None] / runs, np.asarray(false_alarms)[..., None] + 1.0
        alarm = np.minimum((seen + 2.0 * np.sqrt(seen)) / runs, 1.0)
        ratio = np.exp(self.epsilons)
        spread = hit * (1.0 - hit) + ratio**2 * alarm * (1.0 - alarm) + 1.0 / runs
        return np.asarray((hit - ratio * alarm - self.deltas) / np.sqrt(spread / runs))

    def smoothed_z_scores(self, hits: Array, false_alarms: Array, runs: int) -> Array:
        """The same at the best epsilon, averaged over thresholds next to each other: few runs are
        set aside for choosing, and the best of many noisy numbers is best by luck."""
        found = self.z_scores(hits, false_alarms, runs)
        reach = min(_SMOOTHING_RADIUS, len(found))
        sums = np.cumsum(np.pad(found, ((reach + 1, reach), (0, 0)), mode="edge"), axis=0)
        width = 2 * reach + 1
        return np.asarray(np.max((sums[width:] - sums[:-width]) / width, axis=-1))

    def worst_point(self, counts: Counts) -> tuple[float, float]:
        """e^epsilon and delta(epsilon), at the epsilon at which these counts break it most."""
        # Both worlds have the same number of runs.
        hits, alarms = np.asarray(counts.hits), np.asarray(counts.false_alarms)
        at = int(np.argmax(self.z_scores(hits, alarms, counts.hit_runs)))
        return float(np.exp(self.epsilons[at])), float(self.deltas[at])

    def is_violated_by(self, counts: Counts, error: float) -> bool:
        """Whether fresh counts refute the promise; wrongly with probability `error` at most."""
        hit, false_alarm = bounds.rate_bounds(counts, 1.0 - error)
        return bool(self.excess(np.asarray(hit), np.asarray(false_alarm)) > 0.0)

    def detectable_noise_factor(self, runs: int, error: float) -> float | None:
        """The largest factor on Gaussian noise that the best attack exposes in the median audit."""
        if self.mu is None:
            return None
        cuts, factors = np.linspace(-2.0, 8.0, 201), np.linspace(0.01, 1.0, 100)
        hits = np.floor(runs * special.ndtr(self.mu / factors[:, None] - cuts))
        false_alarms = np.ceil(runs * special.ndtr(-cuts))[None, :]
        z_scores = self.z_scores(hits, false_alarms, runs)
        detected = np.any(z_scores >= special.ndtri(1.0 - error), axis=(1, 2))
        return float(np.max(factors[detected], initial=0.0))


def _epsilon_of_mu(mu: float, delta: float) -> float:
    if mu <= 0.0:
        return 0.0
    if not math.isfinite(mu) or delta == 0.0:
        return math.inf
    return accounting.epsilon(Gaussian(1.0 / mu, 1.0), delta, Relation.ADD_REMOVE)


def _mu_of_epsilon(epsilon: float, delta: float) -> float:
    if epsilon <= 0.0:
        return 0.0
    budget = Budget(epsilon, delta)
    std = accounting.calibrate(lambda s: Gaussian(s, 1.0), budget, Relation.ADD_REMOVE)
    return 1.0 / std


# --- runs and scores ------------------------------------------------------------------------------


class _RunError(Exception):
    """A draw of many runs at once ended in an error."""


class _AttackRunner:
    """Runs the target, many runs `together` or one by one, and lets attacks score what comes out.

    One by one, an error is the output of its run.
    """

    def __init__(
        self, target: Target, source: Source, total: int, progress: Progress, *, together: bool
    ) -> None:
        self.target = target
        self.source = source
        self.total = total
        self.progress = progress
        self.done = 0
        self.together = together
        self.width = 1
        self.failed = [0, 0]
        self.errors: set[str] = set()

    def fit_attacks(self, runs: int) -> list[Attack]:
        """Every attack, fitted; the likelihood ratio first where it is known."""
        parts = [list(self._rows(world, runs)) for world in (0, 1)]
        if self.failed == [runs, runs] and len(self.errors) == 1:
            raise InputError(f"{self.target.name} failed in every run: {min(self.errors)}")
        # From here on the width is fixed; what is longer shows in the pattern.
        self.width = max(rows.shape[1] for world in parts for rows in world)
        first, second = (
            np.concatenate([_resize_columns(r, self.width) for r in world]) for world in parts
        )
        found = attacks.fit_attacks(first, second)
        ratio = self.target.log_ratio
        if ratio is not None:
            found.insert(0, Attack("likelihood ratio", lambda rows: ratio(rows[:, :-1])))
        return found

    def scores(self, candidates: list[Attack], world: int, runs: int) -> list[Array]:
        """Each candidate's scores in so many fresh runs."""
        found: list[list[Array]] = [[] for _ in candidates]
        for rows in self._rows(world, runs):
            wide = _resize_columns(rows, self.width)
            for parts, attack in zip(found, candidates, strict=True):
                parts.append(np.nan_to_num(attack.score(wide)))
        return [np.concatenate(parts) for parts in found]

    def _rows(self, world: int, runs: int) -> Iterator[Array]:
        """What an attacker sees of so many runs, some at a time."""
        done, width = 0, self.width
        while done < runs:
            count = min(runs - done, max(1, _CHUNK // max(width, 64)))
            outputs = self._draw_outputs(world, count)
            if len(outputs) != count:
                raise InputError(
                    f"{self.target.name} must give a row for each of {count} runs, "
                    f"not {len(outputs)}."
                )
            if not isinstance(outputs, np.ndarray):
                errors = [output for output in outputs if isinstance(output, Failure)]
                self.failed[world] += len(errors)
                self.errors.update(map(str, errors))
            rows = attacks.attack_features(outputs)
            width = max(width, rows.shape[1])
            # A quarter of the rows is kept, and at most four scores of five eighths, in two worlds.
            needed = self.total * (4.0 * width + 40.0)
            resources.check_memory(needed, f"{self.total:,} runs", "use fewer runs")
            done += count
            self.done += count
            self.progress(self.target.name, self.done / (2.0 * self.total))
            yield rows

    def _draw_outputs(self, world: int, count: int) -> Outputs:
        draw = self.target.draw
        if self.together:
            try:
                return draw(world, count, self.source)
            except Exception as error:  # whoever runs them at once then runs them one by one
                raise _RunError from error
        results: list[object] = []
        for _ in range(count):
            try:
                results.extend(draw(world, 1, self.source))
            except Exception as error:  # an error is an output: it may depend on the input
                results.append(Failure(error))
        return results


def _resize_columns(rows: Array, width: int) -> Array:
    """`rows` cut or filled up with zeros to `width` columns, the last of which stays the last."""
    if rows.shape[1] == width:
        return rows
    wide = np.zeros((len(rows), width))
    kept = min(width, rows.shape[1]) - 1
    wide[:, :kept], wide[:, -1] = rows[:, :kept], rows[:, -1]
    return wide
