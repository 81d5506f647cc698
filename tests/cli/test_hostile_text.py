"""Names and sentences in files that try to steer the terminal, in all commands that print them."""

import ast
import json
import unicodedata
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.core.progress import progress_bar
from privrl.core.text import printable, printable_line, quote_name
from privrl.privacy import Assumption, Budget, Certificate, Ledger, PureDP, Unit
from privrl.privacy.certificate import _digest
from privrl.privacy.noise import secure
from tests.run.test_request import JUDGED, stays, table

# Each of these, printed raw, moves, hides, breaks or turns around what is printed beside it.
TRICKS = (
    "\x1b[1A\x1b[2K\x1b[31;7m",
    "\r\b\n\t\x0b\x0c\x01\x7f",
    "\x85\x9b2J",
    "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c",
    "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u3164\ufe0f\U000e0001",
    "\u2028\u2029\u00a0",
)
HOSTILE = "x, epsilon 0.1" + "".join(TRICKS) + "Verified: epsilon 0.1 [red]\u05d0"
# Files cannot be called everything.
IN_A_NAME = "".join(one for one in HOSTILE if one != "/")
# Columns are listed by commas.
IN_A_COLUMN = HOSTILE.replace(",", "")
# Ours: breaks, the space that holds numbers together, the mark behind letters from right to left.
# Foreign: the joiners, which some scripts need.
IN_A_PAGE = "\n\t\u00a0\u200e\u200c\u200d"
UNSEEN = frozenset("\u034f\u3164\ufe0f")

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command, and looks at every character of what it printed."""

    def running(*arguments: object) -> tuple[int, str]:
        code = cli.run([str(one) for one in arguments])
        printed = capsys.readouterr()
        for text in (printed.out, printed.err):
            looked_at(text)
        return code, printed.out

    return running


def looked_at(text: str) -> None:
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)
        assert UNSEEN.isdisjoint(line), ascii(line)
        turned = any(unicodedata.bidirectional(one) in ("R", "AL", "AN") for one in line)
        assert not (turned and any(one.isdigit() for one in line)), ascii(line)
        # No file begins a line of its own.
        assert not line.startswith(("Verified: epsilon", "x, epsilon")), ascii(line)


def variants(data: Any, keys: bool = True) -> Iterator[Any]:
    """`data` once for each text in it, and each object (by a key), with that one made hostile."""
    places: list[tuple[Any, ...]] = []

    def rollout(value: Any, path: tuple[Any, ...]) -> None:
        if isinstance(value, str):
            places.append(path)
        elif isinstance(value, dict):
            if keys:
                places.append((*path, None))
            for key, item in value.items():
                rollout(item, (*path, key))
        elif isinstance(value, list):
            for place, item in enumerate(value):
                rollout(item, (*path, place))

    rollout(data, ())
    for *way, last in places:
        changed = deepcopy(data)
        inside = changed
        for step in way:
            inside = inside[step]
        inside[HOSTILE if last is None else last] = HOSTILE
        yield changed


# --- certificates ---------------------------------------------------------------------------------


def test_no_certificate_hides_its_epsilon(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "certificate.json"
    with Ledger.create(tmp_path / "l", HOSTILE, unit=Unit.USER, limit=Budget(20.0)) as ledger:
        ledger.spend(PureDP(9.997), run=HOSTILE, note=HOSTILE)
        made = ledger.certify(
            HOSTILE, 0.0, source=secure(), assumptions=(Assumption(HOSTILE, HOSTILE),)
        )
    seen = 0
    for data in (made.to_dict(), *variants(made.to_dict())):
        rest = {key: value for key, value in data.items() if key != "digest"}
        path.write_text(json.dumps({**rest, "digest": _digest(rest)}))
        code, out = run("verify", path)
        run("verify", path, "--json")
        run("sign", path, "--key", tmp_path / IN_A_NAME)
        if code == 0:
            seen += 1
            lines = out.split("\n")
            assert lines[0] == "Certificate: epsilon 9.997 at delta 0"
            assert "Verified: recomputed 9.997; the second accountant says" in lines
            assert [line for line in lines if line.startswith(("Certificate", "Verified"))] == [
                lines[0],
                "Verified: recomputed 9.997; the second accountant says",
            ]
        else:
            assert out == ""
    assert seen >= 4, "no certificate with foreign words in it was read at all"


def test_names_of_certificates_and_keys(tmp_path: Path, run: Run) -> None:
    path = tmp_path / IN_A_NAME
    path.write_text(Certificate.issue(PureDP(1.0), 0.0, unit=Unit.USER).to_json())
    assert run("verify", path)[0] == 0
    assert run("verify", tmp_path / (IN_A_NAME + "!"))[0] == 2
    assert run("verify", path, "--public-key", path)[0] == 2
    assert (
        run("budget", "Gaussian(1, 1)", "--delta", 1e-5, "--unit", "user", "--save", path)[0] == 0
    )
    for words in (["budget", HOSTILE], ["budget", "--claim", HOSTILE], ["audit", HOSTILE]):
        assert run(*words)[0] == 2
    assert run("budget", "--claim", "xie2019", f"{HOSTILE}=1")[0] == 2


# --- ledgers --------------------------------------------------------------------------------------


def test_a_ledger_shows_what_was_paid_beside_names_in_quotes(tmp_path: Path, run: Run) -> None:
    path, copy = tmp_path / IN_A_NAME, tmp_path / "copy"
    assert run("ledger", "create", path, "--population", HOSTILE, "--epsilon", 20)[0] == 0
    with Ledger.open(path) as ledger:
        ledger.spend(PureDP(9.0), run=HOSTILE, note=HOSTILE)
        ledger.spend(PureDP(1.0), run="plain", note="")
        exported = ledger.to_dict()
    code, out = run("ledger", "show", path)
    assert code == 0
    lines = out.rstrip("\n").split("\n")
    assert lines[0].startswith("'x, epsilon 0.1\\x1b")
    assert lines[0].endswith("': user, replace-one")
    assert lines[3].startswith("  paid        epsilon 10 at delta 0")
    assert lines[4].startswith("    'x, epsilon 0.1\\x1b")
    assert lines[4].endswith("' 9")
    assert lines[5].split() == ["'plain'", "1"]
    assert run("ledger", "check", path, "--certificate", tmp_path / HOSTILE[:5])[0] == 2
    assert run("ledger", "check", path, "--anchor", tmp_path / ("a" + IN_A_NAME))[0] == 0
    assert run("ledger", "export", path)[0] == 0
    for data in variants(exported):
        (tmp_path / "ledger.json").write_text(json.dumps(data))
        run("ledger", "import", copy, tmp_path / "ledger.json")
        copy.unlink(missing_ok=True)


# --- evaluate, check, report ----------------------------------------------------------------------


def evaluation(folder: Path, **changed: object) -> list[object]:
    """A complete evaluation of a table whose every name is hostile."""
    held = table(stays())
    named_so = {name: f"{name}{IN_A_COLUMN}" for name in held.column_names}
    pa_csv.write_csv(held, folder / "plain.csv")
    source = folder / f"{IN_A_NAME}.parquet"
    pq.write_table(held.rename_columns(list(named_so.values())), source)
    JUDGED.save(folder / "policy.json")
    given: dict[str, object] = {
        "policy": folder / "policy.json",
        "trajectory": named_so["stay"],
        "state": named_so["condition"],
        "action": named_so["treatment"],
        "reward": named_so["outcome"],
        "behavior-prob": named_so["p"],
        "states": "mild,moderate,severe",
        "actions": "wait,treat",
        "epsilon": 1,
        "delta": 1e-5,
        "reward-range": "0,1",
        "horizon": 5,
        "weight-cap": 4,
        "seed": 1,
        **changed,
    }
    config = folder / "names.json"
    columns = ("trajectory", "state", "action", "reward", "behavior-prob")
    config.write_text(json.dumps({k.replace("-", "_"): given[k] for k in columns}))
    listed = [one for k, v in given.items() if k not in columns for one in (f"--{k}", v)]
    return [source, "--config", config, *listed]


def test_evaluate_check_and_report(tmp_path: Path, run: Run) -> None:
    words = evaluation(tmp_path)
    folder = tmp_path / IN_A_NAME
    names = ["--title", HOSTILE, "--target-name", HOSTILE, "--behavior-name", f"9 {HOSTILE}"]
    code, out = run("evaluate", *words, *names, "--out", folder)
    assert code == 0
    lines = out.split("\n")
    assert lines[0].startswith("'x, epsilon 0.1\\x1b")
    assert sum(line.startswith("  Certified: epsilon 1 at delta 1e-05, ") for line in lines) == 1
    assert sum(line.startswith("  Certified") for line in lines) == 1
    assert len([line for line in lines if line.startswith("  'x, epsilon 0.1\\x1b")]) == 1
    assert run("evaluate", *words, "--out", folder)[0] == 2
    assert run("report", folder)[0] == 0
    assert run("report", tmp_path / (IN_A_NAME + "!"))[0] == 2
    page = (folder / "report.html").read_text()
    assert all(one in IN_A_PAGE or one.isprintable() for one in page)


def test_tables_policies_and_configurations(tmp_path: Path, run: Run) -> None:
    words = evaluation(tmp_path)
    plain = str(tmp_path / "plain.csv")
    assert run("check", words[0], "--trajectory", "stay")[0] == 2
    assert run("check", plain, "--trajectory", HOSTILE)[0] == 2
    assert run("check", plain, "--trajectory", "stay", "--state", HOSTILE)[0] == 2
    assert run("check", tmp_path / (IN_A_NAME + "!"))[0] == 2
    (tmp_path / "bad.csv").write_text(f"{HOSTILE},b\n1,2\n".replace("\n\t", "\t"))
    assert run("check", tmp_path / "bad.csv", "--trajectory", "stay")[0] == 2
    for data in variants(json.loads((tmp_path / "policy.json").read_text())):
        (tmp_path / "policy.json").write_text(json.dumps(data))
        run("evaluate", *words, "--out", tmp_path / "other")
    for key, value in (
        (HOSTILE, 1),
        ("gamma", HOSTILE),
        ("invalid", HOSTILE),
        ("state", [HOSTILE]),
    ):
        (tmp_path / "c.json").write_text(json.dumps({key: value}))
        assert run("evaluate", plain, "--config", tmp_path / "c.json")[0] == 2
        assert run("train", "actor-critic", "--config", tmp_path / "c.json")[0] == 2
        assert run("sweep", "actor-critic", "--config", tmp_path / "c.json")[0] == 2
    (tmp_path / "c.toml").write_text(f'"{ascii(HOSTILE)[1:-1]}" = {{'.replace("\\x", "\\u00"))
    assert run("evaluate", plain, "--config", tmp_path / "c.toml")[0] == 2
    for command in (
        ["risk", "--outcomes", HOSTILE],
        ["risk", "--prospect", f"{tmp_path}/{IN_A_NAME}.json", "--samples", "1"],
        ["train", HOSTILE],
        ["evaluate", "--" + HOSTILE],
        ["train", "actor-critic", "--env", HOSTILE, "--epsilon", "1", "--delta", "1e-5"],
        ["sweep", "actor-critic", "--set", f"{HOSTILE}=1"],
        ["sweep", "actor-critic", "--grid", f"{HOSTILE}=1"],
        [HOSTILE],
    ):
        assert run(*command)[0] == 2


def test_a_study_from_elsewhere(tmp_path: Path, run: Run) -> None:
    assert run("evaluate", *evaluation(tmp_path), "--out", tmp_path / "run")[0] == 0
    study = json.loads((tmp_path / "run" / "study.json").read_text())
    wrote = 0
    for data in variants(study, keys=False):
        (tmp_path / "run" / "study.json").write_text(json.dumps(data))
        wrote += run("report", tmp_path / "run")[0] == 0
        page = (tmp_path / "run" / "report.html").read_text()
        assert all(one in IN_A_PAGE or one.isprintable() for one in page)
    assert wrote >= 3


# --- train, sweep ---------------------------------------------------------------------------------


def test_run_folders_from_elsewhere(tmp_path: Path, run: Run) -> None:
    run_json = {
        "kind": "privrl run",
        "format": 2,
        "words": {"learner": "actor-critic", "env": "Chain", "people": 4, "epsilon": 1.0},
        "ledger": str(tmp_path / "ledger"),
        "name": "x",
        "seed": 1,
        "id": "0" * 32,
        "formats": ["csv"],
    }
    plan = {
        "kind": "privrl sweep",
        "format": 1,
        "about": run_json["words"],
        "plan": {"grid": {"actor_step": [0.1]}, "seeds": 1, "episodes": 2},
    }
    for command, name, whole in (
        (["train", "actor-critic"], "run.json", run_json),
        (["sweep"], "plan.json", plan),
    ):
        folder = tmp_path / f"{name}{IN_A_NAME}"
        folder.mkdir()
        for data in (whole, *variants(whole)):
            (folder / name).write_text(json.dumps(data))
            assert run(*command, "--out", folder, "--resume")[0] == 2
    assert run("train", "actor-critic", "--out", tmp_path / (IN_A_NAME + "!"), "--resume")[0] == 2


def test_training_on_a_table_with_such_a_name(tmp_path: Path, run: Run) -> None:
    draw, count = np.random.default_rng(0), 60
    path = tmp_path / f"{IN_A_NAME}.parquet"
    columns = {
        f"stay{HOSTILE}": np.repeat(np.arange(20), 3),
        "s": draw.integers(3, size=count),
        "a": draw.integers(2, size=count),
        "r": draw.uniform(0, 1, count),
    }
    pq.write_table(pa.table(columns), path)
    (tmp_path / "c.json").write_text(json.dumps({"trajectory": f"stay{HOSTILE}"}))
    words = ["--config", tmp_path / "c.json", "--state", "s", "--action", "a", "--reward", "r"]
    words += ["--num-states", 3, "--num-actions", 2, "--reward-range", "0,1", "--updates", 2]
    words += ["--epsilon", 1, "--delta", 1e-3, "--features", "table"]
    code, out = run("train", "logged-q", path, *words, "--out", tmp_path / "run")
    assert code == 0
    assert out.startswith("'x, epsilon 0.1\\x1b")
    assert sum(line.startswith("  Certified: epsilon 1 at") for line in out.split("\n")) == 1


# --- what they go through -------------------------------------------------------------------------


def test_warnings_are_one_line_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    cli._warn(UserWarning(HOSTILE))
    shown = capsys.readouterr().err
    looked_at(shown)
    assert shown.count("\n") == 1


def test_the_bar_knows_no_markup(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "300")
    with progress_bar(None) as advance:
        advance("[red]a\x1b[31;7mb")
    shown = capsys.readouterr().err
    assert r"[red]a\x1b[31;7mb" in shown
    assert "\x1b[31;7m" not in shown


def test_a_traceback_has_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        raise RuntimeError(HOSTILE)
    except RuntimeError as error:
        cli._print_traceback(RuntimeError, error, error.__traceback__)
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    for line in shown.split("\n"):
        assert line.isprintable()


def test_names_end_where_they_end() -> None:
    assert quote_name("new policy") == "new policy"
    assert quote_name("Ärzte") == "Ärzte"
    for name in ("x, epsilon 0.1", "0.1", "１", " x", "x ", "", "it's"):
        assert quote_name(name) == repr(name)


def test_numbers_keep_their_order_beside_letters_from_right_to_left() -> None:
    assert printable_line("מרפאה") == "מרפאה"
    assert printable_line("מ 0.1 9.9") == r"\u05de 0.1 9.9"
    assert printable_line("٠") == r"\u0660"
    # Marks stay with their letter, and are not many.
    assert printable("a\u0301") == "a\u0301"
    assert printable("a" + 5 * "\u0301") == "a" + 3 * "\u0301" + 2 * r"\u0301"
    assert printable("\u0301a") == r"\u0301a"


def test_nothing_else_prints() -> None:
    """Whoever adds a command cannot forget: all goes through `printing`."""
    for path in Path(cli.__file__).parent.glob("*.py"):
        if path.name == "printing.py":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")
            assert name not in ("print", "echo", "secho", "write_through"), f"{path}: {name}"
