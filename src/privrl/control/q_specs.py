"""The options of `FunctionalQ`, `ProspectQ` and `LoggedQ`, each declared once."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from privrl.control.feature_names import FEATURES_HELP, STATE_RANGE_HELP, check_features
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.spec import REQUIRED, Spec, option, with_default

if TYPE_CHECKING:
    from privrl.control.heads import Network
    from privrl.data import Features
    from privrl.privacy.promise import Budget
    from privrl.risk import Prospect

# Squares of numbers that are smaller or larger could vanish or overflow.
_SQUARES: dict[str, Any] = {"low": 1e-100, "high": 1e100}
_MAX_UPDATES = 10**7


@dataclass(frozen=True)
class DescentSpec(Spec):
    """How a Q is learned by noised updates, but for the noise."""

    updates: int = option("Noised updates T; more of them need more noise in each.", 100)
    step: float = option("Learning rate.", 0.1, **_SQUARES)
    batch: int | None = option("Transitions in an update, B; release updates.", shown="all")
    clip: float | None = option("Clip norm C of an update; release updates.", **_SQUARES)
    slope: float | None = option(
        "Bound K on the slope of Q in an update; release updates.", **_SQUARES
    )
    tau: float | None = option("Largest TD error; release weights.", **_SQUARES)
    target_every: int = option("Updates between two copies of the target parameters.", 1)
    optimiser: Literal["sgd", "adam"] = option("What makes steps of the noised updates.", "sgd")
    average: float = option(
        "Last share of the updates to average the parameters over.", 0.5, low=0, high=1
    )

    def __post_init__(self) -> None:
        self.check_fields()
        if self.updates > _MAX_UPDATES:
            raise InputError(f"must be at most {_MAX_UPDATES:,}.", field="updates")


@dataclass(frozen=True)
class FunctionalQSpec(Spec):
    """The settings of Q-learning for a secret reward function; see `functional_q`."""

    release: Literal["reward-model", "weights", "updates", "rewards", "evaluations", "none"] = (
        option("What is noised; none: no noise, not private.", "reward-model")
    )
    budget: "Budget | None" = option("for the reward function", budget=True)
    reward_radius: float | None = option(
        "Reward functions that differ by at most this much everywhere are not told apart.", above=0
    )
    reward_range: tuple[float, float] | None = option(
        "What any reward could be, such as 0,1; rewards are clipped to it."
    )
    gamma: float = option("Discount factor.", 0.9, low=0, high=1)
    steps: int = option("Steps of the rollout, or of each.", 2000, high=10**7)
    max_steps: int | None = option("Truncates scored episodes after so many steps.")
    features: "Features | Network | str | None" = option(
        FEATURES_HELP,
        kind=str,
        shown="a table for discrete states; for a box cosines of up to four coordinates, or "
        "polynomials of more",
    )
    reward_features: Any = option(
        "Features of states for the reward model: table, cosine:3, legendre:3, polynomial:2 or "
        "fourier:2.",
        kind=str,
        shown="a table for discrete states; for a box of up to three coordinates as many cosines "
        "as the noise leaves room for",
    )
    reward_of: Literal["arrival", "step"] = option(
        "What a reward depends on: the state arrived in, or the step before it (state and action).",
        "arrival",
    )
    design: int = option(
        "Rounds that even out the weights of the rollout's points, at no cost; release "
        "reward-model.",
        10,
        low=0,
        high=10**4,
    )
    planner: Literal["fitted", "actor-critic", "network"] = option(
        "What makes a policy of released rewards.", "fitted"
    )
    rounds: int = option(
        "Most backups of values; planners fitted and actor-critic.", 500, high=10**6
    )
    ridge: float = option(
        "Ridge penalty, as a share of the features' mean square; planners fitted and actor-critic.",
        1e-6,
        low=0,
    )
    iterations: int = option("Steps of the actor; planner actor-critic.", 30, high=10**5)
    actor_step: float = option(
        "Step size of the actor, by the spread of released rewards; planner actor-critic.",
        10.0,
        above=0,
        high=1e6,
    )
    network: "Network | None" = option(
        "The network of planner network; by default two layers of 32.", kind=object, python=True
    )
    updates: int = option(
        "Gradient steps of planner network, or of releases weights and updates.",
        3000,
        high=_MAX_UPDATES,
    )
    evaluations: int = option(
        "Rounds K of policy iteration; more need more noise in each; release evaluations.",
        1,
        high=1000,
    )
    horizon: int = option(
        "Steps H after which returns are cut; release evaluations.", 3, high=10**4
    )
    descent: Any = option(
        "How noised updates are made; releases weights and updates.", within=DescentSpec
    )
    state_range: str | None = option(STATE_RANGE_HELP, ranges=True)

    DESCENTS: ClassVar[Mapping[str, DescentSpec]] = {}
    """The releases by noised updates, and how they are made by default."""

    def __post_init__(self) -> None:
        self.check_fields()
        if self.budget is not None:
            from privrl.privacy.promise import Budget

            if not isinstance(self.budget, Budget):
                raise InputError(
                    "must be a Budget, such as Budget(0.9, 1e-4), or None.", field="budget"
                )
        if self.release == "none":
            if self.budget is not None:
                raise InputError("Release 'none' spends nothing: leave the budget out.")
            object.__setattr__(self, "release", "reward-model")
        check_features("features", self.features)
        check_features("reward_features", self.reward_features, rewards=True)
        self._check_network()
        self._check_descent()
        self._check_radius()

    def _check_network(self) -> None:
        if self.network is None:
            return
        from privrl.control.heads import Network

        if not isinstance(self.network, Network):
            raise InputError(
                "must be a Network, such as Network((32, 32)), or None.", field="network"
            )

    def _check_descent(self) -> None:
        updating = self.release in ("weights", "updates")
        if self.descent is not None:
            from privrl.control.noised_q import Descent

            if not isinstance(self.descent, Descent):
                raise InputError(
                    "must be a Descent, such as Descent(updates=100).", field="descent"
                )
            if not updating:
                raise InputError("descent is for the releases 'weights' and 'updates'.")
        if updating and self.reward_range is None:
            raise InputError("is needed: say what any reward could be.", field="reward_range")

    @property
    def radius(self) -> float | None:
        """How far apart reward functions are that are hidden: what the certificate says."""
        return self.reward_radius

    def _check_radius(self) -> None:
        if self.reward_radius is not None:
            radius = self.reward_radius
            # A sum over a rollout is off by so much; below it, rounding would be what is seen.
            largest = max(map(abs, self.reward_range or (1.0,)))
            least = max(1e-100, 400.0 * (self.steps + 2) * 2.0**-53 * largest)
            if self.reward_range is not None and radius < least:
                raise InputError(
                    f"reward_radius {radius:g} is within the rounding errors of sums of rewards as "
                    f"large as {largest:g}: let it be at least {least:.2g}."
                )
            if not 1e-100 <= radius <= 1e100:
                raise InputError(
                    f"must be from 1e-100 to 1e100, not {radius:g}.", field="reward_radius"
                )
        if self.budget is None:
            return
        if self.budget.delta == 0.0:
            raise InputError("must have a delta above 0, for Gaussian noise.", field="budget")
        if self.radius is None:
            raise InputError(
                "is needed: by how much may two rewards differ that are not to be told apart?",
                field="reward_radius",
            )


# `FunctionalQ`'s settings of releases and planners that `ProspectQ` does not have.
UNUSED_BY_PROSPECT = ("iterations", "actor_step", "evaluations", "horizon")


@dataclass(frozen=True)
class ProspectQSpec(FunctionalQSpec):
    """The settings of Q-learning of CPT values; see `prospect_q`."""

    release: Literal["reward-model", "updates", "none"] = with_default(
        FunctionalQSpec, "release", "reward-model"
    )
    steps: int = with_default(
        FunctionalQSpec,
        "steps",
        5000,
        help="Steps of the rollout, which has to see every state that matters.",
    )
    planner: Literal["fitted", "network"] = with_default(
        FunctionalQSpec,
        "planner",
        "fitted",
        help="What makes a policy of released rewards, or which kind of Q is updated.",
    )
    iterations: int = with_default(FunctionalQSpec, "iterations", 30, python=True)
    actor_step: float = with_default(FunctionalQSpec, "actor_step", 10.0, python=True)
    evaluations: int = with_default(FunctionalQSpec, "evaluations", 1, python=True)
    horizon: int = with_default(FunctionalQSpec, "horizon", 3, python=True)
    prospect: "Prospect" = option(
        "Whose preferences: neutral, tversky-kahneman, rajabi2022, or a file .json.",
        "rajabi2022",
        kind=str,
    )
    samples: int = option("Successors drawn of each step.", 100, high=10**6)
    shrink: bool = option(
        "Replace released rewards of a table by posterior means, which is free; release "
        "reward-model.",
        True,
    )

    def __post_init__(self) -> None:
        from privrl.risk import parse_prospect

        object.__setattr__(self, "prospect", parse_prospect(self.prospect))
        super().__post_init__()
        for one in fields(self):
            if one.name in UNUSED_BY_PROSPECT and getattr(self, one.name) != one.default:
                raise InputError(f"{one.name} is a setting of FunctionalQ: leave it out.")

    @property
    def radius(self) -> float | None:
        if self.release == "updates" and self.reward_radius is None:
            assert self.reward_range is not None
            return self.reward_range[1] - self.reward_range[0]
        return self.reward_radius


@dataclass(frozen=True)
class LoggedQSpec(Spec):
    """The settings of Q-learning from logged trajectories; see `logged_q`."""

    # What is public about the table comes with the table (`TableOptions`) on the command line.
    num_actions: int = option("How many actions there can be.", REQUIRED, python=True)
    reward_range: tuple[float, float] = option(
        "What any reward could be, such as 0,1.", REQUIRED, python=True
    )
    budget: "Budget | None" = option("for each person", budget=True)
    features: "Features | Network | str | None" = option(FEATURES_HELP, kind=str, shown="table")
    num_states: int | None = option("How many states there can be.", python=True)
    gamma: float = option("Discount factor.", 0.95, low=0, high=1)
    updates: int = option("Gradient steps T; more of them need more noise in each.", 100)
    step: float = option("Learning rate; for a table, about the number of states.", 2.0, above=0)
    clip: float = option(
        "Clip norm C of a person in a step, in units of the largest reward.", 0.3, above=0
    )
    target_every: int = option("Steps between two copies of the target parameters.", 1)
    optimiser: Literal["sgd", "adam"] = option("What makes steps of the noised sums.", "sgd")
    average: float = option(
        "Last share of the steps to average the parameters over.", 0.5, low=0, high=1
    )
    state_range: str | None = option(STATE_RANGE_HELP, ranges=True)

    def __post_init__(self) -> None:
        self.check_fields()
        check_features("features", self.features)
        if max(map(abs, self.reward_range)) > 1e100:
            raise InputError("must lie between -1e100 and 1e100.", field="reward_range")
        if self.budget is not None:
            from privrl.privacy.promise import check_gaussian_budget

            check_gaussian_budget(self.budget)
        checks.count("num_actions", self.num_actions)
