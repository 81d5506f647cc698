"""The paper's Q-learning with functional noise, compiled, against the same algorithm in PyTorch.

Both do what the paper's public code does: 5,000 samples of the interval in 100 episodes, from the
128th on one update of batch 128 after each, noise of standard deviation 0.2 on both networks, a
fresh path for each episode, drawn at a state when it is first asked for.

The PyTorch loop finds a state's neighbours in the path by bisection in sorted Python lists. It
keeps samples in memory that NumPy writes and PyTorch reads, looks states that were asked for before
up in a dictionary, turns each minibatch's noise into one tensor, clamps all gradients at once, and
draws normals by the thousand. It runs on one thread, and RMSprop parameter by parameter, which is
faster for networks of this size.

Seconds for one run of it are compared with those for a run here when 60 go together, and when there
is one, with and without compiling. PyTorch is not among privrl's dependencies: where it is missing
there is one row that says so. `pip install torch` brings it.
"""

import importlib
import importlib.util
import math
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.measure import compare, seconds
from privrl.control.replicas import _COMPILED
from privrl.envs import Interval
from privrl.papers.wang2019 import FunctionalQ
from privrl.papers.wang2019 import fast as paper

WHAT = "Q-learning with functional noise, 5,000 samples, batch 128"
SIGMA, EPISODES, STEPS, LAST = 0.2, 100, 50, 10


class ListedPath:
    """A path of noise for two actions, in sorted lists."""

    def __init__(self, sigma: float, rng: np.random.Generator) -> None:
        self.sigma, self.rng = sigma, rng
        self.normals: list[float] = []
        self.clear()

    def clear(self) -> None:
        self.sites: list[float] = []
        self.values: list[tuple[float, float]] = []
        self.known: dict[float, tuple[float, float]] = {}

    def at(self, x: float) -> tuple[float, float]:
        found = self.known.get(x)
        return self.drawn(x) if found is None else found

    def drawn(self, x: float) -> tuple[float, float]:
        if len(self.normals) < 2:
            self.normals = self.rng.standard_normal(2000).tolist()
        place = bisect_left(self.sites, x)
        u = x - self.sites[place - 1] if place else math.inf
        v = self.sites[place] - x if place < len(self.sites) else math.inf
        left, right, whole = -math.expm1(-2 * u), -math.expm1(-2 * v), -math.expm1(-2 * (u + v))
        mean = [0.0, 0.0]
        if place:
            weight, value = math.exp(-u) * right / whole, self.values[place - 1]
            mean = [weight * value[0], weight * value[1]]
        if place < len(self.sites):
            weight, value = math.exp(-v) * left / whole, self.values[place]
            mean = [mean[0] + weight * value[0], mean[1] + weight * value[1]]
        spread = self.sigma * math.sqrt(left * right / whole)
        pair = (
            mean[0] + spread * self.normals.pop(),
            mean[1] + spread * self.normals.pop(),
        )
        self.sites.insert(place, x)
        self.values.insert(place, pair)
        self.known[x] = pair
        return pair


def torch_run(seed: int, sigma: float = SIGMA, episodes: int = EPISODES) -> list[float]:
    """The return of each episode of one run in PyTorch."""
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    prob, rng = random.Random(seed), np.random.default_rng(seed)
    batch, gamma, total = 128, 0.999, episodes * STEPS

    def network() -> Any:
        layers = (torch.nn.Linear(1, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
        return torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(16, 2))

    policy, target = network(), network()
    target.load_state_dict(policy.state_dict())
    optimiser = torch.optim.RMSprop(policy.parameters(), lr=0.01, foreach=False)
    parameters = list(policy.parameters())
    policy_path, target_path = ListedPath(sigma, rng), ListedPath(sigma, rng)
    # Written as NumPy arrays, which is faster for single numbers, and read as tensors.
    kept, taken = np.zeros((4, total), np.float32), np.zeros((total, 1), np.int64)
    stored, actions = torch.from_numpy(kept), torch.from_numpy(taken)
    states, after, rewards, goes_on = stored[0][:, None], stored[1][:, None], stored[2], stored[3]
    listed: list[float] = []
    listed_after: list[float] = []

    returns, number = [], 0
    for episode in range(episodes):
        policy_path.clear()
        target_path.clear()
        if episode and episode % 10 == 0:
            target.load_state_dict(policy.state_dict())
        x, reached = prob.random(), 0.0
        for step in range(STEPS):
            kept[0, number] = x
            listed.append(x)
            if prob.random() < 0.05 + 0.85 * math.exp(-number / 200):
                action = prob.randrange(2)
            else:
                with torch.no_grad():
                    q = policy(states[number]).tolist()
                noise = policy_path.at(x)
                action = int(q[1] + noise[1] > q[0] + noise[0])
            size = 0.25 * prob.random()
            x = min(1.0, x + size) if action == 0 else max(0.0, x - size)
            reward = 0.5 - abs(x - 0.5)
            reached += reward
            kept[1, number] = x
            listed_after.append(x)
            taken[number, 0] = action
            kept[2, number] = reward
            kept[3, number] = 0.0 if step == STEPS - 1 else gamma
            number += 1
            if number < batch:
                continue

            drawn = prob.sample(range(number), batch)
            picks = torch.tensor(drawn)
            met = np.array([policy_path.at(listed[k]) for k in drawn], np.float32)
            led = np.array([target_path.at(listed_after[k]) for k in drawn], np.float32)
            here, there = torch.from_numpy(met), torch.from_numpy(led)
            predicted = (policy(states[picks]) + here).gather(1, actions[picks])[:, 0]
            with torch.no_grad():
                best = (target(after[picks]) + there).max(1).values
                aim = rewards[picks] + goes_on[picks] * best
            loss = torch.nn.functional.smooth_l1_loss(predicted, aim)
            optimiser.zero_grad()
            loss.backward()
            slopes = [parameter.grad for parameter in parameters]
            torch._foreach_clamp_min_(slopes, -1.0)
            torch._foreach_clamp_max_(slopes, 1.0)
            optimiser.step()
        returns.append(reached)
    return returns


def ours(replicas: int) -> Any:
    """All runs, to the end."""
    keys = jax.random.split(jax.random.key(0), replicas)
    return paper.train(keys, FunctionalQ.public_code(sigma=SIGMA), Interval())


def together(replicas: int = 60, rounds: int = 3) -> dict[str, Any]:
    """Seconds for one run, when so many go together."""
    found: Any = compare(lambda: ours(replicas), lambda: torch_run(0), rounds)
    return {
        "what": f"{WHAT}: seconds a run",
        "replicas": replicas,
        "ours_s": round(found["ours_s"] / replicas, 4),
        "torch_s": round(found["theirs_s"], 2),
        "ratio": round(found["ratio"] * replicas, 1),
        "ratio_quartiles": [round(one * replicas, 1) for one in found["ratio_quartiles"]],
        "rounds": rounds,
        # That both learn the same: the mean return of the last episodes.
        "ours_return": round(float(np.mean(ours(replicas).returns[:, -LAST:])), 2),
        "torch_return": round(statistics.mean(torch_run(0)[-LAST:]), 2),
    }


def alone(rounds: int = 3) -> dict[str, Any]:
    """Seconds for a single run, with and without compiling."""
    # As in a fresh process. JAX has no types for it.
    jax.clear_caches()  # type: ignore[no-untyped-call]
    _COMPILED.clear()
    begun = time.perf_counter()
    ours(1)
    first = time.perf_counter() - begun
    again = statistics.median(seconds(lambda: ours(1)) for _ in range(rounds))
    theirs = statistics.median(seconds(lambda: torch_run(0)) for _ in range(rounds))
    return {
        "what": f"{WHAT}: seconds for a single run",
        "with_compiling_s": round(first, 2),
        "compiled_s": round(again, 2),
        "torch_s": round(theirs, 2),
        "rounds": rounds,
    }


def run() -> Iterator[dict[str, Any]]:
    if importlib.util.find_spec("torch") is None:
        yield {"what": WHAT, "skipped": "PyTorch is not installed: pip install torch"}
        return
    yield together()
    yield alone()
