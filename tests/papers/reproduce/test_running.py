"""Runs in parts: what is done is kept, and a resumed run equals one that was never stopped."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from privrl.core.errors import InputError
from privrl.papers.reproduce import Plan, Reading, catalogue, results
from privrl.papers.reproduce.__main__ import page as verdicts_page
from privrl.papers.reproduce.page import html, lines
from privrl.papers.reproduce.running import findings_of, run, write_pictures
from privrl.papers.reproduce.target import Target
from tests.papers.reproduce import toy
from tests.papers.reproduce.toy import CALLS, make_experiment, make_figure, make_target


@pytest.fixture(autouse=True)
def no_calls() -> Iterator[None]:
    CALLS.clear()
    yield
    CALLS.clear()


def rows_of(folder: Path, target: Target) -> dict[str, Any]:
    """All rows, without how long they took."""
    held = results.read(folder / f"{target.experiment.name}.json", target.experiment)
    return {digest: part.rows for digest, part in held.parts.items()}


def test_the_nearest_reading_is_chosen_on_seeds_below_ten_and_judged_on_others(
    tmp_path: Path,
) -> None:
    (finding,) = run([make_target()], tmp_path)
    assert finding.chosen.name == "shifted"  # by 1, to what is printed
    assert finding.verdict.word == "reproduced"
    assert finding.verdict.readings == 2
    assert finding.verdict.seeds == 20
    printed, shifted = finding.readings
    assert printed.distance is not None
    assert shifted.distance is not None
    assert shifted.distance < 1.0 < printed.distance
    assert printed.verdict is not None
    assert printed.verdict.word == "direction only"
    seeds = {seed for _, some in CALLS for seed in some}
    assert seeds == {*range(10), *range(100, 120)}
    assert finding.results.privacy[0]["epsilon"] == 2.5


def test_progress_only_grows_and_knows_all_that_is_left(tmp_path: Path) -> None:
    shares: list[tuple[str, float | None]] = []
    run(
        [
            make_target(),
            make_target(name="toy.table2", experiment=make_experiment(name="toy.more")),
        ],
        tmp_path,
        progress=lambda what, share=None: shares.append((what, share)),
    )
    numbers = [share for _, share in shares if share is not None]
    assert numbers == sorted(numbers)
    assert (numbers[0], numbers[-1]) == (0.0, 1.0)
    assert shares[0][0] == "0 of 48 parts, toy.runs"
    assert shares[-1][0] == "48 of 48 parts, toy.more"


def test_what_was_run_is_not_run_again(tmp_path: Path) -> None:
    target = make_target()
    first = run([target], tmp_path)
    count = len(CALLS)
    assert count == 2 * 4 + 2 * 4 * 2
    again = run([target], tmp_path)
    assert len(CALLS) == count
    assert again[0].verdict == first[0].verdict
    run([target], tmp_path, seeds=range(120, 130))
    assert len(CALLS) == count + 2 * 4
    later = make_target(experiment=make_experiment(revision=2))
    run([later], tmp_path)
    assert len(CALLS) == 2 * count + 2 * 4


def test_a_resumed_run_equals_one_that_was_never_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = make_target()
    whole = run([target], tmp_path / "whole")
    real = toy.trials
    stopped: list[bool] = []

    def stop_once(options: Any, setting: Any, seeds: Any) -> Any:
        if seeds[0] == 110 and not stopped:
            stopped.append(True)
            raise KeyboardInterrupt
        return real(options, setting, seeds)

    monkeypatch.setattr(toy, "trials", stop_once)
    with pytest.raises(KeyboardInterrupt):
        run([target], tmp_path / "parts")
    done = len(rows_of(tmp_path / "parts", target))
    assert 0 < done < len(rows_of(tmp_path / "whole", target))
    CALLS.clear()
    resumed = run([target], tmp_path / "parts")
    assert len(CALLS) == len(rows_of(tmp_path / "whole", target)) - done
    assert rows_of(tmp_path / "parts", target) == rows_of(tmp_path / "whole", target)
    assert resumed[0].verdict == whole[0].verdict


@pytest.mark.slow
def test_a_cluster_gives_the_same_rows(tmp_path: Path) -> None:
    from privrl.run import cluster

    target = make_target()
    here = run([target], tmp_path / "here")
    with cluster.own_cluster(num_cpus=2, object_store_memory=100 * 2**20):
        there = run([target], tmp_path / "there", workers="ray")
    assert rows_of(tmp_path / "there", target) == rows_of(tmp_path / "here", target)
    assert there[0].verdict == here[0].verdict


def test_quick_runs_of_reduced_sizes_are_not_compared(tmp_path: Path) -> None:
    (finding,) = run([make_target()], tmp_path, quick=True)
    assert finding.verdict.word == "not comparable"
    assert "quick" in finding.verdict.reason
    assert {seed for _, some in CALLS for seed in some} == {100, 101, 102}
    # A full run counts before it, though both are in the file.
    (full,) = run([make_target()], tmp_path)
    assert full.verdict.word == "reproduced"


def test_several_targets_share_an_experiment(tmp_path: Path) -> None:
    both = [make_target(), make_figure()]
    assert [one.verdict.word for one in run(both, tmp_path)] == ["reproduced", "reproduced"]
    assert len(CALLS) == 2 * 4 + 2 * 4 * 2


def damage(change: Callable[[dict[str, Any]], Any], folder: Path) -> None:
    path = folder / "toy.runs.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


def first(data: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = next(iter(data["parts"].values()))
    return part


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda data: data.update(kind="privrl study"), "is not results"),
        (lambda data: data.update(format=9), "another version"),
        (lambda data: data.update(experiment="toy.others"), "another experiment"),
        (lambda data: data.pop("parts"), "is damaged"),
        (lambda data: first(data).update(rows=[[1]]), "is damaged"),
        (lambda data: first(data)["rows"][0].__setitem__(0, 7777), "is damaged"),
        (lambda data: first(data)["setting"].update(method="fair!"), "is damaged"),
        (lambda data: first(data).update(made=5), "is damaged"),
        (lambda data: data.update(parts=[]), "is damaged"),
    ],
)
def test_damaged_files_are_refused_in_a_sentence(
    tmp_path: Path, change: Any, sentence: str
) -> None:
    target = make_target()
    run([target], tmp_path, quick=True)
    damage(change, tmp_path)
    with pytest.raises(InputError, match=sentence):
        findings_of([target], tmp_path)


def test_seeds_that_choose_readings_are_not_judged(tmp_path: Path) -> None:
    for seeds in (range(10), range(99, 110), range(100, 100)):
        with pytest.raises(InputError, match="seeds must be a range from 100 on"):
            run([make_target()], tmp_path, seeds=seeds)


def test_rows_that_are_not_of_their_seeds_are_a_fault(tmp_path: Path) -> None:
    wrong = make_experiment(run="tests.papers.reproduce.toy:privacy_rows")
    with pytest.raises(TypeError):
        run([make_target(experiment=wrong)], tmp_path)


def test_results_have_versions_and_no_paths(tmp_path: Path) -> None:
    run([make_target()], tmp_path, quick=True)
    text = (tmp_path / "toy.runs.json").read_text()
    assert str(tmp_path) not in text
    made = json.loads(text)["made"]
    assert len(made) == 1
    assert set(made[0]) == {"versions", "code", "machine"}
    assert {"privrl", "python", "numpy", "jax"} <= set(made[0]["versions"])
    assert set(made[0]["machine"]) == {"cpu", "cores"}


def test_pages_and_pictures_escape_what_they_show(tmp_path: Path) -> None:
    targets = [make_target(), make_figure()]
    findings = run(targets, tmp_path)
    page = html(findings)
    assert "Scores &lt;of&gt; methods" in page
    assert "<of>" not in page
    for words in ("Good is best.", "shifted (chosen)", "It may be.", "2.5", "A note.", "privrl "):
        assert words in page
    write_pictures(findings, tmp_path)
    picture = (tmp_path / "toy.figure1.svg").read_text()
    assert picture.count("<svg") == 3
    assert "stroke-dasharray" in picture
    assert (tmp_path / "toy.table1.svg").read_text().count("✓") == 3  # two cells and the key
    assert any("reproduced" in line for line in lines(findings))
    told = verdicts_page(findings)
    assert "2 tables and figures: 2 reproduced, 0 direction only" in told
    assert "| toy.table1 | Scores <of> methods | **reproduced** | shifted (2) | 20 | All" in told
    assert "| toy.figure1 | Good is best. | holds |" in told


def test_nothing_was_run(tmp_path: Path) -> None:
    (finding,) = findings_of([make_target()], tmp_path)
    assert finding.verdict.word == "not comparable"
    assert finding.verdict.reason == "Nothing was run."
    assert "Not run." in html([finding])


def test_readings_that_lack_rows_are_not_judged(tmp_path: Path) -> None:
    readings = (
        Reading("as printed"),
        Reading("far", {"good": {"shift": 9.0}}),
        Reading("near", {"good": {"shift": 1.0}}),
    )
    by = make_experiment(readings=readings, options_by="method")
    (finding,) = run([make_target(experiment=by)], tmp_path)
    assert finding.chosen.name == "near"
    # All but one of the rows of "far" are there: those that it shares.
    assert [one.verdict is None for one in finding.readings] == [False, True, False]
    assert "not judged" in html([finding])


def test_one_reading_is_not_chosen(tmp_path: Path) -> None:
    alone = make_experiment(readings=(Reading("as printed"),), full=Plan(range(100, 104)))
    (finding,) = run([make_target(experiment=alone)], tmp_path)
    assert finding.verdict.readings == 1
    assert {seed for _, some in CALLS for seed in some} == set(range(100, 104))


def test_what_readings_have_in_common_is_run_once(tmp_path: Path) -> None:
    """Options by method: readings that differ in one method share the parts of all others."""
    by = make_experiment(
        options_by="method",
        readings=(
            Reading("as printed"),
            Reading("shifted", {"good": {"shift": 1.0}, "fair": {"shift": 1.0}}),
            Reading("good alone", {"good": {"shift": 1.0}}),
        ),
        quick_settings=({"method": "fair"},),
    )
    target = make_target(experiment=by)
    (finding,) = run([target], tmp_path / "full")
    assert finding.chosen.name == "shifted"
    assert finding.verdict.word == "reproduced"
    # To choose, 4 methods and 2 that are shifted; to judge, the same, in two parts each.
    assert len(CALLS) == 3 * (4 + 2)
    third = finding.readings[2]
    assert third.distance is not None
    assert third.verdict is not None  # all its rows are there
    CALLS.clear()
    run([target], tmp_path / "quick", quick=True)
    assert {name for name, _ in CALLS} == {"fair"}


def test_wrong_names_get_near_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {one.name: one for one in (make_target(), make_figure())}
    monkeypatch.setattr(catalogue, "load", lambda: known)
    assert [one.name for one in catalogue.find(["toy.table1", "toy"])] == list(known)
    assert [one.name for one in catalogue.find(["all"])] == list(known)
    with pytest.raises(InputError, match=r"no target 'toy\.tabel1'. Near are toy\.table1"):
        catalogue.find(["toy.tabel1"])
