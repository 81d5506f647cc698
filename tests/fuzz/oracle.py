"""A slow reader and slow evaluators in plain Python, and how the shipped ones compare with them.

The reader knows what docs/trajectories.md says and nothing of Arrow: a CSV file goes through the
`csv` module, a Parquet file through lists of Python's values. The evaluators are loops over the
formulas in the docstrings, with fractions where a sum could cancel.
"""

import csv
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.damage import Rng, choice

STATES, ACTIONS = 3, 2
COLUMNS: dict[str, Any] = {
    "trajectory": "stay",
    "user": "patient",
    "time": "t",
    "state": "ward",
    "action": "dose",
    "reward": "r",
    "behavior_prob": "p",
    "target_prob": "q",
    "terminated": "died",
    "num_states": STATES,
    "num_actions": ACTIONS,
}
Row = dict[str, Any]


class Invalid(Exception):  # noqa: N818 (what the table is)
    """Why the slow reader does not take a table."""


def table(rng: Rng, people: int | None = None) -> list[Row]:
    """A valid table."""
    rows: list[Row] = []
    stay = int(choice(rng, [0, 5, 2**40, -3]))
    for person in range(people or int(rng.integers(1, 7))):
        for _ in range(int(rng.integers(1, 3))):
            stay += int(rng.integers(1, 4))
            length = int(rng.integers(1, 6))
            ended = bool(rng.integers(2))
            t = int(choice(rng, [0, 1, -5, 2**50]))
            for k in range(length):
                t += int(rng.integers(1, 3))
                rows.append(
                    {
                        "stay": stay,
                        "patient": 10 * person,
                        "t": t,
                        "ward": int(rng.integers(STATES)),
                        "dose": int(rng.integers(ACTIONS)),
                        "r": _number(rng),
                        "p": float(rng.uniform(0.05, 1.0)),
                        "q": float(choice(rng, [0.0, 1.0, rng.uniform(), rng.uniform()])),
                        "died": ended and k == length - 1,
                    }
                )
    return rows


def _number(rng: Rng) -> float:
    return float(choice(rng, [rng.normal(), rng.normal(), 0.0, -0.0, 1e-9, 1e6 * rng.normal()]))


# --- what may be done to it ----------------------------------------------------------------------

Edit = Callable[[Rng, list[Row]], None]


def _set(column: str, *values: Any) -> Edit:
    def edit(rng: Rng, rows: list[Row]) -> None:
        choice(rng, rows)[column] = choice(rng, values)

    return edit


def _swapped(rng: Rng, rows: list[Row]) -> None:
    one, other = (int(rng.integers(len(rows))) for _ in range(2))
    rows[one], rows[other] = rows[other], rows[one]


def _repeated(rng: Rng, rows: list[Row]) -> None:
    rows.insert(int(rng.integers(len(rows) + 1)), dict(choice(rng, rows)))


def _dropped(rng: Rng, rows: list[Row]) -> None:
    del rows[int(rng.integers(len(rows)))]


def _moved(rng: Rng, rows: list[Row]) -> None:
    rows.append(rows.pop(int(rng.integers(len(rows)))))


EDITS: list[Edit] = [
    _set("r", math.nan, math.inf, -math.inf, None, 1e300, -1e-300, 5e-324, 123456789.0),
    _set("p", math.nan, 0.0, -0.1, 1.0000001, 2.0, None, 1.0, 5e-324, 1e-300, math.inf),
    _set("q", math.nan, -1e-9, 1.5, None, 0.0, 1.0, 5e-324),
    _set("ward", -1, STATES, 2**31, 2**40, None, 0, STATES - 1),
    _set("dose", -1, ACTIONS, 2**31, None, 0, ACTIONS - 1),
    _set("died", True, False, None),
    _set("t", None, 0, -(2**60), 2**60),
    _set("stay", None, 1, -7, 2**62),
    _set("patient", None, 0, 10, 99),
    *(_swapped, _repeated, _dropped, _moved),
]


# --- files ---------------------------------------------------------------------------------------


def write_csv(rng: Rng, rows: list[Row], path: Path) -> None:
    names = list(rows[0])
    if rng.random() < 0.3:
        names = [names[i] for i in rng.permutation(len(names))]
    words = choice(rng, [("true", "false"), ("1", "0")])

    def cell(value: Any) -> str:
        if value is None:
            return str(choice(rng, ["", "NA", "null"]))
        if isinstance(value, bool):
            return str(words[0] if value else words[1])
        return repr(value)

    coding = choice(rng, ["utf-8", "utf-8", "utf-8-sig"])
    with path.open("w", newline="", encoding=coding) as file:
        out = csv.writer(file, lineterminator=choice(rng, ["\n", "\r\n"]))
        out.writerow([*names, "unread"])
        out.writerows([*(cell(row[name]) for name in names), "x"] for row in rows)


def write_parquet(rng: Rng, rows: list[Row], path: Path) -> None:
    made = {}
    for name in rows[0]:
        cells = [row[name] for row in rows]
        kinds: list[Any] = {"r": [pa.float64()], "p": [pa.float64()], "q": [pa.float64()]}.get(
            name, [pa.bool_()] if name == "died" else [pa.int64()]
        )
        small = [one for one in cells if one is not None]
        if name in ("ward", "dose") and all(0 <= one < 100 for one in small):
            kinds = [pa.int64(), pa.int8(), pa.uint16(), pa.int32(), pa.float64()]
        made[name] = pa.array(cells, choice(rng, kinds), from_pandas=False)
    pq.write_table(pa.table(made), path, row_group_size=int(choice(rng, [1, 2, 5, 1000])))


def read_rows(paths: list[Path]) -> list[Row]:
    """The rows of files, by their columns; None for nulls."""
    rows: list[Row] = []
    for path in paths:
        if path.suffix == ".parquet":
            rows += pq.ParquetFile(path).read().to_pylist()
            continue
        with path.open(newline="", encoding="utf-8-sig") as file:
            for row in csv.DictReader(file):
                rows.append({k: None if v in ("", "NA", "null") else v for k, v in row.items()})
    return rows


def read(paths: list[Path], sort: bool = False) -> list[list[Row]]:
    """Trajectories, in order; `Invalid` if the table is not valid."""
    rows = [_checked(row) for row in read_rows(paths)]
    if not rows:
        raise Invalid("no rows")
    if sort:
        rows.sort(key=lambda row: (row["patient"], row["stay"], row["t"]))
    found: list[list[Row]] = []
    seen, before = set(), None
    for row in rows:
        if row["stay"] != before:
            if row["stay"] in seen:
                raise Invalid("a trajectory comes back")
            seen.add(row["stay"])
            found.append([])
        elif row["t"] <= found[-1][-1]["t"]:
            raise Invalid("time goes back")
        elif row["patient"] != found[-1][-1]["patient"]:
            raise Invalid("of two people")
        elif found[-1][-1]["died"]:
            raise Invalid("went on after its end")
        before = row["stay"]
        found[-1].append(row)
    return found


def _checked(row: Row) -> Row:
    made: Row = {}
    for name in ("stay", "patient"):
        if row[name] is None:
            raise Invalid("null")
        made[name] = row[name]  # text in CSV files, where 1 and 01 are two, and 10 is before 2
    for name in ("t", "ward", "dose"):
        made[name] = _whole(row[name])
    for name, most in (("ward", STATES), ("dose", ACTIONS)):
        if not 0 <= made[name] < most:
            raise Invalid(name)
    for name in ("r", "p", "q"):
        if row[name] is None:
            raise Invalid(name)
        made[name] = float(row[name])
        if not math.isfinite(made[name]):
            raise Invalid(name)
    if not 0.0 < made["p"] <= 1.0 or not 0.0 <= made["q"] <= 1.0:
        raise Invalid("probability")
    if row["died"] is None:
        raise Invalid("died")
    made["died"] = row["died"] in (True, "true", "1")
    return made


def _whole(value: Any) -> int:
    if value is None:
        raise Invalid("null")
    return int(value)


# --- the reader ----------------------------------------------------------------------------------


def compare_reading(rng: Rng, work: Path) -> list[str]:
    """Both readers on tables of which some are valid; what differs."""
    faults: list[str] = []
    for _ in range(4):
        faults += _compare_one(rng, work)
    return faults


def _compare_one(rng: Rng, work: Path) -> list[str]:
    from privrl.data import Trajectories, stream_parquet
    from privrl.privacy import PrivRLError

    rows = table(rng)
    for _ in range(int(choice(rng, [0, 0, 1, 1, 1, 2]))):
        if len(rows) > 1:
            choice(rng, EDITS)(rng, rows)
    form = choice(rng, ["csv", "parquet"])
    cut = int(rng.integers(1, len(rows))) if len(rows) > 1 and rng.random() < 0.4 else len(rows)
    paths = []
    for number, part in enumerate((rows[:cut], rows[cut:])):
        if part:
            paths.append(work / f"part-{number}.{form}")
            (write_csv if form == "csv" else write_parquet)(rng, part, paths[-1])
    sort = bool(rng.random() < 0.3)
    try:
        expected: list[list[Row]] | None = read(paths, sort)
        why = ""
    except Invalid as error:
        expected, why = None, str(error)
    about = f"{form}, {len(paths)} files, sort {sort}"
    stream: Any = None
    try:
        if form == "csv":
            data = Trajectories.from_csv(paths, sort=sort, **COLUMNS)
        elif rng.random() < 0.3:
            stream = stream_parquet(
                paths, sort=sort, batch_rows=int(choice(rng, [64, 1000])), **COLUMNS
            )
            told = stream.check()
            if expected is None:
                return [f"wrong: a stream takes what is not valid ({why}), {about}"]
            counts = (told.num_trajectories, told.num_steps)
            if counts != (len(expected), sum(map(len, expected))):
                return [f"wrong: a stream counts {counts}, {about}"]
            data = Trajectories.from_parquet(paths, sort=sort, **COLUMNS)
        else:
            data = Trajectories.from_parquet(paths, sort=sort, **COLUMNS)
    except PrivRLError as error:
        if stream is not None and expected is not None and _people_come_back(expected):
            return []
        # Files that are sorted together must have the same types; those of CSV files are guessed.
        if expected is not None and not (sort and "other column types" in str(error)):
            return [f"wrong: a valid table is refused, {about}: {error}"]
        return []
    if expected is None:
        return [f"wrong: what is not valid ({why}) is taken, {about}"]
    return _differences(data, expected, about)


def _people_come_back(slow: list[list[Row]]) -> bool:
    """Whether somebody's trajectories stand apart, which a stream refuses."""
    runs = [person for person, _ in itertools.groupby(one[0]["patient"] for one in slow)]
    return len(runs) > len(set(runs))


def _differences(data: Any, expected: list[list[Row]], about: str) -> list[str]:
    flat = [row for one in expected for row in one]
    pairs = {
        "lengths": (data.lengths.tolist(), list(map(len, expected))),
        "states": (np.asarray(data.states).tolist(), [row["ward"] for row in flat]),
        "actions": (np.asarray(data.actions).tolist(), [row["dose"] for row in flat]),
        "rewards": (np.asarray(data.rewards).tolist(), [row["r"] for row in flat]),
        "p": (np.asarray(data.behavior_probs).tolist(), [row["p"] for row in flat]),
        "q": (np.asarray(data.target_probs).tolist(), [row["q"] for row in flat]),
        "ended": (np.asarray(data.terminated).tolist(), [one[-1]["died"] for one in expected]),
        "people": (data.num_users, len({row["patient"] for row in flat})),
    }
    found = [name for name, (ours, slow) in pairs.items() if ours != slow]
    return [f"wrong: {found} differ, {about}"] if found else []


# --- the evaluators ------------------------------------------------------------------------------


def compare_values(rng: Rng, work: Path) -> list[str]:
    """Estimates of the shipped evaluators and of slow ones, from the same file."""
    from privrl.data import Tabular, Trajectories

    rows = table(rng, people=int(rng.integers(2, 9)))
    for row in rows:
        row["r"] = float(rng.uniform(-1.0, 2.0)) if rng.random() < 0.9 else row["r"] % 1.0
    path = work / choice(rng, ["table.csv", "table.parquet"])
    (write_csv if path.suffix == ".csv" else write_parquet)(rng, rows, path)
    probs = rng.dirichlet(np.ones(ACTIONS), size=STATES)
    if rng.random() < 0.3:
        probs[int(rng.integers(STATES))] = [1.0, 0.0]
    settings: dict[str, Any] = {
        "gamma": float(choice(rng, [1.0, 0.9, 0.5, 0.0])),
        "horizon": choice(rng, [1, 2, 3, 50]),
        "cap": float(choice(rng, [0.5, 1.0, 3.0, 100.0])),
    }
    with_policy = bool(rng.random() < 0.7)
    policy = Tabular(probs) if with_policy else None
    read_as = Trajectories.from_csv if path.suffix == ".csv" else Trajectories.from_parquet
    columns = COLUMNS if not with_policy else {**COLUMNS, "target_prob": None}
    data = read_as(path, **columns)
    slow = read([path])
    ratios = [
        [(probs[row["ward"]][row["dose"]] if with_policy else row["q"]) / row["p"] for row in one]
        for one in slow
    ]
    faults = _importance(data, policy, slow, ratios, **settings)
    faults += _private(data, policy, slow, ratios, **settings)
    faults += _lstd(data, policy, slow, ratios, settings["gamma"])
    if with_policy:
        faults += _printed(work, path, policy, slow, ratios, **settings)
    return faults


def _near(ours: float, slow: float, scale: float = 1.0) -> bool:
    return math.isclose(ours, slow, rel_tol=1e-9, abs_tol=1e-9 * max(scale, 1.0))


def _people(slow: list[list[Row]]) -> dict[Any, list[int]]:
    owned: dict[Any, list[int]] = {}
    for number, one in enumerate(slow):
        owned.setdefault(one[0]["patient"], []).append(number)
    return owned


def by_hand(
    slow: list[list[Row]], ratios: list[list[float]], gamma: float, horizon: int
) -> dict[str, float | None]:
    """IS, PDIS, WIS and WPDIS; people count equally. None where a weighted form divides by 0."""
    shares = [0.0] * len(slow)
    owned = _people(slow)
    for numbers in owned.values():
        for number in numbers:
            shares[number] = 1.0 / (len(owned) * len(numbers))
    whole = pdis = weight = 0.0
    wpdis: float | None = 0.0
    for share, one, ratio in zip(shares, slow, ratios, strict=True):
        w, total = 1.0, 0.0
        for t, row in enumerate(one[:horizon]):
            w *= ratio[t]
            total += gamma**t * row["r"]
            pdis += share * gamma**t * w * row["r"]
        whole += share * w * total
        weight += share * w
    for t in range(min(horizon, max(map(len, slow)))):
        top = below = 0.0
        for share, one, ratio in zip(shares, slow, ratios, strict=True):
            w = math.prod(ratio[: min(t + 1, horizon)])
            below += share * w
            if t < len(one):
                top += share * w * one[t]["r"]
        if below == 0.0 or wpdis is None:
            wpdis = None
        else:
            wpdis += gamma**t * top / below
    wis = whole / weight if weight else None
    return {"IS": whole, "PDIS": pdis, "WIS": wis, "WPDIS": wpdis}


def _importance(
    data: Any,
    policy: Any,
    slow: list[list[Row]],
    ratios: list[list[float]],
    *,
    gamma: float,
    horizon: int,
    cap: float,
) -> list[str]:
    from privrl.evaluation.importance import IS, PDIS, WIS, WPDIS
    from privrl.privacy import PrivRLError

    faults = []
    expected = by_hand(slow, ratios, gamma, horizon)
    for make in (IS, PDIS, WIS, WPDIS):
        found = expected[make.method]
        try:
            ours = make(gamma=gamma, horizon=horizon).fit(data, policy).estimate
        except PrivRLError as error:
            if found is not None:
                faults.append(f"wrong: {make.method} refuses what is {found}: {error}")
            continue
        if found is None or ours is None:
            if make.method == "WIS" and found is None and ours not in (None, 0.0):
                faults.append(f"wrong: {make.method} is {ours} where weights are 0")
        elif not _near(ours, found, max(max(one) for one in ratios) ** 3):
            faults.append(f"wrong: {make.method} is {ours}, by hand {found}")
    return faults


def _private(
    data: Any,
    policy: Any,
    slow: list[list[Row]],
    ratios: list[list[float]],
    *,
    gamma: float,
    horizon: int,
    cap: float,
) -> list[str]:
    """Contributions before noise, against f(w, Y) averaged over each person's trajectories."""
    from privrl.evaluation import PrivateValue
    from privrl.evaluation.private_figures import INVERSE
    from privrl.privacy import Budget

    low, high = -1.0, 2.0
    value = PrivateValue(
        Budget(1.0, 1e-3), cap, gamma=gamma, horizon=horizon, reward_range=(low, high)
    )
    most = float(sum(gamma**t for t in range(horizon)))
    ends = min(low, low * most), max(high, high * most)
    expected = []
    for numbers in _people(slow).values():
        rows = []
        for number in numbers:
            w, total = 1.0, 0.0
            for t, row in enumerate(slow[number][:horizon]):
                w *= ratios[number][t]
                total += gamma**t * min(max(row["r"], low), high)
            w = min(w, cap) / cap
            y = 2.0 * (total - ends[0]) / (ends[1] - ends[0]) - 1.0
            rows.append((w, w * y, y, w**2, w**2 * y, (w * y) ** 2, w * y * y, y * y))
        expected.append([sum(column) / len(rows) for column in zip(*rows, strict=True)])
    ours = value.contributions(data, policy) @ INVERSE.T
    if not np.allclose(ours, expected, rtol=0.0, atol=1e-9):
        return [f"wrong: contributions differ by {np.abs(ours - np.array(expected)).max():.3g}"]
    figures = value.figures(value.contributions(data, policy).sum(axis=0), 0.0, len(expected))
    behavior = figures.details()["behavior"]["estimate"]
    mean = sum(row[2] for row in expected) / len(expected)
    found = ends[0] + (mean + 1.0) / 2.0 * (ends[1] - ends[0])
    if not _near(behavior, found, 100.0):
        return [f"wrong: the behaviour policy's value is {behavior}, by hand {found}"]
    return []


def solved(matrix: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """By elimination; None if the matrix is singular."""
    rows = [[*line, end] for line, end in zip(matrix, right, strict=True)]
    for k in range(len(rows)):
        pivot = next((i for i in range(k, len(rows)) if rows[i][k] != 0), None)
        if pivot is None:
            return None
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(len(rows)):
            if i != k:
                rows[i] = [x - rows[i][k] * y for x, y in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def _lstd(
    data: Any, policy: Any, slow: list[list[Row]], ratios: list[list[float]], gamma: float
) -> list[str]:
    """LSTD on a table of states: the normal equations, in fractions."""
    from privrl.data import OneHot
    from privrl.evaluation import LSTD

    # A step without a next state, the last of a trajectory that did not end, tells nothing.
    left = [[Fraction(0)] * STATES for _ in range(STATES)]
    right = [Fraction(0)] * STATES
    size = np.zeros((STATES, STATES))
    for one, ratio in zip(slow, ratios, strict=True):
        for t, row in enumerate(one):
            if t == len(one) - 1 and not row["died"]:
                continue
            rho, s = Fraction(ratio[t]), row["ward"]
            left[s][s] += rho
            right[s] += rho * Fraction(row["r"])
            if t < len(one) - 1:
                left[s][one[t + 1]["ward"]] -= rho * Fraction(gamma)
    size = np.array([[float(x) for x in line] for line in left])
    if np.linalg.matrix_rank(size) < STATES or np.linalg.cond(size) > 1e6:
        return []
    expected = solved(left, right)
    assert expected is not None
    ours = LSTD(OneHot(STATES), gamma).fit(data, policy).weights
    assert ours is not None
    if not np.allclose(ours, [float(x) for x in expected], rtol=1e-8, atol=1e-8):
        return [f"wrong: LSTD has {ours}, by hand {[float(x) for x in expected]}"]
    return []


def _printed(
    work: Path,
    path: Path,
    policy: Any,
    slow: list[list[Row]],
    ratios: list[list[float]],
    *,
    gamma: float,
    horizon: int,
    cap: float,
) -> list[str]:
    """What `privrl evaluate --public --json` prints."""
    import contextlib
    import io
    import json

    from privrl import cli

    policy.save(work / "judged.json")
    words = ["evaluate", str(path), "--policy", str(work / "judged.json"), "--public", "--json"]
    for name in ("trajectory", "user", "time", "state", "action", "reward", "terminated"):
        words += [f"--{name}", COLUMNS[name]]
    words += ["--behavior-prob", "p", "--gamma", repr(gamma), "--horizon", str(horizon)]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run([*words, "--out", str(work / "out")])
    expected = by_hand(slow, ratios, gamma, horizon)
    if code == 2:
        # Half of the people alone, by whom a model is fitted or judged, may have no weight, or no
        # step with a next state.
        halves = ("nothing in common", "a step whose next state is known")
        known = None in expected.values() or any(one in err.getvalue() for one in halves)
        return [] if known else [f"wrong: refused: {err.getvalue()}"]
    found = {one["method"]: one["estimate"] for one in json.loads(out.getvalue())["results"]}
    return [
        f"wrong: evaluate prints {method} {found.get(method)}, by hand {value}"
        for method, value in expected.items()
        if value is not None and not _near(found[method], value, max(map(max, ratios)) ** 3)
    ]
