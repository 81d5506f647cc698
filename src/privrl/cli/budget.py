"""`privrl budget`: what noise costs, and what papers claim of theirs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from privrl.cli.common import Json
from privrl.cli.printing import answer

if TYPE_CHECKING:
    from privrl.privacy import Event, Relation


def budget(
    what: Annotated[
        list[str] | None,
        Argument(
            metavar="[EVENT]... | [NAME=VALUE]...",
            help="Events as in Python, a ? for the number to find; with --claim, its parameters.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[float | None, Option(help="How much may be spent.")] = None,
    delta: Annotated[float | None, Option(help="The delta it is stated at.")] = None,
    relation: Annotated[str, Option(help="What a neighbour is.")] = "replace-one",
    unit: Annotated[
        str | None, Option(help="Who is protected, for --save.", show_default=False)
    ] = None,
    claim: Annotated[
        str | None, Option(help="A paper's formula beside its certificate; or all.")
    ] = None,
    reward_radius: Annotated[float | None, Option(help="For reward-radius and --save.")] = None,
    save: Annotated[Path | None, Option(help="Write a certificate of this plan.")] = None,
    as_json: Json = False,
) -> None:
    """Epsilon from noise, noise from epsilon, a paper's claim beside its certificate.

    \b
    privrl budget 'Gaussian(1, 1)' --delta 1e-5
    privrl budget 'Gaussian(?, 1)' --epsilon 1 --delta 1e-5
    privrl budget 'Repeated(PoissonSampled(Gaussian(1, 1), 0.01), 100)' --delta 1e-5
    privrl budget --claim xie2019 sigma=1 trajectories=1000 iterations=1000
    """
    from privrl.privacy import Budget, InputError, Relation, accounting, expression

    given = what or []
    if claim is not None:
        if save is not None:
            raise InputError("A claim is never a certificate, so there is nothing to --save.")
        if claim == "all":
            if given or epsilon is not None or delta is not None:
                raise InputError("--claim all shows every claim as printed: it takes no numbers.")
            return _show_claims(as_json)
        return _show_claim(claim, given, epsilon, delta, as_json)
    if not given:
        raise InputError("Say what was released, for example: privrl budget 'Gaussian(1, 1)'.")
    wanted = Relation.parse(relation)
    if epsilon is not None:
        Budget(epsilon, delta or 0.0)  # refuses what no budget can be
    if save is None and (unit is not None or reward_radius is not None):
        raise InputError("--unit and --reward-radius belong to --save.")
    unknown: float | None = None
    if any(expression.has_unknown(text) for text in given):
        if epsilon is None:
            raise InputError("A ? needs --epsilon: how much may be spent?")
        build, whole = expression.parse_with_unknown(given)
        unknown = accounting.calibrate(build, Budget(epsilon, delta or 0.0), wanted, whole=whole)
        events = build(unknown)
    else:
        events = [expression.parse(text) for text in given]
    if epsilon is not None and delta is None and unknown is None:
        spent = accounting.delta(events, epsilon, wanted)
        _show({"epsilon": epsilon, "delta": spent, "relation": wanted.value}, events, as_json)
        return
    cost = accounting.account(events, delta or 0.0, wanted)
    found: dict[str, Any] = {} if unknown is None else {"?": unknown}
    found |= {"epsilon": cost.epsilon, "delta": cost.delta, "relation": wanted.value}
    if epsilon is not None and unknown is None:
        found["within budget"] = cost.epsilon <= epsilon
    found["accountant"] = cost.method
    if save is not None:
        _save(events, cost.delta, wanted, unit, reward_radius, save)
        found["certificate"] = str(save)
    _show(found, events, as_json)


def _show(found: dict[str, Any], events: "list[Event]", as_json: bool) -> None:
    lines = [*map(str, events), *(f"  {n:<14}{_format_number(v)}" for n, v in found.items())]
    answer(as_json, {**found, "events": [event.to_dict() for event in events]}, *lines)


def _format_number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _save(
    events: "list[Event]",
    delta: float,
    relation: "Relation",
    unit: str | None,
    reward_radius: float | None,
    path: Path,
) -> None:
    from privrl.core import files
    from privrl.privacy import Certificate, InputError, Relation, Release, Unit

    if unit is None:
        if relation not in (Relation.REWARD_RADIUS, Relation.LOCAL):
            raise InputError("--save needs --unit: trajectory, user or agent?")
        unit = "agent" if relation is Relation.LOCAL else "reward-function"
    certificate = Certificate.issue(
        events,
        delta,
        unit=Unit.parse(unit),
        relation=relation,
        release=Release.EACH_REPORT if relation is Relation.LOCAL else Release.EVERY_ITERATE,
        reward_radius=reward_radius,
    )
    files.write(path, certificate.to_json().encode(), secret=False)


def _show_claim(
    name: str, given: list[str], epsilon: float | None, delta: float | None, as_json: bool
) -> None:
    from privrl.privacy import InputError, claims

    parameters: dict[str, float | int | bool] = {}
    for key, value in map(_parameter, given):
        if key in parameters:
            raise InputError(f"{key} was given twice.")
        parameters[key] = value
    for key, option in (("epsilon", epsilon), ("delta", delta)):
        if option is not None:
            parameters[key] = option
    made = claims.claim(name, parameters)
    answer(as_json, made.to_dict(), *made.card().split("\n"))


def _show_claims(as_json: bool) -> None:
    """What the five papers claim, beside what the same noise is worth."""
    from privrl.privacy import claims

    made = {name: formula() for name, formula in claims.CLAIMS.items()}
    lines = ["Privacy as claimed by five papers, and as certified for the same noise.", ""]
    lines.append(f"{'claim':<18}{'for':<24}{'delta':>8}{'claimed':>10}{'certified':>11}")
    for name, item in made.items():
        scope = item.scope.split(",")[0]
        certified = f"{item.certified.epsilon:.4g}" if item.certified else "none"
        delta = f"{item.delta:.0e}" if item.delta else "0"
        lines.append(f"{name:<18}{scope:<24}{delta:>8}{item.epsilon:>10.4g}{certified:>11}")
    lines += ["", "Why they differ: privrl budget --claim xie2019 (or another name above)."]
    answer(as_json, {name: item.to_dict() for name, item in made.items()}, *lines)


def _parameter(text: str) -> tuple[str, float | int | bool]:
    from privrl.privacy import InputError

    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"With --claim, give parameters like sigma=1, not {text!r}.")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    raise InputError(f"must be a number, not {value!r}.", field=name)
