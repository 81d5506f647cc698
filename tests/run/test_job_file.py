"""A configuration from the names and types of columns, and from nothing else."""

import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.core.errors import InputError
from privrl.run.job_file import guess_roles, job_text, write_job
from privrl.run.request import Request
from privrl.run.specs.table import EvaluateOptions

# A clinic's columns, a recommender's, Gymnasium's, and names that are other words' parts.
TABLES: dict[str, tuple[list[str], dict[str, Any]]] = {
    "clinic": (
        ["stay_id", "patient", "hour", "hr", "map", "dose", "outcome", "p", "died"],
        {
            "trajectory": ["stay_id"],
            "user": ["patient"],
            "time": ["hour"],
            "action": ["dose"],
            "reward": ["outcome"],
            "behavior_prob": ["p"],
            "terminated": ["died"],
        },
    ),
    "recommender": (
        ["SessionId", "userId", "timestamp", "state", "action", "action_prob", "reward"],
        {
            "trajectory": ["SessionId"],
            "user": ["userId"],
            "time": ["timestamp"],
            "state": ["state"],
            "action": ["action"],
            "reward": ["reward"],
            "behavior_prob": ["action_prob"],
        },
    ),
    "gymnasium": (
        ["episode", "t", "obs_0", "obs_1", "next_obs_0", "a", "r", "done", "truncated"],
        {
            "trajectory": ["episode"],
            "time": ["t"],
            "state": ["obs_0", "obs_1"],
            "action": ["a"],
            "reward": ["r"],
            "terminated": ["done"],
            "truncated": ["truncated"],
        },
    ),
    "others": (["target_prob", "next_action", "parade", "stayed", "id", "", "7"], {}),
}


@pytest.mark.parametrize("name", TABLES)
def test_roles_are_guessed_by_name(name: str) -> None:
    columns, roles = TABLES[name]
    assert guess_roles(dict.fromkeys(columns)) == roles


def test_a_reward_and_a_probability_are_numbers() -> None:
    types = {"reward": pa.string(), "r": pa.float64(), "p": pa.list_(pa.float64()), "prob": None}
    assert guess_roles(types) == {"reward": ["r"], "behavior_prob": ["prob"]}


def written(folder: Path, columns: list[str], rows: str = "") -> Path:
    path = folder / "stays.csv"
    path.write_text(",".join(columns) + "\n" + rows)
    return path


@pytest.mark.parametrize("name", list(TABLES)[:3])
def test_what_is_written_is_read(name: str, tmp_path: Path) -> None:
    columns, roles = TABLES[name]
    job = write_job(written(tmp_path, columns), tmp_path / "job.toml")
    held = tomllib.loads(job.read_text())
    assert held.pop("table") == [str(tmp_path / "stays.csv")]
    assert held == {role: names if role == "state" else names[0] for role, names in roles.items()}
    # Every option is there, set or not, with its line of help above it.
    lines = job.read_text().splitlines()
    for one in EvaluateOptions.options().values():
        at = next(
            n for n, line in enumerate(lines) if line.lstrip("# ").startswith(f"{one.name} =")
        )
        assert lines[at - 1] == f"# {one.text}"
    missing = {one.field for one in Request.of({}, job).missing()}
    needed = {"policy", "epsilon", "delta", "reward_range", "horizon", "weight_cap"}
    assert missing == needed | {"state", "behavior_prob"} - roles.keys()


def test_examples_are_answers(tmp_path: Path) -> None:
    """Whoever takes away the # of what is needed has a configuration."""
    columns, _ = TABLES["clinic"]
    text = job_text([str(written(tmp_path, columns))])
    head, _, _ = text.partition("# Options that some")
    for name in ("state", "policy", "epsilon", "delta", "reward_range", "horizon", "weight_cap"):
        assert f"\n# {name} = " in head
        head = head.replace(f"\n# {name} = ", f"\n{name} = ")
    (tmp_path / "job.toml").write_text(head)
    asked = Request.of({}, tmp_path / "job.toml")
    assert asked.missing() == []
    assert asked.state == ("hr", "map")
    assert asked.reward_range == (0.0, 1.0)


def test_types_are_those_of_the_schema_and_no_row_is_looked_at(tmp_path: Path) -> None:
    rows = {"stay": [1, 2], "s": ["mild", "4711"], "a": [0, 1], "r": [0.5, float("nan")]}
    texts = []
    for count in (0, 2):
        pq.write_table(pa.table(rows).slice(0, count), tmp_path / "stays.parquet")
        texts.append(job_text([str(tmp_path / "stays.parquet")]))
    assert texts[0] == texts[1]
    assert '#   "s" (string)' in texts[0]
    assert "4711" not in texts[0]
    csv = [job_text([str(written(tmp_path, ["stay", "s"], rows))]) for rows in ("", "4711,\0\n")]
    assert csv[0] == csv[1]


def test_names_cannot_set_anything_else(tmp_path: Path) -> None:
    hostile = ['state\n"\nepsilon = 99', "x\x7f\x1b[2K", 'a"b\\c', "\u202e"]
    pq.write_table(pa.table({name: [1] for name in hostile}), tmp_path / "stays.parquet")
    held = tomllib.loads(job_text([str(tmp_path / "stays.parquet")], 'x\n"\nepsilon = 99'))
    assert held.keys() == {"table", "state"}
    assert held["state"] == hostile[:1]


def test_a_file_is_never_written_over(tmp_path: Path) -> None:
    table = written(tmp_path, ["stay"])
    (tmp_path / "job.toml").write_text("mine")
    with pytest.raises(InputError, match="is there already: say another file"):
        write_job(table, tmp_path / "job.toml")
    assert (tmp_path / "job.toml").read_text() == "mine"
    with pytest.raises(InputError, match="There is no file"):
        write_job(tmp_path / "nothing.csv", tmp_path / "other.toml")
    assert not (tmp_path / "other.toml").exists()


def test_the_command_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, ["stay", "t", "a", "r"])
    assert cli.run(["init", "stays.csv"]) == 0
    assert "privrl evaluate --config job.toml --dry-run" in capsys.readouterr().out
    assert cli.run(["init", "stays.csv"]) == 2
    assert "'job.toml' is there already" in capsys.readouterr().err
    assert cli.run(["init", "stays.csv", "--out", "other.toml", "--json"]) == 0
    assert (tmp_path / "other.toml").read_text().count("\n") == (
        (tmp_path / "job.toml").read_text().count("\n")
    )
    assert cli.run(["evaluate", "--config", "job.toml", "--dry-run"]) == 2
    assert "options are needed:" in capsys.readouterr().err
