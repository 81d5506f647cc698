"""Sources of noise, noise on a grid, and the attack on low-order bits that the grid defeats."""

import copy
import json
import math
import pickle
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from privrl.privacy import Budget, InputError, NoiseOrigin, Relation, epsilon, exact
from privrl.privacy.mechanisms import (
    GridGaussianMechanism,
    GridLaplaceMechanism,
    LaplaceMechanism,
)
from privrl.privacy.noise import Source, as_float64, jax_normal, reproducible, secure
from tests.statistics import FALSE_ALARM, follows, follows_discrete

DRAWS = 200_000
Array = NDArray[Any]


# --- sources --------------------------------------------------------------------------------------


def test_secure_sources_are_keyed_afresh() -> None:
    draws = [secure().generator.integers(0, 2**63, 4) for _ in range(20)]
    assert len({tuple(d) for d in draws}) == 20


def test_secure_source_is_chacha20_with_all_of_its_key() -> None:
    bits = secure().generator.bit_generator
    assert type(bits).__mro__[1].__name__ == "ChaCha"
    state = bits.state["state"]
    assert state["rounds"] == 20
    # keysetup holds the 256-bit key; a key of which half is constant would be no secret.
    keys = np.array([secure().generator.bit_generator.state["state"]["keysetup"] for _ in range(8)])
    assert all(len(set(column)) > 1 for column in keys.T)


FORKING = """
import gc, json, os, sys
import numpy as np
from privrl.privacy.noise import reproducible, secure

source, seeded = secure(), reproducible(1)
source.generator.integers(0, 2**32, 3, dtype=np.uint32)  # in the middle of a block
held, alone = source.generator, secure().generator
bits = secure().generator.bit_generator
gc.collect()

def draw():
    return {
        "normal": source.normal(1.0, (4,)).tolist(),
        "laplace": source.discrete_laplace(2**40, (4,)).tolist(),
        "key": source.generator.integers(0, 2**32, 2, dtype=np.uint32).tolist(),
        "held": held.bytes(16).hex(),
        "alone": alone.bytes(16).hex(),
        "bits": np.random.Generator(bits).bytes(16).hex(),
        "spawned": source.generator.spawn(1)[0].bytes(16).hex(),
        "seeded": seeded.normal(1.0, (4,)).tolist(),
    }

def forked(work):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, json.dumps(work()).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        answer = json.load(pipe)
    os.waitpid(child, 0)
    return answer

grandchildren = forked(lambda: [forked(draw), draw()])
json.dump([forked(draw), forked(draw), *grandchildren, draw()], sys.stdout)
"""


def test_forked_processes_draw_noise_of_their_own() -> None:
    """In a fresh process: JAX has threads here, and does not like to be forked."""
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=False)
    assert done.stderr == b""
    draws = json.loads(done.stdout)
    assert len(draws) == 5
    for kind in draws[0]:
        different = {json.dumps(one[kind]) for one in draws}
        assert len(different) == (1 if kind == "seeded" else 5), kind


FORKING_WHILE_DRAWING = """
import json, os, signal, sys, threading
from privrl.privacy.noise import reproducible, secure, source_from_key

sources = [secure(), source_from_key(bytes(range(32))), reproducible(1)]
drawing = True

def draw_on(source):
    while drawing:
        source.normal(1.0, (100_000,))

threads = [threading.Thread(target=draw_on, args=(one,)) for one in sources]
for thread in threads:
    thread.start()
draws, codes = [], []
for _ in range(25):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(20)  # a child that waits for a lock dies of this
        os.write(writing, json.dumps([one.secret_bytes().hex() for one in sources]).encode())
        os._exit(0)
    os.close(writing)
    draws.append([one.secret_bytes().hex() for one in sources])
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    codes.append(os.waitpid(child, 0)[1])
    if codes[-1]:
        break
    draws.append(json.loads(told))
drawing = False
for thread in threads:
    thread.join()
json.dump([codes, draws], sys.stdout)
"""


@pytest.mark.slow
def test_a_fork_while_threads_draw_neither_hangs_nor_repeats() -> None:
    """Whoever forks waits for the draws that are under way; the child has keys of its own."""
    done = subprocess.run(
        [sys.executable, "-c", FORKING_WHILE_DRAWING], capture_output=True, check=False, timeout=120
    )
    assert done.stderr == b""
    codes, draws = json.loads(done.stdout)
    assert codes == [0] * 25
    for kind in range(2):  # what is seeded draws the same in both, and is not compared
        assert len({one[kind] for one in draws}) == 50


# The main thread forks while another one does not let go of a lock, for longer than a fork waits.
FORKING_BESIDE_A_LOCK = """
import os, signal, threading
from privrl.privacy import forking
from privrl.privacy.noise import secure
forking._PATIENCE = 0.01
source, held, over = secure(), threading.Event(), threading.Event()
def hold():
    with source.generator.bit_generator.lock:
        held.set()
        over.wait()
thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if not child:
    signal.alarm(10)
    source.normal(1.0, (3,))
    os._exit(0)
code = os.waitpid(child, 0)[1]
over.set()
thread.join()
source.normal(1.0, (3,))
print(code)
"""


def test_a_lock_that_is_not_let_go_in_time_is_free_in_the_child() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING_BESIDE_A_LOCK],
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == (b"0\n", b"")


def test_copies_of_secure_sources_draw_noise_of_their_own() -> None:
    """Pools of processes send their workers pickles."""
    for source, different in ((secure(), 4), (reproducible(1), 1)):
        source.normal(1.0, (3,))
        bits = copy.copy(source.generator.bit_generator)
        copies = [
            *(pickle.loads(pickle.dumps(source)), copy.deepcopy(source)),
            Source(np.random.Generator(bits), source.origin),
        ]
        draws = [one.normal(1.0, (4,)).tolist() for one in (source, *copies)]
        assert len({tuple(one) for one in draws}) == different


def test_keys_for_compiled_loops() -> None:
    import jax

    for source, origin in (
        (secure(), NoiseOrigin.SECURE_KEY),
        (reproducible(1), NoiseOrigin.REPRODUCIBLE),
    ):
        assert source.key_origin is origin
        first, second = source.key(), source.key()
        assert not np.array_equal(jax.random.key_data(first), jax.random.key_data(second))
    again = [jax.random.key_data(reproducible(1).key()) for _ in range(2)]
    np.testing.assert_array_equal(again[0], again[1])


def test_jax_noise_has_64_bits_or_is_refused() -> None:
    import jax

    key = secure().key()
    with pytest.raises(InputError, match="64 bits"):
        jax_normal(key, (3,))
    with pytest.raises(InputError, match="64 bits"):
        jax.jit(lambda k: jax_normal(k, (3,)))(key)
    with jax.enable_x64(True):
        noise = np.asarray(jax.jit(lambda k: jax_normal(k, (DRAWS,)))(key))
    assert noise.dtype == np.float64
    assert follows(noise, stats.norm.cdf)
    assert not follows(noise * 0.9, stats.norm.cdf)
    # 32-bit normals repeat themselves: among 200,000 of at most 2^23 values some 2,400 pairs agree.
    assert len(np.unique(noise)) == DRAWS


# --- on a grid ------------------------------------------------------------------------------------


def test_grid_noise_has_the_promised_law() -> None:
    plan = GridGaussianMechanism(64, 2.0**-5, 1.0, dimension=DRAWS)
    released, event = plan.release(np.zeros((1, DRAWS)), secure())
    assert event.to_dict()["std"] == 64.0
    steps = (released / plan.step).astype(np.int64)
    np.testing.assert_array_equal(steps * plan.step, released)
    for factor, expected in ((1.0, True), (0.9, False), (1.1, False)):
        scaled = {k: math.exp(-(k**2) / (2 * (64 * factor) ** 2)) for k in range(-900, 901)}
        total = math.fsum(scaled.values())
        law = {k: w / total for k, w in scaled.items()}
        assert follows_discrete(steps, law) is expected

    laplace = GridLaplaceMechanism(64, 2.0**-5, 1.0, dimension=DRAWS)
    steps = (laplace.release(np.zeros((1, DRAWS)), secure())[0] / plan.step).astype(np.int64)
    for factor, expected in ((1.0, True), (0.9, False), (1.1, False)):
        q = math.exp(-1 / (64 * factor))
        law = {k: (1 - q) / (1 + q) * q ** abs(k) for k in range(-4000, 4001)}
        assert follows_discrete(steps, law) is expected


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GridGaussianMechanism, GridLaplaceMechanism])
@pytest.mark.parametrize("relation", Relation)
@pytest.mark.parametrize("dimension", [1, 6])
@pytest.mark.parametrize("bound", [1e-6, 0.3, 1e6])
def test_calibrated_grid_plans_spend_the_budget(
    kind: type[GridGaussianMechanism] | type[GridLaplaceMechanism],
    relation: Relation,
    dimension: int,
    bound: float,
) -> None:
    budget = Budget(1.0, 1e-6)
    plan = kind.from_budget(bound, budget, relation, dimension=dimension, times=3)
    spent = epsilon([plan.event] * 3, 1e-6, relation)
    # The width is a whole number of at least 4096 steps, which wastes at most that fraction.
    assert 1.0 - 2e-3 <= spent <= 1.0 + 1e-9


rows_that_hurt = [
    [math.nan, 0.0],
    [math.inf, 1.0],
    [1e308, 1e308],
    [5e-324, -5e-324],
    [-1.0, 1.0],
    [1e-200, 3.0],
]


@pytest.mark.parametrize("bad", rows_that_hurt)
def test_one_unit_moves_the_integer_sum_by_no_more_than_charged(bad: list[float]) -> None:
    for plan, order in (
        (GridGaussianMechanism(64, 2.0**-9, 0.7, 2), 2),
        (GridLaplaceMechanism(64, 2.0**-9, 0.7, 2), 1),
    ):
        rows = np.random.default_rng(0).standard_normal((5, 2))
        integers = plan.to_grid(np.vstack([rows, [bad]]))
        before = plan.to_grid(rows).sum(axis=0)
        moved = [abs(int(x)) for x in integers.sum(axis=0) - before]
        limit = plan.event.to_dict()["bound"]
        size = sum(m**order for m in moved)
        assert size <= limit**order


@pytest.mark.slow
@pytest.mark.parametrize("kind", [GridGaussianMechanism, GridLaplaceMechanism])
@pytest.mark.parametrize("times", [1, 20])
@pytest.mark.parametrize("dimension", [1, 2, 112])
@pytest.mark.parametrize("eps", [10.0, 1.0, 0.03])
def test_calibrated_grids_are_as_fine_as_is_quick(
    kind: type[GridGaussianMechanism] | type[GridLaplaceMechanism],
    times: int,
    dimension: int,
    eps: float,
) -> None:
    plan = kind.from_budget(0.7, Budget(eps, 1e-6), dimension=dimension, times=times)
    assert 4096 <= plan.width <= plan.widest
    fine = plan.step <= 0.7 / 4096 / dimension
    if kind is GridLaplaceMechanism:
        assert fine
        # A dense row of the largest norm keeps all but a 4096th of it.
        row = plan.to_grid(np.full((1, dimension), 0.7 / dimension))
        assert row.sum() * plan.step >= 0.7 * (1 - 1 / 4096) - 1e-9
    else:
        assert fine or plan.width > 8191
        p, t = plan.width**2, plan.width + 1
        assert 2 * p * t * t < exact._SAFE  # the condition of the quick sampler


def test_numbers_of_all_kinds() -> None:
    huge: Any = 10**400
    np.testing.assert_array_equal(as_float64("x", [huge, -huge, 1]), [math.inf, -math.inf, 1.0])
    np.testing.assert_array_equal(
        as_float64("x", [[Fraction(huge)], [None]]), [[math.inf], [math.nan]]
    )
    assert as_float64("x", huge).shape == ()
    assert as_float64("x", 2**64) == 2.0**64
    assert as_float64("x", np.longdouble("1e4000")) == math.inf
    assert as_float64("x", [True, False]).dtype == np.float64
    for bad in (
        "1",
        ["a", 0, 0],
        [[1.0], [1.0, 2.0]],
        [{}],
        1j,
        [huge, "a"],
        [huge, [1]],
        object(),
    ):
        with pytest.raises(InputError, match="x must be a number or an array of numbers"):
            as_float64("x", bad)
    plan = GridGaussianMechanism(4096, 2.0**-12, 1.0, 2)
    np.testing.assert_array_equal(plan.to_grid([[huge, 1], [0.5, 0]]), [[0, 0], [2048, 0]])


def test_grid_sums_do_not_depend_on_order() -> None:
    plan = GridGaussianMechanism(64, 2.0**-9, 1.0, 3)
    rows = np.random.default_rng(1).standard_normal((1000, 3))
    forward, backward = (plan.to_grid(r).sum(axis=0) for r in (rows, rows[::-1]))
    np.testing.assert_array_equal(forward, backward)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"step": 0.3}, "power of two"),
        ({"width": 0}, "width must be at least 1"),
        ({"bound": math.inf}, "bound must be positive"),
        ({"dimension": 0}, "dimension must be at least 1"),
    ],
)
def test_bad_grids(change: dict[str, Any], sentence: str) -> None:
    plan: dict[str, Any] = {"width": 64, "step": 0.5, "bound": 1.0, "dimension": 1, **change}
    with pytest.raises(InputError, match=sentence):
        GridGaussianMechanism(**plan)


def test_bad_contributions() -> None:
    plan = GridGaussianMechanism(64, 0.5, 1.0, 2)
    with pytest.raises(InputError, match="a row for each unit and 2 columns"):
        plan.release(np.zeros(2), secure())
    huge = GridGaussianMechanism(64, 2.0**-60, 1.0, 2)
    with pytest.raises(InputError, match="coarser grid"):
        huge.release(np.zeros((3, 2)), secure())


# --- the attack on low-order bits -----------------------------------------------------------------
#
# Mironov 2012: floating-point noise does not reach every number, and which numbers it reaches
# depends on the value it was added to. NumPy makes Laplace noise from one uniform u = k / 2^53, so
# for a released number and a suspected value it can be checked whether any k leads there.


def float_laplace(k: Array) -> Array:
    """NumPy's Laplace noise of scale 1 as a function of its uniform k / 2^53."""
    # The generator takes the C library's logarithm; np.log rounds otherwise on some processors.
    u = k.astype(np.float64) / 2.0**53
    return np.array(
        [-math.log(2.0 - x - x) if x >= 0.5 else math.log(x + x) if x else -math.inf for x in u]
    )


def float_can_reach(value: float, released: float) -> bool:
    """Whether some uniform leads from `value` to exactly `released`."""
    noise = released - value
    u = 0.5 * math.exp(noise) if noise < 0 else 1.0 - 0.5 * math.exp(-noise)
    centre = round(u * 2**53)
    nearby = np.clip(np.arange(centre - 64, centre + 65), 0, 2**53 - 1)
    return bool(np.any(value + float_laplace(nearby) == released))


def grid_can_reach(plan: GridLaplaceMechanism, value: float, released: float) -> bool:
    """Whether some integer of noise leads from `value` to exactly `released`."""
    steps = (released - value) / plan.step
    return steps == round(steps)


def excluded(reach: Any, released: Array, other: float) -> float:
    """The share of releases from which `other` is excluded with certainty."""
    return float(np.mean([not reach(other, float(y)) for y in released]))


def test_numpy_draws_laplace_noise_as_the_attack_assumes() -> None:
    source = reproducible(5)
    expected = float_laplace(np.random.default_rng(5).random(1000) * 2.0**53)
    np.testing.assert_array_equal(source.laplace(1.0, (1000,)), expected)


def test_low_order_bits_give_away_float_noise_but_not_grid_noise() -> None:
    trials = 2000
    released = LaplaceMechanism(1.0, 0.5).release(np.zeros(trials), secure())[0]
    assert excluded(float_can_reach, released, 0.0) == 0.0  # the truth is never excluded
    # Pure epsilon 1 would allow no certainty at all; here the attacker is often sure.
    assert excluded(float_can_reach, released, 1.0) > 0.2

    plan = GridLaplaceMechanism(4096, 2.0**-12, 0.5, 1)
    assert epsilon(plan.event, 0.0, Relation.REPLACE_ONE) == pytest.approx(1.0)
    on_grid = np.array([plan.release([[0.0]], secure())[0][0] for _ in range(trials)])
    for suspected in (0.0, 0.5, 1.0):
        assert excluded(lambda v, y: grid_can_reach(plan, v, y), on_grid, suspected) == 0.0


def test_independence_across_sources_is_tested_at_the_designed_rate() -> None:
    """Noise of one source says nothing about that of another, coordinate by coordinate."""
    sources: list[Source] = [secure() for _ in range(4)]
    draws = np.array([s.normal(1.0, (DRAWS,)) for s in sources])
    limit = stats.norm.isf(FALSE_ALARM / 12) / math.sqrt(DRAWS)
    correlations = np.corrcoef(draws)[np.triu_indices(4, 1)]
    assert np.all(np.abs(correlations) < limit)


def test_children_of_a_seed_are_spawned_and_share_nothing_with_other_seeds() -> None:
    drawn = {
        (seed, child): tuple(reproducible(seed, child).normal(1.0, (4,)))
        for seed in range(3)
        for child in (None, 0, 1, 2)
    }
    assert len(set(drawn.values())) == len(drawn)
    spawned = np.random.SeedSequence(2).spawn(2)[1]
    assert drawn[2, 1] == tuple(np.random.default_rng(spawned).standard_normal(4))
