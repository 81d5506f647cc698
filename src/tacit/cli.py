"""The command line: `tacit evaluate`, `report`, `train`, `sweep`, `demo`, `budget`, `ledger`,
`verify`, `audit`, `limits`.

Every command takes `--json`. Bad input is answered by one sentence on standard error and exit code
2, and leaves nothing half written. Each command imports what it needs, so that help comes at once.
"""

import io
import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from tacit import __version__

if TYPE_CHECKING:
    from tacit.control.actor_critic import Learned
    from tacit.privacy import Claim, Event, Relation
    from tacit.privacy.audit import Audit, CanaryAudit
    from tacit.privacy.audit.sabotage import Bite
    from tacit.run.evaluation import Progress
    from tacit.run.study import Study
    from tacit.run.sweep import Plan, Standing

# The base of typer's own usage errors, which moved between packages over its versions.
_UsageError = typer.BadParameter.__mro__[2]

app = typer.Typer(
    name="tacit",
    help="Differentially private reinforcement learning.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Names in any script, on terminals that know only some.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _warn
            code = app(args=arguments, standalone_mode=False)
    except typer.Abort:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OverflowError, MemoryError, RecursionError):
        return _refuse("These numbers are too large, or too deeply nested, to compute with.")
    except Exception as error:  # sorted below; what is not for people keeps its traceback
        from tacit.privacy.errors import TacitError

        if isinstance(error, _UsageError) and hasattr(error, "format_message"):
            return _refuse(error.format_message())
        if isinstance(error, TacitError):
            return _refuse(str(error))
        raise
    return code if isinstance(code, int) else 0


def _refuse(message: str) -> int:
    print(f"tacit: {message}", file=sys.stderr)
    return 2


def _warn(message: Warning | str, *_: Any, **__: Any) -> None:
    print(f"tacit: warning: {message}", file=sys.stderr)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"tacit {__version__}")
        raise typer.Exit()


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Differentially private reinforcement learning."""


# --- budget -------------------------------------------------------------------------------------


@app.command()
def budget(
    what: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[EVENT]... | [NAME=VALUE]...",
            help="Events as in Python, a ? for the number to find; with --claim, its parameters.",
            show_default=False,
        ),
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="How much may be spent.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta it is stated at.")] = None,
    relation: Annotated[str, typer.Option(help="What a neighbour is.")] = "replace-one",
    unit: Annotated[
        str | None, typer.Option(help="Who is protected, for --save.", show_default=False)
    ] = None,
    claim: Annotated[
        str | None, typer.Option(help="A paper's formula beside its certificate; or all.")
    ] = None,
    reward_radius: Annotated[
        float | None, typer.Option(help="For reward-radius and --save.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write a certificate of this plan.")] = None,
    as_json: Json = False,
) -> None:
    """Epsilon from noise, noise from epsilon, a paper's claim beside its certificate.

    \b
    tacit budget 'Gaussian(1, 1)' --delta 1e-5
    tacit budget 'Gaussian(?, 1)' --epsilon 1 --delta 1e-5
    tacit budget 'Repeated(PoissonSampled(Gaussian(1, 1), 0.01), 100)' --delta 1e-5
    tacit budget --claim xie2019 sigma=1 trajectories=1000 iterations=1000
    """
    from tacit.privacy import Budget, InputError, Relation, accounting, expression

    given = what or []
    if claim is not None:
        if save is not None:
            raise InputError("A claim is never a certificate, so there is nothing to --save.")
        if claim == "all":
            if given or epsilon is not None or delta is not None:
                raise InputError("--claim all shows every claim as printed: it takes no numbers.")
            _show_claims(as_json)
            return
        _show_claim(claim, given, epsilon, delta, as_json)
        return
    if not given:
        raise InputError("Say what was released, for example: tacit budget 'Gaussian(1, 1)'.")
    wanted = Relation.parse(relation)
    if epsilon is not None:
        Budget(epsilon, delta or 0.0)  # refuses what no budget can be
    if save is None and (unit is not None or reward_radius is not None):
        raise InputError("--unit and --reward-radius belong to --save.")
    unknown: float | None = None
    if any(expression.has_unknown(text) for text in given):
        if epsilon is None:
            raise InputError("A ? needs --epsilon: how much may be spent?")
        build, whole = expression.parse_with_unknown(given)
        unknown = accounting.calibrate(build, Budget(epsilon, delta or 0.0), wanted, whole=whole)
        events = build(unknown)
    else:
        events = [expression.parse(text) for text in given]
    if epsilon is not None and delta is None and unknown is None:
        spent = accounting.delta(events, epsilon, wanted)
        _show({"epsilon": epsilon, "delta": spent, "relation": wanted.value}, events, as_json)
        return
    found = accounting.account(events, delta or 0.0, wanted)
    answer: dict[str, Any] = {} if unknown is None else {"?": unknown}
    answer |= {"epsilon": found.epsilon, "delta": found.delta, "relation": wanted.value}
    if epsilon is not None and unknown is None:
        answer["within budget"] = found.epsilon <= epsilon
    answer["accountant"] = found.method
    if save is not None:
        _save(events, found.delta, wanted, unit, reward_radius, save)
        answer["certificate"] = str(save)
    _show(answer, events, as_json)


def _show(answer: dict[str, Any], events: "list[Event]", as_json: bool) -> None:
    if as_json:
        print(json.dumps({**answer, "events": [event.to_dict() for event in events]}))
        return
    for event in events:
        print(event)
    for name, value in answer.items():
        print(f"  {name:<14}{_number(value)}")


def _number(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _save(
    events: "list[Event]",
    delta: float,
    relation: "Relation",
    unit: str | None,
    reward_radius: float | None,
    path: Path,
) -> None:
    from tacit.privacy import Certificate, InputError, Relation, Release, Unit, files

    if unit is None:
        if relation not in (Relation.REWARD_RADIUS, Relation.LOCAL):
            raise InputError("--save needs --unit: trajectory, user or agent?")
        unit = "agent" if relation is Relation.LOCAL else "reward-function"
    certificate = Certificate.issue(
        events,
        delta,
        unit=Unit.parse(unit),
        relation=relation,
        release=Release.EACH_REPORT if relation is Relation.LOCAL else Release.EVERY_ITERATE,
        reward_radius=reward_radius,
    )
    files.write(path, certificate.to_json().encode(), secret=False)


def _show_claim(
    name: str, given: list[str], epsilon: float | None, delta: float | None, as_json: bool
) -> None:
    from tacit.privacy import InputError, claims

    parameters: dict[str, float | int | bool] = {}
    for key, value in map(_parameter, given):
        if key in parameters:
            raise InputError(f"{key} was given twice.")
        parameters[key] = value
    for key, option in (("epsilon", epsilon), ("delta", delta)):
        if option is not None:
            parameters[key] = option
    made = claims.claim(name, parameters)
    if as_json:
        print(json.dumps(made.to_dict()))
    else:
        _print_claim(made)


def _show_claims(as_json: bool) -> None:
    """What the five papers claim, beside what the same noise is worth."""
    from tacit.privacy import claims

    made = {name: formula() for name, formula in claims.CLAIMS.items()}
    if as_json:
        print(json.dumps({name: item.to_dict() for name, item in made.items()}))
        return
    print("Privacy as claimed by five papers, and as certified for the same noise.")
    print()
    print(f"{'claim':<18}{'for':<24}{'delta':>8}{'claimed':>10}{'certified':>11}")
    for name, item in made.items():
        scope = item.scope.split(",")[0]
        certified = f"{item.certified.epsilon:.4g}" if item.certified else "none"
        delta = f"{item.delta:.0e}" if item.delta else "0"
        print(f"{name:<18}{scope:<24}{delta:>8}{item.epsilon:>10.4g}{certified:>11}")
    print()
    print("Why they differ: tacit budget --claim xie2019 (or another name above).")


def _parameter(text: str) -> tuple[str, float | int | bool]:
    from tacit.privacy import InputError

    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"With --claim, give parameters like sigma=1, not {text!r}.")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    raise InputError(f"{name} must be a number, not {value!r}.")


def _print_claim(made: "Claim") -> None:
    import textwrap

    certified = made.certified
    rows = [("", "claimed", "certified")]
    rows.append(
        ("epsilon", f"{made.epsilon:.4g}", f"{certified.epsilon:.4g}" if certified else "-")
    )
    rows.append(("delta", f"{made.delta:.3g}", f"{certified.delta:.3g}" if certified else "-"))
    print(textwrap.fill(f"{made.source}, for {made.scope}", 78))
    print("  " + ", ".join(f"{k} {v:.6g}" for k, v in made.details.items()))
    for head, left, right in rows:
        print(f"  {head:<9}{left:>12}{right:>12}")
    why = f"Not a certificate: {made.why_not}"
    covers = (
        f"The certified figure: {made.covers}" if certified else f"None certified: {made.covers}"
    )
    for text in (why, covers):
        print(textwrap.fill(text, 78, initial_indent="  ", subsequent_indent="  "))


# --- verify -------------------------------------------------------------------------------------


@app.command()
def verify(
    certificate: Annotated[Path, typer.Argument(help="A certificate, as written by tacit.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse noise that is not secret.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Recompute a certificate with two accountants that share no code."""
    from tacit.privacy import Certificate

    read = Certificate.read(certificate)
    found = read.verify(strict=strict)
    if as_json:
        print(json.dumps({"verified": True, **found.to_dict(), "certificate": read.to_dict()}))
        return
    print(read.card())
    print()
    print(f"Verified: recomputed {found.recomputed:.6g}; the second accountant says")
    print(f"between {found.floor:.6g} and {found.ceiling:.6g}.")


# --- ledger -------------------------------------------------------------------------------------

ledger_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)
app.add_typer(ledger_app, name="ledger", help="What a population of people has paid.")

LedgerPath = Annotated[Path, typer.Argument(help="The ledger's file.", metavar="LEDGER")]


@ledger_app.command("create")
def ledger_create(
    path: LedgerPath,
    population: Annotated[str, typer.Option(help="Whose data it is about.")],
    unit: Annotated[str, typer.Option(help="Who is protected.")] = "user",
    relation: Annotated[str, typer.Option(help="What a neighbour is.")] = "replace-one",
    people: Annotated[int | None, typer.Option(help="How many there are, if public.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The most that may be spent.")] = None,
    delta: Annotated[float | None, typer.Option(help="The delta of that limit.")] = None,
    filter: Annotated[
        str | None, typer.Option(help="How the limit is kept: renyi, gaussian or sum.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a new ledger, with a limit if --epsilon is given."""
    from tacit.privacy import Budget, InputError, Ledger, Relation, Unit

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
    print(json.dumps(about) if as_json else f"Made the ledger {path} of {population!r}.")


@ledger_app.command("show")
def ledger_show(
    path: LedgerPath,
    delta: Annotated[
        float | None, typer.Option(help="The delta to state epsilon at; the limit's by default.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What was spent, by whom, and what is left."""
    from tacit.privacy import InputError, Ledger

    with Ledger.open(path) as ledger:
        entries, left, limit = ledger.entries(), ledger.left(), ledger.about.filter
        if limit is None and delta is None:
            raise InputError("This ledger has no limit: say --delta to state epsilon at.")
        stated_at = delta if delta is not None else (limit.limit.delta if limit else 0.0)
        runs = list(dict.fromkeys(entry.run for entry in entries))
        paid = {run: ledger.paid(stated_at, run).epsilon for run in runs}
        total = ledger.paid(stated_at).epsilon if entries else 0.0
        about = ledger.about
    if as_json:
        answer = {**about.to_dict(), "delta": stated_at, "epsilon": total, "left": left}
        print(json.dumps({**answer, "runs": paid, "entries": len(entries)}))
        return
    print(f"{about.population}: {about.unit}, {about.relation}")
    if limit is not None:
        at = f"epsilon {limit.limit.epsilon:g} at delta {limit.limit.delta:g}"
        print(f"  limit       {at}, kept by the {limit.kind} filter; {left:.1%} is left")
    else:
        print("  limit       none")
    print(f"  entries     {len(entries)} in {len(runs)} runs")
    print(f"  paid        epsilon {total:.4g} at delta {stated_at:g}, had it all been planned")
    for run, spent in paid.items():
        print(f"    {run:<30} {spent:.4g}")


@ledger_app.command("check")
def ledger_check(path: LedgerPath, as_json: Json = False) -> None:
    """Check the chain of entries and recompute what each cost."""
    from tacit.privacy import Ledger

    with Ledger.open(path) as ledger:
        checked = ledger.check()
    if as_json:
        print(json.dumps({"checked": True, "entries": checked}))
    else:
        print(f"{path}: {checked} entries, unbroken, each at the cost of its events.")


@ledger_app.command("export")
def ledger_export(path: LedgerPath) -> None:
    """Print the whole ledger as JSON."""
    from tacit.privacy import Ledger

    with Ledger.open(path) as ledger:
        print(json.dumps(ledger.to_dict(), indent=2))


@ledger_app.command("import")
def ledger_import(
    path: LedgerPath,
    source: Annotated[Path, typer.Argument(help="A ledger as JSON.", metavar="JSON")],
    as_json: Json = False,
) -> None:
    """Make a ledger from its JSON form, if its chain is unbroken."""
    from tacit.privacy import InputError, Ledger

    try:
        data = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{str(source)!r} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError):
        raise InputError(f"{str(source)!r} is not JSON.") from None
    with Ledger.from_dict(data, path) as ledger:
        entries = len(ledger.entries())
    print(json.dumps({"entries": entries}) if as_json else f"Made {path} with {entries} entries.")


# --- audit --------------------------------------------------------------------------------------


@app.command()
def audit(
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TARGET]...",
            help="Names from --list, or yours as module:name.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Attack all that ships.")] = False,
    teeth: Annotated[
        bool, typer.Option("--teeth", help="Attack sabotaged twins, which must be caught.")
    ] = False,
    names: Annotated[bool, typer.Option("--list", help="Print what can be attacked.")] = False,
    runs: Annotated[
        int | None, typer.Option(help="Runs in each world.", show_default="the target's own")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the bounds are.")] = 0.95,
    as_json: Json = False,
) -> None:
    """Attack mechanisms and whole fits, and bound their epsilon from below.

    Leaves with exit code 1 if a promise is refuted, or if a sabotaged twin goes unnoticed.

    \b
    tacit audit --all --teeth
    tacit audit gaussian laplace --runs 1000000
    tacit audit my_module:my_target
    """
    # Importing them puts their targets into the catalogue.
    import tacit.control.audits
    import tacit.evaluation.audits  # noqa: F401
    from tacit.privacy import InputError
    from tacit.privacy.audit import sabotage
    from tacit.privacy.audit.targets import TARGETS, find

    if names:
        print(json.dumps(list(TARGETS)) if as_json else "\n".join(TARGETS))
        return
    chosen = {name: find(name) for name in [*(targets or []), *(TARGETS if everything else [])]}
    if not chosen and not teeth:
        raise InputError("Say what to attack: --all, --teeth, or names from --list.")
    twins = [(twin, name) for twin in sabotage.TWINS for name in twin.targets] if teeth else []
    twins = [(twin, name) for twin, name in twins if not chosen or name in chosen]
    if teeth and not twins:
        raise InputError(f"There is no sabotaged twin of {', '.join(chosen)}.")
    with _progress(len(chosen) + len(twins)) as advance:
        found = []
        for name, build in chosen.items():
            advance(name)
            found.append(sabotage.attacked(build(), runs=runs, confidence=confidence))
        bitten = []
        for twin, name in twins:
            advance(f"{name}, {twin.name}")
            bitten.append(sabotage.bite(twin, name, runs=runs, confidence=confidence))
    bad = sum(item.broken for item in found) + sum(not item.caught for item in bitten)
    if as_json:
        print(
            json.dumps(
                {
                    "audits": [item.to_dict() for item in found],
                    "twins": [item.to_dict() for item in bitten],
                    "failed": bad,
                }
            )
        )
    else:
        _show_audits(found, bitten)
    if bad:
        raise typer.Exit(1)


def _show_audits(found: "list[Audit | CanaryAudit]", bitten: "list[Bite]") -> None:
    wide = max(len(item.target) for item in [*found, *(twin.found for twin in bitten)]) + 1
    if found:
        print(f"{'target':<{wide}}{'delta':>7}{'promised':>9}{'shown':>7}{'shaped':>8}  verdict")
        for item in found:
            delta = f"{item.delta:.0e}" if item.delta else "0"
            verdict = "BROKEN" if item.broken else "holds"
            print(
                f"{item.target:<{wide}}{delta:>7}{item.certified:>9.4g}{item.epsilon:>7.3g}"
                f"{_shaped(item):>8}  {verdict}{_failed(item)}"
            )
    if bitten:
        if found:
            print()
        print(f"{'sabotaged':<{wide}}{'promised':>9}{'shown':>7}{'shaped':>8}  verdict")
        for name in dict.fromkeys(twin.twin for twin in bitten):
            print(f"{name}:")
            for twin in (item for item in bitten if item.twin == name):
                verdict = "caught" if twin.caught else "NOT CAUGHT"
                print(
                    f"{' ' + twin.found.target:<{wide}}{twin.found.certified:>9.4g}"
                    f"{twin.found.epsilon:>7.3g}{_shaped(twin.found):>8}  {verdict}"
                )
    sure = f"{100 * (found or [twin.found for twin in bitten])[0].confidence:.6g} %"
    print()
    print(f"shown: no smaller epsilon is true, with confidence {sure}.")
    print("shaped: the same if the privacy loss is Gaussian in shape, an assumption.")
    print("verdict: whether the attack contradicts delta(epsilon) at any epsilon; it")
    print("errs once in a million audits, whatever the confidence.")


def _failed(item: "Audit | CanaryAudit") -> str:
    """That runs ended in errors, if they did."""
    failures: tuple[float, float] = getattr(item, "failures", (0.0, 0.0))
    return f" ({max(failures):.1%} of runs failed)" if any(failures) else ""


def _shaped(item: "Audit | CanaryAudit") -> str:
    fit = getattr(item, "gaussian", None)
    return f"{fit.epsilon:.3g}" if fit is not None and item.delta else "-"


@contextmanager
def _progress(steps: int | None) -> Iterator["Progress"]:
    """A bar with the time left on a terminal; nothing elsewhere. Call it as each step begins.

    Without a number of steps the bar moves when it is told which share of everything is done.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        BarColumn(20),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=steps)
        begun = 0

        def advance(what: str, share: float | None = None) -> None:
            nonlocal begun
            if share is not None:
                bar.update(task, total=1.0, completed=share, description=what)
            elif steps is None:
                bar.update(task, total=None, description=what)
            else:
                bar.update(task, completed=begun, description=what)
                begun += 1

        yield advance


@app.command()
def limits(
    epsilon: Annotated[float, typer.Option(help="What is promised.")],
    delta: Annotated[float, typer.Option(help="The delta it is promised at.")] = 0.0,
    tasks: Annotated[int, typer.Option(help="How many tasks it may be.")] = 2,
    distance: Annotated[
        float | None, typer.Option(help="How far apart the tasks are, if above the radius.")
    ] = None,
    radius: Annotated[
        float | None, typer.Option(help="How far apart neighbours may be, with --distance.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The best that any private learner can do when it may face one of several tasks.

    \b
    tacit limits --epsilon 0.9 --delta 1e-4 --tasks 16
    tacit limits --epsilon 0.9 --delta 1e-4 --distance 0.05 --radius 0.01
    """
    from tacit.privacy import Budget, InputError
    from tacit.privacy.audit import limits as ceilings

    if (distance is None) != (radius is None):
        raise InputError("--distance and --radius belong together.")
    promised = Budget(epsilon, delta)
    answer: dict[str, Any] = {"tasks": tasks, "epsilon": epsilon, "delta": delta}
    if distance is not None and radius is not None:
        steps = ceilings.steps_between(distance, radius)
        promised = ceilings.group(promised, steps)
        answer |= {"steps": steps, "group": [promised.epsilon, promised.delta]}
    answer["accuracy"] = ceilings.best_accuracy(tasks, promised)
    if as_json:
        print(json.dumps(answer))
        return
    print(f"One of {tasks} tasks, under epsilon {epsilon:g} at delta {delta:g}.")
    if "steps" in answer:
        print(
            f"They are {answer['steps']} steps between neighbours apart, which makes it "
            f"epsilon {promised.epsilon:g} at delta {promised.delta:.3g}."
        )
    print(f"No private learner is right with a probability above {answer['accuracy']:.4f}.")


# --- evaluate -----------------------------------------------------------------------------------


@app.command()
def evaluate(
    table: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TABLE]...",
            help="Parquet or CSV files, a pattern, or a folder: a row for each step.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[str | None, typer.Option(help="The policy to judge: a policy.json.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML or JSON file with options of the question.")
    ] = None,
    trajectory: Annotated[
        str | None, typer.Option(help="Column: which trajectory a step is of.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Column: whose trajectory it is.")] = None,
    time: Annotated[str | None, typer.Option(help="Column: the order of steps.")] = None,
    state: Annotated[str | None, typer.Option(help="Columns, by commas: the situation.")] = None,
    action: Annotated[str | None, typer.Option(help="Column: the decision taken.")] = None,
    reward: Annotated[str | None, typer.Option(help="Column: the reward that followed.")] = None,
    behavior_prob: Annotated[
        str | None, typer.Option(help="Column: how likely the decision was.")
    ] = None,
    behavior: Annotated[
        str | None, typer.Option(help="The policy that was followed, instead: a policy.json.")
    ] = None,
    target_prob: Annotated[
        str | None, typer.Option(help="Column, instead of --policy: its probabilities.")
    ] = None,
    terminated: Annotated[
        str | None, typer.Option(help="Column, true or false: did it really end?")
    ] = None,
    truncated: Annotated[
        str | None, typer.Option(help="Column, true or false: was it cut off?")
    ] = None,
    next_state: Annotated[
        str | None, typer.Option(help="Columns: the situation after the step.")
    ] = None,
    states: Annotated[str | None, typer.Option(help="What states can be, by commas.")] = None,
    actions: Annotated[
        str | None, typer.Option(help="What actions can be, in the policy's order.")
    ] = None,
    num_states: Annotated[int | None, typer.Option(help="How many states there can be.")] = None,
    num_actions: Annotated[int | None, typer.Option(help="How many actions there can be.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="How much may be given away.")] = None,
    delta: Annotated[float | None, typer.Option(help="How likely the promise may fail.")] = None,
    public: Annotated[
        bool, typer.Option("--public", help="The data is nobody's: no privacy.")
    ] = False,
    reward_range: Annotated[
        str | None, typer.Option(help="What any reward could be, such as 0,1.")
    ] = None,
    return_range: Annotated[
        str | None, typer.Option(help="What any sum of rewards could be, if that is less.")
    ] = None,
    horizon: Annotated[int | None, typer.Option(help="How many steps count.")] = None,
    gamma: Annotated[float | None, typer.Option(help="The discount factor; 1 if not said.")] = None,
    weight_cap: Annotated[
        float | None, typer.Option(help="How much a trajectory may count.")
    ] = None,
    largest_ratio: Annotated[
        float | None, typer.Option(help="What the policies' ratio can be at most.")
    ] = None,
    level: Annotated[float | None, typer.Option(help="Of the intervals; 0.95 if not said.")] = None,
    state_range: Annotated[
        str | None, typer.Option(help="What states could be, such as 30:200,40:140.")
    ] = None,
    features: Annotated[
        str | None, typer.Option(help="polynomial:2, fourier:3 or table, for values of states.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="Known start states, such as 90:70,80:75.")
    ] = None,
    estimators: Annotated[
        str | None, typer.Option(help="value, gtd, lstd, with shares: value:3,gtd:1.")
    ] = None,
    return_bound: Annotated[
        float | None, typer.Option(help="How large a return could be, for gtd.")
    ] = None,
    grid: Annotated[
        bool, typer.Option("--grid", help="Integer noise: nothing assumed of arithmetic.")
    ] = False,
    nulls: Annotated[str | None, typer.Option(help="refuse or carry.")] = None,
    sort: Annotated[bool, typer.Option("--sort", help="Sort the rows first.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream", help="Read in parts, however large the table.")
    ] = False,
    ray: Annotated[
        str | None, typer.Option(help="Gather on Ray: local, or a cluster's address.")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of these people, which pays.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name in the ledger.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default runs/<date and time>.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="The report's title.")] = None,
    target_name: Annotated[str | None, typer.Option(help="What to call the policy.")] = None,
    behavior_name: Annotated[str | None, typer.Option(help="What to call the old way.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible noise: for experiments, protects nobody.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The value of a policy from a table of logged decisions, privately.

    Say what you have, and follow the answers: what is missing is asked for. The run's folder gets
    study.json, certificate.json and report.html.

    \b
    tacit evaluate stays.parquet --policy policy.json --epsilon 1 --delta 1e-6 \\
      --trajectory stay_id --user patient --time t --state hr,map --action dose \\
      --reward r --behavior-prob p --reward-range 0,1 --horizon 20 --weight-cap 10
    """
    words = {k: v for k, v in locals().items() if k not in _NOT_WORDS}
    words["table"] = tuple(table or ())
    _evaluate(words, config, ledger, name, out, seed, ray, as_json)


_NOT_WORDS = ("config", "ledger", "name", "out", "seed", "ray", "as_json")


def _evaluate(
    words: dict[str, Any],
    config: Path | None = None,
    ledger: Path | None = None,
    name: str | None = None,
    out: Path | None = None,
    seed: int | None = None,
    ray: str | None = None,
    as_json: bool = False,
) -> None:
    """Answer, and write the run's folder."""
    from datetime import datetime

    from tacit.privacy import InputError, Ledger, files
    from tacit.report.folder import write_run
    from tacit.run.request import Request

    asked = Request.of(words, config)
    if name is not None and ledger is None:
        raise InputError("--name is the run's name in a ledger: say which with --ledger.")
    folder = out or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    if (folder / "study.json").exists():
        raise InputError(f"{folder} holds a run already: say another folder with --out.")
    options: dict[str, Any] = {} if ray is None else {"gather": _on_ray(ray)}
    with (
        files.folder(folder),
        nullcontext() if ledger is None else Ledger.open(ledger) as opened,
        _progress(None) as advance,
    ):
        run = None if opened is None else name or folder.name
        study = asked.study(ledger=opened, run=run, seed=seed, progress=advance, **options)
    try:
        written = write_run(study, folder)
    except InputError:
        # It has been paid for: what cannot be kept is at least shown.
        print(json.dumps(study.to_dict()) if as_json else _study_words(study))
        raise
    if as_json:
        print(json.dumps({**study.to_dict(), "files": {k: str(v) for k, v in written.items()}}))
        return
    print(_study_words(study))
    print(f"The report is {written['report']}.")


def _on_ray(address: str) -> Any:
    from functools import partial

    from tacit.run.cluster import gather

    return partial(gather, workers="ray" if address == "local" else address)


def _study_words(study: "Study") -> str:
    """The figures, and what they promise, for a screen of 79 columns."""
    import textwrap

    main = study.main
    level = f"{100 * main.interval.level:g} %" if main.interval else ""
    lines = textwrap.wrap(study.title, 78)
    lines.append(f"  {'':<22}{'value':>10}{'from':>10}{'to':>10}   {level}")
    names = {
        "target": study.target_name,
        "behavior": study.behavior_name,
        "difference": "difference",
    }
    for key, label in names.items():
        found = main.details.get(key)
        if found is None and key == "target" and main.interval is not None:
            found = {"estimate": main.estimate, "interval": main.interval.to_dict()}
        if found is not None:
            ends = [found["interval"][end] for end in ("low", "high")]
            lines.append(_row(label, found["estimate"], *ends))
    others = [one for one in study.results[1:] if one.estimate is not None]
    if others:
        lines.append(f"  {study.target_name[:40]}, by other estimators:")
    for one in others:
        held = one.interval
        if held is None:
            apart = main.interval is not None and not (
                main.interval.low <= (one.estimate or 0.0) <= main.interval.high
            )
            remark = "  no interval, and outside of the one above" if apart else "  no interval"
            lines.append(_row(one.method, one.estimate) + remark)
        else:
            lines.append(_row(one.method, one.estimate, held.low, held.high))
    notes = list(study.notes)
    if study.certificate is None:
        notes.insert(0, "Not private: the data was declared public.")
    else:
        made = study.certificate
        promise = f"Certified: epsilon {made.epsilon:.4g} at delta {made.delta:g}, {made.unit}, "
        notes.insert(0, promise + f"{made.relation}.")
    for note in notes:
        lines += textwrap.wrap(note, 78, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _row(label: str, *numbers: float | None) -> str:
    shown = ("-" if x is None else format(x, ".4g") for x in numbers)
    return f"  {label[:21]:<22}" + "".join(f" {text:>9}" for text in shown)


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(help="A run's folder, with its study.json.")],
    out: Annotated[
        Path | None, typer.Option(help="Where to write; by default report.html in the folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a run again."""
    from tacit.report import write
    from tacit.run.study import Study

    target = out or run_folder / "report.html"
    write(Study.load(run_folder / "study.json"), target)
    print(json.dumps({"report": str(target)}) if as_json else f"The report is {target}.")


# --- train --------------------------------------------------------------------------------------

Learner = Annotated[str | None, typer.Argument(help="What learns: actor-critic.")]
EnvName = Annotated[
    str | None, typer.Option(help="Where to learn: Taxi-v4, MDP100, an id of Gymnasium's, ...")
]
Mode = Annotated[str | None, typer.Option(help="certified (as if not said), or paper.")]
Variant = Annotated[
    str | None, typer.Option(help="both, actor or critic: what is given; none: no noise at all.")
]
People = Annotated[int | None, typer.Option(help="How many people play an episode each.")]
Episodes = Annotated[int | None, typer.Option(help="The same, where nobody plays.")]
FeaturesOf = Annotated[
    str | None, typer.Option(help="Of states: table, polynomial:2, fourier:3 or network:16.")
]
Config = Annotated[Path | None, typer.Option(help="A TOML or JSON file with these options.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with what is in --out; it knows its options.")
]


@app.command("train")
def train_command(
    learner: Learner = None,
    env: EnvName = None,
    mode: Mode = None,
    variant: Variant = None,
    people: People = None,
    episodes: Episodes = None,
    epsilon: Annotated[
        float | None, typer.Option(help="How much may be given away about each person.")
    ] = None,
    delta: Annotated[float | None, typer.Option(help="How likely the promise may fail.")] = None,
    public: Annotated[
        bool, typer.Option("--public", help="Nobody is there to protect: returns may be shown.")
    ] = False,
    features: FeaturesOf = None,
    critic_features: Annotated[
        str | None, typer.Option(help="The same for the critic, if others.")
    ] = None,
    state_range: Annotated[
        str | None, typer.Option(help="What states could be, such as -2:2,0:10.")
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="How many people act by the same policy.")
    ] = None,
    gamma: Annotated[float | None, typer.Option(help="The discount factor.")] = None,
    lambda_: Annotated[
        float | None, typer.Option("--lambda", help="How far eligibility traces reach, 0 to 1.")
    ] = None,
    actor_step: Annotated[float | None, typer.Option(help="Step size of the policy.")] = None,
    critic_step: Annotated[float | None, typer.Option(help="Step size of the values.")] = None,
    clip: Annotated[
        str | None, typer.Option(help="The most a person's increment counts; in paper mode median.")
    ] = None,
    max_steps: Annotated[int | None, typer.Option(help="Cuts episodes off.")] = None,
    noise: Annotated[str | None, typer.Option(help="auto, independent or correlated.")] = None,
    optimiser: Annotated[str | None, typer.Option(help="sgd or adam.")] = None,
    schedule: Annotated[str | None, typer.Option(help="Step sizes: constant or linear.")] = None,
    average: Annotated[
        float | None, typer.Option(help="The last share of the batches to average over.")
    ] = None,
    critic_weight: Annotated[
        float | None, typer.Option(help="How much of the clip is for the critic.")
    ] = None,
    entropy: Annotated[float | None, typer.Option(help="How much entropy counts.")] = None,
    return_range: Annotated[
        str | None, typer.Option(help="What a return could be, such as -200,20.")
    ] = None,
    curve: Annotated[
        str | None, typer.Option(help="hidden, or paid: returns of batches, with noise.")
    ] = None,
    curve_weight: Annotated[
        float | None, typer.Option(help="Which part of the clip a paid curve has.")
    ] = None,
    correction_step: Annotated[
        float | None, typer.Option(help="Paper mode: step size of the second weights.")
    ] = None,
    acting: Annotated[
        str | None, typer.Option(help="Paper mode: epsilon-greedy or softmax.")
    ] = None,
    exploration: Annotated[
        float | None, typer.Option(help="Paper mode: how often any action is taken.")
    ] = None,
    correction: Annotated[str | None, typer.Option(help="Paper mode: next or printed.")] = None,
    config: Config = None,
    ledger: Annotated[
        Path | None, typer.Option(help="The ledger of these people, which pays.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The run's name in the ledger.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The run's folder; by default runs/<date and time>.")
    ] = None,
    logs: Annotated[
        str | None, typer.Option(help="csv, jsonl, tensorboard: where returns may be shown.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Reproducible: for experiments, protects nobody.")
    ] = None,
    resume: Resume = False,
    as_json: Json = False,
) -> None:
    """Learn a policy from people's episodes, privately.

    Say what you have, and follow the answers: what is missing is asked for. Ctrl-C stops after the
    current segment; --resume goes on, and with a seed ends bit for bit as if nothing had been.

    \b
    tacit train actor-critic --env Taxi-v4 --people 20000 --epsilon 10 --delta 1e-6 \\
      --out runs/taxi
    tacit train actor-critic --out runs/taxi --resume
    tacit train actor-critic --env Taxi-v4 --mode paper --episodes 500 --epsilon 10 \\
      --delta 1e-6 --public --seed 0
    """
    words = {k: v for k, v in locals().items() if k not in _NOT_LESSON}
    from datetime import datetime

    from tacit.privacy import files
    from tacit.run import lessons, training

    if resume:
        others = {"ledger": ledger, "name": name, "logs": logs, "seed": seed}
        _refuse_words(words, out, config, others)
        assert out is not None
        folder = out
    else:
        _need_learner(learner, config, "train")
        folder = out or Path("runs") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
    formats = None if logs is None else [one.strip() for one in logs.split(",")]
    try:
        with _progress(None) as advance, training.on_interrupt() as stop:
            if resume:
                found = lessons.teach_on(folder, progress=advance, stop=stop)
            else:
                lesson = lessons.Lesson.of(words, config)
                with files.folder(folder):
                    found = lessons.teach(
                        lesson,
                        folder,
                        ledger=ledger,
                        name=name,
                        seed=seed,
                        formats=formats,
                        progress=advance,
                        stop=stop,
                    )
    except lessons.NotKept as lost:
        # It has been paid for: what cannot be kept is at least shown.
        print(json.dumps(lost.learned.to_dict()))
        raise
    if found.learned is None:
        _say_stopped(
            f"{found.done:,} of {found.planned:,} episodes", "train", found.lesson.learner, folder
        )
    listed = {key: str(path) for key, path in found.written.items()}
    if as_json:
        print(json.dumps({**found.learned.to_dict(), "files": listed}))
        return
    print(_learned_words(found.learned, found.lesson.public))
    print(f"The result is {listed['result']}.")


_NOT_LESSON = ("config", "ledger", "name", "out", "logs", "seed", "resume", "as_json")


def _refuse_words(
    words: dict[str, Any], out: Path | None, config: Path | None, others: dict[str, Any]
) -> None:
    """A run that is resumed takes its options from its folder."""
    from tacit.privacy import InputError

    if out is None:
        raise InputError("Say with --out which folder to resume.")
    said = {**words, "config": config, **others}
    for key, value in said.items():
        # By identity: 0 is something to say, and equals False.
        if key != "learner" and value is not None and value is not False and value != ():
            option = key.rstrip("_").replace("_", "-")
            raise InputError(f"--resume takes all options from {out}: leave out --{option}.")


def _need_learner(learner: str | None, config: Path | None, command: str) -> None:
    from tacit.privacy import InputError

    if learner is None and config is None:
        raise InputError(f"Say what is to learn: tacit {command} actor-critic.")


def _say_stopped(how_far: str, command: str, learner: str, folder: Path) -> NoReturn:
    print(f"Stopped after {how_far}; what was done is kept. To go on:", file=sys.stderr)
    print(f"  tacit {command} {learner} --out {shlex.quote(str(folder))} --resume", file=sys.stderr)
    raise typer.Exit(130)


def _learned_words(learned: "Learned", public: bool) -> str:
    """What was learned, and what it promises, for a screen of 79 columns."""
    import textwrap

    import numpy as np

    from tacit.privacy import Certificate, Claim

    settings, promise = learned.settings, learned.promise
    lines = [f"{settings['env']}: an actor-critic from {settings['people']:,} episodes."]
    if learned.curve is not None and learned.curve.size:
        tenth = max(1, learned.curve.size // 10)
        # Rewards may add up to infinities.
        with np.errstate(invalid="ignore", over="ignore"):
            first, last = np.mean(learned.curve[:tenth]), np.mean(learned.curve[-tenth:])
        lines.append(f"  mean return of the first tenth {first:.4g}, of the last {last:.4g}")
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
    if isinstance(promise, Certificate) and settings.get("seed") is not None:
        notes.append("The seed makes the noise no secret: for experiments, it protects nobody.")
    if isinstance(promise, Certificate) and public:
        notes.append("The returns were declared public: no promise is made about them.")
    if learned.actor is None or learned.critic is None:
        notes.append(f"Only the {learned.variant} is given away.")
    for one in notes:
        lines += textwrap.wrap(one, 78, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


# --- sweep --------------------------------------------------------------------------------------


@app.command("sweep")
def sweep_command(
    learner: Learner = None,
    env: EnvName = None,
    mode: Mode = None,
    variant: Variant = None,
    people: People = None,
    episodes: Episodes = None,
    epsilon: Annotated[float | None, typer.Option(help="Of each lane; or sweep sigma.")] = None,
    delta: Annotated[float | None, typer.Option(help="How likely the promise may fail.")] = None,
    features: FeaturesOf = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(help="A setting and its values: actor_step=0.1,0.5. Repeat it."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--set", help="Any other option of tacit train: acting=softmax. Repeat it."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(help="How many runs of each combination; 10 if not said.")
    ] = None,
    lanes: Annotated[
        int | None, typer.Option(help="Runs that are played side by side; 64 if not said.")
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
    tacit sweep actor-critic --env MDP100 --mode paper --epsilon 10 --delta 1e-6 \\
      --grid actor_step=0.1,0.5 --grid lambda_=0,0.8 --seeds 10 --episodes 500 --out sweeps/x
    """
    words = {k: v for k, v in locals().items() if k not in _NOT_SWEPT}
    from datetime import datetime

    from tacit.privacy import checks, files
    from tacit.run import lessons, training
    from tacit.run.sweep import load_plan, sweep

    checks.count("top", top)
    plans = {"seeds": seeds, "lanes": lanes, "segment": segment, "curves": curves}
    if resume:
        said = {**plans, "grid": tuple(grid or ()), "set": tuple(option or ())}
        _refuse_words(words, out, config, said)
        assert out is not None
        folder = out
        plan, about = load_plan(folder)
        lesson = lessons.Lesson.of(about)
    else:
        _need_learner(learner, config, "sweep")
        folder = out or Path("sweeps") / datetime.now().strftime("%Y-%m-%d-%H%M%S")
        lesson, plan = lessons.planned({**words, **plans}, grid or (), option or (), config)
    workers = "local" if ray is None else "ray" if ray == "local" else ray
    program = lesson.program(tuple(plan.grid))
    with (
        nullcontext() if resume else files.folder(folder),
        _progress(None) as advance,
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
    if not found.finished:
        _say_stopped(f"{found.chunks:,} of {plan.chunks:,} chunks", "sweep", lesson.learner, folder)
    best = found.best(top)
    if as_json:
        listed = [one.to_dict() for one in best]
        print(json.dumps({"plan": plan.to_dict(), "best": listed, "results": str(found.results)}))
        return
    print(_swept_words(plan, best))
    print(f"All runs are in {found.results}.")


_NOT_SWEPT = (
    *("grid", "option", "seeds", "lanes", "segment", "curves", "config", "ray", "out", "top"),
    *("resume", "as_json"),
)


def _swept_words(plan: "Plan", best: "list[Standing]") -> str:
    """The best combinations, for a screen."""
    lines = [
        f"{plan.combinations:,} combinations on {plan.seeds} seeds, {plan.episodes:,} episodes.",
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
    return "\n".join(lines)


# --- demo ---------------------------------------------------------------------------------------


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to put the data and the run.")] = Path(
        "tacit-demo"
    ),
    people: Annotated[int, typer.Option(help="How many patients to make up.")] = 6000,
    seed: Annotated[int, typer.Option(help="Which patients; the noise is always fresh.")] = 0,
    as_json: Json = False,
) -> None:
    """A made-up HIV clinic: is the new protocol better, and what does it say of each patient?"""
    from tacit.run import clinic

    with _progress(None) as advance:
        advance("making up a clinic")
        words = clinic.write(out, people, seed)
    _evaluate(words, out=_unused(out / "run"), as_json=as_json)


def _unused(folder: Path) -> Path:
    """`folder`, or with a number behind if a run is in there."""
    tried, number = folder, 1
    while (tried / "study.json").exists():
        number += 1
        tried = folder.with_name(f"{folder.name}-{number}")
    return tried
