"""Faults of learners: what people contribute to updates, their noise, and what is paid for."""

from dataclasses import replace
from typing import Any

from privrl.audit.mutants.common import FEW_RUNS
from privrl.audit.mutations import mutant


@mutant(
    "clip-per-row",
    "control.update_rules:PersonUpdates.rows",
    "control/test_logged_q.py::test_a_person_is_clipped_with_all_their_trajectories",
    "logged-q",
    FEW_RUNS,
)
def _clip_each_row(rows: Any, self: Any, parameters: Any, target: Any, part: Any) -> Any:
    """Each of a person's transitions clipped, and not their sum."""
    import jax

    from privrl.privacy.mechanisms import clip

    people, count = part.size.shape[0], part.action.shape[0]
    lone = part._replace(
        person=jax.numpy.where(part.person < people, jax.numpy.arange(count), count),
        size=jax.numpy.zeros((count, 0)),
    )
    alone = rows(self, parameters, target, lone)
    return jax.ops.segment_sum(clip.l2(alone, self.clip), part.person, people)


@mutant(
    "clip-apart",
    "control.increments:Rows.row",
    "control/test_actor_critic.py::test_no_episode_contributes_more_than_the_bound",
    "actor-critic-both",
)
def _clip_separately(
    row: Any, self: Any, actor: Any, critic: Any, settings: Any, episode: Any, worth: Any = None
) -> Any:
    """Actor and critic each clipped to the whole bound."""
    import jax.numpy as jnp

    from privrl.privacy.mechanisms import clip

    if self.outlook is not None or self.curve_weight:
        return row(self, actor, critic, settings, episode, worth)
    own, judged = self.increment(actor, critic, settings, episode, worth)
    judged = settings["critic_weight"] * judged
    return jnp.concatenate([clip.l2(part / settings["clip"], 1.0) for part in (own, judged)])


@mutant(
    "batch-divided",
    "control.update_rules:Weights.bound control.update_rules:Updates.bound",
    "control/test_noised_q.py::test_no_reward_function_within_the_radius_moves_an_update_further",
    "functional-q-weights functional-q-updates",
    FEW_RUNS,
)
def _smaller_bound(bound: Any, self: Any) -> float:
    """Updates paid for as if one reward of a batch could change, and not all of them."""
    return float(self.radius / 30.0)


@mutant(
    "prospect-half",
    "control.update_rules:ProspectUpdates.bound",
    "control/test_prospect_q.py::test_no_two_reward_functions_move_an_update_further",
    "prospect-q-updates",
)
def _half_clip(bound: Any, self: Any) -> float:
    """Updates towards CPT values paid for as if they moved by the clip bound once."""
    return float(self.clip)


@mutant(
    "q-steps",
    "control.noised_q:calibrate_noise",
    "control/test_logged_q.py::test_the_certificate_says_what_was_done",
)
def _calibrate_once(made: Any, budget: Any, relation: Any, plan: Any) -> Any:
    """Noise of Q-updates calibrated for one of them, and paid for in all."""
    from privrl.privacy.plan import FullBatches

    one = made(budget, relation, replace(plan, updates=1))
    return replace(one, schedule=FullBatches(plan.updates))


@mutant(
    "actor-critic-noise",
    "control.certified:ActorCriticPlan.noised",
    "control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",
    "actor-critic-first-batch",
)
def _reuse_noise_in_pairs(noised: Any, self: Any, state: Any, exact: Any) -> Any:
    """Noise of two batches in a row drawn once."""
    return noised(self, state._replace(batch=state.batch // 2), exact)


@mutant(
    "actor-critic-noise-once",
    "control.certified:ActorCriticPlan.noised",
    "control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",
    "actor-critic-first-batch actor-critic-curve",
    FEW_RUNS,
)
def _reuse_first_noise(noised: Any, self: Any, state: Any, exact: Any) -> Any:
    """One draw of noise for all batches."""
    return noised(self, state._replace(batch=0 * state.batch), exact)


@mutant(
    "q-noise",
    "control.noised_q:noised",
    "control/test_noised_q.py::test_every_update_has_noise_of_its_own",
    "logged-q",
)
def _reuse_update_noise(noised: Any, plan: Any, data: Any, state: Any, sigma: Any) -> Any:
    """Noise of two Q-updates in a row drawn once; what it is added to is as it should be."""
    clean = noised(plan, data, state, 0.0)
    pair = state._replace(done=state.done // 2)
    return clean + noised(plan, data, pair, sigma) - noised(plan, data, pair, 0.0)
