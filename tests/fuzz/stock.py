"""Good files of every sort, in one folder: made by the commands themselves, each when first needed.

A case copies what it spoils. Everything is small, and everything that is random has a seed.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from tests.neighbours.tables import CHOSEN, people, write

_ROOT = Path(__file__).parents[2]
_READ = "--trajectory stay --time t --user patient"
_STEPS = f"{_READ} --reward r --terminated died --reward-range 0,1"
_WARDS = "--state ward --action dose"
_JUDGED = "--policy policy.json --behavior-prob p --horizon 4 --gamma 0.9 --weight-cap 3"


def _words(*parts: str) -> list[str]:
    return " ".join(parts).split()


TABLE = _words(_READ, _WARDS, "--reward r")
"""Which column is what, for a check."""

EVALUATE = _words(_STEPS, _WARDS, _JUDGED)
VECTORS = _words(
    _STEPS,
    "--state hr,map --action dose --num-actions 2 --state-range 30:200,40:140",
    "--target-prob q --behavior-prob p --horizon 4 --gamma 0.9 --weight-cap 3",
)
BUDGET = _words("--epsilon 1 --delta 1e-3 --seed 7")

TRAIN = {
    "actor-critic": _words(
        "--env Chain --max-steps 6 --people 24 --batch 4 --epsilon 10 --delta 1e-3 --seed 3",
        "--return-range 0,60",
    ),
    "functional-q": _words(
        "--env Interval --steps 60 --rounds 6 --reward-radius 0.01 --reward-range 0,0.5",
        "--epsilon 0.9 --delta 1e-4 --seed 3 --reward-features cosine:3",
    ),
    "prospect": _words(
        "--env ObstacleGrid --steps 60 --samples 5 --reward-radius 0.01 --reward-range=-50,0",
        "--epsilon 1 --delta 1e-6 --seed 3",
    ),
    "wang2019-functional-q": _words(
        "--env Interval --samples 130 --resets 1 --sigma 0.5 --rate 1 --seed 3",
    ),
    "rajabi2022-prospect": _words(
        "--env ObstacleSquare --iterations 2 --batch 3 --samples 4 --epsilon 0.9 --seed 3",
    ),
    "pgc": _words(
        "--env CartPole --agents 24 --epsilon 2 --mechanism laplace --hidden 2 --flight 3",
        "--buffer 4 --seed 3",
    ),
    "ono2020-pgc": _words(
        "--env CartPole --agents 24 --epsilon 2 --mechanism laplace --hidden 2 --flight 3",
        "--buffer 4 --seed 3",
    ),
    "seo2020-actor-critic": _words(
        "--env Chain --max-steps 6 --episodes 20 --epsilon 10 --delta 1e-6 --seed 3",
    ),
    "logged-q": _words(
        "stays.csv",
        _STEPS,
        _WARDS,
        "--num-states 3 --num-actions 2 --updates 3 --epsilon 1 --delta 1e-3 --seed 3",
    ),
}
SWEEP = _words(
    "sweep seo2020-actor-critic --env Chain --set max_steps=6 --episodes 20 --epsilon 10",
    "--delta 1e-6 --seeds 2 --grid actor_step=0.1,0.5 --replicas 2 --segment 10",
)


class Stock:
    """The folder, and how each thing in it is made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Path:
        """The file or folder of this name, made now if it is not there."""
        path = self.folder / name
        if not path.exists():
            raise FileNotFoundError(f"{name} was not made: see Stock.make")
        return path

    def make(self, kinds: "set[str]") -> None:
        """What these kinds of cases need, in a process of its own that may compile programs."""
        for sort, made in _SORTS.items():
            if kinds & made and not (self.folder / f".{sort}").exists():
                # Not by a fork: the caller may have imported JAX, which has threads.
                paths = [*map(str, (_ROOT, _ROOT / "src")), os.environ.get("PYTHONPATH", "")]
                done = subprocess.run(
                    [sys.executable, "-m", "tests.fuzz.stock", str(self.folder.resolve()), sort],
                    cwd=_ROOT,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                if done.returncode != 0:
                    raise RuntimeError(f"{sort} cannot be made: {done.stderr}")
                (self.folder / f".{sort}").touch()


def _run(*words: str, code: int = 0) -> None:
    from privrl import cli

    found = cli.run(list(words))
    sys.stdout.flush()
    if found != code:
        raise RuntimeError(f"{' '.join(words)} ended with {found}")


def tables(folder: Path) -> None:
    """Tables of stays, policies, and a config."""
    from privrl.data import EpsilonGreedy, Network, Polynomial, Softmax, Tabular

    rows = [row for one in people() for row in one]
    cut = sum(map(len, people()[:CHOSEN]))
    for form in ("csv", "parquet"):
        assert write(rows, folder / f"stays.{form}", form)
        for number, part in enumerate((rows[:cut], rows[cut:])):
            assert write(part, folder / f"part-{number}.{form}", form)
    policy = Tabular(np.array([[0.6, 0.4], [0.2, 0.8], [0.5, 0.5]]))
    policy.save(folder / "policy.json")
    Tabular(np.full((3, 2), 0.5)).save(folder / "followed.json")
    drawn = np.random.default_rng(1)
    square = Polynomial(1, (30.0, 40.0), (200.0, 140.0))
    Softmax(square, drawn.normal(size=(square.dimension, 2)), 2.0).save(folder / "softmax.json")
    EpsilonGreedy(drawn.normal(size=(3, 2)), 0.1).save(folder / "greedy.json")
    layers = ((drawn.normal(size=(2, 3)), np.zeros(3)), (drawn.normal(size=(3, 2)), np.zeros(2)))
    Network(layers, "tanh").save(folder / "network.json")
    origin = {"run": "0" * 32, "learner": "logged-q"}
    policy.with_origin(**origin).save(folder / "learned.json")
    (folder / "config.toml").write_text(
        'trajectory = "stay"\ntime = "t"\nuser = "patient"\nstate = ["ward"]\naction = "dose"\n'
        'reward = "r"\nterminated = "died"\nreward-range = "0,1"\npolicy = "policy.json"\n'
        'behavior-prob = "p"\nhorizon = 4\ngamma = 0.9\nweight-cap = 3\nepsilon = 1\n'
        'delta = 1e-3\ntable = ["stays.csv"]\n'
    )


def _books(folder: Path) -> None:
    """Ledgers, certificates, keys, a run's folder."""
    ledger = "ledger create {} --population people --epsilon 50 --delta 1e-2"
    _run(*ledger.format("people.ledger").split(), "--people", "12")
    _run(*["ledger", "create", "free.ledger", "--population", "others"])
    out = ["--out", "run", "--ledger", "people.ledger", "--estimators", "value,lstd"]
    _run("evaluate", "stays.csv", *EVALUATE, *BUDGET, *out)
    _run("evaluate", "stays.csv", *EVALUATE, "--public", "--out", "public")
    _run(*["keygen", "key"])
    for number, events in enumerate(
        (
            ["Gaussian(3, 1)"],
            ["Laplace(3, 1)", "Repeated(PoissonSampled(Gaussian(2, 1), 0.01), 10)"],
            ["DiscreteGaussian(30, 10, 2)"],
        )
    ):
        place = f"plan-{number}.json"
        _run("budget", *events, "--delta", "1e-5", "--unit", "user", "--save", place)
    _run("budget", "Gaussian(3, 1)", "--delta", "1e-5", "--unit", "user", "--save", "signed.json")
    _run("sign", "signed.json", "--key", "key")
    _run("ledger", "check", "people.ledger", "--anchor", "anchor")
    from contextlib import redirect_stdout

    with (folder / "people.json").open("w") as file, redirect_stdout(file):
        _run("ledger", "export", "people.ledger")
    from privrl.core import files
    from privrl.risk import Prospect

    files.write_json(folder / "prospect.json", Prospect.tversky_kahneman().to_dict())


@contextmanager
def stopping(count: int) -> Iterator[None]:
    """Runs stop when they are asked for the so-manieth time."""
    from privrl.run import training

    @contextmanager
    def soon() -> Iterator[Callable[[], bool]]:
        asked = iter([False] * count)
        yield lambda: next(asked, True)

    before, training.on_interrupt = training.on_interrupt, soon
    try:
        yield
    finally:
        training.on_interrupt = before


def _runs(folder: Path) -> None:
    """Runs that were stopped, and that were finished, of each learner."""
    for learner, words in TRAIN.items():
        _run("train", learner, *words, "--out", f"done-{learner}")
        with stopping(1):
            from privrl import cli

            code = cli.run(["train", learner, *words, "--out", f"half-{learner}"])
            assert code in (0, 130), (learner, code)
    _run(*SWEEP, "--out", "swept")
    with stopping(2):
        _run(*SWEEP, "--out", "half-sweep", code=130)


_MAKERS: dict[str, Callable[[Path], None]] = {"tables": tables, "books": _books, "runs": _runs}
EVERY = {
    *("options", "paths", "csv", "parquet", "policies", "configs", "studies", "certificates"),
    *("ledgers", "events", "keys", "risks"),
}
# Which kinds of cases need which.
_SORTS = {"tables": EVERY | {"runs", "train", "reading", "values"}, "books": EVERY | {"runs"}}
_SORTS["runs"] = {"runs"}


if __name__ == "__main__":
    os.chdir(sys.argv[1])
    _MAKERS[sys.argv[2]](Path(sys.argv[1]))
