"""`privrl ledger`: what a population of people has paid."""

from pathlib import Path

import typer

from privrl.cli.derived import CommandSpec, spec_function
from privrl.cli.option_names import Command
from privrl.cli.printing import answer, say, say_json, shell_quote
from privrl.core.errors import InputError
from privrl.core.spec import REQUIRED, option


class _LedgerSpec(CommandSpec):
    path: Path = option("The ledger's file.", REQUIRED, argument="LEDGER")


class _Create(_LedgerSpec):
    """Make a new ledger, with a limit if --epsilon is given."""

    population: str = option("Whose data it is about.", REQUIRED)
    unit: str = option("Who is protected.", "user")
    relation: str = option("What a neighbour is.", "replace-one")
    people: int | None = option("How many there are, if public.")
    epsilon: float | None = option("The most that may be spent.")
    delta: float | None = option("The delta of that limit.")
    filter: str | None = option("How the limit is kept: renyi, gaussian or sum.")

    def run(self) -> None:
        from privrl.privacy import Budget, Ledger, Relation, Unit

        if self.epsilon is None and self.delta is not None:
            raise InputError("A limit needs --epsilon as well as --delta.")
        with Ledger.create(
            self.path,
            self.population,
            unit=Unit.parse(self.unit),
            relation=Relation.parse(self.relation),
            people=self.people,
            limit=None if self.epsilon is None else Budget(self.epsilon, self.delta or 0.0),
            filter=self.filter,
        ) as ledger:
            about = ledger.about.to_dict()
        answer(about, f"Made the ledger {shell_quote(self.path)} of {self.population!r}.")


class _Show(_LedgerSpec):
    """What was spent, by whom, and what is left."""

    delta: float | None = option("The delta to state epsilon at.", shown="the limit's")
    runs: int = option("How many of the newest runs to list.", 20, low=0)

    def run(self) -> None:
        from privrl.privacy import Ledger

        with Ledger.open(self.path) as ledger:
            about, delta = ledger.about, self.delta
            if delta is None and about.filter is not None:
                delta = about.filter.limit.delta
            if delta is None:
                raise InputError("This ledger has no limit: say --delta to state epsilon at.")
            told = ledger.summary(delta, self.runs)
        shown = {**about.to_dict(), "delta": delta, "epsilon": told.epsilon, "left": told.left}
        shown |= {"runs": told.newest, "runs_in_all": told.runs, "entries": told.entries}
        answer(shown, *told.lines(about, delta))


class _Check(_LedgerSpec):
    """Check the chain of entries and recompute what each cost.

    That a ledger was restored from a backup shows only against what was kept elsewhere: with
    --certificate or --anchor. Then the exit code is 1.
    """

    certificate: tuple[str, ...] = option(
        "A certificate that must have been issued on the way; or several.", (), repeated=True
    )
    anchor: Path | None = option(
        "A file of earlier states, kept elsewhere; this state is added to it."
    )

    def run(self) -> None:
        from privrl.privacy import Certificate, Ledger

        issued = {one: Certificate.read(one) for one in self.certificate}
        with Ledger.open(self.path) as ledger:
            checked = ledger.check()
            held = {name: ledger.is_consistent_with(one) for name, one in issued.items()}
            # A state that does not go on from what was kept is not one to keep.
            anchored = None
            if self.anchor is not None:
                anchored = all(held.values()) and ledger.check_anchor(self.anchor)
        lost = [name for name, found in held.items() if not found]
        if anchored is False and not lost:
            lost = [str(self.anchor)]
        told = {"checked": True, "entries": checked, "rolled_back": bool(lost)}
        file, anchor = shell_quote(self.path), shell_quote(self.anchor)
        lines = [f"{file}: {checked} entries, unbroken, each at the cost of its events."]
        kept = [shell_quote(name) for name in held if name not in lost]
        lines += [f"It went through the state that {name} was issued at." for name in kept]
        if anchored:
            lines.append(f"It went through all states in {anchor}, which has this one now.")
        answer({**told, "certificates": held, "anchor": anchored}, *lines)
        if lost:
            say(
                f"privrl: {file} has not the entries that {shell_quote(lost[0])} attests: it was "
                "restored from a backup or rolled back, or is another ledger, and more may have "
                "been spent than it says.",
                aside=True,
            )
            raise typer.Exit(1)


class _Export(_LedgerSpec):
    """Print the whole ledger as JSON."""

    def run(self) -> None:
        from privrl.privacy import Ledger

        with Ledger.open(self.path) as ledger:
            say_json(ledger.to_dict(), indent=2)


class _Import(_LedgerSpec):
    """Make a ledger from its JSON form, if its chain is unbroken."""

    source: Path = option("A ledger as JSON.", REQUIRED, argument="JSON")

    def run(self) -> None:
        from privrl.core import files
        from privrl.privacy import Ledger

        with Ledger.from_dict(files.load_json(self.source), self.path) as ledger:
            entries = len(ledger)
        answer({"entries": entries}, f"Made {shell_quote(self.path)} with {entries} entries.")


ledger_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="What a population of people has paid."
)
for _one in (_Create, _Show, _Check, _Export, _Import):
    ledger_app.command(_one.__name__[1:].lower(), cls=Command)(spec_function(_one))
