"""Readings that are chosen by differences, where no number is printed."""

from dataclasses import replace
from pathlib import Path

import pytest

from privrl.papers.reproduce import Difference, Reading, above
from privrl.papers.reproduce.readings import choose, distance
from privrl.papers.reproduce.running import run
from tests.papers.reproduce import toy

READINGS = (Reading("as printed", {"shift": -2.5}), Reading("shifted", {"shift": 0.5}))


def test_differences_choose_where_nothing_is_printed(tmp_path: Path) -> None:
    """The methods are at 3 and 2, and the control at 0: a shift of -2.5 takes them below it."""
    quantities = tuple(replace(one, printed=None, pilot=3.0) for one in toy.QUANTITIES)
    differences = (
        above("fair beats the control", "fair", "control", least=1.0),
        Difference("good is like certified", {"good": 1.0, "certified": -1.0}, "same", least=1.0),
        above("certified beats good", "certified", "good", least=50.0, counts=False),
    )
    for by, name in (("differences", "shifted"), ("numbers", "as printed")):
        experiment = toy.make_experiment(readings=READINGS, choose_by=by)
        target = toy.make_target(
            experiment=experiment, quantities=quantities, differences=differences, statements=()
        )
        (finding,) = run([target], tmp_path / by)
        assert finding.chosen.name == name
        assert choose([target], finding.results).name == name
        apart = [distance([target], finding.results, one) for one in READINGS]
        if by == "numbers":
            assert apart == [None, None]
        else:
            # -0.5 lacks 1.5 of 1, and -3 is 2 beyond the margin; the other reading lacks nothing.
            assert apart == pytest.approx([1.75, 0.0], abs=0.35)
