"""`privrl train`: a command for each learner, which has options of its own."""

from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from privrl.cli.common import exit_stopped, progress, refuse_options
from privrl.cli.printing import say, say_json, shell_quote

if TYPE_CHECKING:
    from privrl.run.lessons import Taught

# Options that are about the run, and not about what is learned in it.
_RUN_OPTIONS = ("config", "ledger", "name", "out", "logs", "seed", "resume", "as_json")


class _Learners(TyperGroup):
    """The learners, by name; whoever names none, or another, is told which there are."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        wants_help = any(one in ctx.help_option_names for one in args)
        if not wants_help and (not args or args[0].startswith("-")):
            from privrl.privacy import InputError

            first, *others = self.commands
            listed = ", or ".join([f"privrl train {first}", *others])
            raise InputError(f"Say what is to learn: {listed}.")
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            from privrl.privacy import InputError

            raise InputError(
                f"There is no learner {cmd_name!r}: what can be trained is "
                f"{', '.join(self.commands)}."
            )
        return found


train_app = typer.Typer(cls=_Learners, rich_markup_mode=None)


def train(learner: str, options: dict[str, Any]) -> None:
    """Play what a learner's command was told, and print what came of it."""
    from privrl.core import files
    from privrl.run import lessons, training

    words = {k: v for k, v in options.items() if k not in _RUN_OPTIONS} | {"learner": learner}
    about: dict[str, Any] = {name: options.get(name) for name in _RUN_OPTIONS}
    out, config, logs = about["out"], about["config"], about["logs"]
    if about["resume"]:
        others = {name: about[name] for name in ("ledger", "name", "logs", "seed")}
        refuse_options({**words, "env": None}, out, config, others)
        folder = out
    else:
        folder = out or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    formats = None if logs is None else [one.strip() for one in logs.split(",")]
    try:
        with progress(None) as advance, training.on_interrupt() as stop:
            if about["resume"]:
                found = lessons.teach_on(folder, env=words.get("env"), progress=advance, stop=stop)
            else:
                lesson: lessons.Lesson = lessons.Lesson.of(words, config)
                with files.create_folder(folder):
                    found = lessons.teach(
                        lesson,
                        folder,
                        ledger=about["ledger"],
                        name=about["name"],
                        seed=about["seed"],
                        formats=formats,
                        progress=advance,
                        stop=stop,
                    )
    except lessons.NotKept as lost:
        # It has been paid for: what cannot be kept is at least shown.
        say_json(lost.learned.to_dict())
        raise
    if found.learned is None:
        how_far = f"{found.done:,} of {found.planned:,} {found.lesson.counted}"
        exit_stopped(how_far, f"train {found.lesson.learner}", folder, found.lesson.env)
    listed = {key: str(path) for key, path in found.written.items()}
    if about["as_json"]:
        say_json({**found.learned.to_dict(), "files": listed})
        return
    say(*_result_lines(found), f"The result is {shell_quote(listed['result'])}.")


def _result_lines(found: "Taught") -> list[str]:
    """What was learned, and what it promises, for a screen of 79 columns."""
    import textwrap

    from privrl.core.text import printable
    from privrl.privacy import Certificate, Claim

    learned = found.learned
    assert learned is not None
    lines, more = found.lesson.told(learned)
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
