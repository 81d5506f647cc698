"""Runs in segments: stopped, refused or killed, they go on as if nothing had been."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest

from privrl.control.engine import CHECKPOINT
from privrl.control.loop import even_segment
from privrl.core.errors import InputError
from privrl.privacy import Budget, Gaussian, Ledger, Relation, Unit
from privrl.run.logs import FORMATS
from privrl.run.training import (
    Replicas,
    TrainingRun,
    on_interrupt,
    replicas_of,
    resume,
    train,
)
from tests.run.rollout import ROLLOUT, Rollout

REPLICAS = Replicas((3, 0, 3), {"drift": (0.0, 0.5, 1.0)})


def same(found: TrainingRun, wanted: TrainingRun) -> None:
    """Bit for bit."""
    assert found.episodes == wanted.episodes
    assert list(found.seen) == list(wanted.seen)
    for name, values in wanted.seen.items():
        assert found.seen[name].dtype == values.dtype
        assert found.seen[name].tobytes() == values.tobytes()
    np.testing.assert_array_equal(found.state.place, wanted.state.place, strict=True)
    np.testing.assert_array_equal(
        jax.random.key_data(found.state.keys), jax.random.key_data(wanted.state.keys)
    )


def after(segments: int) -> Callable[[], bool]:
    """To stop after so many segments."""
    asked = iter([False] * segments)
    return lambda: next(asked, True)


def test_a_run_is_what_the_program_gives_at_once() -> None:
    found = train(ROLLOUT, 50, REPLICAS, curve=True, segment=7)
    with jax.enable_x64(True):
        _, seen = ROLLOUT.advance(REPLICAS.initial_state(ROLLOUT), 50)
    assert found.ending == "finished"
    assert found.seen["return"].tobytes() == np.asarray(seen["return"]).tobytes()
    assert found.seen["return"].shape == (3, 50)
    assert found.seen["return"].dtype == np.float64


def test_the_same_seed_meets_the_same_world_whatever_the_settings() -> None:
    seen = train(ROLLOUT, 20, REPLICAS, curve=True).seen["return"]
    drifted = seen[2] - seen[0]
    np.testing.assert_allclose(drifted, 1.0 * np.arange(1, 21), rtol=1e-12)
    other = train(ROLLOUT, 20, replicas_of([1, 3]), curve=True).seen["return"]
    assert other[1].tobytes() == seen[0].tobytes()
    assert not np.allclose(other[0], seen[0])


@pytest.mark.parametrize("curve", [True, False])
@pytest.mark.parametrize("stops", [0, 1, 3])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path: Path, stops: int, curve: bool) -> None:
    wanted = train(ROLLOUT, 23, REPLICAS, curve=curve)
    begun = train(ROLLOUT, 23, REPLICAS, folder=tmp_path, segment=4, curve=curve, stop=after(stops))
    assert begun.ending == "stopped"
    assert begun.episodes == 4 * stops
    once_more = resume(ROLLOUT, tmp_path, stop=after(1))
    assert once_more.episodes == 4 * stops + 4
    found = resume(ROLLOUT, tmp_path)
    assert found.ending == "finished"
    same(found, wanted)
    # The end can be had again.
    same(resume(ROLLOUT, tmp_path), wanted)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]


def test_a_crash_at_any_moment_leaves_a_run_that_can_be_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of a checkpoint fails once, before and after the file is replaced."""
    whole = tmp_path / "whole"
    whole.mkdir()
    options: Any = {"segment": 4, "curve": True, "formats": ["csv", "jsonl"]}
    wanted = train(ROLLOUT, 12, REPLICAS, folder=whole, **options)
    replace = os.replace

    for fatal in range(1, 4):
        for late in (False, True):
            folder = tmp_path / f"crash-{fatal}-{late}"
            folder.mkdir()
            writes = 0

            def dies(source: Any, target: Any, fatal: int = fatal, late: bool = late) -> None:
                nonlocal writes
                writes += 1
                if writes == fatal + 1 and not late:
                    raise KeyboardInterrupt
                replace(source, target)
                if writes == fatal + 1:
                    raise KeyboardInterrupt

            with monkeypatch.context() as patched:
                patched.setattr(os, "replace", dies)
                with pytest.raises(KeyboardInterrupt):
                    train(ROLLOUT, 12, REPLICAS, folder=folder, **options)
            same(resume(ROLLOUT, folder), wanted)
            for name in ("log.csv", "log.jsonl"):
                assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_what_was_seen_is_kept_only_if_it_may_be(tmp_path: Path) -> None:
    found = train(ROLLOUT, 10, REPLICAS, folder=tmp_path)
    assert dict(found.seen) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKPOINT]
    with np.load(tmp_path / CHECKPOINT) as file:
        assert len(file.files) == 1 + 5  # the header and the state
    with pytest.raises(InputError, match="only where the curve may be kept"):
        train(ROLLOUT, 10, REPLICAS, folder=tmp_path / "x", formats=["csv"])


def test_logs_have_a_row_for_each_episode_and_replica(tmp_path: Path) -> None:
    found = train(ROLLOUT, 6, replicas_of([4, 9]), folder=tmp_path, curve=True, formats=[*FORMATS])
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0] == "episode,seed,return,length"
    assert len(lines) == 1 + 12
    returns = found.seen["return"]
    assert lines[3] == f"2,4,{float(returns[0, 1])!r},2"
    assert lines[4] == f"2,9,{float(returns[1, 1])!r},2"
    assert {path.name for path in tmp_path.iterdir()} == {
        *("log.csv", "log.jsonl", "events.out.tfevents.0.privrl", CHECKPOINT)
    }


# --- budgets -------------------------------------------------------------------------------------


def test_a_ledger_that_refuses_ends_the_run_and_what_was_done_stays(tmp_path: Path) -> None:
    with Ledger.create(
        tmp_path / "ledger",
        "people",
        unit=Unit.USER,
        relation=Relation.REPLACE_ONE,
        limit=Budget(3.0, 1e-5),
    ) as ledger:
        paid: list[tuple[int, int]] = []

        def pay(first: int, episodes: int) -> None:
            ledger.spend(Gaussian(4.0, 1.0), run="rollout")
            paid.append((first, episodes))

        folder = tmp_path / "run"
        folder.mkdir()
        found = train(ROLLOUT, 100, REPLICAS, folder=folder, segment=10, curve=True, pay=pay)
        assert found.ending == "budget"
        assert "limit" in found.reason or "budget" in found.reason
        assert 0 < found.episodes < 100
        assert paid == [(first, 10) for first in range(0, found.episodes, 10)]
        assert len(ledger.entries()) == len(paid)
        assert found.seen["return"].shape == (3, found.episodes)
        # Still refused; and with another opened, the rest of the same run.
        assert resume(ROLLOUT, folder, pay=pay).episodes == found.episodes
    same(resume(ROLLOUT, folder, pay=lambda *_: None), train(ROLLOUT, 100, REPLICAS, curve=True))


def test_a_segment_that_was_paid_and_cut_off_is_not_paid_again(tmp_path: Path) -> None:
    paid: list[int] = []

    class Dies(Rollout):
        def advance(self, state: Any, episodes: int) -> Any:
            if int(state.time) == 4 and len(paid) == 2:
                raise KeyboardInterrupt
            return super().advance(state, episodes)

    def pay(first: int, _: int) -> None:
        paid.append(first)

    with pytest.raises(KeyboardInterrupt):
        train(Dies(), 12, REPLICAS, folder=tmp_path, segment=4, pay=pay)
    assert paid == [0, 4]
    resume(ROLLOUT, tmp_path, pay=pay)
    assert paid == [0, 4, 8]


# --- the rest ------------------------------------------------------------------------------------


def test_progress_is_told_the_share_that_is_done(tmp_path: Path) -> None:
    told: list[tuple[str, float | None]] = []

    def progress(what: str, share: float | None = None) -> None:
        told.append((what, share))

    train(ROLLOUT, 12, REPLICAS, folder=tmp_path, segment=4, progress=progress, stop=after(1))
    resume(ROLLOUT, tmp_path, progress=progress)
    assert [share for _, share in told] == pytest.approx([0.0, 1 / 3, 1 / 3, 2 / 3, 1.0])
    assert told[-1][0] == "12 of 12 episodes"


@pytest.mark.parametrize(
    ("episodes", "most", "wanted"),
    [(500, 25, 25), (500, 30, 25), (7, 100, 7), (503, 100, 100), (12, 5, 4), (1, 1, 1), (10, 4, 2)],
)
def test_segments_are_even_where_they_can_be(episodes: int, most: int, wanted: int) -> None:
    assert even_segment(episodes, most) == wanted


def test_segments_are_whole_batches() -> None:
    assert [even_segment(500, most, 13) for most in (1, 25, 26, 500)] == [13, 13, 26, 494]
    assert even_segment(520, 60, 13) == 52
    assert even_segment(10, 5, 20) == 20

    class Batches(Rollout):
        batch = 4
        played: ClassVar[list[int]] = []

        def advance(self, state: Any, episodes: int) -> Any:
            self.played.append(episodes)
            return super().advance(state, episodes)

    found = train(Batches(), 22, REPLICAS, curve=True, segment=9)
    assert Batches.played == [8, 8, 6]
    same(found, train(ROLLOUT, 22, REPLICAS, curve=True))


def test_an_interrupt_asks_to_stop_and_a_second_one_stops() -> None:
    before = signal.getsignal(signal.SIGINT)
    with on_interrupt() as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_what_cannot_be_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    for wrong, sentence in (
        (lambda: train(ROLLOUT, 0, REPLICAS), "episodes must be at least 1"),
        (lambda: train(ROLLOUT, 5, REPLICAS, segment=0), "segment must be at least 1"),
        (lambda: train(ROLLOUT, 5, replicas_of([0], speed=1.0)), "must be one of drift, spread"),
        (lambda: replicas_of([]), "at least one seed"),
        (lambda: replicas_of([-1]), "A seed must be a whole number"),
        (lambda: replicas_of([2**32]), "A seed must be a whole number"),
        (lambda: replicas_of([0], drift=np.inf), "drift must be finite"),
        (lambda: Replicas((1, 2), {"drift": (1.0,)}), "a value for each of the 2 replicas"),
        (lambda: resume(ROLLOUT, tmp_path), "no run to resume"),
    ):
        with pytest.raises(InputError, match=sentence):
            wrong()
    assert list(tmp_path.iterdir()) == []


def test_another_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    train(ROLLOUT, 12, REPLICAS, folder=tmp_path, about={"env": "A"}, stop=after(1))
    with pytest.raises(InputError, match="was not finished: resume it"):
        train(ROLLOUT, 12, REPLICAS, folder=tmp_path)
    with pytest.raises(InputError, match="another run, with other settings"):
        resume(ROLLOUT, tmp_path, about={"env": "B"})
    with pytest.raises(InputError, match="another program"):
        resume(Rollout(width=2), tmp_path, about={"env": "A"})
    assert resume(ROLLOUT, tmp_path, about={"env": "A"}).ending == "finished"


def test_what_a_kill_left_half_written_is_removed(tmp_path: Path) -> None:
    train(ROLLOUT, 12, REPLICAS, folder=tmp_path, stop=after(1))
    (tmp_path / f".{CHECKPOINT}.abc.privrl-half").write_bytes(b"keys")
    resume(ROLLOUT, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [CHECKPOINT]


KILLED = """
import sys, time
from tests.run.rollout import Rollout
from privrl.run.training import replicas_of, train

class Slow(Rollout):
    def advance(self, state, episodes):
        time.sleep(0.01)
        return super().advance(state, episodes)

train(Slow(), 4000, replicas_of([0, 1]), folder=sys.argv[1], segment=2, curve=True,
      formats=["csv", "jsonl"])
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    replicas = replicas_of([0, 1])
    wanted = train(
        ROLLOUT, 4000, replicas, folder=whole, segment=2000, curve=True, formats=["csv", "jsonl"]
    )
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(killed)], cwd=os.getcwd())
    try:
        log = killed / "log.csv"
        while not (log.exists() and log.stat().st_size > 5_000):
            assert process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert log.stat().st_size < (whole / "log.csv").stat().st_size
    same(resume(ROLLOUT, killed), wanted)
    for name in ("log.csv", "log.jsonl"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes()
