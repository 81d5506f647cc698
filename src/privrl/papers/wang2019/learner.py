"""The learner of Wang and Hegde (2019): its settings, the paper's presets, claim and result.

    FunctionalQ.printed(epsilon=0.9).learn("Interval").claim

`privrl.papers.wang2019.algorithm` has the algorithm, `privrl.papers.wang2019.fast` runs it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control import engine, loop
from privrl.control.heads import Layers
from privrl.control.learned_q import NOT_PRIVATE, LearnedQ, mean_return
from privrl.control.program_training import PaperLearner, ProgramTraining
from privrl.control.promises import Promise
from privrl.control.replicas import setting_arrays
from privrl.control.rollouts import greedy_policy
from privrl.envs.registry import make
from privrl.papers.wang2019.spec import FunctionalNoiseSpec, FunctionalQSpec
from privrl.privacy.certificate import Claim
from privrl.privacy.claims import wang2019_theorem5

if TYPE_CHECKING:
    from privrl.papers.wang2019.fast import FunctionalQProgram, FunctionalQState

NO_CLAIM = "Not private: noise of one's own size has neither a certificate nor the paper's claim."


class FunctionalNoise(FunctionalNoiseSpec, PaperLearner[LearnedQ], ABC):
    """What this learner and that of rajabi2022 share: noise by a theorem, or of one's own."""

    @cached_property
    @abstractmethod
    def theorem(self) -> Claim:
        """What the paper's theorem says of these settings, with its k, beta and sigma."""

    @property
    def noise_parameters(self) -> tuple[float, float]:
        """sigma and beta."""
        if self.sigma is not None and self.rate is not None:
            return float(self.sigma), float(self.rate)
        return float(self.theorem.details["sigma"]), float(self.theorem.details["beta"])

    @property
    def promise(self) -> Promise:
        """The theorem's claim where sigma follows from it, or why there is none."""
        if self.sigma is None:
            return self.theorem
        return NO_CLAIM if self.sigma else NOT_PRIVATE

    def replica_numbers(
        self, swept: Mapping[str, Any] | None, replicas: int
    ) -> dict[str, jax.Array]:
        """What replicas may differ by, (replicas,) each, in 32 bits."""
        for name, value in (swept or {}).items():
            self.check_swept(name, value)
        sigma, rate = self.noise_parameters
        own = {"sigma": sigma, "rate": rate, "step": self.step, "gamma": self.gamma}
        return setting_arrays(own | dict(swept or {}), replicas, jnp.float32)


@dataclass(frozen=True)
class FunctionalQ(FunctionalQSpec, FunctionalNoise):
    """Q-learning with functional noise; the defaults are Algorithm 1 as printed."""

    @property
    def period(self) -> int:
        """How many samples share a path."""
        if self.updates == "step":
            return -(-self.samples // self.resets)
        return self.batch * -(-self.count // self.resets)

    @cached_property
    def theorem(self) -> Claim:
        """What Theorem 5 says of these settings, with the k, beta and sigma that it needs.

        It counts one update for each B samples, so with `updates="step"` it is given T of them.
        """
        return wang2019_theorem5(
            self.epsilon, self.delta, self.count, self.step, self.batch, resets=self.resets
        )

    @classmethod
    def printed(cls, **changes: Any) -> Self:
        """Algorithm 1 as printed, sigma and beta by Theorem 5: a path for each of the 39 batches.

        The sizes are the public code's, since the paper's main text has none.
        """
        return cls(**changes)

    @classmethod
    def public_code(cls, **changes: Any) -> Self:
        """What the authors' public code does, in the settings of Figure 1, with sigma 0.2.

        It departs from Algorithm 1 in each of these:

        - sigma is one of 0, 0.2, ..., 1 and beta is 1, so Theorem 5 says nothing of it;
        - an update after every sample, of 128 samples drawn without replacement from all there are;
        - epsilon-greedy acting;
        - the Huber loss, each coordinate of the gradient cut off at 1, and RMSprop;
        - y_t from a second network, with a path of its own, copied every 500 samples;
        - the end of an episode of 50 samples is terminal;
        - a fresh path for each episode (J = 100; the authors' notebook has none, J = 1).

        And it has the wrong right edge, which is an option here: `edge="public-code"`.
        """
        return cls(**_PUBLIC_CODE | changes)

    def training(self, env: Any, people: None = None) -> "FunctionalNoiseTraining":
        """This learner in `env`, for the engine."""
        from privrl.papers.wang2019.fast import FunctionalQProgram

        program = FunctionalQProgram(self, make(env))
        return FunctionalNoiseTraining(
            self, program.env, program, program.form.episodes, make_result
        )


_PUBLIC_CODE: dict[str, Any] = {
    "resets": 100,
    "sigma": 0.2,
    "rate": 1.0,
    "acting": "epsilon-greedy",
    "replay": 10_000,
    "updates": "step",
    "loss": "huber",
    "clamp": 1.0,
    "optimiser": "rmsprop",
    "target": 500,
    "terminal": True,
}


class FunctionalNoiseTraining(ProgramTraining):
    """A paper's Q-learning with functional noise: a step is episodes, or iterations."""

    def __init__(
        self, spec: Any, env: Any, program: Any, planned: int, make_result: Callable[..., LearnedQ]
    ) -> None:
        super().__init__(spec, env, program, planned)
        self.make_result = make_result

    def result(self, state: Any, seen: loop.Seen, run: engine.Run) -> LearnedQ:
        return self.make_result(self.program, state, run.seed, public=run.public)


def make_result(
    program: "FunctionalQProgram", state: "FunctionalQState", seed: int | None, *, public: bool
) -> LearnedQ:
    """The result of a run, of its first replica: Q without noise, and the paper's claim about it.

    The scaling of observations goes into the first layer, so that Q is of observations as they are.
    """
    learner, form, env = program.learner, program.form, program.env
    head = Layers((1, *learner.hidden, env.num_actions), activation="relu")
    parameters = np.asarray(state.weights[0], np.float64)
    if not np.all(np.isfinite(parameters)):
        raise engine.Diverged
    width, first = form.high - form.low, learner.hidden[0]
    slopes = parameters[:first] / width
    parameters = np.concatenate(
        [slopes, parameters[first : 2 * first] - slopes * form.low, parameters[2 * first :]]
    )
    policy = greedy_policy(head, parameters)
    sigma, rate = learner.noise_parameters
    settings = {"env": env.name, "seed": seed, **asdict(learner)}
    return LearnedQ(
        promise=learner.promise,
        release="values",
        parameters=parameters,
        head=head,
        policy=policy,
        score=mean_return(env, policy, None, 0 if seed is None else seed) if public else None,
        settings={**settings, "hidden": list(learner.hidden), "sigma": sigma, "rate": rate},
    )
