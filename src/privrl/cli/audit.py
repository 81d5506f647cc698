"""`privrl audit`: attacks on what is promised."""

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from privrl.cli.common import Json, progress
from privrl.cli.printing import answer, say

if TYPE_CHECKING:
    from privrl.audit import Audit, CanaryAudit


def audit(
    targets: Annotated[
        list[str] | None,
        Argument(
            metavar="[TARGET]...",
            help="Names from --list, or yours as module:name.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, Option("--all", help="Attack all that ships.")] = False,
    mutants: Annotated[
        bool,
        Option("--mutants", help="Attack mutants of what ships, which must be caught."),
    ] = False,
    names: Annotated[bool, Option("--list", help="Print what can be attacked.")] = False,
    runs: Annotated[
        int | None, Option(help="Runs in each world.", show_default="the target's own")
    ] = None,
    confidence: Annotated[float, Option(help="How sure the bounds are.")] = 0.95,
    false_alarm: Annotated[
        float,
        Option(help="How often a promise that is kept is called refuted, at most."),
    ] = 1e-6,
    jobs: Annotated[int, Option(help="Processes that attack targets side by side.")] = 1,
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
    from privrl.audit.text import audit_lines
    from privrl.privacy import InputError

    listed = load()
    if names:
        return answer(as_json, list(listed), *listed)
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
    told = {
        "audits": [item.to_dict() for item in found],
        "mutants": [item.to_dict() for item in mutated],
        "errors": failed,
        "failed": bad,
    }
    answer(as_json, told, *audit_lines(found, mutated, false_alarm))
    for sentence in failed:  # what the others came to is shown all the same
        say(f"privrl: {sentence}", aside=True)
    if bad:
        raise typer.Exit(1)


def _run_audits(
    names: list[str], jobs: int, given: dict[str, Any]
) -> "Iterator[Audit | CanaryAudit | str]":
    """What attacks on these targets find, in their order, or why there can be none."""
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

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
