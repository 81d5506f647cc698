"""Values of actions that were learned privately, and the promise about them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self, cast

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control.heads import Head, features_to_dict, head_from_dict
from privrl.control.promises import HasPromise, Promise, promise_from_dict, promise_to_dict
from privrl.control.reward_basis import reward_features_from_dict
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Policy
from privrl.data.policy_json import policy_from_dict
from privrl.envs.base import Environment
from privrl.envs.host import HostEnvironment
from privrl.privacy.certificate import Claim
from privrl.privacy.mechanisms.reward_model import RewardModel
from privrl.privacy.promise import Relation

NOT_PRIVATE = "Not private: without a budget no noise is added."

# Episodes that a score is the mean of: compiled, and on the host.
_SCORE_EPISODES = (2000, 100)


@dataclass(frozen=True, eq=False, repr=False)
class LearnedQ(HasPromise):
    """What was learned, and the promise about it. Any number of queries is free."""

    KIND: ClassVar[str] = "privrl functional q"
    SAVED: ClassVar[str] = "what FunctionalQ, ProspectQ or LoggedQ learned"

    promise: Promise
    release: str
    parameters: Floats
    """Of Q, as one vector."""

    head: Head
    """How Q follows from them."""

    policy: Policy
    reward_model: RewardModel | None = None
    """Where one was released; its `std` is 0 if there was no noise."""

    score: float | None = None
    """The mean return of fresh episodes; only if the reward function is public."""

    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def privacy_statement(self) -> str:
        """In a sentence or two: what is protected, how far, and what is not."""
        if isinstance(self.promise, str):
            return self.promise
        if isinstance(self.promise, Claim):
            return f"Nothing is certified: {self.promise.source} claims epsilon " + (
                f"{self.promise.epsilon:.4g} at delta {self.promise.delta:.4g}, but "
                f"{self.promise.why_not}"
            )
        promise = self.promise
        figures = f"with epsilon {promise.epsilon:.4g} at delta {promise.delta:.4g}"
        if promise.relation is Relation.REWARD_RADIUS:
            told = (
                "the reward function, against being told from any other within "
                f"{promise.reward_radius:g} of it at every point, {figures}; not protected are "
                "states, actions, dynamics and ends of episodes"
            )
        else:
            told = f"each {promise.unit}, {figures}; not protected is how many there are"
        return f"Protected is {told}. Any number of queries is free."

    def values(self, states: Any) -> Floats:
        """The value of each action in each state: (n, A)."""
        with jax.enable_x64(True):
            rows = self.head.inputs(jnp.asarray(np.asarray(states)))
            return np.asarray(self.head.apply(jnp.asarray(self.parameters), rows), np.float64)

    def rewards(self, points: Any) -> Floats:
        """The released model's rewards: of states arrived in, or of rows (state, action)."""
        if self.reward_model is None:
            raise InputError(f"The release {self.release!r} has no reward model.")
        return np.asarray(self.reward_model(np.asarray(points)), dtype=np.float64)

    def _to_json(self) -> dict[str, Any]:
        model = self.reward_model
        score = self.score
        return {
            "promise": promise_to_dict(self.promise),
            "release": self.release,
            "parameters": self.parameters.tolist(),
            "head": self.head.to_dict(),
            "policy": self.policy.to_dict(),
            "reward_model": None
            if model is None
            else {
                "coefficients": model.coefficients.tolist(),
                "transform": model.transform.tolist(),
                "features": features_to_dict(model.features),
                "std": model.std,
            },
            # JSON has no infinities, which rewards may add up to.
            "score": None if score is None or not math.isfinite(score) else score,
            "settings": dict(self.settings),
        }

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Self:
        head, model = head_from_dict(data["head"]), data["reward_model"]
        parameters = np.array(data["parameters"], dtype=np.float64)
        if parameters.shape != (math.prod(head.shape),):
            raise ValueError
        return cls(
            promise=promise_from_dict(data["promise"]),
            release=str(data["release"]),
            parameters=parameters,
            head=head,
            policy=policy_from_dict(data["policy"]),
            reward_model=None
            if model is None
            else RewardModel(
                np.array(model["coefficients"], dtype=np.float64),
                np.array(model["transform"], dtype=np.float64),
                reward_features_from_dict(model["features"]),
                float(model["std"]),
            ),
            score=data["score"],
            settings=data["settings"],
        )


def mean_return(
    env: Environment[Any, Any] | HostEnvironment,
    policy: Policy,
    max_steps: int | None,
    seed: int,
) -> float:
    """The mean return of fresh episodes, which is about the reward function."""
    from privrl.data.collection import collect

    count, inside = _SCORE_EPISODES[0], cast(Any, env)
    if isinstance(env, HostEnvironment):
        count, inside = _SCORE_EPISODES[1], env.env
    played = collect(inside, policy, count, seed, max_steps=max_steps)
    return float(np.sum(played.rewards)) / count
