"""50 million transitions from Parquet, loaded and validated, against a bare PyArrow scan.

The files (8 of them, 500,000 trajectories of 50 to 150 steps, several to a user) are written once
into a temporary folder. Then, in each round, five child processes read all of them, one after the
other, each round beginning with another: a bare scan by `pyarrow.dataset`, one by
`ParquetFile.iter_batches`, PyArrow's load into memory, our stream and our load into memory. The
files are warm in the page cache.

Each child reports its wall time, without imports, the processor time of program and system, and the
peak of its resident memory. Ratios are to the *faster* of the two bare scans of the same round, and
are given with their smallest and largest; "within" counts the rounds at or below 5. Loading into
memory needs new pages, which a scan does not: where they are dear, `system_s` shows it, for
PyArrow's own load as well.

`run(rows=2_000_000)` is a quick run; `PRIVRL_BENCH_ROWS` and `PRIVRL_BENCH_ROUNDS` set both from
outside.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROWS = int(os.environ.get("PRIVRL_BENCH_ROWS", "50000000"))
ROUNDS = int(os.environ.get("PRIVRL_BENCH_ROUNDS", "5"))
FILES = 8
STEPS = 100

READ = """
import json, resource, sys, time
folder = sys.argv[1]
columns = dict(trajectory="trajectory", time="t", state="s", action="a", reward="r",
               behavior_prob="p", user="user", terminated="done", num_states=1000, num_actions=8)
names = ["trajectory", "user", "t", "s", "a", "r", "p", "done"]
{imports}
before = resource.getrusage(resource.RUSAGE_SELF)
start = time.perf_counter()
{work}
seconds = time.perf_counter() - start
after = resource.getrusage(resource.RUSAGE_SELF)
# ru_maxrss survives fork and exec, so it would report the parent's peak if that was larger.
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
peak = int(status["VmHWM"].split()[0]) / 1024
print(json.dumps(dict(rows=rows, seconds=seconds, peak_mib=peak,
                      user=after.ru_utime - before.ru_utime,
                      system=after.ru_stime - before.ru_stime)))
"""

KINDS = {
    "scan, dataset": READ.format(
        imports="import pyarrow.dataset as ds",
        work="""
rows = sum(b.num_rows for b in ds.dataset(folder, format="parquet").to_batches(columns=names))
""",
    ),
    "scan, files": READ.format(
        imports="import pyarrow.parquet as pq; from pathlib import Path",
        work="""
rows = 0
for path in sorted(Path(folder).glob("*.parquet")):
    rows += sum(b.num_rows for b in pq.ParquetFile(path).iter_batches(1 << 17, columns=names))
""",
    ),
    "bare, in memory": READ.format(
        imports="import pyarrow.dataset, pyarrow.parquet as pq",
        work="""
rows = pq.read_table(folder, columns=names).num_rows
""",
    ),
    "privrl, stream": READ.format(
        imports="from privrl.data import stream_parquet",
        work="""
rows = sum(b.num_steps for b in stream_parquet(folder, **columns))
""",
    ),
    "privrl, in memory": READ.format(
        imports="from privrl.data import Trajectories",
        work="""
rows = Trajectories.from_parquet(folder, **columns).num_steps
""",
    ),
}


def write(folder: str, rows: int) -> None:
    """`rows` transitions in FILES files; a user has two trajectories on average."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    generator = np.random.default_rng(0)
    trajectories = rows // STEPS
    user = np.sort(generator.integers(0, max(1, trajectories // 2), trajectories))
    # Pairs of lengths add up to twice the mean, so that the total is exact.
    half = generator.integers(STEPS // 2, 3 * STEPS // 2, (trajectories + 1) // 2)
    lengths = np.stack([half, 2 * STEPS - half], axis=1).ravel()[:trajectories]
    owner = np.repeat(np.arange(trajectories), lengths)
    step = np.arange(owner.size) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    for part in range(FILES):
        # Cut by rows, so that trajectories straddle files.
        chosen = slice(owner.size * part // FILES, owner.size * (part + 1) // FILES)
        mine, t = owner[chosen], step[chosen]
        size = mine.size
        table = pa.table(
            {
                "trajectory": mine,
                "user": user[mine],
                "t": t.astype(np.int32),
                "s": generator.integers(0, 1000, size, dtype=np.int32),
                "a": generator.integers(0, 8, size, dtype=np.int32),
                "r": generator.standard_normal(size),
                "p": generator.uniform(0.01, 1.0, size),
                "done": t == lengths[mine] - 1,
            }
        )
        pq.write_table(table, Path(folder) / f"part-{part:03d}.parquet", row_group_size=1 << 20)


def read(kind: str, folder: str) -> dict[str, float]:
    """One child process, start to end."""
    done = subprocess.run(
        [sys.executable, "-c", KINDS[kind], folder], capture_output=True, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run(rows: int = ROWS, rounds: int = ROUNDS) -> Iterator[dict[str, object]]:
    """One row for each way to read."""
    kinds = list(KINDS)
    with tempfile.TemporaryDirectory(prefix="privrl-bench-") as folder:
        writer = f"from benchmarks.trajectories import write; write({folder!r}, {rows})"
        subprocess.run([sys.executable, "-c", writer], check=True)
        size = sum(p.stat().st_size for p in Path(folder).iterdir())
        found = []
        for turn in range(rounds):
            first = turn % len(kinds)
            found.append({kind: read(kind, folder) for kind in kinds[first:] + kinds[:first]})
    for kind in kinds:
        ratios = [
            one[kind]["seconds"]
            / min(one["scan, dataset"]["seconds"], one["scan, files"]["seconds"])
            for one in found
        ]

        def middle(what: str, kind: str = kind) -> float:
            return round(statistics.median(one[kind][what] for one in found), 3)

        yield {
            "read": kind,
            "rows": int(found[0][kind]["rows"]),
            "file_mib": round(size / 2**20),
            "seconds": middle("seconds"),
            "user_s": middle("user"),
            "system_s": middle("system"),
            "times_faster_scan": round(statistics.median(ratios), 2),
            "spread": [round(min(ratios), 2), round(max(ratios), 2)],
            "within": sum(ratio <= 5.0 for ratio in ratios),
            "peak_mib": round(max(one[kind]["peak_mib"] for one in found)),
            "rounds": rounds,
        }
