"""What an actor-critic learned, and the promise about it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from privrl.control.engine import Diverged
from privrl.control.heads import Head, Network, head_from_dict
from privrl.control.promises import HasPromise, Promise, promise_from_dict, promise_to_dict
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Features, Policy
from privrl.privacy.certificate import Certificate
from privrl.risk import Prospect

NOT_PRIVATE = "Not private: the variant 'none' adds no noise."


def softmax_policy(head: Head, parameters: Floats) -> Policy:
    """The softmax policy of parameters, if they are still of any use."""
    try:
        with np.errstate(all="ignore"):
            return head.policy(parameters)
    except InputError:
        raise Diverged from None


@dataclass(frozen=True, eq=False)
class ReturnDistribution:
    """How people's returns are distributed, with noise: a running mean over batches, of which the
    last ones count most."""

    points: Floats
    """Where returns are counted."""

    probs: Floats
    """Of each point; they sum to 1."""


@dataclass(frozen=True, eq=False, repr=False)
class LearnedActorCritic(HasPromise):
    """What was learned, as far as the variant gives it away, and the promise about it."""

    KIND: ClassVar[str] = "privrl actor-critic"
    SAVED: ClassVar[str] = "the result of an actor-critic"

    promise: Promise
    variant: str
    actor: Floats | None
    """Preferences of actions: (d, A), or a table (S, A), or all the parameters of a network."""

    critic: Floats | None
    """Of values: (d, 1), or a table (S, 1), or all the parameters of a network. With a prospect
    they value what the return of an episode is worth at the margin, against the mean of all."""

    actor_head: Head
    critic_head: Head
    curve: Floats | None = None
    """Returns: of each person, if they are public; or the mean of each batch with noise, if paid
    for."""

    producer: Certificate | None = None
    """Of the critic that the run started from: it covers that critic's people."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    returns: ReturnDistribution | None = None
    """What a prospect was judged by."""

    @property
    def prospect(self) -> Prospect | None:
        """By which returns were weighed, if by one."""
        said = self.settings.get("prospect")
        return None if said is None else Prospect.from_dict(said)

    @property
    def prospect_value(self) -> float:
        """The CPT value of `returns`: of what was released, so it has noise and costs nothing."""
        prospect = self.prospect
        if prospect is None or self.returns is None:
            raise InputError("This agent was trained without a prospect: say one to get its value.")
        return float(prospect.of_distribution(self.returns.points, self.returns.probs))

    @property
    def policy(self) -> Policy:
        """The softmax policy."""
        if self.actor is None:
            raise InputError(f"The variant {self.variant!r} does not give the actor away.")
        return self.actor_head.policy(self.actor.ravel())

    def values(self, states: Any) -> Floats:
        """The value of each state: (n,)."""
        if self.critic is None:
            raise InputError(f"The variant {self.variant!r} does not give the critic away.")
        head = self.critic_head
        with jax.enable_x64(True):
            rows = head.inputs(jnp.asarray(np.asarray(states)))
            return np.asarray(head.apply(jnp.asarray(self.critic.ravel()), rows)[:, 0], np.float64)

    @property
    def weights(self) -> Floats:
        """Those of the critic, as one vector: with `features`, a critic to start from."""
        if self.critic is None:
            raise InputError(f"The variant {self.variant!r} does not give the critic away.")
        return self.critic.ravel()

    @property
    def features(self) -> Features | Network | None:
        """Those of the critic."""
        return self.critic_head.spec

    def _to_json(self) -> dict[str, Any]:
        returns = None
        if self.returns is not None:
            points, probs = self.returns.points.tolist(), self.returns.probs.tolist()
            returns = {"points": points, "probabilities": probs}
        return {
            "promise": promise_to_dict(self.promise),
            "variant": self.variant,
            "actor": _to_list(self.actor),
            "critic": _to_list(self.critic),
            "actor_head": self.actor_head.to_dict(),
            "critic_head": self.critic_head.to_dict(),
            # JSON has no infinities, which rewards may add up to.
            "curve": None
            if self.curve is None
            else [value if math.isfinite(value) else None for value in self.curve.tolist()],
            "producer": None if self.producer is None else self.producer.to_dict(),
            "settings": dict(self.settings),
            **({} if returns is None else {"returns": returns}),
        }

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Self:
        producer = data["producer"]
        heads = [head_from_dict(data[name]) for name in ("actor_head", "critic_head")]
        actor, critic = _to_array(data["actor"]), _to_array(data["critic"])
        for array, head in zip((actor, critic), heads, strict=True):
            if array is not None and array.shape != head.shape:
                raise ValueError
        return cls(
            promise=promise_from_dict(data["promise"]),
            variant=str(data["variant"]),
            actor=actor,
            critic=critic,
            actor_head=heads[0],
            critic_head=heads[1],
            curve=_to_array(data["curve"]),
            producer=None if producer is None else Certificate.from_dict(producer),
            settings=data["settings"],
            returns=_returns_from_dict(data.get("returns")),
        )


def _returns_from_dict(data: Any) -> ReturnDistribution | None:
    if data is None:
        return None
    name = "chances" if "chances" in data else "probabilities"  # as it was called before 0.2
    points, probs = _to_array(data["points"]), _to_array(data[name])
    if points is None or probs is None or points.ndim != 1 or points.shape != probs.shape:
        raise ValueError
    return ReturnDistribution(points, probs)


def _to_list(array: Floats | None) -> Any:
    return None if array is None else array.tolist()


def _to_array(given: Any) -> Floats | None:
    return None if given is None else np.array(given, dtype=np.float64)
