"""Where a policy and the probabilities of logged actions come from, by whose word.

Nothing in a table tells whether a policy was learned from the people in it, or whether somebody
estimated the probabilities. So the caller declares it, or does not: what was not stated is said to
be not stated, and what was is said to be declared and not checked. Noticed is only what a policy's
own file and the list beside a table say (`privrl.data.marks`), and what `Trajectories` remember of
probabilities that were estimated here. All of it is in the facts of a study and among the
assumptions of its certificate; none of it depends on what is in the rows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from privrl.core.errors import InputError
from privrl.data import Policy, marks
from privrl.data.assumptions import ESTIMATED
from privrl.privacy.certificate import Assumption
from privrl.run.specs.table import BehaviorSource, PolicySource
from privrl.run.study import Fact, Origin

_DECLARED = "declared by the caller, not checked"
_UNSTATED = "not stated by the caller"

_WORD: dict[str | None, str] = {None: _UNSTATED, "unknown": "unknown to the caller"}
_POLICY = {
    None: f"Whether it was learned from these people is {_UNSTATED}.",
    "unknown": f"Whether it was learned from these people is unknown: {_DECLARED}.",
    "independent": f"It was not learned from these people: {_DECLARED}.",
    "this-data": f"It was learned from these people: {_DECLARED}.",
}
_BEHAVIOR = {
    None: f"Whether they are on record or were estimated is {_UNSTATED}.",
    "unknown": f"Whether they are on record or were estimated is unknown: {_DECLARED}.",
    "logged": f"They were logged as the actions were taken: {_DECLARED}.",
    "known-protocol": f"They are those of a protocol that was followed: {_DECLARED}.",
    "estimated": f"They were estimated: {_DECLARED}.",
}
_NOTICED = "It was learned from this very table, as its file and the list beside the table say."
_ELSEWHERE = "Its file says that it was learned from a table, which is not known to be this one."
_FITTED = "They were estimated from the data, as the data itself says."

INDEPENDENT = "the policy was not learned from these people, or they have paid for it elsewhere"
LEARNED_HERE = (
    "the policy was learned from these people: what it tells of them is not covered here, and its "
    "value here is likely to be too high"
)
ON_RECORD = "the behaviour probabilities were not estimated from these people"


@dataclass(frozen=True)
class Provenance:
    """What was declared (None: nothing), and what was noticed."""

    policy: PolicySource | None = None
    """Was the policy learned from these people?"""

    behavior: BehaviorSource | None = None
    """Where do the probabilities of logged actions come from?"""

    learned: bool = False
    """Whether the policy's file says that it was learned from a table."""

    learned_here: bool = False
    """Whether it was learned from this one, as the list beside the table says."""

    fitted: bool = False
    """Whether the data says that the probabilities were estimated from it."""

    def __post_init__(self) -> None:
        for name, known in (("policy", PolicySource), ("behavior", BehaviorSource)):
            said = getattr(self, name)
            if said is not None and said not in get_args(known):
                raise InputError(
                    f"must be one of {', '.join(get_args(known))}, not {said!r}.",
                    field=f"{name}_source",
                )
        if self.learned_here and self.policy == "independent":
            raise InputError(
                "The policy was learned from this very table, as its file and the list beside the "
                "table (.NAME.privrl-runs) say: declare this-data, or judge it on other people. If "
                "others are in the table by now, delete the list."
            )
        if self.fitted and self.behavior not in (None, "estimated"):
            raise InputError(
                "The behaviour probabilities were estimated from the data, as the data itself "
                "says: declare them estimated."
            )

    @classmethod
    def of(
        cls,
        judged: Policy | None,
        tables: Iterable[Path] = (),
        policy: Any = None,
        behavior: Any = None,
        fitted: bool = False,
    ) -> "Provenance":
        """What was declared, with what the policy's file says of these tables."""
        origin = None if judged is None else judged.origin
        here = origin is not None and marks.is_marked(tables, origin["run"])
        return cls(policy, behavior, origin is not None, here, fitted)

    @property
    def about_policy(self) -> str:
        """A sentence on the policy."""
        if self.learned_here:
            return _NOTICED
        return f"{_POLICY[self.policy]} {_ELSEWHERE}" if self.learned else _POLICY[self.policy]

    @property
    def about_behavior(self) -> str:
        """A sentence on the probabilities of logged actions."""
        return _FITTED if self.fitted else _BEHAVIOR[self.behavior]

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What a certificate about another policy rests on; nothing enforces it."""
        here = self.learned_here or self.policy == "this-data"
        word = "noticed in its file" if self.learned_here else _WORD.get(self.policy, _DECLARED)
        policy = Assumption(LEARNED_HERE if here else INDEPENDENT, f"not enforced: {word}")
        if self.fitted:
            return policy, ESTIMATED
        statement = ESTIMATED.statement if self.behavior == "estimated" else ON_RECORD
        word = _WORD.get(self.behavior, _DECLARED)
        return policy, Assumption(statement, f"not enforced: {word}")

    @property
    def notes(self) -> tuple[str, ...]:
        """What must not be overlooked."""
        found = []
        if self.learned_here or self.policy == "this-data":
            by = "noticed in its file" if self.learned_here else _DECLARED
            found.append(
                f"The policy was learned from these people ({by}): its value here is likely to be "
                "too high. Judge it on other people."
            )
        if self.fitted or self.behavior == "estimated":
            found.append(
                "The probabilities of logged actions were estimated: the intervals do not have the "
                "errors of the estimate in them, and the certificate does not cover it."
            )
        return tuple(found)

    def facts(self, policy: str = "given", behavior: str = "in the data") -> tuple[Fact, ...]:
        """The same as facts of a study."""
        here: Origin = "noticed" if self.learned_here else "declared"
        fitted: Origin = "noticed" if self.fitted else "declared"
        return (
            Fact("policy", policy, self.about_policy, here),
            Fact("behavior_prob", behavior, self.about_behavior, fitted),
        )
