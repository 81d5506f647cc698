"""Algorithms 1 to 3 of Rajabi et al. (2022) in NumPy, in the paper's line order: PP-CPT-RL.

Q_theta is a small network with a value for each action, of states scaled to [0, 1]^k, and g a field
of noise for each action. In each of T_max iterations theta stands still, and there are B steps from
a fresh start. At a state s, with pi the policy that is learned,

    a    = argmax_b Q(s, b) + g_b(s)                             or drawn in proportion
    X_n  = r_n + gamma sum_b pi(b | s_n) (Q(s_n, b) + g_b(s_n))  of N_max successors s_n of (s, a)
    l    = (rho(X_1, ..., X_N) - Q(s, a) - g_a(s))^2 / 2
    s*   = the s_n of the largest X_n, from where the next step goes on
    theta <- theta - (alpha / B) sum grad l                      after B steps, over these

where rho is the CPT value of samples (`privrl.risk`). `ProspectQ.printed` is this, and
`ProspectQ.public_code` has the settings of the authors' public code; each departure is a field of
`ProspectQ`. What the paper leaves open or prints otherwise:

- The weights of gains are w+((N + 1 - i) / N) - w+((N - i) / N). Printed is (N + i - 1) / N, which
  is above 1, so that a negative number is raised to a fractional power: Table I and Figure 2 come
  from complex numbers.
- s* is the best of the samples. As printed the search begins at X_0 = 0, and with penalties no
  sample is ever better: the agent would never move.
- The target network, of which the text speaks, is theta before the iteration's update.
- After termination V is 0, and an end within an iteration is followed by a fresh start.
- N_max successors of one (s, a) need a simulator that can go back: environments that compile can.
- Drawing *in proportion* is from the softmax of the noised Q, as in the public code.
- The gradient is that of Q(s, a); rho is a constant to it.

**Noise.** Algorithm 3 draws g at a new state given all states before, which for B N_max T_max
points cannot be done in two dimensions, where there is no Markov property; the public code does it
for the distance to the corner, so that states on a circle share their noise. Here g is a field of
finitely many weights, drawn at once (`privrl.papers.rajabi2022.field`). With sigma as the paper has
it none of this is private: its proof is about an interval. In two dimensions the space of the
product kernel holds functions with square-integrable mixed derivatives only, and networks of
rectifiers are not among them; the space of a feature kernel holds no network either. What can be
proven is in `privrl.control.prospect_q`.

Released: nothing is certified. The paper's promise, of each single iteration, is a Claim, for the
sigma and beta that Theorem 1 fixes together; a sigma of one's own has none. What is shown is Q + g
(`learner.make_result`), with the path of the last iteration.

Randomness is an argument (`IterationDraws`, the field g), so that `privrl.papers.rajabi2022.fast`,
which does the same for many runs at once, is compared with this line by line.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from privrl.core.types import AnyArray, Floats
from privrl.papers.rajabi2022.learner import ProspectQ
from privrl.papers.wang2019.algorithm import Network, rmsprop


class Outcome(NamedTuple):
    """Where an action led."""

    x: Floats
    """(k,): the state, scaled."""

    reward: float
    ends: bool


class IterationDraws(NamedTuple):
    """All randomness of an iteration but its noise."""

    begun: Floats
    """(B, k): fresh starts, scaled, for where a step has to start afresh."""

    successors: Any
    """(B, N_max, ...): where actions lead, as the world takes it."""

    share: Floats
    """(B,), from [0, 1): which action."""

    picks: AnyArray
    """(minibatch,): the remembered steps that the update takes, if it draws them."""


class Step(NamedTuple):
    """A step, as it is learned from."""

    x: Floats
    action: int
    aim: float
    """What Q(s, a) is to meet: rho - g_a(s)."""


class StepRecord(NamedTuple):
    """A step, as it is reported."""

    loss: float
    reward: float


World = Callable[[Floats, int, Any], Outcome]
"""From a scaled state, an action and random numbers: one successor."""

Field = Callable[[Floats], Floats]
"""g: the noise of each action, (actions,), at a scaled state."""


class PPCPTRL:
    """One run, from `weights`."""

    def __init__(
        self, learner: ProspectQ, world: World, sizes: tuple[int, int], weights: Floats
    ) -> None:
        """`sizes` are how many numbers a state has, and how many actions there are."""
        self.learner, self.world, self.actions = learner, world, sizes[1]
        self.network = Network((sizes[0], *learner.hidden, self.actions))
        self.weights = self.target = weights
        self.squares = np.zeros_like(weights)
        self.steps: list[Step] = []
        self.iterations = 0

    def iteration(self, draws: IterationDraws, g: Field) -> list[StepRecord]:
        """Algorithm 2: B steps from a fresh start, then one update."""
        learner = self.learner
        if self.iterations % learner.target_every == 0:
            self.target = self.weights
        x, seen = draws.begun[0], []
        for k in range(learner.batch):
            # Choose a by Q + g.
            here = self.network.q(self.weights, x) + g(x)
            likely = np.full(self.actions, 1.0 / self.actions)
            if learner.behaviour == "acting":
                likely = self.policy(here)
            action = int(np.sum(draws.share[k] >= np.cumsum(likely)[:-1]))
            # Estimate rho of (s, a), and find s*.
            rho, after = self.cpt_value(x, action, draws.successors[k], g)
            # The loss of the step.
            self.steps.append(Step(x, action, rho - g(x)[action]))
            seen.append(StepRecord(0.5 * (rho - here[action]) ** 2, after.reward))
            x = draws.begun[k] if after.ends else after.x
        # One step of SGD.
        self.update(draws.picks)
        self.iterations += 1
        return seen

    def cpt_value(self, x: Floats, action: int, probs: Any, g: Field) -> tuple[float, Outcome]:
        """Algorithm 1: the CPT value of (s, a) from N_max successors, and which one is s*."""
        outcomes, values = [], []
        for one in probs:
            # Draw s_n and r_n; the noised Q there; X_n.
            after = self.world(x, action, one)
            there = self.network.q(self.target, after.x) + g(after.x)
            worth = float(np.max(there))
            if self.learner.backup == "acting":
                worth = float(self.policy(there) @ there)
            outcomes.append(after)
            values.append(after.reward + (0.0 if after.ends else self.learner.gamma * worth))
        # Sort and weigh the X_n.
        rho = float(self.learner.prospect.of_samples(np.array(values)))
        best = int(np.argmax(values)) if self.learner.successor == "best" else 0
        return rho, outcomes[best]

    def policy(self, values: Floats) -> Floats:
        """(actions,): the probabilities of actions under the policy that is learned."""
        if self.learner.acting == "greedy":
            return np.asarray(np.eye(self.actions)[np.argmax(values)])
        raised = np.exp(values / self.learner.temperature)
        return np.asarray(raised / raised.sum())

    def update(self, picks: AnyArray) -> None:
        """theta <- theta - (alpha / B) sum grad l."""
        learner, batch = self.learner, self.steps[-self.learner.batch :]
        if learner.replay:
            if min(len(self.steps), learner.replay) < learner.minibatch:
                return
            # The t-th step is in place t modulo the size of the memory.
            memory = {t % learner.replay: step for t, step in enumerate(self.steps)}
            batch = [memory[int(i)] for i in picks]
        gradient = np.zeros_like(self.weights)
        for x, action, aim in batch:
            error = float(self.network.q(self.weights, x)[action]) - aim
            if learner.loss == "huber":
                error = max(-1.0, min(1.0, error))
            gradient += error * self.network.gradient(self.weights, x, action) / len(batch)
        if learner.clamp is not None:
            gradient = np.clip(gradient, -learner.clamp, learner.clamp)
        if learner.optimiser == "rmsprop":
            gradient, self.squares = rmsprop(gradient, self.squares)
        self.weights = self.weights - learner.step * gradient
