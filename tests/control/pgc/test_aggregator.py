"""The aggregator's core: pure, total, the same when it is replayed, and the same when compiled."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from privrl import nets
from privrl.control.pgc.aggregator import (
    AcceptRecord,
    Aggregator,
    AggregatorState,
    BeginRecord,
    IssueRecord,
    Outcome,
    Record,
    Ticket,
    apply,
    from_line,
    moments_shape,
    staleness_weight,
    to_line,
)
from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.spec import Mechanism, Optimiser
from privrl.privacy import InputError
from privrl.privacy.noise import reproducible, secure

D = 3
PLAN = Privatiser(2.0, D)
SIGN = Privatiser(2.0, D, "sign", score_share=0.25)
LAPLACE = Privatiser(2.0, D, "laplace")


def payloads(plan: Privatiser, count: int, seed: int = 0) -> list[bytes]:
    rows = np.random.default_rng(seed).normal(size=(count, D))
    return plan.payloads(rows, reproducible(seed), [True] * count)


def vector(payload: bytes, plan: Privatiser = PLAN) -> NDArray[Any]:
    return plan.read(payload)[0]


def contents(state: AggregatorState) -> dict[str, Any]:
    """Everything in a state, arrays as their bits."""
    arrays = {name: getattr(state, name) for name in ("theta", "moments", "total")}
    rest = {name: value for name, value in vars(state).items() if name not in arrays}
    return {**rest, **{name: (a.shape, a.dtype, a.tobytes()) for name, a in arrays.items()}}


# --- updates --------------------------------------------------------------------------------------


def test_the_model_moves_against_the_mean_when_the_buffer_is_full() -> None:
    aggregator = Aggregator(PLAN, rate=0.1, buffer=3)
    state = aggregator.begin([1.0, 2.0, 3.0])
    sent = payloads(PLAN, 7)
    models: list[AggregatorState] = []
    for payload in sent:
        state, ticket, theta = aggregator.issue(state)
        np.testing.assert_array_equal(theta, state.theta)
        assert ticket == Ticket(len(models), state.version)
        state, verdict = aggregator.submit(state, ticket, payload)
        assert verdict.is_accepted
        models.append(state)
    assert [s.version for s in models] == [0, 0, 1, 1, 1, 2, 2]
    assert [s.held for s in models] == [1, 2, 0, 1, 2, 0, 1]
    assert [s.accepted for s in models] == [1, 2, 3, 4, 5, 6, 7]
    first = np.array([1.0, 2.0, 3.0])
    np.testing.assert_array_equal(models[1].theta, first)
    mean = np.mean([vector(one) for one in sent[:3]], axis=0)
    np.testing.assert_allclose(models[2].theta, first - 0.1 * mean, rtol=1e-14)
    np.testing.assert_array_equal(models[2].total, np.zeros(D))
    np.testing.assert_allclose(models[3].total, vector(sent[3]), rtol=1e-15)
    np.testing.assert_array_equal(models[4].theta, models[2].theta)


@pytest.mark.parametrize("staleness", ["root", "none"])
def test_stale_reports_weigh_less(staleness: Any) -> None:
    aggregator = Aggregator(PLAN, rate=1.0, buffer=1, staleness=staleness)
    state = aggregator.begin(np.zeros(D))
    tickets = []
    for _ in range(4):
        state, ticket, _ = aggregator.issue(state)
        tickets.append(ticket)
    assert [t.version for t in tickets] == [0, 0, 0, 0]
    for age, (ticket, payload) in enumerate(zip(tickets, payloads(PLAN, 4), strict=True)):
        before = state.theta
        state, _ = aggregator.submit(state, ticket, payload)
        counted = 1.0 / math.sqrt(1.0 + age) if staleness == "root" else 1.0
        np.testing.assert_allclose(before - state.theta, counted * vector(payload), rtol=1e-12)


def test_weights() -> None:
    ages = np.arange(5.0)
    np.testing.assert_allclose(
        staleness_weight(ages, "root"), 1.0 / np.sqrt(1.0 + ages), rtol=1e-15
    )
    np.testing.assert_array_equal(staleness_weight(ages, "none"), np.ones(5))
    assert staleness_weight(0, "root") == staleness_weight(7, "none") == 1.0
    with jax.enable_x64(True):
        compiled = jax.jit(lambda x: staleness_weight(x, "root"))(jnp.asarray(ages))
    np.testing.assert_allclose(compiled, staleness_weight(ages, "root"), rtol=1e-14)


def test_a_weighted_sum_is_divided_by_the_number_of_reports() -> None:
    """Not by the sum of the weights: a buffer of stale reports makes a short step."""
    aggregator = Aggregator(PLAN, rate=1.0, buffer=2)
    state = aggregator.begin(np.zeros(D))
    tickets = []
    for _ in range(4):
        state, ticket, _ = aggregator.issue(state)
        tickets.append(ticket)
    sent = payloads(PLAN, 4)
    models = []
    for ticket, payload in zip(tickets, sent, strict=True):
        state, _ = aggregator.submit(state, ticket, payload)
        models.append(state.theta)
    late = (vector(sent[2]) + vector(sent[3])) / 2.0 / math.sqrt(2.0)
    np.testing.assert_allclose(models[1] - models[3], late, rtol=1e-12)


def test_adam_is_that_of_the_paper() -> None:
    """Kingma and Ba (2015), Algorithm 1, written out; compiled it is the same."""
    rng = np.random.default_rng(1)
    moments, m, v = np.zeros((2, D)), np.zeros(D), np.zeros(D)
    theta = np.ones(D)
    for done in range(5):
        total = rng.normal(size=D) * 10.0 ** rng.integers(-3, 3)
        moved, moments = apply(
            theta, moments, total, float(done), rate=0.2, buffer=7, optimiser="adam"
        )
        g, t = total / 7.0, done + 1
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        step = (m / (1.0 - 0.9**t)) / (np.sqrt(v / (1.0 - 0.999**t)) + 1e-8)
        np.testing.assert_allclose(theta - moved, 0.2 * step, rtol=1e-9)
        np.testing.assert_allclose(moments, [m, v], rtol=1e-12)
        theta = moved
    with jax.enable_x64(True):
        traced = jax.jit(nets.adam)(jnp.asarray(total / 7), jnp.asarray(moments), 3.0)
    for compiled, ours in zip(traced, nets.adam(total / 7, moments, 3.0), strict=True):
        np.testing.assert_allclose(compiled, ours, rtol=1e-12)


def test_rmsprop_is_that_of_tensorflow_1() -> None:
    """The mean square begins with ones, and the small number is within the root."""
    rng = np.random.default_rng(1)
    moments, square, theta = np.zeros((2, D)), np.ones(D), np.ones(D)
    for done in range(5):
        total = rng.normal(size=D) * 10.0 ** rng.integers(-3, 3)
        moved, moments = apply(
            theta, moments, total, float(done), rate=0.2, buffer=7, optimiser="rmsprop"
        )
        g = total / 7.0
        square = 0.99 * square + 0.01 * g * g
        np.testing.assert_allclose(theta - moved, 0.2 * g / np.sqrt(square + 1e-10), rtol=1e-9)
        theta = moved


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "rmsprop"])
@pytest.mark.parametrize("plan", [PLAN, LAPLACE], ids=["privunit", "laplace"])
def test_a_compiled_run_equals_the_core(optimiser: Optimiser, plan: Privatiser) -> None:
    """The same reports, of which some are stale, through `apply` inside a compiled loop."""
    rate, buffer = 0.3, 4
    aggregator = Aggregator(plan, rate=rate, buffer=buffer, optimiser=optimiser)
    state = aggregator.begin([0.5, -0.5, 0.0])
    sent = payloads(plan, 60)
    flight: list[Ticket] = []
    versions = []
    for number, payload in enumerate(sent):
        while len(flight) < 9:
            state, ticket, _ = aggregator.issue(state)
            flight.append(ticket)
        ticket = flight.pop(number % 7)
        versions.append(ticket.version)
        state, verdict = aggregator.submit(state, ticket, payload)
        assert verdict.is_accepted
    assert state.version == 15
    assert len({s - v for s, v in zip(np.arange(60) // buffer, versions, strict=True)}) > 2

    @jax.jit
    def run(vectors: Any, issued: Any, theta: Any) -> Any:
        def one(carry: Any, report: Any) -> Any:
            theta, moments, total, held, done = carry
            g, version = report
            total = total + staleness_weight(done - version, "root") * g
            held = held + 1
            full = held == buffer
            moved, moments_after = apply(
                theta, moments, total, done, rate=rate, buffer=buffer, optimiser=optimiser
            )
            return (
                jnp.where(full, moved, theta),
                jnp.where(full, moments_after, moments),
                jnp.where(full, 0.0, total),
                jnp.where(full, 0, held),
                done + full,
            ), None

        moments = jnp.zeros(moments_shape(D, optimiser))
        begun = (theta, moments, jnp.zeros(D), jnp.asarray(0), jnp.asarray(0.0))
        return jax.lax.scan(one, begun, (vectors, issued))[0]

    with jax.enable_x64(True):
        vectors = jnp.asarray(np.array([vector(one, plan) for one in sent]))
        found = run(vectors, jnp.asarray(versions, float), jnp.asarray([0.5, -0.5, 0.0]))
    np.testing.assert_allclose(found[0], state.theta, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(found[1], state.moments, rtol=1e-12, atol=1e-14)
    assert int(found[4]) == state.version


# --- verdicts -------------------------------------------------------------------------------------


def test_each_kind_of_bad_report_has_its_verdict_and_changes_nothing() -> None:
    aggregator = Aggregator(PLAN, rate=0.1, buffer=1, max_age=1)
    state = aggregator.begin(np.zeros(D))
    good = payloads(PLAN, 6)
    tickets = []
    for _ in range(5):
        state, ticket, _ = aggregator.issue(state)
        tickets.append(ticket)

    def refused(ticket: Any, payload: Any, outcome: Outcome, words: str) -> None:
        after, verdict = aggregator.submit(state, ticket, payload)
        assert after is state
        assert verdict.outcome is outcome
        assert not verdict.is_accepted
        assert words in verdict.sentence
        assert verdict.sentence.endswith(".")

    for wrong in (
        *(Ticket(5, 0), Ticket(-1, 0), Ticket(0, 1), Ticket(10**30, 0), Ticket(0, -1)),
        *(Ticket("0", 0), Ticket(0, None), Ticket(True, 0), Ticket(0.0, 0)),  # type: ignore[arg-type]
        *((0, 0), None, "0"),
    ):
        refused(wrong, good[0], Outcome.UNKNOWN_TICKET, "no such ticket")
    for payload in (b"", good[0][:-1], good[0] + b"\0", bytes(24), "text", None, 3):
        refused(tickets[0], payload, Outcome.MALFORMED, "of this plan has")
    nan = np.array([math.nan, 0.0, 0.0]).tobytes()
    refused(tickets[0], nan, Outcome.MALFORMED, "finite")
    # Nothing was used up: the same ticket is good for the right bytes.
    state, verdict = aggregator.submit(state, tickets[0], good[0])
    assert verdict.outcome is Outcome.ACCEPTED
    refused(tickets[0], good[0], Outcome.DUPLICATE, "accepted before")
    refused(tickets[0], good[1], Outcome.DUPLICATE, "accepted before")
    refused(Ticket(0, 99), b"", Outcome.DUPLICATE, "accepted before")
    state, verdict = aggregator.submit(state, tickets[1], good[1])
    assert verdict.is_accepted  # one update old
    refused(tickets[2], good[2], Outcome.TOO_STALE, "moved 2 times")
    refused(tickets[2], b"", Outcome.TOO_STALE, "moved 2 times")
    assert state.accepted == 2


def test_a_limit_of_no_age_takes_fresh_reports_only() -> None:
    aggregator = Aggregator(PLAN, rate=0.1, buffer=2, max_age=0)
    state = aggregator.begin(np.zeros(D))
    outcomes, tickets = [], []
    for _ in range(3):
        state, ticket, _ = aggregator.issue(state)
        tickets.append(ticket)
    for ticket, payload in zip(tickets, payloads(PLAN, 3), strict=True):
        state, verdict = aggregator.submit(state, ticket, payload)
        outcomes.append(verdict.outcome)
    assert outcomes == [Outcome.ACCEPTED, Outcome.ACCEPTED, Outcome.TOO_STALE]


@settings(max_examples=200)
@given(
    st.sampled_from([PLAN, SIGN, LAPLACE]),
    st.one_of(
        st.binary(max_size=40),
        st.binary(min_size=24, max_size=24),
        st.binary(min_size=18, max_size=18),
        st.lists(st.floats(width=64), min_size=3, max_size=3).map(
            lambda x: np.array(x, "<f8").tobytes()
        ),
        st.lists(st.integers(-(2**60), 2**60), min_size=3, max_size=3).map(
            lambda x: np.array(x, "<i8").tobytes()
        ),
    ),
)
def test_no_bytes_raise_or_move_the_sum_further_than_a_report_can(
    plan: Privatiser, payload: bytes
) -> None:
    aggregator = Aggregator(plan, rate=0.1, buffer=2, optimiser="adam")
    state, ticket, _ = aggregator.issue(aggregator.begin(np.zeros(D)))
    after, verdict = aggregator.submit(state, ticket, payload)
    assert verdict.outcome in (Outcome.ACCEPTED, Outcome.MALFORMED)
    assert (after is state) == (not verdict.is_accepted)
    assert np.linalg.norm(after.total) <= plan.max_norm * (1.0 + 1e-12)


def test_a_poisoner_moves_a_model_no_further_than_an_unlucky_agent() -> None:
    """Of a hundred reports, all but one honest, the worst that passes counts like any other."""
    aggregator = Aggregator(LAPLACE, rate=1.0, buffer=100)
    state = aggregator.begin(np.zeros(D))
    sent = LAPLACE.payloads(np.zeros((99, D)), secure())
    step = LAPLACE.plan.mechanism.step  # type: ignore[union-attr]
    most = math.floor(LAPLACE.max_norm / math.sqrt(D) / step)
    for payload in [*sent, np.full(D, most, "<i8").tobytes()]:
        honest = state.total
        state, ticket, _ = aggregator.issue(state)
        state, verdict = aggregator.submit(state, ticket, payload)
        assert verdict.is_accepted
    moved = -state.theta - honest / 100.0
    assert (
        0.99 * LAPLACE.max_norm < 100.0 * np.linalg.norm(moved) <= LAPLACE.max_norm * (1.0 + 1e-9)
    )


# --- values ---------------------------------------------------------------------------------------


def test_states_are_values() -> None:
    aggregator = Aggregator(PLAN, rate=0.1, buffer=1, optimiser="adam")
    given_theta = np.zeros(D)
    state = aggregator.begin(given_theta)
    given_theta[0] = 7.0
    assert state.theta[0] == 0.0
    before = contents(state)
    issued, ticket, theta = aggregator.issue(state)
    assert contents(state) == before
    between = contents(issued)
    first, _ = aggregator.submit(issued, ticket, payloads(PLAN, 1)[0])
    again, _ = aggregator.submit(issued, ticket, payloads(PLAN, 1)[0])
    assert contents(issued) == between
    assert contents(first) == contents(again) != between
    for array in (theta, first.theta, first.moments, first.total):
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1.0


def test_many_tickets() -> None:
    """More than a page of them, used in any order."""
    aggregator = Aggregator(SIGN, rate=0.1, buffer=100)
    state = aggregator.begin(np.zeros(D))
    tickets = []
    for _ in range(600):
        state, ticket, _ = aggregator.issue(state)
        tickets.append(ticket)
    order = np.random.default_rng(0).permutation(600)
    sent = payloads(SIGN, 600)
    for place in order[:550]:
        state, verdict = aggregator.submit(state, tickets[place], sent[place])
        assert verdict.is_accepted
    for place in range(600):
        used = place in order[:550]
        assert state.ticket(place) == (-1 if used else 0)
        _, verdict = aggregator.submit(state, tickets[place], sent[place])
        assert verdict.outcome is (Outcome.DUPLICATE if used else Outcome.ACCEPTED)


def test_scores_are_told_of_the_last_agents() -> None:
    plan = Privatiser(20.0, 1, "sign", score_share=0.9)
    aggregator = Aggregator(plan, rate=0.1, window=50)
    state = aggregator.begin([0.0])
    with pytest.raises(InputError, match="no scores"):
        aggregator.success_rate(state)
    for reached in [False] * 60 + [True] * 50:
        state, ticket, _ = aggregator.issue(state)
        sent = plan.payloads(np.zeros((1, 1)), secure(), [reached])[0]
        state, _ = aggregator.submit(state, ticket, sent)
        assert len(state.told) == min(state.accepted, 50)
    # At epsilon 18 one in 6 * 10^7 lies.
    np.testing.assert_allclose(
        aggregator.success_rate(state), (1.0, 0.5 / math.sqrt(50)), rtol=1e-6
    )
    assert Aggregator(PLAN, rate=0.1).begin(np.zeros(D)).told == ()


def test_what_makes_no_sense_is_refused() -> None:
    for wrong, message in (
        ({"rate": 0.0}, "rate"),
        ({"rate": math.nan}, "rate"),
        ({"rate": 1e200}, "overflow"),
        ({"buffer": 0}, "buffer"),
        ({"buffer": 1.5}, "buffer"),
        ({"optimiser": "lion"}, "optimiser must be 'sgd', 'adam' or 'rmsprop'"),
        ({"staleness": "linear"}, "staleness must be"),
        ({"max_age": -1}, "max_age"),
        ({"window": 0}, "window"),
        ({"privatiser": None}, "privatiser must be"),
    ):
        with pytest.raises(InputError, match=message):
            Aggregator(**{"privatiser": PLAN, "rate": 0.1, **wrong})  # type: ignore[arg-type]
    aggregator = Aggregator(PLAN, rate=0.1)
    for theta in ([1.0, 2.0], 1.0, [1.0, math.nan, 0.0], "theta", [[1.0, 2.0, 3.0]]):
        with pytest.raises(InputError, match="theta"):
            aggregator.begin(theta)


# --- journal and files ----------------------------------------------------------------------------


def drive(
    aggregator: Aggregator, moves: list[tuple[str, int]], seed: int
) -> tuple[AggregatorState, list[Record]]:
    """A run of issues, reports, doubled ones and rubbish; and its journal."""
    state = aggregator.begin(np.linspace(-1.0, 1.0, D))
    journal: list[Record] = [aggregator.begin_record(state)]
    tickets: list[Ticket] = []
    sent = payloads(aggregator.privatiser, len(moves), seed)
    for (move, place), payload in zip(moves, sent, strict=True):
        if move == "issue" or not tickets:
            state, ticket, _ = aggregator.issue(state)
            tickets.append(ticket)
            journal.append(IssueRecord(ticket))
            continue
        ticket = tickets[place % len(tickets)]
        bytes_sent = payload if move == "report" else payload[place % 10 :] + b"!"
        state, verdict = aggregator.submit(state, ticket, bytes_sent)
        if verdict.is_accepted:
            journal.append(AcceptRecord(ticket, bytes_sent))
    return state, journal


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["issue", "report", "report", "rubbish"]), st.integers(0, 50)),
        max_size=40,
    ),
    st.integers(0, 5),
    st.sampled_from(["sgd", "adam"]),
    st.sampled_from([None, 0, 2]),
    st.integers(1, 4),
    st.sampled_from(["privunit", "sign", "laplace"]),
)
def test_a_replayed_journal_gives_the_same_state_bit_for_bit(
    moves: list[tuple[str, int]],
    seed: int,
    optimiser: Optimiser,
    max_age: int | None,
    buffer: int,
    mechanism: Mechanism,
) -> None:
    plan = Privatiser(2.0, D, mechanism, score_share=0.25)
    aggregator = Aggregator(plan, 0.1, buffer, optimiser, max_age=max_age, window=5)
    state, journal = drive(aggregator, moves, seed)
    assert state.accepted == state.version * buffer + state.held
    assert state.held < buffer
    assert np.all(np.isfinite(state.theta))
    lines = [to_line(record) for record in journal]
    assert not any("\n" in line for line in lines)
    again = [from_line(line) for line in lines]
    assert again == journal
    assert contents(aggregator.replay(again)) == contents(state)


def test_a_journal_that_cannot_be_is_refused() -> None:
    aggregator = Aggregator(PLAN, rate=0.1, buffer=2)
    moves = [("issue", 0), ("report", 0), ("issue", 0), ("report", 1), ("issue", 0)]
    _, journal = drive(aggregator, moves, 0)
    began, issued, accepted, *rest = journal
    assert isinstance(began, BeginRecord)
    assert isinstance(issued, IssueRecord)
    assert isinstance(accepted, AcceptRecord)
    for wrong, message in (
        ([], "empty"),
        ([issued], "Record 1"),
        ([began, began], "Record 2"),
        ([began, accepted], "Record 2"),
        ([began, issued, accepted, accepted], "Record 4"),
        ([began, issued, AcceptRecord(accepted.ticket, b"")], "Record 3"),
        ([began, IssueRecord(Ticket(1, 0))], "Record 2"),
        ([began, issued, *rest], "Record 5"),
        ([BeginRecord((0.0,), began.settings)], "theta"),
    ):
        with pytest.raises(InputError, match=message):
            aggregator.replay(wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="other settings"):
        Aggregator(PLAN, rate=0.2, buffer=2).replay(journal)
    for line in (
        *("", "{", "null", "[]", "7", '{"issued": 3}', '{"issued": [1]}', "[" * 100_000),
        *('{"accepted": [0, 0]}', '{"accepted": [0, 0], "payload": "?"}', '{"began": [1.0]}'),
        *('{"accepted": [0, 0], "payload": 5}', '{"began": 5, "settings": {}}', '"began"'),
        *('{"issued": [Infinity, 0]}', '{"issued": [NaN, 0]}', '{"began": [1' + "0" * 400 + "]}"),
    ):
        with pytest.raises(InputError, match="not a line"):
            from_line(line)


@pytest.mark.parametrize(
    "line",
    [
        # What only looks like a ticket.
        '{"issued": [0.9, 0.9]}',
        '{"issued": [1.0, 0]}',
        '{"issued": [1, 0.0]}',
        '{"issued": [true, false]}',
        '{"issued": ["1", "2"]}',
        '{"issued": "12"}',
        '{"issued": {"1": 0, "2": 0}}',
        '{"issued": [1, 2, 3]}',
        '{"accepted": "12", "payload": ""}',
        '{"accepted": [0.5, 0], "payload": ""}',
        # More than one kind, or more than belongs to it.
        '{"accepted": [0, 0], "issued": [0, 0]}',
        '{"accepted": [0, 0], "issued": [0, 0], "payload": ""}',
        '{"issued": [0, 0], "payload": ""}',
        '{"began": [1.0], "settings": {}, "issued": [0, 0]}',
        '{"issued": [0, 0], "when": 3}',
        # What only looks like a model.
        '{"began": "123", "settings": {}}',
        '{"began": ["1", "2"], "settings": {}}',
        '{"began": [true], "settings": {}}',
        '{"began": {"1": 2}, "settings": {}}',
        '{"began": [NaN], "settings": {}}',
        '{"began": [1e999], "settings": {}}',
        '{"began": [1' + "0" * 400 + '], "settings": {}}',
        '{"began": [1.0], "settings": []}',
        '{"began": [1.0], "settings": [["rate", 1.0]]}',
        '{"began": [1.0], "settings": null}',
        # What says two things, or one thing in two ways.
        '{"issued": [0, 0], "issued": [1, 0]}',
        '{"began": [1.0], "settings": {"rate": 1.0, "rate": 2.0}}',
        '{"accepted": [0, 0], "payload": "QUFBQR=="}',
    ],
)
def test_a_line_is_read_as_what_it_says_or_not_at_all(line: str) -> None:
    with pytest.raises(InputError, match="not a line of an aggregator's journal"):
        from_line(line)


def test_whole_numbers_are_models_too() -> None:
    """Of tools that write 1 for 1.0."""
    assert from_line('{"began": [1, -2.5], "settings": {}}') == BeginRecord((1.0, -2.5), {})


def test_nothing_raises_where_numpy_was_told_to() -> None:
    """A moment that underflows, in a process in which that is an error."""
    tiny = Privatiser(1.0, 3, "laplace", radius=1e-250)
    aggregator = Aggregator(tiny, rate=0.1, optimiser="adam")
    with np.errstate(all="raise"):
        state, ticket, _ = aggregator.issue(aggregator.begin(np.zeros(3)))
        payload = tiny.payloads([[1.0, 1e-200, 0.0]], reproducible(1))[0]
        state, verdict = aggregator.submit(state, ticket, payload)
        assert verdict.is_accepted
        with pytest.raises(FloatingPointError):
            np.float64(1e-250) ** 2  # the test can tell


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_a_saved_state_goes_on_as_if_it_had_not_been(tmp_path: Path, optimiser: Optimiser) -> None:
    aggregator = Aggregator(SIGN, rate=0.1, buffer=3, optimiser=optimiser)
    moves = [("issue", 0)] * 300 + [("report", place) for place in range(0, 290, 7)]
    state, _ = drive(aggregator, moves, 1)
    aggregator.save(tmp_path / "state", state)
    loaded = aggregator.load(tmp_path / "state")
    assert contents(loaded) == contents(state)
    for _ in range(3):
        number = loaded.issued - 1
        ticket, payload = Ticket(number, loaded.ticket(number)), payloads(SIGN, 1)[0]
        (state, one), (loaded, two) = (
            aggregator.submit(which, ticket, payload) for which in (state, loaded)
        )
        assert one == two
        state, loaded = aggregator.issue(state)[0], aggregator.issue(loaded)[0]
    assert contents(loaded) == contents(state)


def test_a_file_that_is_not_a_state_is_refused(tmp_path: Path) -> None:
    aggregator = Aggregator(PLAN, rate=0.1, buffer=2)
    state, _ = drive(aggregator, [("issue", 0), ("report", 0), ("issue", 0)], 0)
    path = tmp_path / "state"
    aggregator.save(path, state)
    content = path.read_bytes()
    with pytest.raises(InputError, match="other settings"):
        Aggregator(PLAN, rate=0.1, buffer=3).load(path)
    with pytest.raises(InputError, match="cannot be read"):
        aggregator.load(tmp_path / "nothing")
    for wrong in (b"", content[:-40], content[400:], b"{}"):
        path.write_bytes(wrong)
        with pytest.raises(InputError, match="damaged"):
            aggregator.load(path)

    def rewritten(**changes: Any) -> None:
        path.write_bytes(content)
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
        with path.open("wb") as out:
            np.savez(out, **{**arrays, **changes})

    def header(**changes: Any) -> NDArray[np.uint8]:
        path.write_bytes(content)
        with np.load(path) as file:
            data = {**json.loads(bytes(file["header"])), **changes}
        return np.frombuffer(json.dumps(data).encode(), np.uint8)

    for changes, message in (
        ({"theta": np.zeros(2)}, "damaged"),
        ({"theta": np.zeros(D, np.float32)}, "damaged"),
        ({"moments": np.zeros((2, D))}, "damaged"),
        ({"tickets": np.array([5, -1])}, "damaged"),
        ({"tickets": np.array([-2])}, "damaged"),
        ({"header": header(kind="privrl state")}, "damaged"),
        ({"header": header(format=9)}, "another version"),
        ({"header": np.frombuffer(b"[]", np.uint8)}, "damaged"),
        ({"tickets": np.array([None])}, "damaged"),
    ):
        rewritten(**changes)
        with pytest.raises(InputError, match=message):
            aggregator.load(path)
    rewritten()
    assert contents(aggregator.load(path)) == contents(state)


@pytest.mark.parametrize("flip", [0x01, 0x80])
def test_a_flipped_bit_is_noticed_or_does_not_matter(tmp_path: Path, flip: int) -> None:
    aggregator = Aggregator(SIGN, rate=0.1, buffer=3, optimiser="adam")
    moves = [("issue", 0)] * 30 + [("report", place) for place in range(11)]
    state, _ = drive(aggregator, moves, 1)
    path = tmp_path / "state"
    aggregator.save(path, state)
    content, wanted = path.read_bytes(), contents(state)
    places = range(0, len(content), 3)
    sentences = []
    for place in places:
        damaged = bytearray(content)
        damaged[place] ^= flip
        path.write_bytes(damaged)
        try:
            assert contents(aggregator.load(path)) == wanted, place
        except InputError as error:
            sentences.append(str(error))
    assert all("damaged" in sentence for sentence in sentences)
    # All but the dates, versions and attributes in a zip file's headers.
    assert len(sentences) > 0.7 * len(places)


def test_tickets_that_were_lost_are_noticed(tmp_path: Path) -> None:
    """Fewer of them make sense, and so only the checksum of all bytes tells."""
    aggregator = Aggregator(PLAN, rate=0.1)
    state, _ = drive(aggregator, [("issue", 0)] * 3000, 0)
    path = tmp_path / "state"
    aggregator.save(path, state)
    content = path.read_bytes()
    assert content.count(b"(3000,)") == 1
    path.write_bytes(content.replace(b"(3000,)", b"(1000,)"))
    with pytest.raises(InputError, match="damaged"):
        aggregator.load(path)


def test_states_that_cannot_be_are_refused(tmp_path: Path) -> None:
    aggregator = Aggregator(SIGN, rate=0.1, buffer=2, optimiser="adam", window=4)
    moves = [("issue", 0)] * 3 + [("report", place) for place in range(3)] + [("issue", 0)] * 3
    state, _ = drive(aggregator, moves, 0)
    assert (state.version, state.held, state.told) == (1, 1, state.told[:3])
    path = tmp_path / "state"
    aggregator.save(path, state)
    with np.load(path) as file:
        saved = {name: file[name] for name in file.files}

    def loaded(**changes: Any) -> AggregatorState:
        with path.open("wb") as out:
            np.savez(out, **{**saved, **changes})
        return aggregator.load(path)

    assert contents(loaded()) == contents(state)
    tickets, told, moments = saved["tickets"], saved["told"], saved["moments"]
    none = {"tickets": tickets[:0], "told": told[:0], "total": np.zeros(D)}
    assert loaded(**none, moments=np.zeros((2, D))).issued == 0
    for changes in (
        *({name: saved[name] * math.nan} for name in ("theta", "moments", "total")),
        *({name: np.full_like(saved[name], math.inf)} for name in ("theta", "moments", "total")),
        *({name: saved[name][None]} for name in saved),
        *({name: saved[name].ravel()[0]} for name in saved),
        *({name: saved[name].astype(">i4")} for name in saved),
        *({name: saved[name].astype(complex)} for name in saved),
        {"moments": moments * [[1.0], [-1.0]]},
        {"moments": moments[:1]},
        {**none},  # Adam has moved, and nothing was accepted
        {**none, "moments": np.zeros((2, D)), "total": np.ones(D)},
        {"told": told[:2]},
        {"told": np.append(told, True)},
        {"tickets": tickets * 1.0},
        {"tickets": tickets.astype(np.uint64)},
        {"tickets": np.append(tickets, 2)},
        {"tickets": np.append(tickets, 0)},  # issued after a later version
        {"tickets": np.append(-2, tickets)},
        {"tickets": np.append(tickets, -1)},  # another was accepted, and told nothing
    ):
        with pytest.raises(InputError, match="damaged"):
            loaded(**changes)
    # No more is told than the window holds.
    four = {"tickets": np.full(9, -1), "told": np.ones(4, bool)}
    assert loaded(**four).told == (True,) * 4
    with pytest.raises(InputError, match="damaged"):
        loaded(tickets=four["tickets"], told=np.ones(5, bool))
    # A plan without scores is told nothing.
    quiet = Aggregator(PLAN, rate=0.1)
    state, _ = drive(quiet, [("issue", 0), ("report", 0)], 0)
    quiet.save(path, replace(state, told=(True,)))
    with pytest.raises(InputError, match="damaged"):
        quiet.load(path)


def test_a_path_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "a\0b", str(tmp_path / "a\0b"), tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            Aggregator(PLAN, rate=0.1).load(path)


@pytest.mark.parametrize("max_age", [0, 3])
def test_settings_of_numpy_are_kept_like_those_of_python(tmp_path: Path, max_age: int) -> None:
    plan: Any = {
        "epsilon": np.float32(2.0),
        "dimension": np.int64(D),
        "mechanism": "sign",
        "submissions": np.int32(1),
        "radius": np.float64(1.5),
        "clip": np.float16(0.5),
        "debias": np.True_,
        "score_share": np.float64(0.25),
    }
    numpys: Any = {
        "rate": np.float64(0.1),
        "buffer": np.int64(2),
        "decay": np.float32(0.5),
        "agents": np.uint16(100),
        "max_age": np.int64(max_age),
        "window": np.int8(5),
    }
    aggregator = Aggregator(Privatiser(**plan), **numpys)
    pythons: Any = {name: value.item() for name, value in numpys.items()}
    same = Aggregator(Privatiser(2.0, D, "sign", 1, "unit", 1.5, 0.5, True, 0.25), **pythons)
    assert json.dumps(aggregator.to_dict()) == json.dumps(same.to_dict())
    moves = [("issue", 0)] * 5 + [("report", place) for place in range(3)]
    state, journal = drive(aggregator, moves, 0)
    aggregator.save(tmp_path / "state", state)
    assert contents(same.load(tmp_path / "state")) == contents(state)
    lines = [to_line(record) for record in journal]
    assert contents(same.replay(map(from_line, lines))) == contents(state)
    for wrong in (0.0, False, np.False_, "0", -1):
        with pytest.raises(InputError, match="max_age must be"):
            Aggregator(PLAN, rate=0.1, max_age=wrong)  # type: ignore[arg-type]  # wrong on purpose


def test_no_server_needs_jax() -> None:
    code = "import sys, privrl.control.pgc.aggregator; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_rate_falls_to_nothing_as_agents_are_used_up() -> None:
    """Four updates of one report each, at rates 1, 3/4, 1/2 and 1/4; a fifth does not move."""
    plan = PLAN
    aggregator = Aggregator(plan, rate=1.0, staleness="none", decay=1.0, agents=4)
    state, moves = aggregator.begin(np.zeros(D)), []
    for payload in payloads(plan, 5):
        state, ticket, theta = aggregator.issue(state)
        state, _ = aggregator.submit(state, ticket, payload)
        moves.append(np.linalg.norm(state.theta - theta) / np.linalg.norm(vector(payload)))
    np.testing.assert_allclose(moves, [1.0, 0.75, 0.5, 0.25, 0.0], rtol=1e-12)
    assert aggregator.replay([aggregator.begin_record(aggregator.begin(np.zeros(D)))]).version == 0
    with pytest.raises(InputError, match="agents is needed"):
        Aggregator(plan, rate=1.0, decay=1.0)
