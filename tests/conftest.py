"""One mutant of the shipped code for a whole session, if PRIVRL_MUTANT names it (`mutation.py`).

And room for compiled programs, which tests may have compiled quickly.
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Before NumPy is imported. Tests run side by side, and linear algebra with a thread for each core
# spends most of its time waiting for the others: up to twenty times as long for small matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

_MUTATED = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is collected, so that tests import what was mutated."""
    name = os.environ.get("PRIVRL_MUTANT")
    if name:
        from hypothesis import Phase, settings

        from privrl.audit.mutants import MUTANTS

        # A counterexample is enough; a smaller one takes longer than finding it.
        settings.register_profile("mutant", phases=[Phase.explicit, Phase.generate])
        settings.load_profile("mutant")
        _MUTATED.enter_context(MUTANTS[name].apply())


def pytest_unconfigure(config: pytest.Config) -> None:
    _MUTATED.close()


@pytest.fixture
def compiled_quickly(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Compiling is most of the time of a quick test. Slow tests run what users run."""
    import jax

    from privrl.control import replicas

    quick = request.node.get_closest_marker("slow") is None
    if quick:
        monkeypatch.setattr(replicas, "OPTIONS", {})
    jax.config.update("jax_disable_most_optimizations", quick)  # type: ignore[no-untyped-call]
    yield
    jax.config.update("jax_disable_most_optimizations", False)  # type: ignore[no-untyped-call]


# Where there is room for no more compiled programs LLVM ends the process: the kernel allows 65,530
# memory maps, and programs of hundreds of tests take up gigabytes.
_MOST_MAPS, _MOST_BYTES = 10_000, 4 * 2**30


@pytest.fixture(autouse=True, scope="module")
def _room_for_compiled_programs() -> Iterator[None]:
    """Forget those of the modules before, once there are many."""
    yield
    maps, pages = Path("/proc/self/maps"), Path("/proc/self/statm")
    if "jax" not in sys.modules or not maps.exists():
        return
    used = int(pages.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    if used > _MOST_BYTES or maps.read_bytes().count(b"\n") > _MOST_MAPS:
        sys.modules["jax"].clear_caches()
        gc.collect()
