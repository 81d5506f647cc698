"""Learned agents and policies as Gymnasium's and Stable-Baselines3's users call them, and as they
show themselves."""

import numpy as np

from privrl.control import ActorCritic
from privrl.data import FunctionPolicy, Polynomial, Softmax, Tabular
from privrl.envs.tabular import TabularMDP
from privrl.evaluation.result import Interval, NotPrivate, Result
from privrl.privacy import Budget, Certificate, PrivacySession, Relation, Unit
from privrl.privacy.events import Gaussian
from privrl.run.study import Study

TABLE = Tabular(np.array([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]]))
VECTORS = Softmax(Polynomial(1, (0.0, 0.0), (1.0, 1.0)), np.array([[0.0, 1.0], [0, -9], [0, 0]]))


def test_one_observation_has_one_action() -> None:
    assert TABLE.act(0, deterministic=True) == 1
    assert TABLE.act(np.int64(1), deterministic=True) == 0
    assert TABLE.act(2, deterministic=True) == 0  # the first of equals
    assert type(TABLE.act(0)) is int
    assert TABLE.predict(0, deterministic=True) == (1, None)
    likely = np.argmax(VECTORS.probabilities(np.array([[0.9, 0.3]])), axis=1)
    assert VECTORS.act(np.array([0.9, 0.3]), deterministic=True) == likely[0]
    anything = FunctionPolicy(lambda states: np.tile([0.0, 1.0], (len(states), 1)), 2)
    assert anything.act(np.zeros(4)) == 1


def test_a_batch_has_an_action_for_each() -> None:
    actions = TABLE.act([0, 1, 2], deterministic=True)
    np.testing.assert_array_equal(actions, [1, 0, 0])
    rows = np.array([[0.0, 0.0], [1.0, 1.0]])
    actions, state = VECTORS.predict(rows, deterministic=True)
    assert state is None
    np.testing.assert_array_equal(actions, VECTORS.probabilities(rows).argmax(axis=1))


def test_actions_are_drawn_as_likely_as_they_are() -> None:
    """Beyond five standard errors once in 1.7 million; a tenth off would be 28 of them."""
    drawn = TABLE.act(np.zeros(20_000, int), key=3)
    np.testing.assert_array_equal(drawn, TABLE.act(np.zeros(20_000, int), key=3))
    error = np.sqrt(0.8 * 0.2 / 20_000)
    assert abs(drawn.mean() - 0.8) < 5 * error
    assert len({TABLE.act(2) for _ in range(64)}) == 2  # by chance once in 2^63


def test_agents_act_and_show_what_they_promise() -> None:
    moves = np.full((2, 2, 2), 0.5)
    env = TabularMDP.from_dense(moves, np.eye(2), start=[1.0, 0.0], step_limit=3, name="Two <b>")
    agent = ActorCritic(budget=Budget(5.0, 1e-6), batch=4, return_range=(0.0, 3.0))
    learned = agent.learn(env, 8, session=PrivacySession(seed=1))
    best = learned.probabilities([0, 1]).argmax(axis=1)
    assert learned.act(1, deterministic=True) == best[1]
    np.testing.assert_array_equal(learned.predict([0, 1], deterministic=True)[0], best)
    assert repr(learned) == (
        "<LearnedActorCritic of Two <b>: Certificate: epsilon 5 at delta 1e-06>"
    )
    shown = learned._repr_html_()
    assert shown.startswith("<pre>LearnedActorCritic of Two &lt;b&gt;: Certificate")
    assert "Protected" in shown
    assert repr(learned.certificate) == "<Certificate: epsilon 5 at delta 1e-06>"


def test_results_and_studies_show_their_figures() -> None:
    certificate = Certificate.issue(
        (Gaussian(4.0, 1.0),), 1e-5, unit=Unit.USER, relation=Relation.REPLACE_ONE
    )
    value = Result("PrivateValue", certificate, 0.5, Interval(0.25, 0.75, 0.95))
    assert repr(value) == "<PrivateValue: 0.5, from 0.25 to 0.75 at 95%>"
    assert "Protected" in value._repr_html_()
    values = Result("LSTD", NotPrivate(), weights=np.zeros(2))
    assert repr(values) == "<LSTD: values of states>"
    study = Study("wards\x1b[31m & beds", (value, values), certificate)
    assert repr(study) == r"<Study: wards\x1b[31m & beds>"
    lines = study._repr_html_().splitlines()
    assert lines[0] == r"<pre>Study: wards\x1b[31m &amp; beds"
    assert lines[1:3] == ["PrivateValue: 0.5, from 0.25 to 0.75 at 95%", "LSTD: values of states"]
