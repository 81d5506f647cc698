"""The options of the certified actor-critic, each declared once."""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from privrl.control.feature_names import FEATURES_HELP, STATE_RANGE_HELP, check_features
from privrl.core.errors import InputError
from privrl.core.spec import Spec, option

if TYPE_CHECKING:
    from privrl.control.heads import Network
    from privrl.data import Features
    from privrl.privacy.promise import Budget
    from privrl.risk import Prospect

PROSPECT_OPTIONS = ("bins", "even_share", "forgetting")
"""Those that only an agent with a prospect has."""


@dataclass(frozen=True)
class ActorCriticSpec(Spec):
    """The settings of an actor-critic; see `privrl.control.actor_critic`."""

    variant: Literal["both", "actor", "critic", "none"] = option(
        "What is released: both, actor or critic; none: no noise, not private.", "both"
    )
    budget: "Budget | None" = option("for each person", budget=True)
    gamma: float | None = option("Discount factor.", low=0, high=1, shown="0.99; with a prospect 1")
    lambda_: float | None = option(
        "Decay of eligibility traces, lambda.", low=0, high=1, shown="0.9; with a prospect 1"
    )
    actor_step: float | None = option(
        "Step size of the policy: a batch moves it by at most this times the clip norm, but for "
        "noise.",
        low=0,
        shown="100; with a prospect 5",
    )
    critic_step: float | None = option("Step size of the values.", low=0, shown="1")
    clip: float | None = option(
        "Clip norm C of a person's increment; a small one keeps directions.",
        above=0,
        shown="0.03; with a prospect 2, so that rare returns stay large",
    )
    max_steps: int | None = option("Truncates episodes after so many steps.")
    features: "Features | Network | str | None" = option(FEATURES_HELP, kind=str, shown="table")
    critic_features: "Features | Network | str | None" = option(
        "Features of states for the critic.", kind=str, shown="those of the actor"
    )
    batch: int | None = option(
        "Batch size B: how many people act by the same policy.", shown="a fiftieth of them"
    )
    noise: Literal["auto", "independent", "correlated", "optimal"] = option(
        "Noise across batches; auto is the best for running sums.", "auto"
    )
    optimiser: Literal["sgd", "adam"] = option("What makes steps of the noised sums.", "sgd")
    schedule: Literal["constant", "linear"] = option(
        "Step sizes: constant, or linear down to 0.", "constant"
    )
    average: float = option(
        "Last share of the batches to average the parameters over.", 0.0, low=0, high=1
    )
    critic_weight: float = option(
        "Share of the clip norm for the critic, relative to the actor.", 0.1, above=0
    )
    entropy: float = option("Entropy bonus, in units of the return range.", 0.0, low=0)
    return_range: tuple[float, float] | None = option(
        "What a return could be, such as -200,20: increments are divided by its width."
    )
    curve: Literal["hidden", "paid"] = option(
        "Learning curve: hidden, or paid by a part of the clip norm.", "hidden"
    )
    curve_weight: float = option(
        "Share of the clip norm for a paid curve, or for a prospect's distribution of returns.",
        0.2,
        above=0,
        below=1,
    )
    prospect: "Prospect | None" = option(
        "Maximise a CPT value instead of the mean: neutral, tversky-kahneman, rajabi2022, or a "
        "file .json.",
        kind=str,
    )
    bins: int = option("Bins of the return range, with a prospect.", 20, high=1000)
    even_share: float = option(
        "Share of uniform probabilities mixed in, with a prospect.", 0.01, low=1e-6, below=1
    )
    forgetting: float = option(
        "Least share of the distribution of returns that a batch replaces, with a prospect.",
        0.1,
        low=0,
        high=1,
    )
    state_range: str | None = option(STATE_RANGE_HELP, ranges=True)

    def __post_init__(self) -> None:
        self.check_fields()
        self._check_budget()
        for name in ("features", "critic_features"):
            check_features(name, getattr(self, name))
        self._check_combinations()

    def _check_budget(self) -> None:
        if self.variant == "none":
            if self.budget is not None:
                raise InputError("The variant 'none' spends nothing: leave the budget out.")
        else:
            from privrl.privacy.promise import check_gaussian_budget

            check_gaussian_budget(self.budget)

    def _check_combinations(self) -> None:
        if self.prospect is None:
            for one in fields(self):
                if one.name in PROSPECT_OPTIONS and getattr(self, one.name) != one.default:
                    raise InputError(f"{one.name} belongs to a prospect: say one, or leave it out.")
        else:
            from privrl.risk import parse_prospect

            object.__setattr__(self, "prospect", parse_prospect(self.prospect))
        if self.return_range is None and (self.curve == "paid" or self.prospect is not None):
            what = "a paid curve" if self.prospect is None else "a prospect"
            raise InputError(f"is needed for {what}: say what returns are.", field="return_range")
        if self.noise in ("correlated", "optimal") and self.optimiser == "adam":
            raise InputError(
                "Correlated noise is for running sums, which Adam does not use: take sgd."
            )
