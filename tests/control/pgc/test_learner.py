"""Private gradient collection as a learner: promises, settings, files, and what it learns."""

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.control import PGC, LearnedPGC, OneOf
from privrl.control.pgc import collection as pgc
from privrl.control.pgc.collection import _randomise_answers, answers_needed
from privrl.control.pgc.learned import first_success, is_sustained
from privrl.control.pgc.learner import default_settings
from privrl.control.pgc.reports import Arm
from privrl.control.program import Program
from privrl.core.errors import InputError
from privrl.envs import make
from privrl.envs.control import CartPole
from privrl.privacy.events import PureDP
from privrl.privacy.mechanisms.sign import epsilon_share
from privrl.privacy.mechanisms.sign_jax import bernoulli_sigmoid
from privrl.privacy.promise import NoiseOrigin, Relation, Release, Unit
from privrl.privacy.session import PrivacySession

ENV = CartPole(step_limit=12)
GRAVITY = OneOf(ENV, "gravity", (9.7, 9.8, 9.9))
# Laplace noise is quicker to compile than PrivUnit's.


class Unhashable:
    """Dynamics that no compiled program could be found by."""

    __hash__ = None  # type: ignore[assignment]  # as of a dataclass that is not frozen

    def __call__(self, key: Any) -> Any:
        return ENV.default_params


SMALL = PGC(epsilon=3.0, mechanism="laplace", hidden=(3,), flight=3, buffer=4, dynamics=GRAVITY)


def assumed(learned: LearnedPGC) -> str:
    return " ".join(one.statement for one in learned.certificate.assumptions)


# --- learning -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("compiled_quickly")
def test_a_run_has_a_policy_a_certificate_and_a_file_and_comes_again_from_its_seed(
    tmp_path: Path,
) -> None:
    told: list[tuple[int, int]] = []
    learned = SMALL.learn(
        ENV, 60, session=PrivacySession(seed=5, public=True), progress=lambda *at: told.append(at)
    )
    again = SMALL.learn(ENV, 60, session=PrivacySession(seed=5))
    other = SMALL.learn(ENV, 60)
    states = np.random.default_rng(0).normal(size=(5, 4))
    np.testing.assert_array_equal(learned.probabilities(states), again.probabilities(states))
    assert np.max(np.abs(learned.probabilities(states) - other.probabilities(states))) > 1e-6
    assert told == [(3 * k, 60) for k in range(1, 21)]

    promise = learned.certificate
    assert promise.epsilon == 3.0
    assert promise.delta == 0.0
    assert (promise.unit, promise.relation) == (Unit.AGENT, Relation.LOCAL)
    assert promise.release is Release.EACH_REPORT
    assert promise.events == (PureDP(3.0, relation=Relation.LOCAL),)
    assert promise.noise is NoiseOrigin.REPRODUCIBLE
    promise.verify()
    other.certificate.verify(strict=True)
    assert "idealised real arithmetic" in assumed(learned)
    assert "scores and lengths of episodes are public" in assumed(learned)
    assert "are public" not in assumed(again)
    assert "Scores and lengths of episodes were declared public." in learned.privacy_statement
    # A run in a folder had the key of its noise there, unless that is no secret.
    kept = SMALL.learn(ENV, 60, folder=tmp_path / "run")
    seeded = SMALL.learn(ENV, 60, session=PrivacySession(seed=5), folder=tmp_path / "seeded")
    assert "it held the key of the noise" in assumed(kept)
    assert "key of the noise" not in assumed(other) + assumed(seeded)
    kept.certificate.verify(strict=True)
    assert (kept.certificate.noise, seeded.to_dict()) == (NoiseOrigin.SECURE_KEY, again.to_dict())
    assert "each agent" in again.privacy_statement

    assert learned.scores is not None
    assert learned.scores.shape == (60,)
    assert 1.0 <= learned.scores.min() <= learned.scores.max() <= 12.0
    assert again.scores is None
    with pytest.raises(InputError, match="Scores were not kept"):
        again.first_success()
    assert learned.settings["reports"] == 60
    assert learned.settings["dynamics"] == {"parameter": "gravity", "values": [9.7, 9.8, 9.9]}

    path = tmp_path / "learned.json"
    learned.save(path)
    loaded = LearnedPGC.load(path)
    assert loaded.to_dict() == learned.to_dict()
    np.testing.assert_array_equal(loaded.probabilities(states), learned.probabilities(states))
    whole = path.read_text()
    for said, broken in (('"reached"', '"breached"'), ('"timing"', '"timed"')):
        path.write_text(whole.replace(said, broken))
        with pytest.raises(InputError, match="damaged"):
            LearnedPGC.load(path)


@pytest.mark.slow
def test_agents_answer_whether_they_reached_the_target_and_the_run_ends() -> None:
    # Everybody reaches a score of 1, and epsilon is so large that nobody lies.
    agent = replace(SMALL, epsilon=60.0, target=1.0, score_share=0.5)
    told: list[int] = []
    learned = agent.learn(
        ENV, 3000, session=PrivacySession(seed=1), progress=lambda done, _: told.append(done)
    )
    assert told == [1000]
    assert learned.settings["reports"] == 1000
    assert learned.reached is not None
    assert learned.reached[0] == pytest.approx(1.0)
    assert learned.certificate.epsilon == 60.0
    privatiser = agent.privatiser(10)
    assert privatiser is not None
    assert privatiser.report_epsilon == privatiser.score_epsilon == 30.0
    # The test can tell: nobody reaches 13 of 12 steps, and nobody's answer ends the run.
    never = replace(agent, target=13.0).learn(ENV, 3000, session=PrivacySession(seed=1))
    assert never.settings["reports"] == 3000
    assert never.reached is not None
    assert never.reached[0] == pytest.approx(0.0)


def test_answers_are_randomised_and_estimates_of_them_unbiased() -> None:
    agent = replace(SMALL, epsilon=2.0, target=5.0, score_share=0.5)
    scores = np.where(np.arange(1000) < 700, 6.0, 4.0)
    scores[:100] = np.nan
    privatiser = agent.privatiser(10)
    assert privatiser is not None
    with jax.enable_x64(True):
        keys = jax.vmap(jax.random.key)(jnp.arange(200))
        told = np.asarray(
            _randomise_answers((5.0, 1.0), keys, jnp.zeros(200, int), jnp.tile(scores, (200, 1)))
        )
        later = np.asarray(
            _randomise_answers(
                (5.0, 1.0), keys[:1], jnp.full(1, 400), jnp.asarray(scores)[None, 400:]
            )
        )
    # Whoever has a number has a coin, in whatever company.
    np.testing.assert_array_equal(later[0], told[0, 400:])
    # And nobody has somebody else's: of two fair strangers 0.61 say the same, at 0.73 each.
    for first in (0, 1000, 2**20):
        with jax.enable_x64(True):
            one, other = (
                np.asarray(
                    _randomise_answers(
                        (5.0, 1.0), keys[:1], jnp.full(1, n), jnp.full((1, 4000), 6.0)
                    )
                )
                for n in (first, first + 1000)
            )
        assert 0.55 < np.mean(one == other) < 0.66
    found = [privatiser.success_rate(one.tolist()) for one in told]
    shares = [share for share, _ in found]
    # With epsilon 1 for each, 0.73 of all answers are true.
    error = 0.5 / (math.tanh(0.5) * math.sqrt(1000.0))
    assert found[0][1] == pytest.approx(error)
    assert abs(np.mean(shares) - 0.6) < 4.0 * error / math.sqrt(200.0)
    assert 0.7 * error < np.std(shares) < 1.1 * error


@pytest.mark.parametrize("mechanism", ["privunit", "sign", "laplace"])
def test_what_is_simulated_spends_what_is_certified(mechanism: Any) -> None:
    """Two reports and two answers, of 4 in all: 1 each."""
    agent = PGC(4.0, mechanism, submissions=2, target=1.0, score_share=0.5)
    program = agent.program(ENV, 1000)
    (arm,) = program.program.arms
    assert arm.plan is not None
    assert arm.plan.epsilon == 1.0
    assert program.answers == (1.0, 1.0)
    privatiser = agent.privatiser(program.program.model.dimension)
    assert privatiser is not None
    assert privatiser.plan.epsilon == privatiser.score_epsilon == 1.0


def test_an_answers_coin_is_not_that_of_the_report() -> None:
    with jax.enable_x64(True):
        noise = jax.random.key(5)
        told = _randomise_answers((0.0, 1.0), noise[None], jnp.zeros(1, int), jnp.ones((1, 300)))[0]
        keys = jax.vmap(lambda n: jax.random.fold_in(noise, n))(jnp.arange(300, dtype=jnp.uint32))
        of_reports = jax.vmap(lambda key: bernoulli_sigmoid(key, epsilon_share(1.0, 1), ()))(keys)
    # All reached the target, so an answer is its coin: 0.73 of both are true, 0.61 at once.
    agree = np.mean(np.asarray(told) == np.asarray(of_reports))
    assert 0.4 < agree < 0.8


def test_answers_are_looked_at_when_there_are_enough_to_tell() -> None:
    # The standard error of n answers is 0.5 / (tanh(epsilon / 2) sqrt(n)).
    assert answers_needed(30.0) == 1000
    assert answers_needed(0.1) == math.ceil((10.0 / math.tanh(epsilon_share(0.1, 1) / 2)) ** 2)
    assert 40_000 < answers_needed(0.1) < 40_100
    agent = PGC(1.0, target=1.0, score_share=0.1)
    assert agent.program(ENV, 50_000).batch == answers_needed(0.1)
    with pytest.raises(InputError, match=r"when there are 40,\d+ of them, and there are 3,000"):
        agent.program(ENV, 3000)


@pytest.mark.slow
def test_answers_are_counted_by_the_thousand_in_whatever_pieces_they_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pgc, "_ANSWERS", 4)
    monkeypatch.setattr(pgc, "_ERROR", 1.0)

    class Fixed:
        """Reports come, one score each: 1 for every third."""

        def advance(self, state: Any, episodes: int) -> Any:
            first = int(state.aggregators.accepted[0])
            scores = (jnp.arange(first, first + episodes) % 3 == 0).astype(float)[None]
            now = state.aggregators._replace(accepted=state.aggregators.accepted + episodes)
            return state._replace(aggregators=now), {"return": scores}

    agent = replace(SMALL, epsilon=120.0, target=1.0, score_share=0.5)
    program = agent.program(ENV, 20)
    with jax.enable_x64(True):
        begun = program.init(jax.random.key(0)[None], {})
        played: Any = Fixed()
        program = replace(program, program=played)
        counted: dict[int, tuple[int, int]] = {}
        for pieces in ((1,) * 11, (4, 4, 3), (3, 6, 2), (11,), (9, 1, 1)):
            state = begun
            for size in pieces:
                state, _ = program.advance(state, size)
                done = int(state.inside.aggregators.accepted[0])
                found = int(program.num_answers(jnp.asarray(done))), int(state.yes[0])
                assert counted.setdefault(done, found) == found
    # By hand: with this epsilon all tell the truth, and 0, 3, 6 and 9 say yes.
    assert counted[4] == (4, 2)
    assert counted[8] == (4, 1)
    assert counted[10] == (2, 1)
    assert counted[11] == (3, 1)


@pytest.mark.slow
def test_the_recipe_learns_to_hold_the_pole_and_the_control_does_not() -> None:
    agent = PGC(epsilon=5.0, dynamics=OneOf(CartPole(), "gravity", (9.7, 9.8, 9.9)))
    learned = agent.learn("CartPole", 6000, session=PrivacySession(seed=1, public=True))
    first = learned.first_success()
    assert first is not None
    assert first < 2300
    assert learned.is_sustained()
    control = replace(agent, control="zero").learn(
        "CartPole", 6000, session=PrivacySession(seed=1, public=True)
    )
    assert not control.is_sustained()
    assert control.scores is not None
    assert np.mean(control.scores[-1000:]) < 100.0


# --- settings -------------------------------------------------------------------------------------


def test_settings_are_the_recipes_unless_they_were_said() -> None:
    plain = PGC(2.0)
    assert plain.settings(96) == {**default_settings(2.0, 96), "gamma": 0.99}
    assert PGC(4.0, submissions=2).settings(96) == plain.settings(96)
    assert PGC(4.0, target=1.0, score_share=0.5).settings(96) == plain.settings(96)
    assert PGC(2.0, rate=0.3, baseline=0.0).settings(96)["rate"] == 0.3
    assert PGC(2.0, baseline=0.0).settings(96)["baseline"] == 0.0
    buffers = [
        default_settings(epsilon, 96)["buffer"] for epsilon in (1.0, 2.0, 5.0, 10.0, math.inf)
    ]
    assert buffers == [201, 89, 57, 52, 50]
    assert default_settings(1.0, 192)["buffer"] > 300
    program = plain.program(CartPole(), 100).program
    assert (program.acting, program.optimiser, program.staleness) == ("sampled", "adam", "root")
    assert program.quantile == "newton"
    assert not program.model.critic
    assert PGC(2.0, control="zero").arm(5).gradient == "zero"
    assert PGC(mechanism=None).arm(5) == Arm(None)


def test_it_is_a_program_whose_replicas_may_say_some_settings() -> None:
    program = SMALL.program(ENV, 20)
    assert isinstance(program, Program)
    with jax.enable_x64(True):
        keys = jax.vmap(jax.random.key)(np.arange(2))
        shapes = jax.eval_shape(lambda k: program.init(k, {"rate": np.array([0.1, 0.2])}), keys)
        assert (
            shapes.inside.settings["rate"].shape == shapes.inside.settings["buffer"].shape == (2,)
        )
        with pytest.raises(InputError, match="settings must be"):
            program.init(keys, {"speed": np.ones(2)})
        for name, value in (
            *(("buffer", 2.5), ("buffer", 0.0), ("rate", 0.0), ("rate", -1.0), ("gamma", 1.5)),
            *(("decay", -1.0), ("baseline", math.inf)),
        ):
            with pytest.raises(InputError, match=f"{name} must be .* in every replica"):
                program.init(keys, {name: np.array([1.0, value])})


def test_numbers_of_numpy_are_kept_as_plain_ones(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "epsilon": np.float32(2.0),
        "hidden": [np.int64(2)],
        "submissions": np.int64(2),
        "flight": np.int32(3),
        "buffer": np.int64(4),
        "gamma": np.float64(0.9),
        "rate": np.float32(0.5),
        "scale": [np.float64(1.0)] * 4,
        # A list, and of NumPy's: what is taken for a tuple of numbers.
        "dynamics": OneOf(ENV, "gravity", [np.float32(9.5)]),  # type: ignore[arg-type]
    }
    agent = PGC(mechanism="laplace", **given)
    plain = {one.name: getattr(agent, one.name) for one in fields(agent) if one.name != "dynamics"}
    assert json.loads(json.dumps(plain)) == {**plain, "hidden": [2], "scale": [1.0] * 4}
    assert agent.dynamics == OneOf(ENV, "gravity", (9.5,))
    many: Any = np.int64(8)
    assert type(agent.program(ENV, many).program.agents) is int
    # With a buffer, nobody asks how long PrivUnit's reports would be.
    assert PGC(600.0, "sign", buffer=4).settings(5)["buffer"] == 4.0


@pytest.mark.parametrize("values", [(math.inf,), (9.8, math.nan), (), "9.8", ("a",), None])
def test_dynamics_are_finite_numbers(values: Any) -> None:
    with pytest.raises(InputError, match=r"gravity|values must be a list"):
        OneOf(ENV, "gravity", values)


def test_dynamics_are_of_an_environment() -> None:
    name: Any = "CartPole"
    with pytest.raises(InputError, match="env must be an environment"):
        OneOf(name, "gravity", (9.8,))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({}, "epsilon is needed"),
        ({"epsilon": 0.0}, "epsilon must be"),
        ({"epsilon": 1.0, "mechanism": "gaussian"}, "mechanism must be 'privunit', 'sign'"),
        ({"epsilon": 1.0, "mechanism": None}, "nothing is spent: leave epsilon out"),
        ({"epsilon": 1.0, "activation": None}, "activation must be 'relu' or 'tanh', not None"),
        ({"epsilon": 1.0, "submissions": 0}, "submissions must be"),
        ({"epsilon": 1.0, "hidden": 16}, "hidden must be a list of numbers"),
        ({"epsilon": 1.0, "gamma": 1.5}, "gamma must be at most 1"),
        ({"epsilon": 1.0, "rate": -1.0}, "rate must be"),
        ({"epsilon": 1.0, "baseline": math.inf}, "baseline must be"),
        ({"epsilon": 1.0, "control": "one"}, "control must be 'zero', not"),
        ({"epsilon": 1.0, "dynamics": "gravity"}, "dynamics must be a function of a key"),
        ({"epsilon": 1.0, "dynamics": Unhashable()}, "dynamics must be hashable"),
        ({"epsilon": 1.0, "flight": 10**12}, "At most 100,000 agents"),
        ({"epsilon": 1.0, "hidden": None}, "hidden must be a list of numbers"),
        (
            {"epsilon": 1.0, "acting": np.zeros(2)},
            "acting must be 'sampled', 'greedy' or 'explored', not",
        ),
        ({"epsilon": 1.0, "target": 195.0}, "target and score_share belong together"),
        ({"epsilon": 1.0, "score_share": 0.1}, "target and score_share belong together"),
        ({"mechanism": None, "target": 1.0, "score_share": 0.1}, "are paid for by epsilon"),
    ],
)
def test_what_is_wrong_is_said(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        PGC(**settings)


@pytest.mark.parametrize("public", ["no", 1, None])
def test_public_is_a_switch(public: Any) -> None:
    with pytest.raises(InputError, match="public must be True or False"):
        SMALL.learn(ENV, 4, session=PrivacySession(public=public))


def test_other_environments_need_a_baseline() -> None:
    with pytest.raises(InputError, match="baseline is needed: say a public number near"):
        PGC(1.0, buffer=2).program(make("Taxi"), 10)
    assert (
        PGC(1.0, buffer=2, baseline=-100.0).program(make("Taxi"), 10).settings_by_name["baseline"]
        == -100.0
    )


def test_environments_that_cannot_be_simulated_are_refused() -> None:
    with pytest.raises(InputError, match="cannot be compiled"):
        PGC(1.0).learn(make("Acrobot-v1"), 10)
    with pytest.raises(InputError, match="of another environment"):
        PGC(1.0, dynamics=GRAVITY).learn("CartPole", 10)
    with pytest.raises(InputError, match="An update takes 201 reports, and there are 200"):
        PGC(1.0).learn("CartPole", 200)
    with pytest.raises(InputError, match="agents must be"):
        PGC(1.0).learn("CartPole", 0)
    with pytest.raises(InputError, match="at most 100,000,000 reports"):
        PGC(1.0, submissions=10**5).learn("CartPole", 10**5)


# --- marks ----------------------------------------------------------------------------------------


def test_first_and_sustained_success() -> None:
    scores = np.array([1.0] * 5 + [10.0] * 4 + [1.0] * 5)
    assert first_success(scores, 10.0, 3) == 8
    assert first_success(scores, 10.0, 5) is None
    assert first_success(scores, 1.0, 14) == 14
    assert first_success(scores, 1.0, 15) is None
    assert first_success([], 1.0, 1) is None
    assert is_sustained(scores, 1.0, 5)
    assert not is_sustained(scores, 1.1, 5)
    assert not is_sustained(scores, 0.0, 15)
    # What is no number is no success, and spoils no window that is without it.
    assert first_success([math.nan, *[10.0] * 20], 5.0, 3) == 4
    assert first_success([math.inf, *[10.0] * 20], 5.0, 3) == 4
    assert first_success([math.nan, 10.0, 10.0], 5.0, 3) is None
    assert not is_sustained([math.inf, 10.0], 5.0, 2)
    assert first_success([1e308] * 4, 5.0, 2) is None
    # Nor do numbers that are very large, once they are over.
    assert first_success([-1e19, *[200.0] * 50], 195.0, 10) == 11
    assert first_success([-1e308, -1e308, *[200.0] * 50], 195.0, 3) == 5
    assert not is_sustained([1e308] * 4, 5.0, 4)
    for mark in (first_success, is_sustained):
        with pytest.raises(InputError, match="window must be at least 1"):
            mark(scores, 1.0, 0)
