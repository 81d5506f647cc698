"""What conftest.py does with property tests, and that programs are shared."""

import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import conftest


class Item:
    """A test as pytest collects it."""

    def __init__(self, test: Any, *markers: str) -> None:
        self.obj, self.markers = test, [*markers]

    def add_marker(self, name: str) -> None:
        self.markers.append(name)

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.markers else None


def collected(*items: Item) -> tuple[Item, ...]:
    made: Any = items
    conftest.pytest_collection_modifyitems(made)
    return items


def run(test: Any) -> int:
    """How many examples are tried."""
    test.tried = 0
    test()
    found: int = test.tried
    return found


def make(*decorators: Any) -> Any:
    @given(st.integers())
    def test(_: int) -> None:
        test.tried += 1  # type: ignore[attr-defined]

    decorated: Any = test
    for one in decorators:
        decorated = one(decorated)
    return decorated


@pytest.mark.parametrize(
    ("most", "fewer"), [(400, 100), (60, 15), (20, 10), (8, 8)], ids=lambda x: str(x)
)
def test_quick_runs_try_a_quarter(most: int, fewer: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRIVRL_EXAMPLES", "quick")
    quick, slow = (make(settings(max_examples=most, deadline=None, database=None)) for _ in "qs")
    # With parameters, a test is collected more than once.
    one, _, other = collected(Item(quick), Item(quick), Item(slow, "slow"))
    assert "property" in one.markers
    assert "property" in other.markers
    assert run(quick) == fewer
    assert run(slow) == most
    assert getattr(quick, conftest._SETTINGS).deadline is None


def test_other_runs_try_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PRIVRL_EXAMPLES", raising=False)
    full = make(settings(max_examples=40, database=None))
    plain = Item(lambda: None)
    collected(Item(full), plain)
    assert run(full) == 40
    assert plain.markers == []


def test_programs_are_shared_with_processes_of_tests() -> None:
    import jax

    own: Any = jax.config
    assert own.jax_compilation_cache_dir == os.environ["JAX_COMPILATION_CACHE_DIR"]
    code = "import jax; print(jax.config.jax_compilation_cache_dir)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == os.environ["JAX_COMPILATION_CACHE_DIR"]


def test_no_example_has_a_deadline() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
