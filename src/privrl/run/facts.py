"""What an evaluation took to be public, for its report: each fact, what it means, who said it."""

from dataclasses import replace
from typing import TYPE_CHECKING

from privrl.evaluation.dplsw import OutputPerturbation
from privrl.run.evaluation import EvaluationSpec
from privrl.run.study import Fact, Origin, Study

if TYPE_CHECKING:
    from privrl.run.request import Request


# What only estimators with noise are told.
_FOR_NOISE = (
    *("reward_range", "return_range", "return_bound", "weight_cap", "largest_ratio"),
    "estimators",
)
_MEANINGS = {
    "states": "Which states there can be.",
    "actions": "Which actions there can be.",
    "num_states": "How many states there can be.",
    "num_actions": "How many actions there can be.",
    "state_range": "States outside are taken to be at the edge.",
    "features": "In which form the value of states is sought.",
}


def with_public_facts(study: Study, request: "Request", question: EvaluationSpec) -> Study:
    """With what the options say, which `evaluate` was not told."""
    main = study.main
    units = main.details.get("units") or main.settings["units"]
    slices = tuple(
        replace(one, coordinate=name)
        for one, name in zip(study.slices, request.state or (), strict=False)
    )
    if len(slices) == 1 and request.states is not None:
        slices = (replace(slices[0], labels=request.states),)
    notes = study.notes
    if question.budget is not None and question.budget.delta * units >= 1.0:
        notes += (
            f"Delta, {question.budget.delta:g}, is not below one in the {units:,} who are "
            "protected: the promise may fail for some of them.",
        )
    facts = public_facts(request, question, f"{units:,}", study.facts)
    return replace(study, facts=facts, slices=slices, notes=notes)


def public_facts(
    request: "Request",
    question: EvaluationSpec,
    units: str,
    declared: tuple[Fact, ...] = (),
) -> tuple[Fact, ...]:
    """Everything that was taken to be public, with what was declared of policies."""
    low, high = question.reward_range
    returns = question.value_estimator.returns_range

    def origin(name: str) -> Origin:
        return "given" if name in request.said else "default"

    listed = [
        Fact(
            "number of people" if request.user else "number of trajectories",
            units,
            "How many are in the data is no secret.",
            "counted" if request.people is None else "given",
        ),
        Fact(
            "invalid",
            request.invalid or "refuse",
            "Whoever is not valid counts as one fixed person, unseen by anybody."
            if request.invalid == "neutral"
            else "A table that is not valid is refused, which only its curator sees.",
            origin("invalid"),
        ),
        Fact(
            "reward_range",
            f"{low:g} to {high:g}",
            "No reward can be outside: one that is counts as the nearer end.",
        ),
        Fact(
            "horizon",
            "none" if question.horizon is None else str(question.horizon),
            "Steps beyond it do not count.",
            origin("horizon"),
        ),
        Fact(
            "gamma",
            f"{question.gamma:g}",
            "How much a reward one step later counts.",
            origin("gamma"),
        ),
        Fact(
            "return_range",
            f"{returns[0]:g} to {returns[1]:g}",
            "No sum of rewards can be outside.",
            "derived" if request.return_range is None else "given",
        ),
        Fact(
            "weight_cap",
            f"{question.weight_cap:g}",
            "No trajectory counts for more than this many.",
        ),
    ]
    listed += _return_bound(question)
    if question.largest_ratio is not None:
        listed.append(
            Fact(
                "largest_ratio",
                f"{question.largest_ratio:g}",
                "The two policies differ by no larger a factor over a whole trajectory.",
            )
        )
    for fact in declared:
        # By the option that was said: a file, or a column.
        other = {"policy": "target_prob", "behavior_prob": "behavior"}[fact.name]
        name = other if getattr(request, fact.name) is None else fact.name
        listed.append(replace(fact, name=name, value=str(getattr(request, name))))
    for name in ("states", "actions", "num_states", "num_actions", "state_range", "features"):
        value = getattr(request, name)
        if value is not None:
            shown = ", ".join(value) if isinstance(value, tuple) else str(value)
            listed.append(Fact(name, shown, _MEANINGS[name]))
    if question.start is not None:
        listed.append(Fact("start", f"{len(question.start)} states", "Where trajectories start."))
    listed.append(
        Fact(
            "estimators",
            ", ".join(f"{n} {s:g}" for n, s in question.estimators.items()),
            "How the budget is shared out.",
            origin("estimators"),
        )
    )
    if request.public:
        listed = [fact for fact in listed if fact.name not in _FOR_NOISE]
    if request.on_policy:
        listed = [fact for fact in listed if fact.name != "weight_cap"]
    return tuple(listed)


def _return_bound(question: EvaluationSpec) -> list[Fact]:
    """How large returns can be for the estimators that have a bound of their own for it."""
    bound, meaning = question.return_bound, "How large a return could be."
    if question.on_policy:
        judges = question.value_function_estimators(off_policy=False).values()
        bound = next(one.return_bound for one in judges if isinstance(one, OutputPerturbation))
        meaning = f"Returns are cut to it, up and down, by {question.on_policy}."
    if bound is None or not (question.on_policy or "gtd" in question.estimators):
        return []
    origin: Origin = "derived" if question.return_bound is None else "given"
    return [Fact("return_bound", f"{bound:g}", meaning, origin)]
