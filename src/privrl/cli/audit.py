"""`privrl audit`: attacks on what is promised."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from multiprocessing import get_context
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privrl.cli.common import Json, progress
from privrl.cli.printing import say, say_json

if TYPE_CHECKING:
    from privrl.audit import Audit, CanaryAudit
    from privrl.audit.mutations import Finding


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
    mutants: Annotated[
        bool,
        typer.Option("--mutants", help="Attack mutants of what ships, which must be caught."),
    ] = False,
    names: Annotated[bool, typer.Option("--list", help="Print what can be attacked.")] = False,
    runs: Annotated[
        int | None, typer.Option(help="Runs in each world.", show_default="the target's own")
    ] = None,
    confidence: Annotated[float, typer.Option(help="How sure the bounds are.")] = 0.95,
    false_alarm: Annotated[
        float,
        typer.Option(help="How often a promise that is kept is called refuted, at most."),
    ] = 1e-6,
    jobs: Annotated[int, typer.Option(help="Processes that attack targets side by side.")] = 1,
    as_json: Json = False,
) -> None:
    """Attack mechanisms and whole fits, and bound their epsilon from below.

    Leaves with exit code 1 if a promise is refuted, if a mutant goes unnoticed, or if a target
    cannot be attacked.

    \b
    privrl audit --all --mutants
    privrl audit gaussian laplace --runs 1000000
    privrl audit my_module:my_target
    """
    from privrl.audit import mutations
    from privrl.audit.catalogue import find, load
    from privrl.audit.mutants import MUTANTS
    from privrl.privacy import InputError

    listed = load()
    if names:
        if as_json:
            say_json(list(listed))
        else:
            say(*listed)
        return
    chosen = {name: find(name) for name in [*(targets or []), *(listed if everything else [])]}
    if not chosen and not mutants:
        raise InputError("Say what to attack: --all, --mutants, or names from --list.")
    pairs = [(one, name) for one in MUTANTS.values() for name in one.targets] if mutants else []
    pairs = [(one, name) for one, name in pairs if not chosen or name in chosen]
    if mutants and not pairs:
        raise InputError(f"No mutant breaks the promise of {', '.join(chosen)}.")
    with progress(len(chosen) + len(pairs)) as advance:
        found, failed = [], []
        given: dict[str, Any] = {"confidence": confidence, "false_alarm": false_alarm, "runs": runs}
        if len(chosen) == 1 and not pairs:
            given["progress"] = advance
        for name, item in zip(chosen, _run_audits(list(chosen), jobs, given), strict=True):
            if "progress" not in given:
                advance(name)
            if isinstance(item, str):
                failed.append(f"{name} cannot be attacked: " + item)
            else:
                found.append(item)
        mutated = []
        for one, name in pairs:
            advance(f"{name}, {one.name}")
            mutated.append(mutations.audit_mutant(one, name, runs=runs, confidence=confidence))
    if failed and not found and not mutated:
        raise InputError(failed[0])
    bad = sum(item.is_refuted for item in found) + sum(not item.is_caught for item in mutated)
    bad += len(failed)
    if as_json:
        say_json(
            {
                "audits": [item.to_dict() for item in found],
                "mutants": [item.to_dict() for item in mutated],
                "errors": failed,
                "failed": bad,
            }
        )
    else:
        _show_audits(found, mutated, false_alarm)
    for sentence in failed:  # what the others came to is shown all the same
        say(f"privrl: {sentence}", aside=True)
    if bad:
        raise typer.Exit(1)


def _run_audits(
    names: list[str], jobs: int, given: dict[str, Any]
) -> "Iterator[Audit | CanaryAudit | str]":
    """What attacks on these targets find, in their order, or why there can be none."""
    from privrl.core import checks

    if checks.count("jobs", jobs) == 1 or len(names) == 1:
        yield from (_run_audit(name, given) for name in names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_run_audit, names, repeat(given))


def _run_audit(name: str, given: dict[str, Any]) -> "Audit | CanaryAudit | str":
    """One audit, in a process of its own perhaps, or the sentence that says why it cannot be."""
    from privrl.audit.catalogue import find
    from privrl.audit.mutations import audit_target
    from privrl.core.errors import PrivRLError

    try:
        return audit_target(find(name)(), **given)
    except PrivRLError as error:
        return error.text  # which keeps the options that it names


def _show_audits(
    found: "list[Audit | CanaryAudit]", mutated: "list[Finding]", false_alarm: float
) -> None:
    wide = max(len(item.target) for item in [*found, *(one.found for one in mutated)]) + 1
    if found:
        say(f"{'target':<{wide}}{'delta':>7}{'promised':>9}{'shown':>7}{'shaped':>8}")
        for item in found:
            delta = f"{item.delta:.0e}" if item.delta else "0"
            say(
                f"{item.target:<{wide}}{delta:>7}{item.certified:>9.4g}{item.epsilon:>7.3g}"
                f"{_gaussian_epsilon(item):>8}"
            )
            say(f"  {_verdict(item)}{_failure_note(item)}")
            if item.warning is not None:
                say(f"  warning: {item.warning}")
    if mutated:
        if found:
            say("")
        say(f"{'mutant':<{wide}}{'promised':>9}{'shown':>7}{'shaped':>8}  verdict")
        for name in dict.fromkeys(one.mutant for one in mutated):
            say(f"{name}:")
            for one in (item for item in mutated if item.mutant == name):
                verdict = "caught" if one.is_caught else "NOT CAUGHT"
                say(
                    f"{' ' + one.found.target:<{wide}}{one.found.certified:>9.4g}"
                    f"{one.found.epsilon:>7.3g}{_gaussian_epsilon(one.found):>8}  {verdict}"
                )
    sure = f"{100 * (found or [one.found for one in mutated])[0].confidence:.6g} %"
    say("")
    say(f"shown: no smaller epsilon is true, with confidence {sure}.")
    say("shaped: the same if the privacy loss is Gaussian in shape, an assumption.")
    say("verdict: whether the attack contradicts delta(epsilon) at any epsilon.")
    if found:
        say(f"A promise that is kept is called refuted at a rate of {false_alarm:g} at most. What")
        say("is not refuted is not proven: another attack might show more.")
    if any(item.verdict == "inconclusive" for item in found):
        say("inconclusive: so few runs could not have shown what is promised to be broken.")


def _verdict(item: "Audit | CanaryAudit") -> str:
    """The verdict, and what the audit could have shown."""
    if item.is_refuted:
        return "REFUTED"
    could = f"could have shown up to {item.could_show:.3g}"
    factor: float | None = getattr(item, "would_catch", None)
    if factor:
        could += f", or noise x {factor:.2g}"
    return f"{item.verdict.value} ({could})"


def _failure_note(item: "Audit | CanaryAudit") -> str:
    """That runs ended in errors, if they did."""
    failures: tuple[float, float] = getattr(item, "failures", (0.0, 0.0))
    return f" ({max(failures):.1%} of runs failed)" if any(failures) else ""


def _gaussian_epsilon(item: "Audit | CanaryAudit") -> str:
    fit = getattr(item, "gaussian", None)
    return f"{fit.epsilon:.3g}" if fit is not None and item.delta else "-"
