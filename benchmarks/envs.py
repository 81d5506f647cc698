"""Environments: steps per second against Gymnasium, and HIV patients against SciPy's LSODA.

Actions are uniformly random on all sides. Ours run as one compiled `lax.scan` with automatic
resets; compile time stands apart. Gymnasium's single environment, its synchronous vector and its
hand-vectorised one (`vector_entry_point`, where there is one) run in the same process, alternating
with ours. The two sides take different numbers of steps, in proportion to their speed; what is
compared is steps per second.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import odeint, solve_ivp

from privrl.envs import HIV, Environment, make, random_policy, rollout
from privrl.envs.hiv import STARTS

SIZES = (1, 64, 1024)
EFFICACIES = ((0.0, 0.0), (0.7, 0.0), (0.0, 0.3), (0.7, 0.3))


def run(rounds: int = 5, patients: int = 1000) -> Iterator[dict[str, Any]]:
    """Throughput, then HIV."""
    for ours, theirs in (
        ("CartPole", "CartPole-v1"),
        ("MountainCar", "MountainCar-v0"),
        ("Taxi", "Taxi-v4"),
    ):
        yield from throughput(ours, theirs, rounds)
    for name in ("Chain", "MDP100", "ObstacleGrid", "Interval", "HIV"):
        yield from throughput(name, None, rounds)
    yield hiv_accuracy()
    yield from hiv_speed(patients, rounds)


# --- throughput -----------------------------------------------------------------------------------


def compiled(env: Environment[Any, Any], size: int, steps: int) -> tuple[Any, Any, float]:
    """The compiled rollout, its keys, and how long compiling took."""
    policy = random_policy(env.num_actions)
    keys = jax.random.split(jax.random.key(0), size)
    many = jax.jit(jax.vmap(lambda key: rollout(env, policy, key, steps)[1].reward.sum()))
    start = time.perf_counter()
    program = many.lower(keys).compile()
    return program, keys, time.perf_counter() - start


def rate(work: Callable[[], object], steps: int) -> float:
    start = time.perf_counter()
    work()
    return steps / (time.perf_counter() - start)


def single(env: Any, actions: Any) -> None:
    env.reset(seed=0)
    for action in actions:
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()


def vector(env: Any, actions: Any) -> None:
    env.reset(seed=0)
    for action in actions:
        env.step(action)


def throughput(name: str, theirs: str | None, rounds: int) -> Iterator[dict[str, Any]]:
    """One row for each number of environments."""
    env = make(name)
    assert isinstance(env, Environment)
    budget = 20_000 if name == "HIV" else 400_000
    for size in SIZES if theirs else (SIZES[0], SIZES[-1]):
        steps = max(budget // size // (20 if size == 1 and name == "HIV" else 1), 20)
        program, keys, compiling = compiled(env, size, steps)

        def ours(program: Any = program, keys: Any = keys) -> object:
            return jax.block_until_ready(program(keys))  # type: ignore[no-untyped-call]

        ours()
        others = rivals(theirs, size, env.num_actions) if theirs else {}
        rates: dict[str, list[float]] = {side: [] for side in ("ours", *others)}
        for _ in range(rounds):
            rates["ours"].append(rate(ours, size * steps))
            for other, (work, count) in others.items():
                rates[other].append(rate(work, count))
        row: dict[str, Any] = {
            "environment": name,
            "environments_at_once": size,
            "steps_per_second": statistics.median(rates["ours"]),
            "spread": [min(rates["ours"]), max(rates["ours"])],
            "compile_s": compiling,
        }
        for other in others:
            ratios = [a / b for a, b in zip(rates["ours"], rates[other], strict=True)]
            row[other] = {
                "steps_per_second": statistics.median(rates[other]),
                "ratio": statistics.median(ratios),
                "ratio_spread": [min(ratios), max(ratios)],
            }
        yield row


def rivals(name: str, size: int, actions: int) -> dict[str, tuple[Callable[[], object], int]]:
    """What Gymnasium offers for as many environments, with the number of steps to time."""
    rng = np.random.default_rng(0)
    if size == 1:
        count = 10_000
        one, chosen = gymnasium.make(name), rng.integers(actions, size=count).tolist()
        return {"gymnasium": (lambda: single(one, chosen), count)}
    found: dict[str, tuple[Callable[[], object], int]] = {}
    for mode, steps in (("sync", max(10_000 // size, 5)), ("vector_entry_point", 300)):
        try:
            many = gymnasium.make_vec(name, num_envs=size, vectorization_mode=mode)
        except gymnasium.error.Error:
            continue  # Taxi and MountainCar have no hand-vectorised form
        table = rng.integers(actions, size=(steps, size))
        found[mode] = (partial(vector, many, table), steps * size)
    return found


# --- HIV ------------------------------------------------------------------------------------------


def hiv_accuracy() -> dict[str, Any]:
    """Undiscounted returns of the fixed policies over 200 decisions, ours against LSODA at 1e-9."""
    actions = np.repeat(np.arange(4)[:, None], 200, axis=1)
    reference = [by_odeint(row, 1e-9) for row in actions]
    row: dict[str, Any] = {"figure": "HIV returns, 200 decisions: none, RTI, PI, both"}
    row["lsoda"] = reference
    for bits in (64, 32):
        with jax.enable_x64(bits == 64):
            found = np.asarray(jax.jit(follow)(jnp.asarray(actions)), np.float64)
        row[f"ours_{bits}_bits"] = found.tolist()
        row[f"worst_error_{bits}_bits"] = float(np.max(np.abs(found / reference - 1)))
    return row


def follow(actions: jax.Array) -> jax.Array:
    """The return of each patient, whose decisions are a row of `actions`."""
    env, key = HIV(), jax.random.key(0)

    def one(decisions: jax.Array) -> jax.Array:
        def body(state: Any, action: jax.Array) -> Any:
            after = env.step(key, state, action)
            return after.state, after.reward

        rewards: jax.Array = jax.lax.scan(body, env.reset(key)[0], decisions)[1]
        return rewards.sum()

    return jax.vmap(one)(actions)


def equations(y: Any, t: float, rti: float, pi: float) -> tuple[float, ...]:
    """The model in plain Python numbers, with constants folded: the fastest that SciPy can call."""
    t1, t2, s1, s2, v, e = y.tolist()
    new1 = (1.0 - rti) * 8e-7 * v * t1
    new2 = (1.0 - 0.34 * rti) * 1e-4 * v * t2
    infected = s1 + s2
    return (
        1e4 - 0.01 * t1 - new1,
        31.98 - 0.01 * t2 - new2,
        new1 - (0.7 + 1e-5 * e) * s1,
        new2 - (0.7 + 1e-5 * e) * s2,
        (1.0 - pi) * 70.0 * infected - 13.0 * v - new1 - new2,
        1.0
        + (0.3 * infected / (infected + 100.0) - 0.25 * infected / (infected + 500.0) - 0.1) * e,
    )


def by_odeint(actions: Any, tolerance: float = 1e-6) -> float:
    """One patient by `odeint`, LSODA's older and faster interface: one call for each decision."""
    y, total = np.array(STARTS["unhealthy"]), 0.0
    for action in actions:
        rti, pi = EFFICACIES[action]
        y = odeint(
            *(equations, y, (0.0, 5.0), (rti, pi)), rtol=tolerance, atol=tolerance, mxstep=100_000
        )[1]
        total += 1000 * y[5] - 0.1 * y[4] - 20000 * rti**2 - 2000 * pi**2
    return float(total)


def by_solve_ivp(actions: Any, tolerance: float = 1e-6) -> float:
    """The same by `solve_ivp`."""
    y, total = np.array(STARTS["unhealthy"]), 0.0
    for action in actions:
        rti, pi = EFFICACIES[action]

        def slopes(t: float, y: Any, rti: float = rti, pi: float = pi) -> tuple[float, ...]:
            return equations(y, t, rti, pi)

        solved = solve_ivp(
            slopes,
            (0.0, 5.0),
            y,
            method="LSODA",
            t_eval=(5.0,),
            rtol=tolerance,
            atol=tolerance,
        )
        y = solved.y[:, -1]
        total += 1000 * y[5] - 0.1 * y[4] - 20000 * rti**2 - 2000 * pi**2
    return float(total)


def all_in_one(actions: Any, tolerance: float = 1e-6) -> Any:
    """All patients as one large system with a banded Jacobian: one `odeint` call per decision.

    Nobody writes it so, but it spares SciPy its calls into Python. LSODA takes the steps that its
    most difficult patient needs for all of them.
    """
    size = len(actions)
    y, total = np.tile(STARTS["unhealthy"], size), np.zeros(size)
    out = np.empty((size, 6))

    def slopes(flat: Any, t: float, a1: Any, a2: Any, made: Any) -> Any:
        t1, t2, s1, s2, v, e = flat.reshape(size, 6).T.copy()
        new1, new2, infected, death = a1 * v * t1, a2 * v * t2, s1 + s2, 0.7 + 1e-5 * e
        growth = 0.3 * infected / (infected + 100.0) - 0.25 * infected / (infected + 500.0) - 0.1
        out[:, 0] = 1e4 - 0.01 * t1 - new1
        out[:, 1] = 31.98 - 0.01 * t2 - new2
        out[:, 2] = new1 - death * s1
        out[:, 3] = new2 - death * s2
        out[:, 4] = made * infected - 13.0 * v - new1 - new2
        out[:, 5] = 1.0 + growth * e
        return out.ravel()

    for step in range(actions.shape[1]):
        rti, pi = np.array(EFFICACIES)[actions[:, step]].T
        folded = ((1.0 - rti) * 8e-7, (1.0 - 0.34 * rti) * 1e-4, (1.0 - pi) * 70.0)
        y = odeint(
            *(slopes, y, (0.0, 5.0), folded),
            rtol=tolerance,
            atol=tolerance,
            ml=5,
            mu=5,
            mxstep=100_000,
        )[1]
        v, e = y.reshape(size, 6).T[4:]
        total += 1000 * e - 0.1 * v - 20000 * rti**2 - 2000 * pi**2
    return total


def one_by_one(method: Callable[[Any, float], float], tolerance: float) -> Callable[[Any], Any]:
    return lambda actions: np.array([method(row, tolerance) for row in actions])


def hiv_speed(patients: int, rounds: int) -> Iterator[dict[str, Any]]:
    """`patients` people, 200 random decisions each, the same on all sides: a row for each rival.

    In each round a rival treats a share of the people, and its time is scaled up; over the rounds
    `odeint` treats everybody once. Giving it the Jacobian makes no
    consistent difference. At 1e-6 SciPy is more accurate than ours, at 1e-5 about as accurate.
    """
    share = -(-patients // rounds)
    rivals: tuple[tuple[str, Callable[[Any], Any], int, int], ...] = (
        ("odeint, patient by patient, 1e-6", one_by_one(by_odeint, 1e-6), share, rounds),
        ("odeint, patient by patient, 1e-5", one_by_one(by_odeint, 1e-5), -(-share // 10), rounds),
        ("solve_ivp, patient by patient, 1e-6", one_by_one(by_solve_ivp, 1e-6), 2, rounds),
        ("odeint, all patients as one banded system, 1e-6", all_in_one, patients, 1),
    )
    actions = np.random.default_rng(0).integers(0, 4, (patients, 200))
    with jax.enable_x64(True):
        decisions = jnp.asarray(actions)
        start = time.perf_counter()
        program = jax.jit(follow).lower(decisions).compile()
        compiling = time.perf_counter() - start
        returns = np.asarray(program(decisions))

        def timed() -> float:
            start = time.perf_counter()
            jax.block_until_ready(program(decisions))  # type: ignore[no-untyped-call]
            return time.perf_counter() - start

        for name, method, count, repeats in rivals:
            ours, theirs, worst = [], [], 0.0
            for number in range(repeats):
                some = (np.arange(count) + number * count) % patients
                # A share takes half a minute: ours runs before and after it, so that both see the
                # same neighbours on the machine.
                before = [timed() for _ in range(3)]
                start = time.perf_counter()
                found = method(actions[some])
                theirs.append((time.perf_counter() - start) * patients / count)
                ours.append(statistics.mean([*before, *(timed() for _ in range(3))]))
                worst = max(worst, float(np.max(np.abs(returns[some] / found - 1))))
            ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
            yield {
                "figure": f"HIV, {patients} patients, 200 decisions each",
                "rival": name,
                "rival_s": statistics.median(theirs),
                "ours_s": statistics.median(ours),
                "ratio": statistics.median(ratios),
                "ratio_spread": [min(ratios), max(ratios)],
                "patients_timed_per_round": count,
                "rounds": repeats,
                "worst_difference_of_a_return": worst,
                "compile_s": compiling,
            }
