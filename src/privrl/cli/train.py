"""`privrl train`: a command for each learner, which has options of its own."""

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from privrl.cli.common import exit_stopped, progress, refuse_options
from privrl.cli.derived import command, function
from privrl.cli.printing import say, say_json, shell_quote
from privrl.run.specs import LEARNERS, RunOptions, spec_of
from privrl.run.specs.base import OPTIONAL

if TYPE_CHECKING:
    from privrl.run.runners import FinishedRun


class _Learners(TyperGroup):
    """The learners, by name; whoever names none, or another, is told which there are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wants_help = any(one in ctx.help_option_names for one in args)
        # A shell that completes asks about half a command.
        if not (wants_help or ctx.resilient_parsing) and (not args or args[0].startswith("-")):
            from privrl.privacy import InputError

            first, *others = LEARNERS
            listed = ", or ".join([f"privrl train {first}", *others])
            raise InputError(f"Say what is to learn: {listed}.")
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        return list(LEARNERS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        task, every = spec_of(cmd_name), RunOptions.options()
        shared = [one for name, one in every.items() if name in task.RUN or name not in OPTIONAL]
        declared = [*task.all_options().values(), *shared]
        return command(cmd_name, function(task.__doc__, declared, partial(train, cmd_name)))


train_app = typer.Typer(cls=_Learners, rich_markup_mode=None)


@train_app.callback()
def _train() -> None:
    """Learn a policy with differential privacy: say which learner."""


def train(learner: str, options: dict[str, Any]) -> None:
    """Play what a learner's command was told, and print what came of it."""
    from privrl.core import files
    from privrl.run import runners, training

    about: dict[str, Any] = {name: options.get(name) for name in RunOptions.options()}
    words = {k: v for k, v in options.items() if k not in about} | {"learner": learner}
    if "table" in words:
        words["table"] = tuple(words["table"] or ()) or None
    out, config, logs = about["out"], about["config"], about["logs"]
    if about["resume"]:
        others = {name: about[name] for name in ("ledger", "name", "logs", "seed", "dry_run")}
        refuse_options({**words, "env": None}, out, config, others)
        folder = out
    else:
        folder = out or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    formats = None if logs is None else [one.strip() for one in logs.split(",")]
    if about["dry_run"]:
        tried = runners.dry_run_in(
            runners.Runner.of(words, config),
            folder,
            ledger=about["ledger"],
            name=about["name"],
            formats=formats,
            seed=about["seed"],
        )
        if about["json"]:
            say_json(tried.to_dict())
        else:
            say(*tried.lines())
        return
    try:
        with progress(None) as advance, training.on_interrupt() as stop:
            if about["resume"]:
                found = runners.resume_in(folder, env=words.get("env"), progress=advance, stop=stop)
            else:
                runner: runners.Runner = runners.Runner.of(words, config)
                with files.create_folder(folder):
                    found = runners.train_in(
                        runner,
                        folder,
                        ledger=about["ledger"],
                        name=about["name"],
                        seed=about["seed"],
                        formats=formats,
                        progress=advance,
                        stop=stop,
                    )
    except runners.ResultNotSaved as lost:
        # It has been paid for: what cannot be kept is at least shown.
        say_json(lost.learned.to_dict())
        raise
    if found.learned is None:
        how_far = f"{found.done:,} of {found.planned:,} {found.runner.progress_unit}"
        exit_stopped(
            how_far, f"train {found.runner.learner}", folder, getattr(found.runner, "env", None)
        )
    listed = {key: str(path) for key, path in found.written.items()}
    if about["json"]:
        say_json({**found.learned.to_dict(), "files": listed})
        return
    say(*_result_lines(found), f"The result is {shell_quote(listed['result'])}.")


def _result_lines(found: "FinishedRun") -> list[str]:
    """What was learned, and what it promises, for a screen of 79 columns."""
    import textwrap

    from privrl.core.text import printable
    from privrl.privacy import Certificate, Claim

    learned = found.learned
    assert learned is not None
    lines, more = found.runner.summarize(learned)
    promise = learned.promise
    if isinstance(promise, Certificate):
        note = f"Certified: epsilon {promise.epsilon:.4g} at delta {promise.delta:g}, "
        note += f"{promise.unit}, {promise.relation}."
    elif isinstance(promise, Claim):
        note = f"Claimed, not certified: epsilon {promise.epsilon:.4g} at delta "
        note += f"{promise.delta:g} for {promise.scope}."
        if promise.certified is not None:
            note += f" Certified for the same noise: epsilon {promise.certified.epsilon:.4g}."
    else:
        note = promise
    notes = [note]
    certified = promise.certified if isinstance(promise, Claim) else promise
    if isinstance(certified, Certificate) and learned.settings.get("seed") is not None:
        notes.append("The seed makes the noise no secret: for experiments, it protects nobody.")
    for one in [*notes, *more]:
        # Further in where a note goes on, so that no name in it begins what looks like another.
        lines += textwrap.wrap(printable(one), 78, initial_indent="  ", subsequent_indent=" " * 4)
    return lines
