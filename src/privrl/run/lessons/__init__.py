"""From words to a learner: what `privrl train` and `privrl sweep` were told, and the run's folder.

A `Lesson` holds the words of the command line and of a configuration file, which use the same
names. `teach` plays it into a folder, `teach_on` goes on with one, `planned` makes a sweep of it.
What learners have in common is in `words`, `folder` and `grids`; what one of them has of its own is
in the module of its name: its options, its agent, how it is taught, and which files it leaves.
"""

from privrl.run.lessons.folder import RUN, NotKept, Taught, teach, teach_on
from privrl.run.lessons.grids import grid_of, planned
from privrl.run.lessons.words import SWEPT, Lesson
from privrl.run.specs import LEARNERS
from privrl.run.specs.base import refuse_modules

__all__ = [
    "LEARNERS",
    "RUN",
    "SWEPT",
    "Lesson",
    "NotKept",
    "Taught",
    "grid_of",
    "planned",
    "refuse_modules",
    "teach",
    "teach_on",
]
