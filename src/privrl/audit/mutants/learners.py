"""Faults of learners: what people contribute to updates, their noise, and what is paid for."""

from typing import Any

from privrl.audit.mutants.common import FEW_RUNS
from privrl.audit.mutations import Mutant


def _clip_each_row(rows: Any) -> Any:
    """Each of a person's transitions clipped on its own."""

    def clip_rows(self: Any, parameters: Any, target: Any, part: Any) -> Any:
        import jax

        from privrl.privacy.mechanisms import clip

        people = part.size.shape[0]
        count = part.action.shape[0]
        lone = part._replace(
            person=jax.numpy.where(part.person < people, jax.numpy.arange(count), count),
            size=jax.numpy.zeros((count, 0)),
        )
        alone = rows(self, parameters, target, lone)
        return jax.ops.segment_sum(clip.l2(alone, self.clip), part.person, people)

    return clip_rows


def _clip_separately(row: Any) -> Any:
    """Actor and critic each clipped to the whole bound."""

    def clip_parts(
        self: Any, actor: Any, critic: Any, settings: Any, episode: Any, worth: Any = None
    ) -> Any:
        import jax.numpy as jnp

        from privrl.privacy.mechanisms import clip

        if self.outlook is not None or self.curve_weight:
            return row(self, actor, critic, settings, episode, worth)
        own, judged = self.increment(actor, critic, settings, episode, worth)
        judged = settings["critic_weight"] * judged
        both = [clip.l2(part / settings["clip"], 1.0) for part in (own, judged)]
        return jnp.concatenate(both)

    return clip_parts


def _smaller_bound(bound: Any) -> Any:
    """As if one reward of a batch could change, and not all of them."""
    return property(lambda self: self.radius / 30.0)


def _half_clip(bound: Any) -> Any:
    return property(lambda self: self.clip)


def _calibrate_once(made: Any) -> Any:
    def once(budget: Any, updates: int, relation: Any) -> float:
        return float(made(budget, 1, relation))

    return once


def _reuse_noise_in_pairs(noised: Any) -> Any:
    def pairs(self: Any, state: Any, exact_sum: Any) -> Any:
        return noised(self, state._replace(batch=state.batch // 2), exact_sum)

    return pairs


def _reuse_first_noise(noised: Any) -> Any:
    def first(self: Any, state: Any, exact_sum: Any) -> Any:
        return noised(self, state._replace(batch=0 * state.batch), exact_sum)

    return first


def _reuse_update_noise(noised: Any) -> Any:
    """Noise by the number of the pair; what it is added to as it should be."""

    def pairs(plan: Any, data: Any, state: Any, sigma: Any) -> Any:
        clean = noised(plan, data, state, 0.0)
        pair = state._replace(done=state.done // 2)
        return clean + noised(plan, data, pair, sigma) - noised(plan, data, pair, 0.0)

    return pairs


MUTANTS = (
    Mutant(
        "clip-per-row",
        "each of a person's transitions clipped, and not their sum",
        (("control.update_rules:PersonUpdates.rows", _clip_each_row),),
        ("tests/control/test_logged_q.py::test_a_person_is_clipped_with_all_their_trajectories",),
        ("logged-q",),
        FEW_RUNS,
    ),
    Mutant(
        "clip-apart",
        "actor and critic clipped apart",
        (("control.increments:Rows.row", _clip_separately),),
        ("tests/control/test_actor_critic.py::test_no_episode_contributes_more_than_the_bound",),
        ("actor-critic-both",),
    ),
    Mutant(
        "batch-divided",
        "updates paid for as if one reward of a batch could change",
        (
            ("control.update_rules:Weights.bound", _smaller_bound),
            ("control.update_rules:Updates.bound", _smaller_bound),
        ),
        (
            "tests/control/test_noised_q.py::"
            "test_no_reward_function_within_the_radius_moves_an_update_further",
        ),
        ("functional-q-weights", "functional-q-updates"),
        FEW_RUNS,
    ),
    Mutant(
        "prospect-half",
        "updates towards CPT values paid for as if they moved by the clip bound once",
        (("control.update_rules:ProspectUpdates.bound", _half_clip),),
        ("tests/control/test_prospect_q.py::test_no_two_reward_functions_move_an_update_further",),
        ("prospect-q-updates",),
    ),
    Mutant(
        "q-steps",
        "noise of Q-updates calibrated for one of them",
        (("control.noised_q:calibrate_noise", _calibrate_once),),
        ("tests/control/test_logged_q.py::test_the_certificate_says_what_was_done",),
    ),
    Mutant(
        "actor-critic-noise",
        "noise of two batches in a row drawn once",
        (("control.certified:ActorCriticPlan.noised", _reuse_noise_in_pairs),),
        ("tests/control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",),
        ("actor-critic-first-batch",),
    ),
    Mutant(
        "actor-critic-noise-once",
        "one draw of noise for all batches",
        (("control.certified:ActorCriticPlan.noised", _reuse_first_noise),),
        ("tests/control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",),
        ("actor-critic-first-batch", "actor-critic-curve"),
        FEW_RUNS,
    ),
    Mutant(
        "q-noise",
        "noise of two Q-updates in a row drawn once",
        (("control.noised_q:noised", _reuse_update_noise),),
        ("tests/control/test_noised_q.py::test_every_update_has_noise_of_its_own",),
        ("logged-q",),
    ),
)
