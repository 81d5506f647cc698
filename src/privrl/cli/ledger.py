"""`privrl ledger`: what a population of people has paid."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from privrl.cli.common import Json
from privrl.cli.option_names import Command
from privrl.cli.printing import answer, say, say_json, shell_quote

ledger_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

LedgerPath = Annotated[Path, Argument(help="The ledger's file.", metavar="LEDGER")]


@ledger_app.command("create", cls=Command)
def ledger_create(
    path: LedgerPath,
    population: Annotated[str, Option(help="Whose data it is about.")],
    unit: Annotated[str, Option(help="Who is protected.")] = "user",
    relation: Annotated[str, Option(help="What a neighbour is.")] = "replace-one",
    people: Annotated[int | None, Option(help="How many there are, if public.")] = None,
    epsilon: Annotated[float | None, Option(help="The most that may be spent.")] = None,
    delta: Annotated[float | None, Option(help="The delta of that limit.")] = None,
    filter: Annotated[
        str | None, Option(help="How the limit is kept: renyi, gaussian or sum.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new ledger, with a limit if --epsilon is given."""
    from privrl.privacy import Budget, InputError, Ledger, Relation, Unit

    if epsilon is None and delta is not None:
        raise InputError("A limit needs --epsilon as well as --delta.")
    with Ledger.create(
        path,
        population,
        unit=Unit.parse(unit),
        relation=Relation.parse(relation),
        people=people,
        limit=None if epsilon is None else Budget(epsilon, delta or 0.0),
        filter=filter,
    ) as ledger:
        about = ledger.about.to_dict()
    answer(as_json, about, f"Made the ledger {shell_quote(path)} of {population!r}.")


@ledger_app.command("show", cls=Command)
def ledger_show(
    path: LedgerPath,
    delta: Annotated[
        float | None, Option(help="The delta to state epsilon at; the limit's by default.")
    ] = None,
    newest: Annotated[int, Option("--runs", help="How many runs to list; the newest.", min=0)] = 20,
    as_json: Json = False,
) -> None:
    """What was spent, by whom, and what is left."""
    from privrl.privacy import InputError, Ledger

    with Ledger.open(path) as ledger:
        limit = ledger.about.filter
        if limit is None and delta is None:
            raise InputError("This ledger has no limit: say --delta to state epsilon at.")
        stated_at = delta if delta is not None else (limit.limit.delta if limit else 0.0)
        told = ledger.summary(stated_at, newest)
        about = ledger.about
    if as_json:
        shown = {**about.to_dict(), "delta": stated_at, "epsilon": told.epsilon}
        shown |= {"left": told.left, "runs": told.newest, "runs_in_all": told.runs}
        return say_json({**shown, "entries": told.entries})

    def format_epsilon(epsilon: float | None) -> str:
        return "more than can be stated" if epsilon is None else f"{epsilon:.4g}"

    say(f"{about.population!r}: {about.unit}, {about.relation}")
    if limit is not None:
        at = f"epsilon {limit.limit.epsilon:g} at delta {limit.limit.delta:g}"
        say(f"  limit       {at}, kept by the {limit.kind} filter; {told.left:.1%} is left")
    else:
        say("  limit       none")
    say(f"  entries     {told.entries} in {told.runs} {'run' if told.runs == 1 else 'runs'}")
    if told.epsilon is None:
        say(f"  paid        more than any epsilon that can be stated at delta {stated_at:g}")
    else:
        paid = f"epsilon {format_epsilon(told.epsilon)} at delta {stated_at:g}"
        say(f"  paid        {paid}, had it all been planned")
    for run, spent in told.newest.items():
        say(f"    {run!r:<30} {format_epsilon(spent)}")
    if len(told.newest) < told.runs:
        say(f"    and {told.runs - len(told.newest)} earlier runs: say --runs {told.runs}")


@ledger_app.command("check", cls=Command)
def ledger_check(
    path: LedgerPath,
    certificate: Annotated[
        list[Path] | None,
        Option(help="A certificate that must have been issued on the way; or several."),
    ] = None,
    anchor: Annotated[
        Path | None,
        Option(help="A file of earlier states, kept elsewhere; this state is added to it."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check the chain of entries and recompute what each cost.

    That a ledger was restored from a backup shows only against what was kept elsewhere: with
    --certificate or --anchor. Then the exit code is 1.
    """
    from privrl.privacy import Certificate, Ledger

    issued = {str(one): Certificate.read(one) for one in certificate or ()}
    with Ledger.open(path) as ledger:
        checked = ledger.check()
        held = {name: ledger.is_consistent_with(one) for name, one in issued.items()}
        # A state that does not go on from what was kept is not one to keep.
        anchored = None
        if anchor is not None:
            anchored = all(held.values()) and ledger.check_anchor(anchor)
    lost = [name for name, found in held.items() if not found]
    if anchored is False and not lost:
        lost = [str(anchor)]
    told = {"checked": True, "entries": checked, "rolled_back": bool(lost)}
    lines = [f"{shell_quote(path)}: {checked} entries, unbroken, each at the cost of its events."]
    for name in [one for one in held if one not in lost]:
        lines.append(f"It went through the state that {shell_quote(name)} was issued at.")
    if anchored:
        lines.append(
            f"It went through all states in {shell_quote(anchor)}, which has this one now."
        )
    answer(as_json, {**told, "certificates": held, "anchor": anchored}, *lines)
    if lost:
        say(
            f"privrl: {shell_quote(path)} has not the entries that {shell_quote(lost[0])} "
            "attests: it was "
            "restored from a backup or rolled back, or is another ledger, and more may have been "
            "spent than it says.",
            aside=True,
        )
        raise typer.Exit(1)


@ledger_app.command("export", cls=Command)
def ledger_export(path: LedgerPath) -> None:
    """Print the whole ledger as JSON."""
    from privrl.privacy import Ledger

    with Ledger.open(path) as ledger:
        say_json(ledger.to_dict(), indent=2)


@ledger_app.command("import", cls=Command)
def ledger_import(
    path: LedgerPath,
    source: Annotated[Path, Argument(help="A ledger as JSON.", metavar="JSON")],
    as_json: Json = False,
) -> None:
    """Make a ledger from its JSON form, if its chain is unbroken."""
    from privrl.core import files
    from privrl.privacy import Ledger

    with Ledger.from_dict(files.load_json(source), path) as ledger:
        entries = len(ledger)
    answer(as_json, {"entries": entries}, f"Made {shell_quote(path)} with {entries} entries.")
