"""Faults by which estimators and learners give away what no noise covers."""

from dataclasses import replace
from typing import Any

import numpy as np

from privrl.audit.mutants.common import FEW_RUNS
from privrl.audit.mutations import instead, mutant
from privrl.privacy.session import SECRET_SESSION


def _fit_as_public(fit: Any, self: Any, *given: Any, **named: Any) -> Any:
    """What is for public data or people only, such as returns as they were, shown of any."""
    session = replace(named.get("session", SECRET_SESSION), public=True)
    return fit(self, *given, **{**named, "session": session})


mutant(
    "diagnostics-shown",
    "evaluation.private_value:PrivateValue.fit evaluation.private_lstd:PrivateLSTD.fit "
    "evaluation.private_gtd:PrivateGTD.fit evaluation.dplsw:OutputPerturbation.fit",
    "evaluation/test_private_gtd.py::test_the_certificate_spends_the_budget_and_verifies",
    "private-value private-lstd private-gtd dplsw",
    FEW_RUNS,
)(_fit_as_public)


@mutant(
    "range-read",
    "evaluation.private_lstd:PrivateLSTD.fit evaluation.dplsw:OutputPerturbation.fit",
    "evaluation/test_private_lstd.py::test_ranges_and_bounds_are_the_callers_and_not_the_datas",
    "private-lstd dplsl",
    FEW_RUNS,
)
def _fit_with_data_range(fit: Any, self: Any, data: Any, *given: Any, **named: Any) -> Any:
    """The range of rewards read off the data."""
    found = float(np.min(data.rewards)), float(np.max(data.rewards))
    return fit(replace(self, reward_range=found), data, *given, **named)


@mutant(
    "critic-without-noise",
    "control.certified:ActorCriticPlan.noised",
    "control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",
    "actor-critic-hidden-critic actor-critic",
    FEW_RUNS,
)
def _critic_without_noise(noised: Any, self: Any, state: Any, exact: Any) -> Any:
    """A critic that is carried on without noise: the actor is noised, since it is released."""
    whole, stream = noised(self, state, exact)
    p, q = self.rows.sizes
    return whole.at[p : p + q].set(exact[p : p + q]), stream


@mutant(
    "counts-without-noise",
    "control.certified:ActorCriticPlan.noised",
    "control/test_prospect_actor_critic.py::test_all_that_is_summed_is_noised",
    "prospect-actor-critic",
    FEW_RUNS,
)
def _counts_without_noise(noised: Any, self: Any, state: Any, exact: Any) -> Any:
    """Counts of returns kept without noise, since they only say what returns are worth."""
    whole, stream = noised(self, state, exact)
    own = sum(self.rows.sizes)
    return whole.at[own:].set(exact[own:]), stream


@mutant(
    "worth-of-the-batch",
    "control.certified:ActorCriticPlan.sum_rows",
    "control/test_prospect_actor_critic.py::test_what_a_person_adds_does_not_depend_on_the_others",
    "prospect-actor-critic",
    FEW_RUNS,
)
def _rank_within_batch(exactly: Any, self: Any, state: Any, part: Any, first: Any) -> Any:
    """Returns valued by how they are distributed in the batch itself, not in those before."""
    import jax

    outlook = self.rows.outlook
    if outlook is None:
        return exactly(self, state, part, first)
    counts = jax.vmap(outlook.counts, (0, None))(part, state.settings["gamma"])
    own = jax.numpy.mean(counts, axis=0)
    return exactly(self, state._replace(returns=own), part, first)


@mutant(
    "advantages-normalised",
    "control.certified:ActorCriticPlan.sum_rows",
    "control/test_prospect_actor_critic.py::test_what_a_person_adds_does_not_depend_on_the_others",
    "actor-critic",
    FEW_RUNS,
)
def _normalise_rewards(exactly: Any, self: Any, state: Any, part: Any, first: Any) -> Any:
    """Rewards brought to mean 0 and variance 1 over each batch."""
    import jax.numpy as jnp

    paid, valid = part.transitions.reward, part.valid
    mean = jnp.mean(paid, where=valid)
    spread = jnp.sqrt(jnp.mean((paid - mean) ** 2, where=valid)) + 1e-9
    steps = part.transitions._replace(reward=(paid - mean) / spread)
    return exactly(self, state, part._replace(transitions=steps), first)


mutant(
    "curve-shown",
    "control.engine:Learner.learn",
    "control/test_actor_critic.py::test_variants_hide_outputs_and_change_nothing_else",
    "actor-critic",
    FEW_RUNS,
)(_fit_as_public)


@mutant(
    "q-shown-only",
    "control.noised_q:advance",
    "control/test_noised_q.py::test_two_pieces_equal_the_whole_bit_for_bit",
    "functional-q-weights logged-q",
    FEW_RUNS,
    makes=True,
)
def _noise_output_only(advance: Any) -> Any:
    """Noise on what is shown of a Q, which goes on in secret without."""

    def advance_without_noise(plan: Any, data: Any, state: Any, sigma: Any, updates: Any) -> Any:
        from privrl.privacy import noise

        after = advance(plan, data, state, 0.0, updates)
        z = noise.jax_normal(state.noise, after.parameters.shape)
        size = sigma * plan.rule.bound * plan.step / plan.divisor
        return after._replace(parameters=after.parameters + size * z)

    advance_without_noise.trace = advance.trace  # type: ignore[attr-defined]  # asked how much memory it takes
    return advance_without_noise


_SEEN = {"rewards": 0.0, "successors": 0.0}
"""What rollouts were paid in the mean, the last time."""


def _report_mean_reward(described: Any, self: Any, env: Any) -> dict[str, Any]:
    return {**described(self, env), "mean reward": _SEEN["rewards"]}


@mutant(
    "rewards-kept",
    "control.rollouts:collect_rollout",
    "control/test_functional_q.py::test_settings_of_a_result_say_nothing_of_rewards",
    "functional-q functional-q-evaluations",
    FEW_RUNS,
    also={"control.functional_q:FunctionalQ.settings_dict": instead(_report_mean_reward)},
)
def _record_rewards(rollout: Any, *given: Any, **named: Any) -> Any:
    """The mean reward of a rollout in the settings of the result, for the log."""
    found = rollout(*given, **named)
    if found.reward is not None:
        _SEEN["rewards"] = float(np.mean(found.reward))
    return found


def _plan_on_successors(rewards: Any, self: Any, rollout: Any, model: Any) -> Any:
    return np.full(rollout.ends.shape, _SEEN["successors"])


@mutant(
    "successors-read",
    "control.rollouts:collect_sampled_rollout",
    "control/test_prospect_q.py::test_a_plan_comes_from_what_was_released_and_its_noise",
    "prospect-q",
    300,
    also={"control.prospect_q:ProspectQ.successor_rewards": instead(_plan_on_successors)},
)
def _record_successors(draw: Any, *given: Any, **named: Any) -> Any:
    """Plans on rewards of drawn successors, which are at hand, and which nobody paid for."""
    found = draw(*given, **{**named, "read": True})
    if found.paid is not None:
        _SEEN["successors"] = float(np.mean(found.paid))
    return found
