"""Programs that are kept as they were compiled, and found by what they are made of alone."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.control import kept as module
from privrl.control.kept import Kept
from privrl.core import compilation, resources
from privrl.core.errors import InputError
from tests.core.test_compilation import entries, own_cache  # noqa: F401 (a fixture)


@partial(jax.tree_util.register_dataclass, data_fields=["x"], meta_fields=["rate"])
@dataclass(frozen=True)
class Tree:
    """Data with a setting in it, of which its name shows half."""

    x: Any
    rate: float

    def __repr__(self) -> str:
        return "Tree"


@dataclass(frozen=True)
class Rate:
    value: float

    def __repr__(self) -> str:
        return "Rate"


class Counted:
    """A function as another process has it, and how often it is traced there."""

    def __init__(self) -> None:
        self.traces = 0

        def scale(rate: Any, tree: Any) -> Any:
            self.traces += 1
            factor = getattr(rate, "value", rate)
            return jax.tree.map(lambda x: jnp.sin(x * factor), tree)

        self.function = Kept(scale, (0,))


@pytest.fixture
def keep(own_cache: Path) -> Iterator[Path]:  # noqa: F811 (pytest's way)
    compilation.allow()
    with compilation.keep(public=True):
        yield own_cache


def programs(cache: Path) -> list[str]:
    return [name for name in entries(cache) if name.startswith(__name__)]


def test_another_process_does_not_trace(keep: Path) -> None:
    x = jnp.arange(3.0)
    first, second = Counted(), Counted()
    expected = first.function(0.5, x)
    assert np.array_equal(expected, first.function(0.5, x))
    assert first.traces == 1
    (name,) = programs(keep)
    assert (keep / name).stat().st_mode & 0o777 == 0o600
    assert np.array_equal(second.function(0.5, x), expected)
    assert np.array_equal(second.function(0.5, 2.0 * x), jnp.sin(x))
    assert second.traces == 0
    assert programs(keep) == [name]
    # Values are no part of a program.
    assert np.array_equal(Counted().function(0.5, x + 1.0), jnp.sin((x + 1.0) * 0.5))
    assert programs(keep) == [name]


def test_what_is_compiled_before_a_payment_is_kept(
    keep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = jax.eval_shape(lambda: jnp.zeros(3))
    first, second, third = Counted(), Counted(), Counted()
    for one in (first, second):
        resources.precompile(one.function, 0.5, shape, what="It", remedy="none")
    assert np.array_equal(second.function(0.5, jnp.ones(3)), jnp.sin(jnp.full(3, 0.5)))
    # How much memory it takes is known without tracing, too.
    monkeypatch.setattr(resources, "memory_limit", lambda: 1)
    with pytest.raises(InputError, match="of memory"):
        resources.precompile(third.function, 0.5, shape, what="It", remedy="none")
    assert (first.traces, second.traces, third.traces) == (1, 0, 0)


X = np.arange(3.0, dtype=np.float32)
CHANGES: dict[str, tuple[Any, Any, Callable[[], AbstractContextManager[object]]]] = {
    "a static argument": (0.25, X, nullcontext),
    "its type": (Rate(0.5), X, nullcontext),
    "a shape": (0.5, np.arange(4.0, dtype=np.float32), nullcontext),
    "a type": (0.5, X.astype(np.int32), nullcontext),
    "a weak type": (0.5, 1.0, nullcontext),
    "a tree": (0.5, (X,), nullcontext),
    "a setting of JAX": (0.5, X, lambda: jax.default_matmul_precision("highest")),
    "64 bits": (0.5, X, lambda: jax.enable_x64(True)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_differs_is_traced(what: str, keep: Path) -> None:
    rate, x, within = CHANGES[what]
    Counted().function(0.5, X)
    Counted().function(0.5, jnp.float32(1.0))
    other = Counted()
    with within():
        found = other.function(rate, x)
        expected = jax.tree.map(lambda x: jnp.sin(x * getattr(rate, "value", rate)), x)
    assert other.traces == 1
    assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))


@pytest.mark.parametrize("make", [lambda rate: (Rate(rate), X), lambda rate: (0.5, Tree(X, rate))])
def test_settings_differ_that_no_name_shows(make: Callable[[float], Any], keep: Path) -> None:
    for rate in (0.5, 0.25):
        one = Counted()
        one.function(*make(rate))
        assert one.traces == 1
    assert len(programs(keep)) == 2


@pytest.mark.parametrize("what", ["_source_digest", "machine_fingerprint"])
def test_other_versions_are_traced(what: str, keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Counted().function(0.5, X)
    monkeypatch.setattr(module, what, lambda: "another")
    other = Counted()
    other.function(0.5, X)
    assert other.traces == 1


def test_every_source_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "__file__", str(tmp_path / "control" / "kept.py"))
    (tmp_path / "control").mkdir()
    digest: Callable[[], str | None] = module._source_digest.__wrapped__
    seen = [digest()]
    for name, content in (("a.py", "x"), ("a.py", "y"), ("control/b.py", ""), ("ay.py", "")):
        path = tmp_path / name
        path.write_text(content)
        # What was written since the process began may not be what it has loaded.
        assert digest() is None
        os.utime(path, (0, 0))
        seen.append(digest())
    (tmp_path / "ay.py").rename(tmp_path / "az.py")
    seen.append(digest())
    assert len(set(seen)) == len(seen)
    assert None not in seen


@pytest.mark.parametrize("damage", [lambda x: x[:50], lambda x: x[:-1] + b"?", lambda x: b""])
def test_what_is_damaged_is_traced(damage: Callable[[bytes], bytes], keep: Path) -> None:
    Counted().function(0.5, X)
    (name,) = programs(keep)
    whole = (keep / name).read_bytes()
    (keep / name).write_bytes(damage(whole))
    other = Counted()
    assert np.array_equal(other.function(0.5, X), jnp.sin(X * 0.5))
    assert other.traces == 1
    third = Counted()
    third.function(0.5, X)
    assert third.traces == 0


def test_what_does_not_run_is_compiled(keep: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> Any:
        def program(*given: Any) -> Any:
            raise jax.errors.JaxRuntimeError("NOT_FOUND")

        return program

    Counted().function(0.5, X)
    other = Counted()
    with monkeypatch.context() as patch:
        patch.setattr(module, "_read", broken)
        assert np.array_equal(other.function(0.5, X), jnp.sin(X * 0.5))
    assert other.traces == 1
    assert np.array_equal(other.function(0.5, X), jnp.sin(X * 0.5))
    assert other.traces == 1


def test_what_jax_has_loaded_is_not_written(keep: Path) -> None:
    """XLA would write it without its functions, and then it would not run."""
    expected = jnp.sin(X * 0.5)
    Counted().function._jitted(0.5, X)  # which JAX keeps in its own way
    before = entries(keep)
    assert before
    for _ in range(2):
        one = Counted()
        assert np.array_equal(one.function(0.5, X), expected)
        assert one.traces == 1
    assert not programs(keep)
    # And JAX does not keep what is kept here.
    Counted().function(0.75, X)
    assert len(programs(keep)) == 1
    assert set(entries(keep)) == {*before, *programs(keep)}


def test_nothing_is_kept_elsewhere(own_cache: Path) -> None:  # noqa: F811
    counted = Counted()
    counted.function(0.5, X)
    compilation.allow()
    with compilation.keep(public=False):
        counted.function(0.5, X)
    assert counted.traces == 1
    with compilation.keep(public=True):
        # Within another program it is a part of that.
        assert np.array_equal(jax.jit(partial(counted.function, 0.5))(X), jnp.sin(X * 0.5))
        assert jax.eval_shape(partial(counted.function, 0.5), X).shape == X.shape
        assert not programs(own_cache)
    counted.function(0.5, X)
    assert not programs(own_cache)
