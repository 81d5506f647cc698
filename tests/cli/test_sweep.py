"""`privrl sweep` as people meet it."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from privrl import cli
from privrl.run.runners import SWEPT

SIZE = ["--env", "Chain", "--set", "max_steps=6", "--episodes", "20"]
HERE = ["sweep", "actor-critic", *SIZE]
PAPER = [
    *("sweep", "seo2020-actor-critic", *SIZE, "--epsilon", "10", "--delta", "1e-6"),
    *("--seeds", "2"),
]
GRID = ["--grid", "actor_step=0.1,0.5,2", "--grid", "lambda_=0,0.8"]


@pytest.mark.slow
def test_a_sweep_is_stopped_resumed_and_the_best_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], stops: Callable[[int], None]
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    words = [*PAPER, *GRID, "--replicas", "4", "--segment", "10", "--curves"]
    assert cli.run([*words, "--out", str(whole)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("6 combinations on 2 seeds, 20 episodes.\n")
    assert printed.endswith(f"All runs are in {whole / 'results.parquet'}.\n")
    assert len(printed.splitlines()) == 3 + 1 + 6 + 1
    assert all(len(line) < 80 for line in printed.splitlines()[:-1])
    rows = pq.read_table(whole / "results.parquet").to_pylist()
    assert len(rows) == 12
    assert {len(row["curve"]) for row in rows} == {20}

    stops(3)
    assert cli.run([*words, "--out", str(cut)]) == 130
    told = capsys.readouterr().err
    assert "Stopped after 1 of 3 chunks" in told
    assert f"privrl sweep seo2020-actor-critic --out {cut} --resume" in told
    assert cli.run([*words, "--out", str(cut)]) == 2
    assert "holds a sweep already" in capsys.readouterr().err
    stops(1000)
    again = ["sweep", "seo2020-actor-critic", "--out", str(cut), "--resume"]
    assert cli.run([*again, "--json", "--top", "2"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["best"]) == 2
    assert set(found["best"][0]["settings"]) == {"actor_step", "lambda_"}
    assert found["plan"]["grid"]["actor_step"] == [0.1, 0.5, 2.0]
    for name in ("plan.json", "results.parquet"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()
    assert len(list(cut.iterdir())) == 2


@pytest.mark.slow
def test_certified_agents_are_swept_in_whole_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text(
        'env = "Chain"\nvariant = "none"\npeople = 22\nbatch = 4\nmax-steps = 6\nseeds = 2\n'
        "segment = 5\n[grid]\nactor_step = [1, 5.0]\nclip = 1.0\n"
    )
    out = tmp_path / "out"
    assert cli.run(["sweep", "actor-critic", "--config", str(grid), "--out", str(out)]) == 0
    assert "2 combinations on 2 seeds, 22 episodes." in capsys.readouterr().out
    rows = pq.read_table(out / "results.parquet").to_pylist()
    assert [(row["actor_step"], row["clip"], row["seed"]) for row in rows] == [
        *((1.0, 1.0, 0), (1.0, 1.0, 1), (5.0, 1.0, 0), (5.0, 1.0, 1))
    ]


FUNCTIONAL = ["sweep", "wang2019-functional-q", "--env", "Interval"]
PUBLIC_CODE = [*FUNCTIONAL, "--set", "preset=public-code"]


@pytest.mark.slow
def test_the_noise_of_functional_q_is_swept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--set", "samples=150", "--set", "resets=3", "--seeds", "2"]
    out = tmp_path / "out"
    assert cli.run([*PUBLIC_CODE, *size, "--grid", "sigma=0,1", "--out", str(out)]) == 0
    assert "2 combinations on 2 seeds, 3 episodes." in capsys.readouterr().out
    rows = pq.read_table(out / "results.parquet").to_pylist()
    assert [(row["sigma"], row["seed"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert rows[0]["return_all"] != rows[2]["return_all"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([*FUNCTIONAL, "--grid", "sigma=0,1"], "A sweep over sigma needs a rate too: say --set"),
        ([*PUBLIC_CODE, "--epsilon", "1", "--grid", "sigma=0"], "comes with no claim: leave"),
        ([*PUBLIC_CODE, "--episodes", "9", "--grid", "sigma=0"], "There is no option 'episodes'"),
        ([*PUBLIC_CODE, "--grid", "sigm=0"], "Did you mean 'sigma'?"),
        ([*PUBLIC_CODE, "--grid", "sigma=-1"], "sigma must"),
        (["sweep", "functional-q", "--grid", "gamma=0"], "privrl sweep wang2019-functional-q."),
        (["sweep", "prospect", "--grid", "gamma=0"], "privrl sweep rajabi2022-prospect."),
        (PAPER, "grid is needed: say with --grid a setting and its values"),
        ([*PAPER, "--grid", "actor_step"], "A grid is said as actor_step=0.1,0.5"),
        ([*PAPER, "--grid", "actor_step="], "actor_step has no values"),
        ([*PAPER, "--grid", "actor_step=a"], "A value of actor_step in the grid must be a number"),
        ([*PAPER, "--grid", "actor_step=1,1"], "a value twice"),
        ([*PAPER, *GRID, *GRID], "is in the grid twice"),
        ([*PAPER, "--grid", "actor_stp=1"], "Did you mean 'actor_step'?"),
        ([*PAPER, "--grid", "lambda_=0.5,1.5"], "lambda_ must be at most 1"),
        ([*PAPER, *GRID, "--set", "acting"], "Options are set as acting=softmax"),
        ([*PAPER, *GRID, "--set", "actng=softmax"], "'actng' of seo2020-actor-critic. Did"),
        ([*PAPER, *GRID, "--seeds", "0"], "seeds must be a whole number of at least 1"),
        ([*PAPER, *GRID, "--top", "0"], "top must be at least 1"),
        ([*PAPER, *GRID, "--set", "seed=1"], "seed is no option of a sweep"),
        (["sweep"], f"Say what is to learn: privrl sweep {', or '.join(SWEPT)}."),
        ([*HERE, *GRID], "--epsilon: the privacy budget"),
        (["sweep", "actor-critic", *GRID], "--people: how many people"),
        (
            [
                *("sweep", "actor-critic", "--env", "Acrobot-v1", "--people", "9"),
                *("--variant", "none", "--features", "network:4", "--grid", "clip=1"),
            ],
            "played one by one: use privrl train",
        ),
        ([*PAPER, *GRID, "--resume"], "--episodes"),
        ([*PAPER, *GRID, "--set", "mode=paper"], "There are no modes any more. Leave mode out."),
        ([*PAPER, *GRID, "--mode", "paper"], "No such option: --mode"),
        ([*PAPER, *GRID, "--people", "9"], "'people' of seo2020-actor-critic. Did you mean 'epis"),
        (["sweep", "actor-critic", "--resume"], "cannot be read: No such file"),
    ],
)
def test_bad_sweeps_are_refused_in_one_sentence_and_leave_nothing(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run([*words, "--out", str(tmp_path / "deep" / "out")]) == 2
    printed = capsys.readouterr()
    assert sentence in printed.err
    assert printed.err.count("\n") == 1 or "options are needed:\n" in printed.err
    assert printed.out == ""
    assert list(tmp_path.iterdir()) == []
