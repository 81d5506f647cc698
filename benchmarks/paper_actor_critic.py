"""The paper's actor-critic with lazy noise, against a NumPy loop that draws all noise.

Taxi (500 states, 6 actions), steps of all runs together per second: 16 and 64 runs side by side
here, one run after the other in NumPy, as its arrays are long enough to be busy. Both time whole
episodes of the same settings; compiling is timed apart. Then the time of a step with 500 and with
50,000 states, on tables where each action leads to one random state.

The NumPy loop is `privrl.papers.seo2020.algorithm.run`, made fast: it works in place on flat
arrays, draws normals into a buffer, skips traces at lambda = 0 and does the arithmetic of single
rows in plain Python, which is faster there. A test holds the two equal, with noise.
"""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import compare
from privrl.envs import TabularMDP, Taxi
from privrl.papers.seo2020 import ActorCritic, ActorCriticProgram
from privrl.papers.seo2020.parts import LearnerState

Floats = NDArray[np.float64]

SETTINGS = ActorCritic(epsilon=10.0, actor_step=0.5, critic_step=0.05, correction_step=0.05)
VARIANTS = ("none", "actor", "critic", "both")


class Played(NamedTuple):
    """What `play` gives back."""

    u: Floats
    v: Floats
    w: Floats
    total: list[float]
    """The return of each episode."""

    length: list[int]


def play(
    config: ActorCritic,
    env: TabularMDP,
    first: Floats,
    probs: Floats,
    rng: np.random.Generator,
) -> Played:
    """`algorithm.run`, from the same draws to the same numbers but for rounding."""
    tables = env.default_params
    successors, rewards = np.asarray(tables.successors), np.asarray(tables.rewards)
    cumulative, ends = np.asarray(tables.cumulative), np.asarray(tables.terminated)
    states, actions = successors.shape[:2]
    gamma, lam, sigma = config.gamma, float(config.lambda_), float(config.multiplier)
    actor_step, critic_step = float(config.actor_step), float(config.critic_step)
    correction_step, decay = float(config.correction_step), gamma * lam
    noisy_actor = config.variant in ("actor", "both")
    noisy_critic = config.variant in ("critic", "both")
    greedy, printed = config.acting == "epsilon-greedy", config.correction == "printed"
    horizon = min(n for n in (env.step_limit, config.max_steps) if n is not None)

    u = np.zeros(states * actions)
    v, w = np.zeros(states), np.zeros(states)
    actor_trace, critic_trace = np.zeros_like(u), np.zeros(states)
    noise, work = np.zeros_like(u), np.zeros_like(u)
    small, scratch = np.zeros(states), np.zeros(states)
    totals, lengths = [], []
    for episode in range(len(first)):
        actor_trace.fill(0.0)
        critic_trace.fill(0.0)
        s = int(np.searchsorted(tables.start, first[episode], side="right"))
        total = 0.0
        for t in range(horizon):
            where, which = probs[episode, t].tolist()
            row = slice(s * actions, (s + 1) * actions)
            values = u[row].tolist()
            highest = max(values)
            weights = [math.exp(value - highest) for value in values]
            whole = sum(weights)
            policy = [weight / whole for weight in weights]
            rho = 1.0
            if not greedy:
                a, below = 0, policy[0]
                while a < actions - 1 and which >= below:
                    a += 1
                    below += policy[a]
            elif which < config.exploration:
                a = min(int(which / config.exploration * actions), actions - 1)
                rho = policy[a] * actions
            else:
                a = values.index(highest)
            bounds = cumulative[s, a, :-1]
            k = int(np.count_nonzero(where >= bounds)) if bounds.size else 0
            after, reward = int(successors[s, a, k]), float(rewards[s, a, k])
            ended = bool(ends[s, a, k])
            total += reward
            goes_on = 0.0 if ended else gamma
            delta = reward + goes_on * float(v[after]) - float(v[s])

            # The critic.
            corrected = s if printed else after
            w_here = float(w[s])
            if lam == 0.0:
                amount = goes_on * rho * w_here
                entries = {s: delta * rho}
                entries[corrected] = entries.get(corrected, 0.0) - amount
                scale = critic_step
                if noisy_critic:
                    norm = math.hypot(*entries.values())
                    bound = _bound(config, np.array(list(entries.values())))
                    scale = critic_step * bound / norm if norm > 0.0 else 0.0
                    rng.standard_normal(out=small)
                    np.multiply(small, critic_step * sigma * bound, out=small)
                    np.add(v, small, out=v)
                for state, entry in entries.items():
                    v[state] += scale * entry
                w[s] += correction_step * (delta * rho - w_here)
            else:
                np.multiply(critic_trace, rho * decay, out=critic_trace)
                critic_trace[s] += rho
                amount = goes_on * (1.0 - lam) * float(w @ critic_trace)
                np.multiply(critic_trace, delta, out=scratch)
                np.multiply(scratch, correction_step, out=small)
                np.add(w, small, out=w)
                w[s] -= correction_step * w_here
                scratch[corrected] -= amount
                scale = critic_step
                if noisy_critic:
                    norm = math.sqrt(float(scratch @ scratch))
                    bound = _bound(config, scratch)
                    scale = critic_step * bound / norm if norm > 0.0 else 0.0
                    rng.standard_normal(out=small)
                    np.multiply(small, critic_step * sigma * bound, out=small)
                    np.add(v, small, out=v)
                np.multiply(scratch, scale, out=scratch)
                np.add(v, scratch, out=v)

            # The actor.
            gradient = [-prob for prob in policy]
            gradient[a] += 1.0
            push = actor_step * delta
            bound = 0.0
            if noisy_actor:
                norm = math.hypot(*gradient) or 1.0
                bound = _small_bound(config, gradient)
                gradient = [entry / norm * bound for entry in gradient]
                rng.standard_normal(out=noise)
            if lam == 0.0:
                if noisy_actor:
                    np.multiply(noise, push * rho * sigma * bound, out=noise)
                    np.add(u, noise, out=u)
                for action, entry in enumerate(gradient):
                    u[s * actions + action] += push * rho * entry
            else:
                np.multiply(actor_trace, rho * decay, out=actor_trace)
                if noisy_actor:
                    np.multiply(noise, rho * sigma * bound, out=noise)
                    np.add(actor_trace, noise, out=actor_trace)
                for action, entry in enumerate(gradient):
                    actor_trace[s * actions + action] += rho * entry
                np.multiply(actor_trace, push, out=work)
                np.add(u, work, out=u)
            s = after
            if ended:
                break
        totals.append(total)
        lengths.append(t + 1)
    return Played(u.reshape(states, actions), v, w, totals, lengths)


def _bound(config: ActorCritic, vector: Floats) -> float:
    """C of an array."""
    if config.clip != "median":
        return float(config.clip)
    sizes = np.abs(vector[np.nonzero(vector)])
    if not sizes.size:
        return 0.0
    middle = sizes.size // 2
    if sizes.size % 2:
        return float(np.partition(sizes, middle)[middle])
    low, high = np.partition(sizes, (middle - 1, middle))[middle - 1 : middle + 1]
    return float(low + high) / 2.0


def _small_bound(config: ActorCritic, vector: list[float]) -> float:
    """C of a short list."""
    if config.clip != "median":
        return float(config.clip)
    sizes = [abs(entry) for entry in vector if entry != 0.0]
    return median(sizes) if sizes else 0.0


# --- figures --------------------------------------------------------------------------------------


def wait(found: Any) -> None:
    """Until it is computed."""
    # JAX has no types for it.
    jax.block_until_ready(found)  # type: ignore[no-untyped-call]


def compiled(
    config: ActorCritic, env: TabularMDP, replicas: int, episodes: int
) -> tuple[Any, LearnerState, float]:
    """A program, its first state, and the seconds until it has played once."""
    program = ActorCriticProgram(config, env)
    state = program.init(jax.random.split(jax.random.key(0), replicas))
    begun = time.perf_counter()
    wait(program.advance(state, episodes))
    return program, state, time.perf_counter() - begun


def speed(variant: Any, lambda_: float, replicas: int, rounds: int = 7) -> dict[str, Any]:
    """Steps per second of whole learning runs on Taxi."""
    config = replace(SETTINGS, variant=variant, lambda_=lambda_)
    env, episodes = Taxi(), 20
    program, state, compiling = compiled(config, env, replicas, episodes)
    ours = int(np.sum(program.advance(state, episodes)[1]["length"]))
    rng = np.random.default_rng(0)
    first, probs = rng.random(3), rng.random((3, 200, 2))
    theirs = sum(play(config, env, first, probs, np.random.default_rng(1)).length)
    found = compare(
        lambda: wait(program.advance(state, episodes)),
        lambda: play(config, env, first, probs, np.random.default_rng(1)),
        rounds,
    )
    # Seconds of the same number of steps.
    per_step = ours / theirs
    quartiles: Any = found["ratio_quartiles"]
    ratio: Any = found["ratio"]
    ours_s: Any = found["ours_s"]
    theirs_s: Any = found["theirs_s"]
    return {
        "what": "steps per second on Taxi, all replicas together, against a NumPy loop",
        "variant": variant,
        "lambda": lambda_,
        "replicas": replicas,
        "ours_us_per_step": round(1e6 * ours_s / ours, 3),
        "numpy_us_per_step": round(1e6 * theirs_s / theirs, 2),
        "ratio": round(ratio * per_step, 1),
        "ratio_quartiles": [round(one * per_step, 1) for one in quartiles],
        "rounds": rounds,
        "compile_s": round(compiling, 1),
    }


def random_table(states: int, seed: int = 0) -> TabularMDP:
    """Six actions that lead anywhere, one successor each; nothing terminates before step 200."""
    rng = np.random.default_rng(seed)
    shape = (states, 6, 1)
    return TabularMDP.from_tables(
        rng.integers(states, size=shape),
        np.ones(shape),
        rng.uniform(-1.0, 1.0, shape),
        step_limit=200,
    )


def growth(variant: Any, lambda_: float, replicas: int = 16, rounds: int = 7) -> dict[str, Any]:
    """How much longer a step takes with 50,000 states than with 500.

    The states are handed over once in a call of 100 episodes, and copied once.
    """
    config = replace(SETTINGS, variant=variant, lambda_=lambda_)
    episodes = 100
    few = compiled(config, random_table(500), replicas, episodes)
    many = compiled(config, random_table(50_000), replicas, episodes)
    found = compare(
        lambda: wait(few[0].advance(few[1], episodes)),
        lambda: wait(many[0].advance(many[1], episodes)),
        rounds,
    )
    steps = 200 * replicas * episodes
    few_s: Any = found["ours_s"]
    many_s: Any = found["theirs_s"]
    return {
        "what": "time of a step with 50,000 states over that with 500",
        "variant": variant,
        "lambda": lambda_,
        "replicas": replicas,
        "us_per_step_500": round(1e6 * few_s / steps, 3),
        "us_per_step_50000": round(1e6 * many_s / steps, 3),
        "ratio": found["ratio"],
        "ratio_quartiles": found["ratio_quartiles"],
        "rounds": rounds,
    }


def run() -> Iterator[dict[str, Any]]:
    for lambda_ in (0.0, 0.8):
        for replicas in (16, 64):
            for variant in VARIANTS:
                yield speed(variant, lambda_, replicas)
    for lambda_ in (0.0, 0.8):
        yield growth("both", lambda_)
