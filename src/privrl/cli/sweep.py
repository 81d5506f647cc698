"""`privrl sweep`: many settings and seeds of a learner, in a simulator."""

from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privrl.cli.common import (
    Config,
    Delta,
    EnvName,
    Episodes,
    FeaturesOf,
    Json,
    People,
    Resume,
    Variant,
    exit_stopped,
    progress,
    refuse_options,
)
from privrl.cli.printing import say, say_json, shell_quote

if TYPE_CHECKING:
    from privrl.run.sweep import CombinationScore, SweepPlan


def sweep_command(
    learner: Annotated[
        str | None,
        typer.Argument(help="What learns: actor-critic, seo2020-actor-critic, ..."),
    ] = None,
    env: EnvName = None,
    variant: Variant = None,
    people: People = None,
    episodes: Episodes = None,
    agents: Annotated[int | None, typer.Option(help="pgc: how many agents report.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of each replica; or sweep sigma.")] = None,
    delta: Delta = None,
    features: FeaturesOf = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="A setting and its values: actor_step=0.1,0.5. Repeat it."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other option of privrl train: acting=softmax. Repeat it."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many runs of each combination; default: 10.")
    ] = None,
    replicas: Annotated[
        int | None, typer.Option(help="Runs that are played side by side; default: 64.")
    ] = None,
    segment: Annotated[
        int | None, typer.Option(help="The most episodes between two checkpoints.")
    ] = None,
    curves: Annotated[
        bool, typer.Option("--curves", help="Keep the return of every episode.")
    ] = False,
    config: Config = None,
    ray: Annotated[
        str | None, typer.Option(help="Play on Ray: local, or a cluster's address.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The sweep's folder; by default sweeps/<date and time>.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many of the best to print.")] = 10,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Every combination of settings on every seed, in a simulator, and which did best.

    The folder gets results.parquet, a row for each run. All combinations meet the same seeds, and
    so the same worlds. Ctrl-C stops after the current segment; --resume goes on.

    \b
    privrl sweep seo2020-actor-critic --env MDP100 --epsilon 10 --delta 1e-6 \\
      --grid actor_step=0.1,0.5 --grid lambda_=0,0.8 --seeds 10 --episodes 500 --out sweeps/x
    privrl sweep pgc --env CartPole --epsilon 2 --agents 5000 --grid rate=0.05,0.1 --out sweeps/y
    """
    words = {k: v for k, v in locals().items() if k not in _SWEEP_OPTIONS}
    from privrl.core import checks, files
    from privrl.privacy import InputError
    from privrl.run import lessons, training
    from privrl.run.sweep import load_plan, sweep

    checks.count("top", top)
    plans = {"seeds": seeds, "replicas": replicas, "segment": segment, "curves": curves}
    if resume:
        said = {**plans, "grid": tuple(grid or ()), "set": tuple(option or ())}
        refuse_options({**words, "env": None}, out, config, said)
        assert out is not None
        folder = out
        plan, about = load_plan(folder)
        lessons.refuse_modules(about, env, folder)
        lesson = lessons.Lesson.of(about)
    else:
        if learner is None and config is None:
            known = ", or ".join(lessons.SWEPT)
            raise InputError(f"Say what is to learn: privrl sweep {known}.")
        folder = out or Path("sweeps") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
        lesson, plan = lessons.planned({**words, **plans}, grid or (), option or (), config)
    workers = "local" if ray is None else "ray" if ray == "local" else ray
    program = lesson.program(tuple(plan.grid))
    with (
        nullcontext() if resume else files.create_folder(folder),
        progress(None) as advance,
        training.on_interrupt() as stop,
    ):
        found = sweep(
            program,
            plan,
            folder,
            about=lesson.to_dict(),
            go_on=resume,
            workers=workers,
            progress=advance,
            stop=stop,
        )
    if not found.is_finished:
        how_far = f"{found.chunks:,} of {plan.chunks:,} chunks"
        exit_stopped(how_far, f"sweep {lesson.learner}", folder, lesson.env)
    best = found.best(top)
    if as_json:
        listed = [one.to_dict() for one in best]
        say_json({"plan": plan.to_dict(), "best": listed, "results": str(found.results)})
        return
    say(
        *_result_lines(plan, best, lesson.counted), f"All runs are in {shell_quote(found.results)}."
    )


_SWEEP_OPTIONS = (
    *("grid", "option", "seeds", "replicas", "segment", "curves", "config", "ray", "out", "top"),
    *("resume", "as_json"),
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
