"""The two stances on values that are not valid, and where policies come from, for people."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.data import marks
from privrl.data.sources import PRIVATE
from privrl.privacy import Certificate, Ledger, Relation, Unit
from privrl.run.study import Study
from tests.run.test_request import JUDGED, stays, table

PEOPLE = 30
COLUMNS = [
    *("--trajectory", "stay", "--user", "patient", "--state", "condition", "--time", "t"),
    *("--action", "treatment", "--reward", "outcome", "--terminated", "true"),
    *("--states", "mild,moderate,severe", "--actions", "wait,treat"),
]
BUDGET = ["--epsilon", "1", "--delta", "1e-5", "--reward-range", "0,1", "--seed", "1"]
EVALUATE = [
    *("--policy", "../policy.json", "--behavior-prob", "p", *BUDGET),
    *("--horizon", "5", "--weight-cap", "4"),
]
TRAIN = [*BUDGET, "--updates", "2"]
NEUTRAL = ["--invalid", "neutral", "--people", str(PEOPLE)]
Rows = list[dict[str, Any]]

SCHEMA = pa.schema(
    [
        *(("stay", pa.int64()), ("patient", pa.int64()), ("condition", pa.string())),
        *(("treatment", pa.string()), ("outcome", pa.float64()), ("p", pa.float64())),
        ("t", pa.int64()),
    ]
)


def good() -> Rows:
    rows = table(stays(2 * PEOPLE)).sort_by([("patient", "ascending"), ("stay", "ascending")])
    found: Rows = rows.to_pylist()
    for n, row in enumerate(found):
        row["t"] = n
    return found


def put(**cells: Any) -> Callable[[Rows], Rows]:
    """One cell of the first person's."""
    return lambda rows: [{**rows[0], **cells}, *rows[1:]]


SPOILT: dict[str, Callable[[Rows], Rows]] = {
    "null reward": put(outcome=None),
    "infinite reward": put(outcome=float("inf")),
    "probability": put(p=0.0),
    "NaN": put(p=float("nan")),
    "word": put(condition="bad"),
    "null word": put(treatment=None),
    "null time": put(t=None),
    "null stay": put(stay=None),
    "twice": lambda rows: [rows[0], *rows],
    "huge": lambda rows: [*([rows[0]] * 500), *rows],
    "nobody": lambda rows: [row for row in rows if row["patient"] != rows[0]["patient"]],
    "nameless": lambda rows: [
        {**row, "patient": None if row["patient"] == rows[0]["patient"] else row["patient"]}
        for row in rows
    ],
}


def outcome(
    folder: Path,
    rows: Rows,
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    text: bool = False,
) -> tuple[int, dict[str, str]]:
    """The exit code of a command on a table, and everything it printed and wrote."""
    folder.mkdir()
    monkeypatch.chdir(folder)
    held, name = pa.Table.from_pylist(rows, SCHEMA), "stays.csv" if text else "stays.parquet"
    (pa_csv.write_csv if text else pq.write_table)(held, name)
    command = words[: 2 if words[0] == "train" else 1]
    code = cli.run([*command, name, *words[len(command) :], *COLUMNS, "--out", "run"])
    printed = capsys.readouterr()
    found = {"stdout": printed.out, "stderr": printed.err}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name != name:
            # The date, and the one in the report, are the only things that differ by the clock.
            content = re.sub(r"20\d\d-\d\d-\d\dT[\d:]+(\+00:00)?", "DATE", path.read_text())
            content = re.sub(r">\d+ \w+ 20\d\d[^<]*</time>", ">DATE</time>", content)
            found[str(path.relative_to(folder))] = content
    return code, found


@pytest.mark.parametrize("text", [False, True], ids=["parquet", "csv"])
@pytest.mark.parametrize("words", [["evaluate", *EVALUATE], ["train", "logged-q", *TRAIN]])
def test_nothing_tells_what_was_wrong(
    words: list[str],
    text: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Whatever is wrong with a person, all that is printed, written and returned is the same."""
    JUDGED.save(tmp_path / "policy.json")
    rows, seen = good(), {}
    chosen = list(SPOILT) if words[0] == "evaluate" else ["null reward", "twice", "nobody"]
    for name in chosen[:4] if text else chosen:
        folder = tmp_path / name.replace(" ", "-")
        spoilt = SPOILT[name](rows)
        seen[name] = outcome(folder, spoilt, [*words, *NEUTRAL], monkeypatch, capsys, text)
    first = next(iter(seen.values()))
    assert first[0] == 0
    assert first[1]["stderr"] == ""
    # Of whoever is not there at all the neutral person has another place, and sums are rounded in
    # another order: that shows in the last digits of noised figures.
    alike = [one for name, one in seen.items() if name not in ("nobody", "nameless")]
    assert all(one == first for one in alike)
    # And but for noised figures it is what a valid person leaves.
    whole = outcome(tmp_path / "whole", rows, [*words, *NEUTRAL], monkeypatch, capsys, text)
    for code, found in seen.values():
        assert code == whole[0] == 0
        assert set(found) == set(whole[1])
        assert found["stderr"] == ""
        assert found["run/certificate.json"] == whole[1]["run/certificate.json"]
        assert without_figures(found["stdout"]) == without_figures(whole[1]["stdout"])


def without_figures(text: str) -> str:
    return re.sub(r"(?m)^  (new policy|as logged|difference) .*$", r"\1", text)


def test_refusals_are_the_curators(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each says that it is private; nothing is written, and nothing paid."""
    JUDGED.save(tmp_path / "policy.json")
    rows = good()
    made: dict[str, Any] = {"unit": Unit.USER, "relation": Relation.REPLACE_ONE}
    Ledger.create(tmp_path / "ward.ledger", "ward", **made).close()
    refused = [name for name in SPOILT if name != "nobody"]
    for name in refused:
        words = ["evaluate", *EVALUATE, "--ledger", "../ward.ledger"]
        folder = tmp_path / name.replace(" ", "-")
        code, found = outcome(folder, SPOILT[name](rows), words, monkeypatch, capsys)
        assert code == 2
        assert found.pop("stderr").endswith(f" {PRIVATE}\n"), name
        assert found == {"stdout": ""}
    with Ledger.open(tmp_path / "ward.ledger") as ledger:
        assert not ledger.entries()


def test_the_stance_is_in_the_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    JUDGED.save(tmp_path / "policy.json")
    for name, more in (("refuse", []), ("neutral", NEUTRAL)):
        for command in (["evaluate", *EVALUATE], ["train", "logged-q", *TRAIN]):
            folder = tmp_path / f"{name}-{command[0]}"
            assert outcome(folder, good(), [*command, *more], monkeypatch, capsys)[0] == 0
            found = Certificate.read(folder / "run" / "certificate.json").assumptions
            said = {one.statement: one.enforced for one in found}
            validated = "the table passed the curator's validation"
            if name == "refuse":
                assert said[validated] == "not enforced: a refusal is seen by the curator only"
            else:
                assert validated not in said
                assert any("counts as one fixed person" in one for one in said)


def test_check_is_for_the_curator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.Table.from_pylist(good(), SCHEMA), "good.parquet")
    bad = SPOILT["word"](good())
    pq.write_table(pa.Table.from_pylist(bad, SCHEMA), "bad.parquet")
    for more in ([], ["--stream"]):
        assert cli.run(["check", "good.parquet", *COLUMNS, *more]) == 0
        printed = capsys.readouterr().out
        assert f"{2 * PEOPLE} trajectories, {PEOPLE} users" in printed
        assert printed.endswith(
            "The table is valid. This is about private data: keep it to yourself.\n"
        )
        assert cli.run(["check", "bad.parquet", *COLUMNS, *more]) == 2
        assert capsys.readouterr().err.endswith(f"is not among --states. {PRIVATE}\n")
    assert cli.run(["check", "good.parquet", *COLUMNS, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["valid"], told["private"], told["users"]) == (True, True, PEOPLE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.parquet", "good.parquet"]


# --- where policies come from ---------------------------------------------------------------------


@pytest.fixture
def learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Path:
    """A folder with a table, and a run that learned from it."""
    words = ["train", "logged-q", *TRAIN[:-4], "--updates", "2"]
    assert outcome(tmp_path / "ward", good(), words, monkeypatch, capsys)[0] == 0
    return tmp_path / "ward"


def test_a_policy_is_known_by_the_table_it_was_learned_from(
    learned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before, the report of such a run said that the policy was not learned from these people."""
    words = ["evaluate", "stays.parquet", *COLUMNS, *EVALUATE[2:], "--policy", "run/policy.json"]
    assert cli.run([*words, "--policy-source", "independent", "--out", "no"]) == 2
    assert "was learned from this very table" in capsys.readouterr().err
    assert not Path("no").exists()
    assert cli.run([*words, "--out", "yes"]) == 0
    assert "The policy was learned from these people" in capsys.readouterr().out
    study = Study.load("yes/study.json")
    fact = {one.name: one for one in study.facts}["policy"]
    assert fact.meaning.startswith("It was learned from this very table")
    assert study.certificate is not None
    listed = {one.statement: one.enforced for one in study.certificate.assumptions}
    (noticed,) = (said for what, said in listed.items() if "was learned from these" in what)
    assert noticed == "not enforced: noticed in its file"
    assert "It was learned from this very table" in Path("yes/report.html").read_text()


def test_the_mark_of_a_policy_does_not_depend_on_the_table(
    learned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The id is random, so two runs on one table have two, and a seed's is that of its name."""
    given = json.loads((learned / "run" / "policy.json").read_text())["origin"]
    assert set(given) == {"run", "learner"}
    assert marks.is_marked([learned / "stays.parquet"], given["run"])
    runs = {given["run"], *(marks.new_run_id() for _ in range(20))}
    assert len(runs) == 21
    assert all(re.fullmatch("[0-9a-f]{32}", run) for run in runs)
    origins = []
    for name in ("whole", "twice"):
        rows = good() if name == "whole" else SPOILT["twice"](good())
        words = ["train", "logged-q", *TRAIN, *NEUTRAL]
        found = outcome(tmp_path / name, rows, words, monkeypatch, capsys)[1]
        own = json.loads(found["run/policy.json"])["origin"]
        origins.append((own, found[".stays.parquet.privrl-runs"]))
    assert origins[0] == origins[1]


@pytest.mark.parametrize(
    ("more", "policy", "behavior"),
    [
        ([], "is not stated by the caller", "is not stated by the caller"),
        (
            ["--policy-source", "independent", "--behavior-source", "logged"],
            "It was not learned from these people: declared by the caller, not checked",
            "They were logged as the actions were taken: declared by the caller, not checked",
        ),
        (
            ["--policy-source", "this-data", "--behavior-source", "estimated"],
            "It was learned from these people: declared by the caller, not checked",
            "They were estimated: declared by the caller, not checked",
        ),
        (
            ["--policy-source", "unknown", "--behavior-source", "known-protocol"],
            "is unknown: declared by the caller",
            "a protocol that was followed: declared by the caller, not checked",
        ),
    ],
)
def test_what_is_declared_is_said_to_be(
    more: list[str],
    policy: str,
    behavior: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    JUDGED.save(tmp_path / "policy.json")
    folder = tmp_path / "ward"
    words = ["evaluate", *EVALUATE, *more]
    assert outcome(folder, good(), words, monkeypatch, capsys)[0] == 0
    study, page = Study.load(folder / "run/study.json"), (folder / "run/report.html").read_text()
    facts = {one.name: one.meaning for one in study.facts}
    assert policy in facts["policy"]
    assert behavior in facts["behavior_prob"]
    assert facts["policy"] in page
    assert facts["behavior_prob"] in page
    assert study.certificate is not None
    told = study.certificate.assumptions[-2:]
    assert all(one.enforced.startswith("not enforced: ") for one in told)
    learned = "this-data" in more
    assert ("policy was learned from" in told[0].statement) == learned
    assert ("were estimated:" in told[1].statement) == ("estimated" in more)
    assert any("too high" in note for note in study.notes) == learned
    if not more:
        assert {one.enforced for one in told} == {"not enforced: not stated by the caller"}
