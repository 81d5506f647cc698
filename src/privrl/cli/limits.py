"""`privrl limits`: what no private learner can do."""

from typing import Annotated, Any

from typer import Option

from privrl.cli.common import Json
from privrl.cli.printing import answer


def limits(
    epsilon: Annotated[float, Option(help="What is promised.")],
    delta: Annotated[float, Option(help="The delta it is promised at.")] = 0.0,
    tasks: Annotated[int, Option(help="How many tasks it may be.")] = 2,
    distance: Annotated[
        float | None, Option(help="How far apart the tasks are, if above the radius.")
    ] = None,
    radius: Annotated[
        float | None, Option(help="How far apart neighbours may be, with --distance.")
    ] = None,
    as_json: Json = False,
) -> None:
    """The best that any private learner can do when it may face one of several tasks.

    \b
    privrl limits --epsilon 0.9 --delta 1e-4 --tasks 16
    privrl limits --epsilon 0.9 --delta 1e-4 --distance 0.05 --radius 0.01
    """
    from privrl.audit import limits as ceilings
    from privrl.privacy import Budget, InputError

    if (distance is None) != (radius is None):
        raise InputError("--distance and --radius belong together.")
    promised = Budget(epsilon, delta)
    found: dict[str, Any] = {"tasks": tasks, "epsilon": epsilon, "delta": delta}
    if distance is not None and radius is not None:
        steps = ceilings.steps_between(distance, radius)
        promised = ceilings.group_privacy(promised, steps)
        found |= {"steps": steps, "group": [promised.epsilon, promised.delta]}
    found["accuracy"] = ceilings.best_accuracy(tasks, promised)
    lines = [f"One of {tasks} tasks, under epsilon {epsilon:g} at delta {delta:g}."]
    if "steps" in found:
        lines.append(
            f"They are {found['steps']} steps between neighbours apart, which makes it "
            f"epsilon {promised.epsilon:g} at delta {promised.delta:.3g}."
        )
    lines.append(f"No private learner is right with a probability above {found['accuracy']:.4f}.")
    answer(as_json, found, *lines)
