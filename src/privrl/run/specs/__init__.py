"""The options of every learner, each declared once: type, default and one line of help.

The command line, configuration files, the JSON in a run's folder and the tables in the docs are
derived from these classes. Nothing here imports JAX, so that help comes at once.
"""

from pkgutil import resolve_name
from typing import Any

from privrl.core.errors import InputError
from privrl.run.specs.base import Task

LEARNERS = {
    "actor-critic": "privrl.run.specs.environments:ActorCriticTask",
    "functional-q": "privrl.run.specs.environments:FunctionalQTask",
    "logged-q": "privrl.run.specs.table:LoggedQTask",
    "prospect": "privrl.run.specs.environments:ProspectTask",
    "pgc": "privrl.run.specs.environments:PGCTask",
    "ono2020-pgc": "privrl.papers.ono2020.spec:PGCTask",
    "seo2020-actor-critic": "privrl.papers.seo2020.spec:ActorCriticTask",
    "wang2019-functional-q": "privrl.papers.wang2019.spec:FunctionalQTask",
    "rajabi2022-prospect": "privrl.papers.rajabi2022.spec:ProspectTask",
}
"""Where the options of each learner are: module and class. Papers have theirs in their folders."""


def spec_of(learner: Any) -> type[Task]:
    """The spec of a learner, by the learner's name."""
    if not isinstance(learner, str):
        raise InputError(f"must be text, not {learner!r}.", field="learner")
    if learner not in LEARNERS:
        raise InputError(
            f"There is no learner {learner!r}: what can be trained is {', '.join(LEARNERS)}."
        )
    found: type[Task] = resolve_name(LEARNERS[learner])
    return found
