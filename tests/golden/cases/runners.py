"""Learners, each in its main variants, and sweeps, at sizes that take no time."""

from pathlib import Path
from typing import Any

from tests.fuzz.stock import SWEEP, TRAIN
from tests.golden.canonical import read
from tests.golden.running import Cases, files, said
from tests.neighbours.commands import commands

CASES = Cases()


def train(name: str, learner: str, words: str) -> None:
    """A case of `train`, whose files are kept."""
    said_all = ["train", learner, *words.split(), "--seed", "3", "--out", "run"]
    CASES.command(f"train-{learner}-{name}", *said_all, sort="learned")


# --- actor-critic ---------------------------------------------------------------------------------

_GRID = "--env ObstacleGrid --max-steps 6"
_SPEND = "--epsilon 10 --delta 1e-3"
_PEOPLE = f"{_GRID} --people 24 --batch 4 --return-range=-300,0"

for _variant in ("both", "actor", "critic"):
    train(f"certified-{_variant}", "actor-critic", f"{_PEOPLE} {_SPEND} --variant {_variant}")
train("certified-none", "actor-critic", f"{_PEOPLE} --variant none --public")
train(
    "certified-curve",
    "actor-critic",
    f"{_PEOPLE} {_SPEND} --curve paid --schedule linear --average 0.5 --noise correlated"
    " --entropy 0.01 --json",
)
train(
    "certified-prospect",
    "actor-critic",
    f"{_PEOPLE} {_SPEND} --prospect tversky-kahneman --bins 8 --noise independent --optimiser adam",
)
train(
    "certified-network",
    "actor-critic",
    "--env CartPole --max-steps 5 --people 12 --batch 4 --return-range 0,5 --features network:3"
    f" --critic-features polynomial:1 --state-range=-2:2,-2:2,-1:1,-2:2 {_SPEND}",
)

# --- seo2020-actor-critic -------------------------------------------------------------------------

_PAPER = f"{_GRID} --episodes 12 --epsilon 10 --delta 1e-6 --public"

for _variant in ("both", "actor", "critic"):
    train(_variant, "seo2020-actor-critic", f"{_PAPER} --variant {_variant}")
train(
    "softmax",
    "seo2020-actor-critic",
    f"{_PAPER} --variant both --acting softmax --correction printed --clip median --logs csv,jsonl",
)

# --- functional-q ---------------------------------------------------------------------------------

_ROLLOUT = "--env Interval --steps 60 --reward-range 0,0.5"
_RADIUS = f"{_ROLLOUT} --epsilon 0.9 --delta 1e-4 --reward-radius 0.01"

for _release, _more in {
    "reward-model": "--rounds 6 --reward-features cosine:3 --public",
    "weights": "--updates 4 --features polynomial:2",
    "updates": "--updates 4 --batch 8",
    "rewards": "--rounds 6",
    "evaluations": "--evaluations 3 --horizon 5",
}.items():
    train(_release, "functional-q", f"{_RADIUS} --release {_release} {_more}")
train("none", "functional-q", f"{_ROLLOUT} --release none --rounds 6 --public")
train("actor-critic", "functional-q", f"{_RADIUS} --planner actor-critic --iterations 5")
train(
    "network",
    "functional-q",
    f"{_RADIUS} --planner network --features network:3 --updates 5 --json",
)
train(
    "printed",
    "wang2019-functional-q",
    "--env Interval --epsilon 0.9 --delta 1e-4 --samples 260 --resets 2 --public",
)
train(
    "public-code",
    "wang2019-functional-q",
    "--env Interval --preset public-code --sigma 0.5 --rate 1 --samples 130 --resets 3"
    " --edge public-code --public",
)

# --- prospect -------------------------------------------------------------------------------------

_PENALTIES = (
    "--env ObstacleGrid --steps 60 --samples 5 --reward-range=-50,0 --epsilon 1 --delta 1e-6"
)
_MODEL = f"{_PENALTIES} --reward-radius 0.01"
_SQUARE = "--env ObstacleSquare --samples 4 --public"

train("reward-model", "prospect", f"{_MODEL} --prospect tversky-kahneman --public")
train("updates", "prospect", f"{_PENALTIES} --release updates --updates 3 --batch 20 --clip 0.1")
train("network", "prospect", f"{_MODEL} --planner network --features network:3 --updates 4")
train("printed", "rajabi2022-prospect", f"{_SQUARE} --iterations 2 --batch 3 --epsilon 0.9")
train(
    "public-code",
    "rajabi2022-prospect",
    f"{_SQUARE} --preset public-code --sigma 1 --rate 1 --acting proportional --iterations 33"
    " --batch 8",
)

# --- pgc ------------------------------------------------------------------------------------------

_POLES = "--env CartPole --agents 24 --epsilon 2 --hidden 2 --flight 3 --buffer 4"

for _mechanism in ("privunit", "sign", "laplace"):
    train(_mechanism, "pgc", f"{_POLES} --mechanism {_mechanism} --public")
train(
    "scores",
    "pgc",
    "--env CartPole --agents 510 --epsilon 120 --hidden 2 --flight 60 --buffer 60"
    " --mechanism laplace --submissions 2 --target 20 --score-share 0.5"
    " --vary gravity=9.7,9.9 --acting greedy",
)
train(
    "sign",
    "ono2020-pgc",
    "--env CartPole --mechanism sign --agents 30 --epsilon 5 --hidden 2 --buffer 10",
)

# --- logged-q: the suite of neighbours has its commands -------------------------------------------

_listed = {command.name: command for command in commands()}
for _name, _slug in {
    "table": "table",
    "table, adam, CSV": "adam",
    "vectors": "vectors",
    "network, CSV": "network",
    "next states": "next-states",
}.items():
    CASES.command(f"train-logged-q-{_slug}", *_listed[f"train {_name}"].words, sort="learned")
CASES.command(
    "train-logged-q-public",
    *("train", "logged-q", *TRAIN["logged-q"][:-6], "--public", "--seed", "3", "--out", "run"),
    sort="learned",
)

# --- sweeps, and the demonstration ----------------------------------------------------------------

_SWEPT = [word.replace("Chain", "ObstacleGrid") for word in SWEEP]
CASES.command("sweep-seo2020-actor-critic", *_SWEPT, "--curves", "--out", "run", sort="learned")


@CASES.case
def demo() -> Any:
    """Its noise is always fresh: of what it finds, what does not depend on it."""
    code = said("demo --people 80 --seed 4 --out demo")["code"]
    made = {path.name: read(path) for path in sorted(Path("demo").glob("*")) if path.is_file()}
    found = files("demo/run")
    return {
        "code": code,
        "made": made,
        "names": sorted(found),
        "certificate.json": found["certificate.json"],
        "facts": found["study.json"]["facts"],
    }
