"""Private gradient collection, compiled, against the same algorithm in PyTorch and Gymnasium.

Both play CartPole with at most 200 steps by a network of 4, 16 and 2 units without biases, draw
actions from its softmax, bring the episode's gradient (returns discounted by 0.99, less a constant)
to unit length, report it by PrivUnit at epsilon 1, and make a step of Adam when 100 reports have
come. Two settings: a first, random model, whose episodes last some 20 steps, in submissions per
second; and a model that balances the pole for all 200 steps and does not change (rate 0), in
environment steps per second.

The alternative is written twice. "plain" asks PyTorch for each action, and keeps the logarithms of
probabilities for the gradient, as most scripts do. "tuned" is what a second reader made of it:
actions by NumPy from a copy of the weights, and one batched pass of PyTorch at the end of an
episode. Both run on one thread, which is fastest for networks of this size, without Gymnasium's
checks, and one agent after the other. Here 200 replicas go together on all cores, as whoever
repeats an experiment has them, with nine agents in flight in each: "open" whose report comes when
its episode is over, and "fixed" when all nine are. Compiling is apart.

PyTorch is not among privrl's dependencies: where it is missing there is one row that says so.
"""

import importlib
import importlib.util
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np

from privrl.control.pgc.losses import Model
from privrl.control.pgc.program import PGCProgram, play
from privrl.control.pgc.reports import Arm
from privrl.control.pgc.spec import Timing
from privrl.envs import CartPole
from privrl.privacy.mechanisms.unit_vector import PrivUnit
from privrl.privacy.noise import reproducible

EPSILON, GAMMA, BASELINE, RATE, BUFFER, HIDDEN = 1.0, 0.99, 25.0, 0.1, 100, 16
REPLICAS, ROUNDS = 200, 5
WHAT = "private gradient collection on CartPole, PrivUnit, buffer 100"


def balancing() -> Any:
    """Parameters of a model that keeps the pole up: it pushes to the side to which it falls."""
    first, last = np.zeros((HIDDEN, 4)), np.zeros((2, HIDDEN))
    lean = np.array([0.1, 0.3, 1.0, 0.8])
    first[0], first[1] = lean, -lean
    last[1, 0], last[0, 1] = 200.0, 200.0
    return np.concatenate([first.ravel(), last.ravel()])


@dataclass(frozen=True)
class Balancing(Model):
    """A model that begins with these parameters."""

    def initial_parameters(self, key: jax.Array) -> jax.Array:
        return jnp.asarray(balancing())


def run() -> Iterator[dict[str, Any]]:
    if importlib.util.find_spec("torch") is None:
        yield {"what": WHAT, "skipped": "PyTorch is not installed: pip install torch"}
        return
    yield from _measured("submissions per second, first episodes", None, 120, 200)
    yield from _measured("environment steps per second, full episodes", balancing(), 100, 20)


def _measured(unit: str, theta: Any, mine: int, theirs: int) -> Iterator[dict[str, Any]]:
    """`mine` submissions in each replica here, and `theirs` in all there, in turns."""
    by_steps = theta is not None
    begun = time.perf_counter()
    timings: tuple[Timing, ...] = ("open", "fixed")
    ours = {timing: partial(_ours, theta, timing, mine) for timing in timings}
    for whole in ours.values():
        whole()
    compiling = (time.perf_counter() - begun) / len(ours)
    loops = {kind: partial(_theirs(kind, theta), theirs) for kind in ("plain", "tuned")}
    for loop in loops.values():
        loop()
    speeds: dict[str, list[float]] = {name: [] for name in (*ours, *loops)}
    lengths: list[float] = []
    for _ in range(ROUNDS):
        for name, whole in (ours | loops).items():
            begun = time.perf_counter()
            reports, steps = whole()
            seconds = time.perf_counter() - begun
            speeds[name].append((steps if by_steps else reports) / seconds)
            lengths.append(steps / reports)
    for timing in ours:
        for kind in loops:
            ratios = [a / b for a, b in zip(speeds[timing], speeds[kind], strict=True)]
            yield {
                "what": WHAT,
                "unit": unit,
                "timing": timing,
                "against": f"PyTorch and Gymnasium, {kind}",
                "ours": statistics.median(speeds[timing]),
                "theirs": statistics.median(speeds[kind]),
                "ratio": statistics.median(ratios),
                "ratio_range": [min(ratios), max(ratios)],
                "steps_of_an_episode": [min(lengths), max(lengths)],
                "replicas": REPLICAS,
                "compile_s": compiling,
                "rounds": ROUNDS,
            }


def _ours(theta: Any, timing: Timing, submissions: int) -> tuple[int, int]:
    """How many reports and steps there were in all replicas, from the beginning."""
    env = CartPole()
    kind = Model if theta is None else Balancing
    model = kind(env.observation, 2, (HIDDEN,))
    arm = Arm(PrivUnit(EPSILON, model.dimension))
    # Full episodes are a multiple of 20 steps, so that nobody waits at the end of a block.
    block = 8 if theta is None else 20
    program = PGCProgram(env, model, (arm,), submissions, timing=timing, block=block)
    numbers = {"rate": RATE if theta is None else 0.0, "buffer": BUFFER, "gamma": GAMMA}
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), REPLICAS)
        settings = {
            name: jnp.full(REPLICAS, {**numbers, "baseline": BASELINE}.get(name, 0.0))
            for name in program.sweepable
        }
        scores = play(program, keys, settings, submissions)["return"]
    return scores.size, int(scores.sum())


def _theirs(kind: str, theta: Any) -> Callable[[int], tuple[int, int]]:
    """The same in PyTorch: a function that plays so many episodes, from the beginning."""
    torch = importlib.import_module("torch")

    torch.set_num_threads(1)
    env = gymnasium.make("CartPole-v1", max_episode_steps=200, disable_env_checker=True)
    plan = PrivUnit(EPSILON, 6 * HIDDEN)
    source, draw = reproducible(0), np.random.default_rng(0)

    def play(episodes: int) -> tuple[int, int]:
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Linear(4, HIDDEN, bias=False),
            torch.nn.ReLU(),
            torch.nn.Linear(HIDDEN, 2, bias=False),
        )
        if theta is not None:
            first, last = theta[: 4 * HIDDEN], theta[4 * HIDDEN :]
            with torch.no_grad():
                net[0].weight.copy_(torch.tensor(first.reshape(HIDDEN, 4)))
                net[2].weight.copy_(torch.tensor(last.reshape(2, HIDDEN)))
        optimiser = torch.optim.Adam(net.parameters(), lr=RATE if theta is None else 0.0)
        buffer: list[Any] = []
        steps = 0
        act = _plain if kind == "plain" else _tuned
        for _ in range(episodes):
            rewards, logs = act(torch, env, net, draw)
            steps += len(rewards)
            returns, total = np.zeros(len(rewards)), 0.0
            for t in range(len(rewards) - 1, -1, -1):
                total = rewards[t] + GAMMA * total
                returns[t] = total
            advantage = torch.from_numpy((returns - BASELINE).astype(np.float32))
            net.zero_grad()
            (-(logs * advantage).sum()).backward()
            flat = torch.cat([p.grad.reshape(-1) for p in net.parameters()]).numpy()
            size = float(np.linalg.norm(flat))
            report, _ = plan.release((flat / size if size > 0.0 else flat)[None], source)
            buffer.append(report[0])
            if len(buffer) == BUFFER:
                mean, at = torch.from_numpy(np.mean(buffer, axis=0).astype(np.float32)), 0
                for p in net.parameters():
                    p.grad = mean[at : at + p.numel()].reshape(p.shape)
                    at += p.numel()
                optimiser.step()
                buffer.clear()
        return episodes, steps

    return play


def _plain(torch: Any, env: Any, net: Any, draw: np.random.Generator) -> tuple[list[float], Any]:
    """PyTorch chooses each action, and remembers how likely it was."""
    seen, _ = env.reset(seed=int(draw.integers(2**31)))
    rewards: list[float] = []
    logs = []
    over = False
    while not over:
        law = torch.distributions.Categorical(logits=net(torch.from_numpy(seen)))
        action = law.sample()
        logs.append(law.log_prob(action))
        seen, reward, ended, late, _ = env.step(action.item())
        rewards.append(float(reward))
        over = ended or late
    return rewards, torch.stack(logs)


def _tuned(torch: Any, env: Any, net: Any, draw: np.random.Generator) -> tuple[list[float], Any]:
    """NumPy chooses the actions; PyTorch sees the episode once, as a whole."""
    first, last = (net[i].weight.detach().numpy() for i in (0, 2))
    difference = last[1] - last[0]
    seen, _ = env.reset(seed=int(draw.integers(2**31)))
    uniforms = draw.random(200)
    # The probability of the second action is above u where its lead is above log(u / (1 - u)).
    with np.errstate(divide="ignore"):
        bars = np.log(uniforms) - np.log1p(-uniforms)
    states, actions = [], []
    rewards: list[float] = []
    over = False
    while not over:
        hidden = np.maximum(first @ seen, 0.0)
        action = int(difference @ hidden > bars[len(rewards)])
        states.append(seen)
        actions.append(action)
        seen, reward, ended, late, _ = env.step(action)
        rewards.append(float(reward))
        over = ended or late
    logits = torch.log_softmax(net(torch.from_numpy(np.array(states))), dim=1)
    return rewards, logits[torch.arange(len(actions)), torch.tensor(actions)]
