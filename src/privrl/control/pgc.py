"""Private gradient collection (ono2020): agents who trust nobody teach one policy.

    agent = PGC(epsilon=1.0)
    agent.learn("CartPole", agents=20_000).policy

Each agent is sent the model, plays an episode in an environment of its own, and sends back one
randomised gradient; the aggregator adds reports up and moves the model (`aggregation`). Nobody but
the agent ever sees its episode.

**Unit**: one agent, with all that it saw and did, dynamics of its own included. **Relation**:
`LOCAL`, any agent against any other, in the eyes of whoever collects the reports. **Theorem**: an
agent's `submissions` reports (and answers, below) are pure epsilon-DP together (`privatiser` has
the proof), the models and the policy are made of reports and nothing else, so post-processing costs
nothing, and agents do not pay for each other. **Released**: each report. **Arithmetic**: "sign" and
answers are exact; "privunit" and "laplace" are 64-bit floating point here, and list it.

`learn` is a simulation (`pgc_program`): one program plays all agents, so the promise is about what
leaves it, and rests on its keeping episodes, scores and keys to itself. There is one certificate,
the same for each of the agents. No ledger pays, since each agent would keep its own. With several
`submissions` an agent counts as somebody else each time: its dynamics are drawn again.

mode="recipe" has sampled actions, a public constant as baseline, gradients of unit length, PrivUnit
and Adam. mode="paper" is the algorithm as printed (losses as `pgc_losses` reads them, greedy
actions with exploration that ends, a critic, plain gradient descent), with the paper's claim and,
since its noise is sound, the certificate of the run inside it.

**Stopping early.** With a `target` and a `score_share` each agent also answers, by randomised
response with that share of its epsilon, whether its score reached the target. Whenever there are
enough new answers for a standard error of 0.05, and at least a thousand, their estimate says
whether to go on, which is post-processing. Each look is unbiased; the one that ends a run is not,
since it was chosen for being high.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control.aggregation import Optimiser, Staleness
from privrl.control.pgc_losses import Activation, Model
from privrl.control.pgc_program import Acting, Arm, Dynamics, OneOf, PGCProgram, State, Timing
from privrl.control.privatiser import Mechanism, Privatiser
from privrl.control.promises import Promise, Promised, promise_from_dict, promise_to_dict
from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.core.progress import Counted
from privrl.core.types import Floats
from privrl.data import Policy
from privrl.data.policies import policy_from_dict
from privrl.envs.base import Environment
from privrl.envs.control import CartPole
from privrl.envs.host import HostEnvironment
from privrl.envs.registry import make
from privrl.privacy import claims
from privrl.privacy.certificate import Assumption, Claim
from privrl.privacy.mechanisms.sign import ProjectedSign, share
from privrl.privacy.mechanisms.sign_jax import truthful
from privrl.privacy.mechanisms.unit_vector import LEAST_EPSILON, MOST_EPSILON, PrivUnit
from privrl.privacy.promise import NoiseOrigin
from privrl.privacy.session import SECRET, PrivacySession

Env = Environment[Any, Any] | HostEnvironment

NOT_PRIVATE = "Not private: without a mechanism gradients are reported as they are."

SIMULATED = Assumption(
    "the program that plays the agents keeps their episodes, how long it takes to play them, and "
    "the keys of their noise to itself",
    "not enforced: it is the caller's",
)
TOTAL = Assumption(
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
SHOWN = Assumption(
    "scores and lengths of episodes are public: they are shown as they were, and nothing is "
    "promised about them",
    "not enforced: it is the caller's",
)

# How often a run tells how far it is.
_STOPS = 20
# So many answers at least are looked at together, and so many that the standard error is this.
_ANSWERS, _ERROR = 1000, 0.05
_MOST, _MOST_IN_FLIGHT = 10**8, 10**5
# No gradient is longer than this.
_ANY_NORM = 1e100
# The paper's C of either mechanism, and how many reports make an update.
_PRINTED: dict[Mechanism | None, tuple[float, int]] = {
    "laplace": (0.01, 1),
    "sign": (1.0, 100),
    None: (2.0 * _ANY_NORM, 1),
}
_PRINTED_SETTINGS = {"rate": 0.5, "decay": 0.0, "value_weight": 0.5, "entropy": 0.01}
_ONLY = {"recipe": ("baseline",), "paper": ("clip", "value_weight", "entropy")}


def answers_of(epsilon: float) -> int:
    """How many answers are looked at together, if each spends so much: a thousand, or as many as
    it takes for a standard error of 0.05."""
    edge = math.tanh(float(share(epsilon, 1)) / 2.0)
    return max(_ANSWERS, math.ceil((0.5 / (edge * _ERROR)) ** 2))


def recipe(epsilon: float, dimension: int) -> dict[str, float]:
    """Settings where nothing was said; epsilon is that of one report, or infinity.

    A report of PrivUnit has some length L, and what it is about has length 1. The buffer is
    50 + L^2 / 4, so that the noise in the mean of a buffer has a length below 2 in the root mean
    square, at any epsilon and with any number of parameters; 50 is for chance in the episodes.
    """
    noise = 0.0
    if math.isfinite(epsilon):
        # Other mechanisms have epsilons that PrivUnit has not.
        near = min(max(epsilon, LEAST_EPSILON), MOST_EPSILON)
        noise = PrivUnit(near, dimension, padded=dimension == 1).length ** 2
    return {"rate": 0.1, "buffer": round(50.0 + noise / 4.0), "decay": 1.0, "baseline": 25.0}


@dataclass(frozen=True)
class PGC:
    """Agents who report randomised gradients, and what is learned from them; see the module."""

    epsilon: float | None = None
    """What one agent spends in all; None where there is no mechanism."""

    mechanism: Mechanism | None = "privunit"
    """How a gradient is randomised: "privunit", "sign" or "laplace"; None for no noise, and no
    privacy. The paper's are the last two."""

    mode: Literal["recipe", "paper"] = "recipe"
    """What works, or what is printed."""

    hidden: tuple[int, ...] = (16,)
    """The sizes of the network's layers."""

    activation: Activation | None = None
    """By default "tanh", or in mode "paper" "relu"."""

    scale: tuple[float, ...] | None = None
    """Observations are divided by these public numbers; None for as they are."""

    submissions: int = 1
    """How many reports an agent sends, each with an equal share of epsilon."""

    rate: float | None = None
    """How far an update moves the model. By default `recipe`, or 0.5 in mode "paper"."""

    buffer: int | None = None
    """How many reports make an update. By default `recipe`, or in mode "paper" 1 for "laplace" and
    100 for "sign"."""

    decay: float | None = None
    """Of N reports in all, after n the rate is rate (1 - n / N)^decay. By default `recipe`, or 0 in
    mode "paper"."""

    acting: Acting | None = None
    """How agents choose: "sampled", by the policy's chances, or "greedy", the default in mode
    "paper": the likeliest action, with exploration that ends after 900 reports."""

    optimiser: Optimiser | None = None
    """By default "adam", or in mode "paper" "sgd"."""

    staleness: Staleness | None = None
    """Whether reports about old models count for less: by default "root", or in mode "paper"
    "none"."""

    timing: Timing | None = None
    """When agents report. "fixed", the default: when all of a round are done, in an order that was
    fixed before. "open", the default in mode "paper": when they are done themselves, which tells
    how long they played, and which the certificate then lists as not protected."""

    flight: int = 9
    """How many agents play at the same time."""

    dynamics: Dynamics | None = None
    """Of each agent's environment, such as `OneOf(env, "gravity", (9.7, 9.8, 9.9))`; None for the
    same for all."""

    control: Literal["zero"] | None = None
    """With "zero" all gradients count as zero: what the noise does by itself."""

    gamma: float = 0.99
    """The discount factor."""

    baseline: float | None = None
    """What a return is compared with, a public number near the return of a policy that does not
    look; by default 25 for the pole, and needed elsewhere. Mode "recipe"."""

    clip: float | None = None
    """The paper's C: gradients have L1 norm at most C / 2 with "laplace" or no mechanism,
    projections are within C with "sign". By default 0.01 with "laplace", 1 with "sign", and without
    a mechanism gradients are as they are. Mode "paper"."""

    value_weight: float | None = None
    """The paper's lambda, by default 0.5. Mode "paper"."""

    entropy: float | None = None
    """The paper's beta, by default 0.01. Mode "paper"."""

    target: float | None = None
    """The score about which agents answer."""

    score_share: float = 0.0
    """The part of each agent's epsilon that pays for its answers."""

    enough: float = 0.9
    """The run ends when this share of agents has reached the target, as far as answers tell."""

    def __post_init__(self) -> None:
        words: dict[str, tuple[Any, ...]] = {
            "mechanism": (*get_args(Mechanism), None),
            "mode": ("recipe", "paper"),
            "activation": (*get_args(Activation), None),
            "acting": (*get_args(Acting), None),
            "optimiser": (*get_args(Optimiser), None),
            "staleness": (*get_args(Staleness), None),
            "timing": (*get_args(Timing), None),
            "control": ("zero", None),
        }
        for name, allowed in words.items():
            # Arrays compare entry by entry, and are no word.
            said = getattr(self, name)
            if not (said is None or isinstance(said, str)) or said not in allowed:
                # None is for who says nothing, but for the mechanism.
                options = [one for one in allowed if one is not None or name == "mechanism"]
                listed = ", ".join(map(repr, options[:-1])) + " or " * (len(options) > 1)
                raise InputError(f"must be {listed}{options[-1]!r}, not {said!r}.", field=name)
        if self.paper and self.mechanism == "privunit":
            raise InputError(
                "mode 'paper' has no PrivUnit: say mechanism 'laplace' or 'sign', or None."
            )
        for name in _ONLY["recipe" if self.paper else "paper"]:
            if getattr(self, name) is not None:
                raise InputError(f"{name} does not belong to mode {self.mode!r}: leave it out.")
        self._check_numbers()
        self._check_budget()

    def _check_numbers(self) -> None:
        """Refuse what cannot be, and keep plain numbers, which JSON can hold."""

        def put(name: str, read: Callable[[str, object], Any]) -> None:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read(name, getattr(self, name)))

        def finite(name: str, value: object) -> float:
            found = checks.number(name, value)
            if not math.isfinite(found):
                raise InputError(f"must be finite, not {found:g}.", field=name)
            return found

        def each(read: Callable[[str, object], Any]) -> Callable[[str, object], Any]:
            def listed(name: str, value: object) -> Any:
                if not isinstance(value, tuple | list):
                    raise InputError(f"must be a list of numbers, not {value!r}.", field=name)
                return tuple(read(f"a number in {name}", one) for one in value)

            return listed

        for name in ("hidden", "submissions", "flight", "gamma", "score_share", "enough"):
            if getattr(self, name) is None:
                raise InputError("is needed: leave it out to have what is usual.", field=name)
        put("hidden", each(checks.count))
        put("scale", each(checks.positive))
        for name in ("submissions", "flight", "buffer"):
            put(name, checks.count)
        for name in ("epsilon", "rate", "clip"):
            put(name, checks.positive)
        for name in ("decay", "value_weight", "entropy", "gamma"):
            put(name, checks.non_negative)
        for name in ("baseline", "target"):
            put(name, finite)
        for name in ("enough", "score_share"):
            put(name, checks.probability)
        if self.gamma > 1.0:
            raise InputError(f"gamma must be at most 1, not {self.gamma:g}.")
        if self.flight > _MOST_IN_FLIGHT:
            raise InputError(f"At most {_MOST_IN_FLIGHT:,} agents can play at the same time.")
        if self.dynamics is not None:
            if not callable(self.dynamics):
                raise InputError("dynamics must be a function of a key, such as OneOf, or None.")
            try:
                hash(self.dynamics)
            except TypeError:
                raise InputError("dynamics must be hashable: give OneOf a tuple.") from None

    def _check_budget(self) -> None:
        if (self.target is None) != (self.score_share == 0.0):
            raise InputError("target and score_share belong together: say both, or neither.")
        if self.mechanism is None:
            if self.epsilon is not None:
                raise InputError("Without a mechanism nothing is spent: leave epsilon out.")
            if self.target is not None:
                raise InputError("Answers about a target are paid for by epsilon: say a mechanism.")
            return
        if self.epsilon is None:
            raise InputError("epsilon is needed: how much may be given away about each agent?")

    @property
    def paper(self) -> bool:
        """Whether it is as printed."""
        return self.mode == "paper"

    @property
    def _timing(self) -> Timing:
        return self.timing or ("open" if self.paper else "fixed")

    # --- how agents report ------------------------------------------------------------------------

    def privatiser(self, dimension: int) -> Privatiser | None:
        """The plan that each agent follows; None without a mechanism."""
        if self.mechanism is None:
            return None
        assert self.epsilon is not None
        given: dict[str, Any] = {}
        if self.paper:
            given["norm"] = "clip"
            if self.mechanism == "laplace":
                given["radius"] = self._clip / 2.0
            else:
                given |= {"clip": self._clip, "debias": False}
        return Privatiser(
            self.epsilon,
            dimension,
            self.mechanism,
            self.submissions,
            score_share=self.score_share,
            **given,
        )

    @property
    def _clip(self) -> float:
        return _PRINTED[self.mechanism][0] if self.clip is None else self.clip

    def arm(self, dimension: int) -> Arm:
        """The same, compiled."""
        gradient: Literal["own", "zero"] = "own" if self.control is None else self.control
        privatiser = self.privatiser(dimension)
        if privatiser is not None:
            return Arm.of(privatiser, gradient)
        if self.paper:
            return Arm(None, "clip", self._clip / 2.0, gradient)
        return Arm(None, gradient=gradient)

    def settings(self, dimension: int) -> dict[str, float]:
        """The numbers of one run, by name: those that were said, or the mode's."""
        if self.paper:
            plain = {**_PRINTED_SETTINGS, "buffer": _PRINTED[self.mechanism][1]}
        else:
            privatiser = self.privatiser(dimension)
            # A buffer that was said does not depend on how long PrivUnit's reports would be.
            each = math.inf
            if privatiser is not None and self.buffer is None:
                each = privatiser.report_epsilon
            plain = recipe(each, dimension)
        said = {name: getattr(self, name) for name in plain}
        found = {name: plain[name] if x is None else x for name, x in said.items()}
        return {**{name: float(x) for name, x in found.items()}, "gamma": float(self.gamma)}

    # --- learning ---------------------------------------------------------------------------------

    def learn(
        self,
        env: Any,
        agents: int = 90_000,
        *,
        session: PrivacySession = SECRET,
        progress: Counted | None = None,
    ) -> "LearnedPGC":
        """Learn from so many simulated agents in `env`, an environment or its name.

        A session that is public says that scores are nobody's secret, and keeps them.
        `progress(done, reports)` is called now and then.
        """
        if session.ledger is not None:
            raise InputError(
                "Each agent keeps a ledger of its own, and these are simulated: leave it out."
            )
        made = make(env)
        program = self.program(made, agents)
        planned = program.program.agents
        seen: list[Floats] = []
        done = 0
        with jax.enable_x64(True):
            state = program.init(session.source().key()[None], {})
            stride = -(-planned // _STOPS) if program.answers is None else program.batch
            while done < planned and not self.stops(program, state):
                size = min(stride, planned - done)
                state, played = program.advance(state, size)
                done += size
                if session.public:
                    seen.append(np.asarray(played["return"][0], np.float64))
                if progress is not None:
                    progress(done, planned)
        curve = np.concatenate(seen) if session.public else None
        return self.learned(program, state, curve, session.seed)

    def stops(self, program: "CollectionProgram", state: Any) -> bool:
        """Whether a run may end, as far as the last answers tell; never where nobody is asked."""
        found = self._reached(program, state)
        asked = int(program.asked(state.inside.aggregators.accepted)[0])
        return found is not None and asked == program.batch and found[0] >= self.enough

    def _reached(
        self, program: "CollectionProgram", state: "Collection"
    ) -> tuple[float, float] | None:
        """Of the last who answered, how many reached the target, and the standard error; None where
        there are no answers."""
        privatiser = self.privatiser(program.program.model.dimension)
        asked = int(program.asked(state.inside.aggregators.accepted)[0])
        if program.answers is None or privatiser is None or not asked:
            return None
        yes = int(state.yes[0])
        return privatiser.share_reached([True] * yes + [False] * (asked - yes))

    def program(self, env: Env, agents: int) -> "CollectionProgram":
        """The whole run as a `Program`, of which an episode is one report."""
        if isinstance(env, HostEnvironment):
            raise InputError(
                f"{env.name} cannot be compiled, and agents are simulated many at a time: use an "
                "environment of privrl.envs."
            )
        own = self.dynamics.env if isinstance(self.dynamics, OneOf) else env
        if own is not env and own != env:
            raise InputError("dynamics are of another environment than the one to learn in.")
        agents = checks.count("agents", agents)
        if agents * self.submissions > _MOST:
            raise InputError(f"Let there be at most {_MOST:,} reports in all.")
        if not self.paper and self.baseline is None and not isinstance(env, CartPole):
            raise InputError(
                "baseline is needed: say a public number near the discounted return of a policy "
                f"that does not look, in {env.name}."
            )
        model = Model(
            env.observation,
            env.num_actions,
            self.hidden,
            self.activation or ("relu" if self.paper else "tanh"),
            critic=self.paper,
            scale=self.scale,
        )
        program = PGCProgram(
            env,
            model,
            (self.arm(model.dimension),),
            agents * self.submissions,
            acting=self.acting or ("greedy" if self.paper else "sampled"),
            dynamics=self.dynamics,
            optimiser=self.optimiser or ("sgd" if self.paper else "adam"),
            staleness=self.staleness or ("none" if self.paper else "root"),
            timing=self._timing,
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
        _check_buffer(settings["buffer"], program.agents)
        privatiser = self.privatiser(model.dimension)
        answers = None
        if self.target is not None and privatiser is not None:
            answers = self.target, privatiser.score_epsilon
            least = answers_of(privatiser.score_epsilon)
            if least > program.agents:
                raise InputError(
                    f"Answers of this epsilon tell something when there are {least:,} of them, and "
                    f"there are {program.agents:,}: say a larger score_share, or more agents."
                )
        return CollectionProgram(program, tuple(settings.items()), answers)

    def learned(
        self,
        program: "CollectionProgram",
        state: "Collection",
        scores: Floats | None,
        seed: int | None,
    ) -> "LearnedPGC":
        """What a run came to: `state` of its only lane, and the scores if they are public."""
        model, now = program.program.model, state.inside.aggregators
        theta = np.asarray(now.theta[0], np.float64)
        if not np.all(np.isfinite(theta)):
            raise InputError("The model grew without bound: use a smaller rate.")
        reports = int(now.accepted[0])
        told = {**self._described(program), "reports": reports, "seed": seed}
        return LearnedPGC(
            self._promise(model.dimension, seed, public=scores is not None),
            model.policy(theta),
            scores,
            self._reached(program, state),
            told,
        )

    def _promise(self, dimension: int, seed: int | None, *, public: bool) -> Promise:
        privatiser = self.privatiser(dimension)
        if privatiser is None:
            return NOT_PRIVATE
        exact = isinstance(privatiser.plan, ProjectedSign)
        certificate = privatiser.certificate(
            (SIMULATED, TOTAL, TIMING[self._timing], *([SHOWN] if public else [])),
            noise=NoiseOrigin.SECURE_KEY if seed is None else NoiseOrigin.REPRODUCIBLE,
            floating=not exact,
        )
        if not self.paper:
            return certificate
        each = privatiser.report_epsilon
        claim = (
            claims.ono2020_laplace(each, self._clip, self.submissions)
            if self.mechanism == "laplace"
            else claims.ono2020_sign(each, dimension, self.submissions)
        )
        covers = "It is for all that one agent sends in this run."
        return replace(claim, certified=certificate, covers=covers)

    # --- JSON -------------------------------------------------------------------------------------

    def _described(self, program: "CollectionProgram") -> dict[str, Any]:
        """All settings as they were taken, for JSON."""
        inside = program.program
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        varied: Any = self.dynamics
        if isinstance(varied, OneOf):
            varied = {"parameter": varied.name, "values": list(varied.values)}
        elif varied is not None:
            varied = "the caller's"
        return {
            "env": inside.env.name,
            **told,
            **program.own,
            "agents": inside.agents // self.submissions,
            "parameters": inside.model.dimension,
            "activation": inside.model.activation,
            "acting": inside.acting,
            "optimiser": inside.optimiser,
            "staleness": inside.staleness,
            "timing": inside.timing,
            "clip": self._clip if self.paper and self.mechanism else self.clip,
            "hidden": list(self.hidden),
            "scale": None if self.scale is None else list(self.scale),
            "dynamics": varied,
        }


def _check_buffer(buffer: float, reports: int) -> None:
    """Refuse a model that would never move."""
    if buffer > reports:
        raise InputError(
            f"An update takes {buffer:,.0f} reports, and there are {reports:,}: say more agents, "
            "or a smaller buffer."
        )


def _check_swept(name: str, values: Any) -> None:
    """Refuse what `PGC` would refuse, in settings of lanes."""
    rules: dict[str, tuple[str, Any]] = {
        "buffer": ("a whole number of at least 1", (values >= 1.0) & (values == np.floor(values))),
        "rate": ("positive", values > 0.0),
        "gamma": ("from 0 to 1", (values >= 0.0) & (values <= 1.0)),
        "baseline": ("finite", True),
    }
    kind, fits = rules.get(name, ("zero or more", values >= 0.0))
    if not np.all(fits & np.isfinite(values)):
        raise InputError(f"must be {kind} in every lane.", field=name)


class Collection(NamedTuple):
    """Where the lanes of a `CollectionProgram` stand: **private**."""

    inside: State
    yes: Any
    """(lanes,): how many of the last `asked` agents answered yes; these are not private."""


@dataclass(frozen=True)
class CollectionProgram:
    """A `PGCProgram` with values for the settings that lanes do not have, and with answers."""

    program: PGCProgram
    settings: tuple[tuple[str, float], ...]
    answers: tuple[float, float] | None = None
    """The score that agents are asked about, and the epsilon of one answer; None: nobody is."""

    @property
    def own(self) -> dict[str, float]:
        """The settings, by name."""
        return dict(self.settings)

    @property
    def sweepable(self) -> tuple[str, ...]:
        return self.program.sweepable

    @property
    def batch(self) -> int:
        """Answers are looked at so many at a time."""
        return 1 if self.answers is None else answers_of(self.answers[1])

    def init(self, keys: jax.Array, settings: Mapping[str, Any]) -> Collection:
        for name, x in settings.items():
            if not isinstance(x, jax.core.Tracer):
                _check_swept(name, np.asarray(x))
                if name == "buffer":
                    _check_buffer(float(np.max(x)), self.program.agents)
        plain = {name: jnp.full(keys.shape[0], x) for name, x in self.settings}
        inside = self.program.init(keys, {**plain, **settings})
        return Collection(inside, jnp.zeros(keys.shape[0], jnp.int32))

    def advance(self, state: Collection, episodes: int) -> tuple[Collection, dict[str, jax.Array]]:
        before = state.inside.aggregators.accepted
        inside, seen = self.program.advance(state.inside, episodes)
        if self.answers is None:
            return Collection(inside, state.yes), seen
        told = _answers(self.answers, inside.noise, before, seen["return"])
        number = before[:, None] + jnp.arange(episodes)
        # Since when answers are counted: those of a batch that is whole until the next begins.
        now = inside.aggregators.accepted
        since = now - self.asked(now)
        kept = jnp.where(before - self.asked(before) == since, state.yes, 0)
        fresh = jnp.sum(told & (number >= since[:, None]), axis=1)
        return Collection(inside, (kept + fresh).astype(jnp.int32)), seen

    def asked(self, reports: Any) -> Any:
        """Of how many answers `yes` tells after so many reports: at most a batch."""
        return jnp.where(reports > 0, (reports - 1) % self.batch + 1, 0)


@partial(jax.jit, static_argnums=0)
def _answers(asked: tuple[float, float], noise: jax.Array, first: Any, scores: Any) -> Any:
    """(lanes, agents): what agents with these scores say, the first of which have these numbers.

    Randomised response, exact: a coin of its own for each agent, from the lane's key of the noise.
    """
    target, epsilon = asked
    coin = share(epsilon, 1)

    def of_lane(noise: jax.Array, first: Any, scores: Any) -> Any:
        # No report has this number.
        apart = jax.random.fold_in(noise, jnp.uint32(2**32 - 1))
        number = (first + jnp.arange(scores.size)).astype(jnp.uint32)
        keys = jax.vmap(partial(jax.random.fold_in, apart))(number)
        honest = jax.vmap(lambda key: truthful(key, coin, ()))(keys)
        # A score that is not a number is no. Targets may be beyond what 32 bits hold.
        return (scores.astype(jnp.float64) >= target) == honest

    return jax.vmap(of_lane)(noise, first, scores)


# --- what was learned -----------------------------------------------------------------------------

_KIND, _FORMAT = "privrl collected policy", 1


def first_success(scores: Any, target: float = 195.0, window: int = 10) -> int | None:
    """After how many reports the mean of the last `window` scores first was at least `target`."""
    values, window = np.ravel(np.asarray(scores, np.float64)), checks.count("window", window)
    if values.size < window:
        return None
    # What is not a number, or no end of it, is no success, and neither are sums that are none.
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.mean(np.lib.stride_tricks.sliding_window_view(values, window), axis=-1)
    met = np.isfinite(means) & (means >= target)
    return int(np.argmax(met)) + window if np.any(met) else None


def sustained(scores: Any, target: float = 195.0, window: int = 1000) -> bool:
    """Whether the mean of the last `window` scores is at least `target`."""
    values, window = np.ravel(np.asarray(scores, np.float64)), checks.count("window", window)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.mean(values[-window:]) if values.size >= window else np.nan
    return bool(np.isfinite(mean) and mean >= target)


@dataclass(frozen=True, eq=False)
class LearnedPGC(Promised):
    """A policy that agents taught, and the promise to each of them."""

    promise: Promise
    policy: Policy
    scores: Floats | None = None
    """Of each report's episode, in order; only if they are public."""

    reached: tuple[float, float] | None = None
    """The share of the last agents who reached the target, as far as answers tell, and its standard
    error."""

    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", MappingProxyType(dict(self.settings)))

    @property
    def protects(self) -> str:
        """In a sentence or two: what is protected, how far, and what is not."""
        if isinstance(self.promise, str):
            return self.promise
        found = self.promise
        if isinstance(found, Claim):
            assert found.certified is not None
            found = found.certified
        count = self.settings["submissions"]
        told = "its report" if count == 1 else f"its {count} reports"
        told += "" if self.settings["target"] is None else " and what it answers"
        shown = (
            "" if self.scores is None else " Scores and lengths of episodes were declared public."
        )
        opened = "; not protected is when it reports" if self.settings["timing"] == "open" else ""
        begin = "Protected is"
        if self.settings["seed"] is not None:
            begin = "With secret noise, and not from a seed, protected would be"
        return (
            f"{begin} each agent, with all that it saw and did, against whoever collects {told}, "
            f"with epsilon {found.epsilon:.4g}{opened}.{shown}"
        )

    def predict(self, states: Any) -> Floats:
        """How likely each action is in each state: (n, A)."""
        return np.asarray(self.policy.probabilities(np.asarray(states)), np.float64)

    def first_success(self, target: float = 195.0, window: int = 10) -> int | None:
        """After how many reports the mean of the last `window` scores first was at least `target`;
        None if never."""
        return first_success(self._public_scores, target, window)

    def sustained(self, target: float = 195.0, window: int = 1000) -> bool:
        """Whether the mean of the last `window` scores is at least `target`."""
        return sustained(self._public_scores, target, window)

    @property
    def _public_scores(self) -> Floats:
        if self.scores is None:
            raise InputError("Scores were not kept: they are about agents, unless public=True.")
        return self.scores

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        scores = self.scores
        return {
            "kind": _KIND,
            "format": _FORMAT,
            "promise": promise_to_dict(self.promise),
            "policy": self.policy.to_dict(),
            # JSON has no infinities, which rewards may add up to.
            "scores": None
            if scores is None
            else [x if math.isfinite(x) else None for x in scores.tolist()],
            "reached": None if self.reached is None else list(self.reached),
            "settings": dict(self.settings),
        }

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, wholly or not at all."""
        files.write_json(path, self.to_dict())

    @classmethod
    def load(cls, path: str | Path) -> "LearnedPGC":
        """The result that `save` wrote."""
        data = files.read_json(path, _KIND, _FORMAT, "what PGC learned")
        try:
            scores, reached = data["scores"], data["reached"]
            missing = {"submissions", "target", "timing", "seed"} - set(data["settings"])
            if missing or np.ndim([] if scores is None else scores) != 1:
                raise ValueError
            return cls(
                promise=promise_from_dict(data["promise"]),
                policy=policy_from_dict(data["policy"]),
                scores=None if scores is None else np.array(scores, np.float64),
                reached=None if reached is None else (float(reached[0]), float(reached[1])),
                settings=dict(data["settings"]),
            )
        except (KeyError, TypeError, ValueError, IndexError):
            raise InputError(f"{str(path)!r} is damaged.") from None
