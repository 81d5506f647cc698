"""Private gradient temporal differences: noisy full-batch steps, calibrated to a budget.

Repaired from GPOPE (xie2019). Features are first changed by a public linear map, phi <- L^-1 phi
with L L' = C0, where C0 is the caller's guess of E[phi phi'] (`precondition`; by default
F^2/d I, the features' norm bound spread evenly over the d of them). With A_i, b_i, C_i the moments
of unit i (`bellman_error.unit_moments`), iteration k = 0, ..., T - 1 does

    g_i  =  b_i - A_i theta                                        form "residual"
    g_i  =  (A_i' w,  b_i - A_i theta - C_i w)                     form "primal-dual"

    G  =  (sum over i of clip(g_i, c_k)  +  N(0, (z c_k)^2 I)) / (q n)
    velocity  <-  momentum velocity + G,    (theta, w)  <-  (theta, w) + step velocity

where clip scales to L2 norm at most c_k, the sum is over all n units (q = 1) or over those drawn
afresh with probability q, and c_k falls geometrically from the first to the last of `clip`. The
result is the mean of theta over the last `average` of the iterations, changed back.

*primal-dual* is GTD2's saddle point, whose fixed point is stable for every policy. *residual* is
the fixed-point iteration theta += step (b - A theta), stable where the eigenvalues of A have
positive real parts, as they do on-policy. They do for every policy with a *table*, too: row s of A
is the mean of share rho phi_s (phi_s - g phi_s'), in which the diagonal is not negative, the others
are not positive, and the row adds up to the mean of share rho (1 - g) >= 0, more than 0 if gamma is
below 1 and the state is seen; so A is diagonally dominant, and by Gershgorin's circles its
eigenvalues are on the right (a positive diagonal `precondition` multiplies rows and columns, which
is the same as multiplying rows, and changes none of this). With other features and another policy
it may diverge, however little noise there is. Where it is stable it is the better: the vector has
half the entries, and shrinks to the size of the temporal-difference errors as theta improves, so it
can be clipped much lower; and it is far faster where A is nearly singular, as primal-dual sees A
squared. By default it is used on-policy and with tables.

Unit: a trajectory, or a person with all of theirs, averaged before clipping. Relation: replace-one;
n is public. Sensitivity: in units of c_k the sum moves by at most 2, whatever theta and w, since
each g_i depends on unit i and on released values only. Theorem: each iteration is therefore the
event Gaussian(z, 1), or PoissonSampled(Gaussian(z, 1), q); theta, w and velocity are functions of
noised sums, so T iterations compose adaptively, and z is the least with which T of them stay within
the budget. Released: every iterate is covered. Arithmetic: 64-bit floating point, so the
certificate lists "idealised real arithmetic".

**One pass.** With `batch_units` = B each unit takes part in one of T steps, and in no other; T is
`iterations`, by default n // B. Which one is drawn in secret, uniformly and independently of all
else (`allotment.py`), so step k takes a random number of units, perhaps none, and divides its sum
by the public n / T. All T steps together are one event RandomAllocation(Gaussian(z, 1), T): given
what was released before, step k is the sum of the contributions, each of norm at most c_k, of those
who were allotted to it, with noise z c_k; a replaced unit moves nobody else's step; the theorem in
`accounting/allocation.py` holds for steps that depend on those before them, so every iterate is
released. It needs far less noise than fixed batches would (`Disjoint(Gaussian(z, 1))`: z = 8.4 at
epsilon 1 and delta 1e-6, against 1.25 with 50 steps and 0.87 with 200), and asks nothing of the
order of the data. A unit's g_i is computed from its steps, without A_i and C_i,

    b_i - A_i theta  =  sum over t of share_t rho_t (r_t - direction_t' theta) phi_t

and the like, so that a step costs as much as its features have entries.

Clipping biases: the fixed point solves sum of clip(g_i) = 0. That price is not in the certificate.

Departures from xie2019: whole batches instead of single draws, sums moved by twice the clip bound
instead of once, averaged iterates, public changes of features, and the residual form.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import OneHot, Policy, Trajectories
from privrl.data.assumptions import data_assumptions
from privrl.data.coverage import check_table, known_states
from privrl.evaluation.allotment import allot, unit_of
from privrl.evaluation.assumptions import CLIPPED, PUBLIC_SETTINGS, SECRET_DRAWS, SECRET_STEPS
from privrl.evaluation.bellman_error import (
    UnitMoments,
    UnitSteps,
    pieces,
    rows_in_memory,
    unit_steps,
    value_at,
)
from privrl.evaluation.gtd_iterations import Form, GTDPlan, GTDRun, clipped_sum, contributions
from privrl.evaluation.private_linear import OffPolicyLinear
from privrl.evaluation.result import Result
from privrl.evaluation.steps import Data, refuse_unpaid
from privrl.evaluation.sums import SMALLEST, joint_clip_factors, map_in_threads, sum_rows
from privrl.evaluation.table import ROWS, Table, is_table
from privrl.privacy.certificate import Assumption
from privrl.privacy.events import Event
from privrl.privacy.ledger import warn_if_large
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.noise import Source
from privrl.privacy.plan import AllocatedBatches, NoisyPlan, PoissonBatches, Schedule
from privrl.privacy.promise import Relation, Release, Unit
from privrl.privacy.session import SECRET_SESSION, OpenSession, PrivacySession

# The most iterations, step, and first and last clip bound as shares of the return bound; found on
# the chain with seeds 0 to 9.
_DEFAULTS: dict[str, tuple[int, float, tuple[float, float]]] = {
    "residual": (400, 0.5, (0.05, 0.01)),
    "primal-dual": (800, 0.25, (0.05, 0.02)),
}
_MIN_ITERATIONS = 50


@dataclass(frozen=True)
class PrivateGTD(OffPolicyLinear):
    """A value function, linear in `features`, from noisy gradients; see the module."""

    return_bound: float | None = None
    """How large a return could be, in absolute value: sets the default of `clip`. By default the
    largest reward / (1 - gamma), which is far too much where rewards are rare."""

    form: Form | None = None
    """"residual" or "primal-dual"; by default the former on-policy and with tables."""

    iterations: int | None = None
    """By default n mu, for n units and a budget that is mu-GDP, but at least 50 and at most 400
    (residual) or 800 (primal-dual): with more noise fewer steps are better."""

    step: float | None = None
    """Step size, for features changed as above; by default 0.5 or 0.25."""

    clip: float | tuple[float, float] | None = None
    """The clip bound, or the first and the last; by default (0.05, 0.01) or (0.05, 0.02) times the
    return bound."""

    rate: float = 1.0
    """With what probability a unit takes part in an iteration; 1 is the whole data."""

    batch_units: int | None = None
    """How many units each iteration takes at least, on average, in a single pass over the data in
    which each unit takes part once; None for iterations over all of it. `iterations` is then by
    default the number of such batches."""

    beside: tuple[Event, ...] = ()
    """What else is paid from `budget`: the noise is such that all of it together is within it."""

    momentum: float = 0.0
    """How much of the last noised step is repeated, from 0 to below 1."""

    average: float = 0.5
    """Over which last share of the iterations theta is averaged; 0 for the last theta alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, check in (
            ("return_bound", checks.positive),
            ("iterations", checks.count),
            ("step", checks.positive),
            ("batch_units", checks.count),
        ):
            if getattr(self, name) is not None:
                check(name, getattr(self, name))
        if self.return_bound is None and self.gamma == 1.0 and self.clip is None:
            raise InputError(
                "is needed without discounting: say how large a return could be.",
                field="return_bound",
            )
        if self.form is not None:
            checks.choice("form", self.form, tuple(_DEFAULTS))
        if self.clip is not None:
            _clip_pair(self.clip)
        checks.rate("rate", self.rate)
        if self.batch_units is not None and self.rate != 1.0:
            raise InputError(
                "takes each unit once and rate draws afresh: give one of the two.",
                field="batch_units",
            )
        checks.probability("momentum", self.momentum)
        checks.share("average", self.average)

    def plan(self, form: Form, count: int) -> "GTDPlan":
        """What will run on `count` units, with everything public filled in, noise calibrated."""
        most, step, shares = _DEFAULTS[form]
        if self.iterations is None and self.batch_units is not None:
            iterations = count // self.batch_units
        elif self.iterations is None:
            mu = 2.0 / GaussianMechanism.from_budget(1.0, self.budget).std
            iterations = min(most, max(_MIN_ITERATIONS, round(count * mu)))
        else:
            iterations = self.iterations
        if self.clip is None:
            largest = max(abs(bound) for bound in self.reward_range)
            bound = self.return_bound or largest / (1.0 - self.gamma)
            first, last = shares[0] * bound, shares[1] * bound
        else:
            first, last = _clip_pair(self.clip)
        if min(first, last) < 2.0 * SMALLEST:
            raise _clip_bound_error("small", "larger")
        schedule: Schedule = PoissonBatches(self.rate, iterations)
        if self.batch_units is not None:
            schedule = AllocatedBatches(iterations)
        # With sampling each evaluation takes a while, and a part in 10^4 of noise is not seen.
        quick = self.rate == 1.0 and self.batch_units is None
        noisy = NoisyPlan.from_budget(
            self.budget,
            Relation.REPLACE_ONE,
            schedule,
            beside=self.beside,
            tolerance=1e-6 if quick else 1e-4,
        )
        if not math.isfinite(noisy.std * max(first, last)):
            raise _clip_bound_error("large", "smaller")
        return GTDPlan(
            form=form,
            iterations=iterations,
            step=self.step or step,
            first_clip=first,
            last_clip=last,
            momentum=self.momentum,
            average=self.average,
            noisy=noisy,
        )

    def fit(
        self,
        data: Data,
        policy: Policy | None = None,
        *,
        start: Any = None,
        session: PrivacySession = SECRET_SESSION,
    ) -> Result:
        """The value function of `policy`, or of the policy that collected the data."""
        source, public = session.source(), session.public
        with self.prepare(data, policy, source, public=public) as ready:
            opened = session.open(ready.unit, Relation.REPLACE_ONE, source=source)
            warn_if_large(self.budget.delta, ready.count)
            opened.pay(ready.plan.event, delta=self.budget.delta)
            theta = ready.run_iterations()
            result = ready.result(theta, opened, start)
            if not public:
                return result
            more = {}
            if ready.units is not None:
                more["clipped"] = ready.plan.clipped_share(ready.units, theta)
        return self.with_diagnostics(result, data, policy, start, **more)

    @contextmanager
    def prepare(
        self, data: Data, policy: Policy | None, source: Source, *, public: bool = False
    ) -> Iterator["PreparedRun"]:
        """Do all that comes before the payment: read the data, fill in the plan, try a step.

        What is left to do in `PreparedRun.run_iterations` reads none of the caller's files, calls
        neither policy nor features for the first time, and takes no more memory. `source` is that
        of the noise.
        """
        if self.batch_units is not None:
            with self._prepare_single_pass(data, policy, self.batch_units, source, public) as found:
                yield found
            return
        form = self.form_for(self.is_off_policy(data, policy))
        units = self.unit_moments(data, policy, public=public, dual=form == "primal-dual")
        plan = self.plan(form, units.count)
        parts = units.parts()
        for part in parts[:1]:
            clipped_sum(contributions(part, np.zeros(plan.size(units.dimension)), form), 1.0)
        sampled = (SECRET_DRAWS,) if plan.rate < 1.0 else ()
        yield PreparedRun(
            self,
            plan,
            units.unit,
            units.count,
            (*sampled, *data_assumptions(data, public)),
            lambda: plan.run(units, source),
            units,
        )

    def form_for(self, off_policy: bool) -> Form:
        """The form that is used to judge another policy, or the one that collected the data."""
        table = isinstance(self.features, OneHot) and self.change.ndim == 1
        return self.form or ("primal-dual" if off_policy and not table else "residual")

    @contextmanager
    def _prepare_single_pass(
        self, data: Data, policy: Policy | None, size: int, source: Source, public: bool
    ) -> Iterator["PreparedRun"]:
        """A single pass; see the module."""
        forms: list[Form] = []

        def check_batch(batch: Trajectories) -> None:
            if not public:
                refuse_unpaid(batch)
            check_table(self.features, batch)
            if policy is not None:
                known_states(policy, batch)
            form = self.form_for(self.is_off_policy(batch, policy))
            if not forms:
                zeros = np.zeros(self.features.dimension * (1 if form == "residual" else 2))
                self.gradient(next(self._in_memory(batch)), policy, zeros, form, 1.0)
            forms.append(form)

        unit = unit_of(data)
        with allot(data, source.secret_bytes(), check_batch) as dealt:
            count, form = dealt.count, forms[0]
            steps = self.iterations or count // size
            if count < max(steps, 1) * size:
                raise InputError(
                    f"There are {count} units, too few for {max(steps, 1)} batches of {size}: "
                    "lower iterations or batch_units."
                )
            plan = self.plan(form, count)

            def run_iterations() -> Floats:
                gtd = GTDRun(plan, self.features.dimension, source)

                def work(part: tuple[int, Trajectories]) -> None:
                    """Release all steps before this one, and add what the part contributes."""
                    step, whole = part
                    while gtd.k < step:
                        gtd.advance(count / steps)
                    for piece in self._in_memory(whole):
                        gtd.exact += self.gradient(piece, policy, gtd.state, form, gtd.bound)

                # One after the other, in their order: only reading goes on meanwhile.
                for _ in map_in_threads(work, dealt.steps(steps)):
                    pass
                while gtd.k < steps:
                    gtd.advance(count / steps)
                return gtd.theta

            rests = (SECRET_STEPS, *data_assumptions(data, public))
            yield PreparedRun(self, plan, unit, count, rests, run_iterations, None)

    def _in_memory(self, whole: Trajectories) -> Iterator[Trajectories]:
        """Pieces whose features can be held."""
        table = is_table(self.features, self.change, whole)
        return pieces(whole, ROWS if table else rows_in_memory(self.features))

    def gradient(
        self,
        piece: Trajectories,
        policy: Policy | None,
        state: Floats,
        form: Form,
        bound: float,
    ) -> Floats:
        """The sum over the units of `piece` of clip(g_i, bound), from their steps."""
        d, given = self.features.dimension, (self.gamma, self.weight_cap, self.reward_range)
        total = np.zeros_like(state)
        with np.errstate(all="ignore"):
            tables: Iterable[Table | UnitSteps]
            if is_table(self.features, self.change, piece):
                tables = Table.of(piece, policy, self.change, *given).parts()
            else:
                tables = (unit_steps(piece, policy, self.features, *given, self.change),)
            for at in tables:
                blocks: tuple[Any, ...]
                if form == "residual":
                    blocks = at.residual(state)
                else:
                    blocks = at.primal_dual(state[:d], state[d:])
                factors = joint_clip_factors(blocks, bound)
                total += np.concatenate([sum_rows(rows, factors) for rows in blocks])
        return total


@dataclass(frozen=True, eq=False)
class PreparedRun:
    """A run before its payment; of `data` nothing is left to be read but what is held here."""

    judge: PrivateGTD
    plan: GTDPlan
    unit: Unit
    count: int
    """How many units there are; public under replace-one."""

    assumptions: tuple[Assumption, ...]
    run_iterations: Callable[[], Floats]
    """theta, after all iterations with their noise: call it once, and only after the payment."""

    units: UnitMoments | None
    """Private; None in a single pass."""

    def result(self, theta: Floats, opened: OpenSession, start: Any = None) -> Result:
        """What is told of a run that came to `theta`; `opened` has paid for it."""
        judge, weights = self.judge, self.judge.change_back(theta)
        return Result(
            method="PrivateGTD",
            promise=opened.certify(
                judge.budget.delta,
                release=Release.EVERY_ITERATE,
                assumptions=(CLIPPED, PUBLIC_SETTINGS, *self.assumptions),
            ),
            estimate=value_at(judge.features, weights, start),
            weights=weights,
            features=judge.features,
            settings={
                **judge.settings(self.count),
                "batch_units": judge.batch_units,
                **self.plan.settings,
            },
        )


def _clip_bound_error(size: str, remedy: str) -> InputError:
    return InputError(
        f"The clip bound is too {size} to compute with: state rewards in other units, or a "
        f"{remedy} return_bound."
    )


def _clip_pair(clip: Any) -> tuple[float, float]:
    """The first and the last clip bound."""
    if isinstance(clip, tuple | list):
        if len(clip) != 2:
            raise InputError(
                "must be a number, or two: the first and the last bound.", field="clip"
            )
        return checks.positive("clip", clip[0]), checks.positive("clip", clip[1])
    bound = checks.positive("clip", clip)
    return bound, bound
