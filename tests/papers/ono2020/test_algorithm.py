"""PGC-A3C line by line: the compiled version comes to the same, and its mechanisms to the law."""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.control.pgc.program import OneOf
from privrl.core.types import Floats
from privrl.envs.control import CartPole
from privrl.papers.ono2020 import PGC, algorithm
from privrl.privacy.mechanisms import report_laplace_jax
from privrl.privacy.mechanisms.report_laplace import LaplaceReport
from privrl.privacy.mechanisms.sign import ProjectedSign

# Short enough that some episodes are cut off by the clock, and some are not.
ENV = CartPole(step_limit=12)
GRAVITY = OneOf(ENV, "gravity", (9.7, 9.8, 9.9))
SUBMISSIONS, FLIGHT = 20, 3


@dataclass
class Played:
    """An environment of ours as a `World`."""

    state: Any
    params: Any
    observation: Floats

    def step(self, action: int) -> tuple[float, bool, bool]:
        after = _step(jax.random.key(0), self.state, action, self.params)
        self.state, self.observation = after.state, np.asarray(after.observation, np.float64)
        over = bool(after.terminated | after.truncated)
        return float(after.reward), over, not bool(after.terminated)


_step = jax.jit(ENV.step)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(4,), (3, 4)])
def test_the_compiled_version_is_algorithm_1(hidden: tuple[int, ...]) -> None:
    agent = PGC(2.0, "laplace", hidden=hidden, flight=FLIGHT, buffer=2, clip=1.0, dynamics=GRAVITY)
    made = agent.program(ENV, SUBMISSIONS)
    program = replace(made.program, block=1, dtype="float64")
    with jax.enable_x64(True):
        key = jax.random.key(5)
        settings = {name: jnp.full(1, value) for name, value in made.settings_by_name.items()}
        state, seen = program.advance(program.init(key[None], settings), SUBMISSIONS)
        first, actions, arrivals, noise = jax.random.split(key, 4)
        episodes: list[Played] = []

        def world(number: int | None, place: int) -> Played:
            own = np.uint32(2**31 + place if number is None else number)
            dynamics, start = jax.random.split(jax.random.fold_in(arrivals, own))
            params = GRAVITY(dynamics)
            now, observation = ENV.reset(start, params)
            episodes.append(Played(now, params, np.asarray(observation, np.float64)))
            return episodes[-1]

        def randomise(gradient: Floats, number: int) -> Floats:
            drawn = jax.random.laplace(
                jax.random.fold_in(noise, np.uint32(number)), (1, gradient.size), jnp.float64
            )
            return algorithm.laplace(gradient, 2.0, 1.0, np.asarray(drawn)[0])

        def uniform(tick: int, place: int) -> float:
            drawn = jax.random.uniform(jax.random.fold_in(actions, tick), (1, FLIGHT), jnp.float64)
            return float(drawn[0, place])

        begun = tuple(
            np.asarray(x) for x in program.model.weights(program.model.initial_parameters(first))
        )
        found = algorithm.pgc_a3c(
            begun,
            world,
            randomise,
            uniform,
            submissions=SUBMISSIONS,
            flight=FLIGHT,
            buffer=2,
            **{
                name: made.settings_by_name[name]
                for name in ("rate", "gamma", "value_weight", "entropy")
            },
        )
        wanted = np.asarray(state.aggregators.theta)[0]
        np.testing.assert_allclose(algorithm.flatten(found), wanted, rtol=1e-8, atol=1e-10)
        assert np.max(np.abs(wanted - algorithm.flatten(begun))) > 0.1
        lengths = np.asarray(seen["length"])[0]
        assert lengths.min() < 12 == lengths.max()  # both kinds of ends were met


def test_algorithm_2_is_the_laplace_report() -> None:
    rows = np.random.default_rng(1).normal(size=(6, 5)) * [[0.01], [0.1], [1.0], [9.0], [0.0], [3]]
    with jax.enable_x64(True):
        for row, key in zip(rows, jax.random.split(jax.random.key(2), 6), strict=True):
            plan = LaplaceReport(2.0, 5, 0.25)
            drawn = np.asarray(jax.random.laplace(key, (1, 5), jnp.float64))[0]
            wanted = report_laplace_jax.reports(plan, row[None], key)[0]
            found = algorithm.laplace(row, 2.0, 0.5, drawn)
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_algorithm_3_has_the_law_of_the_projected_sign() -> None:
    """Given the directions, each bit is +1 as often as `ProjectedSign` says it (two stages)."""
    plan = ProjectedSign(6.0, 5, clip=0.8, debias=False)
    rng = np.random.default_rng(3)
    gradient = rng.normal(size=5)
    directions = plan.directions([b"0123456789abcdef"])[0].astype(np.float64)
    position = plan.positions(gradient[None], [b"0123456789abcdef"])[0]
    honest = 1.0 / (1.0 + np.exp(-float(plan.epsilon_per_part)))
    law = (1.0 + position) / 2.0
    law = law * honest + (1.0 - law) * (1.0 - honest)
    for bit, share in enumerate(law):
        for edge, sign in ((share - 1e-9, 1.0), (share + 1e-9, -1.0)):
            uniforms = np.full(plan.bits, 0.999999)
            uniforms[bit] = edge
            found = algorithm.projected_random_sign(
                gradient, 6.0, 0.8, np.sqrt(3.0) * directions, uniforms
            )
            others = np.where(uniforms < law, 1.0, -1.0)
            assert others[bit] == sign
            np.testing.assert_allclose(found, plan.size * (others @ directions), atol=1e-9)
