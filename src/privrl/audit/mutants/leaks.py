"""Faults by which estimators and learners give away what no noise covers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from privrl.audit.mutants.common import FEW_RUNS
from privrl.audit.mutations import Change, Mutant
from privrl.privacy.session import SECRET_SESSION


def _wrap_fit(changed: Callable[..., Any]) -> Change:
    """`fit` replaced by `changed(fit, estimator, data, ...)`."""

    def change(fit: Any) -> Any:
        def wrapper(self: Any, *given: Any, **named: Any) -> Any:
            return changed(fit, self, *given, **named)

        return wrapper

    return change


def _fit_as_public(fit: Any, judge: Any, *given: Any, **named: Any) -> Any:
    """What is for public data only, shown of any data."""
    session = replace(named.get("session", SECRET_SESSION), public=True)
    return fit(judge, *given, **{**named, "session": session})


def _fit_with_data_range(fit: Any, judge: Any, data: Any, *given: Any, **named: Any) -> Any:
    """The range of rewards read off the data."""
    found = float(np.min(data.rewards)), float(np.max(data.rewards))
    return fit(replace(judge, reward_range=found), data, *given, **named)


def _critic_without_noise(noised: Any) -> Any:
    """The actor alone is noised, since it alone is released; the critic is carried as it is."""

    def half(self: Any, state: Any, exact_sum: Any) -> Any:
        whole, stream = noised(self, state, exact_sum)
        p, q = self.rows.sizes
        return whole.at[p : p + q].set(exact_sum[p : p + q]), stream

    return half


def _counts_without_noise(noised: Any) -> Any:
    """How returns are distributed is kept as it is, since it only says what returns are worth."""

    def part(self: Any, state: Any, exact_sum: Any) -> Any:
        whole, stream = noised(self, state, exact_sum)
        own = sum(self.rows.sizes)
        return whole.at[own:].set(exact_sum[own:]), stream

    return part


def _normalise_rewards(exactly: Any) -> Any:
    """What people are paid is brought to mean 0 and variance 1 over each batch."""

    def normalise(self: Any, state: Any, part: Any, first: Any) -> Any:
        import jax.numpy as jnp

        paid, valid = part.transitions.reward, part.valid
        mean = jnp.mean(paid, where=valid)
        spread = jnp.sqrt(jnp.mean((paid - mean) ** 2, where=valid)) + 1e-9
        steps = part.transitions._replace(reward=(paid - mean) / spread)
        return exactly(self, state, part._replace(transitions=steps), first)

    return normalise


def _rank_within_batch(exactly: Any) -> Any:
    """Returns are valued by how they are distributed in the batch itself, not in those before."""

    def rank(self: Any, state: Any, part: Any, first: Any) -> Any:
        import jax

        outlook = self.rows.outlook
        if outlook is None:
            return exactly(self, state, part, first)
        counts = jax.vmap(outlook.counts, (0, None))(part, state.settings["gamma"])
        own = jax.numpy.mean(counts, axis=0)
        return exactly(self, state._replace(returns=own), part, first)

    return rank


def _noise_output_only(advance: Any) -> Any:
    """Noise on what is shown of the parameters, while they go on in secret."""

    def advance_without_noise(plan: Any, data: Any, state: Any, sigma: Any, updates: Any) -> Any:
        from privrl.privacy import noise

        after = advance(plan, data, state, 0.0, updates)
        z = noise.jax_normal(state.noise, after.parameters.shape)
        size = sigma * plan.rule.bound * plan.step / plan.divisor
        return after._replace(parameters=after.parameters + size * z)

    advance_without_noise.trace = advance.trace  # type: ignore[attr-defined]  # asked how much memory it takes
    return advance_without_noise


_REWARDS_SEEN: list[float] = []


def _record_rewards(rollout: Any) -> Any:
    def recording(*given: Any, **named: Any) -> Any:
        found = rollout(*given, **named)
        if found.reward is not None:
            _REWARDS_SEEN.append(float(np.mean(found.reward)))
        return found

    return recording


def _report_mean_reward(described: Any) -> Any:
    """What the rollout was paid goes into the settings of the result, for the log."""

    def with_mean_reward(self: Any, env: Any) -> dict[str, Any]:
        mean = _REWARDS_SEEN[-1] if _REWARDS_SEEN else 0.0
        return {**described(self, env), "mean reward": mean}

    return with_mean_reward


_SUCCESSORS_SEEN: list[float] = []


def _record_successors(draw: Any) -> Any:
    def reading(*given: Any, **named: Any) -> Any:
        found = draw(*given, **{**named, "read": True})
        if found.paid is not None:
            _SUCCESSORS_SEEN.append(float(np.mean(found.paid)))
        return found

    return reading


def _plan_on_successors(rewards: Any) -> Any:
    """What the drawn successors paid is at hand, so why not plan on that?"""
    return lambda self, rollout, model: np.full(rollout.ends.shape, _SUCCESSORS_SEEN[-1])


MUTANTS = (
    Mutant(
        "diagnostics-shown",
        "what is for public data only, shown of any data",
        (
            ("evaluation.private_value:PrivateValue.fit", _wrap_fit(_fit_as_public)),
            ("evaluation.private_lstd:PrivateLSTD.fit", _wrap_fit(_fit_as_public)),
            ("evaluation.private_gtd:PrivateGTD.fit", _wrap_fit(_fit_as_public)),
            ("evaluation.dplsw:OutputPerturbation.fit", _wrap_fit(_fit_as_public)),
        ),
        (
            "tests/evaluation/test_private_gtd.py::"
            "test_the_certificate_spends_the_budget_and_verifies",
        ),
        ("private-value", "private-lstd", "private-gtd", "dplsw"),
        FEW_RUNS,
    ),
    Mutant(
        "range-read",
        "the range of rewards read off the data",
        (
            ("evaluation.private_lstd:PrivateLSTD.fit", _wrap_fit(_fit_with_data_range)),
            ("evaluation.dplsw:OutputPerturbation.fit", _wrap_fit(_fit_with_data_range)),
        ),
        (
            "tests/evaluation/test_private_lstd.py::"
            "test_ranges_and_bounds_are_the_callers_and_not_the_datas",
        ),
        ("private-lstd", "dplsl"),
        FEW_RUNS,
    ),
    Mutant(
        "critic-without-noise",
        "a critic that is carried on without noise",
        (("control.certified:ActorCriticPlan.noised", _critic_without_noise),),
        ("tests/control/test_actor_critic.py::test_the_noise_has_the_size_that_is_paid_for",),
        ("actor-critic-hidden-critic", "actor-critic"),
        FEW_RUNS,
    ),
    Mutant(
        "counts-without-noise",
        "counts of returns kept without noise",
        (("control.certified:ActorCriticPlan.noised", _counts_without_noise),),
        ("tests/control/test_prospect_actor_critic.py::test_all_that_is_summed_is_noised",),
        ("prospect-actor-critic",),
        FEW_RUNS,
    ),
    Mutant(
        "worth-of-the-batch",
        "returns valued by how they are distributed in the batch itself",
        (("control.certified:ActorCriticPlan.sum_rows", _rank_within_batch),),
        (
            "tests/control/test_prospect_actor_critic.py::"
            "test_what_a_person_adds_does_not_depend_on_the_others",
        ),
        ("prospect-actor-critic",),
        FEW_RUNS,
    ),
    Mutant(
        "advantages-normalised",
        "rewards normalised over a batch",
        (("control.certified:ActorCriticPlan.sum_rows", _normalise_rewards),),
        (
            "tests/control/test_prospect_actor_critic.py::"
            "test_what_a_person_adds_does_not_depend_on_the_others",
        ),
        ("actor-critic",),
        FEW_RUNS,
    ),
    Mutant(
        "curve-shown",
        "returns as they were, which are for public people only",
        (("control.actor_critic:ActorCritic.learn", _wrap_fit(_fit_as_public)),),
        ("tests/control/test_actor_critic.py::test_variants_hide_outputs_and_change_nothing_else",),
        ("actor-critic",),
        FEW_RUNS,
    ),
    Mutant(
        "q-shown-only",
        "noise on what is shown of a Q that goes on without",
        (("control.noised_q:advance", _noise_output_only),),
        ("tests/control/test_noised_q.py::test_two_pieces_equal_the_whole_bit_for_bit",),
        ("functional-q-weights", "logged-q"),
        FEW_RUNS,
    ),
    Mutant(
        "rewards-kept",
        "the mean reward of a rollout in the settings of the result",
        (
            ("control.rollouts:collect_rollout", _record_rewards),
            ("control.functional_q:FunctionalQ.settings_dict", _report_mean_reward),
        ),
        ("tests/control/test_functional_q.py::test_settings_of_a_result_say_nothing_of_rewards",),
        ("functional-q", "functional-q-evaluations"),
        FEW_RUNS,
    ),
    Mutant(
        "successors-read",
        "plans on rewards of drawn successors that nobody paid for",
        (
            ("control.rollouts:collect_sampled_rollout", _record_successors),
            ("control.prospect_q:ProspectQ.successor_rewards", _plan_on_successors),
        ),
        (
            "tests/control/test_prospect_q.py::"
            "test_a_plan_comes_from_what_was_released_and_its_noise",
        ),
        ("prospect-q",),
        300,
    ),
)
