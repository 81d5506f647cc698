"""All targets, by name: those in `privrl.papers.<paper>.targets`, as `TARGETS`."""

import difflib
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from privrl.core.errors import InputError
from privrl.papers.reproduce.target import Experiment, Target

PAPERS = ("seo2020", "xie2019", "rajabi2022", "ono2020", "wang2019")


@cache
def load() -> dict[str, Target]:
    """Every target of every paper, in their order."""
    modules = (f"privrl.papers.{paper}.targets" for paper in PAPERS)
    found: dict[str, Target] = {}
    for module in modules:
        if find_spec(module) is not None:
            found |= {one.name: one for one in import_module(module).TARGETS}
    return found


def find(names: Iterable[str]) -> list[Target]:
    """The targets that are meant: by name, by paper, or by "all", each once."""
    targets = load()
    chosen: dict[str, Target] = {}
    for name in names:
        own = {key: one for key, one in targets.items() if name in (key, one.paper, "all")}
        if not own:
            known = [*targets, *dict.fromkeys(one.paper for one in targets.values()), "all"]
            near = difflib.get_close_matches(name, known, 3, 0.5) or known[:3]
            raise InputError(
                f"There is no target {name!r}. Near are {', '.join(near)}: privrl reproduce --list "
                "has all."
            )
        chosen |= own
    return list(chosen.values())


def experiments(targets: Iterable[Target]) -> list[Experiment]:
    """The experiments behind targets, each once."""
    return list({one.experiment.name: one.experiment for one in targets}.values())


def sharing(experiment: Experiment, given: Iterable[Target] = ()) -> list[Target]:
    """All targets that an experiment is run for, those that were given among them."""
    listed = {one.name: one for one in (*load().values(), *given)}
    return [one for one in listed.values() if one.experiment.name == experiment.name]
