"""`privrl train --dry-run`: what a run would release, pay and write; nothing is played or paid."""

from pathlib import Path

from privrl.privacy.mechanisms import GaussianMechanism
from privrl.run.dry_run import DryRun, Release, check_ledger
from privrl.run.runners.base import Preview


def dry_run(
    preview: Preview,
    files: tuple[str, ...],
    folder: str | Path,
    ledger: str | Path | None,
    run: str,
) -> DryRun:
    """What a run in `folder` would do; refused where its ledger would refuse to pay."""
    budget, paid = preview.budget, None
    if ledger is not None and budget is not None:
        # Gaussian noise of the whole budget, which is what the learners' own come to.
        event = GaussianMechanism.from_budget(1.0, budget, preview.relation).event
        paid = check_ledger(
            ledger,
            run,
            [event],
            delta=budget.delta,
            unit=preview.unit,
            relation=preview.relation,
            reward_radius=preview.reward_radius,
        )
    epsilon, delta = (None, None) if budget is None else (budget.epsilon, budget.delta)
    release = Release(preview.released, epsilon, delta, noise=preview.noise)
    notes = (preview.note,) if preview.note else ()
    return DryRun(
        (release,), budget, preview.unit, preview.relation, str(folder), files, paid, notes
    )
