"""Nothing but noised figures tells one table from another that differs in one person."""

import inspect
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privrl.data import stream
from privrl.evaluation import dplsw, gtd_iterations, private_gtd, private_value
from privrl.evaluation.allotment import Allotment
from privrl.evaluation.sums import Sums, clip_scales
from privrl.privacy import InputError
from privrl.report import folder as report_folder
from privrl.report.page import write
from privrl.run import request
from tests.neighbours.commands import commands
from tests.neighbours.comparing import compare
from tests.neighbours.hunting import Pair, applies, compared, few, replayed, spread
from tests.neighbours.known import unheard_of
from tests.neighbours.running import Command, Stance, run, stances, thresholds
from tests.neighbours.tables import CHOSEN, Replacement, people, quick, replacements

COMMANDS = {one.name: one for one in commands()}
QUICK = [name for name, one in COMMANDS.items() if one.quick]


def problems(pairs: list[Pair]) -> str:
    """One in a line."""
    return "\n".join(pair.problem for pair in pairs if pair.problem)


def short_list(name: str, stance: Stance, shared: bool) -> list[Replacement]:
    """One of each kind; if they are shared out, those of them that fall to this command."""
    if not shared:
        return few(COMMANDS[name], quick())
    among = [COMMANDS[one] for one in QUICK]
    return spread(COMMANDS[name], among, quick())


# What is compiled in every run, or has noise as wide as the data asks for.
_FIGURES = ["evaluate value,gpope", "evaluate dplsw", "evaluate value,dplsw,dplsl, CSV"]


def each(first: int, *more: str) -> pytest.MarkDecorator:
    """Quick tests share out stances and kinds of replacements; slow ones try each with each.

    Four commands take turns at the kinds, so the next four have the other stance.
    """
    both = stances()
    return pytest.mark.parametrize(
        ("name", "stance", "shared"),
        [(name, both[(i // 4 + first) % len(both)], True) for i, name in enumerate(QUICK)]
        + [
            pytest.param(name, stance, False, marks=pytest.mark.slow)
            for name in [*QUICK, "evaluate --stream --sort", *more]
            for stance in both
        ],
    )


@each(0, *_FIGURES)
def test_nothing_but_figures_differs(
    name: str, stance: Stance, shared: bool, tmp_path: Path
) -> None:
    chosen = short_list(name, stance, shared)
    pairs = list(compared(COMMANDS[name], chosen, stance, tmp_path))
    assert not problems(pairs)
    # Figures do differ, or nothing would be compared.
    assert {pair.verdict for pair in pairs} & {"figures", "closed"}


@each(1, *_FIGURES)
def test_no_sum_moves_by_more_than_is_paid_for(
    name: str, stance: Stance, shared: bool, tmp_path: Path
) -> None:
    chosen = short_list(name, stance, shared)
    pairs = list(replayed(COMMANDS[name], chosen, stance, tmp_path))
    assert not problems(pairs)
    # A smooth bound is that of data which differ in many: few neighbours come near it.
    least = 0.01 if COMMANDS[name].noise == "smooth" else 0.1
    assert any(pair.moved > least for pair in pairs) or (stance == "neutral" and not pairs)


@pytest.mark.nightly
@pytest.mark.parametrize("stance", stances())
@pytest.mark.parametrize("name", COMMANDS)
def test_nothing_but_figures_differs_in_all_pairs(
    name: str, stance: Stance, tmp_path: Path
) -> None:
    assert not problems(list(compared(COMMANDS[name], replacements(), stance, tmp_path)))


@pytest.mark.nightly
@pytest.mark.parametrize("stance", stances())
@pytest.mark.parametrize("name", COMMANDS)
def test_no_sum_moves_by_more_than_is_paid_for_in_all_pairs(
    name: str, stance: Stance, tmp_path: Path
) -> None:
    assert not problems(list(replayed(COMMANDS[name], replacements(), stance, tmp_path)))


@pytest.mark.nightly
@pytest.mark.parametrize("stance", stances())
@pytest.mark.parametrize("usual", ["all the best", "all the worst", "rewards of -1e308"])
@pytest.mark.parametrize(
    "name", [n for n, one in COMMANDS.items() if one.noise == "source" and one.call is not None]
)
def test_no_sum_moves_further_from_extreme_people(
    name: str, usual: str, stance: Stance, tmp_path: Path
) -> None:
    """The distance between two people is largest where neither of them is usual."""
    (first,) = (one for one in replacements() if one.name == usual)
    # Nobody is moved here: what comes of that is known from the usual table.
    listed = [one for one in replacements() if not one.moves]
    pairs = list(replayed(COMMANDS[name], listed, stance, tmp_path, first))
    assert [p.problem for p in pairs if p.finding and p.known is None] == []


def test_every_kind_of_replacement_falls_to_some_command() -> None:
    for stance in stances():
        chosen = {one.name for name in QUICK for one in short_list(name, stance, shared=True)}
        assert chosen == {one.name for one in quick()}


def test_names_are_those_of_something() -> None:
    names = [one.name for one in replacements()]
    assert len(set(names)) == len(names)
    assert len(COMMANDS) == len(commands())
    assert unheard_of(set(COMMANDS)) == []
    # Everybody else's rows are the same, and nobody is there in vain.
    everybody = people()
    usual = [row for number, one in enumerate(everybody) for row in one if number != CHOSEN]
    for one in replacements():
        table = one.table(everybody)
        assert [row for row in table if row in usual] == usual, one.name
        assert any(applies(command, one) for command in COMMANDS.values()), one.name


def test_thresholds_are_put_back() -> None:
    def seen() -> tuple[object, ...]:
        reads = inspect.signature(stream.stream_parquet).parameters["batch_rows"].default
        return reads, vars(stream)["READ_ROWS"]

    before = seen()
    with thresholds({"privrl.data.stream.stream_parquet:batch_rows": 7}):
        assert seen() == (7, 16)
    assert seen() == before
    assert before[0] != 7
    # One that is gone would be a search that finds nothing.
    for gone in ("privrl.data.stream.NO_ROWS", "privrl.data.stream.stream_parquet:no_rows"):
        with pytest.raises((AttributeError, ValueError)), thresholds({gone: 3}):
            pass
    assert seen() == before


# --- what the harness must see -------------------------------------------------------------------


def findings(command: Command, tmp_path: Path, *names: str) -> list[str]:
    """What is found with these replacements; all of them, if none is named."""
    chosen = [one for one in quick() if one.name in names or not names]
    stance = stances()[0]
    pairs = [*compared(command, chosen, stance, tmp_path)]
    return [pair.finding for pair in pairs if pair.finding and pair.known is None]


def test_a_figure_without_noise_in_the_study_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A note that counts rows."""
    load = request.Request.load

    def told(self: request.Request, policy: Any) -> Any:
        data: Any = load(self, policy)
        object.__setattr__(self, "title", f"About {data.num_steps} rows")
        return data

    monkeypatch.setattr(request.Request, "load", told)
    found = findings(COMMANDS["evaluate value,gtd,lstd"], tmp_path, "more rows")
    assert found
    assert found[0].startswith("run/study.json: command: ")


def test_a_word_on_stderr_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A warning of one person's overflow."""
    load = request.Request.load

    def told(self: request.Request, policy: Any) -> Any:
        data: Any = load(self, policy)
        if np.abs(data.rewards).max() > 1e6:
            print("overflow encountered", file=sys.stderr)
        return data

    monkeypatch.setattr(request.Request, "load", told)
    found = findings(COMMANDS["evaluate value,gtd,lstd"], tmp_path, "rewards of 1e308")
    assert found == ["stderr: '' / 'overflow encountered\\n'"]


def test_an_exit_code_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = request.Request.load

    def failed(self: request.Request, policy: Any) -> Any:
        data: Any = load(self, policy)
        assert np.abs(data.rewards).max() < 1e6
        return data

    monkeypatch.setattr(request.Request, "load", failed)
    found = findings(COMMANDS["evaluate value,gtd,lstd"], tmp_path, "rewards of 1e308")
    assert len(found) == 1
    assert found[0].startswith("exit code: 0 / AssertionError")


def test_a_report_that_knows_more_than_its_study_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []
    load = request.Request.load

    def kept(self: request.Request, policy: Any) -> Any:
        data: Any = load(self, policy)
        rows.append(data.num_steps)
        return data

    def more(study: Any, path: Path) -> None:
        write(study, path)
        path.write_text(path.read_text() + f"<!-- {rows[-1]} -->")

    monkeypatch.setattr(request.Request, "load", kept)
    monkeypatch.setattr(report_folder, "write", more)
    found = findings(COMMANDS["evaluate value,gtd,lstd"], tmp_path, "more rows")
    assert found == ["run/report.html: it is not what its study gives"]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("results", 0, "estimate"), None),
        (("results", 0, "estimate"), True),
        (("results", 1, "weights"), [0.0]),
        (("results", 0, "interval"), None),
        (("results", 0, "details", "units"), 11),
        (("results", 0, "details", "noise_std", "target"), 1.0),
        (("certificate", "epsilon"), 0.9),
        (("curve", 0, "half_width"), 0.1),
        (("facts", 0, "value"), "11"),
        (("notes",), []),
    ],
)
def test_what_is_no_figure_is_seen(path: tuple[Any, ...], value: Any, tmp_path: Path) -> None:
    command, stance = COMMANDS["evaluate value,gtd by trajectory, CSV"], stances()[0]
    usual = run(command, [row for one in people() for row in one], tmp_path, stance)
    assert usual is not None
    study = json.loads(usual.out)
    inside = study
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    other = replace(usual, out=json.dumps(study) + "\n")
    assert compare(usual, usual, stance, tmp_path).verdict == "same"
    assert compare(usual, other, stance, tmp_path).findings
    study = json.loads(usual.out)
    study["results"][0]["estimate"] += 1.0
    other = replace(usual, out=json.dumps(study) + "\n")
    assert compare(usual, other, stance, tmp_path).verdict == "figures"


def test_a_refusal_that_pays_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong must go wrong before anything is paid for."""
    shipped = private_gtd.PrivateGTD.prepare

    def too_large() -> Any:
        raise InputError("The rewards are too large.")

    @contextmanager
    def late(self: Any, data: Any, *given: Any, **more: Any) -> Iterator[Any]:
        with shipped(self, data, *given, **more) as found:
            large = np.abs(data.rewards).max() > 1e6
            yield replace(found, run_iterations=too_large) if large else found

    monkeypatch.setattr(private_gtd.PrivateGTD, "prepare", late)
    found = findings(COMMANDS["evaluate --ledger"], tmp_path, "rewards of 1e308")
    assert len(found) == 1
    assert found[0].startswith(
        "stderr of a refusal: privrl: The rewards are too large. What was begun"
    )


def moved(name: str, tmp_path: Path, *names: str) -> list[str]:
    """What is found when it is replayed."""
    chosen = [one for one in quick() if one.name in names]
    pairs = list(replayed(COMMANDS[name], chosen, stances()[0], tmp_path))
    assert pairs
    return [pair.finding for pair in pairs if pair.finding]


def test_a_clip_bound_that_is_not_kept_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gtd_iterations, "clip_scales", lambda *given: 4.0 * clip_scales(*given))
    found = moved("Python: PrivateGTD", tmp_path, "a single row", "a very long trajectory")
    assert any("times what was charged for" in one for one in found)


def test_steps_that_are_cut_by_rows_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more row, and people behind are in another step."""

    def by_rows(self: Allotment, count: int) -> Any:
        rows = 0
        for part in self.parts():
            for number, length in enumerate(np.diff(part.offsets)):
                yield min(rows // 8, count - 1), part.take(np.array([number]))
                rows += int(length)

    monkeypatch.setattr(Allotment, "steps", by_rows)
    name = "Python: PrivateGTD, one pass, stream"
    found = moved(name, tmp_path, "more rows", "fewer rows", "a single row")
    assert any("batches differ" in one for one in found)


def test_noise_that_depends_on_a_person_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered = private_value.PrivateValue.gather

    def louder(self: Any, batch: Any, policy: Any = None, **more: Any) -> Any:
        found = gathered(self, batch, policy, **more)
        # A sum that is scaled by how many rows there are.
        return Sums(found.unit, found.count, found.total * batch.num_steps)

    monkeypatch.setattr(private_value.PrivateValue, "gather", louder)
    found = moved("Python: PrivateValue, CSV", tmp_path, "more rows")
    assert any("times what was charged for" in one for one in found)


def test_a_smooth_bound_that_is_too_small_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "Python: DPLSL"
    assert moved(name, tmp_path, "rewards of 1e308", "a single row") == []
    monkeypatch.setattr(dplsw, "scale_bound", lambda bound, width: 0.01 * width * bound)
    found = moved(name, tmp_path, "rewards of 1e308", "a single row")
    assert any("times what was charged for" in one for one in found)


def test_outcomes_are_whole(tmp_path: Path) -> None:
    """What is compared is all that a run shows."""
    command = COMMANDS["evaluate --ledger"]
    rows = [row for one in people() for row in one]
    outcome = run(command, rows, tmp_path, stances()[0])
    assert outcome is not None
    assert set(outcome.files) == {
        "people.ledger",
        "run/certificate.json",
        "run/report.html",
        "run/study.json",
    }
    again = run(command, rows, tmp_path, stances()[0])
    assert again == outcome
    study = json.loads(outcome.files["run/study.json"][1])
    assert study["created"] == "2026-01-01T12:00:00+00:00"
