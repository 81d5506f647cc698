"""`privrl audit`: attacks on what is promised."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import typer

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer, say
from privrl.core.errors import InputError
from privrl.core.progress import progress_bar
from privrl.core.spec import option


class Options(CommandSpec):
    """Attack mechanisms and whole fits, and bound their epsilon from below.

    Leaves with exit code 1 if a promise is refuted, if a mutant goes unnoticed, or if a target
    cannot be attacked.

    \b
    privrl audit --all --mutants
    privrl audit gaussian laplace --runs 1000000
    privrl audit my_module:my_target
    """

    targets: tuple[str, ...] = option(
        "Names from --list, or yours as module:name.", (), argument="[TARGET]..."
    )
    all_: bool = option("Attack all that ships.", False)
    mutants: bool = option("Attack mutants of what ships, which must be caught.", False)
    list_: bool = option("Print what can be attacked.", False)
    runs: int | None = option("Runs in each world.", shown="the target's own")
    confidence: float = option("How sure the bounds are.", 0.95)
    false_alarm: float = option(
        "How often a promise that is kept is called refuted, at most.", 1e-6
    )
    jobs: int = option("Processes that attack targets side by side.", 1)

    def run(self) -> None:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        from privrl.audit.catalogue import find, load
        from privrl.audit.mutants import MUTANTS
        from privrl.audit.mutations import audit_mutant, try_audit
        from privrl.audit.text import audit_lines

        listed = load()
        if self.list_:
            return answer(list(listed), *listed)
        chosen = {name: find(name) for name in [*self.targets, *(listed if self.all_ else [])]}
        if not chosen and not self.mutants:
            raise InputError("Say what to attack: --all, --mutants, or names from --list.")
        broken = MUTANTS.values() if self.mutants else ()
        pairs = [(one, name) for one in broken for name in one.targets]
        pairs = [(one, name) for one, name in pairs if not chosen or name in chosen]
        if self.mutants and not pairs:
            raise InputError(f"No mutant breaks the promise of {', '.join(chosen)}.")
        given: dict[str, Any] = {"confidence": self.confidence, "runs": self.runs}
        jobs = self.jobs if len(chosen) > 1 else 1
        with (
            nullcontext() if jobs == 1 else ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
            progress_bar(len(chosen) + len(pairs)) as advance,
        ):
            found, failed = [], []
            alone: dict[str, Any] = {"progress": advance} if len(chosen) == 1 and not pairs else {}
            attack = partial(try_audit, **given, false_alarm=self.false_alarm, **alone)
            audits = map(attack, chosen) if pool is None else pool.map(attack, chosen)
            for name, item in zip(chosen, audits, strict=True):
                if not alone:
                    advance(name)
                if isinstance(item, str):
                    failed.append(f"{name} cannot be attacked: " + item)
                else:
                    found.append(item)
            mutated = []
            for one, name in pairs:
                advance(f"{name}, {one.name}")
                mutated.append(audit_mutant(one, name, **given))
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
        answer(told, *audit_lines(found, mutated, self.false_alarm))
        for sentence in failed:  # what the others came to is shown all the same
            say(f"privrl: {sentence}", aside=True)
        if bad:
            raise typer.Exit(1)
