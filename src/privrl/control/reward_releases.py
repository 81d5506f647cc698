"""The releases of a learner for a secret reward function: sensitivity, noise, event of each.

`privrl.control.functional_q` says what is hidden from whom and proves the bounds. Each release
takes a rollout, pays for its event through the `RunContext`, releases, keeps what was released, and
leaves the rest to planning, which sees nothing private.
"""

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from privrl.control import noised_q, planning
from privrl.control.heads import Head, Layers, Network
from privrl.control.learned_q import LearnedQ
from privrl.control.reward_basis import (
    PerAction,
    design_weights,
    horizon_returns,
    horizon_weight,
    mean_rewards,
    unique_points,
)
from privrl.control.rollouts import Rollout, collect_greedy_rollout, collect_rollout, greedy_policy
from privrl.control.run_context import MEMORY_REMEDY, Arrays, RunContext
from privrl.core import resources
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Policy
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import Event, Gaussian, Repeated
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.mechanisms.reward_model import RewardModel, RewardModelMechanism
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation, Release

if TYPE_CHECKING:
    from privrl.control.functional_q import FunctionalQ

# Random actions in the rollouts of release "evaluations".
_EXPLORATION = 0.3


def learn(
    agent: "FunctionalQ", course: RunContext, behaviour: Policy | None, released: Arrays | None
) -> LearnedQ:
    """Learn by the agent's release, or go on from what was `released`."""
    if agent.release == "evaluations":
        return learn_by_evaluations(agent, course, behaviour, released)
    if agent.release in ("weights", "updates"):
        return learn_by_updates(agent, course, behaviour, released)
    return learn_by_rewards(agent, course, behaviour, released)


# --- noised updates -------------------------------------------------------------------------------


def learn_by_updates(
    agent: "FunctionalQ", course: RunContext, behaviour: Policy | None, released: Arrays | None
) -> LearnedQ:
    """Releases 'weights' and 'updates': roll out, then learn from it with noise in every update.

    Only their end is kept in a checkpoint: what goes on needs the rewards.
    """
    head = course.head
    if agent.release == "weights" and isinstance(head, Layers):
        raise InputError("Release 'weights' needs linear features: use planner 'fitted'.")
    plan = agent.update_plan(head)
    noisy, event = None, None
    if agent.budget is not None:
        noisy = noised_q.calibrate_noise(agent.budget, Relation.REWARD_RADIUS, plan)
        event = noisy.event
    if released is None:
        source = course.opened.source
        rollout = agent.rollout(course, behaviour, source.key())
        with jax.enable_x64(True):
            with resources.refuse_memory_errors("Such a run", MEMORY_REMEDY):
                data = agent.transitions(head, rollout)
            noised_q.check_memory(plan, data, MEMORY_REMEDY, told=True)
            course.pay(event, {}, 16 * math.prod(head.shape))
            state = noised_q.begin(plan, data, source.key())
            state = noised_q.run_updates(plan, data, state, noisy, course.progress)
            released = {"parameters": noised_q.final_parameters(plan, data, state)}
        course.save_released(released)
    elif event is not None:
        course.opened.adopt_payment(event)
    parameters = released["parameters"]
    if not np.all(np.isfinite(parameters)):
        raise InputError("The parameters grew without bound: use smaller steps.")
    policy = greedy_policy(head, parameters)
    return course.make_result(parameters, policy, None, event, Release.EVERY_ITERATE, compiled=True)


# --- a reward model, or rewards -------------------------------------------------------------------


def learn_by_rewards(
    agent: "FunctionalQ", course: RunContext, behaviour: Policy | None, released: Arrays | None
) -> LearnedQ:
    """Roll out, release, plan."""
    features: Any = None
    if agent.release == "reward-model":
        features = agent.model_features(course.env)
    if released is None:
        rollout = agent.rollout(course, behaviour, course.opened.source.key())
        # Before anybody pays for what could not be planned on.
        planning.refuse_unseen(course.head, rollout)
        course.report_progress(1, 3)
        if agent.release == "reward-model":
            released = model_release(agent, course, rollout, features)
        else:
            released = rewards_release(agent, course, rollout)
        released |= agent.public_steps(rollout)
        course.save_released(released)
        event = event_of(agent, released)
    else:
        event = event_of(agent, released)
        if event is not None:
            course.opened.adopt_payment(event)
    course.report_progress(2, 3)
    model = None
    if agent.release == "reward-model":
        std = float(released["std"])
        model = RewardModel(released["coefficients"], released["transform"], features, std)
    parameters, policy = agent.plan(course.head, released, model)
    course.report_progress(3, 3)
    return course.make_result(parameters, policy, model, event, Release.FINAL_MODEL)


def model_release(
    agent: "FunctionalQ", course: RunContext, rollout: Rollout, features: Any
) -> Arrays:
    """The coefficients of a reward model, with noise if there is a budget."""
    with resources.refuse_memory_errors("Such a reward model", MEMORY_REMEDY):
        mechanism, means = model_mechanism(agent, rollout, features)
    course.pay(
        mechanism.event if agent.budget is not None else None,
        agent.public_steps(rollout),
        16 * mechanism.transform.size,
    )
    coefficients, std = noisy_coefficients(agent, mechanism, means, course.opened.source)
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


def rewards_release(agent: "FunctionalQ", course: RunContext, rollout: Rollout) -> Arrays:
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
        course.pay(mechanism.event, agent.public_steps(rollout), 16 * means.size)
        roots = np.sqrt(shares)
        noised, _ = mechanism.release(roots * means, course.opened.source)
        means = noised / roots
    return {"rewards": means[where], "std": np.array(std), "bound": np.array(bound)}


# --- evaluations ----------------------------------------------------------------------------------


def learn_by_evaluations(
    agent: "FunctionalQ", course: RunContext, behaviour: Policy | None, released: Arrays | None
) -> LearnedQ:
    """Policy iteration: roll out, release an evaluation, improve."""
    head, rounds = course.head, agent.evaluations
    if isinstance(head, Layers):
        raise InputError("Release 'evaluations' needs linear features: use planner 'fitted'.")
    if released is None:
        released = evaluations_release(agent, course, behaviour, rounds)
        # Only when it is complete: in a simulator what goes on draws all of it once more.
        course.save_released(released)
        event = event_of(agent, released, rounds)
    else:
        event = event_of(agent, released, rounds)
        if event is not None:
            course.opened.adopt_payment(event)
    policy = greedy_policy(head, released["parameters"])
    parameters = released["parameters"].ravel()
    return course.make_result(parameters, policy, None, event, Release.EVERY_ITERATE)


def evaluations_release(
    agent: "FunctionalQ", course: RunContext, behaviour: Policy | None, rounds: int
) -> Arrays:
    """The values of the last policy but one; each rollout follows what was released before it."""
    head = course.head
    features = PerAction(_features_of(head), course.env.num_actions)
    scale = horizon_weight(agent.gamma, agent.horizon)
    source = course.opened.source
    state: Arrays = {}
    for number in range(rounds):
        key = source.key()
        if not state:
            rollout = collect_rollout(
                course.env, behaviour, key, agent.steps, private=course.private
            )
        else:
            rollout = collect_greedy_rollout(
                *(course.env, head, state["parameters"], _EXPLORATION, key, agent.steps),
                private=course.private,
            )
        rows, sums = horizon_returns(
            rollout, agent.clipped_rewards(rollout), agent.gamma, agent.horizon
        )
        points = rollout.points("step")[rows]
        # Equal weights: where few points weigh much, so does what chance did after them.
        mechanism = calibrate_mechanism(agent, points, features, None, rounds, scale)
        if agent.budget is not None and not state:
            course.pay(Repeated(mechanism.event, rounds), {}, 16 * mechanism.transform.size)
        coefficients, std = noisy_coefficients(agent, mechanism, sums, source)
        weights = (mechanism.transform @ coefficients).reshape(course.env.num_actions, -1)
        state = {
            "parameters": np.ascontiguousarray(weights.T),
            "std": np.array(std),
            "bound": np.array(mechanism.radius),
        }
        course.report_progress(number + 1, rounds)
    return state


# --- noise ----------------------------------------------------------------------------------------


def event_of(agent: "FunctionalQ", released: Arrays, times: int = 0) -> Event | None:
    """What was done, if anything was noised; `times` over, if that is not 0."""
    if agent.budget is None:
        return None
    once = Gaussian(float(released["std"]), float(released["bound"]))
    return Repeated(once, times) if times else once


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
