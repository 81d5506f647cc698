"""`privrl risk` as people meet it, and the page it writes."""

import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from privrl import cli
from privrl.envs import ObstacleGrid
from privrl.report import prospects
from privrl.risk import IdentityWeight, PowerUtility, Prospect, solve

SVG = "{http://www.w3.org/2000/svg}"


def test_a_long_shot_is_worth_more_than_its_mean(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["risk", "--outcomes", "20:0.05,0:0.95"]) == 0
    who = Prospect.tversky_kahneman()
    value = float(who.gain_weight(0.05)) * 20.0**0.88
    said = " ".join(capsys.readouterr().out.split())
    equivalent = value ** (1.0 / 0.88)
    assert said == (
        f"To tversky-kahneman it is worth {value:.6g}, as much as {equivalent:.6g} for certain. "
        "Its mean is 1."
    )


def test_samples_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "mine.json"
    Prospect.rajabi2022().save(kept)
    samples = [-3.0, 1.0, 1.0, 2.0]
    for word in ("rajabi2022", str(kept)):
        assert cli.run(["risk", "--samples=-3,1,1,2", "--prospect", word, "--json"]) == 0
        answer = json.loads(capsys.readouterr().out)
        assert answer["mean"] == pytest.approx(0.25)
        assert answer["value"] == pytest.approx(float(Prospect.rajabi2022().of_samples(samples)))
        assert Prospect.from_dict(answer["prospect"]) == Prospect.rajabi2022()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Say --outcomes 20:0.05,0:0.95, or --samples 3,4,5, or --page FILE."),
        (["--outcomes", "1:1", "--samples", "1"], "and not both."),
        (["--outcomes", "20:0.05,0"], "Say how likely '0' is"),
        (["--outcomes", "20:0.05,0:0.5"], "sum to 1"),
        (["--outcomes", "much:1"], "outcomes must be a number"),
        (["--samples", "1,,2"], "outcomes must be a number"),
        (["--samples", "1:0.5,2"], "equally likely: say '1' without a probability"),
        (["--outcomes", "inf:0.5,0:0.5"], "outcomes must be finite"),
        (["--samples", "1", "--prospect", "bold"], "prospect must be neutral"),
        (["--samples", "1", "--prospect", "none.json"], "cannot be read"),
        (["--page", "nowhere/page.html"], "cannot be written"),
    ],
)
def test_bad_input_gets_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["risk", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_the_page_shows_weights_utilities_and_ways(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "page.html"
    assert cli.run(["risk", "--prospect", "rajabi2022", "--page", str(path)]) == 0
    assert capsys.readouterr().out == f"Weights and utilities are in {path}.\n"
    page = path.read_text()
    tree = ElementTree.fromstring(page.removeprefix("<!DOCTYPE html>\n"))
    titles = [one.text for one in tree.iter(f"{SVG}title")]
    assert titles == [
        *("Weights of probabilities", "Utility of outcomes"),
        *("The way of: goes by the mean", "The way of: rajabi2022"),
    ]
    grid, who = ObstacleGrid(), Prospect.rajabi2022()
    best = solve(grid, who, 0.9)
    assert f"{best.values[0]:.4f}" in page
    visits = grid.visits(best.policy, 400)
    assert all(f"{visits[grid.cell(x, y)]:.4f}" in page for x, y, _ in grid.obstacles)
    assert "<script" not in page


def test_a_page_without_a_grid_where_values_have_no_bound(tmp_path: Path) -> None:
    steep = Prospect(PowerUtility(1.0, 1.0, 3.0), IdentityWeight(), IdentityWeight())
    prospects.write(steep, "steep", tmp_path / "page.html")
    assert "Where it leads" not in (tmp_path / "page.html").read_text()


def test_a_way_that_leads_nowhere_ends() -> None:
    grid = ObstacleGrid(size=3, obstacles=())
    left = grid.greedy(np.zeros(9, int))
    assert set(prospects.route(grid, left)) == {0}
    best = grid.optimal(0.9).policy
    way = prospects.route(grid, best)
    assert (way[0], way[-1], len(way)) == (0, 8, 5)
