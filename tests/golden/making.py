"""How `ledgers/` was made, once, when the package was called tacit (python -m tests.golden.making).

What is there now is not to be made again: it stands for the ledgers, certificates and interrupted
runs that people have.
"""

import os
import sys
from contextlib import chdir
from pathlib import Path
from unittest import mock

from tacit import cli
from tacit.privacy import Gaussian, Laplace, Ledger, PoissonSampled, Repeated
from tacit.privacy.payment import Purse
from tests.fuzz.stock import BUDGET, EVALUATE, stopping, tables

LEDGER = "people.ledger"
JUDGE = [word for word in EVALUATE if word not in ("--user", "patient")]
LEARN = [
    *("train", "actor-critic", "--env", "ObstacleGrid", "--max-steps", "6", "--people", "24"),
    *("--batch", "4", "--return-range=-300,0", "--epsilon", "3", "--delta", "1e-4", "--seed", "3"),
]


def run(*words: str, code: int = 0) -> None:
    """A command that ends with this exit code."""
    found = cli.run(list(words))
    assert found == code, (words, found)


def make(folder: Path) -> None:
    """A ledger with runs, partitions and a limit; certificates; runs that were interrupted."""
    folder.mkdir(parents=True)
    with chdir(folder):
        tables(Path())
        stock = list(Path().iterdir())
        if not os.fork():  # nothing in a process that is killed tidies up
            with mock.patch.object(Purse, "certify", side_effect=lambda *_, **__: os._exit(0)):
                run("evaluate", "stays.csv", *JUDGE, *BUDGET, "--out", "killed")
        os.wait()
        about = ["--population", "people", "--unit", "trajectory", "--people", "5000"]
        run("ledger", "create", LEDGER, *about, "--epsilon", "20", "--delta", "1e-4")
        paying = ["--ledger", LEDGER, "--name"]
        run("evaluate", "stays.csv", *JUDGE, *BUDGET, *paying, "judged", "--out", "judged")
        with Ledger.open(LEDGER) as ledger:
            for slot, event in enumerate((Gaussian(20.0, 1.0), Laplace(15.0, 1.0))):
                ledger.spend(event, run="by year", partition="years", slot=slot, note="half of it")
            sampled = Repeated(PoissonSampled(Gaussian(4.0, 1.0), 0.01), 5)
            ledger.spend(sampled, run="sampled", delta=1e-4)
        with stopping(1):
            run(*LEARN, *paying, "learning", "--out", "learning", code=130)
        # Where its ledger is, is kept as the whole path.
        told = Path("learning/run.json")
        told.write_text(told.read_text().replace(f"{Path.cwd()}/", ""))
        run(
            "budget", "Gaussian(3, 1)", "--delta", "1e-5", "--unit", "user", "--save", "signed.json"
        )
        run("keygen", "key")
        run("sign", "signed.json", "--key", "key")
        Path("key").unlink()
        Path("judged/report.html").unlink()
        run("ledger", "check", LEDGER, "--anchor", "anchor")
        for path in stock:
            path.unlink()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
