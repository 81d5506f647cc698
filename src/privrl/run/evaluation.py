"""The main job: from trajectories and a policy to a `Study`, under one budget.

    spec = EvaluationSpec(reward_range=(0, 1), weight_cap=10, horizon=20, budget=Budget(1, 1e-5))
    study = evaluate(data, policy, spec)

The value of the policy, of the one that was followed, and their difference come from
`PrivateValue`. With `features` the value of states is estimated too, by `PrivateGTD`, `PrivateLSTD`
or `GPOPE`; the budget is then shared out by the squares of the Gaussian mechanisms' distances,
mu_i^2 = share_i mu^2, which compose to mu (GPOPE gets what the others leave of the whole). `DPLSW`
and `DPLSL`, which judge the policy that was followed, alone or beside the others, have no mu: they
get their share of epsilon and of delta, and the others share out the rest, since these add up.
Everything is paid for before anything is drawn, and one certificate covers it all (`releasing`:
what comes before the payment, and how a run that was killed goes on). On data declared public there
is no budget, and the estimators without noise run instead.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from scipy.stats import qmc

from privrl.core import checks
from privrl.core.errors import InputError, option
from privrl.core.progress import Progress, no_progress
from privrl.core.spec import REQUIRED, Spec, with_default
from privrl.data import Features, OneHot, Policy, Tabular, Trajectories, TrajectoryStream
from privrl.data.assumptions import ESTIMATED, data_assumptions
from privrl.data.policies import FunctionPolicy
from privrl.evaluation import (
    DPLSL,
    DPLSW,
    DR,
    FQE,
    GPOPE,
    IS,
    LSTD,
    PDIS,
    WDR,
    WIS,
    WPDIS,
    memory,
)
from privrl.evaluation.precondition import public_gram
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.evaluation.private_value import PrivateValue
from privrl.evaluation.result import Result
from privrl.evaluation.simulate import Schema, simulate_like
from privrl.evaluation.steps import check_matrix_size
from privrl.evaluation.sums import SumEstimator, Sums, gather_sums
from privrl.privacy.accounting import epsilon
from privrl.privacy.certificate import Certificate
from privrl.privacy.events import Gaussian
from privrl.privacy.ledger import Ledger
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.promise import Budget
from privrl.run import releasing
from privrl.run.provenance import Provenance
from privrl.run.specs.table import BehaviorSource, EvaluateOptions, PolicySource
from privrl.run.study import CurvePoint, Fact, Slice, Study

ESTIMATORS = ("value", "gtd", "lstd", "gpope", "dplsw", "dplsl")
# These judge the policy that was followed, and their noise has no mu.
ON_POLICY = frozenset(("dplsw", "dplsl"))
# What is about probabilities, or another policy than was followed.
_OF_RATIOS = (
    *("weight_cap", "largest_ratio", "behavior_prob", "behavior", "behavior_source"),
    *("policy_source", "target_name"),
)
_LABELS = (
    *("public", "title", "target_name", "behavior_name"),
    *("policy_source", "behavior_source"),
)
CURVE_EPSILONS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

Curve = tuple[tuple[CurvePoint, ...], int]
_NO_CURVE: Curve = ((), 0)

# Made-up people and steps for the curve: enough for smooth figures, done in a second.
_MOST_PEOPLE = 20_000
_MOST_STEPS = 2_000_000
_LONGEST = 20_000
# So that rounding up the parts of a budget does not overspend the whole.
_CAUTION = 1.0 - 1e-6
# Of epsilon and delta; far below, rounding in the accounting is larger than the part.
_LEAST_SHARE = 1e-3
_POINTS = 41
_SEEDED = "The noise came from a seed: this is an experiment, and protects nobody."


class Gather(Protocol):
    """How sums over all data are come by: here, or on a cluster."""

    def __call__(
        self, judge: SumEstimator, data: Trajectories | TrajectoryStream, policy: Policy | None
    ) -> Sums:
        """The sums of `judge` over `data`."""
        ...


@dataclass(frozen=True)
class EvaluationSpec(Spec):
    """What is asked, and what is public about the data: everything but the data itself.

    Its fields are options of `privrl evaluate`, which `EvaluateOptions` declares, as Python has
    them: a `Budget` for epsilon and delta (None for data declared public), features in place of
    their name, an array of start states, the share of each estimator.
    """

    reward_range: tuple[float, float] = with_default(EvaluateOptions, "reward_range", REQUIRED)
    weight_cap: float = with_default(EvaluateOptions, "weight_cap", REQUIRED)
    budget: Budget | None = None
    horizon: int | None = with_default(EvaluateOptions, "horizon", None)
    gamma: float = with_default(EvaluateOptions, "gamma", 1.0)
    largest_ratio: float | None = with_default(EvaluateOptions, "largest_ratio", None)
    level: float = with_default(EvaluateOptions, "level", 0.95)
    grid: bool = with_default(EvaluateOptions, "grid", False)
    estimators: Mapping[str, float] = with_default(
        EvaluateOptions, "estimators", lambda: {"value": 1.0}
    )
    features: Features | None = with_default(EvaluateOptions, "features", None)
    start: Any = with_default(EvaluateOptions, "start", None)
    return_bound: float | None = with_default(EvaluateOptions, "return_bound", None)
    return_range: tuple[float, float] | None = with_default(EvaluateOptions, "return_range", None)
    public: bool = with_default(EvaluateOptions, "public", False)
    policy_source: PolicySource | None = with_default(EvaluateOptions, "policy_source", None)
    behavior_source: BehaviorSource | None = with_default(EvaluateOptions, "behavior_source", None)
    title: str | None = with_default(EvaluateOptions, "title", None)
    target_name: str | None = with_default(EvaluateOptions, "target_name", None)
    behavior_name: str | None = with_default(EvaluateOptions, "behavior_name", None)

    def __post_init__(self) -> None:
        self.check_fields()
        if not isinstance(self.estimators, Mapping) or not self.estimators:
            raise InputError(
                f"must name at least one of {', '.join(ESTIMATORS)}.", field="estimators"
            )
        for name, share in self.estimators.items():
            if name not in ESTIMATORS:
                raise InputError(f"There is no estimator {name!r}: use {', '.join(ESTIMATORS)}.")
            checks.positive(f"The share of {name}", share)
        if "value" not in self.estimators and not set(self.estimators) <= ON_POLICY:
            raise InputError(
                "must contain value: gtd, lstd and gpope come beside it.", field="estimators"
            )
        functions = set(self.estimators) != {"value"}
        if functions and self.features is None:
            remedy = "say what range each state could be in (" + option("state_range")
            remedy += "), or how many states there are (" + option("num_states") + ")."
            problem = "features are needed to estimate the value of states"
            raise InputError(problem, remedy=remedy)
        if self.grid and functions:
            raise InputError("grid noise is for the estimator value alone.")
        if self.on_policy and not isinstance(self.features, OneHot):
            raise InputError(
                f"{self.on_policy} needs discrete states, and is not private for vectors",
                remedy="say " + option("num_states") + ", or take gtd, lstd or gpope.",
            )
        if self.features is not None and (functions or self.budget is None):
            check_matrix_size("Estimating the value of states", self.features.dimension)
        if self.start is not None and self.features is not None:
            phi = np.asarray(self.features(np.asarray(self.start)))
            if phi.size == 0 or phi.ndim > 2:
                raise InputError("must hold states, one or more.", field="start")
        self.value_estimator  # noqa: B018 - refuses what cannot be meant, before any data is read

    @property
    def on_policy(self) -> str:
        """The estimators that judge no other policy than the one that was followed."""
        return " and ".join(name for name in self.estimators if name in ON_POLICY)

    def check_use(self, *, off_policy: bool, stream: bool, said: Iterable[str] = ()) -> None:
        """Refuse what an estimator is not private, or not made, for.

        `said` are the names of options that were set, beside those that show here.
        """
        if self.on_policy and off_policy:
            raise InputError(
                f"{self.on_policy} judges the policy that was followed, and is not private for "
                "another",
                remedy="leave out " + option("policy") + " and " + option("target_prob") + ", or "
                "take gtd, lstd or gpope.",
            )
        here = {n for n in _OF_RATIOS[1:] if getattr(self, n, None) is not None}
        unused = [name for name in _OF_RATIOS if name in here.union(said)]
        if unused and not off_policy:
            remedy = "leave out " + option(unused[0])
            for name in unused[1:]:
                remedy = remedy + ", " + option(name)
            problem = "The policy that was followed is judged, and no other"
            raise InputError(problem, remedy=remedy + ".")
        if self.budget is None and (self.on_policy or "gpope" in self.estimators):
            raise InputError(
                f"{self.on_policy or 'gpope'} is for private data, and public data is judged "
                "without noise",
                remedy="leave out " + option("estimators") + ".",
            )
        if stream and "gpope" in self.estimators:
            raise InputError(
                "gpope draws from all people at every step, so it reads no stream",
                remedy="leave out " + option("stream", True) + ", or take gtd.",
            )

    @property
    def value_estimator(self) -> PrivateValue:
        """The estimator of the three values."""
        return PrivateValue(
            self._budget_share("value"),
            weight_cap=self.weight_cap,
            gamma=self.gamma,
            horizon=self.horizon,
            reward_range=self.reward_range if self.return_range is None else None,
            return_range=self.return_range,
            largest_ratio=self.largest_ratio,
            level=self.level,
            grid=self.grid,
        )

    def value_function_estimators(self, off_policy: bool) -> dict[str, releasing.ValueFunction]:
        """The estimators of value functions."""
        made: dict[str, releasing.ValueFunction] = {}
        for name in self.estimators:
            if name == "value":
                continue
            assert self.features is not None
            common: dict[str, Any] = {
                "features": self.features,
                "reward_range": self.reward_range,
                "budget": self._budget_share(name),
                "gamma": self.gamma,
            }
            if name in ON_POLICY:
                kind = DPLSW if name == "dplsw" else DPLSL
                limits: Any = {"return_bound": self._return_bound, "horizon": self.horizon}
                made[name] = kind(**common, **limits)
                continue
            common["weight_cap"] = self.weight_cap if off_policy else None
            if name == "gpope":
                made[name] = GPOPE.from_range(**common)
                continue
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
        memory.check_features_memory(self.features.dimension)
        spread = qmc.Sobol(len(low), scramble=False).random(memory.GRAM_STATES)
        even = qmc.scale(spread, low, high)
        return public_gram(self.features, even)

    @property
    def _return_bound(self) -> float:
        if self.return_bound is not None:
            return self.return_bound
        return max(abs(end) for end in self.value_estimator.returns_range)

    def _budget_share(self, name: str) -> Budget:
        """The budget of one estimator."""
        # On public data nothing is drawn: any budget will do to check the other settings.
        budget = self.budget or Budget(1.0, 1e-5)
        if len(self.estimators) == 1 or name not in self.estimators:
            return budget
        if budget.delta == 0.0:
            raise InputError("must have a delta above 0: the noise is Gaussian.", field="budget")
        total = sum(self.estimators.values())
        if name in ON_POLICY:
            return _part_of(budget, self.estimators[name] / total, name)
        rest = sum(share for one, share in self.estimators.items() if one not in ON_POLICY)
        budget = budget if rest == total else _part_of(budget, rest / total, name)
        share = self.estimators[name] / rest
        if share == 1.0:
            return budget
        whole = GaussianMechanism.from_budget(1.0, budget).std
        spent = epsilon(Gaussian(whole / math.sqrt(share) / _CAUTION, 1.0), budget.delta)
        if spent == 0.0:
            raise InputError(
                f"The share of {name} is too small to be told beside a delta of {budget.delta:g}: "
                "take a smaller delta, a larger epsilon, or the estimator value alone."
            )
        return Budget(spent, budget.delta)


def _part_of(budget: Budget, share: float, name: str) -> Budget:
    """Such parts add up to the budget, whatever pays by them (basic composition)."""
    if not share >= _LEAST_SHARE:
        raise InputError(
            f"The share of {name} is too small: give it at least {_LEAST_SHARE:g} of all."
        )
    share *= _CAUTION
    return Budget(budget.epsilon * share, budget.delta * share)


def _box(features: Features | None) -> tuple[Any, Any] | None:
    """The public ranges of states, if the features have some."""
    low, high = getattr(features, "low", None), getattr(features, "high", None)
    return None if low is None or high is None else (low, high)


def evaluate(
    data: Trajectories | TrajectoryStream,
    policy: Policy | None,
    question: EvaluationSpec,
    *,
    behavior: Policy | None = None,
    facts: tuple[Fact, ...] = (),
    notes: tuple[str, ...] = (),
    command: str = "",
    tables: Iterable[Path] = (),
    ledger: Ledger | None = None,
    run: str | None = None,
    seed: int | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    about: Mapping[str, Any] = MappingProxyType({}),
    tried: Callable[[Study], object] = lambda _: None,
    gather: Gather = gather_sums,
    progress: Progress = no_progress,
    **options: Any,
) -> Study:
    """Answer `question` about `data`; `behavior` is used for the curve alone.

    `options` are fields of the question that are to have other values than it has: `public=True`,
    `title="..."`. Among them `policy_source` and `behavior_source` are the caller's word on where
    the policy and the probabilities come from (`privrl.run.provenance`); `tables` are the files of
    the data, by which a policy that was learned from them is known.

    With a `folder`, the key of the noise is kept there before anything is paid, with `about`, which
    is JSON of the caller's, until `privrl.report.folder.write_run` has written the study. If the
    process ends before that, `resume=True` with the same folder, data, policies and question gives
    the same study, and pays nothing again; name, seed and date are those of the run that was begun.
    Without a folder a study that is lost must be paid for again.

    `tried` is called before anything is paid, with a study of placeholder figures: whoever renders
    studies, or replaces something in them, tries that there, and may refuse.
    """
    labels = replace(question, **options)
    # What only labels the study is in no digest of a run that may go on.
    question = replace(question, **{n: one for n, one in options.items() if n not in _LABELS})
    public = labels.public
    if public != (question.budget is None):
        raise InputError(
            "Data declared public has no budget to spend."
            if public
            else "budget is needed: say epsilon and delta, or declare the data public."
        )
    if ledger is not None:
        if public:
            raise InputError("Data declared public spends nothing: leave out the ledger.")
        if run is None and not resume:
            raise InputError("A ledger needs the name of the run.")
    if public and resume:
        raise InputError("Data declared public draws no noise: begin the run again.")
    off, curve = _off_policy(data, policy), _NO_CURVE
    logged = labels.behavior_name or "as logged"
    labels.check_use(off_policy=off, stream=not isinstance(data, Trajectories))
    told = Provenance.of(
        policy,
        data.paths if isinstance(data, TrajectoryStream) else tables,
        labels.policy_source,
        labels.behavior_source,
        fitted=ESTIMATED in data_assumptions(data),
    )
    if off:
        notes = (*notes, *told.notes)
        known = {fact.name for fact in facts}
        facts = (*facts, *(fact for fact in told.facts() if fact.name not in known))

    def study(results: tuple[Result, ...], certificate: Certificate | None) -> Study:
        said = notes
        if keeping.seed is not None and not public:
            said = (*said, _SEEDED)
        return Study(
            title=labels.title or "Private policy evaluation",
            results=results,
            certificate=certificate,
            facts=facts,
            target_name=(labels.target_name or "new policy") if off else logged,
            behavior_name=logged,
            curve=curve[0],
            curve_people=curve[1],
            slices=_slices(results, question.features),
            notes=said,
            command=command,
            created=keeping.created,
        )

    def make_trial(count: int) -> releasing.ResultsCallback:
        nonlocal curve
        progress("the curve, on made-up data")
        curve = _curve(policy, behavior, question, count)
        return lambda results, certificate: tried(study(results, certificate))

    with releasing.open_run(
        folder, resume=resume, ledger=ledger, run=run, seed=seed, about=about
    ) as keeping:
        if public:
            if not isinstance(data, Trajectories):
                raise InputError("Public data is judged as a whole, not as a stream.")
            found = _evaluate_public(data, policy, question, progress)
            return study(found if off else _without_comparison(found), None)
        results, certificate = releasing.release_results(
            data,
            policy,
            question,
            off_policy=off,
            behavior=behavior,
            assumptions=told.assumptions if off else (),
            gather=gather,
            ledger=ledger,
            keeping=keeping,
            progress=progress,
            prepared=make_trial,
        )
        return study(results, certificate)


def _off_policy(data: Trajectories | TrajectoryStream, policy: Policy | None) -> bool:
    logged = (
        data.target_probs if isinstance(data, Trajectories) else data.plan.target_prob
    ) is not None
    return policy is not None or logged


# --- public --------------------------------------------------------------------------------------


def _evaluate_public(
    data: Trajectories, policy: Policy | None, question: EvaluationSpec, progress: Progress
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


def _without_comparison(results: tuple[Result, ...]) -> tuple[Result, ...]:
    """Of the policy that was followed alone: it is not compared with itself."""
    return tuple(
        replace(one, details={n: said for n, said in one.details.items() if n == "behavior"})
        for one in results
    )


# --- what comes with it --------------------------------------------------------------------------


def _slices(results: tuple[Result, ...], features: Features | None) -> tuple[Slice, ...]:
    """Values along each coordinate, of the first value function there is."""
    judged = next((one for one in results if one.weights is not None), None)
    if judged is None or judged.weights is None or features is None:
        return ()
    if isinstance(features, OneHot):
        # The value of a state is its weight: features of all states would be a square matrix.
        numbers = tuple(map(float, range(features.num_states)))
        return (Slice("state", numbers, tuple(map(float, judged.weights)), discrete=True),)
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
    question: EvaluationSpec,
    units: int,
) -> Curve:
    """Widths of the interval by epsilon, on made-up data of the same public shape."""
    if question.budget is None or question.budget.delta == 0.0 or policy is None:
        return _NO_CURVE
    schema = _schema(policy, question, units)
    if schema is None:
        return _NO_CURVE
    made = simulate_like(schema, 0, behavior or _mix_with_uniform(policy, schema))
    rows = question.value_estimator.contributions(made, policy)
    total, count = rows.sum(axis=0), len(rows)
    points = []
    for at in sorted({*CURVE_EPSILONS, float(f"{question.budget.epsilon:.6g}")}):
        asked = replace(
            question.value_estimator, budget=Budget(at, question.budget.delta), grid=False
        )
        mechanism = asked.mechanism
        assert isinstance(mechanism, GaussianMechanism)
        widths = [
            (found.high - found.low) / 2.0
            for std in (mechanism.std, 0.0)
            for found in [asked.figures(total, std, count).target_interval()]
        ]
        points.append(CurvePoint(at, *widths))
    return tuple(points), count


def _schema(policy: Policy, question: EvaluationSpec, units: int) -> Schema | None:
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
        reward_range=_simulated_reward_range(question, horizon),
        num_states=states,
        low=None if states else low,
        high=None if states else high,
    )


def _simulated_reward_range(question: EvaluationSpec, horizon: int) -> tuple[float, float]:
    """What made-up rewards can be, so that their sums fill the range that was given."""
    if question.return_range is None:
        return question.reward_range
    most = float(np.sum(question.gamma ** np.arange(horizon)))
    low, high = question.return_range
    return low / most, high / most


def _mix_with_uniform(policy: Policy, schema: Schema) -> Policy:
    """Half of the time as the policy would, half of the time at random."""
    prob = 1.0 / policy.num_actions
    if isinstance(policy, Tabular):
        return Tabular(0.5 * np.asarray(policy.table) + 0.5 * prob)
    return FunctionPolicy(
        lambda states: 0.5 * np.asarray(policy.probabilities(states)) + 0.5 * prob,
        policy.num_actions,
        schema.num_states,
    )
