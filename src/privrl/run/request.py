"""From words to a job: what `privrl evaluate` was told, checked, and answered with what is missing.

A `Request` holds the words of the command line and of a configuration file, which use the same
names. All that is needed and was not said is asked for at once, each option in a line that tells
what it is and what to type, with the table's own column names, so that whoever starts from a bare
table gets to a valid command by following the answers. Nothing is measured on the data to fill a
gap.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from privrl.control.feature_names import vector_features
from privrl.core.errors import InputError, option
from privrl.core.progress import Progress, no_progress
from privrl.core.questions import Question, ask
from privrl.core.spec import flag, number
from privrl.data import Features, OneHot, Policy, Trajectories, TrajectoryStream, load_policy
from privrl.data.sources import check_names
from privrl.data.stream import Totals, stream_parquet
from privrl.evaluation.steps import MOST_ROWS
from privrl.privacy.promise import Budget
from privrl.run import option_values as values
from privrl.run import table_files as tables
from privrl.run.evaluation import ON_POLICY, EvaluationSpec, evaluate
from privrl.run.facts import with_public_facts
from privrl.run.option_values import flag_or_name
from privrl.run.specs.base import option_of_file, over_config
from privrl.run.specs.table import EvaluateOptions
from privrl.run.study import Study

BY_TRAJECTORY = (
    "Each trajectory is protected by itself: name the column of people with --user if anybody can "
    "have several."
)


# A table may have thousands of columns, and a sentence not.
_MOST_COLUMNS = 30

# What readers of tables take as it was said.
_AS_SAID = (
    *("trajectory", "time", "user", "reward", "behavior_prob", "target_prob"),
    *("num_states", "num_actions", "invalid", "people"),
)
_COLUMN_QUESTIONS = {
    "trajectory": "which column tells one trajectory (a stay, an episode) from the next",
    "state": "which columns describe the situation before each decision, by commas",
    "action": "which column holds the decision that was taken",
    "reward": "which column holds the reward that followed",
}
_QUESTIONS: dict[str, tuple[str, str]] = {
    "policy": (
        "the file of the policy to judge",
        'For a table it holds {"format": "privrl-policy", "version": 1, "kind": "tabular", '
        '"table": [[0.5, 0.5], [0.9, 0.1]]}, a row of probabilities for each state; '
        "docs/trajectories.md has the other kinds. If the table has a column with the "
        "policy's probability of each logged action, say " + option("target_prob") + " instead",
    ),
    "behavior_prob": (
        "which column holds the probability with which the logged action was taken",
        "If a known protocol was followed, give it as a policy.json with " + option("behavior"),
    ),
    "epsilon": (
        "the privacy budget for each person, such as 1",
        "At 1, no conclusion about a person becomes more than e = 2.7 times as likely; "
        "for public data, say " + option("public", True),
    ),
    "delta": (
        "the failure probability of the promise, such as 1e-6",
        "It should be well below one in the number of people",
    ),
    "reward_range": (
        "the smallest and the largest that any reward could be, such as 0,1",
        "It is not measured, because that would give somebody away",
    ),
    "horizon": (
        "after how many steps to stop counting, such as 20",
        "Or discount later rewards, with " + option("gamma", 0.99),
    ),
    "weight_cap": (
        "how much one trajectory may count at most, such as 10",
        "More lets in more noise, less hides more of what the policy would do differently",
    ),
}


@dataclass(frozen=True)
class Request(EvaluateOptions):
    """The options of an evaluation, and the evaluation that they ask for."""

    @classmethod
    def of(cls, words: Mapping[str, Any], config: str | Path | None = None) -> "Request":
        """What was said on the command line, over what the configuration file says."""
        given = over_config({n: v for n, v in words.items() if v != ()}, config)
        found: dict[str, Any] = {}
        for name, value in given.items():
            one = option_of_file(cls.options(), name, "evaluate")
            found[name] = one.read(values.option_value(name, value))
        return cls(**found, said=tuple(given))

    # --- the data ---------------------------------------------------------------------------------

    @property
    def paths(self) -> list[Path]:
        """The files, all of them Parquet or all of them CSV."""
        return tables.table_files(self.table)

    def columns(self, policy: Policy | None) -> dict[str, Any]:
        """The keyword arguments of the reader."""
        ask(self.missing_columns())
        told: dict[str, Any] = {name: getattr(self, name) for name in _AS_SAID}
        told |= {name: flag_or_name(getattr(self, name)) for name in ("terminated", "truncated")}
        vectors = self.has_vector_states(policy)
        for name in ("action", "state", "next_state"):
            told[name] = values.scalar_or_list(getattr(self, name), vectors and name != "action")
        told["state_vocabulary"] = values.parse_codes(self.states)
        told["action_vocabulary"] = values.parse_codes(self.actions)
        if policy is not None and self.num_states is None and self.states is None and not vectors:
            told["num_states"] = policy.num_states
        if policy is not None and self.num_actions is None and self.actions is None:
            told["num_actions"] = policy.num_actions
        told |= self._null_rules()
        if self.public and self.invalid == "neutral":
            raise InputError("Data declared --public has nothing to hide: leave --invalid out.")
        return {name: value for name, value in told.items() if value is not None}

    def _null_rules(self) -> dict[str, Any]:
        """The rules for nulls by columns, as readers take them, and the values to fill with."""
        rules, fill = {}, {}
        for name, rule in values.null_rules(self.nulls or "").items():
            columns = self._columns_of(name) if name in values.COLUMNS else (name,)
            if not columns:
                raise InputError(f"--nulls names {name}, which no column was named for.")
            for column in columns:
                rules[column] = rule if rule in ("refuse", "carry") else "fill"
                if rules[column] == "fill":
                    fill[column] = self._null_value(column, rule)
        return {"nulls": rules, "fill": fill} if rules else {}

    def _null_value(self, column: str, text: str) -> str | float:
        """What nulls of a column are filled with: a word, if the column holds words."""
        if column in (self.trajectory, self.user, self.time):
            return text  # refused by the reader, whatever it is
        for columns, words in ((self.state, self.states), (self.action, self.actions)):
            if column in (columns or ()) and isinstance((values.parse_codes(words) or [0])[0], str):
                return text
        return number(f"What --nulls gives {column}", text)

    def load(self, policy: Policy | None) -> Trajectories | TrajectoryStream:
        """The trajectories, in memory or, if that was said, as a stream.

        Which algorithm runs follows from it, and the number of rows is private: so it decides
        nothing here.
        """
        paths, csv = self.paths, tables.is_csv(self.paths[0])
        if self.stream:
            if csv:
                raise InputError("--stream is for Parquet files: convert the CSV files first.")
            return stream_parquet(paths, sort=self.sort, **self.columns(policy))
        read = Trajectories.from_csv if csv else Trajectories.from_parquet
        data = read(paths, sort=self.sort, **self.columns(policy))
        if not self.public:
            tables.refuse_private_vocabulary(data)
        return data

    def check(self) -> Trajectories | Totals:
        """What the curator's validation finds: exact, and so private, like the refusals of it."""
        data = self.load(None)
        return data.check() if isinstance(data, TrajectoryStream) else data

    def has_vector_states(self, policy: Policy | None) -> bool:
        """Whether states are vectors, even if a single column of whole numbers."""
        if self.state is None or len(self.state) > 1 or self.state_range is not None:
            return True
        counted = self.states is not None or self.num_states is not None
        return not counted and policy is not None and policy.num_states is None

    def missing_columns(self) -> list[Question]:
        """The columns that are needed and were not named; those that were must be there."""
        names = [name for name, _ in tables.column_types(self.paths[0])]
        named = [column for role in values.COLUMNS for column in self._columns_of(role)]
        check_names(str(self.paths[0]), names, named)
        shown, more = ", ".join(names[:_MOST_COLUMNS]), len(names) - _MOST_COLUMNS
        hint = f"The columns are {shown}" + (f" and {more:,} more" if more > 0 else "")
        asked = _COLUMN_QUESTIONS.items()
        return [Question(role, text, hint) for role, text in asked if getattr(self, role) is None]

    def missing(self) -> list[Question]:
        """All that an evaluation needs and was not given, as far as it can be known by now."""
        needed = [] if self.public else ["epsilon", "delta", "reward_range"]
        if not self.on_policy:
            needed += [] if self.public else ["weight_cap"]
            needed += ["policy"] if self.target_prob is None else []
            needed += ["behavior_prob"] if self.behavior is None else []
        if self.gamma in (None, 1.0):
            needed.append("horizon")
        return [*self.missing_columns(), *self.unanswered(*needed), *self._missing_words()]

    @property
    def on_policy(self) -> bool:
        """Whether the policy that was followed is judged, whose ratios to itself are all 1."""
        shares = {} if self.estimators is None else values.estimator_shares(self.estimators)
        return not ON_POLICY.isdisjoint(shares)

    def _missing_words(self) -> Iterator[Question]:
        """What states and actions can be, where the types of their columns say that it is words."""
        text = [] if self.public else tables.text_columns(self.paths[0])
        for what in ("state", "action"):
            said, words = getattr(self, what), getattr(self, f"{what}s")
            if words is None and said is not None and len(said) == 1 and said[0] in text:
                yield tables.word_question(what)

    def unanswered(self, *names: str) -> list[Question]:
        asked = [name for name in _QUESTIONS if name in names and getattr(self, name) is None]
        return [Question(name, *_QUESTIONS[name]) for name in asked]

    def _columns_of(self, role: str) -> tuple[str, ...]:
        """The columns that were named for a role: true and false are none of the ends."""
        said = getattr(self, role)
        if said is None or (role in ("terminated", "truncated") and flag_or_name(said) != said):
            return ()
        return (said,) if isinstance(said, str) else tuple(said)

    # --- the question -----------------------------------------------------------------------------

    def load_policies(self) -> tuple[Policy | None, Policy | None]:
        """The one to judge and, if it was given, the one that was followed."""
        for first, second in (("policy", "target_prob"), ("behavior", "behavior_prob")):
            if getattr(self, first) is not None and getattr(self, second) is not None:
                raise InputError(
                    f"{flag(first)} and {flag(second)} say the same in two ways: leave one out."
                )
        target = None if self.policy is None else load_policy(self.policy)
        followed = None if self.behavior is None else load_policy(self.behavior)
        if target is not None and followed is not None:
            counts = target.num_actions, followed.num_actions
            if counts[0] != counts[1]:
                raise InputError(
                    f"The policy to judge has {counts[0]} actions, but the one that was followed "
                    f"has {counts[1]}: give both the same, in the same order."
                )
        return target, followed

    def _check_policies(self, *given: Policy | None) -> None:
        """Refuse policies over vectors of another length, before the table is read."""
        count = len(self.state or ())
        for one, file in zip(given, (self.policy, self.behavior), strict=True):
            if one is None or one.num_states is not None or not self.has_vector_states(one):
                continue
            try:
                shape = np.shape(one.probabilities(np.zeros((1, count))))
            except (InputError, ValueError):
                shape = ()
            if shape != (1, one.num_actions):
                raise InputError(
                    f"{file} is not about states of {count} columns: name with --state those it "
                    "is about, in its order."
                )

    def evaluation_spec(self, policy: Policy | None) -> EvaluationSpec:
        """What is asked, with everything that has to be public."""
        given = {one.name: getattr(self, one.name, None) for one in fields(EvaluationSpec)}
        given = {name: value for name, value in given.items() if value is not None}
        if self.public:
            # Without noise nothing needs a bound; then what stands in for one is not used.
            given = {"weight_cap": 1.0, "reward_range": (0.0, 1.0)} | given
        if self.on_policy:
            given = {"weight_cap": 1.0} | given
        features = self.state_features(policy)
        if features is not None and self.features is None and self.estimators is None:
            # Whoever did not ask for values of states goes without, where they cost too much.
            rows = features.dimension * (policy.num_actions if policy and self.public else 1)
            features = features if rows <= MOST_ROWS else None
        given["budget"], given["features"] = self.budget(), features
        if self.start is not None:
            vectors, count = self.has_vector_states(policy), getattr(features, "num_states", None)
            width = len(self.state or ())
            given["start"] = values.start_states(self.start, self.states, width, vectors, count)
        endless = self.gamma in (None, 1.0) and flag_or_name(self.terminated) in (None, False)
        functions = features is not None and not self.grid
        given["estimators"] = values.shares_of(
            self.estimators, functions=functions, endless=endless and not self.grid
        )
        first = Path(self.table[0]).name
        table = first if len(self.table) == 1 else f"{first} and more"
        other = "the logged policy" if self.on_policy else "another policy"
        judged = Path(self.policy).name if self.policy else other
        given.setdefault("title", f"The value of {self.target_name or judged}, from {table}")
        return EvaluationSpec(**given)

    def budget(self) -> Budget | None:
        """The privacy budget; None for public data."""
        if self.public:
            if self.epsilon is not None or self.delta is not None:
                raise InputError("Data declared --public has no --epsilon and --delta to spend.")
            return None
        ask(self.unanswered("epsilon", "delta"))
        assert self.epsilon is not None
        assert self.delta is not None
        return Budget(self.epsilon, self.delta)

    def state_features(self, policy: Policy | None) -> Features | None:
        """Features of states, for their values; None where too little was said for any."""
        if self.has_vector_states(policy):
            return vector_features(self.features, self.state_range, len(self.state or ()))
        count = len(self.states) if self.states else self.num_states
        count = count or (None if policy is None else policy.num_states)
        if (self.features or "table").partition(":")[0] != "table":
            raise InputError("features of discrete states are a table: say --features table.")
        return None if count is None else OneHot(count)

    # --- the answer -------------------------------------------------------------------------------

    def prepare(self) -> tuple[Policy | None, Policy | None, EvaluationSpec]:
        """Check whatever was said before a large table is read: policies and what is asked."""
        ask(self.missing())
        self.columns(None)
        policy, followed = self.load_policies()
        question = self.evaluation_spec(policy)
        off_policy = policy is not None or self.target_prob is not None
        said = [name for name in self.said if getattr(self, name) is not None]
        question.check_use(off_policy=off_policy, stream=self.stream, said=said)
        self._check_policies(policy, followed)
        return policy, followed, question

    def run_study(
        self,
        *,
        tried: Callable[[Study], object] = lambda _: None,
        progress: Progress = no_progress,
        **run: Any,
    ) -> Study:
        """Ask for what is missing, load, evaluate; `evaluate` says what the arguments are."""
        ledger, name = run.get("ledger"), run.get("run")
        if ledger is not None and name is not None and not run.get("resume"):
            ledger.refuse_existing_run(name)
        policy, followed, question = self.prepare()
        progress("loading")
        data = self.load(policy)
        if followed is not None:
            data = data.with_behavior(followed)
        if isinstance(data, TrajectoryStream) and self.invalid != "neutral":
            data = tables.with_progress(data, len(question.estimators), progress)
        study = evaluate(
            data,
            policy,
            question,
            behavior=followed,
            notes=self.notes(),
            command=self.command(),
            tables=self.paths,
            tried=lambda blank: tried(with_public_facts(blank, self, question)),
            progress=progress,
            **run,
        )
        return with_public_facts(study, self, question)

    def notes(self) -> tuple[str, ...]:
        """What the words alone call for: nothing here may depend on what is in the table."""
        notes = []
        if self.user is None:
            notes.append(BY_TRAJECTORY)
        if any(rule != "refuse" for rule in values.null_rules(self.nulls or "").values()):
            notes.append(f"Nulls, if there are any, are answered by the rule {self.nulls}.")
        return tuple(notes)

    def command(self) -> str:
        """The command line that asks the same again."""
        words = ["privrl", "evaluate", *map(str, self.table)]
        for name, one in self.options().items():
            value = getattr(self, name)
            # By identity: 0 is something to say, and equals False.
            if name != "table" and value is not None and value is not False:
                words += [one.flag] if value is True else [one.flag, values.as_typed(value)]
        return shlex.join(words)
