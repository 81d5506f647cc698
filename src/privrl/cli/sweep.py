"""`privrl sweep`: many settings and seeds of a learner, in a simulator."""

from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privrl.cli.common import exit_stopped, folder_to_resume, new_folder, watching
from privrl.cli.derived import function
from privrl.cli.printing import answer, shell_quote
from privrl.core.errors import InputError
from privrl.core.spec import Spec, option
from privrl.run.specs.environments import ActorCriticTask


@dataclass(frozen=True)
class _SweepOptions(Spec):
    """Every combination of settings on every seed, in a simulator, and which did best.

    The folder gets results.parquet, a row for each run. All combinations meet the same seeds, and
    so the same worlds. Ctrl-C stops after the current segment; --resume goes on.

    \b
    privrl sweep seo2020-actor-critic --env MDP100 --epsilon 10 --delta 1e-6 \\
      --grid actor_step=0.1,0.5 --grid lambda_=0,0.8 --seeds 10 --episodes 500
    privrl sweep pgc --env CartPole --epsilon 2 --agents 5000 --grid rate=0.05,0.1
    """

    learner: str | None = option(
        "What learns: actor-critic, seo2020-actor-critic, ...", argument=True
    )
    epsilon: float | None = option("Privacy budget epsilon of each run; or sweep sigma.")
    agents: int | None = option("pgc: how many agents report.")
    grid: tuple[str, ...] = option(
        "A setting and its values: actor_step=0.1,0.5. Repeat it.", (), repeated=True
    )
    set: tuple[str, ...] = option(
        "Any other option of privrl train: acting=softmax. Repeat it.", (), repeated=True
    )
    seeds: int | None = option("How many runs of each combination.", shown="10")
    replicas: int | None = option("Runs that are played side by side.", shown="64")
    segment: int | None = option("The most episodes between two checkpoints.")
    curves: bool = option("Keep the return of every episode.", False)
    config: Path | None = option("TOML or JSON file with these options.")
    ray: str | None = option("Play on Ray: local, or a cluster's address.")
    out: Path | None = option("The sweep's folder.", shown="sweeps/<date and time>")
    top: int = option("How many of the best to print.", 10)
    resume: bool = option("Go on with the sweep in --out, which knows its options.", False)


# The options of learners that a sweep has too; --set takes the others.
_SHARED = {
    name: ActorCriticTask.all_options()[name]
    for name in ("env", "variant", "people", "episodes", "delta", "features")
}
# The options about a sweep that are not in its plan.
_ABOUT = ("grid", "set", "config", "ray", "out", "top", "resume")


def _sweep(given: dict[str, Any]) -> None:
    from privrl.core import checks, files
    from privrl.run import runners
    from privrl.run.sweep import load_plan, score_lines, sweep

    top = checks.count("top", 10 if given["top"] is None else given["top"])
    resume, config = given["resume"], given["config"]
    folder = folder_to_resume(given) if resume else given["out"] or new_folder("sweeps")
    if resume:
        plan, kept = load_plan(folder)
        runners.refuse_modules(kept, given["env"], folder)
        runner = runners.Runner.of(kept)
    else:
        if given["learner"] is None and config is None:
            known = ", or ".join(runners.SWEPT)
            raise InputError(f"Say what is to learn: privrl sweep {known}.")
        words = {name: value for name, value in given.items() if name not in _ABOUT}
        grid, settings = given["grid"] or (), given["set"] or ()
        runner, plan = runners.plan_sweep(words, grid, settings, config)
    workers = {None: "local", "local": "ray"}.get(given["ray"], given["ray"])
    program = runner.program(tuple(plan.grid))
    said = {"about": runner.to_dict(), "go_on": resume, "workers": workers}
    with nullcontext() if resume else files.create_folder(folder), watching() as watch:
        found = sweep(program, plan, folder, **said, **watch)
    if not found.is_finished:
        exit_stopped(f"{found.chunks:,} of {plan.chunks:,} chunks", "sweep", runner, folder)
    best = found.best(top)
    told = {"plan": plan.to_dict(), "best": [one.to_dict() for one in best]}
    answer(
        {**told, "results": str(found.results)},
        *score_lines(plan, best, runner.progress_unit),
        f"All runs are in {shell_quote(found.results)}.",
    )


run = function(_SweepOptions.__doc__, (_SHARED | _SweepOptions.options()).values(), _sweep)
