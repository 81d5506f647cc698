"""50 million transitions through PrivateLSTD and one epoch of PrivateGTD, in bounded memory.

The files are those of `benchmarks.trajectories` (8 of them, 500,000 trajectories of 50 to 150 steps
in 1,000 states, about 216,000 people, trajectories straddling files). In each round child processes
run one after the other, each round beginning with another:

- *scan, dataset* and *scan, files*: PyArrow reads all columns and nothing else, by
  `pyarrow.dataset` or by `ParquetFile.iter_batches`;
- *stream*: our reader alone, which checks every row, and hands out batches of whole people;
- *lstd*, *gtd*: `PrivateLSTD.fit` and `PrivateGTD(batch_units=1000).fit` on that stream, with
  everything that belongs to it, from opening the files to the certificate;
- *lstd, numpy* and *gtd, numpy*: the same estimates, noise included, by plain NumPy and PyArrow
  with everything left out that is not this very task: no check of any row, no features but those of
  a table, no ledger or certificate. A thread reads ahead; per person there is `bincount` into a
  dense row where that is small; where it is not, a slot for each place finds the few rows that can
  coincide, and only their keys are sorted, as `privrl.evaluation.table` does it; batches are as
  large as serves best;
- *lstd, numpy on our stream* and *gtd, numpy on our stream*: the same arithmetic on batches that
  our reader has checked, cut by their offsets, which compares the arithmetic alone.

Ours deals people to secret steps, by way of disk; the rivals of *gtd* take them as they come, in
batches of a thousand, which is less work and proves less.

The results of *lstd* and its rivals are compared first, on fewer rows: without noise they must
agree to 1e-9. (That *gtd* computes what it should is tested in `tests/evaluation`.)

Each child reports wall time without imports, processor time, and the peak of its resident memory.
Ratios are to the faster scan of the same round, given with their smallest and largest.

`run(rows=2_000_000)` is a quick run; `PRIVRL_SCALE_ROWS` and `PRIVRL_SCALE_ROUNDS` set both from
outside.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

ROWS = int(os.environ.get("PRIVRL_SCALE_ROWS", "50000000"))
ROUNDS = int(os.environ.get("PRIVRL_SCALE_ROUNDS", "3"))
STATES = 1000
GAMMA = 0.99
RANGE = (-3.0, 3.0)
BATCH = 1000
RETURN_BOUND = 30.0
# Rows in a batch of our stream, and of the bare one.
OURS, BARE = 1_000_000, 1 << 15
# People whose rows our stream's batches are cut into, for plain NumPy.
PEOPLE = 150

NAMES = ["trajectory", "user", "t", "s", "a", "r", "p", "done"]
COLUMNS: dict[str, Any] = {
    "trajectory": "trajectory",
    "time": "t",
    "state": "s",
    "action": "a",
    "reward": "r",
    "behavior_prob": "p",
    "user": "user",
    "terminated": "done",
    "num_states": STATES,
    "num_actions": 8,
}
KINDS = (
    "scan, dataset",
    "scan, files",
    "stream",
    "lstd",
    "lstd, numpy",
    "lstd, numpy on our stream",
    "gtd",
    "gtd, numpy",
    "gtd, numpy on our stream",
)

Batch = tuple[Any, Any, Any, Any, Any]


# --- plain NumPy ---------------------------------------------------------------------------------


def read_ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Each batch is read while the one before is worked on."""
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def bare(folder: str) -> Iterator[Batch]:
    """Batches of whole people straight from PyArrow, unchecked: (user, trajectory, s, r, done)."""
    import pyarrow.parquet as pq

    wanted = ["user", "trajectory", "s", "r", "done"]
    kept: list[Any] | None = None
    for path in sorted(Path(folder).glob("*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(BARE, columns=NAMES):
            got = [batch.column(name).to_numpy(zero_copy_only=False) for name in wanted]
            if kept is not None:
                got = [np.concatenate(pair) for pair in zip(kept, got, strict=True)]
            user = got[0]
            cut = int(np.searchsorted(user, user[-1]))
            kept = [column[cut:] for column in got]
            if cut:
                yield tuple(column[:cut] for column in got)
    assert kept is not None
    yield tuple(kept)


def checked(folder: str) -> Iterator[Batch]:
    """The same columns of batches that our reader has checked."""
    from privrl.data import stream_parquet

    for batch in stream_parquet(folder, batch_rows=OURS, **COLUMNS):
        users = np.asarray(batch.users)
        edges = np.flatnonzero(np.append(True, users[1:] != users[:-1]))
        # In pieces that stay in the cache.
        for begin in range(0, edges.size, PEOPLE):
            first = edges[begin]
            last = edges[begin + PEOPLE] if begin + PEOPLE < edges.size else users.size
            lengths = batch.lengths[first:last]
            part = slice(batch.offsets[first], batch.offsets[last])
            states, rewards = batch.states[part], batch.rewards[part]
            done = np.zeros(states.size, dtype=bool)
            done[np.cumsum(lengths) - 1] = batch.terminated[first:last]
            user = np.repeat(users[first:last], lengths)
            yield user, np.repeat(np.arange(first, last), lengths), states, rewards, done


def pieces(batches: Iterator[Batch], people: int) -> Iterator[Batch]:
    """Batches of a fixed number of people, or of as many as there are."""
    kept: list[Any] | None = None
    for got in batches:
        if kept is not None:
            # mypy does not count the columns of a generator: there are five, as there were.
            got = tuple(np.concatenate(pair) for pair in zip(kept, got, strict=True))  # type: ignore[assignment]
        user = got[0]
        edges = np.append(np.flatnonzero(np.append(True, user[1:] != user[:-1])), user.size)
        full = (edges.size - 1) // people
        for k in range(full):
            part = slice(edges[k * people], edges[(k + 1) * people])
            yield tuple(column[part] for column in got)
        kept = [column[edges[full * people] :] for column in got]


def moves(batch: Batch) -> tuple[Any, Any, Any, Any, Any, int]:
    """State, next state, discount and reward of each row, its person, and how many there are."""
    user, trajectory, s, r, done = batch
    s = s.astype(np.int64)
    following = np.append(s[1:], s[-1])
    g = np.where(done, 0.0, GAMMA)
    new = np.append(True, user[1:] != user[:-1])
    person = np.cumsum(new) - 1
    begins = np.flatnonzero(np.append(True, trajectory[1:] != trajectory[:-1]))
    lengths = np.diff(np.append(begins, s.size))
    owner = person[begins]
    weight = np.repeat(1.0 / (lengths * np.bincount(owner)[owner]), lengths)
    return s, following, g, np.clip(r, *RANGE), (person, weight), int(person[-1]) + 1


def numpy_lstd(
    batches: Iterator[Batch], a: float, clip: float, noise: float, draw: Any
) -> tuple[Any, Any]:
    """The sum over people of clip((a A_i, b_i)), features scaled by sqrt(d), and the solution."""
    d, c, people = STATES, np.sqrt(STATES), 0
    A, on, b = np.zeros(d * d), np.zeros(d), np.zeros(d)
    entries: list[Any] = []

    def flush() -> None:
        nonlocal A
        A += np.bincount(
            np.concatenate([k for k, _ in entries]),
            np.concatenate([v for _, v in entries]),
            d * d,
        )
        entries.clear()

    for batch in batches:
        s, following, g, r, (person, weight), count = moves(batch)
        x = a * c * c * weight
        off = -x * g
        same = s == following
        cell = s * d + following
        place = person * d + s
        diagonal = np.bincount(place, np.where(same, x + off, x), count * d).reshape(count, d)
        rewards = np.bincount(place, c * weight * r, count * d).reshape(count, d)
        off[same] = 0.0
        # Cells of one person that coincide are added up, which they can in a state that a person
        # comes back to: of the rows that name a place, all but one find another row in it.
        rows = np.arange(s.size)
        slots = np.empty(count * d, dtype=np.int64)
        slots[place] = rows
        stayed = slots[place]
        again = np.flatnonzero(stayed != rows)
        often = np.zeros(s.size, dtype=bool)
        often[again] = often[stayed[again]] = True
        rows = np.flatnonzero(often)
        packed = np.sort(((person[rows] * (d * d) + cell[rows]) << 20) | rows)
        order, key = packed & 0xFFFFF, packed >> 20
        begins = np.flatnonzero(np.append(True, key[1:] != key[:-1])[: key.size])
        if begins.size < order.size:
            sums = np.add.reduceat(off[order], begins)
            off[order] = 0.0
            off[order[begins]] = sums
        squares = (
            np.vecdot(diagonal, diagonal)
            + np.vecdot(rewards, rewards)
            + np.add.reduceat(off * off, np.searchsorted(person, np.arange(count)))
        )
        factor = np.minimum(1.0, clip / np.sqrt(squares))
        people += count
        on += factor @ diagonal
        b += factor @ rewards
        entries.append((cell, off * factor[person]))
        if len(entries) == 32:
            flush()
    flush()
    A[:: d + 1] += on
    total = np.append(A, b).reshape(d + 1, d)
    noised = (total + draw((d + 1, d)) * (noise * clip)) / people
    A, b = noised[:d] / a, noised[d]
    ridge = d * (noise * clip / (a * people)) ** 2
    return total, c * np.linalg.solve(A.T @ A + ridge * np.eye(d), A.T @ b)


def numpy_gtd(
    batches: Iterator[Batch], steps: int, step: float, bounds: Any, noise: float, draw: Any
) -> Any:
    """theta after `steps` batches of BATCH people, the second half averaged."""
    d, c = STATES, np.sqrt(STATES)
    theta, total = np.zeros(d), np.zeros(d)
    for k, batch in enumerate(pieces(batches, BATCH)):
        if k == steps:
            break
        s, following, g, r, (person, weight), count = moves(batch)
        value = c * theta
        u = (c * weight) * (r - value[s] + g * value[following])
        rows = np.bincount(person * d + s, u, count * d).reshape(count, d)
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows))
        total_of = np.minimum(1.0, bounds[k] / norms) @ rows + draw((d,)) * (noise * bounds[k])
        theta = theta + step * total_of / BATCH
        if k >= steps - max(1, round(0.5 * steps)):
            total += theta
    return c * total / max(1, round(0.5 * steps))


# --- one child -----------------------------------------------------------------------------------


def judges(people: int) -> tuple[Any, Any]:
    """What is measured."""
    from privrl.data import OneHot
    from privrl.evaluation import PrivateGTD, PrivateLSTD
    from privrl.privacy import Budget

    features, budget = OneHot(STATES), Budget(1.0, 1e-6)
    return PrivateLSTD(features, RANGE, budget, GAMMA), PrivateGTD(
        features,
        RANGE,
        budget,
        GAMMA,
        return_bound=RETURN_BOUND,
        batch_units=BATCH,
        iterations=people // BATCH,
    )


def child(kind: str, folder: str, people: int, silent: bool) -> dict[str, float]:
    """Run one kind, start to end; `silent` draws no noise, to compare results."""
    import resource
    import time

    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    # Noise imports it when first drawn.
    import randomgen  # noqa: F401

    from privrl.data import stream_parquet
    from privrl.privacy.noise import Source

    lstd, gtd = judges(people)
    plan = gtd.plan("residual", people)
    bounds = [plan.bound(k) for k in range(plan.iterations)]
    draw = np.random.default_rng().standard_normal
    if silent:
        # On purpose, in a process that draws nothing else: estimators and rivals without noise.
        Source.normal = lambda self, std, shape: np.zeros(shape)  # type: ignore[method-assign]
        draw = np.zeros  # type: ignore[assignment]
    stream = stream_parquet(folder, batch_rows=OURS, **COLUMNS)
    source = checked(folder) if kind.endswith("our stream") else bare(folder)
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.perf_counter()
    found: Any = None
    if kind == "scan, dataset":
        scanned = ds.dataset(folder, format="parquet").to_batches(columns=NAMES)
        found = sum(batch.num_rows for batch in scanned)
    elif kind == "scan, files":
        for path in sorted(Path(folder).glob("*.parquet")):
            read = pq.ParquetFile(path).iter_batches(1 << 17, columns=NAMES)
            found = sum(batch.num_rows for batch in read)
    elif kind == "stream":
        found = sum(batch.num_steps for batch in stream)
    elif kind == "lstd":
        found = lstd.fit(stream).weights
    elif kind == "gtd":
        found = gtd.fit(stream).weights
    elif kind.startswith("lstd"):
        found = numpy_lstd(read_ahead(source), lstd.weight, lstd.bound, plan.noise, draw)
    else:
        found = numpy_gtd(read_ahead(source), plan.iterations, plan.step, bounds, plan.noise, draw)
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_SELF)
    # ru_maxrss survives fork and exec, so it would report the parent's peak if that was larger.
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    if silent:
        if kind == "lstd":
            from privrl.evaluation.sums import gather_sums

            found = gather_sums(lstd, stream).total
        elif kind.startswith("lstd"):
            found = found[0]
        np.save(Path(folder).parent / f"{kind}.npy", found)
    return {
        "seconds": seconds,
        "user": after.ru_utime - before.ru_utime,
        "system": after.ru_stime - before.ru_stime,
        "peak_mib": int(status["VmHWM"].split()[0]) / 1024,
    }


def measured(kind: str, folder: str, people: int, silent: bool = False) -> dict[str, float]:
    """A child process of its own."""
    code = (
        "import json; from benchmarks.scale import child; "
        f"print(json.dumps(child({kind!r}, {folder!r}, {people}, {silent})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def agree(folder: str, people: int) -> dict[str, float]:
    """How far results without noise are from each other, relative to the largest entry."""
    apart = {}
    kinds = [kind for kind in KINDS if kind.startswith("lstd")]
    for kind in kinds:
        measured(kind, folder, people, silent=True)
    ours, *others = (np.load(Path(folder).parent / f"{kind}.npy") for kind in kinds)
    for kind, other in zip(kinds[1:], others, strict=True):
        apart[kind] = float(np.abs(ours - other).max() / np.abs(ours).max())
        assert apart[kind] < 1e-9, (kind, apart[kind])
    return apart


def run(rows: int = ROWS, rounds: int = ROUNDS, small: int = 2_000_000) -> Iterator[dict[str, Any]]:
    """One row for each kind; `small` rows are used to compare results first."""
    with tempfile.TemporaryDirectory(prefix="privrl-bench-") as top:

        def written(name: str, size: int) -> tuple[str, int]:
            folder = Path(top) / name / "data"
            folder.mkdir(parents=True)
            code = f"from benchmarks.trajectories import write; write({str(folder)!r}, {size})"
            subprocess.run([sys.executable, "-c", code], check=True)
            import pyarrow.compute as pc
            import pyarrow.parquet as pq

            people = 0
            last = None
            for path in sorted(folder.iterdir()):
                users = pq.read_table(path, columns=["user"]).column("user")
                people += len(pc.unique(users)) - (users[0].as_py() == last)
                last = users[-1].as_py()
            return str(folder), people

        apart = agree(*written("small", min(small, rows)))
        folder, people = written("large", rows)
        found = []
        for turn in range(rounds):
            first = turn % len(KINDS)
            order = KINDS[first:] + KINDS[:first]
            found.append({kind: measured(kind, folder, people) for kind in order})
    for kind in KINDS:

        def over(*others: str, kind: str = kind) -> list[float]:
            return sorted(
                one[kind]["seconds"] / min(one[other]["seconds"] for other in others)
                for one in found
            )

        def middle(what: str, kind: str = kind) -> float:
            return round(statistics.median(one[kind][what] for one in found), 2)

        row = {
            "kind": kind,
            "rows": rows,
            "people": people,
            "seconds": middle("seconds"),
            "user_s": middle("user"),
            "system_s": middle("system"),
            "peak_mib": round(max(one[kind]["peak_mib"] for one in found)),
            "times_scan": round(statistics.median(over(*KINDS[:2])), 2),
            "spread": [round(over(*KINDS[:2])[0], 2), round(over(*KINDS[:2])[-1], 2)],
            "rounds": rounds,
        }
        for other in KINDS:
            if kind in ("lstd", "gtd") and other.startswith(f"{kind}, numpy"):
                each = over(other)
                row[f"times {other}"] = round(statistics.median(each), 2)
                row[f"times {other}, spread"] = [round(each[0], 2), round(each[-1], 2)]
        if kind in apart:
            row["apart_from_ours"] = apart[kind]
        yield row
