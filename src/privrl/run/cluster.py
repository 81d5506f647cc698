"""One noised sum over many workers, with the result of one process.

    result = fit(PrivateLSTD(...), stream_parquet("stays/*.parquet", ...), policy, workers="ray")

The data is cut into parts with whole people (trajectories, if nobody is named), numbered in the
order of the data. A Ray task gathers each part: it clips each person's contribution and adds the
contributions up (`privrl.evaluation.sums`), so what leaves a worker is a sum of clipped vectors.
The sums come back to this process, are added up, and noise is drawn once, here, where the ledger
is.

- *People stay whole.* This process reads the files, as one stream that checks that a person's rows
  stand together, across files too, and hands each part to a worker through Ray's object store. No
  worker opens a file, so no person can be on two workers. What it costs: reading is not spread out,
  only the work on what was read: little gain for a table, more where features are dense.
- *Nothing counts twice.* A part's sum is a pure function of the part. A task whose worker dies runs
  again, up to `retries` times, and gives the same sum; each part has one place in the result, which
  is filled once, and parts are added in the order of their numbers, not of their arrival. So the
  result does not depend on timing, and equals that of one process to rounding.
- *Nothing is paid unless everything was gathered.* The ledger is charged after the last part came
  in, and before noise is drawn.
- *Memory* here is bounded by a few parts for each worker, and by one `Sums` for each that is ahead
  of its turn.

What travels between the machines of the cluster is private data; Ray does not encrypt it by itself.
A cluster that is started here listens on this machine only, without a dashboard, and reports no
usage statistics.
"""

import io
import logging
import os
import socket
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from privrl.core import checks
from privrl.core.errors import InputError, option
from privrl.core.text import printable, strip_ansi
from privrl.data import Policy, Trajectories, TrajectoryStream
from privrl.evaluation.bellman_error import pieces
from privrl.evaluation.result import Result
from privrl.evaluation.sums import SumEstimator, Sums, add_sums, gather_sums

Source = Trajectories | TrajectoryStream

# Parts that may be under way for each worker: one at work, one waiting for it.
_TASKS_PER_CPU = 2
_QUIET: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}


def fit(
    judge: SumEstimator,
    source: Source,
    policy: Policy | None = None,
    *,
    workers: str = "local",
    part_rows: int = 1_000_000,
    retries: int = 3,
    **release: Any,
) -> Result:
    """What `judge.fit(source, policy, ...)` gives; `release` is passed on to `judge.release`."""
    for needed in ("gather", "release"):
        if not hasattr(judge, needed):
            raise InputError(
                f"{type(judge).__name__} does not release one sum, so it cannot be spread over "
                "workers: use PrivateValue or PrivateLSTD."
            )
    sums = gather(judge, source, policy, workers=workers, part_rows=part_rows, retries=retries)
    return judge.release(sums, **release)


def gather(
    judge: SumEstimator,
    source: Source,
    policy: Policy | None = None,
    *,
    workers: str = "local",
    part_rows: int = 1_000_000,
    retries: int = 3,
) -> Sums:
    """The sums over all of `source`, each person clipped: private until released.

    `workers` is "local" for this process alone, "ray" for a Ray cluster on this machine that is
    started for the purpose, or the address of one that is running ("auto" finds it). Data in memory
    is cut into parts of about `part_rows` rows; a stream has its own `batch_rows`.
    """
    checks.count("part_rows", part_rows)
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise InputError(f"must be a whole number of at least 0, not {retries!r}.", field="retries")
    if not isinstance(workers, str) or not workers:
        raise InputError(
            'must be "local", "ray", or the address of a Ray cluster.', field="workers"
        )
    if isinstance(source, Trajectories):
        parts: Any = pieces(source, part_rows)
    elif isinstance(source, Iterable):
        parts = source
    else:
        raise InputError("must be Trajectories, or a stream of them.", field="source")
    if workers == "local":
        return gather_sums(judge, parts, policy)
    with connect(workers) as ray:
        return add_sums(_ordered_sums(ray, judge, iter(parts), policy, retries))


def _ordered_sums(
    ray: Any,
    judge: SumEstimator,
    parts: Iterator[Trajectories],
    policy: Policy | None,
    retries: int,
) -> Iterator[Sums]:
    """The sums of all parts, each once, in the order of the parts."""
    task = ray.remote(max_retries=retries)(part_sums)
    most = _TASKS_PER_CPU * max(1, int(ray.cluster_resources().get("CPU", 1)))
    # The judge and its policy travel once for all parts.
    shared = ray.put((judge, policy))
    running: dict[Any, int] = {}
    came: dict[int, Sums] = {}
    sent = turn = 0
    while True:
        while len(running) < most and (part := next(parts, None)) is not None:
            running[task.remote(shared, part)] = sent
            sent += 1
        if not running:
            return
        for done in ray.wait(list(running), num_returns=1)[0]:
            number = running.pop(done)
            came[number] = _fetch(ray, done, number)
        while turn in came:
            yield came.pop(turn)
            turn += 1


def part_sums(shared: tuple[SumEstimator, Policy | None], part: Trajectories) -> Sums:
    """What a worker does with a part: look at nothing else, and keep nothing."""
    judge, policy = shared
    return judge.gather(part, policy)


def _fetch(ray: Any, done: Any, number: int) -> Sums:
    """What a task gave back; its errors in one sentence."""
    try:
        found: Sums = ray.get(done)
        return found
    except ray.exceptions.RayTaskError as error:
        # What the task itself raised: running it again would raise it again.
        raise error.cause if isinstance(error.cause, InputError) else error from None
    except ray.exceptions.RayError as error:
        raise InputError(
            f"The workers could not finish part {number} (counting from 0), so nothing was "
            f"released and nothing paid: {type(error).__name__}. Smaller parts take less memory."
        ) from None


@contextmanager
def connect(workers: str) -> Iterator[Any]:
    """Ray, connected to the cluster asked for, and disconnected again if this connected it."""
    with stdout_to_stderr():
        yield from _connect(workers)


def _connect(workers: str) -> Iterator[Any]:
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    if workers == "ray":
        with own_cluster():
            yield ray
        return
    remedy = "start one, or say " + option("workers", "ray") + "."
    nobody = InputError(f"There is no Ray cluster at {workers!r}", remedy=remedy)
    if workers != "auto" and not _is_reachable(workers):
        raise nobody
    try:
        ray.init(address=workers, **_QUIET)
    except (ConnectionError, ValueError):
        raise nobody from None
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Meanwhile what is printed to standard output goes to standard error.

    Ray tells there of workers that died, whatever it was asked to log, and so would spoil what a
    program reads from there: results, in JSON. Its threads print by way of Python, its libraries
    by way of the file descriptor.
    """
    sys.stdout.flush()
    try:
        before = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # One of the two is closed: nobody reads it.
        before = None
    try:
        with redirect_stdout(_EscapedStderr()):
            yield
    finally:
        if before is not None:
            os.dup2(before, 1)
            os.close(before)


class _EscapedStderr(io.TextIOBase):
    """Standard error, for lines of others: without colours, and escaped."""

    def write(self, text: str, /) -> int:
        sys.stderr.write("\n".join(map(printable, strip_ansi(text).split("\n"))))
        return len(text)

    def flush(self) -> None:
        sys.stderr.flush()


@contextmanager
def own_cluster(**options: Any) -> Iterator[Any]:
    """A cluster on this machine, for as long as this lasts; `options` are those of `ray.init`.

    On Linux Ray listens on all of a machine's addresses, even if told one of them, unless it takes
    itself to run where it supports a single machine only.
    """
    ray = _ray()
    from ray._private import ray_constants

    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    before, constant = os.environ.get(name), ray_constants.ENABLE_RAY_CLUSTER
    # For the processes that are started, and for this one, which may have imported Ray before.
    os.environ[name], ray_constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        with warnings.catch_warnings():
            # JAX warns of any fork once it runs; Ray's children start a program of their own at
            # once, so no lock that one of JAX's threads held is ever waited for.
            warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
            ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", **_QUIET, **options)
        yield ray
    finally:
        ray.shutdown()
        ray_constants.ENABLE_RAY_CLUSTER = constant
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise InputError("Working over a cluster needs Ray: pip install 'privrl[ray]'.") from None
    return ray


def _is_reachable(address: str) -> bool:
    """Whether somebody listens there: Ray itself would go on asking for minutes."""
    host, _, port = address.rpartition("/")[2].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5.0):
            return True
    except (OSError, ValueError, OverflowError):
        return False
