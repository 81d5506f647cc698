"""States go into files and come back, bit for bit, or not at all."""

import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from privrl.control.program import Program, drop_weak_types, load_state, read_about, save_state
from privrl.core.errors import InputError
from tests.run.rollout import ROLLOUT


class State(NamedTuple):
    numbers: jax.Array
    keys: jax.Array
    rest: dict[str, jax.Array]


def state(count: int = 3) -> State:
    with jax.enable_x64(True):
        return State(
            jnp.array([0.1, -0.0, np.nan, np.inf, 5e-324][:count]),
            jax.random.split(jax.random.key(5), 2),
            {
                "time": jnp.asarray(7, jnp.int32),
                "flags": jnp.array([True, False]),
                "short": jnp.array([1.5], jnp.float32),
                "none": jnp.zeros((2, 0)),
            },
        )


def bits(tree: Any) -> list[tuple[str, tuple[int, ...], bytes]]:
    leaves = [
        jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(tree)
    ]
    return [(str(leaf.dtype), leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves]


def test_a_state_comes_back_bit_for_bit_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "state.npz"
    save_state(path, state(5), {"done": 3, "of": ["a", None]})
    found, about = load_state(path, state(5))
    assert bits(found) == bits(state(5))
    assert isinstance(found, State)
    assert about == read_about(path) == {"done": 3, "of": ["a", None]}
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["state.npz"]


def test_the_same_state_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_state(tmp_path / name, state(), {"x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_every_generator_draw_the_same_afterwards(tmp_path: Path, generator: str) -> None:
    key = jax.random.key(3, impl=generator)
    save_state(tmp_path / "key", key, {})
    found, _ = load_state(tmp_path / "key", key)
    assert found.dtype == key.dtype
    assert jax.random.bits(found) == jax.random.bits(key)


def test_the_shapes_of_a_state_are_enough_to_load_it(tmp_path: Path) -> None:
    save_state(tmp_path / "state", state(), {})
    with jax.enable_x64(True):
        like = jax.eval_shape(state)
    assert bits(load_state(tmp_path / "state", like)[0]) == bits(state())


@pytest.mark.parametrize(
    "like",
    [
        state(4),
        state()._replace(numbers=jnp.zeros(3, jnp.float32)),
        state()._replace(keys=jax.random.split(jax.random.key(0, impl="rbg"), 2)),
        state()._replace(rest={}),
        tuple(state()),
        {"numbers": state().numbers},
    ],
)
def test_the_state_of_another_program_is_refused(tmp_path: Path, like: Any) -> None:
    save_state(tmp_path / "state", state(), {})
    with pytest.raises(InputError, match="another program, or of one with other settings"):
        load_state(tmp_path / "state", like)


def test_what_is_no_state_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "state"
    with pytest.raises(InputError, match="cannot be read: No such file"):
        load_state(path, state())
    save_state(path, state(), {})
    whole = path.read_bytes()
    middle = len(whole) // 2
    for damaged in (b"", b"nonsense", whole[:middle], whole[:-1]):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="is not the state of a run"):
            load_state(path, state())
    np.savez(path.with_suffix(".npz"), a=np.zeros(2))
    with pytest.raises(InputError, match="is not the state of a run"):
        load_state(path.with_suffix(".npz"), state())
    np.save(path.with_suffix(".npy"), np.zeros(2))
    with pytest.raises(InputError, match="is not the state of a run"):
        load_state(path.with_suffix(".npy"), state())


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_state(path, state(), {})
    with zipfile.ZipFile(path) as file:
        start = next(one.header_offset for one in file.infolist() if one.filename == "leaf0.npy")
    content = bytearray(path.read_bytes())
    content[start + 200] ^= 1
    path.write_bytes(bytes(content))
    with pytest.raises(InputError, match="damaged"):
        load_state(path, state())


def test_what_cannot_be_kept_is_refused_and_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "state"
    save_state(path, state(), {})
    before = path.read_bytes()
    with pytest.raises(InputError, match=r"state\['a'\] must be an array"):
        save_state(path, {"a": 1.0}, {})
    with pytest.raises(InputError, match="numbers of type bfloat16"):
        save_state(path, {"a": jnp.zeros(2, jnp.bfloat16)}, {})
    assert path.read_bytes() == before


def test_weak_types_become_strong_and_values_stay() -> None:
    weak = jnp.asarray(0.1)
    assert weak.aval.weak_type
    settled = drop_weak_types({"a": weak, "key": jax.random.key(0)})
    assert not settled["a"].aval.weak_type
    assert settled["a"].dtype == weak.dtype
    assert settled["a"] == weak


def test_a_rollout_is_a_program() -> None:
    assert isinstance(ROLLOUT, Program)
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(0), 3)
        begun = ROLLOUT.init(keys, {"drift": jnp.array([0.0, 0.5, 1.0])})
        state, first = ROLLOUT.advance(begun, 5)
        state, second = ROLLOUT.advance(state, 5)
        at_once, seen = ROLLOUT.advance(begun, 10)
    assert bits(state) == bits(at_once)
    for name, values in seen.items():
        joined = np.concatenate([first[name], second[name]], axis=1)
        assert joined.tobytes() == np.asarray(values).tobytes()
