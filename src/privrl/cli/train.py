"""`privrl train`: a command for each learner, which has options of its own."""

from functools import partial
from typing import Any

import typer
from typer.core import TyperGroup

from privrl.cli.common import exit_stopped, folder_to_resume, new_folder, watching
from privrl.cli.derived import command, function
from privrl.cli.printing import answer, say_json, shell_quote
from privrl.core.errors import InputError
from privrl.run.specs import LEARNERS, spec_of
from privrl.run.specs.base import OPTIONAL, RunOptions


class _Learners(TyperGroup):
    """The learners, by name; whoever names none, or another, is told which there are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wants_help = any(one in ctx.help_option_names for one in args)
        # A shell that completes asks about half a command.
        if not (wants_help or ctx.resilient_parsing) and (not args or args[0].startswith("-")):
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


train_app = typer.Typer(
    cls=_Learners, rich_markup_mode=None, help="Learn a policy privately: say which learner."
)


def train(learner: str, given: dict[str, Any]) -> None:
    """Play what a learner's command was told, and print what came of it."""
    from privrl.core import files
    from privrl.run import runners

    folder = folder_to_resume(given) if given["resume"] else given["out"] or new_folder("runs")
    run = RunOptions(**{name: given.pop(name) for name in RunOptions.options() if name in given})
    words = given | {"learner": learner}
    formats = None if run.logs is None else [one.strip() for one in run.logs.split(",")]
    about: dict[str, Any] = {"ledger": run.ledger, "name": run.name, "seed": run.seed}
    about["formats"] = formats
    if run.dry_run:
        tried = runners.dry_run_in(runners.Runner.of(words, run.config), folder, **about)
        return answer(tried.to_dict(), *tried.lines())
    try:
        with watching() as watch:
            if run.resume:
                found = runners.resume_in(folder, env=words.get("env"), **watch)
            else:
                runner: runners.Runner = runners.Runner.of(words, run.config)
                with files.create_folder(folder):
                    found = runners.train_in(runner, folder, **about, **watch)
    except runners.ResultNotSaved as lost:
        # It has been paid for: what cannot be kept is at least shown.
        say_json(lost.learned.to_dict())
        raise
    if found.learned is None:
        how_far = f"{found.done:,} of {found.planned:,} {found.runner.progress_unit}"
        exit_stopped(how_far, "train", found.runner, folder)
    listed = {key: str(path) for key, path in found.written.items()}
    shown = [*found.lines(), f"The result is {shell_quote(listed['result'])}."]
    answer({**found.learned.to_dict(), "files": listed}, *shown)
