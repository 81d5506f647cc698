"""`privrl train --dry-run`: what a run would release, pay and write; nothing is played or paid."""

from pathlib import Path

from privrl.core.errors import InputError
from privrl.privacy.mechanisms import GaussianMechanism
from privrl.run.dry_run import DryRun, Release, check_folder, check_ledger
from privrl.run.runners.base import Preview


def dry_run(
    preview: Preview,
    files: tuple[str, ...],
    folder: str | Path,
    ledger: str | Path | None,
    run: str | None,
) -> DryRun:
    """What a run in `folder` would do; refused where the run would be, before anything is paid."""
    check_folder(folder)
    name = Path(folder).resolve().name if run is None else run
    budget, paid = preview.budget, None
    if ledger is not None:
        if budget is None:
            raise InputError("Without a certificate there is nothing to pay for: leave it out.")
        # Gaussian noise of the whole budget, which is what the learners' own come to.
        event = GaussianMechanism.from_budget(1.0, budget, preview.relation).event
        paid = check_ledger(
            ledger,
            name,
            [event],
            delta=budget.delta,
            unit=preview.unit,
            relation=preview.relation,
            reward_radius=preview.reward_radius,
        )
    shown = None if budget is None else budget.epsilon
    release = Release(preview.released, shown, None, preview.noise)
    notes = (preview.note,) if preview.note else ()
    return DryRun(
        (release,), budget, preview.unit, preview.relation, str(folder), files, paid, notes
    )
