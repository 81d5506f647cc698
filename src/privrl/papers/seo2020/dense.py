"""The paper's actor-critic, compiled, with all noise drawn in each step: `algorithm` in JAX.

What `dense=True` runs. Slow for many states; `fast` has the same law, and is tested against this.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from privrl.papers.seo2020 import parts
from privrl.papers.seo2020.parts import LearnerState, StaticConfig, World


class DenseState(NamedTuple):
    """All weights and traces: (actions, states, replicas) of the actor, (states, replicas) else."""

    u: jax.Array
    v: jax.Array
    w: jax.Array
    actor_trace: jax.Array
    critic_trace: jax.Array


class Transition(NamedTuple):
    """A step, (replicas,) each, and the gradient of log pi at its state (actions, replicas)."""

    place: jax.Array
    gradient: jax.Array
    ratio: jax.Array
    reward: jax.Array
    after: jax.Array
    ended: jax.Array


def dense_update(
    form: StaticConfig,
    numbers: Mapping[str, jax.Array],
    now: DenseState,
    step: Transition,
    actor_normals: jax.Array | None,
    critic_normals: jax.Array | None,
) -> DenseState:
    """The weights and traces after a step.

    Noise is standard normal, (actions, S, replicas) and (S, replicas); None for an actor or a
    critic that is not noised.
    """
    states = jnp.arange(now.v.shape[0])[:, None]
    here, there = (states == step.place) * 1.0, (states == step.after) * 1.0
    gamma, lambda_, sigma = numbers["gamma"], numbers["lambda_"], numbers["sigma"]
    goes_on = jnp.where(step.ended, 0.0, gamma)

    delta = step.reward + goes_on * jnp.sum(there * now.v, 0) - jnp.sum(here * now.v, 0)
    critic_trace = step.ratio * (here + gamma * lambda_ * now.critic_trace)
    amount = goes_on * (1.0 - lambda_) * jnp.sum(now.w * critic_trace, axis=0)
    z = delta * critic_trace - amount * (here if form.correction == "printed" else there)
    if critic_normals is not None:
        sizes = jnp.abs(z)
        largest = jnp.max(sizes, axis=0)
        unit = jnp.where(largest > 0.0, largest, 1.0)
        norm = largest * jnp.sqrt(jnp.sum((z / unit) ** 2, axis=0))
        bound = _sorted_median(sizes) if form.clip is None else jnp.full_like(norm, form.clip)
        z = parts.clip_ratio(bound, norm) * z + sigma * bound * critic_normals
    w_here = jnp.sum(here * now.w, axis=0)

    signal, actor_bound = parts.actor_signal(form, step.gradient)
    g = signal[:, None] * here
    if actor_bound is not None and actor_normals is not None:
        g = g + sigma * actor_bound * actor_normals
    actor_trace = step.ratio * (g + gamma * lambda_ * now.actor_trace)
    return DenseState(
        now.u + numbers["actor_step"] * delta * actor_trace,
        now.v + numbers["critic_step"] * z,
        now.w + numbers["correction_step"] * (delta * critic_trace - w_here * here),
        actor_trace,
        critic_trace,
    )


def _sorted_median(sizes: jax.Array) -> jax.Array:
    """Of the non-zero entries along the first axis; 0 if there is none."""
    count = jnp.sum(sizes > 0.0, axis=0)
    first = sizes.shape[0] - count
    ordered = jnp.sort(sizes, axis=0)

    def entry(number: jax.Array) -> jax.Array:
        index = jnp.clip(first + number, 0, sizes.shape[0] - 1)
        return jnp.take_along_axis(ordered, index[None], axis=0)[0]

    return jnp.where(count > 0, (entry((count - 1) // 2) + entry(count // 2)) / 2.0, 0.0)


def dense_episode(
    form: StaticConfig, world: World, state: LearnerState, keep: bool
) -> tuple[LearnerState, Any]:
    """One episode in all replicas, every number of every row brought up to date in every step."""
    numbers, replicas = state.numbers, state.episode.shape[0]
    row = parts.unpack_row(form, state.rows.T)
    begun = DenseState(row.u, row.v, row.w, jnp.zeros_like(row.u), jnp.zeros_like(row.v))
    first, uniforms = parts.uniforms(form.blocks, state)
    replica = jnp.arange(replicas)

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        time, now, place, alive, total, length = carry
        uniform = lax.dynamic_index_in_dim(uniforms, time, 0, False)
        action, rho, gradient = parts.act(
            form, numbers["exploration"], now.u[:, place, replica], uniform[1]
        )
        after, reward, ended = parts.move(form, world, place, action, uniform[0])
        count = form.actions * form.noisy_actor + form.noisy_critic
        normals = parts.normals(state, time, (count, form.states))
        moved = dense_update(
            form,
            numbers,
            now,
            Transition(place, gradient, rho, reward, after, ended),
            normals[: form.actions] if form.noisy_actor else None,
            normals[count - 1] if form.noisy_critic else None,
        )
        over = ended | (time + 1 >= form.horizon)
        return (
            time + 1,
            parts.tree_where(alive, moved, now),
            jnp.where(alive, after, place),
            alive & ~over,
            total + jnp.where(alive, reward, 0.0),
            length + alive,
        )

    zeros = jnp.zeros((replicas,))
    carry = (
        jnp.zeros((), jnp.int32),
        begun,
        parts.initial_states(world, first),
        jnp.ones((replicas,), bool),
    )
    counted = (zeros, jnp.zeros((replicas,), jnp.int32))
    _, last, _, _, total, length = lax.while_loop(
        lambda carry: jnp.any(carry[3]), step, (*carry, *counted)
    )
    rows = parts.pack_row(row._replace(u=last.u, v=last.v, w=last.w)).T
    after = state._replace(rows=rows, episode=state.episode + 1, steps=state.steps + length)
    kept = (jnp.moveaxis(last.actor_trace, 0, 1), last.critic_trace) if keep else None
    return after, ({"return": total, "length": length}, kept)
