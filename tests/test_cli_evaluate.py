"""`privrl evaluate`, `privrl report` and `privrl demo` as people meet them."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.data import Tabular
from privrl.evaluation.private_figures import COVARIANCE
from privrl.evaluation.private_value import BOUND
from privrl.privacy import (
    ApproxDP,
    Budget,
    Certificate,
    DiscreteGaussian,
    Gaussian,
    InputError,
    Ledger,
    Relation,
    Unit,
)
from privrl.report.words import describe_method
from privrl.run.study import Study
from tests.run.test_request import JUDGED, stays, table


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """A complete command, but for where the run goes."""
    pa_csv.write_csv(table(stays()), tmp_path / "stays.csv")
    JUDGED.save(tmp_path / "policy.json")
    given = {
        "policy": tmp_path / "policy.json",
        "trajectory": "stay",
        "state": "condition",
        "action": "treatment",
        "reward": "outcome",
        "behavior-prob": "p",
        "states": "mild,moderate,severe",
        "actions": "wait,treat",
        "epsilon": 1,
        "delta": 1e-5,
        "reward-range": "0,1",
        "horizon": 5,
        "weight-cap": 4,
    }
    listed = [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    return ["evaluate", str(tmp_path / "stays.csv"), *listed]


def without(words: list[str], *options: str) -> list[str]:
    """The command less these options, each of which has a value."""
    dropped = {place + k for name in options for place in [words.index(name)] for k in (0, 1)}
    return [word for place, word in enumerate(words) if place not in dropped]


def visible(page: str) -> str:
    """What is read on a page, pictures among it."""
    return re.sub(r"<[^>]+>", " ", re.sub(r"<style.*?</style>", " ", page, flags=re.DOTALL))


def test_a_run_fills_its_folder(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run([*words, "--out", str(run)]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith(f"The report is {run / 'report.html'}.\n")
    assert all(len(line) < 80 for line in printed.splitlines()[:-1])
    assert sorted(path.name for path in run.iterdir()) == [
        "certificate.json",
        "report.html",
        "study.json",
    ]
    Certificate.read(run / "certificate.json").verify(strict=True)
    assert cli.run(["verify", str(run / "certificate.json"), "--strict"]) == 0
    study = Study.load(run / "study.json")
    assert study.command.startswith("privrl evaluate ")
    first = (run / "report.html").read_text()
    assert cli.run(["report", str(run)]) == 0
    assert (run / "report.html").read_text() == first


@pytest.mark.parametrize("how", [[], ["--public"], ["--invalid", "neutral", "--people", "50"]])
def test_a_policy_that_knows_fewer_states_is_refused(
    how: list[str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its other states would count as if it acted at random there."""
    Tabular(JUDGED.table[:2]).save(tmp_path / "policy.json")
    ledger = tmp_path / "ledger"
    paying = ["--ledger", str(ledger)]
    if how == ["--public"]:
        at = words.index("--epsilon")
        words, paying = words[:at] + words[at + 4 :], []
    Ledger.create(ledger, "p", unit=Unit.TRAJECTORY).close()
    assert cli.run([*words, *how, *paying, "--out", str(tmp_path / "run")]) == 2
    assert "The policy's table has 2 states, but the data has 3" in capsys.readouterr().err
    with Ledger.open(ledger) as held:
        assert not held.entries()


@pytest.mark.parametrize("grid", [False, True])
def test_what_is_charged_is_the_distance_between_two_people(
    grid: bool, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of it is the bound of the event, and the noise of the figures is what is left."""
    run = tmp_path / "run"
    assert cli.run([*words, *(["--grid"] if grid else []), "--out", str(run), "--json"]) == 0
    details = json.loads(capsys.readouterr().out)["results"][0]["details"]
    (event,) = Certificate.read(run / "certificate.json").events
    assert isinstance(event, DiscreteGaussian if grid else Gaussian)
    # std over bound is the same in any unit, and so is what the figures say of the noise.
    units, span, cap = details["units"], 5.0, 4.0
    std = BOUND * event.std / event.bound
    stds = std * np.sqrt(np.diagonal(COVARIANCE)) / units
    told = details["noise_std"]
    assert told["target"] == pytest.approx(cap * span / 2 * float(np.hypot(*stds[:2])), rel=1e-6)
    assert told["behavior"] == pytest.approx(span / 2 * float(stds[2]), rel=1e-6)
    assert told["behavior"] / told["target"] == pytest.approx(0.3043, abs=2e-4)


def test_a_run_is_never_written_over(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run([*words, "--out", str(run)]) == 0
    before = (run / "study.json").read_text()
    assert cli.run([*words, "--out", str(run)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert (run / "study.json").read_text() == before


def test_everything_as_json(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = [*words, "--terminated", "true"]
    assert cli.run([*ended, "--out", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["certificate"]["epsilon"] <= 1.0
    assert found["files"]["report"] == str(tmp_path / "run" / "report.html")
    assert [one["method"] for one in found["results"]] == ["PrivateValue", "PrivateGTD"]


@pytest.mark.slow
def test_certificates_of_a_pass_say_nothing_of_one_persons_rows(
    words: list[str], tmp_path: Path
) -> None:
    """On a sorted stream, where all that decides who takes part when must be public or secret."""
    rows = table(stays())
    first = rows.slice(0, 1)
    longer = pa.concat_tables([rows, *[first] * 3])
    texts = []
    for name, given in (("here", rows), ("there", longer)):
        pq.write_table(given, tmp_path / f"{name}.parquet")
        said = ["evaluate", str(tmp_path / f"{name}.parquet"), *words[2:], "--user", "patient"]
        said += ["--stream", "--sort", "--terminated", "true", "--out", str(tmp_path / name)]
        assert cli.run(said) == 0
        texts.append((tmp_path / name / "certificate.json").read_text())
    assert texts[0] == texts[1]
    assert "RandomAllocation" in texts[0]
    assert cli.run(["verify", str(tmp_path / "there" / "certificate.json"), "--strict"]) == 0


def test_a_ledger_pays(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cohort.ledger"
    Ledger.create(path, "cohort", unit=Unit.TRAJECTORY, relation=Relation.REPLACE_ONE).close()
    paid = ["--ledger", str(path)]
    assert cli.run([*words, *paid, "--out", str(tmp_path / "first")]) == 0
    assert cli.run([*words, *paid, "--out", str(tmp_path / "second"), "--name", "again"]) == 0
    with Ledger.open(path) as ledger:
        assert [entry.run for entry in ledger.entries()] == ["first", "again"]
    population = Certificate.read(tmp_path / "second" / "certificate.json").population
    assert population is not None
    assert population.entries == 2
    assert population.epsilon is not None
    assert population.epsilon > 1.0


def test_a_ledger_whose_limit_is_what_is_asked_for_pays_once(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "cohort.ledger")
    create = ["ledger", "create", path, "--population", "cohort", "--unit", "trajectory"]
    assert cli.run([*create, "--epsilon", "1", "--delta", "1e-5"]) == 0
    first, paid = tmp_path / "first", [*words, "--ledger", path, "--out"]
    assert cli.run([*paid, str(first)]) == 0
    assert Certificate.read(first / "certificate.json").epsilon > 0.99
    capsys.readouterr()
    assert cli.run([*paid, str(tmp_path / "second")]) == 2
    assert "about 0.0% of it is left" in capsys.readouterr().err
    check = ["ledger", "check", path, "--certificate", str(first / "certificate.json")]
    assert cli.run(check) == 0


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["--out", "/dev/null/run"], "cannot be written to"),
        (["--ledger", "nowhere.ledger"], "nowhere.ledger"),
        (["--config", "nowhere.toml"], "cannot be read"),
        (["--weight-cap", "-1"], "privrl: --weight-cap must be positive"),
        (["--name", "first"], "--ledger"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    changed: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run([*words, *changed]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("privrl: ")
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_what_was_paid_for_is_shown_even_if_it_cannot_be_kept(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(*_: object) -> None:
        raise InputError("the disk is full.")

    monkeypatch.setattr("privrl.report.folder.write", full)
    assert cli.run([*words, "--out", str(tmp_path / "run"), "--json"]) == 2
    printed = capsys.readouterr()
    assert json.loads(printed.out)["certificate"]["epsilon"] <= 1.0
    assert "the disk is full" in printed.err


def test_a_run_that_fails_leaves_no_folder(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stays.csv").write_text("stay,p\n1,0.5\n")
    for run in ("run", "runs/a/b"):
        assert cli.run([*words, "--out", str(tmp_path / run)]) == 2
        assert not (tmp_path / run.split("/")[0]).exists()
    (tmp_path / "kept").mkdir()
    assert cli.run([*words, "--out", str(tmp_path / "kept")]) == 2
    assert (tmp_path / "kept").exists()


def test_other_estimators_are_shown_with_what_they_state(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [*words, "--terminated", "true", "--start", "mild"]
    assert cli.run([*asked, "--out", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "  new policy, by other estimators:" in printed
    row = next(line for line in printed if "PrivateGTD" in line)
    held = Study.load(tmp_path / "run" / "study.json").main.interval
    assert held is not None
    inside = held.low <= float(row.split()[1]) <= held.high
    assert row.endswith("no interval" if inside else "no interval, and outside of the one above")
    cut = asked.index("--epsilon")
    public = [*asked[:cut], *asked[cut + 4 :], "--public", "--out", str(tmp_path / "public")]
    assert cli.run(public) == 0
    row = next(line for line in capsys.readouterr().out.splitlines() if "WPDIS" in line)
    value, low, high = row.split()[1:]
    assert float(low) < float(value) < float(high)


def test_the_policy_that_was_followed_from_a_file_of_options(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """DP-LSL alone: nothing is asked of other policies, and the page says nothing of them."""
    job = {
        "table": str(tmp_path / "stays.csv"),
        "trajectory": "stay",
        "user": "patient",
        "state": "condition",
        "action": "treatment",
        "reward": "outcome",
        "states": ["mild", "moderate", "severe"],
        "actions": ["wait", "treat"],
        "epsilon": 1,
        "delta": 1e-5,
        "reward_range": [0, 1],
        "horizon": 5,
        "start": ["mild", "severe"],
        "estimators": "dplsl",
    }
    path, out = tmp_path / "job.toml", tmp_path / "run"
    path.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in job.items()))
    assert cli.run(["evaluate", "--config", str(path), "--out", str(out), "--seed", "2"]) == 0
    printed = capsys.readouterr().out
    study = Study.load(out / "study.json")
    assert study.main.method == "DP-LSL"
    (row,) = (line for line in printed.splitlines() if line.startswith("  as logged"))
    assert row.split()[2:] == [f"{study.main.estimate:.4g}", "no", "interval"]
    assert all(len(line) < 80 for line in printed.splitlines()[:-1])
    assert study.certificate is not None
    assert study.certificate.events == (ApproxDP(1.0, 1e-5, relation=Relation.REPLACE_ONE),)
    (shown,) = study.slices
    assert (shown.coordinate, shown.labels) == ("condition", ("mild", "moderate", "severe"))
    page = (out / "report.html").read_text()
    assert "Where the value is high" in page
    assert "as DP-LSL found it" in page
    assert "probabilities of the actions" not in page
    assert "weight_cap" not in page
    assert "DP-LSL" in study._repr_html_()
    assert cli.run(["verify", str(out / "certificate.json")]) == 0
    # Without start states there is no single value; the page has those of states.
    more = ["--estimators", "dplsw", "--out", str(tmp_path / "other")]
    path.write_text(path.read_text().replace('start = ["mild", "severe"]\n', ""))
    assert cli.run(["evaluate", "--config", str(path), *more]) == 0
    assert "The values of states, by DP-LSW, are in the report." in capsys.readouterr().out


def test_gpope_beside_the_value_as_json(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--gamma", "0.9", "--estimators", "value:3,gpope:1", "--start", "mild", "--json"]
    assert cli.run([*words, *more, "--out", str(tmp_path / "run"), "--seed", "2"]) == 0
    told = json.loads(capsys.readouterr().out)
    value, gpope = told["results"]
    assert (value["method"], gpope["method"]) == ("PrivateValue", "GPOPE")
    assert gpope["settings"]["sigma"] > 0.0
    assert told["certificate"]["epsilon"] <= 1.0
    page = (tmp_path / "run" / "report.html").read_text()
    assert "one noisy trajectory at a time" in page
    (drawn,) = (one for one in Study.load(tmp_path / "run" / "study.json").results[1:])
    told_of = describe_method(drawn, Unit.USER, on_policy=False)
    assert told_of is not None
    assert "one noisy person at a time" in told_of
    assert "probabilities of the actions" in page


@pytest.mark.parametrize("estimators", ["value:9,dplsw:1", "value,dplsl"])
def test_the_logged_policy_is_compared_with_nothing(
    estimators: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One figure for one quantity, whatever the noise; and no word on ratios."""
    followed = without(words, "--policy", "--behavior-prob", "--weight-cap")
    followed += ["--gamma", "0.9", "--estimators", estimators, "--start", "mild"]
    assert cli.run([*followed, "--out", str(tmp_path / "run"), "--seed", "2"]) == 0
    printed = capsys.readouterr().out
    study = Study.load(tmp_path / "run" / "study.json")
    assert set(study.main.details) == {"behavior", "units", "noise_std"}
    assert set(study.main.details["noise_std"]) == {"behavior"}
    logged = study.main.details["behavior"]
    assert study.main.estimate == logged["estimate"]
    assert study.main.interval is not None
    assert study.main.interval.to_dict() == logged["interval"]
    assert study.main.notes == ("The policy that was followed is judged: all ratios are 1.",)
    assert not {"weight_cap", "largest_ratio"} & set(study.main.settings)
    (row,) = (one for one in printed.splitlines() if f" {study.main.estimate:.4g} " in one)
    assert row.startswith("  as logged")
    assert "difference" not in printed
    page = (tmp_path / "run" / "report.html").read_text()
    assert "What was done is worth" in page
    for word in (
        *("better than", "difference", "Effective sample size", "Support", "largest_ratio"),
        *("likelier", "probabilities of the actions", "is clipped", "ogged policy is worth"),
    ):
        assert word not in visible(page), word
    assert cli.run(["report", str(tmp_path / "run")]) == 0


@pytest.mark.parametrize(
    "option",
    [
        *("--weight-cap 3", "--largest-ratio 2", "--behavior-prob p", "--behavior policy.json"),
        *("--behavior-source logged", "--policy-source independent", "--target-name Protocol"),
    ],
)
def test_what_is_about_another_policy_is_refused_without_one(
    option: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    followed = without(words, "--policy", "--behavior-prob", "--weight-cap")
    followed += ["--estimators", "dplsl", "--out", str(tmp_path / "run"), *option.split()]
    if "policy.json" in option:
        followed[-1] = words[words.index("--policy") + 1]
    for how in ([], ["--dry-run"]):
        assert cli.run([*followed, *how]) == 2
        told = " ".join(capsys.readouterr().err.split())
        said = (
            f"The policy that was followed is judged, and no other: leave out {option.split()[0]}."
        )
        assert said in told
        assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--estimators dplsw", "leave out --policy and --target-prob, or take gtd, lstd or gpope."),
        ("--estimators value,gpope --gamma 0.9 --stream", "leave out --stream, or take gtd."),
        ("--estimators gpope --gamma 0.9", "--estimators must contain value: gtd, lstd and gpope"),
    ],
)
def test_what_the_baselines_are_not_for_is_one_sentence(
    words: list[str], more: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    for how in ([], ["--dry-run"]):
        assert cli.run([*words, *more.split(), "--out", str(out), *how]) == 2
        assert said in capsys.readouterr().err
        assert not out.exists()


def test_a_refused_run_releases_and_spends_nothing(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cohort.ledger"
    limit = Budget(1.2, 1e-5)
    Ledger.create(
        path, "cohort", unit=Unit.TRAJECTORY, relation=Relation.REPLACE_ONE, limit=limit
    ).close()
    paid = [*words, "--ledger", str(path)]
    assert cli.run([*paid, "--out", str(tmp_path / "first")]) == 0
    capsys.readouterr()
    again = [*paid, "--out", str(tmp_path / "second")]
    for refused in (again, [*again, "--epsilon", "0.1", "--name", "first"]):
        assert cli.run(refused) == 2
        assert capsys.readouterr().out == ""
        assert not (tmp_path / "second").exists()
        with Ledger.open(path) as ledger:
            assert [entry.run for entry in ledger.entries()] == ["first"]
    assert cli.run([*again, "--epsilon", "0.1"]) == 0
    assert Certificate.read(tmp_path / "second" / "certificate.json").epsilon <= 0.1


def test_report_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", str(tmp_path)]) == 2
    assert "study.json" in capsys.readouterr().err


@pytest.mark.slow
def test_the_demonstration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["demo", "--people", "2000"]) == 0
    printed = capsys.readouterr().out
    assert printed.endswith("The report is privrl-demo/run/report.html.\n")
    study = Study.load("privrl-demo/run/study.json")
    # 4.28 by 20,000 simulated patients of the protocol; noise and 2,000 patients move it by less.
    # The noise is fresh, so that one interval in twenty is beside it: three times as wide is safe.
    held = study.main.interval
    assert held is not None
    assert abs(4.28 - (held.low + held.high) / 2.0) < 1.5 * (held.high - held.low)
    assert study.certificate is not None
    study.certificate.verify(strict=True)
    assert cli.run(["demo", "--people", "2000"]) == 0
    assert Path("privrl-demo/run-2/report.html").exists()


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *((name, "") for name in ("--title", "--target-name", "--features", "--estimators")),
        ("--title", " "),
        ("--weight-cap", "0"),
        ("--level", "0"),
        ("--largest-ratio", "0"),
        ("--horizon", "0"),
    ],
)
@pytest.mark.parametrize("public", [False, True])
def test_nothing_and_zero_are_not_taken_for_nothing_said(
    public: bool,
    option: str,
    value: str,
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if public:
        at = words.index("--epsilon")
        words = [*words[:at], *words[at + 4 :], "--public"]
    if option in words:
        at = words.index(option)
        words = words[:at] + words[at + 2 :]
    assert cli.run([*words, option, value, "--out", str(tmp_path / "run")]) == 2
    assert f"privrl: {option} " in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_the_same_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "out")]
    swept = ["sweep", "actor-critic", "--env", "Chain", "--grid", "sigma=1", *out]
    for command in (
        ["risk", "--samples", "1", "--prospect", ""],
        ["train", "actor-critic", "--env", "", "--epsilon", "1", "--delta", "1e-5", *out],
        [*swept, "--epsilon", "0"],
        [*swept, "--delta", "-1"],
    ):
        assert cli.run(command) == 2
        assert capsys.readouterr().err.count("\n") == 1
