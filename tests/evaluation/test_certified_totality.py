"""No certified fit may fail, or succeed, because of what one person's rows say."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.control import LoggedQ
from privrl.data import OneHot, Tabular, Trajectories
from privrl.evaluation import (
    DPLSW,
    FQE,
    GPOPE,
    LSTD,
    WISLSTD,
    PrivateGTD,
    PrivateLSTD,
    PrivateValue,
)
from privrl.evaluation.steps import logged_probs
from privrl.privacy import Budget, InputError, Ledger, Unit
from privrl.privacy.session import PrivacySession

pytestmark = pytest.mark.usefixtures("compiled_quickly")

BUDGET = Budget(1.0, 1e-5)
POLICY = Tabular(np.array([[0.6, 0.4], [0.2, 0.8]]))
JUDGES: dict[str, Any] = {
    "value": PrivateValue(BUDGET, weight_cap=3.0, horizon=2, reward_range=(0.0, 1.0)),
    "lstd": PrivateLSTD(OneHot(2), (0.0, 1.0), BUDGET, weight_cap=3.0),
    "gtd": PrivateGTD(OneHot(2), (0.0, 1.0), BUDGET, weight_cap=3.0, iterations=3),
    "one pass": PrivateGTD(
        OneHot(2), (0.0, 1.0), BUDGET, weight_cap=3.0, iterations=3, batch_units=2
    ),
    "gpope": GPOPE(OneHot(2), BUDGET, 0.1, 0.1, weight_cap=3.0, iterations=20),
}


def people(states: Any, actions: Any, behavior: Any = 0.5, **given: Any) -> Trajectories:
    rows = len(states)
    return Trajectories.from_arrays(
        states,
        actions,
        np.full(rows, 0.5),
        lengths=[2] * (rows // 2),
        behavior_probs=np.broadcast_to(behavior, rows).astype(float),
        terminated=[True] * (rows // 2),
        **given,
    )


@pytest.mark.parametrize("name", JUDGES)
@pytest.mark.parametrize(
    ("state", "action", "behavior"),
    [(7, 0, 0.5), (0, 5, 0.5), (7, 5, 1e-310), (1, 1, 5e-324)],
)
def test_one_person_the_policy_knows_nothing_of(
    name: str, state: int, action: int, behavior: float
) -> None:
    states, actions, probs = np.zeros(12, int), np.zeros(12, int), np.full(12, 0.5)
    usual = JUDGES[name].fit(people(states, actions), POLICY, session=PrivacySession(seed=0))
    states[5], actions[5], probs[5] = state, action, behavior
    odd = JUDGES[name].fit(people(states, actions, probs), POLICY, session=PrivacySession(seed=0))
    assert odd.certificate == usual.certificate
    for result in (usual, odd):
        weights = [] if result.weights is None else result.weights
        assert np.all(np.isfinite(weights))


@pytest.mark.parametrize("name", JUDGES)
def test_states_beyond_the_table_are_not_taken_for_uniform(name: str, tmp_path: Path) -> None:
    """A policy that knows fewer states, or more, than the data says there are is refused."""
    states, nothing = np.array([0, 1] * 6), np.zeros(12, int)
    for count in (1, 3):
        with Ledger.create(tmp_path / f"{count}", "p", unit=Unit.TRAJECTORY) as ledger:
            with pytest.raises(InputError, match=rf"table has {count} states.*data has 2"):
                JUDGES[name].fit(
                    people(states, nothing, num_states=2),
                    Tabular.uniform(count, 2),
                    session=PrivacySession(ledger=ledger, run="r", seed=0),
                )
            assert not ledger.entries(), "nobody pays for what is refused"


def test_states_nobody_counted_have_no_weight() -> None:
    """Not that of the uniform policy: as if the person had a row that is not valid."""
    data = people(np.array([0, 0, 1, 5]), np.zeros(4, int))
    probs = logged_probs(data, POLICY)
    assert probs is not None
    assert np.isnan(probs[0]).tolist() == [False, False, False, True]


def test_a_table_of_features_has_all_states() -> None:
    data = people(np.array([0, 1, 2] * 4), np.zeros(12, int), num_states=3)
    for name in ("lstd", "gtd", "one pass", "gpope"):
        with pytest.raises(InputError, match="The table has 2 states, but the data has 3"):
            JUDGES[name].fit(data, session=PrivacySession(seed=0))
    for judge in (
        LSTD(OneHot(2), 0.9),
        WISLSTD(OneHot(2), 0.9),
        DPLSW(OneHot(2), (0.0, 1.0), BUDGET),
        LoggedQ(2, (0.0, 1.0), BUDGET, num_states=2),
    ):
        with pytest.raises(InputError, match="The table has 2 states, but the data has 3"):
            judge.fit(data)
    for policy in (Tabular.uniform(2, 2), Tabular.uniform(4, 2)):
        with pytest.raises(InputError, match="but the data has 3"):
            FQE(0.9).fit(data, policy)


@pytest.mark.parametrize("name", JUDGES)
def test_words_that_were_read_from_the_data_are_refused(name: str) -> None:
    """One person's new word would give everybody else's states other numbers."""
    words = np.array(["b", "c"] * 6)
    read = people(words, np.zeros(12, int))
    with pytest.raises(InputError, match="read from this very data"):
        JUDGES[name].fit(read, None, session=PrivacySession(seed=0))
    known = people(words, np.zeros(12, int), state_vocabulary=["b", "c"])
    JUDGES[name].fit(known, None, session=PrivacySession(seed=0))


def test_only_data_is_data() -> None:
    with pytest.raises(InputError, match="must be Trajectories"):
        JUDGES["lstd"].fit("stays.parquet")
    for ends in (3, (0, 1, 2)):
        given: Any = {"weight_cap": 3.0, "horizon": 2, "reward_range": ends}
        with pytest.raises(InputError, match="two numbers"):
            PrivateValue(BUDGET, **given)
