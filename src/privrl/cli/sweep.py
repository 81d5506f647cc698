"""`privrl sweep`: many settings and seeds of a learner, in a simulator."""

from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from privrl.cli.common import exit_stopped, progress, refuse_options
from privrl.cli.derived import function
from privrl.cli.printing import say, say_json, shell_quote
from privrl.core.spec import Spec, option
from privrl.run.specs.actor_critic import ActorCriticTask

if TYPE_CHECKING:
    from privrl.run.sweep import CombinationScore, SweepPlan


_GRID = "A setting and its values: actor_step=0.1,0.5. Repeat it."
_SET = "Any other option of privrl train: acting=softmax. Repeat it."


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

    grid: tuple[str, ...] = option(_GRID, repeated=True)
    set: tuple[str, ...] = option(_SET, repeated=True)
    seeds: int | None = option("How many runs of each combination.", shown="10")
    replicas: int | None = option("Runs that are played side by side.", shown="64")
    segment: int | None = option("The most episodes between two checkpoints.")
    curves: bool = option("Keep the return of every episode.", False)
    config: Path | None = option("TOML or JSON file with these options.")
    ray: str | None = option("Play on Ray: local, or a cluster's address.")
    out: Path | None = option("The sweep's folder.", shown="sweeps/<date and time>")
    top: int = option("How many of the best to print.", 10)
    resume: bool = option("Go on with the sweep in --out, which knows its options.", False)
    json: bool = option("Print JSON instead of text.", False)


@dataclass(frozen=True)
class _Shared(Spec):
    learner: str | None = option(
        "What learns: actor-critic, seo2020-actor-critic, ...", argument=True
    )
    epsilon: float | None = option("Privacy budget epsilon of each run; or sweep sigma.")
    agents: int | None = option("pgc: how many agents report.")


# The options of learners that a sweep has too; --set takes the others.
_SHARED = ("env", "variant", "people", "episodes", "delta", "features")


def _sweep(given: dict[str, Any]) -> None:
    about = {one.name: given.pop(one.name) for one in _SweepOptions.options().values()}
    words, top, config, out, resume = given, *(about[n] for n in ("top", "config", "out", "resume"))
    from privrl.core import checks, files
    from privrl.privacy import InputError
    from privrl.run import runners, training
    from privrl.run.sweep import load_plan, sweep

    top = checks.count("top", 10 if top is None else top)
    plans = {name: about[name] for name in ("seeds", "replicas", "segment", "curves")}
    grid, settings, ray = tuple(about["grid"] or ()), tuple(about["set"] or ()), about["ray"]
    if resume:
        said = {**plans, "grid": grid, "set": settings}
        refuse_options({**words, "env": None}, out, config, said)
        assert out is not None
        folder = out
        plan, kept = load_plan(folder)
        runners.refuse_modules(kept, words["env"], folder)
        runner = runners.Runner.of(kept)
    else:
        if words["learner"] is None and config is None:
            known = ", or ".join(runners.SWEPT)
            raise InputError(f"Say what is to learn: privrl sweep {known}.")
        folder = out or Path("sweeps") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
        runner, plan = runners.plan_sweep({**words, **plans}, grid, settings, config)
    workers = "local" if ray is None else "ray" if ray == "local" else ray
    program = runner.program(tuple(plan.grid))
    with (
        nullcontext() if resume else files.create_folder(folder),
        progress(None) as advance,
        training.on_interrupt() as stop,
    ):
        found = sweep(
            program,
            plan,
            folder,
            about=runner.to_dict(),
            go_on=resume,
            workers=workers,
            progress=advance,
            stop=stop,
        )
    if not found.is_finished:
        how_far = f"{found.chunks:,} of {plan.chunks:,} chunks"
        exit_stopped(how_far, f"sweep {runner.learner}", folder, getattr(runner, "env", None))
    best = found.best(top)
    if about["json"]:
        listed = [one.to_dict() for one in best]
        say_json({"plan": plan.to_dict(), "best": listed, "results": str(found.results)})
        return
    say(
        *_result_lines(plan, best, runner.progress_unit),
        f"All runs are in {shell_quote(found.results)}.",
    )


sweep_command = function(
    _SweepOptions.__doc__,
    [
        *_Shared.options().values(),
        *(one for name, one in ActorCriticTask.all_options().items() if name in _SHARED),
        *_SweepOptions.options().values(),
    ],
    _sweep,
)


def _result_lines(plan: "SweepPlan", best: "list[CombinationScore]", counted: str) -> list[str]:
    """The best combinations, for a screen."""
    lines = [
        f"{plan.combinations:,} combinations on {plan.seeds} seeds, {plan.episodes:,} {counted}.",
        "Mean return of the last tenth: interquartile mean over seeds, and its 95 %",
        "interval. The best of many is also the luckiest: try it on other seeds.",
    ]
    names = list(plan.grid)
    width = max([9, *(len(name) + 2 for name in names)])
    lines.append(
        f"{'mean':>9}{'from':>10}{'to':>10}" + "".join(f"{name:>{width}}" for name in names)
    )
    for one in best:
        score = one.score
        if score is None:
            shown = f"{f'{one.diverged} of {plan.seeds} runs diverged':>29}"
        else:
            shown = f"{score.value:>9.4g}{score.low:>10.4g}{score.high:>10.4g}"
        lines.append(shown + "".join(f"{value:>{width}.4g}" for value in one.settings.values()))
    return lines
