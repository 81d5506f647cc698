"""HIV infection under treatment: Adams et al. (2004), as a control task by Ernst et al. (2006).

Six concentrations per ml (healthy and infected cells of two kinds, free virus, immune effectors)
follow ordinary differential equations; every five days a doctor chooses none, one or both of two
drugs. The equations are stiff: virus is cleared thirteen times a day, and after a drug is dropped
the second kind of cell is consumed a hundred times a day, while immunity builds up over months.

They are integrated by RODAS, a Rosenbrock method of order 4 that is stiffly accurate and L-stable
(Hairer, Wanner 1996), in fixed steps of a third of a day: linear solves instead of iterations, so
every patient does the same work, and thousands run in lock-step. The linear systems are solved by
hand along their sparsity: everything reduces to two unknowns, virus and immunity.

Traps in other implementations: RLPy gives the protease inhibitor no effect on its own; others
charge 20000 instead of 2000 for it, or pay for the state before the step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from numpy.typing import NDArray

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs import draw
from privrl.envs.base import Box, Environment, EnvState

NAMES = ("T1", "T2", "T1*", "T2*", "V", "E")
ACTIONS = ("none", "RTI", "PI", "both")
STARTS = {
    "unhealthy": (163573.0, 5.0, 11945.0, 46.0, 63919.0, 24.0),
    "healthy": (967839.0, 621.0, 76.0, 6.0, 415.0, 353108.0),
    "uninfected": (1e6, 3198.0, 0.0, 0.0, 0.0, 10.0),
}
DAYS = 5.0
"""Between two decisions."""

StateVector = tuple[Any, Any, Any, Any, Any, Any]


class HIVParams(NamedTuple):
    """A patient: rates per day, concentrations per ml. Any field may differ between patients."""

    lambda1: Any = 1e4  # healthy cells of the first kind made
    lambda2: Any = 31.98
    d1: Any = 0.01  # their death
    d2: Any = 0.01
    k1: Any = 8e-7  # infection
    k2: Any = 1e-4
    f: Any = 0.34  # how much less the RTI does for the second kind
    delta: Any = 0.7  # death of infected cells
    m1: Any = 1e-5  # their clearance by immune effectors
    m2: Any = 1e-5
    virions: Any = 100.0  # made by an infected cell
    c: Any = 13.0  # clearance of virus
    rho1: Any = 1.0  # virus used up by an infection
    rho2: Any = 1.0
    lambda_e: Any = 1.0  # immune effectors made
    b_e: Any = 0.3  # their birth
    half_b: Any = 100.0
    d_e: Any = 0.25  # their death by exhaustion
    half_d: Any = 500.0
    delta_e: Any = 0.1  # their natural death
    efficacy_rti: Any = 0.7
    efficacy_pi: Any = 0.3
    cost_virus: Any = 0.1
    cost_rti: Any = 20000.0
    cost_pi: Any = 2000.0
    pay_immunity: Any = 1000.0
    start: Any = None  # the state at the first decision; None for that of `HIV.initial`
    start_spread: Any = 0.0  # standard deviation of the start's logarithms


RATES = (
    *("lambda1", "lambda2", "d1", "d2", "k1", "k2", "delta", "m1", "m2", "virions", "c"),
    *("lambda_e", "b_e", "half_b", "d_e", "half_d", "delta_e"),
)
"""What `HIV.patients` varies."""


@dataclass(frozen=True)
class HIV(Environment[jax.Array, HIVParams]):
    """Actions: none, RTI, PI, both. Observations: base-10 logarithms, cut off at -5 and 8.

    The reward is that of the state after the step: 1000 E - 0.1 V - 20000 rti^2 - 2000 pi^2, the
    drugs' efficacies being 0.7 and 0.3. 200 decisions are a thousand days.
    """

    initial: Literal["unhealthy", "healthy", "uninfected"] = "unhealthy"
    """Where a patient starts: the two stable equilibria without drugs, or before infection."""

    substeps: int = 15
    """Integration steps per decision: with 15, the return of the worst of a thousand patients under
    random treatment is good to 0.03 %, the median to 0.003 %. People who differ are harder: with
    rates 20 % apart (`patients`), one in a hundred is off by more than 0.5 %."""

    step_limit: int | None = 200

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.initial not in STARTS:
            raise InputError(
                f"must be one of {', '.join(STARTS)}, not {self.initial!r}.", field="initial"
            )
        if checks.count("substeps", self.substeps) < 10:
            # Fewer overshoot after a drug is dropped.
            raise InputError(f"must be at least 10, not {self.substeps}.", field="substeps")

    num_actions = 4
    observation = Box((-5.0,) * 6, (8.0,) * 6, tuple(f"log10 {name}" for name in NAMES))
    default_params = HIVParams()

    def patients(
        self, key: jax.Array, count: int, spread: float, params: HIVParams | None = None
    ) -> HIVParams:
        """`count` people whose rates differ by log-normal factors of median 1; `vmap` over them.

        `spread` is the standard deviation of the factors' logarithms: 0.1 is about ten per cent.
        """
        size, width = checks.count("count", count), checks.non_negative("spread", spread)
        given = self._check_params(params)
        if given.start is None:
            given = given._replace(start=STARTS[self.initial])
        drawn = jnp.exp(width * jax.random.normal(key, (len(RATES), size)))
        factors = dict(zip(RATES, drawn, strict=True))
        return HIVParams(
            *(
                jnp.broadcast_to(
                    jnp.asarray(value, jnp.result_type(float)), (size, *np.shape(value))
                )
                * factors.get(name, 1.0)
                for name, value in given._asdict().items()
            )
        )

    def _reset(self, key: jax.Array, params: HIVParams) -> jax.Array:
        given = STARTS[self.initial] if params.start is None else params.start
        start = jnp.asarray(given, jnp.result_type(float))
        if start.shape != (6,):
            raise InputError(
                f"must be {', '.join(NAMES)}, not of shape {start.shape}.", field="start"
            )
        return start * jnp.exp(params.start_spread * jax.random.normal(key, (6,)))

    def _move(
        self, draw: Any, inner: jax.Array, action: jax.Array, params: HIVParams
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        rti = jnp.where(action % 2 == 1, params.efficacy_rti, 0.0)
        pi = jnp.where(action // 2 == 1, params.efficacy_pi, 0.0)
        h = DAYS / self.substeps
        # Six scalars, not a vector: under `vmap` each is one contiguous array over the patients.
        begin: StateVector = (inner[0], inner[1], inner[2], inner[3], inner[4], inner[5])

        def substep(number: Any, y: StateVector) -> StateVector:
            # Never below zero, but the compiler does not know; see `_compute_once`.
            return _rodas(y, h, number >= 0, rti, pi, params)

        end = lax.fori_loop(0, self.substeps, substep, begin)
        reward = params.pay_immunity * end[5] - params.cost_virus * end[4]
        reward = reward - params.cost_rti * rti**2 - params.cost_pi * pi**2
        return jnp.stack(end), reward, jnp.zeros((), bool)

    def _observe(self, inner: jax.Array, params: HIVParams) -> jax.Array:
        return jnp.clip(jnp.log10(jnp.clip(inner, 1e-5, 1e8)), -5.0, 8.0)

    def render(
        self, state: EnvState[jax.Array], params: HIVParams | None = None
    ) -> NDArray[np.uint8]:
        levels = np.asarray(self._observe(state.inner, params or self.default_params))
        figure, axes = draw.figure(f"day {int(state.time) * DAYS:g}")
        colours = ["tab:blue", "tab:blue", "tab:orange", "tab:orange", "tab:red", "tab:green"]
        axes.barh(range(6), levels + 1.0, left=-1.0, color=colours)
        axes.set_yticks(
            range(6), ["cells 1", "cells 2", "infected 1", "infected 2", "virus", "immunity"]
        )
        axes.invert_yaxis()
        axes.set(xlim=(-1.0, 7.0), xlabel="log10 per ml")
        return draw.pixels(figure)


# --- the equations --------------------------------------------------------------------------------


def derivative(y: StateVector, rti: Any, pi: Any, p: HIVParams) -> StateVector:
    """d/dt of (T1, T2, T1*, T2*, V, E), per day."""
    t1, t2, s1, s2, v, e = y
    infected = s1 + s2
    new1 = (1.0 - rti) * p.k1 * v * t1
    new2 = (1.0 - p.f * rti) * p.k2 * v * t2
    over_b, over_d = _inverses(infected + p.half_b, infected + p.half_d)
    growth = infected * (p.b_e * over_b - p.d_e * over_d)
    return (
        p.lambda1 - p.d1 * t1 - new1,
        p.lambda2 - p.d2 * t2 - new2,
        new1 - p.delta * s1 - p.m1 * e * s1,
        new2 - p.delta * s2 - p.m2 * e * s2,
        (1.0 - pi) * p.virions * p.delta * infected - p.c * v - p.rho1 * new1 - p.rho2 * new2,
        p.lambda_e + (growth - p.delta_e) * e,
    )


def _inverses(a: Any, b: Any) -> tuple[Any, Any]:
    """1 / a and 1 / b by one division, of which a step is mostly made."""
    both = 1.0 / (a * b)
    return b * both, a * both


class _Factors(NamedTuple):
    """What solving (shift I - Jacobian) x = b needs, computed once for the six stages of a step.

    Row by row, with x = (x1, x2, x3, x4, v, e) and the letters below:
    x1 = t1 b1 - along1 v, x3 = s1 (b3 + rate1 x1) + gain1 v - loss1 e, likewise x2 and x4; what
    remains is a system of two equations for v and e, whose inverse is `inverse`.
    """

    t1: Any
    t2: Any
    s1: Any
    s2: Any
    rate1: Any
    rate2: Any
    along1: Any
    along2: Any
    gain1: Any
    gain2: Any
    loss1: Any
    loss2: Any
    made: Any
    slope: Any
    inverse: tuple[Any, Any, Any, Any]


def _factor(y: StateVector, shift: Any, rti: Any, pi: Any, p: HIVParams) -> _Factors:
    t1, t2, s1, s2, v, e = y
    infected = s1 + s2
    a1, a2 = (1.0 - rti) * p.k1, (1.0 - p.f * rti) * p.k2
    rate1, rate2 = a1 * v, a2 * v
    of_t1, of_t2 = _inverses(shift + p.d1 + rate1, shift + p.d2 + rate2)
    of_s1, of_s2 = _inverses(shift + p.delta + p.m1 * e, shift + p.delta + p.m2 * e)
    along1, along2 = of_t1 * a1 * t1, of_t2 * a2 * t2
    gain1, gain2 = of_s1 * (a1 * t1 - rate1 * along1), of_s2 * (a2 * t2 - rate2 * along2)
    loss1, loss2 = of_s1 * p.m1 * s1, of_s2 * p.m2 * s2
    made = (1.0 - pi) * p.virions * p.delta
    over_b, over_d = _inverses(infected + p.half_b, infected + p.half_d)
    growth = infected * (p.b_e * over_b - p.d_e * over_d) - p.delta_e
    slope = (p.b_e * p.half_b * over_b * over_b - p.d_e * p.half_d * over_d * over_d) * e
    vv = (
        (shift + p.c + p.rho1 * a1 * t1 + p.rho2 * a2 * t2)
        - (p.rho1 * rate1 * along1 + p.rho2 * rate2 * along2)
        - made * (gain1 + gain2)
    )
    ve = made * (loss1 + loss2)
    ev = -slope * (gain1 + gain2)
    ee = shift - growth + slope * (loss1 + loss2)
    scale = 1.0 / (vv * ee - ve * ev)
    inverse = (ee * scale, -ve * scale, -ev * scale, vv * scale)
    return _Factors(
        *(of_t1, of_t2, of_s1, of_s2, rate1, rate2, along1, along2),
        *(gain1, gain2, loss1, loss2, made, slope, inverse),
    )


def _eliminate(m: _Factors, b: StateVector, p: HIVParams) -> StateVector:
    """The first four unknowns but for v and e, and the right-hand sides of what remains."""
    x1, x2 = m.t1 * b[0], m.t2 * b[1]
    x3, x4 = m.s1 * (b[2] + m.rate1 * x1), m.s2 * (b[3] + m.rate2 * x2)
    infected = x3 + x4
    b5 = b[4] - p.rho1 * m.rate1 * x1 - p.rho2 * m.rate2 * x2 + m.made * infected
    return x1, x2, x3, x4, b5, b[5] + m.slope * infected


def _back_substitute(m: _Factors, x: StateVector) -> StateVector:
    """The solution."""
    v = m.inverse[0] * x[4] + m.inverse[1] * x[5]
    e = m.inverse[2] * x[4] + m.inverse[3] * x[5]
    return (
        x[0] - m.along1 * v,
        x[1] - m.along2 * v,
        x[2] + m.gain1 * v - m.loss1 * e,
        x[3] + m.gain2 * v - m.loss2 * e,
        v,
        e,
    )


def _add_weighted(
    y: StateVector, weights: Sequence[Any], terms: Sequence[StateVector]
) -> StateVector:
    total = list(y)
    for weight, term in zip(weights, terms, strict=True):
        total = [t + weight * x for t, x in zip(total, term, strict=True)]
    return (total[0], total[1], total[2], total[3], total[4], total[5])


def _compute_once(true: Any, work: Callable[..., StateVector], *inputs: Any) -> StateVector:
    """`work(*inputs)`, computed once and kept.

    On the CPU, XLA computes what several results have in common again for each of them, five times
    over in a step of ours, and disregards `lax.optimization_barrier`. It does not see through a
    branch whose condition it does not know. This is for speed; nothing else depends on it.
    """
    nothing: StateVector = (*(jnp.zeros_like(inputs[0][0]) for _ in range(6)),)  # type: ignore[assignment]
    stored: StateVector = lax.cond(true, work, lambda *_: nothing, *inputs)
    return stored


# The method's coefficients for the stages u2 to u6, in the form without products by the Jacobian.
# The last stage starts from where the fifth arrives; its own arrival is the step's.
ALPHA = (
    (1.544,),
    (0.9466785280815826, 0.2557011698983284),
    (3.314825187068521, 2.896124015972201, 0.9986419139977817),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950),
    (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950, 1.0),
)
GAMMA = (
    (-5.6688,),
    (-2.430093356833875, -0.2063599157091915),
    (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
    (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
    (
        *(8.083246795921522, -7.981132988064893, -31.52159432874371),
        *(16.31930543123136, -6.058818238834054),
    ),
)


def _rodas(y: StateVector, h: float, true: Any, rti: Any, pi: Any, p: HIVParams) -> StateVector:
    """One step of h days: six linear solves with one matrix, I / (h / 4) - J."""
    matrix = _factor(y, 4.0 / h, rti, pi, p)

    def stage(at: StateVector, gamma: Sequence[float], stages: list[StateVector]) -> StateVector:
        def right_hand_side(
            at: StateVector, stages: list[StateVector], matrix: _Factors
        ) -> StateVector:
            slope = derivative(at, rti, pi, p)
            return _eliminate(matrix, _add_weighted(slope, [g / h for g in gamma], stages), p)

        return _back_substitute(matrix, _compute_once(true, right_hand_side, at, stages, matrix))

    at, stages = y, [stage(y, (), [])]
    for alpha, gamma in zip(ALPHA, GAMMA, strict=True):
        at = _add_weighted(y, alpha, stages)
        stages.append(stage(at, gamma, stages))
    after = _add_weighted(at, (1.0,), stages[5:])
    return _clip_to_bounds(y, after, h, p)


def _clip_to_bounds(before: StateVector, after: StateVector, h: float, p: HIVParams) -> StateVector:
    """`after`, cut off at what h days can do at most: nothing is negative, cells come from cells
    and production, virus from infected cells, and immunity from its birth.

    The exact solution keeps these bounds for every patient, so that they can only bring a step
    nearer to it; and they keep steps that are too coarse for a patient from going astray.
    """
    t1, t2, s1, s2, v, e = before
    most1, most2 = t1 + h * p.lambda1, t2 + h * p.lambda2
    all1, all2 = most1 + s1, most2 + s2
    virus = v + h * p.virions * p.delta * (all1 + all2)
    immunity = (e + h * p.lambda_e) * jnp.exp(h * p.b_e)
    bounds = (most1, most2, all1, all2, virus, immunity)
    # NaN, which is what an overflow leads to, is not above zero either.
    cut = [
        jnp.where(x > 0.0, jnp.minimum(x, bound), 0.0)
        for x, bound in zip(after, bounds, strict=True)
    ]
    return (cut[0], cut[1], cut[2], cut[3], cut[4], cut[5])
