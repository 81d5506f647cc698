"""CSV files against a slow reader and a slow evaluator in plain Python: the same, or refused."""

import csv
import io
import random
from pathlib import Path

import numpy as np
import pytest

from privrl.data import Tabular, Trajectories
from privrl.evaluation import IS
from privrl.privacy import InputError

POLICY = Tabular(np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]]))
GAMMA = 0.9
IDS = ["1", "01", "1.0", " a", "a", "A", "bé", "10", "x y", "NaN", "inf", "True", "-0", "0"]
IDS += [str(2**53), str(2**53 + 1)]


def spelled(draw: random.Random, value: float) -> str:
    """A number as somebody might write it."""
    return draw.choice(
        [
            *(f"{value}", f" {value}", f"{value} ", f"+{value}", f"{value}e0", f"0{value}"),
            *(f"{value}.0", f'"{value}"', f"{value}0e-1", f"{value}_0", f"{float(value)!r}"),
        ]
    )


def written(seed: int) -> tuple[str, bool]:
    """A table, and whether it has to be sorted."""
    draw = random.Random(seed)
    rows = []
    dated = draw.random() < 0.3
    for one in draw.sample(IDS, draw.randint(1, 5)):
        for time in sorted(draw.sample(range(20), draw.randint(1, 4))):
            numbers = [draw.randrange(3), draw.randrange(2), draw.choice([0, 1, -1, 0.5])]
            cells = [str(number) for number in (*numbers, draw.choice([0.5, 0.25, 1]))]
            if draw.random() < 0.2:
                place = draw.randrange(4)
                cells[place] = spelled(draw, float(cells[place]) if place > 1 else numbers[place])
            rows.append([one, f"2020-01-{time + 1:02d}" if dated else str(time), *cells])
    sort = draw.random() < 0.5
    if sort:
        draw.shuffle(rows)
    end = draw.choice(["\n", "\r\n"])
    text = end.join(["id,t,s,a,r,p", *(",".join(row) for row in rows)])
    return text + draw.choice(["", end]), sort


def read(text: str, sort: bool) -> tuple[int, float]:
    """How many trajectories there are, and what importance sampling says of the policy."""
    held: dict[str, list[tuple[str | float, list[float]]]] = {}
    for row in list(csv.reader(io.StringIO(text, newline="")))[1:]:
        assert not any("_" in cell for cell in row), "Python alone takes 1_0 for a number"
        time = row[1] if "-" in row[1] else float(row[1])
        held.setdefault(row[0], []).append((time, [float(cell) for cell in row[2:]]))
    total = 0.0
    for steps in held.values():
        ratio, value = 1.0, 0.0
        ordered = sorted(steps) if sort else steps
        for place, (_, (state, action, reward, prob)) in enumerate(ordered):
            ratio *= POLICY.table[int(state)][int(action)] / prob
            value += GAMMA**place * reward
        total += ratio * value
    return len(held), total / len(held)


@pytest.mark.parametrize("block", range(4))
def test_no_table_is_read_as_another(block: int, tmp_path: Path) -> None:
    compared = 0
    for seed in range(75 * block, 75 * block + 75):
        text, sort = written(seed)
        (tmp_path / "x.csv").write_bytes(text.encode())
        try:
            data = Trajectories.from_csv(
                tmp_path / "x.csv",
                sort=sort,
                trajectory="id",
                time="t",
                state="s",
                action="a",
                reward="r",
                behavior_prob="p",
                num_states=3,
                num_actions=2,
            )
        except InputError:
            continue
        compared += 1
        estimate = IS(gamma=GAMMA).fit(data, POLICY).estimate
        count, expected = read(text, sort)
        assert data.num_trajectories == count, seed
        assert estimate == pytest.approx(expected, rel=1e-9, abs=1e-12), seed
    assert compared > 30
