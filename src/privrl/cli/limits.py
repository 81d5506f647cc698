"""`privrl limits`: what no private learner can do."""

from typing import Any

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer
from privrl.core.errors import InputError
from privrl.core.spec import REQUIRED, option


class Options(CommandSpec):
    """The best that any private learner can do when it may face one of several tasks.

    \b
    privrl limits --epsilon 0.9 --delta 1e-4 --tasks 16
    privrl limits --epsilon 0.9 --delta 1e-4 --distance 0.05 --radius 0.01
    """

    epsilon: float = option("What is promised.", REQUIRED)
    delta: float = option("The delta it is promised at.", 0.0)
    tasks: int = option("How many tasks it may be.", 2)
    distance: float | None = option("How far apart the tasks are, if above the radius.")
    radius: float | None = option("How far apart neighbours may be, with --distance.")

    def run(self) -> None:
        from privrl.audit import limits
        from privrl.privacy import Budget

        if (self.distance is None) != (self.radius is None):
            raise InputError("--distance and --radius belong together.")
        promised = Budget(self.epsilon, self.delta)
        found: dict[str, Any] = {"tasks": self.tasks, **vars(promised)}
        figures = f"epsilon {promised.epsilon:g} at delta {promised.delta:g}"
        lines = [f"One of {self.tasks} tasks, under {figures}."]
        if self.distance is not None and self.radius is not None:
            steps = limits.steps_between(self.distance, self.radius)
            promised = limits.group_privacy(promised, steps)
            found |= {"steps": steps, "group": [promised.epsilon, promised.delta]}
            lines.append(
                f"They are {steps} steps between neighbours apart, which makes it "
                f"epsilon {promised.epsilon:g} at delta {promised.delta:.3g}."
            )
        found["accuracy"] = best = limits.best_accuracy(self.tasks, promised)
        answer(found, *lines, f"No private learner is right with a probability above {best:.4f}.")
