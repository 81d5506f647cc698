"""How each learner is run, from its spec: by `privrl train`, `privrl sweep`, and from Python.

A `Runner` is a spec (`privrl.run.specs`) that knows its learner. `train_in` runs it in a folder,
`resume_in` goes on with one, `plan_sweep` makes a sweep of it. What learners have in common is in
`base`, `folder`, `playing` and `grids`; a module for each learner has its agent, how it is run, and
which files it leaves. The runners of papers' algorithms are in their folders.
"""

from privrl.run.runners.base import SWEPT, Runner
from privrl.run.runners.folder import (
    RUN,
    FinishedRun,
    ResultNotSaved,
    dry_run_in,
    resume_in,
    train_in,
)
from privrl.run.runners.grids import parse_grid, plan_sweep
from privrl.run.specs import LEARNERS
from privrl.run.specs.base import refuse_modules

__all__ = [
    "LEARNERS",
    "RUN",
    "SWEPT",
    "FinishedRun",
    "ResultNotSaved",
    "Runner",
    "dry_run_in",
    "parse_grid",
    "plan_sweep",
    "refuse_modules",
    "resume_in",
    "train_in",
]
