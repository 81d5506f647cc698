"""The main job: from trajectories and a policy to a `Study`, under one budget.

    question = Question(reward_range=(0, 1), weight_cap=10, horizon=20, budget=Budget(1.0, 1e-5))
    study = evaluate(data, policy, question)

The value of the policy, of the one that was followed, and their difference come from
`PrivateValue`. With `features` the value of states is estimated too, by `PrivateGTD` or
`PrivateLSTD`; the budget is then shared out by the squares of the Gaussian mechanisms' distances,
mu_i^2 = share_i mu^2, which compose to mu. Everything is paid for before anything is drawn, and one
certificate covers it all. On data declared public there is no budget, and the estimators without
noise run instead.
"""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from scipy.stats import qmc

from tacit.data import Features, OneHot, Policy, Tabular, Trajectories, TrajectoryStream
from tacit.data.assumed import ESTIMATED, assumed
from tacit.data.policies import FunctionPolicy
from tacit.evaluation import DR, FQE, IS, LSTD, PDIS, WDR, WIS, WPDIS
from tacit.evaluation.private_gtd import PrivateGTD, public_gram
from tacit.evaluation.private_lstd import PrivateLSTD
from tacit.evaluation.private_value import PrivateValue
from tacit.evaluation.result import Result
from tacit.evaluation.simulate import Schema, simulate_like
from tacit.evaluation.steps import affordable
from tacit.evaluation.sums import Summing, Sums, gathered
from tacit.privacy import checks
from tacit.privacy.accounting import epsilon
from tacit.privacy.certificate import Certificate
from tacit.privacy.errors import InputError
from tacit.privacy.events import Event, Gaussian
from tacit.privacy.ledger import LargeDelta, Ledger, warn_if_large
from tacit.privacy.mechanisms import GaussianMechanism
from tacit.privacy.noise import reproducible, secure
from tacit.privacy.promise import Budget, Relation, Release
from tacit.run.provenance import BehaviorSource, PolicySource, Provenance
from tacit.run.study import CurvePoint, Fact, Slice, Study

ESTIMATORS = ("value", "gtd", "lstd")
CURVE_EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

Curve = tuple[tuple[CurvePoint, ...], int]
_NO_CURVE: Curve = ((), 0)

# Made-up people and steps for the curve: enough for smooth figures, done in a second.
_MOST_PEOPLE = 20_000
_MOST_STEPS = 2_000_000
_LONGEST = 20_000
# So that rounding up the parts of a budget does not overspend the whole.
_CAUTION = 1.0 - 1e-6
_POINTS = 41


class Progress(Protocol):
    """Told what is being done and, where that is known, which share of everything is done."""

    def __call__(self, what: str, share: float | None = None) -> None:
        """`what` begins or goes on."""
        ...


def silent(what: str, share: float | None = None) -> None:
    """Tell nobody."""


class Gather(Protocol):
    """How sums over all data are come by: here, or on a cluster."""

    def __call__(
        self, judge: Summing, data: Trajectories | TrajectoryStream, policy: Policy | None
    ) -> Sums:
        """The sums of `judge` over `data`."""
        ...


@dataclass(frozen=True)
class Question:
    """What is asked, and what is public about the data: everything but the data itself."""

    reward_range: tuple[float, float]
    """What any reward could be."""

    weight_cap: float
    """No trajectory's product of ratios counts for more."""

    budget: Budget | None = None
    """What may be spent; None for data declared public."""

    horizon: int | None = None
    """How many steps count; needed unless gamma is below 1."""

    gamma: float = 1.0
    """The discount factor."""

    largest_ratio: float | None = None
    """What a product of ratios can be at most, if the policies say so."""

    level: float = 0.95
    """Nominal level of the intervals."""

    grid: bool = False
    """Discrete noise on integer sums for the value: no assumption on arithmetic."""

    estimators: Mapping[str, float] = field(default_factory=lambda: {"value": 1.0})
    """Which of `value`, `gtd` and `lstd`, and the share of the budget (of mu squared) of each."""

    features: Features | None = None
    """Of states, for `gtd` and `lstd`."""

    start: Any = None
    """Public states that trajectories start from, for the estimates of `gtd` and `lstd`."""

    return_bound: float | None = None
    """How large a return could be, for `gtd`; see `PrivateGTD`."""

    return_range: tuple[float, float] | None = None
    """What any return could be, if that is less than `reward_range` allows: rewards at the end."""

    def __post_init__(self) -> None:
        if not isinstance(self.estimators, Mapping) or not self.estimators:
            raise InputError("estimators must name at least one of value, gtd and lstd.")
        for name, share in self.estimators.items():
            if name not in ESTIMATORS:
                raise InputError(f"There is no estimator {name!r}: use {', '.join(ESTIMATORS)}.")
            checks.positive(f"The share of {name}", share)
        if "value" not in self.estimators:
            raise InputError("estimators must contain value: the others come beside it.")
        if len(self.estimators) > 1 and self.features is None:
            raise InputError(
                "features are needed to estimate the value of states: say what range each state "
                "could be in (state_range), or how many states there are (num_states)."
            )
        if self.grid and len(self.estimators) > 1:
            raise InputError("grid noise is for the estimator value alone.")
        if self.features is not None and (len(self.estimators) > 1 or self.budget is None):
            affordable("Estimating the value of states", self.features.dimension)
        if self.start is not None and self.features is not None:
            phi = np.asarray(self.features(np.asarray(self.start)))
            if phi.size == 0 or phi.ndim > 2:
                raise InputError("start must hold states, one or more.")
        self.value  # noqa: B018 - refuses what cannot be meant, before any data is read

    @property
    def value(self) -> PrivateValue:
        """The estimator of the three values."""
        return PrivateValue(
            self._part("value"),
            weight_cap=self.weight_cap,
            gamma=self.gamma,
            horizon=self.horizon,
            reward_range=self.reward_range if self.return_range is None else None,
            return_range=self.return_range,
            largest_ratio=self.largest_ratio,
            level=self.level,
            grid=self.grid,
        )

    def judges(self, off_policy: bool) -> dict[str, PrivateGTD | PrivateLSTD]:
        """The estimators of value functions."""
        made: dict[str, PrivateGTD | PrivateLSTD] = {}
        for name in self.estimators:
            if name == "value":
                continue
            assert self.features is not None
            common: dict[str, Any] = {
                "features": self.features,
                "reward_range": self.reward_range,
                "budget": self._part(name),
                "gamma": self.gamma,
                "weight_cap": self.weight_cap if off_policy else None,
            }
            common["precondition"] = self._gram()
            if name == "gtd":
                judge = PrivateGTD(**common, return_bound=self._return_bound)
                made[name] = replace(judge, form=judge.form_for(off_policy))
            else:
                made[name] = PrivateLSTD(**common)
        return made

    def _gram(self) -> Any:
        """What features would be like on average if states filled their public box evenly."""
        box = _box(self.features)
        if box is None or self.features is None:
            return None
        low, high = box
        even = qmc.scale(qmc.Sobol(len(low), scramble=False).random_base2(12), low, high)
        return public_gram(self.features, even)

    @property
    def _return_bound(self) -> float:
        return self.return_bound or max(abs(end) for end in self.value.returns)

    def _part(self, name: str) -> Budget:
        """The budget of one estimator."""
        # On public data nothing is drawn: any budget will do to check the other settings.
        budget = self.budget or Budget(1.0, 1e-5)
        if len(self.estimators) == 1:
            return budget
        if budget.delta == 0.0:
            raise InputError("budget must have a delta above 0: the noise is Gaussian.")
        share = self.estimators[name] / sum(self.estimators.values())
        whole = GaussianMechanism.calibrated(1.0, budget).std
        spent = epsilon(Gaussian(whole / math.sqrt(share) / _CAUTION, 1.0), budget.delta)
        if spent == 0.0:
            raise InputError(
                f"The share of {name} is too small to be told beside a delta of {budget.delta:g}: "
                "take a smaller delta, a larger epsilon, or the estimator value alone."
            )
        return Budget(spent, budget.delta)


def _box(features: Features | None) -> tuple[Any, Any] | None:
    """The public ranges of states, if the features have some."""
    low, high = getattr(features, "low", None), getattr(features, "high", None)
    return None if low is None or high is None else (low, high)


def evaluate(
    data: Trajectories | TrajectoryStream,
    policy: Policy | None,
    question: Question,
    *,
    behavior: Policy | None = None,
    title: str = "Private policy evaluation",
    target_name: str = "new policy",
    behavior_name: str = "as logged",
    facts: tuple[Fact, ...] = (),
    notes: tuple[str, ...] = (),
    command: str = "",
    public: bool = False,
    policy_source: PolicySource | None = None,
    behavior_source: BehaviorSource | None = None,
    tables: Iterable[Path] = (),
    ledger: Ledger | None = None,
    run: str | None = None,
    seed: int | None = None,
    gather: Gather = gathered,
    progress: Progress = silent,
) -> Study:
    """Answer `question` about `data`; `behavior` is used for the curve alone.

    `policy_source` and `behavior_source` are the caller's word on where the policy and the
    probabilities come from (`tacit.run.provenance`); `tables` are the files of the data, by which a
    policy that was learned from them is known.
    """
    if public != (question.budget is None):
        raise InputError(
            "Data declared public has no budget to spend."
            if public
            else "budget is needed: say epsilon and delta, or declare the data public."
        )
    if ledger is not None:
        if public:
            raise InputError("Data declared public spends nothing: leave out the ledger.")
        if run is None:
            raise InputError("A ledger needs the name of the run.")
        if any(entry.run == run for entry in ledger.entries()):
            # The certificate is that of all entries of a run, and would cover the older ones too.
            raise InputError(f"The ledger has a run {run!r} already: give this one another name.")
    off, curve = _off_policy(data, policy), _NO_CURVE
    told = Provenance.of(
        policy,
        data.paths if isinstance(data, TrajectoryStream) else tables,
        policy_source,
        behavior_source,
        fitted=ESTIMATED in assumed(data),
    )
    if public:
        if not isinstance(data, Trajectories):
            raise InputError("Public data is judged as a whole, not as a stream.")
        results, certificate = _without_noise(data, policy, question, progress), None
    else:
        results, certificate, curve = _with_noise(
            data,
            policy,
            question,
            off,
            told,
            behavior=behavior,
            gather=gather,
            ledger=ledger,
            run=run,
            seed=seed,
            progress=progress,
        )
    if off:
        notes = (*notes, *told.notes)
        known = {fact.name for fact in facts}
        facts = (*facts, *(fact for fact in told.facts() if fact.name not in known))
    if seed is not None and not public:
        notes = (*notes, "The noise came from a seed: this is an experiment, and protects nobody.")
    return Study(
        title=title,
        results=results,
        certificate=certificate,
        facts=facts,
        target_name=target_name,
        behavior_name=behavior_name,
        curve=curve[0],
        curve_people=curve[1],
        slices=_slices(results, question.features),
        notes=notes,
        command=command,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


# --- private -------------------------------------------------------------------------------------


def _with_noise(
    data: Trajectories | TrajectoryStream,
    policy: Policy | None,
    question: Question,
    off: bool,
    told: Provenance,
    *,
    behavior: Policy | None,
    gather: Gather,
    ledger: Ledger | None,
    run: str | None,
    seed: int | None,
    progress: Progress,
) -> tuple[tuple[Result, ...], Certificate, Curve]:
    value, judges = question.value, question.judges(off)
    progress("reading: the values of the policies")
    sums = {"value": gather(value, data, policy)}
    count = sums["value"].count
    events: list[Event] = [value.mechanism.event]
    for name, judge in judges.items():
        if isinstance(judge, PrivateLSTD):
            progress("reading: the values of states (lstd)")
            sums[name] = gather(judge, data, policy)
            events.append(judge.mechanism.event)
        elif isinstance(data, Trajectories):
            assert judge.form is not None
            events.append(judge.plan(judge.form, count).event)
    if "gtd" in judges and not isinstance(data, Trajectories):
        # A stream, which is the caller's word, is gone through once. How a secret allocation adds
        # up with Gaussian noise has no squares to share out: it gets what the others leave.
        judge = judges.pop("gtd")
        assert isinstance(judge, PrivateGTD)
        assert judge.form is not None
        assert question.budget is not None
        form = judge.form
        # As many steps as there would be iterations over all of the data; of public numbers.
        steps = min(count, judge.plan(form, count).iterations)
        judge = replace(
            judge,
            budget=question.budget,
            beside=tuple(events),
            batch_units=count // steps,
            iterations=steps,
        )
        judges["gtd"] = judge
        events.append(judge.plan(form, count).event)
    source = secure() if seed is None else reproducible(seed)
    # Whatever could still go wrong goes wrong before anything is paid for.
    if judges and isinstance(data, Trajectories) and question.features is not None:
        question.features(data.states[:1])
    progress("the curve, on made-up data")
    curve = _curve(policy, behavior, question, count)
    warn_if_large(value.budget.delta, count)
    if ledger is not None:
        assert run is not None
        about = (ledger.about.unit, ledger.about.relation)
        if about != (sums["value"].unit, Relation.REPLACE_ONE):
            raise InputError(
                f"This ledger protects a {about[0]} under {about[1]}, and this data is about a "
                f"{sums['value'].unit} under {Relation.REPLACE_ONE}: they do not add up."
            )
        ledger.spend(events, run=run)
    # A seed of its own for each: the same noise twice would cancel out.
    seeds = [None if seed is None else seed + number for number in range(len(events))]
    with warnings.catch_warnings():
        # Said once for all of them, above.
        warnings.simplefilter("ignore", LargeDelta)
        results = [value.released(sums["value"], seed=seeds[0])]
        for (name, judge), own in zip(judges.items(), seeds[1:], strict=True):
            progress(f"the values of states ({name})")
            if isinstance(judge, PrivateLSTD):
                results.append(judge.released(sums[name], start=question.start, seed=own))
            else:
                results.append(judge.fit(data, policy, start=question.start, seed=own))
    done = [event for result in results for event in result.certificate.events]
    if done != events:
        raise AssertionError("Something else was released than was paid for.")
    first, delta = results[0].certificate, results[0].certificate.delta
    every = [one for result in results for one in result.certificate.assumptions]
    if off:
        every += told.assumptions
    terms: dict[str, Any] = {
        "assumptions": list(dict.fromkeys(every)),
        "release": Release.EVERY_ITERATE if len(results) > 1 else first.release,
    }
    if ledger is not None and run is not None:
        return tuple(results), ledger.certify(run, delta, source=source, **terms), curve
    whole = Certificate.issue(
        events, delta, unit=first.unit, relation=first.relation, noise=source.origin, **terms
    )
    return tuple(results), whole, curve


def _off_policy(data: Trajectories | TrajectoryStream, policy: Policy | None) -> bool:
    logged = (
        data.target_probs if isinstance(data, Trajectories) else data.plan.target_prob
    ) is not None
    return policy is not None or logged


# --- public --------------------------------------------------------------------------------------


def _without_noise(
    data: Trajectories, policy: Policy | None, question: Question, progress: Progress
) -> tuple[Result, ...]:
    common: dict[str, Any] = {
        "gamma": question.gamma,
        "horizon": question.horizon,
        "level": question.level,
    }
    results: list[Result] = []
    for make in (WIS, IS, PDIS, WPDIS):
        progress(make.method)
        results.append(make(**common).fit(data, policy))
    if question.gamma == 1.0 and not np.any(data.terminated):
        # Rewards that are never discounted and never end have no value to be found.
        return tuple(results)
    if question.features is not None and policy is not None:
        # Half of the people make the model for the other half.
        fitted, judged = data.split((0.5, 0.5), 0)
        q = FQE(question.gamma, question.features).action_values(fitted, policy)
        for make_robust in (DR, WDR):
            progress(make_robust.method)
            results.append(make_robust(**common, q=q).fit(judged, policy))
        progress("FQE")
        fqe = FQE(question.gamma, question.features, level=question.level)
        results.append(fqe.fit(data, policy, start=question.start))
    if question.features is not None:
        progress("LSTD")
        lstd = LSTD(question.features, question.gamma, level=question.level)
        results.append(lstd.fit(data, policy, start=question.start))
    return tuple(results)


# --- what comes with it --------------------------------------------------------------------------


def _slices(results: tuple[Result, ...], features: Features | None) -> tuple[Slice, ...]:
    """Values along each coordinate, of the first value function there is."""
    judged = next((one for one in results if one.weights is not None), None)
    if judged is None or features is None:
        return ()
    if isinstance(features, OneHot):
        states = np.arange(features.num_states)
        found = judged.predict(states)
        values = tuple(map(float, found))
        return (Slice("state", tuple(map(float, states)), values, discrete=True),)
    box = _box(features)
    if box is None:
        return ()
    low, high = box
    middle, slices = (np.array(low) + np.array(high)) / 2.0, []
    for k, (a, b) in enumerate(zip(low, high, strict=True)):
        at = np.linspace(a, b, _POINTS)
        states = np.tile(middle, (_POINTS, 1))
        states[:, k] = at
        found = judged.predict(states)
        slices.append(Slice(f"state {k}", tuple(map(float, at)), tuple(map(float, found))))
    return tuple(slices)


def _curve(
    policy: Policy | None,
    behavior: Policy | None,
    question: Question,
    units: int,
) -> Curve:
    """Widths of the interval by epsilon, on made-up data of the same public shape."""
    if question.budget is None or question.budget.delta == 0.0 or policy is None:
        return _NO_CURVE
    schema = _schema(policy, question, units)
    if schema is None:
        return _NO_CURVE
    made = simulate_like(schema, 0, behavior or _half_chance(policy, schema))
    rows = question.value.contributions(made, policy)
    total, count = rows.sum(axis=0), len(rows)
    points = []
    for at in sorted({*CURVE_EPSILONS, float(f"{question.budget.epsilon:.6g}")}):
        asked = replace(question.value, budget=Budget(at, question.budget.delta), grid=False)
        mechanism = asked.mechanism
        assert isinstance(mechanism, GaussianMechanism)
        widths = [
            (found.high - found.low) / 2.0
            for std in (mechanism.std, 0.0)
            for found in [asked.figures(total, std, count).target()]
        ]
        points.append(CurvePoint(at, *widths))
    return tuple(points), count


def _schema(policy: Policy, question: Question, units: int) -> Schema | None:
    """What is public about the data, if it is enough to make up some."""
    horizon = question.horizon
    if horizon is None or horizon > _LONGEST:
        return None
    features = question.features
    low, high = _box(features) or (None, None)
    states = policy.num_states or getattr(features, "num_states", None)
    if states is None and (low is None or high is None):
        return None
    people = max(min(units, _MOST_PEOPLE, _MOST_STEPS // horizon), 1)
    return Schema(
        num_trajectories=people,
        horizon=horizon,
        num_actions=policy.num_actions,
        reward_range=_rewards(question, horizon),
        num_states=states,
        low=None if states else low,
        high=None if states else high,
    )


def _rewards(question: Question, horizon: int) -> tuple[float, float]:
    """What made-up rewards can be, so that their sums fill the range that was given."""
    if question.return_range is None:
        return question.reward_range
    most = float(np.sum(question.gamma ** np.arange(horizon)))
    low, high = question.return_range
    return low / most, high / most


def _half_chance(policy: Policy, schema: Schema) -> Policy:
    """Half of the time as the policy would, half of the time at random."""
    chance = 1.0 / policy.num_actions
    if isinstance(policy, Tabular):
        return Tabular(0.5 * np.asarray(policy.table) + 0.5 * chance)
    return FunctionPolicy(
        lambda states: 0.5 * np.asarray(policy.probabilities(states)) + 0.5 * chance,
        policy.num_actions,
        schema.num_states,
    )
