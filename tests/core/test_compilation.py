"""Compiled programs on disk: whose folder, what goes there, and that nothing private does."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from privrl.core import compilation


@pytest.mark.parametrize(
    ("said", "base", "expected"),
    [
        (None, None, "home/.cache/privrl"),
        (None, "", "home/.cache/privrl"),
        (None, "relative", "home/.cache/privrl"),
        (None, "/base", "/base/privrl"),
        ("other", "/base", "other"),
        ("off", "/base", None),
        ("", None, None),
    ],
)
def test_where_programs_are_kept(
    said: str | None, base: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "home")
    for name, value in ((compilation.VARIABLE, said), ("XDG_CACHE_HOME", base)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert compilation.folder() == (None if expected is None else Path(expected))


def test_only_a_folder_that_is_ours_alone_is_used(tmp_path: Path) -> None:
    place = tmp_path / "deep" / "cache"
    assert compilation._is_ours(place)
    assert place.stat().st_mode & 0o777 == 0o700
    assert compilation._is_ours(place)
    for mode in (0o755, 0o770, 0o702):
        place.chmod(mode)
        assert not compilation._is_ours(place)
    (tmp_path / "file").touch()
    assert not compilation._is_ours(tmp_path / "file")
    assert not compilation._is_ours(tmp_path / "file" / "cache")


def test_a_folder_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: own + 1)
    assert not compilation._is_ours(tmp_path / "cache")


def test_what_was_used_last_stays(tmp_path: Path) -> None:
    for number in range(10):
        path = tmp_path / f"{number}-cache"
        path.write_bytes(b"x" * 100)
        os.utime(path, (number, number))
    (tmp_path / "mine").write_bytes(b"x" * 5000)
    compilation._remove_oldest(tmp_path, 1000)
    assert len(list(tmp_path.iterdir())) == 11
    compilation._remove_oldest(tmp_path, 999)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *(f"{number}-cache" for number in range(6, 10)),
        "mine",
    ]


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """JAX as it is in a fresh process, and a folder that `compilation` names."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_persistent_cache_min_entry_size_bytes",
        "jax_persistent_cache_enable_xla_caches",
    )
    config: Any = jax.config
    before = {name: getattr(config, name) for name in names}
    config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    compilation._is_ready.cache_clear()
    monkeypatch.setattr(compilation, "_allowed", False)
    monkeypatch.setenv(compilation.VARIABLE, str(tmp_path / "cache"))
    yield tmp_path / "cache"
    for name, value in before.items():
        config.update(name, value)
    compilation_cache.reset_cache()
    compilation._is_ready.cache_clear()


def entries(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir()) if cache.exists() else []


def test_programs_are_kept_where_it_is_allowed_and_nowhere_else(own_cache: Path) -> None:
    import jax

    def compiled(number: float) -> float:
        return float(jax.jit(lambda x: x * number)(2.0))

    with compilation.keep(public=True):  # nobody allowed it
        compiled(3.0)
    compilation.allow()
    with compilation.keep(public=False):
        compiled(4.0)
    assert not own_cache.exists()
    with compilation.keep(public=True):
        assert compiled(5.0) == 10.0
    first = entries(own_cache)
    assert first
    compiled(6.0)
    with pytest.raises(ValueError, match="in between"), compilation.keep(public=True):
        raise ValueError("in between")
    compiled(7.0)
    assert entries(own_cache) == first
    assert jax.config.jax_persistent_cache_min_compile_time_secs == math.inf  # type: ignore[attr-defined]
    # One that a kill left half is compiled once more; the command line hides JAX's warning.
    for name in first:
        (own_cache / name).write_bytes((own_cache / name).read_bytes()[:50])
    with compilation.keep(public=True):
        assert compiled(5.0) == 10.0


def test_whoever_has_a_cache_of_their_own_keeps_it(own_cache: Path) -> None:
    import jax

    config: Any = jax.config
    config.update("jax_compilation_cache_dir", str(own_cache.with_name("theirs")))
    before = config.jax_persistent_cache_min_compile_time_secs
    compilation.allow()
    with compilation.keep(public=True):
        assert config.jax_persistent_cache_min_compile_time_secs == before
    assert not own_cache.exists()


# --- nothing private ------------------------------------------------------------------------------

BUDGET = ["--epsilon", "2", "--delta", "1e-3"]
RADIUS = ["--reward-radius", "0.01", *BUDGET]
RUNS = {
    "actor-critic": [
        *("--env", "Chain", "--max-steps", "6", "--people", "40", "--batch", "4"),
        *("--return-range", "0,1", *BUDGET),
    ],
    "functional-q": [
        *("--env", "Interval", "--steps", "200", "--rounds", "20", "--reward-range", "0,0.5"),
        *RADIUS,
    ],
    "prospect": [
        *("--env", "ObstacleGrid", "--steps", "300", "--samples", "5", "--reward-range=-50,0"),
        *RADIUS,
    ],
    "pgc": [
        *("--env", "CartPole", "--agents", "40", "--epsilon", "2", "--hidden", "2"),
        *("--flight", "3", "--buffer", "4"),
    ],
    "logged-q": [
        *("rows.parquet", "--trajectory", "stay", "--state", "x,y", "--action", "a"),
        *("--reward", "r", "--reward-range", "-1,1", "--num-actions", "2", "--updates", "4"),
        *("--state-range", "0:1,0:1", "--features", "fourier:1", *BUDGET),
    ],
}


def write_rows(path: Path, seed: int) -> None:
    draw, stays = np.random.default_rng(seed), 50
    columns = {
        "stay": np.repeat(np.arange(stays), 3),
        **{name: draw.uniform(0, 1, 3 * stays) for name in ("x", "y", "r")},
        "a": draw.integers(2, size=3 * stays),
    }
    pq.write_table(pa.table(columns), path)


def train(learner: str, folder: Path, name: str, seed: int, cache: str) -> dict[str, Any]:
    """What a process of its own learned."""
    environment = {**os.environ, compilation.VARIABLE: cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    words = [*RUNS[learner], "--seed", str(seed), "--out", name]
    command = [sys.executable, "-m", "privrl", "train", learner, *words]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    found: dict[str, Any] = json.loads((folder / name / "result.json").read_text())
    found.get("policy", {}).pop("origin", None)  # names the run
    return found


@pytest.mark.slow
@pytest.mark.parametrize("learner", RUNS)
def test_nothing_private_is_in_a_program_and_what_is_learned_is_the_same(
    learner: str, tmp_path: Path
) -> None:
    """Keys, noise, people, rows and parameters are other ones in the second run. Had one of them
    been a constant, its program would have been another one, and there would be more entries."""
    write_rows(tmp_path / "rows.parquet", 1)
    first = train(learner, tmp_path, "first", 1, "cache")
    kept = entries(tmp_path / "cache")
    # Shapes of a table's programs follow from its rows: nothing of them stays behind.
    assert bool(kept) == (learner != "logged-q")
    assert train(learner, tmp_path, "again", 1, "cache") == first
    assert train(learner, tmp_path, "without", 1, "off") == first
    write_rows(tmp_path / "rows.parquet", 2)
    assert train(learner, tmp_path, "second", 2, "cache") != first
    assert entries(tmp_path / "cache") == kept
