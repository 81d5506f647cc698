"""The compiled simulation of private gradient collection, against plain accounts of the same."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.control.pgc import program as pgc_program
from privrl.control.pgc.aggregator import Aggregator
from privrl.control.pgc.losses import (
    Loss,
    Model,
    Steps,
    epsilon_greedy,
    explore_uniformly,
    initial_sums,
    sample_action,
    softmax,
)
from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.program import OneOf, PGCProgram, play
from privrl.control.pgc.program_state import Aggregators
from privrl.control.pgc.reports import Arm, Group
from privrl.control.program import Program, load_state, save_state
from privrl.core.errors import InputError
from privrl.envs.base import Discrete
from privrl.envs.chain import Chain
from privrl.envs.control import CartPole
from privrl.privacy.mechanisms import report_laplace_jax, sign_jax, unit_vector_jax
from privrl.privacy.mechanisms.report_laplace import LaplaceReport
from privrl.privacy.mechanisms.sign import ProjectedSign
from privrl.privacy.mechanisms.unit_vector import PrivUnit, upper_quantile

ENV = CartPole(step_limit=14)
SMALL = Model(ENV.observation, 2, (3,))
PAPER = Model(ENV.observation, 2, (16,), critic=True)
GRAVITY = OneOf(ENV, "gravity", (9.7, 9.8, 9.9))
REPLICAS = 4


def program(*arms: Arm) -> PGCProgram:
    """Episodes of at most 14 steps, everything in 64 bits."""
    return PGCProgram(
        ENV,
        SMALL,
        arms,
        agents=16,
        dynamics=GRAVITY,
        flight=3,
        block=4,
        dtype="float64",
        quantile="newton",
    )


# Laplace noise is quicker to compile than PrivUnit's. In the second arm nothing is learned.
RUN = program(
    Arm(LaplaceReport(2.0, SMALL.dimension), "clip"),
    Arm(LaplaceReport(20.0, SMALL.dimension), "clip", gradient="zero"),
)


def keys(*seeds: int) -> jax.Array:
    return jax.vmap(jax.random.key)(jnp.asarray(seeds))


def numbers(**changes: Any) -> dict[str, Any]:
    plain = {"rate": 0.05, "buffer": 2.0, "decay": 0.0, "gamma": 0.9, "baseline": 5.0}
    return {name: jnp.full(REPLICAS, value) for name, value in {**plain, **changes}.items()}


def bits(tree: Any) -> list[bytes]:
    return [
        np.asarray(
            jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        ).tobytes()
        for x in jax.tree.leaves(tree)
    ]


# --- the gradient ---------------------------------------------------------------------------------


@partial(jax.jit, static_argnums=0)
@partial(jax.grad, argnums=1)
def printed(model: Model, theta: Any, episode: Any, cut: Any, own: dict[str, float]) -> Any:
    """The loss of a stored episode, (15) to (18) as `pgc_losses` reads them, by autodiff.

    An episode is padded: observations, actions, rewards, how many steps it took, and where to.
    """
    seen, actions, rewards, count, last = episode
    weights, depth = model.weights(theta), len(model.hidden)

    def outputs(x: Any) -> tuple[Any, Any]:
        for w in weights[:depth]:
            x = jnp.tanh(x @ w.T) if model.activation == "tanh" else jax.nn.relu(x @ w.T)
        values = x @ weights[depth + 1][0] if model.critic else jnp.zeros(len(x))
        return x @ weights[depth].T, values

    preferences, values = outputs(seen)
    logs = jax.nn.log_softmax(preferences)
    step = jnp.arange(len(actions))
    taken = step < count
    ahead = step[None, :] - step[:, None]
    discount = jnp.where((ahead >= 0) & taken[None, :], own["gamma"] ** ahead, 0.0)
    follows = jnp.where(cut, outputs(last[None])[1][0], 0.0)
    target = discount @ rewards + own["gamma"] ** (count - step) * follows
    target = jax.lax.stop_gradient(target)
    base = values if model.critic else own["baseline"]
    advantage = jax.lax.stop_gradient(target - base)
    loss = -advantage * logs[step, actions]
    if model.critic:
        loss = loss + own["entropy"] * jnp.sum(jnp.exp(logs) * logs, axis=1)
        loss = loss + own["value_weight"] * (target - values) ** 2
    return jnp.sum(jnp.where(taken, loss, 0.0))


@partial(jax.jit, static_argnums=0)
def forward(model: Model, theta: Any, episode: Any, cut: Any, own: dict[str, float]) -> Any:
    """The same gradient, added up on the way, four steps at a time; after the end, nothing is."""
    loss, weights = Loss(model), model.weights(theta)
    seen, actions, rewards, count, last = episode
    # What an old episode left behind does not matter.
    sums = jax.tree.map(lambda x: x + 1.0, initial_sums(weights))
    for first in range(0, len(actions), 4):
        at = slice(first, first + 4)
        inside = [
            jnp.moveaxis(x, 0, 1)
            for x in jax.vmap(lambda s: model.layer_inputs(weights, s))(seen[at])
        ]
        outputs = jax.vmap(lambda x: model.outputs(weights, x), in_axes=-1, out_axes=-1)(inside)
        live = jnp.arange(len(actions))[at] < count
        values = outputs[1] * jnp.ones(live.shape)
        steps = Steps(inside, softmax(outputs[0]), values, actions[at], rewards[at], live)
        sums = loss.add(own, weights, steps, sums, jnp.asarray(first == 0))
    return -model.flatten(loss.close(own, weights, last, cut, sums))


@pytest.mark.parametrize(
    ("model", "cut"),
    [
        (PAPER, True),
        (replace(PAPER, hidden=(5, 4), activation="tanh"), False),
        pytest.param(replace(SMALL, activation="tanh"), True, marks=pytest.mark.slow),
        pytest.param(PAPER, False, marks=pytest.mark.slow),
    ],
)
def test_gradients_added_up_while_playing_are_those_of_the_printed_losses(
    model: Model, cut: bool
) -> None:
    own = {"gamma": 0.93, "value_weight": 0.5, "entropy": 0.03, "baseline": 2.0}
    with jax.enable_x64(True):
        draw = np.random.default_rng(4)
        theta = jnp.asarray(draw.normal(size=model.dimension))
        seen = jnp.asarray(draw.normal(size=(11, 4)))
        actions = jnp.asarray(draw.integers(0, 2, 11))
        rewards = jnp.asarray(draw.normal(size=11))
        episode = seen, actions, rewards, 10, jnp.asarray(draw.normal(size=4))
        expected = printed(model, theta, episode, cut, own)
        found = forward(model, theta, episode, cut, own)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
        # The test can tell: another end of the episode has another gradient.
        if model.critic:
            other = forward(model, theta, episode, not cut, own)
            assert np.max(np.abs(other - expected)) > 1e-3


def test_an_agent_who_waits_for_the_others_has_the_same_gradient_still() -> None:
    """Its trace may be infinite, where its total is none."""
    with jax.enable_x64(True):
        weights = SMALL.weights(SMALL.initial_parameters(jax.random.key(1)))
        sums = initial_sums(weights)
        sums = sums._replace(
            trace=tuple(x + jnp.inf for x in sums.trace), total=tuple(x + 3.0 for x in sums.total)
        )
        inside = [jnp.zeros((size, 4)) for size in (4, 3)]
        zeros, nobody = jnp.zeros(4), jnp.zeros(4, bool)
        steps = Steps(inside, jnp.full((2, 4), 0.5), zeros, zeros.astype(int), zeros, nobody)
        own = {"gamma": 0.9, "baseline": 5.0}
        later = Loss(SMALL).add(own, weights, steps, sums, jnp.asarray(False))
    for found, before in zip(jax.tree.leaves(later), jax.tree.leaves(sums), strict=True):
        np.testing.assert_array_equal(found, before)


def test_the_papers_model_has_112_parameters_and_policies_are_those_that_were_played() -> None:
    assert PAPER.dimension == 112
    assert PAPER.shapes == ((16, 4), (2, 16), (1, 16))
    model = replace(PAPER, scale=(2.0, 3.0, 0.2, 1.0))
    with jax.enable_x64(True):
        theta = model.initial_parameters(jax.random.key(1))
        weights = model.weights(theta)
        np.testing.assert_array_equal(model.flatten(weights), theta)
        states = np.random.default_rng(0).normal(size=(6, 4))
        probs = jax.jit(
            jax.vmap(lambda s: softmax(model.outputs(weights, model.layer_inputs(weights, s))[0]))
        )
        played = probs(jnp.asarray(states))
        uniform = replace(model, first="uniform").initial_parameters(jax.random.key(1))
    policy = model.policy(np.asarray(theta))
    np.testing.assert_allclose(policy.probabilities(states), played, rtol=1e-12)
    assert not np.any(np.asarray(uniform)[64:])
    assert np.all(np.asarray(uniform)[:64])


def test_actions_have_the_probs_that_they_should_have() -> None:
    uniform = (jnp.arange(1000) + 0.5) / 1000
    probs = jnp.array([0.2, 0.5, 0.3])

    @jax.jit
    @jax.vmap
    def acts(u: Any) -> Any:
        return (
            sample_action(probs, u),
            epsilon_greedy(probs, 0.3 * u**0, u),
            epsilon_greedy(probs, 0.0 * u, u),
            sample_action(explore_uniformly(probs, 0.3 * u**0), u),
        )

    counts = [np.bincount(taken, minlength=3).tolist() for taken in acts(uniform)]
    assert counts == [[200, 500, 300], [100, 800, 100], [0, 1000, 0], [240, 450, 310]]


# --- reports --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mechanism",
    [*(pytest.param(one, marks=pytest.mark.slow) for one in ("privunit", "sign")), "laplace"],
)
def test_reports_are_those_of_the_mechanism_bit_for_bit_with_the_epsilon_of_their_arm(
    mechanism: Any,
) -> None:
    d = SMALL.dimension
    arms = [Arm.of(Privatiser(epsilon, d, mechanism, norm="clip")) for epsilon in (1.0, 5.0)]
    modules: Any = {"privunit": unit_vector_jax, "sign": sign_jax, "laplace": report_laplace_jax}
    alone = modules[mechanism].reports
    with jax.enable_x64(True):
        rows = jnp.asarray(np.random.default_rng(1).normal(size=(4, d))).at[3].set(0.0)
        own = keys(1, 2, 3, 4)
        found = [
            group.reports(rows, own, jnp.full(4, place))
            for group in program(*arms).groups
            for place in range(len(group.arms))
        ]
        expected = [
            [alone(arm.plan, row[None], key)[0] for row, key in zip(rows, own, strict=True)]
            for arm in arms
        ]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_looked_up_quantiles_give_nearly_the_same_reports() -> None:
    plans = [PrivUnit(1.0, 6, padded=False), PrivUnit(5.0, 6, padded=False)]
    with jax.enable_x64(True):
        rows = jnp.asarray(np.random.default_rng(1).normal(size=(4, 6))).at[3].set(0.0)
        arms, own = jnp.array([0, 1, 1, 0]), keys(1, 2, 3, 4)
        exact, near = (
            unit_vector_jax.reports_of_many(plans, arms, rows, own, by)
            for by in ("newton", "table")
        )
    np.testing.assert_allclose(near, exact, atol=1e-8)


@pytest.mark.parametrize("sphere", [3, 96, 5000])
def test_interpolated_quantiles_are_off_by_less_than_a_ten_thousand_millionth(sphere: int) -> None:
    draw = np.random.default_rng(2)
    tails = np.concatenate([0.5 * draw.random(4000), np.exp(-39.0 * draw.random(4000)) / 2, [0.5]])
    with jax.enable_x64(True):
        found = unit_vector_jax.table_quantile(sphere, jnp.asarray(tails))
    np.testing.assert_allclose(found, upper_quantile(sphere, tails), atol=1e-10)


def test_broken_gradients_count_as_zero_and_so_do_all_in_the_control() -> None:
    with jax.enable_x64(True):
        gradients = jnp.array(
            [[3.0, 4.0], [jnp.nan, 1.0], [jnp.inf, 0.0], [1e300, 0.0], [0.0, 0.0]]
        )
        groups = [
            Group((arm,), "newton")
            for arm in (Arm(None), Arm(None, gradient="zero"), Arm(None, "clip", 0.5))
        ]
        scaled, control, clipped = jax.jit(
            lambda g: [group.reports(g, keys(0), jnp.zeros(5, int)) for group in groups]
        )(gradients)
    assert not np.any(control)
    expected = np.array([[0.6, 0.8], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    np.testing.assert_allclose(scaled, expected)
    np.testing.assert_allclose(clipped[0], [1.5 / 7, 2.0 / 7])


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_every_report_has_noise_of_its_own_key() -> None:
    """Without gradients, a model that moves by whole reports shows them one by one."""
    plan = LaplaceReport(2.0, SMALL.dimension)
    run = replace(program(Arm(plan, "clip", gradient="zero")), optimiser="sgd", staleness="none")
    seeds, count = (3, 1, 2, 7), 5
    with jax.enable_x64(True):
        state = run.init(keys(*seeds), numbers(rate=1.0, buffer=1.0))
        models = [state.aggregators.theta]
        for _ in range(count):
            state, _ = run.advance(state, 1)
            models.append(state.aggregators.theta)
        for replica, seed in enumerate(seeds):
            noise = jax.random.split(jax.random.key(seed), 4)[3]
            for number in range(count):
                key = jax.random.fold_in(noise, jnp.uint32(number))
                report = report_laplace_jax.reports(plan, jnp.zeros((1, SMALL.dimension)), key)[0]
                moved = models[number][replica] - models[number + 1][replica]
                np.testing.assert_allclose(moved, report, rtol=1e-9, atol=1e-12)


def test_an_arm_is_the_plan_of_a_privatiser() -> None:
    arm = Arm.of(Privatiser(1.5, 7, "laplace", norm="clip", radius=0.005), "zero")
    assert arm == Arm(LaplaceReport(1.5, 7, 0.005), "clip", 0.005, "zero")
    sign = Privatiser(5.0, 7, "sign", norm="clip", debias=False)
    assert Arm.of(sign) == Arm(ProjectedSign(5.0, 7, debias=False), "clip")


# --- whole runs -----------------------------------------------------------------------------------


def by_hand(
    seed: int, privatiser: Privatiser, agents: int, *, fixed: bool
) -> tuple[Any, list[int], list[int]]:
    """A replica of a program, an agent at a time, with the aggregator's core: model, lengths,
    ages."""
    first, actions, arrivals, noise = jax.random.split(jax.random.key(seed), 4)
    own = {"gamma": 0.9, "baseline": 5.0}
    core = Aggregator(privatiser, rate=0.05, buffer=2, optimiser="adam")
    state = core.begin(np.asarray(SMALL.initial_parameters(first)))
    step, draw = jax.jit(ENV.step), jax.jit(lambda key: jax.random.uniform(key, (4, 3)))

    @jax.jit
    def begin(number: Any) -> Any:
        dynamics, start = jax.random.split(jax.random.fold_in(arrivals, number))
        params = GRAVITY(dynamics)
        return params, *ENV.reset(start, params)

    @jax.jit
    def randomised(row: Any, number: Any) -> Any:
        assert isinstance(privatiser.plan, PrivUnit)
        return unit_vector_jax.reports(privatiser.plan, row, jax.random.fold_in(noise, number))[0]

    def arrive(number: int) -> dict[str, Any]:
        nonlocal state
        state, ticket, theta = core.issue(state)
        params, at, seen = begin(np.uint32(number))
        return {"ticket": ticket, "theta": theta, "params": params, "at": at, "seen": [seen]}

    def play(agent: dict[str, Any], uniform: Any) -> None:
        if agent.get("over"):
            return
        policy = SMALL.policy(agent["theta"])
        action = int(uniform >= policy.probabilities(np.asarray(agent["seen"][-1])[None])[0, 0])
        after = step(jax.random.key(0), agent["at"], action, agent["params"])
        agent["at"], agent["over"] = after.state, bool(after.terminated | after.truncated)
        agent["seen"].append(after.observation)
        agent.setdefault("actions", []).append(action)

    flying = [arrive(2**31 + place) for place in range(3)]
    lengths: list[int] = []
    ages: list[int] = []
    block = 0
    while len(lengths) < agents:
        uniforms = np.asarray(draw(jax.random.fold_in(actions, block)))
        for tick in range(4):
            for place, agent in enumerate(flying):
                play(agent, uniforms[tick, place])
        block += 1
        if fixed and not all(agent.get("over") for agent in flying):
            continue
        left = []
        for place, agent in enumerate(flying):
            if not agent.get("over") or len(lengths) == agents:
                continue
            count = len(agent["actions"])
            seen, acts = np.zeros((14, 4)), np.zeros(14, np.int64)
            seen[:count], acts[:count] = agent["seen"][:-1], agent["actions"]
            stored = seen, acts, np.ones(14), count, agent["seen"][-1]
            gradient = printed(SMALL, agent["theta"], stored, False, own)
            row = jnp.asarray(privatiser.rows(np.asarray(gradient)[None]))
            report = randomised(row, np.uint32(len(lengths)))
            ages.append(state.version - agent["ticket"].version)
            state, verdict = core.submit(state, agent["ticket"], privatiser.plan.encode(report))
            assert verdict.is_accepted
            left.append((place, len(lengths)))
            lengths.append(count)
        for place, number in left:
            flying[place] = arrive(number)
    return state.theta, lengths, ages


@pytest.mark.slow
@pytest.mark.parametrize("timing", ["open", "fixed"])
def test_a_compiled_run_is_what_the_core_makes_of_the_same_agents(timing: Any) -> None:
    plans = [Privatiser(epsilon, SMALL.dimension) for epsilon in (2.0, 20.0)]
    run = replace(program(*(Arm.of(plan) for plan in plans)), timing=timing)
    with jax.enable_x64(True):
        state, seen = run.advance(run.init(keys(3, 1, 2, 7), numbers()), 12)
        for replica, seed in ((0, 3), (3, 7)):
            theta, lengths, ages = by_hand(seed, plans[replica // 2], 12, fixed=timing == "fixed")
            assert np.asarray(seen["length"])[replica].tolist() == lengths
            np.testing.assert_allclose(
                state.aggregators.theta[replica], theta, rtol=1e-9, atol=1e-12
            )
            assert max(ages) > 0  # some models were old


@pytest.mark.parametrize("timing", ["open", pytest.param("fixed", marks=pytest.mark.slow)])
def test_a_run_in_pieces_is_the_same_run_and_replicas_know_nothing_of_each_other(
    timing: Any, tmp_path: Path
) -> None:
    run = replace(RUN, timing=timing)
    with jax.enable_x64(True):
        begun = run.init(keys(3, 1, 2, 7), numbers())
        whole, seen = run.advance(begun, 11)
        state, pieces = begun, []
        for count in (1, 4, 6):
            state, some = run.advance(state, count)
            pieces.append(some["length"])
            save_state(tmp_path / "state", state, {})
            state = load_state(tmp_path / "state", begun)[0]
        assert isinstance(run, Program)
        np.testing.assert_array_equal(seen["return"], seen["length"])
        np.testing.assert_array_equal(np.concatenate(pieces, axis=1), seen["length"])
        assert bits(state) == bits(whole)
        assert np.asarray(whole.aggregators.accepted).tolist() == [11] * REPLICAS
        # All replicas but the first are others, and the first does not notice.
        other = run.init(keys(3, 8, 9, 10), {**numbers(), "rate": jnp.array([0.05, 1.0, 0.3, 2.0])})
        beside, lengths = run.advance(other, 11)
        np.testing.assert_array_equal(lengths["length"][0], seen["length"][0])
        assert bits(beside.aggregators.theta[0]) == bits(whole.aggregators.theta[0])
        assert bits(beside.aggregators.theta[1]) != bits(whole.aggregators.theta[1])
        with pytest.raises(InputError, match="16 agents"):
            run.advance(whole, 6)


@pytest.mark.parametrize("timing", ["open", "fixed"])
def test_how_long_agents_play_moves_no_model_when_reports_come_at_fixed_times(timing: Any) -> None:
    """Reports that are noise and nothing else, so that timing alone could tell of episodes."""
    run = replace(RUN, timing=timing)
    with jax.enable_x64(True):
        begun = run.init(keys(3, 1, 2, 7), numbers(rate=1.0))
        one, lengths = run.advance(begun, 15)
        # Other actions, hence episodes of other lengths; everything else is the same.
        other, others = run.advance(begun._replace(actions=keys(5, 6, 8, 9)), 15)
    assert np.any(
        np.asarray(lengths["length"])[2:] != np.asarray(others["length"])[2:], axis=1
    ).all()
    model = [bits(state.aggregators.theta[2:]) for state in (one, other)]
    sent = [bits(state.slots.version[6:]) for state in (one, other)]
    # The test can tell: where reports come as episodes end, their order and age differ.
    assert (model[0] == model[1]) == (timing == "fixed")
    assert (sent[0] == sent[1]) or timing == "open"


@pytest.mark.slow
def test_replicas_in_parts_on_all_cores_are_the_same_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seeds = keys(*range(10))
    own = {name: jnp.arange(10) * 0.01 + x[0] for name, x in numbers().items()}
    with jax.enable_x64(True):
        _, seen = RUN.advance(RUN.init(seeds, own), 9)
        for together in (100, 4):
            monkeypatch.setattr(pgc_program, "_MAX_REPLICAS", together)
            found = play(RUN, seeds, own, 9)
            for name, x in seen.items():
                np.testing.assert_array_equal(found[name], x)


def test_full_buffers_move_the_model_by_a_rate_that_falls_as_it_is_told_to() -> None:
    plain = replace(RUN, optimiser="sgd")
    with jax.enable_x64(True):
        zeros, held = jnp.zeros((3, 2)), jnp.array([1, 0, 1])
        now = Aggregators(zeros, jnp.zeros((3, 2, 0)), zeros, held, held + 4, held)
        own = {
            "rate": jnp.full(3, 0.5),
            "buffer": jnp.full(3, 2.0),
            "decay": jnp.array([0, 0, 1.0]),
        }
        reports = jnp.array([[6.0, -2.0]] * 3)
        found = plain.add_reports(now, jnp.array([True] * 3), reports, jnp.array([0, 0, 3]), own)
    # The second buffer is not full. The third report is three versions old, so half counts, and
    # five buffers of two are over of 16 agents.
    rest = 1.0 - 10 / 16
    expected = [[-1.5, 0.5], [0.0, 0.0], [-0.75 * rest, 0.25 * rest]]
    np.testing.assert_allclose(found.theta, expected)
    np.testing.assert_allclose(found.total, [[0.0, 0.0], [6.0, -2.0], [0.0, 0.0]])
    assert [x.tolist() for x in found[3:]] == [[0, 1, 0], [6, 4, 6], [2, 1, 2]]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"agents": 0}, "agents"),
        ({"arms": ()}, "at least one way"),
        ({"arms": (Arm(PrivUnit(1.0, 5)),)}, "18 parameters"),
        ({"env": CartPole(step_limit=None)}, "step limit"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(changes: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(RUN, **changes)


def test_settings_and_replicas_must_fit() -> None:
    with jax.enable_x64(True):
        with pytest.raises(InputError, match="as many replicas"):
            RUN.init(keys(1, 2, 3), {})
        with pytest.raises(
            InputError, match="settings must be rate, buffer, decay, gamma, baseline"
        ):
            RUN.init(keys(1, 2), {"rate": jnp.ones(2)})
    with pytest.raises(InputError, match="no parameter 'weight'"):
        OneOf(ENV, "weight", (1.0,))
    with pytest.raises(InputError, match="4 numbers"):
        replace(SMALL, scale=(1.0,))


@pytest.mark.slow
def test_the_papers_agents_and_other_environments_run_too() -> None:
    """Greedy agents with a critic, all kinds of reports; states by number, and moves by chance."""
    d = PAPER.dimension
    arms = (
        Arm(LaplaceReport(1.0, d, 0.005), "clip"),
        Arm(LaplaceReport(10.0, d, 0.005), "clip"),
        Arm(ProjectedSign(10.0, d, debias=False), "clip"),
        Arm(None, "clip", 0.005),
    )
    run = PGCProgram(ENV, PAPER, arms, 60, "greedy", GRAVITY, "sgd", "none")
    with jax.enable_x64(True):
        own = {"rate": 0.5, "buffer": 1.0, "decay": 0.0, "gamma": 0.99}
        own |= {"value_weight": 0.5, "entropy": 0.01}
        state = run.init(keys(0, 0, 0, 0), {name: jnp.full(4, x) for name, x in own.items()})
        begun = np.asarray(state.aggregators.theta)
        state, _ = run.advance(state, 60)
        moved = np.abs(np.asarray(state.aggregators.theta) - begun)
    # Sixty moves of noise 0.5 C / epsilon in each coordinate; of C / 2 in L1 norm without noise.
    assert 0.5 < np.sqrt(np.mean(moved[0] ** 2)) / (0.5 * 0.01 * np.sqrt(120)) < 1.5
    assert 0.5 < np.sqrt(np.mean(moved[1] ** 2)) / (0.05 * 0.01 * np.sqrt(120)) < 1.5
    assert np.all(np.mod(np.round(moved[2] / (0.5 * np.sqrt(3.0)), 6), 1.0) == 0.0)
    assert 0.0 < np.sum(moved[3]) <= 60 * 0.5 * 0.005 * (1 + 1e-9)

    chain = Chain()
    model = Model(Discrete(chain.observation.n), chain.num_actions, (4,))
    run = PGCProgram(chain, model, (Arm(PrivUnit(8.0, model.dimension)),), 40, flight=2)
    with jax.enable_x64(True):
        settings = {"rate": 0.1, "buffer": 5.0, "decay": 1.0, "gamma": 0.95, "baseline": 1.0}
        begun_chain = run.init(keys(0), {name: jnp.full(1, x) for name, x in settings.items()})
        state, seen = run.advance(begun_chain, 40)
    assert np.all(np.asarray(seen["length"]) <= (chain.step_limit or 0))
    assert int(state.aggregators.version[0]) == 8
    assert model.policy(np.asarray(state.aggregators.theta[0])).num_actions == chain.num_actions
