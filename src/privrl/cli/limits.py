"""`privrl limits`: what no private learner can do."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from privrl.cli.common import Json
from privrl.cli.printing import say, say_json

if TYPE_CHECKING:
    pass


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
    privrl limits --epsilon 0.9 --delta 1e-4 --tasks 16
    privrl limits --epsilon 0.9 --delta 1e-4 --distance 0.05 --radius 0.01
    """
    from privrl.audit import limits as ceilings
    from privrl.privacy import Budget, InputError

    if (distance is None) != (radius is None):
        raise InputError("--distance and --radius belong together.")
    promised = Budget(epsilon, delta)
    answer: dict[str, Any] = {"tasks": tasks, "epsilon": epsilon, "delta": delta}
    if distance is not None and radius is not None:
        steps = ceilings.steps_between(distance, radius)
        promised = ceilings.group_privacy(promised, steps)
        answer |= {"steps": steps, "group": [promised.epsilon, promised.delta]}
    answer["accuracy"] = ceilings.best_accuracy(tasks, promised)
    if as_json:
        say_json(answer)
        return
    say(f"One of {tasks} tasks, under epsilon {epsilon:g} at delta {delta:g}.")
    if "steps" in answer:
        say(
            f"They are {answer['steps']} steps between neighbours apart, which makes it "
            f"epsilon {promised.epsilon:g} at delta {promised.delta:.3g}."
        )
    say(f"No private learner is right with a probability above {answer['accuracy']:.4f}.")
