"""The learner of Rajabi et al. (2022): its settings, the paper's presets, claim and result.

    ProspectQ.printed(epsilon=0.9).learn("ObstacleSquare").claim

`privrl.papers.rajabi2022.algorithm` has the algorithms, `privrl.papers.rajabi2022.fast` runs them.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from privrl.control import engine
from privrl.control.heads import Head, Linear
from privrl.control.learned_q import LearnedQ, mean_return
from privrl.control.rollouts import greedy_policy
from privrl.data import Cells, ConcatFeatures, CosineProducts, NetworkOutputs
from privrl.envs.registry import make
from privrl.papers.rajabi2022.spec import ProspectQSpec
from privrl.papers.wang2019.learner import FunctionalNoise, FunctionalNoiseTraining
from privrl.privacy.certificate import Claim
from privrl.privacy.claims import rajabi2022_theorem1

if TYPE_CHECKING:
    from privrl.papers.rajabi2022.fast import ProspectQProgram, ProspectQState


@dataclass(frozen=True)
class ProspectQ(ProspectQSpec, FunctionalNoise):
    """PP-CPT-RL; the defaults are Algorithms 1 to 3 as printed, and corrected."""

    @cached_property
    def theorem(self) -> Claim:
        """What Theorem 1 says of these settings, with the k, beta and sigma that it needs."""
        return rajabi2022_theorem1(
            *(self.epsilon, self.delta, self.step, self.batch),
            *(self.lipschitz, self.largest_td_error),
        )

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

    def training(self, env: Any, people: None = None) -> "FunctionalNoiseTraining":
        """This learner in `env`, for the engine."""
        from privrl.papers.rajabi2022.fast import ProspectQProgram

        program = ProspectQProgram(self, make(env))
        return FunctionalNoiseTraining(self, program.env, program, self.iterations, make_result)


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
        raise engine.Diverged
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
