"""Every privacy formula printed in the five papers, as a `Claim` beside what can be certified.

The formulas are reproduced to show what they promise and what the same noise is really worth; they
are never used to calibrate anything. What is wrong with each is said in one sentence in the claim
and at more length in its function's docstring.
"""

import inspect
import math
from collections.abc import Callable, Mapping

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.privacy.certificate import Assumption, Certificate, Claim
from privrl.privacy.events import (
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    RandomizedResponse,
    Repeated,
)
from privrl.privacy.promise import Relation, Release, Unit

_SECRET_DRAWS = Assumption(
    "each iteration draws its trajectory freshly, secretly and uniformly",
    "by the algorithm, if its generator is secret",
)
_PUBLIC_CLIP = Assumption(
    "gradients are clipped to a public constant", "by the algorithm, if the constant is fixed ahead"
)


def xie2019_lemma1(
    sigma: float = 1.0, trajectories: int = 1000, iterations: int = 1000, delta: float = 1e-5
) -> Claim:
    """GPOPE's moments bound, Lemma 1 with Theorem 4 of the paper.

    alpha(l) <= l (l + 1) / (2 m^2) min(4 (e^(1/sigma^2) - 1), 2 e^(1/sigma^2)) for each of N
    iterations, and epsilon = min over l of (N alpha(l) + log(1/delta)) / l, in closed form. It is
    the second-order term of a theorem for sampling without replacement: the higher orders, which
    grow like e^(j^2 / sigma^2), are dropped, and the distance is taken to be h where the displaced
    trajectory makes it 2 h.
    """
    sigma = checks.positive("sigma", sigma)
    m = checks.count("trajectories", trajectories)
    n = checks.count("iterations", iterations)
    delta = _positive_delta(delta)
    power = math.exp(min(1.0 / sigma, 26.0) ** 2)
    per_order = n * min(4.0 * (power - 1.0), 2.0 * power) / (2.0 * m**2)
    epsilon = per_order + 2.0 * math.sqrt(per_order * math.log(1.0 / delta))
    return Claim(
        epsilon=epsilon,
        delta=delta,
        source="xie2019, Lemma 1",
        scope="the whole run",
        why_not="all orders above the second are dropped and the distance is taken as h instead "
        "of 2h; for sigma below about 2 an explicit pair of data sets loses more.",
        covers="It is for the same draws and noise, with the distance 2h.",
        certified=_gpope(sigma, m, n, delta),
        details={"sigma": sigma, "trajectories": m, "iterations": n},
    )


def xie2019_theorem1(
    epsilon: float = 1.0,
    trajectories: int = 1000,
    iterations: int = 1000,
    delta: float = 1e-5,
    constant: float = 2.0,
) -> Claim:
    """GPOPE's calibration, Theorem 1: sigma >= c sqrt(N log(1/delta)) / (m epsilon).

    The theorem only says that some c exists, for epsilon below some multiple of N / m^2. The last
    line of its proof amounts to c = 2, having lost a factor of four on the way.
    """
    epsilon = checks.positive("epsilon", epsilon)
    m = checks.count("trajectories", trajectories)
    n = checks.count("iterations", iterations)
    delta = _positive_delta(delta)
    constant = checks.positive("constant", constant)
    sigma = constant * math.sqrt(n * math.log(1.0 / delta)) / (m * epsilon)
    return Claim(
        epsilon=epsilon,
        delta=delta,
        source="xie2019, Theorem 1",
        scope="the whole run",
        why_not="it rests on Lemma 1, holds for unnamed constants only, and its proof loses a "
        "factor of four.",
        covers="It is for the same draws and the noise this theorem asks for, with the distance "
        "2h.",
        certified=_gpope(sigma, m, n, delta),
        details={"sigma": sigma, "trajectories": m, "iterations": n, "constant": constant},
    )


def _gpope(sigma: float, m: int, n: int, delta: float) -> Certificate:
    return Certificate.issue(
        Repeated(FixedSizeSampled(Gaussian(sigma, 1.0), m, 1), n),
        delta,
        unit=Unit.TRAJECTORY,
        relation=Relation.REPLACE_ONE,
        release=Release.EVERY_ITERATE,
        assumptions=(_SECRET_DRAWS, _PUBLIC_CLIP),
    )


def wang2019_theorem5(
    epsilon: float = 0.9,
    delta: float = 1e-4,
    updates: int = 39,
    learning_rate: float = 0.01,
    batch: int = 128,
    lipschitz: float = 1.0,
    resets: int = 0,
    norm_inside_root: bool = True,
) -> Claim:
    """Functional-noise Q-learning, Theorem 5, solved for its k, beta and sigma.

    With v = 4 a (k + 1) / B: beta = 1 / v, C = (v^2 + v) L^2, and
    sigma >= sqrt(2 (T/B) log(e + epsilon/delta) C) / epsilon; the delta of the result is
    delta + J exp(-(2k - 8.68 sqrt(beta) sigma)^2 / 2). The three depend on each other; the smallest
    k whose last term is at most delta is taken, so the claimed delta is at most twice `delta`. C is
    a squared norm: `norm_inside_root=False` leaves it outside the root, as the statement can be
    read. `resets` is J, and 0 stands for one reset per update.
    """
    epsilon = checks.positive("epsilon", epsilon)
    delta = _positive_delta(delta)
    updates = checks.count("updates", updates)
    rate = checks.positive("learning_rate", learning_rate)
    batch = checks.count("batch", batch)
    lipschitz = checks.positive("lipschitz", lipschitz)
    resets = checks.count("resets", resets) if resets else updates
    scale = math.sqrt(2.0 * updates * math.log(math.e + epsilon / delta)) / epsilon

    def noise(k: float) -> tuple[float, float]:
        v = 4.0 * rate * (k + 1.0) / batch
        norm = (v**2 + v) * lipschitz**2
        return 1.0 / v, scale * (math.sqrt(norm) if norm_inside_root else norm)

    k, beta, sigma, tail = _solve_k(noise, resets, delta)
    return Claim(
        epsilon=epsilon,
        delta=delta + tail,
        source="wang2019, Theorem 5",
        scope="the whole run, for reward functions within 1 of each other",
        why_not="the parameters themselves are never noised, only what is shown of them, so the "
        "next update starts from a secret; and all B rewards of a batch may change at once, so "
        "nothing may be divided by B.",
        covers="no bound on the sensitivity holds for the algorithm as printed, whatever the "
        "noise; release a reward model or noise the weights instead.",
        details={"k": k, "beta": beta, "sigma": sigma, "updates": updates, "resets": resets},
    )


def rajabi2022_theorem1(
    epsilon: float = 0.9,
    delta: float = 1e-4,
    learning_rate: float = 0.01,
    batch: int = 256,
    lipschitz: float = 1.0,
    largest_td_error: float = 1.0,
) -> Claim:
    """PP-CPT-RL, Theorem 1, solved for its k, beta and sigma.

    beta = [a/B (4k + 2 c_max + 1)]^-1 and
    sigma >= sqrt(2 log(1.25/delta)) L^2 (1/beta^2 + 1/beta) / epsilon, for *each iteration*, at
    delta + exp(-(2k - 8.68 sqrt(beta) sigma)^2 / 2). What multiplies the root is a squared norm
    where the norm is needed, so below 1 it gives too little noise.
    """
    epsilon = checks.positive("epsilon", epsilon)
    delta = _positive_delta(delta)
    rate = checks.positive("learning_rate", learning_rate)
    batch = checks.count("batch", batch)
    lipschitz = checks.positive("lipschitz", lipschitz)
    largest = checks.non_negative("largest_td_error", largest_td_error)
    scale = math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon

    def noise(k: float) -> tuple[float, float]:
        v = rate * (4.0 * k + 2.0 * largest + 1.0) / batch
        return 1.0 / v, scale * lipschitz**2 * (v**2 + v)

    k, beta, sigma, tail = _solve_k(noise, 1, delta)
    return Claim(
        epsilon=epsilon,
        delta=delta + tail,
        source="rajabi2022, Theorem 1",
        scope="each single iteration, for reward functions within 1 of each other",
        why_not="iterations are never added up, the squared norm stands where the norm belongs, "
        "the CPT target is not bounded by the change of the rewards, and everything wrong with "
        "wang2019 is inherited.",
        covers="no bound on the sensitivity holds for the algorithm as printed, whatever the "
        "noise; release a reward model and plan on it instead.",
        details={"k": k, "beta": beta, "sigma": sigma},
    )


def _solve_k(
    noise: Callable[[float], tuple[float, float]], times: int, tail: float
) -> tuple[float, float, float, float]:
    """The smallest k with times exp(-(2k - 8.68 sqrt(beta) sigma)^2 / 2) <= tail."""
    needed = math.sqrt(2.0 * math.log(times / tail))

    def gap(k: float) -> float:
        beta, sigma = noise(k)
        return 2.0 * k - 8.68 * math.sqrt(beta) * sigma - needed

    low, high = 0.0, 1e-3
    while gap(high) < 0.0:
        low, high = high, high * 1.1
        if high > 1e12:
            raise InputError("No k fulfils the theorem's conditions at these parameters.")
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gap(middle) < 0.0 else (low, middle)
    beta, sigma = noise(high)
    excess = 2.0 * high - 8.68 * math.sqrt(beta) * sigma
    return high, beta, sigma, times * math.exp(-(excess**2) / 2)


def seo2020_equation3(
    epsilon: float = 10.0, delta: float = 1e-6, steps: int = 10_000, noised: int = 1
) -> Claim:
    """DP-Actor, DP-Critic and DP-Both, equation 3: sigma = sqrt(2 log(1.25/delta)) / epsilon.

    The noise on a gradient normalised to norm C is sigma C. The formula is the classic one, valid
    up to epsilon 1, for a sensitivity of C; normalised gradients move by 2 C. C is the median of
    the gradient itself, so neighbours differ in their variances and no finite epsilon exists. Only
    the gradient of log pi is noised; the TD error that multiplies it is not. And it is for one
    step. `noised` counts the gradients that a step noises: two in DP-Both.
    """
    epsilon = checks.positive("epsilon", epsilon)
    delta = _positive_delta(delta)
    steps = checks.count("steps", steps)
    noised = checks.count("noised", noised)
    sigma = math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon
    certified = Certificate.issue(
        Repeated(Gaussian(sigma, 1.0), steps * noised),
        delta,
        unit=Unit.TRAJECTORY,
        relation=Relation.REPLACE_ONE,
        release=Release.EVERY_ITERATE,
        assumptions=(
            Assumption("the clip bound is a public constant", "not by the algorithm as printed"),
            Assumption(
                "the whole increment is clipped and noised, rewards and critic included",
                "not by the algorithm as printed",
            ),
        ),
    )
    return Claim(
        epsilon=epsilon,
        delta=delta,
        source="seo2020, equation 3",
        scope="each single step" if noised == 1 else "each noised gradient of each single step",
        why_not="C is read from the private gradient, the TD error is not noised at all, and "
        "steps are never added up.",
        covers=f"It is for {steps} steps{f' of {noised} releases each' if noised > 1 else ''} of a "
        "repaired algorithm whose clip bound is public and whose whole increment is noised, not "
        "for the algorithm as printed.",
        certified=certified,
        details={"sigma": sigma, "steps": steps, "noised": noised},
    )


def ono2020_laplace(epsilon: float = 1.0, clip: float = 0.01, submissions: int = 1) -> Claim:
    """PGC-A3C with Laplace noise of scale C/epsilon on gradients of L1 norm at most C/2.

    Sound for one submission of one agent: the report moves by C. `submissions` counts how often the
    same agent reports.
    """
    clip = checks.positive("clip", clip)
    epsilon = checks.positive("epsilon", epsilon)
    event = Laplace(clip / epsilon, clip / 2.0)
    return _pgc(epsilon, event, submissions, "Lemma 2", {"clip": clip})


def ono2020_sign(epsilon: float = 1.0, dimension: int = 112, submissions: int = 1) -> Claim:
    """PGC-A3C with projected random signs: one bit for each of d^ = max(1, min(d, eps/2.5)) rows.

    Equation 24 prints e^(eps/k), with a k that is nowhere defined, where e^(eps/d^) is meant; read
    so, each bit is a randomised response at eps/d^.
    """
    epsilon = checks.positive("epsilon", epsilon)
    dimension = checks.count("dimension", dimension)
    bits = max(1, min(dimension, math.floor(epsilon / 2.5)))
    event = Repeated(RandomizedResponse(epsilon / bits), bits)
    return _pgc(epsilon, event, submissions, "Lemma 3", {"bits": bits})


def _pgc(
    epsilon: float, event: Event, submissions: int, where: str, details: Mapping[str, float]
) -> Claim:
    submissions = checks.count("submissions", submissions)
    certified = Certificate.issue(
        Repeated(event, submissions),
        0.0,
        unit=Unit.AGENT,
        relation=Relation.LOCAL,
        release=Release.EACH_REPORT,
        assumptions=(
            Assumption("non-finite gradients are mapped to a fixed one", "not by the paper"),
            Assumption("nothing but the report leaves the agent", "not by the paper"),
        ),
    )
    return Claim(
        epsilon=epsilon,
        delta=0.0,
        source=f"ono2020, {where}",
        scope="each single submission",
        why_not="scores and the time of stopping leave the agent unprotected, an agent that "
        "submits twice pays twice, and the proof is about real numbers.",
        covers=f"It is for {submissions} submission{'s' if submissions > 1 else ''} of one agent "
        "from which nothing but the reports leaves.",
        certified=certified,
        details={**details, "submissions": submissions},
    )


def _positive_delta(value: float) -> float:
    delta = checks.probability("delta", value)
    if delta == 0.0:
        raise InputError("must be above 0: this formula has none without it.", field="delta")
    return delta


CLAIMS: Mapping[str, Callable[..., Claim]] = {
    "xie2019": xie2019_lemma1,
    "xie2019-theorem1": xie2019_theorem1,
    "wang2019": wang2019_theorem5,
    "rajabi2022": rajabi2022_theorem1,
    "seo2020": seo2020_equation3,
    "ono2020": ono2020_laplace,
    "ono2020-sign": ono2020_sign,
}


def claim(name: str, parameters: Mapping[str, float | int | bool]) -> Claim:
    """The claim called `name`, with some of its parameters set; the others keep their defaults."""
    formula = CLAIMS.get(name)
    if formula is None:
        raise InputError(f"There is no claim {name!r}: use one of {', '.join(CLAIMS)}.")
    accepted = inspect.signature(formula).parameters
    unknown = sorted(set(parameters) - set(accepted))
    if unknown:
        raise InputError(f"{name} has no parameter {unknown[0]!r}: it has {', '.join(accepted)}.")
    return formula(**parameters)
