"""The learner of Rajabi et al. (2022): its settings, the paper's presets, claim and result.

    ProspectQ.printed(epsilon=0.9).learn("ObstacleSquare").claim

`privrl.papers.rajabi2022.algorithm` has the algorithms, `privrl.papers.rajabi2022.fast` runs them.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from privrl.control.heads import Head, Linear
from privrl.control.learned_q import LearnedQ, mean_return
from privrl.control.promises import Promise
from privrl.control.rollouts import greedy_policy
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.progress import StepProgress
from privrl.data import Cells, ConcatFeatures, CosineProducts, NetworkOutputs
from privrl.envs.registry import make
from privrl.papers import wang2019
from privrl.papers.rajabi2022.field import Kind
from privrl.papers.wang2019.learner import check_choice, check_setting, last_state, promise_of
from privrl.privacy.certificate import Claim
from privrl.privacy.claims import rajabi2022_theorem1
from privrl.risk import Prospect

if TYPE_CHECKING:
    from privrl.papers.rajabi2022.fast import ProspectQProgram, ProspectQState

Acting = Literal["greedy", "proportional"]


@dataclass(frozen=True)
class ProspectQ:
    """PP-CPT-RL; the defaults are Algorithms 1 to 3 as printed, and corrected."""

    prospect: Prospect = Prospect.rajabi2022()  # noqa: RUF009 (frozen, so that it can be shared)
    """How outcomes are weighed; `Prospect.neutral()` for the expectation."""

    epsilon: float = 0.9
    """The privacy budget claimed of each iteration, where sigma is Theorem 1's."""

    delta: float = 1e-4
    """The theorem's delta; the tail of its lemma adds at most as much again."""

    lipschitz: float = 1.0
    """L of Theorem 1, which nothing here enforces."""

    largest_td_error: float = 1.0
    """c_max of Theorem 1, which nothing here enforces."""

    gamma: float = 0.9
    """The discount factor, from 0 to 1."""

    step: float = 0.01
    """alpha, the learning rate."""

    batch: int = 20
    """B, how many steps an iteration takes, from a fresh start."""

    iterations: int = 800
    """T_max, how many iterations there will be, each with one update."""

    samples: int = 100
    """N_max, how many successors are drawn of each state and action."""

    sigma: float | None = None
    """The standard deviation of the noise; None for Theorem 1's. 0 for none."""

    rate: float | None = None
    """beta, how fast the noise forgets, per width of the box; None for Theorem 1's."""

    noise: Kind = "features"
    """What the noise is made of: see `privrl.papers.rajabi2022.field`."""

    order: int = 10
    """The highest cosine in each coordinate, for noise of features."""

    lattice: int = 10
    """How many cells there are in each coordinate, for noise of cells."""

    resets: Literal["run", "iteration"] = "run"
    """Whether one path is drawn for the run, or one for each iteration. As printed the list of
    states grows for ever, which is one path."""

    hidden: tuple[int, ...] = (16, 16)
    """How many units each hidden layer has; there are rectifiers between layers."""

    acting: Acting = "greedy"
    """The policy that is learned and shown: the best action by the noised Q, or one drawn from the
    softmax of the noised Q over `temperature`."""

    temperature: float = 1.0
    """Of the softmax."""

    behaviour: Literal["acting", "uniform"] = "acting"
    """How steps are taken: by the policy that is learned, or by any action, all alike."""

    backup: Literal["acting", "max"] = "acting"
    """V of a successor: the noised Q's mean under the policy that is learned, which is the largest
    if that is greedy; or the largest in any case."""

    successor: Literal["best", "drawn"] = "best"
    """Where a step leads: to the sample with the largest r + gamma V, or to the first one drawn,
    which is a fair draw."""

    target_every: int = 1
    """After how many iterations the network that V comes from becomes the one that is learned."""

    replay: int = 0
    """From how many of the last steps an update draws its minibatch, without replacement; 0 for
    taking the iteration's B themselves."""

    minibatch: int = 256
    """How many steps an update draws, if it does."""

    loss: Literal["squared", "huber"] = "squared"
    """Half the square; or Huber's, whose gradient is cut off at 1."""

    clamp: float | None = None
    """Cuts off each coordinate of the gradient; None for not."""

    optimiser: Literal["sgd", "rmsprop"] = "sgd"
    """How the gradient becomes a step."""

    SWEEPABLE: ClassVar[tuple[str, ...]] = wang2019.FunctionalQ.SWEEPABLE

    def __post_init__(self) -> None:
        if not isinstance(self.prospect, Prospect):
            raise InputError(
                "must be one of privrl.risk, such as Prospect.rajabi2022().", field="prospect"
            )
        checks.positive("epsilon", self.epsilon)
        if checks.probability("delta", self.delta) == 0.0:
            raise InputError("must be above 0: the theorem has no sigma without it.", field="delta")
        for name in ("gamma", "step"):
            check_setting(name, getattr(self, name))
        for name in ("lipschitz", "temperature"):
            checks.positive(name, getattr(self, name))
        checks.non_negative("largest_td_error", self.largest_td_error)
        counts = ("batch", "iterations", "samples", "order", "lattice", "target_every", "minibatch")
        for name in counts:
            checks.count(name, getattr(self, name))
        for name in ("batch", "samples"):
            if getattr(self, name) > 10**6:
                raise InputError("must be at most 1,000,000.", field=name)
        if (self.sigma is None) != (self.rate is None):
            raise InputError(
                "sigma and rate belong together: say both, or leave both to Theorem 1."
            )
        if self.sigma is not None and self.rate is not None:
            check_setting("sigma", self.sigma)
            check_setting("rate", self.rate)
        if not isinstance(self.hidden, tuple) or not self.hidden:
            raise InputError(
                "must be the sizes of the hidden layers, such as (16, 16).", field="hidden"
            )
        for size in self.hidden:
            checks.count("hidden", size)
        for name, allowed in _CHOICES.items():
            check_choice(name, getattr(self, name), allowed)
        if self.replay != 0:
            most = checks.count("replay", self.replay)
            if not self.minibatch <= most < 2**16:
                raise InputError(
                    f"must be 0, or at least the minibatch of {self.minibatch} and below 65,536.",
                    field="replay",
                )
        if self.clamp is not None:
            checks.positive("clamp", self.clamp)

    @cached_property
    def theorem(self) -> Claim:
        """What Theorem 1 says of these settings, with the k, beta and sigma that it needs."""
        return rajabi2022_theorem1(
            *(self.epsilon, self.delta, self.step, self.batch),
            *(self.lipschitz, self.largest_td_error),
        )

    @property
    def noise_parameters(self) -> tuple[float, float]:
        """sigma and beta."""
        if self.sigma is not None and self.rate is not None:
            return float(self.sigma), float(self.rate)
        return float(self.theorem.details["sigma"]), float(self.theorem.details["beta"])

    @property
    def promise(self) -> Promise:
        """The paper's claim about each iteration, or why there is none."""
        return promise_of(self.sigma, lambda: self.theorem)

    @classmethod
    def printed(cls, **changes: Any) -> Self:
        """Algorithms 1 to 3 as printed, sigma and beta by Theorem 1.

        The paper has no sizes. N_max, the network, T_max and alpha are the public code's; B is the
        length of its trajectories, since an iteration is one trajectory of B steps.
        """
        return cls(**changes)

    @classmethod
    def public_code(cls, **changes: Any) -> Self:
        """What the authors' public code sets, with sigma 1.

        It departs from Algorithm 2 in each of these:

        - sigma is 1 or 5 and beta is 1, so Theorem 1 says nothing of it;
        - steps are taken by any action, all alike;
        - an update is by RMSprop, after each trajectory of 20 steps, on 256 of all steps so far,
          with the targets that were found when the steps were taken;
        - the Huber loss, and each coordinate of the gradient cut off at 1;
        - V is the largest noised Q, also where actions are then drawn in proportion.

        What is wrong there is not taken over: weights of more than 1, and so complex numbers; a
        normal number added to each X_n, noise or not; gamma V(s') counted twice, with 0.9 and with
        0.7; the largest Q, of a Q that is a cost, and costs in place of rewards; expectation as
        penalties of 1 under the same weights; noise as a function of the distance to the corner
        alone, with a wrong right edge; a fourth neighbour in the wrong place; and a target that
        ends nothing. States are scaled to [0, 1], there they are not.
        """
        return cls(**_PUBLIC_CODE | changes)

    def learn(
        self,
        env: Any,
        *,
        seed: int | None = None,
        public: bool = False,
        progress: StepProgress | None = None,
    ) -> LearnedQ:
        """Run all iterations of Algorithm 2 in `env`, an environment or its name.

        `public` lets the policy's score be shown; `progress(done, iterations)` is called on the
        way.
        """
        from privrl.papers.rajabi2022.fast import ProspectQProgram

        program = ProspectQProgram(self, make(env))
        state = last_state(program, self.iterations, seed, progress)
        return make_result(program, state, seed, public=public)


_PUBLIC_CODE: dict[str, Any] = {
    "sigma": 1.0,
    "rate": 1.0,
    "behaviour": "uniform",
    "backup": "max",
    "replay": 16_000,
    "loss": "huber",
    "clamp": 1.0,
    "optimiser": "rmsprop",
}


_CHOICES: dict[str, tuple[str, ...]] = {
    "noise": ("features", "cells"),
    "resets": ("run", "iteration"),
    "acting": ("greedy", "proportional"),
    "behaviour": ("acting", "uniform"),
    "backup": ("acting", "max"),
    "successor": ("best", "drawn"),
    "loss": ("squared", "huber"),
    "optimiser": ("sgd", "rmsprop"),
}


def make_result(
    program: "ProspectQProgram",
    state: "ProspectQState",
    seed: int | None,
    *,
    public: bool,
    noise: bool = True,
) -> LearnedQ:
    """The result of a run, of its first replica: Q + g, its policy, and the paper's claim about it.

    Without `noise` it is Q alone, which is what the public code acts by in the end; the scaling of
    observations then goes into the first layer, so that Q is of observations as they are.
    """
    learner, form, env = program.learner, program.form, program.env
    found = np.asarray(state.weights[0], np.float64)
    path = np.asarray(state.path[0], np.float64)
    if not (np.all(np.isfinite(found)) and np.all(np.isfinite(path))):
        raise InputError("The parameters grew without bound: use smaller steps.")
    network, low = form.head, np.array(form.low)
    (first, bias), *_ = network.layers(found)
    slopes = first / (np.array(form.high) - low)[:, None]
    rest = found[first.size + bias.size :]
    parameters = np.concatenate([slopes.ravel(), bias - low @ slopes, rest])
    head: Head = network
    if noise and np.any(path):
        # Q + g is linear in what the network gives and in what the field is made of.
        box, side = (form.low, form.high), form.field.side
        waves = Cells(side, *box) if form.field.kind == "cells" else CosineProducts(side, *box)
        values = NetworkOutputs(tuple(network.layers(found)), *box, activation="relu")
        head = Linear(ConcatFeatures((values, waves)), network.outputs)
        parameters = np.concatenate([np.eye(network.outputs), path.T]).ravel()
    if learner.acting == "greedy":
        policy = greedy_policy(head, parameters)
    else:
        policy = head.policy(head.scale_outputs(parameters, 1.0 / learner.temperature))
    sigma, rate = learner.noise_parameters
    settings = {"env": env.name, "seed": seed, **asdict(learner)}
    own = {"hidden": list(learner.hidden), "prospect": learner.prospect.to_dict()}
    return LearnedQ(
        promise=learner.promise,
        release="values",
        parameters=parameters,
        head=head,
        policy=policy,
        score=mean_return(env, policy, None, 0 if seed is None else seed) if public else None,
        settings={**settings, **own, "sigma": sigma, "rate": rate},
    )
