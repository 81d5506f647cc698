"""The ledger: nothing lost, nothing overspent, nothing changed unnoticed."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from datetime import datetime, tzinfo
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privrl import cli
from privrl.privacy import (
    ApproxDP,
    Budget,
    Certificate,
    DiscreteGaussian,
    Event,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Laplace,
    LargeDelta,
    Ledger,
    LedgerError,
    LimitUsedUp,
    NoiseOrigin,
    OverBudget,
    PoissonSampled,
    PureDP,
    Relation,
    Repeated,
    Unit,
    UnsupportedError,
    calibrate,
    epsilon,
)
from privrl.privacy.entries import Description, digest_of
from privrl.privacy.events import Disjoint
from privrl.privacy.ledger import OLD_ENTRIES
from privrl.privacy.ledger_chain import _APPLICATION_ID
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.privacy.noise import Source, reproducible, secure

RO = Relation.REPLACE_ONE


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "people.ledger"


@pytest.fixture
def spent(path: Path) -> Path:
    """A ledger with three entries."""
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(2.0, 1e-6)) as ledger:
        for i in range(3):
            ledger.spend(Gaussian(30, 1), run=f"run {i}", note="")
    return path


# --- spending -----------------------------------------------------------------------------------


def test_entries_on_the_same_people_add_up(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        ledger.spend(Gaussian(20, 1), run="a")
        ledger.spend([Laplace(30, 1), PureDP(0.1)], run="b")
        ledger.spend(Gaussian(20, 1), run="a")
        assert ledger.account(1e-6).epsilon == epsilon(
            [Gaussian(20, 1)] * 2 + [Laplace(30, 1), PureDP(0.1)], 1e-6
        )
        assert ledger.account(1e-6, "a").epsilon == epsilon([Gaussian(20, 1)] * 2, 1e-6)
        assert ledger.remaining() is None
    with Ledger.open(path) as again:
        assert [entry.run for entry in again.entries()] == ["a", "b", "a"]
        assert again.entries()[1].events == (Laplace(30, 1), PureDP(0.1))
        assert again.check() == 3


def test_entries_on_disjoint_slots_do_not(path: Path) -> None:
    limit = Budget(1.0)
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=limit) as ledger:
        for slot in range(10):
            ledger.spend(PureDP(0.6), run="epoch", partition="weeks", slot=slot)
        assert ledger.remaining() == pytest.approx(0.4)
        assert ledger.account(0.0).epsilon == pytest.approx(0.6)
        with pytest.raises(OverBudget):  # again on the people of slot 3
            ledger.spend(PureDP(0.6), run="epoch", partition="weeks", slot=3)
        ledger.spend(PureDP(0.3), run="all")  # everybody, so also the worst slot
        with pytest.raises(OverBudget):  # another division: whoever is in its slot is in a week too
            ledger.spend(PureDP(0.2), run="other", partition="cities", slot=0)
        assert ledger.account(0.0).epsilon == pytest.approx(0.9)
        ledger.spend(PureDP(0.1), run="other", partition="cities", slot=0)
        ledger.spend(PureDP(0.1), run="other", partition="cities", slot=1)
        assert ledger.account(0.0).epsilon == pytest.approx(1.0)
        assert ledger.remaining() == pytest.approx(0.0, abs=1e-12)


def test_slots_with_several_kinds_of_events_are_not_undercounted(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        mixed: list[list[Event]] = [[PureDP(0.1), PureDP(0.2)], [PureDP(0.25)], []]
        for slot, events in enumerate(mixed):
            for event in events:
                ledger.spend([event, event], run="r", partition="weeks", slot=slot)
        assert ledger.account(0.0).epsilon == pytest.approx(0.6)  # slot 0; slot 1 paid 0.5
        certificate = ledger.certify("r", 0.0, source=secure())
        assert certificate.epsilon == pytest.approx(0.6)
        certificate.verify()


def test_many_different_events_on_two_slots(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        for slot in range(2):
            for i in range(9):
                ledger.spend(Laplace(30 + i + slot, 1), run="r", partition="weeks", slot=slot)
        assert ledger.account(1e-6).epsilon == pytest.approx(
            epsilon([Laplace(30 + i, 1) for i in range(9)], 1e-6)
        )


def test_edits_behind_an_open_handle_do_not_widen_the_limit(path: Path) -> None:
    limit = Budget(1.0, 1e-6)
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=limit, filter="gaussian") as ledger:
        ledger.spend(Gaussian(12, 1), run="one")
        edit(path, "UPDATE entries SET first = 1e-9")
        with pytest.raises(LedgerError, match="entry 1"):
            ledger.entries()
        with pytest.raises(OverBudget):
            ledger.spend(Gaussian(10, 1), run="two")


def test_names_that_mean_something_to_sqlite_are_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Ledger.create(":memory:", "clinic", unit=Unit.USER) as ledger:
        ledger.spend(PureDP(0.1), run="r")
    with Ledger.open(":memory:") as again:
        assert len(again.entries()) == 1
    assert (tmp_path / ":memory:").stat().st_size > 0


def test_another_thread_is_told_so(spent: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with Ledger.open(spent) as ledger, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(ledger.entries)
        with pytest.raises(LedgerError, match="another thread"):
            asked.result()


def affords(ledger: Ledger, event: Event) -> bool:
    try:
        ledger.spend(event, run="greedy")
    except OverBudget:
        return False
    return True


@pytest.mark.parametrize("kind", ["renyi", "gaussian", "sum"])
def test_the_limit_is_kept_and_nothing_is_recorded_beyond_it(path: Path, kind: str) -> None:
    limit = Budget(1.0, 1e-6)
    event: Event = PureDP(0.07) if kind == "sum" else Gaussian(60, 1)
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=limit, filter=kind) as ledger:
        count = sum(1 for _ in takewhile(lambda _: affords(ledger, event), range(10_000)))
        with pytest.raises(OverBudget, match="nothing was spent"):
            ledger.spend(event, run="greedy")
        assert len(ledger.entries()) == count
        assert count > 5
        spent = ledger.account(1e-6).epsilon
        assert 0.5 < spent <= 1.0 + 1e-9
        # A smaller spend may still fit; a limit is not a switch.
        smaller: Event = PureDP(1e-6) if kind == "sum" else Gaussian(1e5, 1)
        ledger.spend(smaller, run="modest")


# Events that cost epsilon 1 at delta 1e-6, to three digits: the noise is what `calibrate` finds,
# rounded up.
WHOLE: dict[str, tuple[Event, ...]] = {
    "gaussian": (Gaussian(8.44937, 1),),
    "gaussians": (Repeated(Gaussian(50, 1), 30), Gaussian(22.35, 1)),
    "poisson": (Repeated(PoissonSampled(Gaussian(2.7382, 1), 0.1), 10),),
    "fixed size": (FixedSizeSampled(Gaussian(2.8652, 1), 10, 1),),
    "laplace": (Laplace(2, 1),),
    "pure": (PureDP(1.0),),
    "approximate": (ApproxDP(1.0, 1e-6),),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_first_spend_of_exactly_the_limit_fits_the_default_ledger(
    path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    create = ["ledger", "create", str(path), "--population", "clinic"]
    assert cli.run([*create, "--epsilon", "1", "--delta", "1e-6"]) == 0
    events = WHOLE[name]
    assert 0.999 < epsilon(events, 1e-6) <= 1.0
    with Ledger.open(path) as ledger:
        ledger.spend(events, run="all")
        # And nothing fits beside it.
        assert ledger.remaining() == 0.0
        for partition in ("", "weeks"):
            with pytest.raises(OverBudget, match=r"by the renyi filter about 0\.0% of it is left"):
                ledger.spend(Gaussian(1e4, 1), run="more", partition=partition)
        assert ledger.check() == 1
        assert ledger.certify("all", 1e-6, source=secure()).epsilon <= 1.0
    assert cli.run(["ledger", "show", str(path)]) == 0
    assert "0.0% is left" in capsys.readouterr().out


@pytest.mark.slow
def test_what_is_calibrated_to_the_limit_fits(path: Path) -> None:
    limit = Budget(1.0, 1e-6)
    plans: list[Callable[[float], Event]] = [
        lambda s: Gaussian(s, 1),
        lambda s: Repeated(Gaussian(s, 1), 100),
        lambda s: Repeated(PoissonSampled(Gaussian(s, 1), 0.01), 100),
        lambda s: Repeated(FixedSizeSampled(Gaussian(s, 1), 100, 1), 50),
        lambda s: Repeated(Laplace(s, 1), 20),
        lambda s: DiscreteGaussian(s, 100, 5),
    ]
    for number, plan in enumerate(plans):
        event = plan(calibrate(plan, limit))
        with Ledger.create(
            path.with_name(str(number)), "clinic", unit=Unit.USER, limit=limit
        ) as ledger:
            ledger.spend(event, run="all")
            assert ledger.check() == 1


def test_a_first_spend_of_more_than_the_limit_is_told_its_cost(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(1.0, 1e-6)) as ledger:
        for event, cost in ((Gaussian(8.449, 1), "1.00004"), (PureDP(1.001), "1.00")):
            with pytest.raises(OverBudget, match=f"This costs epsilon {cost}.*, above the limit"):
                ledger.spend(event, run="all")
        with pytest.raises(OverBudget, match="more than any epsilon at delta 1e-06"):
            ledger.spend(ApproxDP(0.1, 2e-6), run="all")
        assert ledger.entries() == []


def test_the_whole_limit_is_there_for_each_slot_once(path: Path) -> None:
    """People of another slot have spent nothing; those of all slots have."""
    (event,) = WHOLE["gaussian"]
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(1.0, 1e-6)) as ledger:
        for slot in range(3):
            ledger.spend(event, run="week", partition="weeks", slot=slot)
        with pytest.raises(OverBudget):
            ledger.spend(event, run="week", partition="weeks", slot=2)
        for partition in ("", "cities"):
            with pytest.raises(OverBudget):
                ledger.spend(Gaussian(1e4, 1), run="all", partition=partition)
        assert ledger.account(1e-6).epsilon <= 1.0
        assert ledger.check() == 3
    other = path.with_name("other")
    with Ledger.create(other, "clinic", unit=Unit.USER, limit=Budget(1.0, 1e-6)) as ledger:
        ledger.spend(Gaussian(1e4, 1), run="all")
        with pytest.raises(OverBudget):  # it is not the first, however small that was
            ledger.spend(event, run="week", partition="weeks", slot=0)


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([8.44937, 8.6, 9.5, 12.0, 40.0]),
            st.sampled_from(["", "weeks", "cities"]),
            st.integers(0, 1),
        ),
        max_size=12,
    )
)
def test_nobody_ever_pays_more_than_the_limit(wished: list[tuple[float, str, int]]) -> None:
    """Whatever is spent on whom in which order, tight accounting of each person's events agrees."""
    limit = Budget(1.0, 1e-6)
    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger.create(Path(folder) / "l", "clinic", unit=Unit.USER, limit=limit)
        accepted = 0
        for std, partition, slot in wished:
            where: dict[str, Any] = {"partition": partition, "slot": slot if partition else 0}
            try:
                ledger.spend(Gaussian(std, 1), run="r", **where)
            except OverBudget:
                continue
            accepted += 1
        assert accepted == ledger.check()
        assert accepted or not wished  # the first always fits
        if accepted:
            assert ledger.account(1e-6).epsilon <= limit.epsilon
        ledger.close()


def test_a_refusal_names_the_filter_that_would_fit(path: Path) -> None:
    """20 parts of a plan that is worth the limit: nothing is lost with the right filter."""
    part = Gaussian(37.79, 1)
    for kind in ("renyi", "gaussian"):
        file = path.with_name(kind)
        with Ledger.create(
            file, "clinic", unit=Unit.USER, limit=Budget(1.0, 1e-6), filter=kind
        ) as ledger:
            for number in range(20):
                try:
                    ledger.spend(part, run="part")
                except OverBudget as refusal:
                    assert kind == "renyi"
                    assert 15 < number < 20
                    said = str(refusal)
                    assert "The filter gaussian would hold all of it" in said
                    assert said.endswith("(privrl ledger create --filter gaussian).")
                    break
            else:
                assert kind == "gaussian"
    # Where none would, none is named.
    with Ledger.open(path.with_name("gaussian")) as ledger:
        with pytest.raises(OverBudget, match=r"nothing was spent\.$"):
            ledger.spend(Gaussian(10, 1), run="more")
        with pytest.raises(UnsupportedError, match="--filter renyi"):
            ledger.spend(Laplace(1e4, 1), run="more")


def test_using_up_a_limit_that_was_hardly_needed_draws_a_warning(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(1.0, 1e-6)) as ledger:
        with pytest.warns(LimitUsedUp, match=r"costs epsilon 0\.85 and uses up the limit of 1"):
            ledger.spend(PureDP(0.85), run="all")
        assert ledger.remaining() == 0.0


def test_a_compiled_run_prepays_all_of_its_events(path: Path) -> None:
    plan = Repeated(PoissonSampled(Gaussian(2, 1), 0.01), 1000)
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(5.0, 1e-6)) as ledger:
        ledger.spend(plan, run="compiled")
        before = ledger.remaining()
        assert ledger.account(1e-6, "compiled").epsilon == epsilon(plan, 1e-6)
        assert not hasattr(ledger, "refund")
        assert ledger.remaining() == before


class Recorder:
    """A mechanism that looks at the ledger's file when its noise is drawn."""

    def __init__(self, path: Path, event: Event, does: Event | None = None) -> None:
        self.path, self.event, self.does = path, event, does or event
        self.seen: list[int] = []

    def release(self, value: Any, source: Source) -> Any:
        with Ledger.open(self.path) as other:
            self.seen.append(len(other.entries()))
        return value, self.does


def test_spend_is_on_disk_before_noise_is_drawn(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(1.0, 1e-6)) as ledger:
        plan = Recorder(path, Gaussian(60, 1))
        ledger.release(plan, [0.0], secure(), run="r")
        assert plan.seen == [1]
        greedy = Recorder(path, Gaussian(1, 1))
        with pytest.raises(OverBudget):
            ledger.release(greedy, [0.0], secure(), run="r")
        assert greedy.seen == []  # refused, so no noise was drawn
        liar = Recorder(path, Gaussian(60, 1), does=Gaussian(50, 1))
        with pytest.raises(LedgerError, match="after Gaussian"):
            ledger.release(liar, [0.0], secure(), run="r")


def test_release_through_the_ledger_and_certificate(path: Path) -> None:
    source = secure()
    with Ledger.create(path, "clinic", unit=Unit.USER, people=10_000) as ledger:
        ledger.spend(Gaussian(25, 1), run="earlier")
        released = ledger.release(GaussianMechanism(20.0, 1.0), [1.0, 2.0], source, run="today")
        assert released.shape == (2,)
        certificate = ledger.certify("today", 1e-6, source=source)
        head = ledger.entries()[-1].digest
    assert certificate.epsilon == epsilon(Gaussian(20, 1), 1e-6)
    assert certificate.noise is NoiseOrigin.SECURE
    certificate.verify(strict=True)
    paid = certificate.population
    assert paid is not None
    assert paid.epsilon == epsilon([Gaussian(25, 1), Gaussian(20, 1)], 1e-6)
    assert (paid.entries, paid.head, paid.name) == (2, head, "clinic")
    assert "'clinic' has paid" in " ".join(certificate.card().split())
    assert type(certificate).from_json(certificate.to_json()) == certificate
    with Ledger.open(path) as ledger:
        compiled = ledger.certify("today", 1e-6, source=secure(), compiled=True)
        assert compiled.noise is NoiseOrigin.SECURE_KEY
        experiment = ledger.certify("today", 1e-6, source=reproducible(1), compiled=True)
        assert experiment.noise is NoiseOrigin.REPRODUCIBLE
        with pytest.raises(InputError, match="no run 'tomorrow'"):
            ledger.certify("tomorrow", 1e-6, source=source)


def test_a_delta_that_could_give_someone_away_draws_a_warning(path: Path) -> None:
    with pytest.warns(LargeDelta, match="not below 1/1000"):
        ledger = Ledger.create(path, "clinic", unit=Unit.USER, people=1000, limit=Budget(1.0, 1e-3))
    ledger.spend(Gaussian(100, 1), run="r")
    with pytest.warns(LargeDelta):
        ledger.certify("r", 1e-3, source=secure())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ledger.certify("r", 9e-4, source=secure())
    ledger.close()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"events": []}, "nothing to spend"),
        ({"events": "Gaussian(1, 1)"}, "must be an event"),
        ({"run": ""}, "name of its run"),
        ({"slot": -1, "partition": "p"}, "slot must be"),
        ({"slot": 1.5, "partition": "p"}, "slot must be"),
        ({"slot": 1}, "belongs to a partition"),
        ({"slot": 2**63, "partition": "p"}, "slot must be"),
        ({"run": 7}, "run must be text"),
        ({"run": b"x"}, "run must be text"),
        ({"run": "\ud800"}, "run must be text"),
        ({"note": None}, "note must be text"),
        ({"partition": 3}, "partition must be text"),
        ({"events": PureDP(1.0, relation=Relation.LOCAL)}, None),
        ({"events": PureDP(1.0, relation=Relation.ADD_REMOVE)}, "holds under the relation"),
    ],
)
def test_bad_spends_leave_nothing(path: Path, change: dict[str, Any], sentence: str | None) -> None:
    arguments: dict[str, Any] = {"events": Gaussian(9, 1), "run": "r", **change}
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        if sentence is None:
            ledger.spend(**arguments)
            return
        with pytest.raises(InputError, match=sentence):
            ledger.spend(**arguments)
        assert ledger.entries() == []


# --- files that are not what they were ------------------------------------------------------------


def edit(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement, values)
    connection.commit()
    connection.close()


EDITS = [
    "UPDATE entries SET run = 'x' WHERE number = 2",
    "UPDATE entries SET time = '' WHERE number = 1",
    "UPDATE entries SET note = 'x' WHERE number = 3",
    "UPDATE entries SET first = 0 WHERE number = 1",
    "UPDATE entries SET events = '[]' WHERE number = 2",
    "UPDATE entries SET events = 'nonsense' WHERE number = 2",
    "UPDATE entries SET partition = 'p' WHERE number = 2",
    "UPDATE entries SET slot = 4 WHERE number = 2",
    "UPDATE entries SET digest = 'x' WHERE number = 2",
    "DELETE FROM entries WHERE number = 1",
    "DELETE FROM entries WHERE number = 2",
    "DELETE FROM entries WHERE number = 3",
    "DELETE FROM entries",
    "UPDATE head SET number = 2",
    "DELETE FROM head",
    "UPDATE about SET description = replace(description, '2.0', '9.0')",
    "UPDATE about SET description = replace(description, 'clinic', 'nobody')",
    "UPDATE about SET description = 'nonsense'",
    "DELETE FROM about",
    "DROP TABLE head",
    "DROP TABLE entries",
    "UPDATE about SET description = replace(description, '\"format\": 2', '\"format\": 3')",
    "UPDATE about SET description = replace(description, '\"format\": 2', '\"format\": 1')",
    "UPDATE about SET description = replace(description, '\"format\": 2', '\"format\": true')",
    'UPDATE about SET description = replace(description, \'"people"\', \'"unit": 1, "people"\')',
    "UPDATE entries SET nonce = 'x' WHERE number = 2",
    "UPDATE entries SET nonce = NULL WHERE number = 2",
    "ALTER TABLE entries DROP COLUMN nonce",
    "PRAGMA application_id = 7",
]


def refuses(path: Path) -> str:
    """The one sentence with which library and command line refuse this ledger."""
    drawn: list[int] = []

    class Loud(Recorder):
        def release(self, value: Any, source: Source) -> Any:
            drawn.append(1)
            return value, self.event

    with pytest.raises(LedgerError) as caught, Ledger.open(path) as ledger:
        ledger.release(Loud(path, Gaussian(30, 1)), [0.0], secure(), run="r")
    assert drawn == []
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    return message


@pytest.mark.parametrize("statement", EDITS)
def test_every_edit_is_noticed(
    spent: Path, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(spent, statement)
    refuses(spent)
    assert cli.run(["ledger", "check", str(spent)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("privrl: ")
    assert printed.err.count("\n") == 1


def test_a_cost_that_is_not_that_of_its_events_is_noticed(spent: Path) -> None:
    """Even with digests made anew, which the chain alone cannot notice."""
    with Ledger.open(spent) as ledger:
        data = ledger.to_dict()
    head = digest_of(Description.from_dict(data).to_dict())
    for item in data["entries"]:
        item["cost"] = [item["cost"][0] / 2, item["cost"][1]]
        item["previous"] = head
        item["digest"] = head = digest_of({k: v for k, v in item.items() if k != "digest"})
    forged = spent.with_name("forged")
    forged_ledger = Ledger.from_dict(data, forged)
    with pytest.raises(LedgerError, match="the cost of entry 1"):
        forged_ledger.check()
    forged_ledger.close()


@pytest.mark.parametrize("keep", [0, 1, 50, 100, 4096, 5000, 8192])
def test_truncated_files(spent: Path, keep: int) -> None:
    content = spent.read_bytes()
    assert len(content) > keep
    spent.write_bytes(content[:keep])
    refuses(spent)


@pytest.mark.parametrize("content", [b"", b"hello", os.urandom(8192), b"SQLite format 3\x00" * 99])
def test_files_that_never_were_ledgers(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    refuses(path)
    with pytest.raises(LedgerError, match="There is no ledger"):
        Ledger.open(path.with_name("elsewhere"))
    with pytest.raises(LedgerError, match="is there already"):
        Ledger.create(path, "clinic", unit=Unit.USER)
    assert path.read_bytes() == content


def test_another_database_is_not_taken_for_a_ledger(path: Path) -> None:
    edit(path, "CREATE TABLE about (description TEXT)")
    assert "not a privrl ledger" in refuses(path)
    edit(path, f"PRAGMA application_id = {_APPLICATION_ID}")
    refuses(path)


def test_flipped_bytes_never_pass_silently(spent: Path) -> None:
    """Any byte that matters is noticed; the rest of a page is free space and unread."""
    with Ledger.open(spent) as ledger:
        truth = ledger.to_dict()
    content = spent.read_bytes()
    noticed = 0
    for position in range(0, len(content), 97):
        changed = bytearray(content)
        changed[position] ^= 0x15
        spent.write_bytes(bytes(changed))
        try:
            with Ledger.open(spent) as ledger:
                assert ledger.to_dict() == truth
        except LedgerError:
            noticed += 1
    assert noticed > 10


# --- the same file at another time ---------------------------------------------------------------


def test_two_identical_spends_have_different_heads(
    spent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a ledger is restored and spent from again within a second."""

    class Noon(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Noon":
            return cls(2026, 1, 1, 12, tzinfo=tz)

    monkeypatch.setattr("privrl.privacy.ledger_chain.datetime", Noon)
    backup = spent.with_name("backup")
    shutil.copy(spent, backup)
    entries = []
    for file in (spent, backup):
        with Ledger.open(file) as ledger:
            entries.append(ledger.spend(Gaussian(30, 1), run="again"))
    first, second = ({**entry.body(), "nonce": None} for entry in entries)
    assert first == second
    assert entries[0].digest != entries[1].digest


@pytest.fixture
def issued(spent: Path) -> tuple[Path, Path]:
    """A certificate of the ledger's third entry, and a copy of the ledger from before a fourth."""
    certificate, backup = spent.with_name("certificate.json"), spent.with_name("backup.ledger")
    with Ledger.open(spent) as ledger:
        third = ledger.certify("run 2", 1e-6, source=secure())
        shutil.copy(spent, backup)
        ledger.spend(Gaussian(30, 1), run="run 3")
        fourth = ledger.certify("run 3", 1e-6, source=secure())
    certificate.write_text(third.to_json())
    certificate.with_name("fourth.json").write_text(fourth.to_json())
    return certificate, backup


def test_a_ledger_that_was_rolled_back_does_not_hold_its_certificates(
    spent: Path, issued: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    third, backup = issued
    fourth = third.with_name("fourth.json")
    check = ["ledger", "check", str(spent), "--certificate", str(third)]
    assert cli.run([*check, "--certificate", str(fourth)]) == 0
    assert capsys.readouterr().out.count("went through the state") == 2
    shutil.copy(backup, spent)
    assert cli.run(check) == 0
    assert capsys.readouterr().err == ""
    assert cli.run([*check, "--certificate", str(fourth)]) == 1
    said = capsys.readouterr().err
    assert "has not the entries that" in said
    assert "fourth.json attests: it was restored from a backup or rolled back" in said
    assert said.count("\n") == 1
    # Spending the same again does not help.
    with Ledger.open(spent) as ledger:
        ledger.spend(Gaussian(30, 1), run="run 3")
        assert ledger.is_consistent_with(Certificate.read(third))
        assert not ledger.is_consistent_with(Certificate.read(fourth))
    assert cli.run([*check, "--certificate", str(fourth), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["rolled_back"] is True
    assert told["certificates"] == {str(third): True, str(fourth): False}


def test_other_ledgers_and_certificates_without_one(
    issued: tuple[Path, Path], path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.ledger"
    with Ledger.create(other, "clinic", unit=Unit.USER, limit=Budget(2.0, 1e-6)) as ledger:
        for i in range(3):
            ledger.spend(Gaussian(30, 1), run=f"run {i}", note="")
    check = ["ledger", "check", str(other), "--certificate"]
    assert cli.run([*check, str(issued[0])]) == 1
    plan = tmp_path / "plan.json"
    plan.write_text(Certificate.issue(PureDP(1.0), 0.0, unit=Unit.USER).to_json())
    capsys.readouterr()
    assert cli.run([*check, str(plan)]) == 2
    assert "issued without a ledger" in capsys.readouterr().err


def test_a_file_of_heads_notices_a_rollback_without_a_certificate(
    spent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    heads, backup = tmp_path / "heads", tmp_path / "backup.ledger"
    check = ["ledger", "check", str(spent), "--anchor", str(heads)]
    assert cli.run(check) == 0
    assert cli.run(check) == 0
    assert len(heads.read_text().splitlines()) == 1  # nothing new
    shutil.copy(spent, backup)
    with Ledger.open(spent) as ledger:
        ledger.spend(Gaussian(30, 1), run="more")
    assert cli.run(check) == 0
    noted = heads.read_text()
    assert len(noted.splitlines()) == 2
    shutil.copy(backup, spent)
    capsys.readouterr()
    assert cli.run(check) == 1
    assert "restored from a backup or rolled back" in capsys.readouterr().err
    with Ledger.open(spent) as ledger:
        ledger.spend(Gaussian(30, 1), run="more")
    assert cli.run(check) == 1
    assert heads.read_text() == noted  # what does not go on from there is not noted
    for content in ("x", "1 2 3", "\x00", "é"):
        heads.write_text(content)
        assert cli.run(check) == 2
        assert "not a file of heads" in capsys.readouterr().err
    assert cli.run([*check[:-1], str(tmp_path)]) == 2
    # Made before anything was spent, another ledger in its place is noticed too.
    new = tmp_path / "new.ledger"
    Ledger.create(new, "clinic", unit=Unit.USER).close()
    heads.unlink()
    assert cli.run(["ledger", "check", str(new), "--anchor", str(heads)]) == 0
    assert cli.run(check) == 1


# As tacit 0.1.0 wrote it: `tacit ledger export`, but for the spaces.
EARLIER = """{"kind": "tacit ledger", "format": 1, "population": "clinic", "unit": "user",
"relation": "replace-one", "people": 9000,
"limit": {"epsilon": 2.0, "delta": 1e-06, "filter": "renyi", "order": 12}, "entries": [
{"number": 1, "time": "2026-11-17T18:42:51+00:00", "run": "first", "partition": "", "slot": 0,
"events": [{"type": "Gaussian", "std": 30.0, "bound": 1.0}], "note": "\\u00fc",
"cost": [0.02666666666666667, 0.0],
"previous": "dd73b5237c16cdb29e73a90d29719eb4c34a0b828a0addf34b6ec2857c1e120d",
"digest": "51668bb832dee05756854f5bbc200cc781d8f14a3acefe5c94502fb91a294fa0"},
{"number": 2, "time": "2026-11-17T18:42:51+00:00", "run": "second", "partition": "weeks", "slot": 2,
"events": [{"type": "Laplace", "scale": 40.0, "bound": 1.0}], "note": "",
"cost": [0.014022610924372037, 0.0],
"previous": "51668bb832dee05756854f5bbc200cc781d8f14a3acefe5c94502fb91a294fa0",
"digest": "0bc4bae7a45a25ac5c61e147a0fa0cc9125d13303fcb936b03ccd559e43ecf9c"}]}"""


def earlier_file(path: Path) -> None:
    """The same as a file, with the tables that 0.1.0 made."""
    data = json.loads(EARLIER)
    entries = data.pop("entries")
    edit(path, f"PRAGMA application_id = {_APPLICATION_ID}")
    edit(path, "CREATE TABLE about (description TEXT NOT NULL)")
    edit(path, "INSERT INTO about VALUES (?)", json.dumps(data))
    edit(
        path,
        "CREATE TABLE entries (number INTEGER PRIMARY KEY, time TEXT NOT NULL,"
        " run TEXT NOT NULL, partition TEXT NOT NULL, slot INTEGER NOT NULL,"
        " events TEXT NOT NULL, note TEXT NOT NULL, first REAL NOT NULL,"
        " second REAL NOT NULL, previous TEXT NOT NULL, digest TEXT NOT NULL)",
    )
    for one in entries:
        values = [*one.values()]
        values[5] = json.dumps(one["events"])
        values[7:8] = one["cost"]
        edit(path, "INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", *values)
    edit(path, "CREATE TABLE head (number INTEGER, digest TEXT NOT NULL)")
    edit(path, "INSERT INTO head VALUES (2, ?)", entries[-1]["digest"])


@pytest.mark.parametrize("imported", [True, False])
def test_ledgers_of_earlier_versions_go_on_in_the_same_chain(path: Path, imported: bool) -> None:
    if imported:
        Ledger.from_dict(json.loads(EARLIER), path).close()
    else:
        earlier_file(path)
    with Ledger.open(path) as ledger, Ledger.open(path) as other:
        assert ledger.check() == 2
        assert ledger.about.format == 1
        assert ledger.to_dict() == json.loads(EARLIER)
        third = ledger.spend(Gaussian(30, 1), run="third")
        assert third.previous == json.loads(EARLIER)["entries"][-1]["digest"]
        assert third.nonce
        other.spend(Gaussian(30, 1), run="fourth")  # it saw the file before the nonce was added
        assert [entry.nonce is None for entry in ledger.entries()] == [True, True, False, False]
        data = ledger.to_dict()
    with Ledger.open(path) as again, Ledger.from_dict(data, path.with_name("copy")) as copy:
        assert again.check() == copy.check() == 4
        assert again.to_dict() == copy.to_dict()
    edit(path, "UPDATE entries SET nonce = NULL WHERE number = 3")
    assert "entry 3" in refuses(path)


def test_a_nonce_in_the_text_of_the_events_is_noticed(path: Path) -> None:
    """Without a nonce of its own such a row would be hashed as the one that has it."""
    earlier_file(path)
    with Ledger.open(path) as ledger:
        ledger.spend(Gaussian(30, 1), run="third")
    edit(
        path,
        "UPDATE entries SET events = events || ',\"nonce\":\"' || nonce || '\"', nonce = NULL"
        " WHERE number = 3",
    )
    assert "entry 3" in refuses(path)


def test_the_end_of_a_run_counts_however_its_empty_list_is_written(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        ledger.spend(Gaussian(30, 1), run="r")
        ledger.end("r", "token", 0)
    edit(path, "UPDATE entries SET events = '[ ]' WHERE events = '[]'")
    with Ledger.open(path) as ledger:
        assert ledger.generation("token") == (0, True)


def test_damaged_notes_of_due_certificates_are_told_of(path: Path) -> None:
    with Ledger.create(path, "clinic", unit=Unit.USER) as ledger:
        ledger.spend(Gaussian(30, 1), run="r", delta=1e-5)
        edit(path, "INSERT INTO due VALUES ('r', 'x')")
        with pytest.raises(LedgerError, match="was changed or is damaged at"):
            ledger.spend(Gaussian(30, 1), run="r", delta=1e-5)


def test_what_0_1_may_have_entered_too_low_is_assumed_not_to_be_there(path: Path) -> None:
    """One pass over a sorted stream cost more, and an entry looks like that of an actor-critic."""
    data = json.loads(EARLIER)
    for kept, disjoint in (("plain", False), ("doubtful", True)):
        (entry,) = ({k: v for k, v in one.items() if k != "digest"} for one in data["entries"][:1])
        if disjoint:
            entry["events"] = [Disjoint((Gaussian(30, 1),)).to_dict()]
        told = data | {"entries": [entry | {"digest": digest_of(entry)}]}
        with Ledger.from_dict(told, path.with_name(kept)) as ledger:
            ledger.spend(Disjoint((Gaussian(30, 1),)), run="new")
            listed = ledger.certify("new", 1e-5, source=reproducible(0)).assumptions
            assert (OLD_ENTRIES in listed) == disjoint


# --- disks and processes --------------------------------------------------------------------------


def in_child(code: str, *arguments: object) -> None:
    """Run `code` in a process of its own, with everything imported that spending needs."""
    warm = (
        "import os, resource, shutil, signal, sys\n"
        "from privrl.privacy import Gaussian, Ledger, LedgerError\n"
        "from privrl.privacy.mechanisms import GaussianMechanism\n"
        "from privrl.privacy.noise import secure\n"
        "path = sys.argv[1]\n"
        "shutil.copy(path, path + '.warm')\n"
        "with Ledger.open(path + '.warm') as ledger:\n"
        "    ledger.release(GaussianMechanism(200.0, 1.0), [0.0], secure(), run='warm')\n"
    )
    command = [sys.executable, "-c", warm + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become nobody")
def test_read_only_files(spent: Path) -> None:
    spent.chmod(0o444)
    for folder in (spent.parent, *spent.parent.parents):
        if folder.stat().st_uid == 0 and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o055)
    in_child(
        "os.setuid(65534)\n"
        "with Ledger.open(path) as ledger:\n"
        "    assert len(ledger.entries()) == 3\n"  # reading is allowed
        "    try:\n"
        "        ledger.spend(Gaussian(30, 1), run='r')\n"
        "    except LedgerError as error:\n"
        "        sys.exit(0 if 'cannot be written' in str(error) else str(error))\n"
        "sys.exit('a read-only ledger was written')\n",
        spent,
    )
    with Ledger.open(spent) as ledger:
        assert len(ledger.entries()) == 3


def test_full_disk(spent: Path) -> None:
    """A file-size limit makes writes fail as a full disk does: no entry, no release."""
    in_child(
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "released = 0\n"
        "with Ledger.open(path) as ledger:\n"
        "    size = os.stat(path).st_size\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))\n"
        "    try:\n"
        "        while True:\n"
        "            plan = GaussianMechanism(200.0, 1.0)\n"
        "            ledger.release(plan, [0.0], secure(), run='r' * 500)\n"
        "            released += 1\n"
        "    except LedgerError as error:\n"
        "        message = str(error)\n"
        "    recorded = len(ledger.entries()) - 3\n"
        "fine = 'disk is full or failing' in message and recorded == released\n"
        "sys.exit(0 if fine else f'{message} {recorded} {released}')\n",
        spent,
    )
    with Ledger.open(spent) as ledger:
        assert ledger.check() >= 3


def test_a_disk_that_is_full_when_a_ledger_is_made(spent: Path) -> None:
    """The sentence names the ledger that was asked for, and nothing is left."""
    made = spent.with_name("made.ledger")
    in_child(
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "try:\n"
        "    Ledger.create(sys.argv[2], 'clinic', unit=ledger.about.unit)\n"
        "except LedgerError as error:\n"
        "    told = f'The ledger {sys.argv[2]!r} could not be written: the disk is full'\n"
        "    sys.exit(0 if str(error).startswith(told) else str(error))\n"
        "sys.exit('made without room')\n",
        spent,
        made,
    )
    assert not [one for one in spent.parent.iterdir() if "made.ledger" in one.name]


def test_a_process_that_died_with_the_lock_does_not_hold_it(spent: Path) -> None:
    code = (
        "import os, sys, sqlite3; c = sqlite3.connect(sys.argv[1], isolation_level=None);"
        "c.execute('BEGIN EXCLUSIVE'); c.execute('DELETE FROM entries WHERE number = 3');"
        "print('locked', flush=True); os.kill(os.getpid(), 9)"
    )
    dead = subprocess.run(
        [sys.executable, "-c", code, str(spent)], capture_output=True, check=False
    )
    assert dead.returncode == -signal.SIGKILL
    with Ledger.open(spent) as ledger:
        ledger.spend(Gaussian(30, 1), run="after")
        assert len(ledger.entries()) == 4


def test_a_living_process_with_the_lock_is_waited_for_and_then_named(
    spent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("privrl.privacy.ledger_file.LOCK_TIMEOUT", 0.2)
    holder = sqlite3.connect(spent, isolation_level=None)
    with Ledger.open(spent) as ledger:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match="in use by another process"):
            ledger.spend(Gaussian(30, 1), run="r")
        holder.execute("ROLLBACK")
        ledger.spend(Gaussian(30, 1), run="r")
    holder.close()


def trials(*calls: str) -> list[dict[str, Any]]:
    """What functions of `benchmarks.ledger` found, in a process of their own."""
    found = "".join(f"print(json.dumps({call}))\n" for call in calls)
    done = subprocess.run(
        [sys.executable, "-c", f"import json\nfrom benchmarks.ledger import *\n{found}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def assert_trials(kills: int, races: int) -> None:
    calls = (f"kill_trials({kills})", "kill_trials(20, sabotaged)", f"race_trials({races})")
    killed, twin, raced = trials(*calls)
    assert killed["trials"] == kills
    assert killed["released"] > kills / 2  # the processes lived long enough to do something
    assert killed["released_more_than_paid"] == 0
    # A twin that draws first and pays afterwards is caught by the same trials: by three kills in
    # four, so that twenty miss it once in 10^12.
    assert twin["released_more_than_paid"] > 0
    assert raced["one_got_it"] == races


def test_kill_and_race_trials() -> None:
    assert_trials(40, 20)


@pytest.mark.slow
def test_a_thousand_kill_and_race_trials() -> None:
    assert_trials(1000, 1000)


# --- JSON and the command line --------------------------------------------------------------------


def test_export_and_import(spent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["ledger", "export", str(spent)]) == 0
    text = capsys.readouterr().out
    file, copy = tmp_path / "ledger.json", tmp_path / "copy.ledger"
    file.write_text(text)
    assert cli.run(["ledger", "import", str(copy), str(file)]) == 0
    with Ledger.open(spent) as one, Ledger.open(copy) as other:
        assert one.to_dict() == other.to_dict()
        assert other.check() == 3
        other.spend(Gaussian(30, 1), run="goes on")
    changes: list[Callable[[Any], Any]] = [
        lambda d: d["entries"][1].update(run="x"),
        lambda d: d["entries"].pop(0),
        lambda d: d["entries"][2].pop("note"),
        lambda d: d.update(population="x"),
        lambda d: d.update(format=99),
        lambda d: d.update(kind="x"),
        lambda d: d.update(entries=None),
        lambda d: d["limit"].update(epsilon=-1),
    ]
    for change in changes:
        data = json.loads(text)
        change(data)
        target = tmp_path / "bad.ledger"
        file.write_text(json.dumps(data))
        assert cli.run(["ledger", "import", str(target), str(file)]) == 2
        assert not target.exists()


def test_command_line(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create = ["ledger", "create", str(path), "--population", "clinic", "--people", "100"]
    assert cli.run([*create, "--epsilon", "1", "--delta", "0.1"]) == 0
    assert "warning: delta 0.1 is not below 1/100" in capsys.readouterr().err
    assert cli.run([*create, "--epsilon", "1"]) == 2
    assert "is there already" in capsys.readouterr().err
    with Ledger.open(path) as ledger:
        ledger.spend(Gaussian(30, 1), run="monday")
    assert cli.run(["ledger", "show", str(path)]) == 0
    out = capsys.readouterr().out
    assert "monday" in out
    assert "is left" in out
    assert max(map(len, out.splitlines())) <= 80
    assert cli.run(["ledger", "show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["entries"] == 1
    assert shown["epsilon"] == shown["runs"]["monday"] == epsilon(Gaussian(30, 1), 0.1)
    assert cli.run(["ledger", "check", str(path), "--json"]) == 0
    checked = json.loads(capsys.readouterr().out)
    assert (checked["checked"], checked["entries"], checked["rolled_back"]) == (True, 1, False)


def test_text_in_a_ledger_does_not_steer_the_terminal(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trick = "\x1b[2J\x1b[1;1Hclinic\r\u202e"
    with Ledger.create(path, trick, unit=Unit.USER, limit=Budget(1.0)) as ledger:
        ledger.spend(PureDP(0.1), run=f"monday{trick}")
        certificate = ledger.certify(f"monday{trick}", 0.0, source=secure())
    assert cli.run(["ledger", "show", str(path)]) == 0
    shown = capsys.readouterr().out
    assert r"\x1b[2J\x1b[1;1Hclinic\r\u202e" in shown
    assert all(
        line.isprintable() for line in [*shown.splitlines(), *certificate.card().split("\n")]
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["show", "nowhere"], "There is no ledger"),
        (["show", "n" * 300], "There is no ledger"),
        (["create", "new", "--population", "p", "--unit", "reward-function"], "belong together"),
        (["check", "nowhere"], "There is no ledger"),
        (["import", "new", "nowhere"], "cannot be read"),
        (["create", "new", "--population", " "], "name of its population"),
        (["create", "new", "--population", "p", "--people", "0"], "people must be at least 1"),
        (["create", "new", "--population", "p", "--delta", "1e-5"], "needs --epsilon"),
        (["create", "new", "--population", "p", "--filter", "sum"], "say what the limit is"),
        (["create", "new", "--population", "p", "--unit", "cat"], "not a unit"),
        (["create", "no/folder", "--population", "p"], "cannot be made"),
    ],
)
def test_bad_input_on_the_command_line(
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["ledger", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert sentence in printed.err
    assert list(tmp_path.iterdir()) == []


def test_two_handles_in_one_process_see_each_other(path: Path) -> None:
    one = Ledger.create(path, "clinic", unit=Unit.USER, limit=Budget(1.0))
    with one, Ledger.open(path) as other:
        one.spend(PureDP(0.5), run="a")
        other.spend(PureDP(0.5), run="b")
        with pytest.raises(OverBudget):
            one.spend(PureDP(0.1), run="c")
        assert [e.run for e in one.entries()] == ["a", "b"]


def test_copies_do_not_disturb_each_other(spent: Path) -> None:
    copy = spent.with_name("copy")
    shutil.copy(spent, copy)
    with Ledger.open(copy) as ledger:
        ledger.spend(Gaussian(30, 1), run="copy")
    with Ledger.open(spent) as ledger:
        assert len(ledger.entries()) == 3
