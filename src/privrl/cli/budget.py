"""`privrl budget`: what noise costs, and what papers claim of theirs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer
from privrl.core.errors import InputError
from privrl.core.spec import number, option

if TYPE_CHECKING:
    from privrl.privacy import Event, Relation


class Options(CommandSpec):
    """Epsilon from noise, noise from epsilon, a paper's claim beside its certificate.

    \b
    privrl budget 'Gaussian(1, 1)' --delta 1e-5
    privrl budget 'Gaussian(?, 1)' --epsilon 1 --delta 1e-5
    privrl budget 'Repeated(PoissonSampled(Gaussian(1, 1), 0.01), 100)' --delta 1e-5
    privrl budget --claim xie2019 sigma=1 trajectories=1000 iterations=1000
    """

    what: tuple[str, ...] = option(
        "Events as in Python, a ? for the number to find; with --claim, its parameters.",
        (),
        argument="[EVENT]... | [NAME=VALUE]...",
    )
    epsilon: float | None = option("How much may be spent.")
    delta: float | None = option("The delta it is stated at.")
    relation: str = option("What a neighbour is.", "replace-one")
    unit: str | None = option("Who is protected, for --save.")
    claim: str | None = option("A paper's formula beside its certificate; or all.")
    reward_radius: float | None = option("For reward-radius and --save.")
    save: Path | None = option("Write a certificate of this plan.")

    def run(self) -> None:
        from privrl.privacy import Budget, Relation, accounting, expression

        if self.claim is not None:
            return self._show_claim(self.claim)
        if not self.what:
            raise InputError("Say what was released, for example: privrl budget 'Gaussian(1, 1)'.")
        relation, delta = Relation.parse(self.relation), self.delta or 0.0
        limit = None if self.epsilon is None else Budget(self.epsilon, delta)
        if self.save is None and (self.unit is not None or self.reward_radius is not None):
            raise InputError("--unit and --reward-radius belong to --save.")
        found: dict[str, Any] = {}
        if any(expression.has_unknown(text) for text in self.what):
            if limit is None:
                raise InputError("A ? needs --epsilon: how much may be spent?")
            build, whole = expression.parse_with_unknown(list(self.what))
            found["?"] = accounting.calibrate(build, limit, relation, whole=whole)
            events, limit = build(found["?"]), None
        else:
            events = [expression.parse(text) for text in self.what]
        if limit is not None and self.delta is None:
            spent = accounting.delta(events, limit.epsilon, relation)
            found |= {"epsilon": limit.epsilon, "delta": spent, "relation": relation.value}
        else:
            cost = accounting.account(events, delta, relation)
            found |= {"epsilon": cost.epsilon, "delta": cost.delta, "relation": relation.value}
            if limit is not None:
                found["within budget"] = cost.epsilon <= limit.epsilon
            found["accountant"] = cost.method
            if self.save is not None:
                self._save(events, cost.delta, relation, self.save)
                found["certificate"] = str(self.save)
        lines = [f"  {name:<14}{_format_number(value)}" for name, value in found.items()]
        answer({**found, "events": [one.to_dict() for one in events]}, *map(str, events), *lines)

    def _save(self, events: "list[Event]", delta: float, relation: "Relation", path: Path) -> None:
        from privrl.core import files
        from privrl.privacy import Certificate, Relation, Release, Unit

        local = relation is Relation.LOCAL
        if self.unit is None and not (local or relation is Relation.REWARD_RADIUS):
            raise InputError("--save needs --unit: trajectory, user or agent?")
        certificate = Certificate.issue(
            events,
            delta,
            unit=Unit.parse(self.unit or ("agent" if local else "reward-function")),
            relation=relation,
            release=Release.EACH_REPORT if local else Release.EVERY_ITERATE,
            reward_radius=self.reward_radius,
        )
        files.write(path, certificate.to_json().encode(), secret=False)

    def _show_claim(self, name: str) -> None:
        """What a paper claims, or all of them, beside what the same noise is worth."""
        from privrl.privacy import claims
        from privrl.privacy.certificate_card import claim_lines

        said = {"epsilon": self.epsilon, "delta": self.delta}
        options = {key: value for key, value in said.items() if value is not None}
        if self.save is not None:
            raise InputError("A claim is never a certificate, so there is nothing to --save.")
        if name == "all":
            if self.what or options:
                raise InputError("--claim all shows every claim as printed: it takes no numbers.")
            every = {name: formula() for name, formula in claims.CLAIMS.items()}
            return answer({key: one.to_dict() for key, one in every.items()}, *claim_lines(every))
        parameters: dict[str, float | int | bool] = {}
        for key, value in map(_parameter, self.what):
            if key in parameters:
                raise InputError(f"{key} was given twice.")
            parameters[key] = value
        made = claims.claim(name, parameters | options)
        answer(made.to_dict(), *made.card().split("\n"))


def _format_number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _parameter(text: str) -> tuple[str, float | int | bool]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"With --claim, give parameters like sigma=1, not {text!r}.")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    try:
        return name, int(value)
    except ValueError:
        return name, number(name, value)
