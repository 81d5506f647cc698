"""The options about a table of logged decisions, and those of the commands that read one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from privrl.control.q_specs import LoggedQSpec
from privrl.core.spec import Spec, option, plain_json, with_default
from privrl.run.specs.base import Task

PolicySource = Literal["independent", "this-data", "unknown"]
BehaviorSource = Literal["logged", "estimated", "known-protocol", "unknown"]


@dataclass(frozen=True)
class TableOptions(Spec):
    """Which column is what, and what is public about the values."""

    table: tuple[str, ...] = option(
        "Parquet or CSV files, a pattern, or a folder: a row for each step.", (), argument=True
    )
    trajectory: str | None = option("Column: which trajectory a step is of.")
    user: str | None = option("Column: whose trajectory it is.")
    time: str | None = option("Column: the order of steps.")
    state: tuple[str, ...] | None = option("Columns, by commas: the state.")
    action: tuple[str, ...] | None = option("Column: the action taken.")
    reward: str | None = option("Column: the reward that followed.")
    terminated: str | None = option("Column, true or false: did the episode end here?")
    truncated: str | None = option("Column, true or false: was the episode cut off here?")
    next_state: tuple[str, ...] | None = option("Columns: the state after the step.")
    states: tuple[str, ...] | None = option("What states can be, by commas.")
    actions: tuple[str, ...] | None = option("What actions can be, in the policy's order.")
    num_states: int | None = with_default(LoggedQSpec, "num_states", None, python=False)
    num_actions: int | None = with_default(LoggedQSpec, "num_actions", None, python=False)
    reward_range: tuple[float, float] | None = with_default(
        LoggedQSpec, "reward_range", None, python=False
    )
    nulls: str | None = option(
        "refuse (default), carry (states), or by column: state=carry,reward=0,p=refuse."
    )
    invalid: Literal["refuse", "neutral"] | None = option(
        "What becomes of values that are not valid.", shown="refuse"
    )
    people: int | None = option(
        "How many people there are (trajectories, without --user): with neutral."
    )
    sort: bool = option("Sort the rows first.", False)


@dataclass(frozen=True)
class EvaluateOptions(TableOptions):
    """The value of a policy from a table of logged decisions, with differential privacy.

    Say what you have, and follow the answers: what is missing is asked for. The run's folder gets
    study.json, certificate.json and report.html. A run that was killed goes on with --out and
    --resume, on the same table, and pays nothing again.

    \b
    privrl evaluate stays.parquet --policy policy.json --epsilon 1 --delta 1e-6 \\
      --trajectory stay_id --user patient --time t --state hr,map --action dose \\
      --reward r --behavior-prob p --reward-range 0,1 --horizon 20 --weight-cap 10
    """

    epsilon: float | None = option("Privacy budget epsilon, for each person.", above=0)
    delta: float | None = option("Failure probability delta.", low=0, below=1)
    public: bool = option("The data is public: no noise is added.", False)
    gamma: float | None = option("Discount factor.", low=0, high=1, shown="1")
    policy: str | None = option("The policy to judge: a policy.json.")
    behavior_prob: str | None = option("Column: the probability of the action taken.")
    behavior: str | None = option("The policy that was followed, instead: a policy.json.")
    target_prob: str | None = option("Column, instead of --policy: its probabilities.")
    return_range: tuple[float, float] | None = option(
        "What any sum of rewards could be, if that is less."
    )
    horizon: int | None = option("How many steps count; needed unless gamma is below 1.")
    weight_cap: float | None = option("Cap on importance weights.", above=0)
    largest_ratio: float | None = option("What the policies' ratio can be at most.", above=0)
    level: float | None = option("Confidence of the intervals.", above=0, below=1, shown="0.95")
    state_range: str | None = option("What states could be, such as 30:200,40:140.", ranges=True)
    features: str | None = option("polynomial:2, fourier:3 or table, for values of states.")
    start: tuple[str, ...] | None = option("Known start states, such as 90:70,80:75.")
    estimators: str | None = option(
        "value, gtd, lstd, gpope, dplsw, dplsl, with shares of the budget: value:3,gtd:1."
    )
    return_bound: float | None = option("How large a return could be: gtd, dplsw, dplsl.", above=0)
    grid: bool = option("Integer noise: nothing assumed of arithmetic.", False)
    stream: bool = option("Read in parts, if larger than memory; gtd makes one pass.", False)
    policy_source: PolicySource | None = option("Was the policy learned from these people?")
    behavior_source: BehaviorSource | None = option("Where the logged probabilities come from.")
    title: str | None = option("The report's title.")
    target_name: str | None = option("What to call the policy.")
    behavior_name: str | None = option("What to call the old way.")
    said: tuple[str, ...] = field(default=(), compare=False)
    """The names of the options that were set."""

    def to_dict(self) -> dict[str, Any]:
        """The options that were set, in JSON's own types."""
        return plain_json({name: getattr(self, name) for name in self.said})


@dataclass(frozen=True)
class LoggedQTask(Task, TableOptions):
    """Learn a policy from a table of people's trajectories, with differential privacy.

    Say what you have, and follow the answers: what is missing is asked for. Judge the policy by
    privrl evaluate on other people before it is used.

    \b
    privrl train logged-q stays.parquet --trajectory stay_id --user patient \\
      --time t --state hr,map --state-range 30:200,40:140 --features fourier:2 \\
      --action dose --num-actions 3 --reward r --reward-range 0,1 \\
      --epsilon 1 --delta 1e-6 --out runs/dose
    """

    public: bool = with_default(Task, "public", False, help="The data is public; add no noise.")

    learner: ClassVar[str] = "logged-q"
    SPEC: ClassVar[type[Spec]] = LoggedQSpec
    RUNNER: ClassVar[str] = "privrl.run.runners.logged_q:LoggedQRunner"
    RUN: ClassVar[tuple[str, ...]] = ("ledger", "name")
    REFUSED: ClassVar[Mapping[str, str]] = {"env": "is not used: logged-q learns from a table."}
