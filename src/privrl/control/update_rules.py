"""Rules of noised Q-learning: what an update sums, and how far that moves.

Transitions (s_i, a_i, r_i, s_i') are fixed. With theta the parameters, theta' the target ones, and
g_i = 0 where s_i' ended the episode and gamma else,

    delta_i = r_i + g_i max_a Q_theta'(s_i', a) - Q_theta(s_i, a_i),

and a rule makes G(delta, theta) of the delta_i, to which `noised_q` adds noise. `bound` is what the
event of an update says.

`Weights`: Q is linear in features, in coordinates c in which they are orthonormal under the
transitions (`mechanisms.reward_model`, whose matrix M is a contraction from the sup norm to L2).
G = M clip(delta, tau). *Unit*: a reward function; *relation*: `REWARD_RADIUS`, |r_i - r_i'| <= R
for all i. Given theta, delta moves by at most R in each entry and its clipped form by at most
min(R, 2 tau), so G moves by at most that (Bessel). Without tau, G is M r plus what anybody can
compute from theta: T noisy copies of the *same* M r. Their mean is M r with noise std / sqrt(T),
which one release of a reward model has for the same budget: so the reward model is never worse, and
this rule is here to be compared with. (It is exactly noise by a Gaussian process whose kernel is
that of the features.)

`Updates`: any head, such as a network. With J_i = grad Q_theta(s_i, a_i) for a batch of B public
numbers i, and F = sqrt(mean |J_i|^2), which is known to whoever knows theta,

    G = clip_C( min(1, K / F) mean_i delta_i J_i ).

Same unit and relation: the mean moves by |mean_i d_i J_i| with |d_i| <= R, at most R times the
largest singular value of J over sqrt(B), and so at most R F. Clipping to norm C is a projection
onto a ball, which brings no two points further apart. So G moves by at most min(R K, 2 C). Without
K this is DP-SGD on the TD loss, with the sensitivity that it has here: all rewards of a batch may
change at once, so that neither dividing by B nor sampling helps.

`ProspectUpdates`: any head, and targets under cumulative prospect theory. Transition i has
successors s_ik of public probabilities p_ik with rewards r_ik, and with rho the CPT value

    delta_i = rho( r_ik + g_ik max_a Q_theta'(s_ik, a), of probability p_ik ) - Q_theta(s_i, a_i)
    G       = clip_C( mean_i delta_i J_i )            over a batch of public numbers i.

rho has no Lipschitz constant: its utility has an infinite slope at the reference point, and so two
rewards that are next to each other can move delta_i by any number of times their distance. So
nothing follows from the radius, and G moves by at most 2 C because both values lie in a ball of
radius C. That holds for *any* two reward functions. Same unit and relation, with whatever radius;
that of a reward range's width has all of them as neighbours.

`PersonUpdates`: G is the sum over people of clip_C(mean over their transitions of delta_i J_i),
each row total (`clip.l2`: what is no number adds nothing). *Unit*: a person with all their
transitions; *relation*: replace-one. G moves by at most 2 C. `divisor` is their public number.
Every update sees everybody, so nothing is amplified, and nobody is drawn by how much they surprise
(no prioritised replay, which would make a person's weight depend on other people).

That the transitions themselves do not depend on rewards (they come from a rollout that did not look
at them) is the caller's part for all rules but the last.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax

from privrl.control.heads import Head
from privrl.control.prospect_planning import cpt_values
from privrl.privacy.mechanisms import clip
from privrl.privacy.promise import Relation
from privrl.risk import Prospect


class Data(NamedTuple):
    """Transitions (n, ...); all of them public but `reward`, unless they are people's."""

    observation: Any
    action: Any
    after: Any
    goes_on: Any
    """gamma, or 0 where the episode terminated."""

    reward: Any
    """**Private**."""

    person: Any = None
    """For `PersonUpdates`, whose arrays are (parts, rows of a part, ...): whose row it is, counted
    anew in each part; what is not below the size of a part is nobody's."""

    share: Any = None
    """For `PersonUpdates`: one divided by the number of the person's rows."""

    size: Any = None
    """For `PersonUpdates`, (people of a part,) and nothing in it."""

    contraction: Any = None
    """M, for `Weights`."""

    transform: Any = None
    """From orthonormal coordinates to the head's parameters, for `Weights`."""

    row: Any = None
    """For `ProspectUpdates`, whose `after`, `goes_on` and `reward` are (rows, successors, ...):
    which row is about transition i."""

    probs: Any = None
    """For `ProspectUpdates`: those of the successors, None if they are alike."""


class Rule(Protocol):
    """How G comes of the TD errors."""

    @property
    def head(self) -> Head: ...

    @property
    def bound(self) -> float:
        """The event's."""
        ...

    @property
    def relation(self) -> Relation: ...

    def initial_parameters(self, data: Data) -> Any:
        """Parameters to begin with: theta, or the coordinates of it."""
        ...

    def theta(self, data: Data, parameters: Any) -> Any:
        """The parameters of the head."""
        ...

    def exact_update(self, data: Data, parameters: Any, target: Any, number: Any) -> Any:
        """G in update `number`. **Private**: never kept, never returned but to be noised."""
        ...


def _outcomes(head: Head, target: Any, data: Data) -> Any:
    """Rewards with what follows them, in the shape of the rewards."""
    shape = data.reward.shape
    after = jnp.reshape(data.after, (-1, *data.after.shape[len(shape) :]))
    best = jnp.reshape(jnp.max(head.apply(target, head.inputs(after)), axis=1), shape)
    # Chosen, not multiplied by 0: what comes after the end may not be a number.
    return data.reward + jnp.where(data.goes_on > 0.0, data.goes_on * best, 0.0)


def _values(head: Head, theta: Any, data: Data) -> tuple[Any, Any]:
    """Q of what was done, and the inputs of the states it is about."""
    inputs = head.inputs(data.observation)
    taken = data.action[:, None]
    return jnp.take_along_axis(head.apply(theta, inputs), taken, axis=1)[:, 0], inputs


def _td_errors(head: Head, theta: Any, target: Any, data: Data) -> tuple[Any, Any]:
    """delta, and the inputs of the states it is about."""
    values, inputs = _values(head, theta, data)
    return _outcomes(head, target, data) - values, inputs


def _sample_batch(data: Data, batch: int, number: Any, names: tuple[str, ...]) -> Data:
    """The transitions of update `number`; which ones is public, the same in every run."""
    count = data.action.shape[0]
    if batch >= count:
        return data
    draw = jax.random.fold_in(jax.random.key(0), number)
    chosen = jax.random.randint(draw, (batch,), 0, count)
    return data._replace(**{name: getattr(data, name)[chosen] for name in names})


def _action_one_hot(head: Head, data: Data) -> Any:
    """Which action was taken, as rows of zeros and ones."""
    return jnp.asarray(data.action[:, None] == jnp.arange(head.outputs), data.reward.dtype)


@dataclass(frozen=True)
class Weights:
    """Noise on the weights of a linear Q; see the module."""

    head: Head
    radius: float
    tau: float | None = None

    @property
    def bound(self) -> float:
        return self.radius if self.tau is None else min(self.radius, 2.0 * self.tau)

    @property
    def relation(self) -> Relation:
        return Relation.REWARD_RADIUS

    def initial_parameters(self, data: Data) -> Any:
        return jnp.zeros(data.transform.shape[1], data.reward.dtype)

    def theta(self, data: Data, parameters: Any) -> Any:
        return data.transform @ parameters

    def exact_update(self, data: Data, parameters: Any, target: Any, number: Any) -> Any:
        theta, late = self.theta(data, parameters), self.theta(data, target)
        delta, _ = _td_errors(self.head, theta, late, data)
        if self.tau is not None:
            delta = jnp.clip(delta, -self.tau, self.tau)
        return data.contraction @ delta


class _HeadParameters:
    """What rules share that change the parameters of a head themselves."""

    head: Head

    @property
    def relation(self) -> Relation:
        return Relation.REWARD_RADIUS

    def initial_parameters(self, data: Data) -> Any:
        return jnp.asarray(self.head.initial_parameters(), data.reward.dtype)

    def theta(self, data: Data, parameters: Any) -> Any:
        return parameters


@dataclass(frozen=True)
class Updates(_HeadParameters):
    """Updates of any head, scaled and clipped; see the module."""

    head: Head
    radius: float
    batch: int
    clip: float | None = None
    """C; None for no clipping."""

    slope: float | None = None
    """K; None for no scaling."""

    @property
    def bound(self) -> float:
        bounds = [] if self.slope is None else [self.radius * self.slope]
        return min([*bounds, *([] if self.clip is None else [2.0 * self.clip])])

    def exact_update(self, data: Data, parameters: Any, target: Any, number: Any) -> Any:
        names = ("observation", "action", "after", "goes_on", "reward")
        data = _sample_batch(data, self.batch, number, names)
        delta, inputs = _td_errors(self.head, parameters, target, data)

        def one(row: Any, taken: Any) -> Any:
            return self.head.vjp(parameters, row[None], taken[None])

        slopes = jax.vmap(one)(inputs, _action_one_hot(self.head, data))
        mean = delta @ slopes / delta.shape[0]
        if self.slope is not None:
            steepness = jnp.sqrt(jnp.mean(jnp.sum(slopes**2, axis=1)))
            mean = mean * jnp.minimum(1.0, self.slope / jnp.maximum(steepness, 1e-300))
        return mean if self.clip is None else clip.l2(mean, self.clip)


@dataclass(frozen=True)
class ProspectUpdates(_HeadParameters):
    """Updates of any head towards CPT values, clipped; see the module."""

    head: Head
    prospect: Prospect
    batch: int
    clip: float

    @property
    def bound(self) -> float:
        return 2.0 * self.clip

    def exact_update(self, data: Data, parameters: Any, target: Any, number: Any) -> Any:
        data = _sample_batch(data, self.batch, number, ("observation", "action", "row"))
        there = ["after", "goes_on", "reward", *([] if data.probs is None else ["probs"])]
        data = data._replace(**{name: getattr(data, name)[data.row] for name in there})
        outcomes = _outcomes(self.head, target, data)
        values, inputs = _values(self.head, parameters, data)
        delta = cpt_values(self.prospect, outcomes, data.probs) - values
        weights = delta[:, None] * _action_one_hot(self.head, data) / delta.shape[0]
        return clip.l2(self.head.vjp(parameters, inputs, weights), self.clip)


@dataclass(frozen=True)
class PersonUpdates(_HeadParameters):
    """Each person's own gradient, clipped; see the module."""

    head: Head
    clip: float

    @property
    def bound(self) -> float:
        return self.clip

    @property
    def relation(self) -> Relation:
        return Relation.REPLACE_ONE

    def rows(self, parameters: Any, target: Any, part: Data) -> Any:
        """What the people of a part add, each of norm at most C."""
        people = part.size.shape[0]
        there = (part.action >= 0) & (part.action < self.head.outputs) & (part.person < people)
        inside = part._replace(action=jnp.where(there, part.action, 0))
        delta, inputs = _td_errors(self.head, parameters, target, inside)
        weights = (delta * part.share)[:, None] * _action_one_hot(self.head, inside)

        def one(row: Any, weight: Any) -> Any:
            return self.head.vjp(parameters, row[None], weight[None])

        each = jax.vmap(one)(inputs, jnp.where(there[:, None], weights, 0.0))
        # A row that is no step must not be one by 0 times infinity.
        each = jnp.where(there[:, None], each, 0.0)
        whole = jax.ops.segment_sum(each, part.person, people)
        return clip.l2(whole, self.clip)

    def exact_update(self, data: Data, parameters: Any, target: Any, number: Any) -> Any:
        def add(total: Any, part: Any) -> Any:
            return total + jnp.sum(self.rows(parameters, target, part), axis=0), None

        return lax.scan(add, jnp.zeros_like(parameters), data)[0]
