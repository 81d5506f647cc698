"""Over a cluster: the sums of one process, each part once, whoever dies on the way."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pyarrow.parquet as pq
import pytest

from privrl.data import Fourier, OneHot, Polynomial, Tabular, Trajectories, stream_parquet
from privrl.evaluation import PrivateGTD, PrivateLSTD, PrivateValue
from privrl.evaluation.sums import SumEstimator, Sums
from privrl.privacy import Budget, InputError, Ledger, Unit
from privrl.privacy.session import PrivacySession
from privrl.run import cluster
from tests.evaluation.test_bellman_error import JUDGED, simulated, weights_of
from tests.run import test_request

BUDGET = Budget(1.0, 1e-5)
RANGE = (-0.5, 2.0)
POLICY = Tabular(JUDGED)
LSTD = PrivateLSTD(OneHot(3), RANGE, BUDGET, 0.9, weight_cap=2.0)
DENSE = PrivateLSTD(Fourier(2, 0.0, 2.0), RANGE, BUDGET, 0.9, weight_cap=2.0)
VALUE = PrivateValue(BUDGET, 3.0, 0.9, reward_range=RANGE)
GRID = PrivateValue(BUDGET, 3.0, 0.9, reward_range=RANGE, grid=True)
JUDGES: list[SumEstimator] = [LSTD, DENSE, VALUE, GRID]


def data() -> Trajectories:
    return simulated(200, 3, users=47)


def stream(folder: Path) -> Any:
    """Files cut in the middle of people."""
    whole = data()
    ordered = whole.take(np.argsort(whole.unit_index, kind="stable"))
    names = ordered.to_parquet(folder / "whole.parquet")
    import pyarrow.parquet as pq

    table = pq.read_table(folder / "whole.parquet")
    for part in range(3):
        begin, end = table.num_rows * part // 3, table.num_rows * (part + 1) // 3
        pq.write_table(table.slice(begin, end - begin), folder / f"part-{part}.parquet")
    return stream_parquet(str(folder / "part-*.parquet"), batch_rows=60, **names)


def same(found: Any, wanted: Any) -> None:
    """To 1e-9, figures and promise."""
    assert found.certificate == wanted.certificate
    assert found.settings == wanted.settings
    if wanted.weights is None:
        assert found.estimate == pytest.approx(wanted.estimate, rel=1e-9, abs=1e-9)
        assert found.details["units"] == wanted.details["units"]
    else:
        np.testing.assert_allclose(weights_of(found), weights_of(wanted), rtol=1e-9, atol=1e-9)


# --- without Ray ---------------------------------------------------------------------------------


@pytest.mark.parametrize("judge", JUDGES)
def test_here_it_is_what_fit_gives(judge: Any, tmp_path: Path) -> None:
    wanted = judge.fit(data(), POLICY, session=PrivacySession(seed=3))
    same(cluster.fit(judge, data(), POLICY, part_rows=50, session=PrivacySession(seed=3)), wanted)
    same(cluster.fit(judge, stream(tmp_path), POLICY, session=PrivacySession(seed=3)), wanted)


@dataclass
class LateFirst:
    """In place of Ray: tasks end in the opposite order, the first of all last."""

    most: int = 0
    started: list[int] = field(default_factory=list)
    exceptions: Any = field(
        default_factory=lambda: SimpleNamespace(RayTaskError=KeyError, RayError=OSError)
    )

    def remote(self, **_: Any) -> Any:
        def wrap(function: Any) -> Any:
            def start(*given: Any) -> Any:
                self.started.append(len(self.started))
                return (self.started[-1], function(*given))

            return SimpleNamespace(remote=start)

        return wrap

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def put(self, value: Any) -> Any:
        return value

    def wait(self, running: list[Any], num_returns: int) -> Any:
        self.most = max(self.most, len(running))
        assert num_returns == 1
        return [running[-1]], running[:-1]

    def get(self, done: Any) -> Any:
        return done[1]


@dataclass(frozen=True)
class Named:
    """Sums that remember which part they come from."""

    def gather(self, batch: Trajectories, policy: Any = None, *, public: bool = False) -> Sums:
        return Sums(Unit.USER, 1, np.array([float(batch.num_steps)]), clipped=batch.num_units)

    def release(self, sums: Sums, **_: Any) -> Any:
        raise AssertionError


def test_parts_are_added_once_each_and_in_their_order_whenever_they_come() -> None:
    ray, parts = LateFirst(), list(data().batches(40))
    found = list(cluster._ordered_sums(ray, Named(), iter(parts), None, 3))
    assert [one.total[0] for one in found] == [part.num_steps for part in parts]
    assert len(ray.started) == len(parts) > 6
    assert ray.most == 6  # two for each of three workers, and no more in memory


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"needs Ray: pip install 'privrl\[ray\]'\."):
        cluster.gather(LSTD, data(), workers="ray")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "ray://127.0.0.1:9", "nowhere", "h:99999"])
def test_where_nobody_answers_that_is_said_at_once(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", silent)
    with pytest.raises(InputError, match=f"no Ray cluster at '{address}'"):
        cluster.gather(LSTD, data(), POLICY, workers=address)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"workers": ""}, "workers must be"),
        ({"workers": 2}, "workers must be"),
        ({"part_rows": 0}, "part_rows"),
        ({"retries": -1}, "retries"),
        ({"source": 3}, "source must be Trajectories"),
    ],
)
def test_what_is_refused(given: dict[str, Any], said: str) -> None:
    source = given.pop("source", None) or data()
    with pytest.raises(InputError, match=said):
        cluster.gather(LSTD, source, POLICY, **given)


def test_what_is_not_one_sum_cannot_be_spread() -> None:
    judge: Any = PrivateGTD(OneHot(3), RANGE, BUDGET, 0.9)
    with pytest.raises(InputError, match="PrivateGTD does not release one sum"):
        cluster.fit(judge, data())


# --- with Ray ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_workers() -> Iterator[Any]:
    jax.devices()  # JAX runs already, as it may in any program that uses privrl
    with cluster.own_cluster(num_cpus=2, object_store_memory=100 * 2**20) as ray:
        yield ray


@pytest.mark.slow
@pytest.mark.parametrize("judge", JUDGES)
def test_two_workers_give_what_one_process_gives(
    judge: Any, two_workers: Any, tmp_path: Path
) -> None:
    wanted = judge.fit(data(), POLICY, session=PrivacySession(seed=3))
    for source in (data(), stream(tmp_path)):
        found = cluster.fit(
            judge, source, POLICY, workers="auto", part_rows=50, session=PrivacySession(seed=3)
        )
        same(found, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("judge", [LSTD, GRID])
def test_a_worker_killed_in_the_middle_changes_nothing(
    judge: Any, two_workers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two parts' first workers have done their work, and die before they can hand it over."""
    real = cluster.part_sums
    parts = list(data().batches(50))
    doomed = {int(parts[i].trajectory_ids[0]) for i in (0, len(parts) // 2)}

    def fatal(shared: Any, part: Any) -> Any:
        found, name = real(shared, part), int(part.trajectory_ids[0])
        file = tmp_path / str(name)
        tries = file.read_text() if file.exists() else ""
        file.write_text(tries + "x")
        if name in doomed and not tries:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    wanted = judge.fit(data(), POLICY, session=PrivacySession(seed=3))
    monkeypatch.setattr(cluster, "part_sums", fatal)
    found = cluster.fit(
        judge, data(), POLICY, workers="auto", part_rows=50, session=PrivacySession(seed=3)
    )
    tries = {int(file.name): len(file.read_text()) for file in tmp_path.iterdir()}
    assert len(tries) == len(parts) > 4
    # A neighbour on the same worker may have to run again too; the doomed ones certainly do.
    assert all(tries[name] >= 2 for name in doomed)
    same(found, wanted)


@pytest.mark.slow
def test_a_part_nobody_can_finish_is_said_and_nothing_is_paid(
    two_workers: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fatal(shared: Any, part: Any) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(cluster, "part_sums", fatal)
    with Ledger.create(tmp_path / "l", "clinic", unit=Unit.USER) as ledger:
        with pytest.raises(InputError, match=r"could not finish part \d+"):
            cluster.fit(
                LSTD,
                data(),
                POLICY,
                workers="auto",
                retries=0,
                session=PrivacySession(ledger=ledger, run="first"),
            )
        assert ledger.entries() == []


@pytest.mark.slow
def test_what_a_worker_refuses_is_refused_in_its_own_words(two_workers: Any) -> None:
    with pytest.warns(UserWarning, match="private"):
        guessed = data().with_estimated_behavior(overwrite=True)
    with pytest.raises(InputError, match=r"^The behaviour probabilities were estimated"):
        cluster.gather(LSTD, guessed, POLICY, workers="auto")
    judge = PrivateLSTD(Polynomial(1, 0.0, 2.0), RANGE, BUDGET, 0.9)
    with pytest.raises(InputError, match=r"^weight_cap is needed"):
        cluster.gather(judge, data(), POLICY, workers="auto")


@pytest.mark.slow
def test_the_cluster_listens_on_this_machine_only(two_workers: Any) -> None:
    (node,) = two_workers.nodes()
    assert node["NodeManagerAddress"] == "127.0.0.1"


@pytest.mark.slow
def test_a_cluster_of_its_own_is_started_and_stopped() -> None:
    import ray

    if ray.is_initialized():
        ray.shutdown()
    before = dict(os.environ)
    same(
        cluster.fit(
            LSTD, data(), POLICY, workers="ray", part_rows=200, session=PrivacySession(seed=3)
        ),
        LSTD.fit(data(), POLICY, session=PrivacySession(seed=3)),
    )
    assert not ray.is_initialized()
    name = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    assert os.environ.get(name) == before.get(name)


# --- what others print ----------------------------------------------------------------------------


def test_what_others_print_meanwhile_goes_to_standard_error(capfd: Any) -> None:
    with cluster.stdout_to_stderr():
        print("\x1b[33m(raylet)\x1b[0m a worker died\x1b[1A\rx")
        os.write(1, b"from a library\n")
    print("the result")
    out, err = capfd.readouterr()
    assert out == "the result\n"
    assert "(raylet) a worker died\\x1b[1A\\rx\n" in err
    assert "from a library" in err


_KILLED = """
import os, signal, sys
from pathlib import Path
from privrl import cli
from privrl.run import cluster
mark, real = Path(sys.argv[1]), cluster.part_sums
def fatal(shared, part):
    if not mark.exists():
        mark.touch()
        print("a worker speaks", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return real(shared, part)
cluster.part_sums = fatal
sys.exit(cli.run(sys.argv[2:]))
"""


@pytest.mark.slow
def test_a_worker_that_is_killed_does_not_spoil_the_json(tmp_path: Path) -> None:
    logged = test_request.table(test_request.stays())
    pq.write_table(logged, tmp_path / "stays.parquet")
    test_request.JUDGED.save(tmp_path / "policy.json")
    words = ["evaluate", str(tmp_path / "stays.parquet"), "--policy", str(tmp_path / "policy.json")]
    words += ["--trajectory", "stay", "--state", "condition", "--action", "treatment"]
    words += ["--reward", "outcome", "--behavior-prob", "p", "--states", "mild,moderate,severe"]
    words += ["--actions", "wait,treat", "--epsilon", "1", "--delta", "1e-5", "--horizon", "5"]
    words += ["--reward-range", "0,1", "--weight-cap", "4", "--ray", "local", "--json"]
    words += ["--out", str(tmp_path / "run")]
    mark = tmp_path / "killed"
    found = subprocess.run(
        [sys.executable, "-c", _KILLED, str(mark), *words], capture_output=True, check=True
    )
    assert mark.exists()
    assert json.loads(found.stdout)["kind"] == "privrl study"
    assert b"A worker died" in found.stderr
