"""The lock on a folder, keyed digests, the key of a run, and generations in a ledger."""

import collections
import copy
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import make_dataclass
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import privrl
from privrl.core import files
from privrl.privacy import Budget, InputError, Ledger, NoiseOrigin, Relation, Unit, resuming
from privrl.privacy.accounting import calibrate
from privrl.privacy.events import Gaussian
from privrl.privacy.noise import source_from_key
from privrl.privacy.resuming import KEY_FILE, NoiseKey, begin_run, keyed_digest, resume_run
from tests.privacy import digested
from tests.privacy.digested import SECRET, Plain, Thing
from tests.statistics import follows

# --- the lock -------------------------------------------------------------------------------------


def test_a_folder_is_had_by_one_alone_and_again_by_whoever_has_it(tmp_path: Path) -> None:
    refused: list[str] = []

    def ask() -> None:
        try:
            with files.lock_folder(tmp_path / "." / "run"):
                refused.append("not")
        except InputError as error:
            refused.append(str(error))

    (tmp_path / "run").mkdir()
    with files.lock_folder(tmp_path / "run"), files.lock_folder(tmp_path / "run"):
        other = threading.Thread(target=ask)
        other.start()
        other.join()
        assert (tmp_path / "run" / files.LOCK).stat().st_mode & 0o777 == 0o600
    assert refused[0].startswith("Another process is at work in ")
    assert not any((tmp_path / "run").iterdir())
    ask()
    assert refused[1] == "not"


def test_a_lock_of_a_process_that_died_stops_nobody(tmp_path: Path) -> None:
    program = (
        "import os, sys, time; from privrl.core import files\n"
        "with files.lock_folder(sys.argv[1]): print('has it', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"has it\n"
        with (
            pytest.raises(InputError, match="Another process is at work"),
            files.lock_folder(tmp_path),
        ):
            pass
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    assert (tmp_path / files.LOCK).exists()
    with files.lock_folder(tmp_path):
        pass


def test_of_many_who_ask_at_once_one_is_let(tmp_path: Path) -> None:
    """Locks come and go meanwhile, whose file is removed and made anew."""
    inside, most, refused = [0], [0], [0]
    gate, count = threading.Barrier(4), threading.Lock()

    def ask() -> None:
        gate.wait()
        for _ in range(200):
            try:
                with files.lock_folder(tmp_path):
                    with count:
                        inside[0] += 1
                        most[0] = max(most[0], inside[0])
                    with count:
                        inside[0] -= 1
            except InputError:
                with count:
                    refused[0] += 1

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert refused[0] < 800


def test_a_folder_that_is_not_there_cannot_be_locked(tmp_path: Path) -> None:
    with (
        pytest.raises(InputError, match="cannot be written to"),
        files.lock_folder(tmp_path / "no"),
    ):
        pass


# --- digests --------------------------------------------------------------------------------------


class Hidden:
    def __init__(self, rewards: Any) -> None:
        self._rewards = rewards


class Slots:
    __slots__ = ("rewards",)

    def __init__(self, rewards: Any) -> None:
        self.rewards = rewards


DIFFERENT: list[Any] = [
    None,
    0,
    False,
    0.0,
    -0.0,
    "0",
    b"0",
    1j,
    (),
    [[]],
    ("", ""),
    (("",), ""),
    "ab",
    ("a", "b"),
    ("ab", ""),
    {"a": 1, "b": 2},
    {"a": 2, "b": 1},
    {"a", "b"},
    np.zeros(2),
    np.zeros(2, np.float32),
    np.zeros((2, 1)),
    -np.zeros(2),
    np.array(["a", "b"], object),
    np.array(["ab", ""], object),
    np.array([np.nan, 1.0]),
    jax.random.key(0),
    jax.random.key(1),
    Thing(1, 2),
    Thing(2, 1),
    Thing((1, 2)),
    Thing(1, 2, hidden=1),
    Plain(1),
    Plain(2),
    Unit.USER,
    *digested.DIFFERENT,
]


def test_different_things_have_different_digests_and_the_same_the_same() -> None:
    found = [keyed_digest(SECRET, value) for value in DIFFERENT]
    assert len(set(found)) == len(DIFFERENT)
    assert found == [keyed_digest(SECRET, value) for value in DIFFERENT]
    assert keyed_digest(SECRET, {"b": 2, "a": 1}) == keyed_digest(SECRET, {"a": 1, "b": 2})
    assert keyed_digest(SECRET, Plain(1)) == keyed_digest(SECRET, Plain(1))
    assert keyed_digest(SECRET, (1, 2)) == keyed_digest(SECRET, [1, 2])
    with jax.enable_x64(True):
        assert keyed_digest(SECRET, np.zeros(2)) == keyed_digest(SECRET, jax.numpy.zeros(2))
    round_and_round: list[Any] = []
    round_and_round.append(round_and_round)
    assert keyed_digest(SECRET, round_and_round) != keyed_digest(SECRET, [[]])


def test_nobody_makes_a_digest_without_the_key() -> None:
    assert keyed_digest(SECRET, 1.0) != keyed_digest(b"t" * 32, 1.0)


@given(st.lists(st.floats(), min_size=1, max_size=5), st.integers(0, 4), st.floats())
def test_one_changed_number_changes_the_digest(rows: list[float], place: int, new: float) -> None:
    array = np.array(rows)
    changed = array.copy()
    changed[place % len(rows)] = new
    same = array.tobytes() == changed.tobytes()
    assert (keyed_digest(SECRET, Thing(array)) == keyed_digest(SECRET, Thing(changed))) == same


def test_a_class_of_the_callers_is_its_code() -> None:
    def made(body: str) -> Any:
        space: dict[str, Any] = {"__name__": "theirs"}
        exec(f"class Env:\n    def _move(self, x):\n        return {body}", space)
        return space["Env"]()

    same = [keyed_digest(SECRET, made("x in {'a', 'b', 'c'}")) for _ in range(2)]
    assert same[0] == same[1]
    assert len({keyed_digest(SECRET, made(body)) for body in ("x", "x + 1", "x + 2", "y")}) == 4
    # In another process too, where sets are in another order.
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import digested; print(digested.digest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program, str(Path(__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1


@pytest.mark.parametrize(
    "made",
    [
        Hidden,
        Slots,
        lambda rewards: Hidden(collections.deque(rewards)),
        lambda rewards: Hidden(import_module("pandas").DataFrame({"reward": rewards})),
        lambda rewards: Hidden(import_module("pyarrow").table({"reward": rewards})),
        lambda rewards: Hidden(bytearray(map(int, rewards))),
        lambda rewards: type("Env", (), {"__module__": "theirs", "REWARDS": rewards})(),
        lambda rewards: type("Env", (), {"__module__": "theirs", "reward": _paying(rewards)})(),
    ],
    ids=["underscore", "slots", "deque", "pandas", "arrow", "bytes", "class", "default"],
)
def test_rewards_count_wherever_a_simulator_keeps_them(made: Callable[[Any], Any]) -> None:
    # Otherwise a copy would go on with other rewards and the same noise, which cancels out.
    one, same, other = (keyed_digest(SECRET, made([0.0, last])) for last in (1.0, 1.0, 2.0))
    assert one == same
    assert one != other


def _paying(rewards: Any) -> Any:
    def reward(self: Any, state: int, paid: Any = rewards) -> Any:
        return paid[state]

    return reward


def test_what_was_cached_since_does_not_count() -> None:
    used = Plain(1)
    assert used.double == 2
    assert keyed_digest(SECRET, used) == keyed_digest(SECRET, Plain(1))


def test_fields_count_by_their_names() -> None:
    one, two = (make_dataclass("Same", [name])(1) for name in ("a", "b"))
    assert keyed_digest(SECRET, one) != keyed_digest(SECRET, two)


# --- noise by a stored key ------------------------------------------------------------------------


def test_a_stored_key_gives_its_noise_again_and_another_key_another() -> None:
    one, same, other = source_from_key(SECRET), source_from_key(SECRET), source_from_key(b"t" * 32)
    first = one.normal(1.0, (5,))
    np.testing.assert_array_equal(first, same.normal(1.0, (5,)))
    assert not np.array_equal(first, other.normal(1.0, (5,)))
    assert one.origin is NoiseOrigin.SECURE
    # All of its bits count.
    for place in range(32):
        near = bytearray(SECRET)
        near[place] ^= 1
        assert not np.array_equal(first, source_from_key(bytes(near)).normal(1.0, (5,)))
    with pytest.raises(TypeError, match="cannot be copied"):
        copy.deepcopy(one.generator)


def test_noise_by_stored_keys_is_normal() -> None:
    """At false-alarm rate 1e-6; noise larger or smaller by a tenth is caught."""
    keys = [bytes([number]) * 32 for number in range(20)]
    sample = np.concatenate([source_from_key(key).normal(2.0, (1000,)) for key in keys])
    assert follows(sample, stats.norm(0.0, 2.0).cdf)
    for factor in (1.0 / 1.1, 1.1):
        assert not follows(sample, stats.norm(0.0, 2.0 * factor).cdf)


def _draw(source: Any, answers: Any) -> None:
    answers.put(source.normal(1.0, (3,)).tolist())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there are no forks here")
@pytest.mark.filterwarnings("ignore:.*fork.*")
def test_a_forked_process_does_not_draw_the_same() -> None:
    source, context = source_from_key(SECRET), multiprocessing.get_context("fork")
    answers = context.SimpleQueue()
    process = context.Process(target=_draw, args=(source, answers))
    process.start()
    process.join()
    assert answers.get() != source.normal(1.0, (3,)).tolist()


# --- the key of a run -----------------------------------------------------------------------------

ABOUT = {"seed": None, "run": "one"}


def kept_in(folder: Path, *, live: bool = False, env: Any = 1) -> NoiseKey:
    folder.mkdir(exist_ok=True)
    return NoiseKey.begin(folder, ABOUT, live=live, runs_on={"env": env})


def test_the_key_is_secret_and_comes_back(tmp_path: Path) -> None:
    kept = kept_in(tmp_path / "run")
    path = tmp_path / "run" / KEY_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    (tmp_path / "run" / f".{KEY_FILE}.abc.privrl-half").write_bytes(b"half a key")
    with resume_run(tmp_path / "run") as again:
        assert (again.secret, again.token) == (kept.secret, kept.token)
        again.check({"env": 1})
        with pytest.raises(InputError, match="not the environment or behaviour"):
            again.check({"env": 2})
        np.testing.assert_array_equal(
            again.source().normal(1.0, (4,)), kept.source().normal(1.0, (4,))
        )
    assert kept_in(tmp_path / "other").secret != kept.secret
    # Neither the data nor the key is in what a ledger sees, and digests are not those of others.
    assert kept.secret.hex() not in kept.token
    kept.remove()
    assert not any((tmp_path / "run").iterdir())


@pytest.mark.parametrize("package", ["randomgen", "numpy", "scipy", "jax", "jaxlib"])
def test_all_that_makes_noise_or_numbers_is_part_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    # With another randomgen the same key gives other noise: a second release that nobody paid for.
    here, version = resuming.machine_fingerprint.__wrapped__(), metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0" if name == package else version(name))
    assert resuming.machine_fingerprint.__wrapped__() != here
    assert f"privrl {privrl.__version__}" in here


X86 = "processor: 0\nmodel name: EPYC\ncpu family: 26\nmodel: 2\nflags: fma avx avx512f lm\n"
ALIKE = {
    "another order of flags": X86.replace("fma avx ", "avx fma "),
    "two cores": X86 + "\n" + X86.replace("processor: 0", "processor: 1"),
    "a newer kernel": X86.replace(" lm", " lm user_shstk ibpb_exit_to_user"),
}
OTHERS = {
    "another family": X86.replace("26", "25"),
    "fewer instructions": X86.replace(" avx512f", ""),
    "another kind beside it": X86 + "\n" + X86.replace("model: 2", "model: 3"),
    "nothing told": "",
}
# Nothing but these lines differs between two generations.
PAIRS = (
    ("cpu: POWER9", "cpu: POWER10"),
    ("isa: rv64gc\nuarch: sifive,u74", "isa: rv64gcv\nuarch: thead,c920"),
    ("processor 0: machine = 3906\nfeatures: vx", "processor 0: machine = 3931\nfeatures: vx vxe2"),
    ("CPU part: 0xd0c\nFeatures: fp asimd", "CPU part: 0xd40\nFeatures: fp asimd sve"),
)


def test_processors_of_one_name_are_told_apart(tmp_path: Path) -> None:
    def told(text: str) -> str:
        (tmp_path / "cpuinfo").write_text(text)
        return resuming._processor(tmp_path / "cpuinfo")

    assert told(X86).startswith("EPYC ")
    assert {told(text) for text in ALIKE.values()} == {told(X86)}
    assert len({told(text) for text in (X86, *OTHERS.values())}) == 1 + len(OTHERS)
    for one, other in PAIRS:
        assert told(one) != told(other)
    assert resuming._processor(tmp_path / "missing")  # as on other systems


def test_other_versions_or_machines_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = kept_in(tmp_path / "run")
    monkeypatch.setattr(resuming, "machine_fingerprint", lambda: ("another",))
    with pytest.raises(InputError, match="go on where it was begun"):
        kept.check({"env": 1})


def test_folders_are_for_one_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no run to resume"), resume_run(tmp_path / "no"):
        pass
    with begin_run(None):
        pass
    with pytest.raises(ZeroDivisionError), begin_run(tmp_path / "new"):
        raise ZeroDivisionError
    assert not (tmp_path / "new").exists()
    kept_in(tmp_path / "run")
    with pytest.raises(InputError, match="resume it first"), begin_run(tmp_path / "run"):
        pass
    (tmp_path / "run" / KEY_FILE).write_text("{}")
    with pytest.raises(InputError, match="not the key of a run"), resume_run(tmp_path / "run"):
        pass
    (tmp_path / "run" / KEY_FILE).write_text(
        '{"kind": "privrl noise key", "format": 1, "secret": "x"}'
    )
    with pytest.raises(InputError, match="is damaged"), resume_run(tmp_path / "run"):
        pass


# --- generations ----------------------------------------------------------------------------------


def paid(path: Path) -> Ledger:
    ledger = Ledger.create(path, "people", unit=Unit.TRAJECTORY)
    ledger.spend(Gaussian(10.0, 1.0), run="one")
    return ledger


def test_of_all_copies_one_goes_on_and_one_ends(tmp_path: Path) -> None:
    """First, copies of generation 0; then, of generation 1, one of them not killed in time."""
    kept = kept_in(tmp_path / "run", live=True)
    with paid(tmp_path / "ledger") as ledger:
        before = ledger.account(1e-6).epsilon
        first = kept.claim_next_generation(ledger)
        assert first.generation == 1
        for _ in range(5):
            with pytest.raises(InputError, match="was gone on with elsewhere"):
                kept.claim_next_generation(ledger)
        with pytest.raises(InputError, match="not released"):
            kept.end(ledger)
        with pytest.raises(InputError, match="goes on elsewhere"):
            kept.check_not_superseded(ledger)
        with resume_run(tmp_path / "run") as again:
            assert again.generation == 1
            second = again.claim_next_generation(ledger)
        first_late = first
        with pytest.raises(InputError, match="not released"):
            first_late.end(ledger)
        second.check_not_superseded(ledger)
        second.end(ledger)
        second.end(ledger)
        for one in (kept, first, second):
            with pytest.raises(InputError, match="has ended"):
                one.claim_next_generation(ledger)
        # It costs nothing, it is chained, and it is in the file for everybody.
        assert ledger.account(1e-6).epsilon == before
        assert ledger.check() == 4
        assert len(ledger.account(1e-6, "one").method)
        with Ledger.from_dict(ledger.to_dict(), tmp_path / "copy") as copied:
            assert copied.generation(kept.token) == (2, True)
        assert ledger.generation("another") == (0, False)


def test_who_dies_between_claim_and_checkpoint_may_claim_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And of its copies the first alone, however often that happens."""

    class Killed(BaseException):
        pass

    def dies(*_: Any, **__: Any) -> Any:
        raise Killed

    place, real = tmp_path / "run", Ledger.claim

    def claims(self: Ledger, *given: Any) -> int:
        found = real(self, *given)
        monkeypatch.setattr(NoiseKey, "_write", dies)
        return found

    write = NoiseKey._write
    with Ledger.create(tmp_path / "ledger", "people", unit=Unit.TRAJECTORY) as ledger:
        with begin_run(place):
            NoiseKey.begin(place, {"run": "one", "seed": None}, live=True, runs_on={})
        early = shutil.copytree(place, tmp_path / "early")
        monkeypatch.setattr(Ledger, "claim", claims)
        for _ in range(2):
            with resume_run(place) as kept, pytest.raises(Killed):
                kept.claim_next_generation(ledger)
            monkeypatch.setattr(NoiseKey, "_write", write)
        # Before its claim, too: the older mark still counts.
        monkeypatch.setattr(Ledger, "claim", dies)
        with resume_run(place) as kept, pytest.raises(Killed):
            kept.claim_next_generation(ledger)
        monkeypatch.setattr(Ledger, "claim", real)
        copy = shutil.copytree(place, tmp_path / "copy")
        with resume_run(copy) as kept:
            going = kept.claim_next_generation(ledger)
        assert going.generation == 3
        for one in (place, early):
            with resume_run(one) as kept, pytest.raises(InputError, match="gone on with elsewhere"):
                kept.claim_next_generation(ledger)
        going.end(ledger)


def test_a_claim_takes_nothing_of_the_limit(tmp_path: Path) -> None:
    """A run that was stopped before it paid claims its generation first."""
    limit = Budget(1.0, 1e-6)
    std = calibrate(lambda std: Gaussian(std, 1.0), limit, Relation.REPLACE_ONE)
    with Ledger.create(
        tmp_path / "ledger", "people", unit=Unit.TRAJECTORY, limit=limit, filter="gaussian"
    ) as ledger:
        assert ledger.claim("one", "token", 0) == 1
        assert ledger.remaining() == 1.0
        assert ledger.account(1e-6).epsilon == 0.0
        ledger.spend(Gaussian(std, 1.0), run="one")
        ledger.end("one", "token", 1)
        assert ledger.check() == 3


def _claim(path: str, folder: str, gate: Any, answers: Any) -> None:
    with Ledger.open(path) as ledger:
        kept = NoiseKey.read(folder)
        gate.wait()
        try:
            kept.claim_next_generation(ledger)
            answers.put("let")
        except InputError as error:
            answers.put(str(error))


@pytest.mark.slow
def test_of_processes_that_claim_at_once_one_is_let(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    paid(tmp_path / "ledger").close()
    kept_in(tmp_path / "0", live=True)
    for number in range(1, 4):
        (tmp_path / str(number)).mkdir()
        (tmp_path / str(number) / KEY_FILE).write_bytes((tmp_path / "0" / KEY_FILE).read_bytes())
    gate, answers = context.Barrier(4), context.SimpleQueue()
    processes = [
        context.Process(
            target=_claim,
            args=(str(tmp_path / "ledger"), str(tmp_path / str(number)), gate, answers),
        )
        for number in range(4)
    ]
    for process in processes:
        process.start()
    told = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    assert told.count("let") == 1
    assert sum("was gone on with elsewhere" in one for one in told) == 3


def test_without_a_ledger_the_certificate_says_that_nobody_counts(tmp_path: Path) -> None:
    kept = kept_in(tmp_path / "run", live=True)
    with paid(tmp_path / "ledger") as ledger:
        counted = [one.statement for one in kept.claim_next_generation(ledger).assumptions(ledger)]
    uncounted = [one.statement for one in kept.claim_next_generation(None).assumptions(None)]
    assert not any("resumed once" in one for one in counted)
    assert any("resumed once" in one for one in uncounted)
    # And why it was interrupted nobody can know.
    assert all(
        any("not interrupted because" in one for one in told) for told in (counted, uncounted)
    )
    assert not any("interrupted" in one.statement for one in kept.assumptions(None))
    replayed = kept_in(tmp_path / "other")
    assert [one.statement[:17] for one in replayed.assumptions(None)] == ["nobody but its ow"]
