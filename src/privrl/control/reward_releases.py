"""The releases of a learner for a secret reward function: sensitivity, noise, event of each.

`privrl.control.functional_q` says what is hidden from whom and proves the bounds. Each release
takes a rollout, pays for its event through the engine's `Run`, and releases; the rest is planning,
which sees nothing private.
"""

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from privrl.control import noised_q, planning
from privrl.control.engine import Diverged
from privrl.control.heads import Head, Layers, Network
from privrl.control.reward_basis import (
    PerAction,
    design_weights,
    horizon_returns,
    horizon_weight,
    mean_rewards,
    unique_points,
)
from privrl.control.rollouts import Rollout, collect_greedy_rollout, collect_rollout
from privrl.core import resources
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import Event, Gaussian, Repeated
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.mechanisms.reward_model import RewardModelMechanism
from privrl.privacy.noise import Source
from privrl.privacy.plan import NoisyPlan
from privrl.privacy.promise import Budget, Relation

if TYPE_CHECKING:
    from privrl.control.engine import Run
    from privrl.control.functional_q import FunctionalQ

Arrays = dict[str, Any]

MEMORY_REMEDY = "use fewer features, a smaller network or fewer steps"
"""What to do where memory does not suffice."""

# Random actions in the rollouts of release "evaluations".
_EXPLORATION = 0.3


def check(agent: "FunctionalQ", env: Any, head: Head) -> None:
    """Refuse what is refused before anybody plays: what cannot be released, or not planned on."""
    if agent.release in ("weights", "evaluations") and isinstance(head, Layers):
        raise InputError(f"Release {agent.release!r} needs linear features: use planner 'fitted'.")
    if agent.release in ("weights", "updates"):
        agent.update_plan(head)
        update_noise(agent, head)
    elif agent.release == "reward-model":
        agent.model_features(env)
    resources.check_memory(agent.planning_bytes(head), "Planning with such features", MEMORY_REMEDY)


def release(agent: "FunctionalQ", run: "Run") -> Arrays:
    """What the agent's release gives away, paid for before its noise, and what planning needs."""
    training: Any = run.training
    if agent.release == "evaluations":
        return evaluations_release(agent, run)
    if agent.release in ("weights", "updates"):
        return updates_release(agent, run)
    features: Any = None
    if agent.release == "reward-model":
        features = agent.model_features(training.env)
    rollout = agent.rollout(run, run.source.key())
    # Before anybody pays for what could not be planned on.
    planning.refuse_unseen(training.head, rollout)
    run.report(1, 3)
    if agent.release == "reward-model":
        released = model_release(agent, run, rollout, features)
    else:
        released = rewards_release(agent, run, rollout)
    return released | agent.public_steps(rollout)


def pay(agent: "FunctionalQ", run: "Run", event: Event | None, public: Arrays, more: int) -> None:
    """Pay for `event`, if there is one, once there is room for the rest of the run.

    `public` is what planning needs of the rollout; `more` are the other bytes to keep.
    """
    size = more + sum(np.asarray(array).nbytes for array in public.values())
    run.pay(event, None if agent.budget is None else agent.budget.delta, size)


# --- noised updates -------------------------------------------------------------------------------


def update_noise(agent: "FunctionalQ", head: Head) -> NoisyPlan | None:
    """The noise in every update of releases 'weights' and 'updates'."""
    if agent.budget is None:
        return None
    plan = agent.update_plan(head)
    return noised_q.calibrate_noise(agent.budget, Relation.REWARD_RADIUS, plan)


def updates_release(agent: "FunctionalQ", run: "Run") -> Arrays:
    """Releases 'weights' and 'updates': roll out, then learn from it with noise in every update.

    Only their end is kept in a checkpoint: what goes on needs the rewards.
    """
    training: Any = run.training
    head: Head = training.head
    plan, noisy = agent.update_plan(head), update_noise(agent, head)
    rollout = agent.rollout(run, run.source.key())
    with jax.enable_x64(True):
        with resources.refuse_memory_errors("Such a run", MEMORY_REMEDY):
            data = agent.transitions(head, rollout)
        noised_q.check_memory(plan, data, MEMORY_REMEDY, told=True)
        pay(agent, run, None if noisy is None else noisy.event, {}, 16 * math.prod(head.shape))
        state = noised_q.begin(plan, data, run.source.key())
        told = None if run.on_step is None else run.report
        state = noised_q.run_updates(plan, data, state, noisy, told)
        return {"parameters": noised_q.final_parameters(plan, data, state)}


# --- a reward model, or rewards -------------------------------------------------------------------


def model_release(agent: "FunctionalQ", run: "Run", rollout: Rollout, features: Any) -> Arrays:
    """The coefficients of a reward model, with noise if there is a budget."""
    with resources.refuse_memory_errors("Such a reward model", MEMORY_REMEDY):
        mechanism, means = model_mechanism(agent, rollout, features)
    event = mechanism.event if agent.budget is not None else None
    pay(agent, run, event, agent.public_steps(rollout), 16 * mechanism.transform.size)
    coefficients, std = noisy_coefficients(agent, mechanism, means, run.source)
    return {
        "coefficients": coefficients,
        "transform": mechanism.transform,
        "std": np.array(std),
        "bound": np.array(mechanism.radius),
    }


def model_mechanism(
    agent: "FunctionalQ", rollout: Rollout, features: Any
) -> tuple[RewardModelMechanism, Floats]:
    """The mechanism of a rollout, and the readouts it is for; these are **private**."""
    points, shares, where = unique_points(rollout.points(agent.reward_of))
    weights = design_weights(points, features, shares, agent.design)
    mechanism = calibrate_mechanism(agent, points, features, weights)
    return mechanism, mean_rewards(where, agent.clipped_rewards(rollout))


def rewards_release(agent: "FunctionalQ", run: "Run", rollout: Rollout) -> Arrays:
    """A reward for each step, the same for all that lead to the same point."""
    _, shares, where = unique_points(rollout.points(agent.reward_of))
    means = mean_rewards(where, agent.clipped_rewards(rollout))
    std = bound = 0.0
    if agent.budget is not None:
        assert agent.reward_radius is not None
        # The shares add up to 1, up to rounding.
        bound = agent.reward_radius * (1.0 + 1e-12)
        std = math.nextafter(unit_noise(agent.budget) * bound, math.inf)
        mechanism = GaussianMechanism(std, bound)
        pay(agent, run, mechanism.event, agent.public_steps(rollout), 16 * means.size)
        roots = np.sqrt(shares)
        noised, _ = mechanism.release(roots * means, run.source)
        means = noised / roots
    return {"rewards": means[where], "std": np.array(std), "bound": np.array(bound)}


# --- evaluations ----------------------------------------------------------------------------------


def evaluations_release(agent: "FunctionalQ", run: "Run") -> Arrays:
    """Policy iteration: the values of the last policy but one; each rollout follows what was
    released before it.

    It is kept only when it is complete: in a simulator what goes on draws all of it once more.
    """
    training: Any = run.training
    env, head, rounds, source = training.env, training.head, agent.evaluations, run.source
    features = PerAction(_features_of(head), env.num_actions)
    scale = horizon_weight(agent.gamma, agent.horizon)
    state: Arrays = {}

    def measure(key: jax.Array) -> tuple[RewardModelMechanism, Floats]:
        """A round's mechanism, and the returns that it is for. **Private**."""
        if not state:
            rollout = collect_rollout(
                env, training.behaviour, key, agent.steps, private=run.private
            )
        else:
            rollout = collect_greedy_rollout(
                *(env, head, state["parameters"], _EXPLORATION, key, agent.steps),
                private=run.private,
            )
        rows, sums = horizon_returns(
            rollout, agent.clipped_rewards(rollout), agent.gamma, agent.horizon
        )
        points = rollout.points("step")[rows]
        # Equal weights: where few points weigh much, so does what chance did after them.
        return calibrate_mechanism(agent, points, features, None, rounds, scale), sums

    for number in range(rounds):
        try:
            mechanism, sums = measure(source.key())
        except InputError as error:
            if not state:
                raise
            # It follows from what was released before, so that the run has told something.
            raise Diverged(error.text) from None
        if agent.budget is not None and not state:
            every = Repeated(mechanism.event, rounds)
            pay(agent, run, every, {}, 16 * mechanism.transform.size)
        coefficients, std = noisy_coefficients(agent, mechanism, sums, source)
        weights = (mechanism.transform @ coefficients).reshape(env.num_actions, -1)
        state = {
            "parameters": np.ascontiguousarray(weights.T),
            "std": np.array(std),
            "bound": np.array(mechanism.radius),
        }
        run.report(number + 1, rounds)
    return state


# --- noise ----------------------------------------------------------------------------------------


def event_of(agent: "FunctionalQ", released: Arrays, head: Head) -> Event | None:
    """What was done, if anything was noised."""
    if agent.budget is None:
        return None
    if agent.release in ("weights", "updates"):
        noisy = update_noise(agent, head)
        return None if noisy is None else noisy.event
    once = Gaussian(float(released["std"]), float(released["bound"]))
    return Repeated(once, agent.evaluations) if agent.release == "evaluations" else once


def calibrate_mechanism(
    agent: "FunctionalQ",
    points: Floats,
    features: Any,
    weights: Floats | None,
    times: int = 1,
    scale: float = 1.0,
) -> RewardModelMechanism:
    """For numbers that move by `scale` times the radius, released `times` times."""
    if agent.budget is None:
        return RewardModelMechanism(1.0, 1.0, points, features, weights)
    assert agent.reward_radius is not None
    limits = agent.reward_range
    if limits is not None:
        # A sum that was cut has fewer rewards, but at least one.
        low, high = limits
        limits = min(low, scale * low), max(high, scale * high)
    return RewardModelMechanism.from_budget(
        scale * agent.reward_radius,
        agent.budget,
        points,
        features,
        weights,
        reward_range=limits,
        times=times,
    )


def noisy_coefficients(
    agent: "FunctionalQ", mechanism: RewardModelMechanism, values: Floats, source: Source
) -> tuple[Floats, float]:
    """Coefficients, and the standard deviation of their noise: none without a budget."""
    if agent.budget is None:
        return np.asarray(mechanism.coefficients(values), np.float64), 0.0
    model, _ = mechanism.release(values, source)
    return np.asarray(model.coefficients, np.float64), model.std


@lru_cache(maxsize=64)
def unit_noise(budget: Budget) -> float:
    """The least noise of one release, in units of the sensitivity."""
    return calibrate(lambda std: Gaussian(std, 1.0), budget, Relation.REWARD_RADIUS)


def _features_of(head: Head) -> Any:
    wish = head.spec
    assert not isinstance(wish, Network)
    return wish
