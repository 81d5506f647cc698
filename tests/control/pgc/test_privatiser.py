"""What leaves an agent: whatever it knows, a payload of the same size and nearly the same law."""

import itertools
import json
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, get_args

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats

from privrl.control.pgc.privatiser import Agent, Privatiser, normalise, split_epsilon
from privrl.control.pgc.spec import Mechanism
from privrl.core.errors import CertificateError, OverBudget
from privrl.privacy import InputError, PureDP, RandomizedResponse, Relation, Repeated, accounting
from privrl.privacy.certificate import IDEALISED_ARITHMETIC
from privrl.privacy.ledger import Ledger
from privrl.privacy.mechanisms.report_laplace import GridLaplaceReport
from privrl.privacy.mechanisms.sign import ProjectedSign, epsilon_share
from privrl.privacy.mechanisms.unit_vector import PrivUnit
from privrl.privacy.noise import reproducible, secure
from privrl.privacy.promise import Budget, NoiseOrigin, Unit
from tests.statistics import FALSE_ALARM

MECHANISMS: tuple[Mechanism, ...] = ("privunit", "sign", "laplace")
D = 3


class Unwilling:
    """A gradient that fails when it is looked at."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no")


# None of these is a vector of three finite numbers.
NOTHING: list[object] = [
    [0.0, 0.0, 0.0],
    [-0.0, 0.0, 0.0],
    [math.nan, 1.0, 1.0],
    [math.inf, 0.0, 0.0],
    [-math.inf, math.inf, 0.0],
    [],
    None,
    1.0,
    math.nan,
    [1.0, 2.0],
    [1.0, 2.0, 3.0, 4.0],
    [[1.0, 2.0, 3.0]],
    [[1.0], [2.0, 3.0]],
    "gradient",
    ["1", "2", "3"],
    [1j, 0.0, 0.0],
    [10**400, 0, 0],
    [None, 1.0, 1.0],
    object(),
    {"w": 1.0},
    Unwilling(),
    np.array([np.longdouble("1e4000"), 0.0, 0.0]),
    np.zeros((0, 3)),
]

nasty = st.one_of(
    st.floats(width=64, allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 5e-324, 1e-310, 1e-160, 1.0, 1e154, 1.7e308, -1.7e308]),
    st.floats(-2.0, 2.0),
)
gradients = st.one_of(st.lists(nasty, min_size=3, max_size=3), st.sampled_from(NOTHING))


def exactly(fraction: Fraction) -> Decimal:
    return Decimal(fraction.numerator) / Decimal(fraction.denominator)


# --- the budget -----------------------------------------------------------------------------------


@given(st.floats(1e-3, 50.0), st.integers(1, 1000), st.floats(0.0, 0.999))
@example(3.0, 7, 1.0 - 1e-14)
def test_shares_never_add_up_to_more_than_epsilon(eps: float, times: int, part: float) -> None:
    report, score = split_epsilon(eps, times, part)
    total = times * (Fraction(report) + Fraction(score))
    assert total <= Fraction(eps)
    assert float(total) == pytest.approx(eps, rel=1e-12)
    assert score == pytest.approx(part * eps / times, rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("times", [1, 3, 7])
def test_all_payloads_together_cost_epsilon(mechanism: Mechanism, times: int) -> None:
    plan = Privatiser(3.0, 5, mechanism, submissions=times, score_share=0.1)
    assert plan.event == PureDP(3.0, relation=Relation.LOCAL)
    events = [Repeated(one, times) for one in plan.report_events]
    found = accounting.epsilon(events, 0.0, Relation.LOCAL)
    assert found == pytest.approx(3.0, rel=1e-3)
    assert found <= 3.0 * (1.0 + 1e-12)
    assert plan.report_events[1] == RandomizedResponse(plan.score_epsilon)
    assert len(Privatiser(3.0, 5, mechanism, submissions=times).report_events) == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_plan_has_a_certificate_of_its_own(mechanism: Mechanism) -> None:
    plan = Privatiser(2.0, D, mechanism, submissions=2, score_share=0.5)
    found = plan.certificate()
    found.verify()
    assert found.noise is NoiseOrigin.NOT_DRAWN  # nobody has drawn anything by making a plan
    assert (found.epsilon, found.delta) == (2.0, 0.0)
    assert (found.unit, found.relation) == (Unit.AGENT, Relation.LOCAL)
    said = [one.statement for one in found.assumptions]
    assert "2 reports, each with an answer, and no more" in said[0]
    assert any("how long an agent played" in one for one in said)
    # Nothing of what the code cannot see is said to be enforced.
    assert all("not enforced" in one.enforced for one in found.assumptions[1:5])
    assert (IDEALISED_ARITHMETIC in found.assumptions) == (mechanism == "privunit")


def test_a_certificate_names_the_source_that_an_agent_draws_from() -> None:
    plan = Privatiser(2.0, D)
    for source, origin in (
        (None, NoiseOrigin.SECURE),
        (secure(), NoiseOrigin.SECURE),
        (reproducible(1), NoiseOrigin.REPRODUCIBLE),
    ):
        found = Agent(plan, source).certificate()
        assert found.noise is origin
        if origin is NoiseOrigin.SECURE:
            found.verify(strict=True)
        else:
            with pytest.raises(CertificateError, match="only secret noise protects anyone"):
                found.verify(strict=True)
    # The plan itself knows of no noise, unless somebody vouches for it.
    with pytest.raises(CertificateError, match="not-drawn"):
        plan.certificate().verify(strict=True)
    assert plan.certificate(noise=NoiseOrigin.REPRODUCIBLE).noise is NoiseOrigin.REPRODUCIBLE


def test_what_is_no_plan_and_no_source_is_refused_before_anything_is_spent() -> None:
    with pytest.raises(InputError, match="privatiser must be a Privatiser"):
        Agent("x")  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InputError, match="source must be a source"):
        Agent(Privatiser(1.0, D), 5)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InputError, match="Each report would have an epsilon of 1e-06"):
        Privatiser(1.0, D, submissions=10**6)


def test_an_agent_sends_no_more_than_was_agreed() -> None:
    agent = Agent(Privatiser(2.0, D, submissions=2), secure())
    assert agent.submissions_left == 2
    sent = [agent.submit([1.0, 2.0, 3.0]), agent.submit([math.nan] * 3)]
    assert sent[0] != sent[1]
    assert agent.submissions_left == 0
    for gradient in NOTHING:
        with pytest.raises(InputError, match="made its 2 submissions"):
            agent.submit(gradient)
    assert Agent(agent.privatiser, spent=1).submissions_left == 1
    assert Agent(agent.privatiser, spent=5).submissions_left == 0
    for wrong in (-1, 0.0, False, "0"):
        with pytest.raises(InputError, match="spent"):
            Agent(agent.privatiser, spent=wrong)  # type: ignore[arg-type]  # wrong on purpose
    for numpys in (np.int64(0), np.int64(1)):
        assert type(Agent(agent.privatiser, spent=numpys).spent) is int  # type: ignore[arg-type]


def test_an_agent_pays_before_it_draws(tmp_path: Path) -> None:
    plan = Privatiser(2.0, D, "sign", submissions=2, score_share=0.25)
    about = {"unit": Unit.AGENT, "relation": Relation.LOCAL, "limit": Budget(2.0)}
    with Ledger.create(tmp_path / "ledger", "me", **about) as ledger:  # type: ignore[arg-type]
        agent = Agent(plan, pay=partial(ledger.spend, run="me"))
        for _ in range(2):
            agent.submit([1.0, 2.0, 3.0], True)
        assert [entry.events for entry in ledger.entries()] == [plan.report_events] * 2
        # Started once more, it has forgotten; its ledger has not.
        forgetful = Agent(plan, pay=partial(ledger.spend, run="again"))
        with pytest.raises(OverBudget, match="limit"):
            forgetful.submit([1.0, 2.0, 3.0], True)
    source = reproducible(1)
    before = source.generator.bit_generator.state

    def refuse(events: object) -> None:
        raise InputError("No money is left.")

    agent = Agent(plan, source, pay=refuse)
    with pytest.raises(InputError, match="No money"):
        agent.submit([1.0, 2.0, 3.0])
    assert source.generator.bit_generator.state == before
    assert agent.spent == 0

    class Failing(Privatiser):
        def payloads(self, *_: Any) -> list[bytes]:
            raise MemoryError

    # What was paid for is spent, even if nothing came of it.
    agent = Agent(Failing(2.0, D))
    with pytest.raises(MemoryError):
        agent.submit([1.0, 2.0, 3.0])
    assert agent.submissions_left == 0


def test_threads_that_share_an_agent_send_no_more_than_was_agreed() -> None:
    threads = 8
    for submissions in (1, 3):
        paid: list[object] = []
        # All at the door at once, and each takes its time to pay.
        ready = threading.Barrier(threads)

        def pay(events: object, paid: list[object] = paid) -> None:
            time.sleep(0.02)
            paid.append(events)

        agent = Agent(Privatiser(2.0, D, submissions=submissions), pay=pay)

        def send(agent: Agent = agent, ready: threading.Barrier = ready) -> bytes | None:
            ready.wait()
            try:
                return agent.submit([1.0, 2.0, 3.0])
            except InputError:
                return None

        with ThreadPoolExecutor(threads) as pool:
            answers = [one.result() for one in [pool.submit(send) for _ in range(threads)]]
        sent = [one for one in answers if one is not None]
        assert len(set(sent)) == len(sent) == len(paid) == agent.spent == submissions


def test_an_agent_that_could_not_pay_may_try_again() -> None:
    def pay(events: object) -> None:
        assert agent.submissions_left == 1  # may be looked at meanwhile
        if opened.pop():
            raise InputError("No money is left.")

    opened = [False, True]
    agent = Agent(Privatiser(2.0, D), pay=pay)
    with pytest.raises(InputError, match="No money"):
        agent.submit([1.0, 2.0, 3.0])
    assert len(agent.submit([1.0, 2.0, 3.0])) == agent.privatiser.size


def test_what_is_not_a_plan_is_refused() -> None:
    for wrong, message in (
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"dimension": 0}, "dimension"),
        ({"mechanism": "gaussian"}, "mechanism must be 'privunit'"),
        ({"norm": "l2"}, "norm must be 'unit' or 'clip'"),
        ({"submissions": 0}, "submissions"),
        ({"radius": math.nan}, "radius"),
        ({"score_share": 1.0}, "score_share"),
        ({"debias": "no"}, "debias must be True or False"),
        ({"debias": None}, "debias must be True or False"),
        ({"score_share": 1e-15, "epsilon": 0.01}, "too small"),
        ({"mechanism": "laplace", "radius": 1e99}, "10\\^100"),
    ):
        with pytest.raises(InputError, match=message):
            Privatiser(**{"epsilon": 1.0, "dimension": D, **wrong})  # type: ignore[arg-type]


def test_plans_are_json() -> None:
    plan = Privatiser(2.0, D, "sign", clip=0.1, debias=False, score_share=0.25)
    assert Privatiser(**json.loads(json.dumps(plan.to_dict()))) == plan
    numpys: Any = {
        "epsilon": np.float64(2.0),
        "dimension": np.int64(D),
        "mechanism": "sign",
        "submissions": np.uint8(1),
        "radius": np.float32(1.0),
        "clip": np.float64(0.1),
        "debias": np.False_,
        "score_share": np.float32(0.25),
    }
    assert json.dumps(Privatiser(**numpys).to_dict()) == json.dumps(plan.to_dict())


# --- totality -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("norm", ["unit", "clip"])
def test_what_is_no_gradient_is_told_like_zeros(mechanism: Mechanism, norm: Any) -> None:
    """The same draws make the same bytes: the laws are equal, and so are the lengths."""
    plan = Privatiser(2.0, D, mechanism, norm=norm, score_share=0.25)
    wanted = Agent(plan, reproducible(3)).submit(np.zeros(D), False)
    assert len(wanted) == plan.size
    for gradient in NOTHING:
        for told in (False, None, 0, 1, math.nan, "yes", [True], np.ones(3)):
            assert Agent(plan, reproducible(3)).submit(gradient, told) == wanted
    np.testing.assert_array_equal(plan.rows(NOTHING), np.zeros((len(NOTHING), D)))
    # Of a gradient some draws make other bytes.
    pairs = [plan.payloads([np.zeros(D)], reproducible(seed)) for seed in range(20)]
    others = [plan.payloads([[1.0, 2.0, 3.0]], reproducible(seed)) for seed in range(20)]
    assert pairs != others
    for yes in (True, np.True_):
        said = Agent(plan, reproducible(3)).submit(np.zeros(D), yes)
        assert said == wanted[:-1] + bytes([1 - wanted[-1]])
    assert plan.payloads([], secure()) == []


@settings(max_examples=100)
@given(gradients, st.sampled_from(MECHANISMS), st.sampled_from(["unit", "clip"]))
def test_every_gradient_gets_a_payload_that_is_read(
    gradient: object, mechanism: Mechanism, norm: Any
) -> None:
    plan = Privatiser(2.0, D, mechanism, norm=norm)
    payload = Agent(plan).submit(gradient)
    vector, told = plan.read(payload)
    assert len(payload) == plan.size
    assert told is None
    assert np.all(np.isfinite(vector))
    assert np.linalg.norm(vector) <= plan.max_norm


@pytest.mark.parametrize("mechanism", get_args(Mechanism))
def test_payloads_are_drawn_afresh(mechanism: Any) -> None:
    """The same gradients twice, and the payloads have nothing in common."""
    plan = Privatiser(2.0, 3, mechanism, submissions=2)
    gradients, source = np.ones((50, 3)), secure()
    first, second = (plan.payloads(gradients, source) for _ in range(2))
    assert len({*first, *second}) == 100


@given(st.lists(st.lists(nasty, min_size=3, max_size=3), min_size=1, max_size=4))
def test_rows_of_one_agent_do_not_depend_on_others(table: list[list[float]]) -> None:
    for norm in ("unit", "clip"):
        plan = Privatiser(1.0, D, norm=norm, radius=0.5)
        together = plan.rows(table)
        alone = [plan.rows([one])[0] for one in table]
        np.testing.assert_array_equal(together, np.array(alone))
        as_array = np.array(table)
        np.testing.assert_array_equal(plan.rows(as_array), together)
        np.testing.assert_array_equal(plan.rows(as_array.astype(">f8")), together)


@given(st.lists(nasty, min_size=3, max_size=3))
@example([5e-324, 0.0, 0.0])
@example([1.7e308, 1.7e308, -1.7e308])
def test_unit_rows_have_norm_one_or_are_zeros(row: list[float]) -> None:
    plan = Privatiser(1.0, D, radius=0.5)
    found = plan.rows([row])[0]
    if all(map(math.isfinite, row)) and any(row):
        assert np.linalg.norm(found) == pytest.approx(0.5, rel=1e-15)
        assert np.all(
            np.sign(found[np.abs(found) > 0]) == np.sign(np.array(row))[np.abs(found) > 0]
        )
    else:
        np.testing.assert_array_equal(found, np.zeros(D))


def test_unit_is_the_same_in_compiled_code() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 4)) * np.array(
        [[1e-30], [1.0], [0.0], [3], [9]]
    )
    np.testing.assert_allclose(normalise(jnp, jnp.asarray(rows)), normalise(np, rows), rtol=1e-5)
    np.testing.assert_allclose(
        normalise(np, rows)[1], rows[1] / np.linalg.norm(rows[1]), rtol=1e-15
    )


@pytest.mark.parametrize("norm", ["unit", "clip"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_gradient_gets_a_payload_where_numpy_was_told_to_raise(
    mechanism: Mechanism, norm: Any
) -> None:
    plan = Privatiser(2.0, D, mechanism, norm=norm)
    with np.errstate(all="raise"):
        for row in ([1.0, 1e-200, 0.0], [1e308, 1e308, 1e-308], [5e-324, 0.0, 1.0], [math.nan] * 3):
            agent = Agent(plan, reproducible(1))
            assert len(agent.submit(row)) == plan.size
            assert len(plan.rows([row])) == 1


def test_reached_must_be_told_for_each() -> None:
    plan = Privatiser(1.0, D, score_share=0.5)
    with pytest.raises(InputError, match="2 entries"):
        plan.payloads(np.zeros((2, D)), secure(), [True])
    # Not asked for, not told.
    quiet = Privatiser(1.0, D)
    assert len(quiet.payloads(np.zeros((2, D)), secure(), [True])[0]) == quiet.size == 8 * D


# --- no two inputs are further apart than promised ------------------------------------------------


@settings(max_examples=100)
@given(gradients, gradients, st.floats(0.01, 12.0), st.integers(1, 3), st.floats(0.001, 10.0))
def test_laplace_rows_are_within_epsilon_of_each_other(
    one: object, two: object, eps: float, times: int, radius: float
) -> None:
    """Discrete Laplace noise of width b: the ratio is exp(distance / b) at the worst, exactly."""
    for norm in ("unit", "clip"):
        plan = Privatiser(eps, D, "laplace", times, norm=norm, radius=radius)
        assert isinstance(plan.plan, GridLaplaceReport)
        mechanism = plan.plan.mechanism
        integers = mechanism.to_grid(plan.rows([one, two]))
        apart = int(np.abs(integers[0] - integers[1]).sum())
        assert times * Fraction(apart, mechanism.width) <= Fraction(eps)


@settings(max_examples=60)
@given(
    gradients,
    gradients,
    st.binary(min_size=16, max_size=16),
    st.floats(0.01, 12.0),
    st.integers(1, 3),
)
def test_sign_reports_are_within_epsilon_of_each_other(
    one: object, two: object, seed: bytes, eps: float, times: int
) -> None:
    """All bits and the score enumerated, with exact probabilities to forty digits."""
    plan = Privatiser(eps, D, "sign", times, score_share=0.25)
    assert isinstance(plan.plan, ProjectedSign)
    with localcontext(prec=40):
        truth = 1 / (1 + (-exactly(plan.plan.epsilon_per_part)).exp())
        coin = 1 / (1 + (-exactly(epsilon_share(plan.score_epsilon, 1))).exp())
        positions = plan.plan.positions(plan.rows([one, two]), [seed, seed])
        worst = Decimal(0)
        for bits in itertools.product((False, True), repeat=plan.plan.bits):
            likelihoods = []
            for row in positions:
                likelihood = Decimal(1)
                for t, bit in zip(row, bits, strict=True):
                    s = exactly(Fraction(int(np.rint((1.0 + t) * 2.0**52)), 2**53))
                    plus = s * truth + (1 - s) * (1 - truth)
                    likelihood *= plus if bit else 1 - plus
                likelihoods.append(likelihood)
            worst = max(worst, likelihoods[0] / likelihoods[1], likelihoods[1] / likelihoods[0])
        # The score of one is yes, of the other no: at the worst both show at once.
        all_of_them = (worst * coin / (1 - coin)) ** times
        assert all_of_them <= exactly(Fraction(eps)).exp() * (1 + Decimal("1e-36"))


@settings(max_examples=60)
@given(gradients, st.floats(0.01, 12.0), st.integers(1, 3))
def test_privunit_looks_at_a_direction_and_no_more(one: object, eps: float, times: int) -> None:
    """Whatever the row, its report has the density p/q on a cap and (1-p)/(1-q) off it."""
    for norm in ("unit", "clip"):
        plan = Privatiser(eps, D, "privunit", times, norm=norm)
        assert isinstance(plan.plan, PrivUnit)
        row = plan.rows([one])[0]
        assert np.all(np.isfinite(row))
        p, q = float(plan.plan.inside), plan.plan.covered
        assert times * math.log(p * (1 - q) / ((1 - p) * q)) <= eps
        assert plan.plan.padded == (norm == "clip")


def test_privunit_reports_about_odd_gradients_have_the_law_on_paper() -> None:
    """In the cap of the row with probability p, of 1e308 as of 1; centred at zero for zeros."""
    plan = Privatiser(4.0, D, submissions=2)
    assert isinstance(plan.plan, PrivUnit)
    n, p, q = 15_000, float(plan.plan.inside), plan.plan.covered
    direction = np.array([1.0, 1.0, 0.0]) / math.sqrt(2.0)

    def reports(row: list[float]) -> Any:
        sent = b"".join(plan.payloads([row] * n, secure()))
        return np.frombuffer(sent, "<f8").reshape(n, D) / plan.plan.length  # type: ignore[union-attr]

    for row in ([1.0, 1.0, 0.0], [1.7e308, 1.7e308, 0.0], [5e-324, 5e-324, 0.0]):
        hits = int(np.sum(reports(row) @ direction >= plan.plan.cap))
        assert stats.binomtest(hits, n, p).pvalue > FALSE_ALARM
        for wrong in (1.8, 2.2):  # ten percent off
            odds = math.exp(wrong) * q / (1 - q)
            assert stats.binomtest(hits, n, odds / (1 + odds)).pvalue < FALSE_ALARM
    for row in ([0.0, 0.0, 0.0], [math.nan, 1.0, 0.0]):
        assert np.all(np.abs(reports(row).mean(axis=0)) < 5.5 / math.sqrt(n))


def test_scores_are_exact_coins_and_ten_percent_off_is_seen() -> None:
    plan = Privatiser(4.0, 1, submissions=2, score_share=0.75)
    assert plan.score_epsilon == 1.5
    n = 24_000
    for reached in (True, False):
        sent = plan.payloads(np.zeros((n, 1)), secure(), [reached] * n)
        told = [one[-1] == 1 for one in sent]
        assert told[:100] == [plan.read(one)[1] for one in sent[:100]]
        true = sum(one is reached for one in told)
        surprise = [
            stats.binomtest(true, n, 1.0 / (1.0 + math.exp(-x))).pvalue for x in (1.5, 1.35, 1.65)
        ]
        assert surprise[0] > FALSE_ALARM > max(surprise[1:])
        estimate, error = plan.success_rate(told)
        assert abs(estimate - reached) < 5.5 * error
        assert error == pytest.approx(0.5 / math.tanh(0.75) / math.sqrt(n))


def test_the_share_that_reached_the_target_is_unbiased() -> None:
    plan = Privatiser(4.0, 1, "sign", score_share=0.5)
    edge = math.tanh(1.0)
    for true in (0.0, 0.3, 1.0):
        told = 0.5 + (true - 0.5) * edge  # how many say yes, on average
        found, _ = plan.success_rate([True] * round(1e5 * told) + [False] * round(1e5 - 1e5 * told))
        assert found == pytest.approx(true, abs=1e-5)
    with pytest.raises(InputError, match="no scores"):
        plan.success_rate([])
    with pytest.raises(InputError, match="no scores"):
        Privatiser(4.0, 1, "sign").success_rate([True])


# --- a poisoner -----------------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.data(), st.sampled_from(MECHANISMS), st.booleans(), st.sampled_from(["unit", "clip"]))
def test_no_bytes_weigh_more_than_a_report_can(
    data: st.DataObject, mechanism: Mechanism, scores: bool, norm: Any
) -> None:
    plan = Privatiser(4.0, D, mechanism, norm=norm, score_share=0.25 if scores else 0.0)
    payload = data.draw(
        st.one_of(
            st.binary(max_size=40),
            st.binary(min_size=plan.size, max_size=plan.size),
            st.lists(nasty, min_size=D, max_size=D).map(lambda x: np.array(x, "<f8").tobytes()),
            st.lists(st.integers(-(2**63), 2**63 - 1), min_size=D, max_size=D).map(
                lambda x: np.array(x, "<i8").tobytes()
            ),
            st.just(b"\xff" * 16 + b"\x01"),
        )
    )
    if scores:
        payload += data.draw(st.sampled_from([b"", b"\x00", b"\x01", b"\x02"]))
    try:
        vector, told = plan.read(payload)
    except InputError:
        return
    assert len(payload) == plan.size
    assert (told is not None) == scores
    assert np.linalg.norm(vector) <= plan.max_norm * (1.0 + 1e-12)


def test_the_heaviest_bytes_weigh_what_a_report_can() -> None:
    privunit = Privatiser(4.0, D)
    assert isinstance(privunit.plan, PrivUnit)
    along = privunit.plan.length * np.eye(D)[0]
    assert privunit.read(along.tobytes())[0] @ along == pytest.approx(privunit.plan.length**2)
    for factor in (1.0 - 1e-6, 1.0 + 1e-6, -1e300, 0.0, math.nan, 1e309):
        with pytest.raises(InputError, match=r"the length|finite"):
            privunit.read(np.array([factor * along[0], 0.0, 0.0]).tobytes())
    laplace = Privatiser(4.0, D, "laplace")
    assert isinstance(laplace.plan, GridLaplaceReport)
    step = laplace.plan.mechanism.step
    most = math.floor(laplace.max_norm / math.sqrt(D) / step)
    vector, _ = laplace.read(np.full(D, most, "<i8").tobytes())
    assert laplace.max_norm * (1.0 - 1e-3) < np.linalg.norm(vector) <= laplace.max_norm
    for wrong in (most + 1, -most - 1, 2**62, -(2**63)):
        with pytest.raises(InputError, match=r"no number beyond|within 2"):
            laplace.read(np.array([0, wrong, 0], "<i8").tobytes())
    scores = Privatiser(4.0, D, score_share=0.5)
    report = scores.payloads([along], secure())[0][:-1]
    assert [scores.read(report + bytes([last]))[1] for last in (0, 1)] == [False, True]
    with pytest.raises(InputError, match="byte 0 or 1"):
        scores.read(report + b"\x02")
    sign = Privatiser(10.0, D, "sign")
    assert isinstance(sign.plan, ProjectedSign)
    norms = [
        np.linalg.norm(sign.read(i.to_bytes(16, "little") + bytes([bits]))[0])
        for i in range(2000)
        for bits in range(2**sign.plan.bits)
    ]
    assert 0.5 * sign.max_norm < max(norms) <= sign.max_norm


def test_honest_laplace_reports_are_not_refused() -> None:
    plan = Privatiser(1.0, D, "laplace")
    assert isinstance(plan.plan, GridLaplaceReport)
    mechanism = plan.plan.mechanism
    limit = plan.max_norm / math.sqrt(D)
    beyond = 2.0 * math.exp(-(limit - plan.radius) / (mechanism.width * mechanism.step))
    assert D * beyond == pytest.approx(1e-12)
    for payload in plan.payloads(np.tile([1.0, 0.0, 0.0], (2000, 1)), secure()):
        plan.read(payload)
