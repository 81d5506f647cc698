"""Private gradient collection (ono2020): local differential privacy (LDP) for many agents.

    agent = PGC(epsilon=1.0)
    agent.learn("CartPole", agents=20_000).policy

Each agent is sent the model, plays an episode in an environment of its own, and sends back one
randomised gradient; the aggregator adds reports up and moves the model (`aggregator`). Nobody but
the agent ever sees its episode.

**Unit**: one agent, with all that it saw and did, dynamics of its own included. **Relation**:
`LOCAL`, any agent against any other, in the eyes of whoever collects the reports. **Theorem**: an
agent's `submissions` reports (and answers, below) are pure epsilon-DP together (`privatiser` has
the proof), the models and the policy are made of reports and nothing else, so post-processing costs
nothing, and agents do not pay for each other. **Released**: each report. **Arithmetic**: "sign" and
answers are exact; "privunit" and "laplace" are 64-bit floating point here, and list it.

`learn` is a simulation (`program`): one program plays all agents, so the promise is about what
leaves it, and rests on its keeping episodes, scores and keys to itself. There is one certificate,
the same for each of the agents. No ledger pays, since each agent would keep its own. With several
`submissions` an agent counts as somebody else each time: its dynamics are drawn again.

Departures of `PGC` from the paper: actions are sampled, the baseline is a public constant and no
critic, gradients have unit length, noise is PrivUnit's, and steps are Adam's. As printed it is
`privrl.papers.ono2020.PGC`; `Collector` is what both share.

**Stopping early.** With a `target` and a `score_share` each agent also answers, by randomised
response with that share of its epsilon, whether its score reached the target. Whenever there are
enough new answers for a standard error of 0.05, and at least a thousand, their estimate says
whether to go on, which is post-processing. Each look is unbiased; the one that ends a run is not,
since it was chosen for being high.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from privrl.control import engine, loop
from privrl.control.pgc.collection import (
    CollectionProgram,
    CollectionProgramState,
    answers_needed,
    check_buffer,
)
from privrl.control.pgc.learned import LearnedPGC
from privrl.control.pgc.losses import Model
from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.program import OneOf, PGCProgram
from privrl.control.pgc.reports import Arm
from privrl.control.pgc.spec import CollectorSpec, PGCSpec, Timing
from privrl.control.program_training import ProgramTraining
from privrl.control.promises import Promise
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.spec import number
from privrl.core.types import Floats
from privrl.envs.base import Environment
from privrl.envs.control import CartPole
from privrl.envs.host import HostEnvironment
from privrl.envs.registry import make
from privrl.privacy.certificate import Assumption, Certificate
from privrl.privacy.mechanisms.sign import ProjectedSign
from privrl.privacy.mechanisms.unit_vector import LEAST_EPSILON, MOST_EPSILON, PrivUnit

Env = Environment[Any, Any] | HostEnvironment

NOT_PRIVATE = "Not private: without a mechanism gradients are reported as they are."

SIMULATED = Assumption(
    "the program that plays the agents keeps their episodes, how long it takes to play them, and "
    "the keys of their noise to itself",
    "not enforced: it is the caller's",
)
ALWAYS_REPORTS = Assumption(
    "an agent always reports, whatever its episode was like",
    "by the algorithm: a gradient that is not finite counts as zero before it is randomised",
)
TIMING: dict[Timing, Assumption] = {
    "fixed": Assumption(
        "how long an agent plays has no part in the order of reports, or in what anybody is sent",
        "by the algorithm: agents come in rounds, whose reports are kept until the last of them is "
        "done, and are then counted in an order that was fixed before",
    ),
    "open": Assumption(
        "nobody learns how long an agent played, or who was done first",
        "not enforced: reports are counted in the order in which episodes end",
    ),
}
PUBLIC_SCORES = Assumption(
    "scores and lengths of episodes are public: they are shown as they were, and nothing is "
    "promised about them",
    "not enforced: it is the caller's",
)

_MOST = 10**8


def default_settings(epsilon: float, dimension: int) -> dict[str, float]:
    """Settings where nothing was said; epsilon is that of one report, or infinity.

    A report of PrivUnit has some length L, and what it is about has length 1. The buffer is
    50 + L^2 / 4, so that the noise in the mean of a buffer has a length below 2 in the root mean
    square, at any epsilon and with any number of parameters; 50 is for the randomness of episodes.
    """
    noise = 0.0
    if math.isfinite(epsilon):
        # Other mechanisms have epsilons that PrivUnit has not.
        near = min(max(epsilon, LEAST_EPSILON), MOST_EPSILON)
        noise = PrivUnit(near, dimension, padded=dimension == 1).length ** 2
    return {"rate": 0.1, "buffer": round(50.0 + noise / 4.0), "decay": 1.0, "baseline": 25.0}


@dataclass(frozen=True)
class Collector(CollectorSpec, engine.Learner[LearnedPGC], ABC):
    """Agents who report randomised gradients, and what is learned from them; see the module."""

    CRITIC: ClassVar[bool] = False
    """Whether the model has a critic."""

    def varied_dynamics(self, env: Environment[Any, Any]) -> Any:
        """The dynamics of agents: those that were given, or by `vary`."""
        if self.vary is None:
            return self.dynamics
        name, equals, values = self.vary.partition("=")
        if not equals or not values:
            raise InputError(
                f"must be such as gravity=9.7,9.8,9.9, not {self.vary!r}.", field="vary"
            )
        name = name.strip()
        return OneOf(env, name, tuple(number(name, one) for one in values.split(",")))

    # --- what differs between them ----------------------------------------------------------------

    @property
    def _privatiser_options(self) -> dict[str, Any]:
        """How a `Privatiser` brings a gradient within its bound."""
        return {}

    @property
    def _noiseless_arm(self) -> Arm:
        """How agents report where there is no mechanism."""
        return Arm(None)

    @abstractmethod
    def _defaults(self, dimension: int) -> dict[str, float]:
        """The numbers of a run where none were said."""

    def _promise_of(self, certificate: Certificate, privatiser: Privatiser) -> Promise:
        """What the result carries, given the certificate of what ran."""
        return certificate

    # --- how agents report ------------------------------------------------------------------------

    def privatiser(self, dimension: int) -> Privatiser | None:
        """The plan that each agent follows; None without a mechanism."""
        if self.mechanism is None:
            return None
        assert self.epsilon is not None
        return Privatiser(
            self.epsilon,
            dimension,
            self.mechanism,
            self.submissions,
            score_share=self.score_share,
            **self._privatiser_options,
        )

    def arm(self, dimension: int) -> Arm:
        """That plan, compiled."""
        privatiser = self.privatiser(dimension)
        arm = self._noiseless_arm if privatiser is None else Arm.of(privatiser)
        return arm if self.control is None else replace(arm, gradient=self.control)

    def settings(self, dimension: int) -> dict[str, float]:
        """The numbers of one run, by name: those that were said, or their defaults."""
        plain = self._defaults(dimension)
        said = {name: getattr(self, name) for name in plain}
        found = {name: plain[name] if x is None else x for name, x in said.items()}
        return {**{name: float(x) for name, x in found.items()}, "gamma": float(self.gamma)}

    # --- learning ---------------------------------------------------------------------------------

    def training(
        self, env: Any, people: int | None = None, *, agents: int | None = None
    ) -> "CollectorTraining":
        """This learner with so many simulated `agents` (or `people`, which is the same) in `env`.

        A session that is public says that scores are nobody's secret, and keeps them.
        """
        if people is not None and agents is not None:
            raise InputError("Say how many agents there are once: leave people out.")
        made, count = make(env), agents if people is None else people
        count = 90_000 if count is None else count
        return CollectorTraining(self, made, self.program(made, count), count)

    def should_stop(self, program: CollectionProgram, state: Any) -> bool:
        """Whether a run may end, as far as the last answers tell; never where nobody is asked."""
        found = self._success_rate(program, state)
        if found is None:
            return False
        asked = int(program.num_answers(state.inside.aggregators.accepted)[0])
        return asked == program.batch and found[0] >= self.enough

    def _success_rate(
        self, program: CollectionProgram, state: CollectionProgramState
    ) -> tuple[float, float] | None:
        """Of the last who answered, how many reached the target, and the standard error; None where
        there are no answers."""
        privatiser = self.privatiser(program.program.model.dimension)
        if program.answers is None or privatiser is None:
            return None
        asked = int(program.num_answers(state.inside.aggregators.accepted)[0])
        if not asked:
            return None
        yes = int(state.yes[0])
        return privatiser.success_rate([True] * yes + [False] * (asked - yes))

    def program(self, env: Env, agents: int) -> CollectionProgram:
        """The whole run as a `Program`, of which an episode is one report."""
        if isinstance(env, HostEnvironment):
            raise InputError(
                f"{env.name} cannot be compiled, and agents are simulated many at a time: use an "
                "environment of privrl.envs."
            )
        dynamics = self.varied_dynamics(env)
        own = dynamics.env if isinstance(dynamics, OneOf) else env
        if own is not env and own != env:
            raise InputError("dynamics are of another environment than the one to learn in.")
        agents = checks.count("agents", agents)
        if agents * self.submissions > _MOST:
            raise InputError(f"Let there be at most {_MOST:,} reports in all.")
        model = Model(
            env.observation,
            env.num_actions,
            self.hidden,
            self.activation,
            critic=self.CRITIC,
            scale=self.scale,
        )
        program = PGCProgram(
            env,
            model,
            (self.arm(model.dimension),),
            agents * self.submissions,
            acting=self.acting,
            dynamics=dynamics,
            optimiser=self.optimiser,
            staleness=self.staleness,
            timing=self.timing,
            flight=self.flight,
            # What is certified is drawn by the exact law.
            quantile="newton",
        )
        if model.dimension * self.flight > _MOST:
            raise InputError(
                f"{self.flight:,} agents at the same time, each with {model.dimension:,} "
                "parameters, are too many: say fewer of either."
            )
        settings = self.settings(model.dimension)
        check_buffer(settings["buffer"], program.agents)
        privatiser = self.privatiser(model.dimension)
        answers = None
        if self.target is not None and privatiser is not None:
            answers = self.target, privatiser.score_epsilon
            least = answers_needed(privatiser.score_epsilon)
            if least > program.agents:
                raise InputError(
                    f"Answers of this epsilon tell something when there are {least:,} of them, and "
                    f"there are {program.agents:,}: say a larger score_share, or more agents."
                )
        return CollectionProgram(program, tuple(settings.items()), answers)

    def make_result(
        self,
        program: CollectionProgram,
        state: CollectionProgramState,
        scores: Floats | None,
        run: engine.Run,
    ) -> LearnedPGC:
        """What a run came to: `state` of its only replica, and the scores if they are public."""
        model, now = program.program.model, state.inside.aggregators
        theta = np.asarray(now.theta[0], np.float64)
        if not np.all(np.isfinite(theta)):
            raise engine.Diverged("The model grew without bound: use a smaller rate.")
        reports = int(now.accepted[0])
        told = {**self._settings_dict(program), "reports": reports, "seed": run.seed}
        return LearnedPGC(
            self._promise(model.dimension, run),
            model.policy(theta),
            scores,
            self._success_rate(program, state),
            told,
        )

    def _promise(self, dimension: int, run: engine.Run) -> Promise:
        privatiser = self.privatiser(dimension)
        if privatiser is None:
            return NOT_PRIVATE
        exact = isinstance(privatiser.plan, ProjectedSign)
        certificate = privatiser.certificate(
            (
                *(SIMULATED, ALWAYS_REPORTS, TIMING[self.timing]),
                *([PUBLIC_SCORES] if run.public else []),
                *run.opened.folder_assumptions,
            ),
            noise=run.source.key_origin,
            floating=not exact,
        )
        return self._promise_of(certificate, privatiser)

    # --- JSON -------------------------------------------------------------------------------------

    def _settings_dict(self, program: CollectionProgram) -> dict[str, Any]:
        """All settings as they were taken, for JSON."""
        inside = program.program
        told = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "vary"}
        varied: Any = inside.dynamics
        if isinstance(varied, OneOf):
            varied = {"parameter": varied.name, "values": list(varied.values)}
        elif varied is not None:
            varied = "the caller's"
        return {
            "env": inside.env.name,
            **told,
            **program.settings_by_name,
            "agents": inside.agents // self.submissions,
            "parameters": inside.model.dimension,
            "hidden": list(self.hidden),
            "scale": None if self.scale is None else list(self.scale),
            "dynamics": varied,
        }


class CollectorTraining(ProgramTraining):
    """Agents who report randomised gradients: a step is reports."""

    counted = "reports"
    NO_LEDGER = "Each agent keeps a ledger of its own, and these are simulated: leave it out."

    def __init__(self, spec: Collector, env: Env, program: CollectionProgram, agents: int) -> None:
        reports = program.program.agents
        super().__init__(spec, env, program, reports, agents)
        # Where agents answer, a run can end after each batch of answers.
        self.segment = program.batch
        if program.answers is None:
            self.segment = loop.even_segment(reports, loop.default_segment(reports))

    def is_enough(self, state: CollectionProgramState) -> bool:
        spec: Collector = self.spec
        return spec.should_stop(self.program, state)

    def result(self, state: CollectionProgramState, seen: loop.Seen, run: engine.Run) -> LearnedPGC:
        spec: Collector = self.spec
        scores = np.asarray(seen["return"][0], np.float64) if run.public else None
        return spec.make_result(self.program, state, scores, run)


@dataclass(frozen=True)
class PGC(PGCSpec, Collector):
    """Private gradient collection with settings that work; see the module."""

    def _defaults(self, dimension: int) -> dict[str, float]:
        privatiser = self.privatiser(dimension)
        # A buffer that was said does not depend on how long PrivUnit's reports would be.
        each = math.inf
        if privatiser is not None and self.buffer is None:
            each = privatiser.report_epsilon
        return default_settings(each, dimension)

    def program(self, env: Env, agents: int) -> CollectionProgram:
        if self.baseline is None and not isinstance(env, CartPole | HostEnvironment):
            raise InputError(
                "is needed: say a public number near the discounted return of a policy "
                f"that does not look, in {env.name}.",
                field="baseline",
            )
        return super().program(env, agents)
