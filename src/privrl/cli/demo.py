"""`privrl demo`: an evaluation in a made-up clinic."""

from pathlib import Path
from typing import Annotated

from typer import Option

from privrl.cli.common import Json, progress
from privrl.cli.evaluate import run_evaluation


def demo(
    out: Annotated[Path, Option(help="Where to put the data and the run.")] = Path("privrl-demo"),
    people: Annotated[int, Option(help="How many patients to make up.")] = 6000,
    seed: Annotated[int, Option(help="Which patients; the noise is always fresh.")] = 0,
    as_json: Json = False,
) -> None:
    """A made-up HIV clinic: is the new protocol better, and what does it say of each patient?"""
    from privrl.run import clinic

    with progress(None) as advance:
        advance("making up a clinic")
        words = clinic.write(out, people, seed)
    run_evaluation(words, unused=out / "run", as_json=as_json)
