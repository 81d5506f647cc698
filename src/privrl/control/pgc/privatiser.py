"""What leaves an agent: one randomised gradient, and if asked for one randomised yes or no.

Local differential privacy (LDP): an agent plays with the model that it was sent, computes a
gradient, and sends

    payload  =  mechanism(row(gradient))  [ +  coin(reached) ]

in bytes of a fixed number. `Privatiser` is the public plan, which agents and aggregator share;
`Agent` is the one who counts what has been sent, and sends no more than was agreed.

**Theorem.** Unit: one agent. Relation: local, any inputs against any others, and inputs are all
that the agent knows: its episodes, its dynamics, whether anything went wrong. Released: all its
payloads. Together they are pure epsilon-DP, whatever the models were that it was sent, even if the
aggregator chose each of them after reading the payloads before.

*Proof.* `rows` maps whatever it is given, in whatever way it is broken, to a vector of `dimension`
finite numbers: what is not such a vector is the zero vector. So two inputs are two rows, and given
the payloads before, a report has laws at most e^r apart (the proofs are the mechanisms': `PrivUnit`
and `ProjectedSign` for any two rows, `GridLaplaceReport` because it clips), a score laws at most
e^s apart (randomised response). Their randomness is fresh, so a payload costs r + s, and T payloads
one after the other T (r + s) by adaptive composition; `split_epsilon` makes that at most epsilon in
exact arithmetic. Everything the aggregator does with payloads is post-processing.

What this rests on, and the code cannot see: that the agent submits whenever the plan says so, since
silence would be an output; that nobody watches how long an episode takes; that bytes which are lost
are sent again as they were, and never drawn anew; and that an agent is not started twice with the
same budget (`Agent.spent` is for its owner to keep, on disk before anything is sent).

Arithmetic: "laplace" (on a grid), "sign" and scores are exact. "privunit" lists "idealised real
arithmetic" (`idealises_arithmetic`).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fractions import Fraction
from threading import Lock
from types import ModuleType
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from privrl.control.pgc.spec import Mechanism
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.certificate import IDEALISED_ARITHMETIC, Assumption, Certificate
from privrl.privacy.events import Event, PureDP, RandomizedResponse
from privrl.privacy.mechanisms.report_laplace import GridLaplaceReport
from privrl.privacy.mechanisms.sign import ProjectedSign, bernoulli_sigmoid, epsilon_share
from privrl.privacy.mechanisms.unit_vector import LEAST_EPSILON, MOST_EPSILON, PrivUnit
from privrl.privacy.noise import Source, as_float64, secure
from privrl.privacy.promise import NoiseOrigin, Relation, Release, Unit

Norm = Literal["unit", "clip"]

PUBLIC_SETTINGS = Assumption(
    "all settings were chosen without looking at the agents", "not enforced: they are the caller's"
)
DEPLOYMENT_ASSUMPTIONS = (
    Assumption(
        "an agent always reports, whatever its episode was like",
        "not enforced: `Agent.submit` takes whatever it is given, so let what failed be None",
    ),
    Assumption(
        "nobody learns how long an agent played, or who was done first",
        "not enforced: let agents wait until the longest episode could have ended",
    ),
    Assumption(
        "bytes that are lost are sent again as they were, and nobody starts twice with one budget",
        "not enforced: an agent's owner keeps its bytes, and `Agent.spent`, before they are sent",
    ),
)
"""What the promise to agents that are not simulated rests on, beside the plan."""

# Whether NumPy raises where numbers overflow or vanish is set for a whole process. Here that would
# be an output.
_ignore_float_errors = np.errstate(all="ignore")

# An honest Laplace report has a coordinate beyond what is accepted less than once in so many.
_REJECTION_ODDS = 1e12


def split_epsilon(epsilon: float, submissions: int, score_share: float) -> tuple[float, float]:
    """What a report and what a score may spend: T (report + score) <= epsilon, exactly."""
    score = score_share * (epsilon / submissions)
    exact = Fraction(epsilon) / submissions - Fraction(score)
    report = float(exact)
    # Rounded down, so that the sum is not above epsilon by a last digit.
    return (math.nextafter(report, 0.0) if Fraction(report) > exact else report), score


def normalise(xp: ModuleType, rows: Any) -> Any:
    """Each finite row divided by its L2 norm, for NumPy and JAX alike; zeros stay zeros."""
    largest = xp.max(xp.abs(rows), axis=-1, keepdims=True)
    # Divided first, so that no square overflows or vanishes.
    scaled = rows / xp.where(largest > 0.0, largest, 1.0)
    length = xp.sqrt(xp.sum(scaled * scaled, axis=-1, keepdims=True))
    return scaled / xp.where(length > 0.0, length, 1.0)


@dataclass(frozen=True)
class Privatiser:
    """How agents report: `submissions` payloads of each, which together cost it `epsilon`."""

    epsilon: float
    """What one agent spends in all."""

    dimension: int
    """How many numbers a gradient has."""

    mechanism: Mechanism = "privunit"
    """PrivUnit, the paper's projected sign, or the paper's Laplace noise on a grid."""

    submissions: int = 1
    """How many payloads an agent sends; each has an equal share of epsilon."""

    norm: Norm = "unit"
    """With "unit" gradients are brought to L2 norm `radius`, with "clip" the mechanism clips."""

    radius: float = 1.0
    """The largest norm of a row: L2 for PrivUnit, L1 for Laplace (the paper's C/2). The sign
    mechanism clips to nothing but `clip`, and takes this for the norm that rows have."""

    clip: float = 1.0
    """Projections of the sign mechanism are within this (the paper's C)."""

    debias: bool = True
    """Whether the sign mechanism makes up for what it shrinks; the paper does not."""

    score_share: float = 0.0
    """The part of each submission's epsilon that goes to "reached the target"; 0 for no scores."""

    report_epsilon: float = field(init=False, repr=False, compare=False)
    """What one report spends."""

    score_epsilon: float = field(init=False, repr=False, compare=False)
    """What one score spends."""

    plan: PrivUnit | ProjectedSign | GridLaplaceReport = field(
        init=False, repr=False, compare=False
    )
    """The mechanism of one report."""

    def __post_init__(self) -> None:
        positive, count = checks.positive, checks.count
        checks.set_checked(self, epsilon=positive, dimension=count, submissions=count)
        checks.set_checked(self, radius=positive, clip=positive, score_share=checks.probability)
        checks.set_checked(self, debias=checks.boolean)
        checks.choice("mechanism", self.mechanism, get_args(Mechanism))
        checks.choice("norm", self.norm, get_args(Norm))
        report, score = split_epsilon(self.epsilon, self.submissions, self.score_share)
        if score:
            epsilon_share(score, 1)  # raises if it is too small for a coin
        object.__setattr__(self, "report_epsilon", report)
        object.__setattr__(self, "score_epsilon", score)
        object.__setattr__(self, "plan", self._plan())
        if not self.max_norm < 1e100:
            raise InputError(
                "A report of this plan may be longer than 10^100: take a smaller radius or clip, "
                "or a larger epsilon."
            )

    def _plan(self) -> PrivUnit | ProjectedSign | GridLaplaceReport:
        epsilon, d = self.report_epsilon, self.dimension
        if self.mechanism == "privunit":
            if not LEAST_EPSILON <= epsilon <= MOST_EPSILON:
                raise InputError(
                    f"Each report would have an epsilon of {epsilon:g}, and with privunit it must "
                    f"be between {LEAST_EPSILON:g} and {MOST_EPSILON:g}: say another epsilon, "
                    "other submissions or another score_share."
                )
            # Padding tells how long a row is, which is known of unit rows; but in one dimension.
            return PrivUnit(epsilon, d, self.radius, padded=self.norm == "clip" or d == 1)
        if self.mechanism == "sign":
            return ProjectedSign(epsilon, d, self.clip, self.debias, self.radius)
        return GridLaplaceReport(epsilon, d, self.radius)

    def to_dict(self) -> dict[str, Any]:
        """What the plan was made of, as JSON."""
        return {one.name: getattr(self, one.name) for one in fields(self) if one.init}

    # --- what is promised -------------------------------------------------------------------------

    @property
    def event(self) -> Event:
        """What all payloads of an agent cost it together."""
        return PureDP(self.epsilon, relation=Relation.LOCAL)

    @property
    def report_events(self) -> tuple[Event, ...]:
        """What one payload costs its agent."""
        score = (RandomizedResponse(self.score_epsilon),) if self.score_epsilon else ()
        return (self.plan.event, *score)

    @property
    def idealises_arithmetic(self) -> bool:
        """Whether the proof of the mechanism idealises its arithmetic."""
        return isinstance(self.plan, PrivUnit)

    def certificate(
        self,
        assumptions: Sequence[Assumption] = DEPLOYMENT_ASSUMPTIONS,
        *,
        noise: NoiseOrigin = NoiseOrigin.NOT_DRAWN,
        floating: bool | None = None,
    ) -> Certificate:
        """The promise to each agent who follows the plan, and what it rests on.

        `assumptions` are about whoever plays and carries the messages, `noise` says where the
        agents' noise came from (a plan by itself has drawn none; `Agent.certificate` knows), and
        `idealises_arithmetic` whether arithmetic is idealised, if it is not as it is here.
        """
        count = self.submissions
        asked = ""
        if self.score_epsilon:
            asked = ", each with an answer," if count > 1 else " and an answer"
        once = Assumption(
            f"an agent sends {count} report{'s' if count > 1 else ''}{asked} and no more, and is "
            "one agent, not two",
            "by the plan, which splits epsilon; that nobody is two of the agents is the caller's",
        )
        idealised = self.idealises_arithmetic if floating is None else floating
        return Certificate.issue(
            self.event,
            0.0,
            unit=Unit.AGENT,
            relation=Relation.LOCAL,
            release=Release.EACH_REPORT,
            assumptions=(
                *(once, PUBLIC_SETTINGS, *assumptions),
                *([IDEALISED_ARITHMETIC] if idealised else []),
            ),
            noise=noise,
        )

    # --- sending ----------------------------------------------------------------------------------

    @_ignore_float_errors
    def rows(self, gradients: Sequence[object] | NDArray[Any]) -> Array:
        """The rows that reports are about, one for each gradient. **Private.**

        Total: what is not a vector of `dimension` finite numbers counts as zeros. To see whether a
        program makes gradients of the right shape, try this on ones that are nobody's.
        """
        found: Array = np.zeros((len(gradients), self.dimension))
        table = gradients if isinstance(gradients, np.ndarray) else np.zeros(0)
        if table.dtype == np.float64 and table.shape == found.shape:
            found[:] = table
        else:
            for place, gradient in enumerate(gradients):
                found[place] = self._to_vector(gradient)
        finite = np.where(np.all(np.isfinite(found), axis=1, keepdims=True), found, 0.0)
        return self.radius * normalise(np, finite) if self.norm == "unit" else finite

    def _to_vector(self, gradient: object) -> Array:
        try:
            found = as_float64("A gradient", gradient)
        except Exception:  # whatever the caller's object does: an error would be an output
            found = np.zeros(0)
        return found if found.shape == (self.dimension,) else np.zeros(self.dimension)

    @_ignore_float_errors
    def payloads(
        self,
        gradients: Sequence[object] | NDArray[Any],
        source: Source,
        reached: Sequence[object] | NDArray[Any] | None = None,
    ) -> list[bytes]:
        """A payload for each gradient, each of another agent, who pays for it (see `Agent`).

        `reached` says of each whether it reached the target. Only `True` is yes; anything else is
        no, and nothing at all is no for everybody. It is ignored unless the plan has scores.
        """
        count = len(gradients)
        said = [False] * count if reached is None else reached
        yes = np.array([isinstance(one, bool | np.bool_) and bool(one) for one in said], dtype=bool)
        if self.score_epsilon and yes.shape != (count,):
            raise InputError(f"must have {count} entries, one for each gradient.", field="reached")
        rows = self.rows(gradients)
        if isinstance(self.plan, ProjectedSign):
            drawn = [self.plan.encode(report) for report in self.plan.reports(rows, source)[0]]
        else:
            drawn = [self.plan.encode(report) for report in self.plan.release(rows, source)[0]]
        if not self.score_epsilon:
            return drawn
        told = yes == bernoulli_sigmoid(
            source.generator, epsilon_share(self.score_epsilon, 1), count
        )
        return [one + bytes([bit]) for one, bit in zip(drawn, told.tolist(), strict=True)]

    # --- reading ----------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """How many bytes every payload has."""
        plan = self.plan
        report = (
            16 + (plan.bits + 7) // 8 if isinstance(plan, ProjectedSign) else 8 * plan.dimension
        )
        return report + (1 if self.score_epsilon else 0)

    @property
    def max_norm(self) -> float:
        """No payload that is read, whoever made it up, has a vector of larger L2 norm than this.

        PrivUnit's reports are no longer than its `length`. A sign report is a sum of `bits`
        directions of entries -1, 0, 1, times `size`. For Laplace noise see `_max_coordinate`.
        """
        plan = self.plan
        if isinstance(plan, PrivUnit):
            return plan.length * (1.0 + 1e-9)
        if isinstance(plan, ProjectedSign):
            return plan.size * plan.bits * math.sqrt(self.dimension)
        return self._max_coordinate(plan) * math.sqrt(self.dimension)

    def _max_coordinate(self, plan: GridLaplaceReport) -> float:
        """A Laplace report with a coordinate beyond this is refused.

        The noise has no bound. P(|noise| > t) < 2 exp(-t / scale), so that an honest report has
        such a coordinate less than once in 10^12 times.
        """
        scale = plan.mechanism.width * plan.mechanism.step
        return self.radius + scale * math.log(2.0 * _REJECTION_ODDS * self.dimension)

    def read(self, payload: bytes) -> tuple[Array, bool | None]:
        """The vector in a payload, and what was told of the score; or a sentence why it is none."""
        if type(payload) is not bytes or len(payload) != self.size:
            raise InputError(f"A payload of this plan has {self.size} bytes, and this one has not.")
        report, told = payload, None
        if self.score_epsilon:
            report, last = payload[:-1], payload[-1]
            if last > 1:
                raise InputError("A payload of this plan ends with the byte 0 or 1.")
            told = last == 1
        plan = self.plan
        if isinstance(plan, ProjectedSign):
            return plan.expand([plan.decode(report)])[0], told
        vector = plan.decode(report)
        if isinstance(plan, GridLaplaceReport):
            limit = self._max_coordinate(plan)
            if np.any(np.abs(vector) > limit):
                raise InputError(f"A report of this plan has no number beyond {limit:.6g}.")
        return vector, told

    def success_rate(self, told: Sequence[bool]) -> tuple[float, float]:
        """The share of agents that reached the target, from what was told, and its standard error.

        Of those who are asked, t = 1 / (1 + e^-s) tell the truth: (mean - (1 - t)) / (2 t - 1) is
        unbiased, and may be below 0 or above 1. The standard error is the largest that it can have.
        """
        if not self.score_epsilon or not len(told):
            raise InputError("There are no scores: the plan needs a score_share, and then agents.")
        edge = math.tanh(float(epsilon_share(self.score_epsilon, 1)) / 2.0)  # 2 t - 1
        mean = sum(map(bool, told)) / len(told)
        return 0.5 + (mean - 0.5) / edge, 0.5 / (edge * math.sqrt(len(told)))


class Agent:
    """One agent's submissions: counted, paid for before anything is drawn, and then no more.

    `pay` is called with what a payload costs before it is drawn; if it raises, nothing is. A ledger
    keeps the account on disk: `pay=partial(ledger.spend, run="...")`. `spent` is how many payloads
    the agent has sent before. Threads may share an agent, and `pay` must not make it submit.
    """

    def __init__(
        self,
        privatiser: Privatiser,
        source: Source | None = None,
        *,
        pay: Callable[[tuple[Event, ...]], object] | None = None,
        spent: int = 0,
    ) -> None:
        if not isinstance(privatiser, Privatiser):
            raise InputError(
                "must be a Privatiser: the plan that all agents follow.", field="privatiser"
            )
        if not isinstance(source, Source | None):
            raise InputError("must be a source of privrl.privacy.noise, or None.", field="source")
        self.privatiser = privatiser
        self.spent = checks.count("spent", spent, least=0)
        self._source = secure() if source is None else source
        self._pay = pay
        self._alone = Lock()

    @property
    def submissions_left(self) -> int:
        """How many more payloads this agent may send."""
        return max(0, self.privatiser.submissions - self.spent)

    def certificate(
        self, assumptions: Sequence[Assumption] = DEPLOYMENT_ASSUMPTIONS
    ) -> Certificate:
        """The promise to this agent, with the source that its noise is drawn from."""
        return self.privatiser.certificate(assumptions, noise=self._source.origin)

    def submit(self, gradient: object, reached: object = None) -> bytes:
        """The agent's next payload, whatever the gradient is like; refused if none is left.

        Whoever loses it on the way sends the same bytes again.
        """
        # From the check to the draw, so that no other thread finds something left meanwhile.
        with self._alone:
            if not self.submissions_left:
                raise InputError(
                    f"This agent has made its {self.privatiser.submissions} submissions: "
                    "it must not say more."
                )
            if self._pay is not None:
                self._pay(self.privatiser.report_events)
            self.spent += 1
            return self.privatiser.payloads([gradient], self._source, [reached])[0]
