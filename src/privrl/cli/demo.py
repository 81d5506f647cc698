"""`privrl demo`: an evaluation in a made-up clinic."""

from pathlib import Path

from privrl.cli.derived import CommandSpec
from privrl.cli.evaluate import EvaluationRun, run_evaluation
from privrl.core.progress import progress_bar
from privrl.core.spec import option


class Options(CommandSpec):
    """A made-up HIV clinic: is the new protocol better, and what does it say of each patient?"""

    out: Path = option("Where to put the data and the run.", Path("privrl-demo"))
    people: int = option("How many patients to make up.", 6000)
    seed: int = option("Which patients; the noise is always fresh.", 0, low=0)

    def run(self) -> None:
        from privrl.run import clinic

        with progress_bar(None) as advance:
            advance("making up a clinic")
            words = clinic.write(self.out, self.people, self.seed)
        run_evaluation(words, EvaluationRun(), unused=self.out / "run")
