"""One error in the words of each front: Python, the command line, a configuration file."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.core.errors import InputError, option
from privrl.data import Tabular, Trajectories, stream_parquet
from privrl.data.sources import PRIVATE
from privrl.privacy.resuming import KEY_FILE
from privrl.run.cluster import connect
from privrl.run.request import Request

COLUMNS = {"trajectory": "stay", "time": "t", "state": "s", "action": "a", "reward": "r"}
ROWS = [
    {"stay": stay, "who": stay // 2, "t": t, "s": t, "a": 1, "r": 0.5, "p": 0.5, "w": "mild"}
    for stay in range(4)
    for t in range(2)
]
QUESTION = [
    *("--policy", "policy.json", "--behavior-prob", "p", "--epsilon", "1", "--delta", "1e-5"),
    *("--reward-range", "0,1", "--horizon", "2", "--weight-cap", "4"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Tabular.uniform(2, 2).save("policy.json")


def put(row: int, **cells: Any) -> list[dict[str, Any]]:
    return [one | (cells if n == row else {}) for n, one in enumerate(ROWS)]


def write(rows: list[dict[str, Any]], file: str) -> None:
    table = pa.Table.from_pylist(rows)
    if file.endswith(".csv"):
        pa_csv.write_csv(table, file)
    else:
        pq.write_table(table, file)


def read(file: str, stream: bool = False, **columns: Any) -> None:
    if stream:
        list(stream_parquet(file, **columns))
    elif file.endswith(".csv"):
        Trajectories.from_csv(file, **columns)
    else:
        Trajectories.from_parquet(file, **columns)


def as_words(columns: dict[str, Any]) -> list[str]:
    return [word for name, value in columns.items() for word in (f"--{name}", str(value))]


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.run(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err.removeprefix("privrl: ").removesuffix("\n").removesuffix(PRIVATE).rstrip()


# The rows, the file, what Python is told and says, what the command line is told and says.
CHECKED: dict[str, tuple[Any, ...]] = {
    "a trajectory again": (
        put(7, stay=0),
        "x.parquet",
        {},
        "a trajectory that had ended appears again: sort the rows by trajectory and time, or pass "
        "sort=True.",
        [],
        "a trajectory that had ended appears again: sort the rows by trajectory and time, or pass "
        "--sort.",
    ),
    "time goes back": (
        put(1, t=-1),
        "x.parquet",
        {},
        "back within a trajectory: sort the rows by trajectory and time, or pass sort=True.",
        [],
        "back within a trajectory: sort the rows by trajectory and time, or pass --sort.",
    ),
    "a user again, in a stream": (
        put(7, who=0, stay=9),
        "x.parquet",
        {"stream": True, "user": "who"},
        "appears again: sort the rows by user, trajectory and time, or pass sort=True.",
        ["--stream", "--user", "who"],
        "appears again: sort the rows by user, trajectory and time, or pass --sort.",
    ),
    "a null reward": (
        put(3, r=None),
        "x.parquet",
        {},
        "the value is null: give its column a rule with nulls, such as {'r': 'fill'}.",
        [],
        "the value is null: give its column a rule with --nulls, such as r=0.",
    ),
    "a null state in CSV": (
        put(3, s=None),
        "x.csv",
        {},
        "the value is null, as empty cells and NA are: put quotes around NA if it is a word, or "
        "give its column a rule with nulls, such as {'s': 'carry'}.",
        [],
        "the value is null, as empty cells and NA are: put quotes around NA if it is a word, or "
        "give its column a rule with --nulls, such as s=carry.",
    ),
    "no rule for rewards": (
        ROWS,
        "x.parquet",
        {"nulls": "carry"},
        "column 'r' may hold nulls, by its type, and nulls gives no rule for it: add "
        "{'r': 'refuse'}, or {'r': 'fill'} if a null means some value.",
        ["--nulls", "carry"],
        "column 'r' may hold nulls, by its type, and --nulls gives no rule for it: add r=refuse, "
        "or r=0 if a null means some value.",
    ),
    "a rule for no column": (
        ROWS,
        "x.parquet",
        {"nulls": {"z": "fill"}, "fill": {"z": 0}},
        "nulls names 'z', which is not a column that is read.",
        ["--nulls", "z=0"],
        "--nulls names 'z', which is not a column that is read.",
    ),
    "filled with infinity": (
        ROWS,
        "x.parquet",
        {"nulls": {"r": "fill"}, "fill": {"r": float("inf")}},
        "fill must give a finite number or a word for 'r'.",
        ["--nulls", "r=1e999"],
        "--nulls must give a finite number or a word for 'r'.",
    ),
    "filled with no state": (
        put(3, s=None),
        "x.parquet",
        {"nulls": {"s": "fill"}, "fill": {"s": 0.5}},
        "fill gives 's' a value that is no state.",
        ["--nulls", "s=0.5"],
        "--nulls gives 's' a value that is no state.",
    ),
    "filled with another word": (
        put(3, w=None),
        "x.parquet",
        {"state": "w", "state_vocabulary": ["mild"], "nulls": {"w": "fill"}, "fill": {"w": "x"}},
        "fill gives 'w' a value that is not among state_vocabulary.",
        ["--state", "w", "--states", "mild", "--nulls", "state=x"],
        "--nulls gives 'w' a value that is not among --states.",
    ),
    "nothing to carry": (
        put(2, s=None),
        "x.parquet",
        {"nulls": {"s": "carry", "r": "refuse"}},
        "its trajectory holds none before it to carry forward: fill it in the table first.",
        ["--nulls", "state=carry,reward=refuse"],
        "its trajectory holds none before it to carry forward: fill it in the table first.",
    ),
    "words for numbers": (
        ROWS,
        "x.parquet",
        {"state": "w", "num_states": 2},
        "each state must be a whole number (if they are words, say with state_vocabulary which "
        "words there can be, such as ['low', 'high'], in the policy's order).",
        ["--state", "w", "--num-states", "2"],
        "each state must be a whole number (if they are words, say with --states which words "
        "there can be, such as low,high, in the policy's order).",
    ),
    "words in a stream": (
        ROWS,
        "x.parquet",
        {"stream": True, "action": "w"},
        "holds words, so a stream needs action_vocabulary: say with action_vocabulary which words "
        "there can be, such as ['low', 'high'], in the policy's order.",
        ["--stream", "--action", "w"],
        "holds words, so a stream needs --actions: say with --actions which words there can be, "
        "such as low,high, in the policy's order.",
    ),
    "another word": (
        put(3, w="odd"),
        "x.parquet",
        {"action": "w", "action_vocabulary": ["mild"]},
        "the action is not among action_vocabulary.",
        ["--action", "w", "--actions", "mild"],
        "the action is not among --actions.",
    ),
    "numbers for words": (
        ROWS,
        "x.parquet",
        {"state_vocabulary": ["mild"]},
        "column 's' holds int64, but state_vocabulary holds words.",
        ["--states", "mild"],
        "column 's' holds int64, but --states holds words.",
    ),
    "numbers for words in CSV, whose types are private": (
        ROWS,
        "x.csv",
        {"state_vocabulary": ["mild"]},
        "column 's' holds int64, but state_vocabulary holds words.",
        ["--states", "mild"],
        "column 's' holds int64, but --states holds words.",
    ),
    "other codes": (
        put(3, a=7),
        "x.parquet",
        {"num_actions": 2},
        "the action lies outside the 2 actions 0 to 1 (if the codes are others, list them with "
        "action_vocabulary, in the policy's order).",
        ["--num-actions", "2"],
        "the action lies outside the 2 actions 0 to 1 (if the codes are others, list them with "
        "--actions, in the policy's order).",
    ),
    "codes below 0": (
        put(3, s=-1),
        "x.parquet",
        {},
        "the state lies outside 0 to 2**31 - 2 (if the codes are others, list them with "
        "state_vocabulary, in the policy's order).",
        [],
        "the state lies outside 0 to 2**31 - 2 (if the codes are others, list them with --states, "
        "in the policy's order).",
    ),
    "several columns for one": (
        ROWS,
        "x.parquet",
        {"action": ["a", "p"], "num_actions": 2},
        "num_actions and action_vocabulary are for discrete actions: name one column, as "
        "action='NAME'.",
        ["--action", "a,p", "--num-actions", "2"],
        "--num-actions and --actions are for discrete actions: name one column, as --action NAME.",
    ),
    "percentages": (
        put(3, p=60.0),
        "x.parquet",
        {"behavior_prob": "p"},
        "the probability lies outside (0, 1] (percentages must be divided by 100 first).",
        ["--behavior-prob", "p"],
        "the probability lies outside (0, 1] (percentages must be divided by 100 first).",
    ),
    "a word twice": (
        ROWS,
        "x.parquet",
        {"state_vocabulary": ["x", "x"]},
        "state_vocabulary holds an entry twice.",
        ["--states", "x,x"],
        "--states holds an entry twice.",
    ),
}


@pytest.mark.parametrize("case", CHECKED)
def test_readers_and_the_command_line_refuse_alike(
    case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, file, told, in_python, words, in_options = CHECKED[case]
    write(rows, file)
    with pytest.raises(InputError) as refusal:
        read(file, **COLUMNS | told)
    assert str(refusal.value).removesuffix(f" {PRIVATE}").endswith(in_python)
    said = refused(["check", file, *as_words(COLUMNS), *words], capsys)
    assert said.endswith(in_options)


def test_what_is_needed_with_neutral(capsys: pytest.CaptureFixture[str]) -> None:
    write(ROWS, "x.parquet")
    neutral: Any = {**COLUMNS, "invalid": "neutral", "num_actions": 2}
    for told, in_python, words, in_options in (
        (
            {},
            "people is needed with invalid='neutral': say with people how many people (or",
            ["--invalid", "neutral"],
            "people is needed with --invalid neutral: say with --people how many people (or",
        ),
        (
            {"people": 4, "invalid": "refuse"},
            "people is counted in the table: say it with invalid='neutral' only.",
            ["--people", "4"],
            "--people is counted in the table: say it with --invalid neutral only.",
        ),
        (
            {"people": 4, "state": ["w", "s"]},
            "holds string, but state_vocabulary is needed: say which words there can be.",
            ["--invalid", "neutral", "--people", "4", "--state", "w,s"],
            "holds string, but --states is needed: say which words there can be.",
        ),
    ):
        with pytest.raises(InputError) as refusal:
            Trajectories.from_parquet("x.parquet", **neutral | told)
        assert in_python in str(refusal.value)
        asked = ["evaluate", "x.parquet", *as_words(COLUMNS), *QUESTION, *words]
        assert in_options in refused(asked, capsys)


def test_how_many_states_there_are_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """Where no policy says it: its probabilities are a column."""
    write(ROWS, "x.parquet")
    neutral: Any = {**COLUMNS, "invalid": "neutral", "num_actions": 2, "people": 4}
    with pytest.raises(InputError) as refusal:
        Trajectories.from_parquet("x.parquet", **neutral)
    assert str(refusal.value) == (
        "num_states is needed with invalid='neutral': say with num_states how many states there "
        "can be or, if they are vectors, say so with state=['...']."
    )
    words = ["evaluate", "x.parquet", *as_words(COLUMNS), *QUESTION[2:], "--target-prob", "p"]
    words += ["--num-actions", "2", "--invalid", "neutral", "--people", "4"]
    assert refused(words, capsys) == (
        "num_states is needed with --invalid neutral: say with --num-states how many states there "
        "can be or, if they are vectors, say so with --state-range LOW:HIGH."
    )


def test_where_no_cluster_is(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("ray")
    with pytest.raises(InputError) as refusal, connect("127.0.0.1:1"):
        pass
    nobody = "There is no Ray cluster at '127.0.0.1:1': start one, or say "
    assert str(refusal.value) == nobody + "workers='ray'."
    write(ROWS, "x.parquet")
    words = ["evaluate", "x.parquet", *as_words(COLUMNS), *QUESTION, "--ray", "127.0.0.1:1"]
    assert refused(words, capsys).startswith(nobody + "--ray local.")


def test_what_is_kept_is_said_after_the_error_in_the_same_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_: Request, *, folder: Path, **__: Any) -> None:
        (folder / KEY_FILE).write_bytes(b"")
        raise InputError("The rows are mixed up", remedy="pass " + option("sort", True) + ".")

    monkeypatch.setattr(Request, "run_study", fails)
    assert refused(["evaluate", "x.parquet", "--out", "run"], capsys) == (
        "The rows are mixed up: pass --sort. What was begun is kept, and costs nothing again: "
        "privrl evaluate --out run --resume"
    )


def test_a_file_is_told_by_its_keys(capsys: pytest.CaptureFixture[str]) -> None:
    """What is in the file by its key there, and everything else by its option."""
    write(put(3, w="odd"), "x.parquet")
    lines = [f'{name} = "{value}"' for name, value in {**COLUMNS, "state": "w"}.items()]
    Path("x.toml").write_text("\n".join([*lines, 'states = ["mild", "mild"]']))
    check = ["check", "x.parquet", "--config", "x.toml"]
    assert refused(check, capsys) == "states holds an entry twice."
    # The command line comes first.
    assert refused([*check, "--states", "a,a"], capsys) == "--states holds an entry twice."
    Path("x.toml").write_text("\n".join([*lines, 'states = "mild"']))
    assert refused(check, capsys).endswith("the state is not among states.")
    Path("x.toml").write_text("\n".join([*lines, 'invalid = "neutral"', "num_states = 2.5"]))
    asked = ["evaluate", "x.parquet", "--config", "x.toml", *QUESTION]
    assert refused(asked, capsys).startswith("num_states must be a whole number, not 2.5")
    Path("x.toml").write_text("\n".join([*lines, 'invalid = "neutral"', 'states = "mild"']))
    assert refused(asked, capsys).startswith(
        'people is needed with invalid = "neutral": say with --people how many'
    )
    Path("x.toml").write_text("no TOML")
    assert refused(asked, capsys).startswith("'x.toml' is not TOML")


def test_a_field_is_an_option_only_if_it_was_said(capsys: pytest.CaptureFixture[str]) -> None:
    limits = ["limits", "--epsilon"]
    assert refused([*limits, "-1"], capsys).startswith("--epsilon must be")
    # A field of the event, and no option: --epsilon is what may be spent.
    event = ["budget", "PureDP(-1)", "--delta", "0.1"]
    assert refused(event, capsys).startswith("PureDP: epsilon must be")
    assert refused([*event, "--epsilon", "1"], capsys).startswith("PureDP: epsilon must be")
    assert refused([*event[:2], "--delta", "2"], capsys).startswith("PureDP: epsilon must be")
    assert refused(["budget", "PureDP(1)", "--delta", "2"], capsys).startswith("--delta must be")
    # What was asked of --samples has no name of its own there.
    assert refused(["risk", "--samples", "1,,2"], capsys).startswith("outcomes must be a number")
    assert refused(["risk", "--outcomes", "x:1"], capsys).startswith("--outcomes must be a number")


def test_an_option_is_named_as_it_is_typed(capsys: pytest.CaptureFixture[str]) -> None:
    train = ["train", "actor-critic", "--env", "Chain", "--people", "9", "--epsilon", "1"]
    words = [*train, "--delta", "1e-5", "--lambda", "2", "--out", "run"]
    assert refused(words, capsys).startswith("--lambda must be at most 1")
