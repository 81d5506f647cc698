"""How `privrl train pgc` is run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from privrl.control.pgc.collection import CollectionProgram
from privrl.control.pgc.learned import LearnedPGC
from privrl.control.pgc.learner import PGC, Collector
from privrl.control.pgc.program import OneOf
from privrl.core.errors import InputError
from privrl.envs.host import HostEnvironment
from privrl.privacy.certificate import Claim
from privrl.run.logs import paths as log_paths
from privrl.run.parsing import number, positive_integer, refuse_missing
from privrl.run.runners.base import Env, EnvironmentRunner, Job, RunEnd
from privrl.run.runners.playing import play_program
from privrl.run.specs.pgc import CollectorSpec, PGCSpec
from privrl.run.training import CHECKPOINT, delete_checkpoint


@dataclass(frozen=True)
class CollectorRunner(CollectorSpec, EnvironmentRunner):
    """Options of private gradient collection, certified or as printed."""

    AGENT: ClassVar[type[Collector]]
    SETTINGS: ClassVar[tuple[str, ...]] = (
        *("submissions", "rate", "buffer", "decay", "optimiser", "staleness", "timing", "flight"),
        *("target", "score_share", "enough", "acting", "gamma", "activation", "control"),
    )
    """What the learner takes as it was given."""

    CHECKPOINTS: ClassVar[tuple[str, ...]] = (CHECKPOINT,)

    @property
    def progress_unit(self) -> str:
        return "reports"

    @property
    def count(self) -> int:
        if self.agents is None:
            refuse_missing(
                "agents",
                "how many agents report, such as 20000",
                "The less each may give away, the more of them it takes",
            )
        return self.agents * (self.submissions or 1)

    @property
    def no_curve_reason(self) -> str | None:
        if self.public:
            return None
        return "A log holds scores, which are about agents: say --public if they are no secret."

    def agent(self, env: Env) -> Collector:
        """The learner."""
        if self.enough is not None and self.target is None:
            raise InputError("enough is about a target: say --target and --score-share too.")
        given = {n: getattr(self, n) for n in self.SETTINGS if getattr(self, n) is not None}
        given["mechanism"] = self._chosen_mechanism()
        if self.hidden is not None:
            sizes = self.hidden.split(",")
            given["hidden"] = tuple(positive_integer("A size in hidden", size) for size in sizes)
        if self.scale is not None:
            each = self.scale.split(",")
            given["scale"] = tuple(number("A number in scale", one) for one in each)
        if self.vary is not None:
            given["dynamics"] = self._dynamics(env, self.vary)
        return self.AGENT(epsilon=self.epsilon, **given)

    def _chosen_mechanism(self) -> Any:
        words = (*(one for one in self.AGENT.MECHANISMS if one is not None), "none")
        if self.mechanism not in (*words, None):
            listed = ", ".join(words[:-1]) + f" or {words[-1]}"
            raise InputError(f"must be {listed}, not {self.mechanism!r}.", field="mechanism")
        if self.mechanism == "none":
            if self.epsilon is not None:
                raise InputError("The mechanism none spends nothing: leave --epsilon out.")
            return None
        if self.epsilon is None:
            refuse_missing(
                "epsilon",
                "the privacy budget of each agent, such as 1",
                "--mechanism none learns without noise, and protects nobody",
            )
        return self.mechanism or self.AGENT.mechanism

    def _dynamics(self, env: Env, word: str) -> OneOf:
        name, equals, values = word.partition("=")
        if not equals or not values:
            raise InputError(f"must be such as gravity=9.7,9.8,9.9, not {word!r}.", field="vary")
        if isinstance(env, HostEnvironment):
            raise InputError(f"{env.name} has no parameters that could vary: leave --vary out.")
        name = name.strip()
        return OneOf(env, name, tuple(number(name, one) for one in values.split(",")))

    def program(self, swept: Sequence[str] = ()) -> CollectionProgram:
        return self._agent_and_program(swept)[1]

    def _agent_and_program(self, swept: Sequence[str] = ()) -> tuple[Collector, CollectionProgram]:
        env = self.environment()
        agent = self.agent(env)
        if "buffer" in swept:
            # Stands in for those of the replicas.
            agent = replace(agent, buffer=1)
        if "baseline" in swept and isinstance(agent, PGC):
            agent = replace(agent, baseline=0.0)
        reports = self.count
        return agent, agent.program(env, reports // agent.submissions)

    # --- how it is run -------------------------------------------------------------------------

    def play(self, job: Job) -> RunEnd:
        if job.ledger is not None:
            raise InputError(
                "Each agent keeps a ledger of its own, and these are simulated: leave it out."
            )
        agent, program = self._agent_and_program()
        found = play_program(
            self,
            program,
            job,
            enough=partial(agent.should_stop, program),
            # Where agents answer, a run can end after each batch of answers.
            segment=None if program.answers is None else program.batch,
        )
        if found.ending != "finished":
            return RunEnd(None, found.episodes, found.planned)
        scores = np.asarray(found.seen["return"][0], np.float64) if found.seen else None
        try:
            learned = agent.make_result(program, found.state, scores, job.seed)
        except InputError:
            # It would end the same way again.
            delete_checkpoint(job.folder)
            raise
        return RunEnd(learned, found.episodes, found.planned)

    def write(self, learned: LearnedPGC, job: Job) -> dict[str, Path]:
        written = log_paths(job.folder, job.formats)
        written["policy"] = job.folder / "policy.json"
        learned.policy.save(written["policy"])
        return written

    def summarize(self, learned: LearnedPGC) -> tuple[list[str], list[str]]:
        settings = learned.settings
        lines = [f"{settings['env']}: a policy from {settings['reports']:,} reports of agents."]
        if settings["control"] == "zero":
            lines.append("  a control: all gradients counted as zero, so nothing was learned")
        scores = learned.scores
        if scores is not None:
            tenth = max(1, scores.size // 10)
            # Rewards may add up to infinities.
            with np.errstate(invalid="ignore", over="ignore"):
                first, last = np.mean(scores[:tenth]), np.mean(scores[-tenth:])
            lines.append(f"  mean score of the first tenth {first:.4g}, of the last {last:.4g}")
        if learned.reached is not None:
            share, error = learned.reached
            goal = f"{settings['target']:g}"
            # Noise can bring an estimate below nothing, or above all.
            shown = min(max(share, 0.0), 1.0)
            lines.append(f"  reached {goal}, by private answers: {shown:.0%} ± {error:.1%}")
            if settings["reports"] < settings["agents"] * settings["submissions"]:
                lines.append("  (which ended the run, and was chosen for being high)")
        elif scores is None:
            lines.append("  how well it does was not asked: see --target, or --public")
        promise = learned.promise
        notes = [] if isinstance(promise, str) else [learned.privacy_statement]
        if isinstance(promise, Claim):
            notes.append(f"The claim itself is no certificate: {promise.why_not}")
        return lines, notes


@dataclass(frozen=True)
class PGCRunner(PGCSpec, CollectorRunner):
    """Options of `privrl train pgc`."""

    AGENT: ClassVar[type[Collector]] = PGC
    SETTINGS: ClassVar[tuple[str, ...]] = (*CollectorRunner.SETTINGS, "baseline")
