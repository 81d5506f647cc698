"""The words a promise is made of: who is protected, against which change, in what that is released.

`Certificate` and `Claim`, which put these words together with figures, live in `certificate.py`:
they need the accountants, and the words are needed by everything.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from privrl.core import checks
from privrl.core.errors import InputError


class WordEnum(StrEnum):
    """An enum whose values are the words of the JSON form and of the command line."""

    @classmethod
    def parse(cls, text: object) -> Self:
        """The member called `text`, in any of the spellings `replace_one`, `replace-one`."""
        if isinstance(text, cls):
            return text
        wanted = str(text).strip().lower().replace("_", "-")
        for member in cls:
            if member.value == wanted:
                return member
        options = ", ".join(member.value for member in cls)
        name = cls.__name__.removesuffix("Kind").lower()
        raise InputError(f"{text!r} is not a {name}: use one of {options}.")

    @classmethod
    def check(cls, _: str, value: object) -> Self:
        """`parse`, as `checks.set_checked` calls it."""
        return cls.parse(value)


class Unit(WordEnum):
    """Whose participation, or which secret, the promise hides."""

    TRAJECTORY = "trajectory"
    USER = "user"
    REWARD_FUNCTION = "reward-function"
    AGENT = "agent"


class Relation(WordEnum):
    """Which two inputs must be hard to tell apart.

    A sum of contributions, each of norm at most `bound`, moves by

    - `ADD_REMOVE`: `bound` (one unit is there or is not; the number of units is private);
    - `REPLACE_ONE`: `2 bound` (one unit's data is exchanged; the number of units is public);
    - `LOCAL`: `2 bound` (a single report: any input against any other);
    - `REWARD_RADIUS`: `bound`, which *is* the distance between the two inputs' contributions.
    """

    ADD_REMOVE = "add-remove"
    REPLACE_ONE = "replace-one"
    REWARD_RADIUS = "reward-radius"
    LOCAL = "local"


def check_unit_relation(unit: Unit, relation: Relation) -> None:
    """Raise unless it makes sense to protect this unit under this relation."""
    if (relation is Relation.REWARD_RADIUS) != (unit is Unit.REWARD_FUNCTION):
        raise InputError(
            "The unit reward-function and the relation reward-radius belong together: "
            f"not {unit} with {relation}."
        )
    if relation is Relation.LOCAL and unit is Unit.TRAJECTORY:
        raise InputError("The relation local protects an agent or a user, not a trajectory.")


class Release(WordEnum):
    """What leaves the trusted side, and is therefore covered by the figures."""

    FINAL_MODEL = "final-model"
    EVERY_ITERATE = "every-iterate"
    EACH_REPORT = "each-report"


class NoiseOrigin(WordEnum):
    """Where the noise came from; only secret noise protects anyone."""

    SECURE = "secure"
    SECURE_KEY = "secure-key"
    REPRODUCIBLE = "reproducible"
    NOT_DRAWN = "not-drawn"

    @property
    def is_secret(self) -> bool:
        """Whether nobody can draw the same noise again."""
        return self in (NoiseOrigin.SECURE, NoiseOrigin.SECURE_KEY)


@dataclass(frozen=True)
class Budget:
    """How much may be spent: (epsilon, delta)-differential privacy, delta 0 meaning pure."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        checks.set_checked(self, epsilon=checks.positive, delta=checks.probability)


def check_gaussian_budget(budget: object) -> None:
    """Raise unless it is a budget that can pay for Gaussian noise."""
    if not isinstance(budget, Budget) or budget.delta == 0.0:
        raise InputError(
            "must be a Budget with a delta above 0, for Gaussian noise.", field="budget"
        )
