"""What all tests share: compiled programs, how many examples Hypothesis tries, and mutants.

- Programs that are compiled are kept in .pytest_cache/compiled (`jax_compilation_cache_dir`). Both
  workers and all processes that tests start share them, and so do later runs. JAX's key is the
  whole program, so a test of a changed program compiles it. PRIVRL_TEST_CACHE names another folder.
- Hypothesis tries as many examples as a test says, and a quarter if PRIVRL_EXAMPLES=quick. Then XLA
  also compiles in a cheaper way, which takes a quarter of the time. Slow tests compile what users
  run.
- PRIVRL_MUTANT names one mutant of the shipped code for a whole session (`mutation.py`).
"""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

# Before NumPy is imported. Tests run side by side, and linear algebra with a thread for each core
# spends most of its time waiting for the others: up to twenty times as long for small matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Before JAX is imported, which a conftest.py further down may do: it reads these once. Workers and
# the processes that tests start have them too.
_COMPILED = Path(__file__).resolve().parent.parent / ".pytest_cache" / "compiled"
_COMPILED = Path(os.environ.get("PRIVRL_TEST_CACHE", _COMPILED))
_COMPILED.mkdir(parents=True, exist_ok=True)
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_COMPILED.resolve()))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
if os.environ.get("PRIVRL_EXAMPLES") == "quick":
    # The older emitters, and a program in one piece: the pieces are for cores that nobody has here.
    os.environ.setdefault(
        "XLA_FLAGS",
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
    )

_MUTATED = ExitStack()


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is collected, so that tests import what was mutated."""
    from hypothesis import Phase, settings

    # How long an example takes says how busy the machine is.
    settings.register_profile("any machine", deadline=None)
    settings.load_profile("any machine")
    name = os.environ.get("PRIVRL_MUTANT")
    if name:
        from privrl.audit.mutants import MUTANTS

        # A counterexample is enough; a smaller one takes longer than finding it.
        phases = [Phase.explicit, Phase.generate]
        settings.register_profile("mutant", phases=phases, deadline=None)
        settings.load_profile("mutant")
        _MUTATED.enter_context(MUTANTS[name].apply())


@pytest.hookimpl(tryfirst=True)  # before tests are selected by their markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark property tests, and let quick runs try fewer examples: `make test-slow` tries all."""
    tests: dict[int, Any] = {}  # once each, however many parameters there are
    for item in items:
        test = getattr(item, "obj", None)
        if hasattr(test, "hypothesis"):
            item.add_marker("property")
            if item.get_closest_marker("slow") is None:
                tests[id(test)] = test
    if os.environ.get("PRIVRL_EXAMPLES") != "quick":
        return
    from hypothesis import settings

    for test in tests.values():
        given: Any = getattr(test, _SETTINGS, None) or settings.default
        fewer = max(_FEWEST_EXAMPLES, given.max_examples // 4)
        if fewer < given.max_examples:
            setattr(test, _SETTINGS, settings(given, max_examples=fewer))


# Where Hypothesis keeps what `@settings` said; `tests/test_conftest.py` sees if that moves.
_SETTINGS = "_hypothesis_internal_use_settings"
_FEWEST_EXAMPLES = 10


def pytest_unconfigure(config: pytest.Config) -> None:
    _MUTATED.close()


_LAST: dict[str, bool] = {}
"""How the last test's programs were compiled, of those that say so."""


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
    if _LAST.get("quick", quick) != quick:
        # Programs of the other kind would be taken, which round otherwise.
        jax.clear_caches()  # type: ignore[no-untyped-call]
    _LAST["quick"] = quick
    jax.config.update("jax_disable_most_optimizations", quick)  # type: ignore[no-untyped-call]
    yield
    jax.config.update("jax_disable_most_optimizations", False)  # type: ignore[no-untyped-call]


@pytest.fixture
def always_compiled_quickly(compiled_quickly: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """For slow tests of many short runs, each with a program of its own."""
    import jax

    from privrl.control import replicas

    monkeypatch.setattr(replicas, "OPTIONS", {})
    jax.config.update("jax_disable_most_optimizations", True)  # type: ignore[no-untyped-call]


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
