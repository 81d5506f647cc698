"""Ono and Takahashi (2020): locally private distributed reinforcement learning, PGC-A3C.

Read in this order: `algorithm` (Algorithms 1 to 3, line by line), `learner` (the fast version, with
the paper's claim), `printed` (Tables 1 to 3), `experiments`, which runs them again beside the
certified learner `privrl.control.PGC`, and `trials` and `targets`, which run and judge all of it.

    privrl train ono2020-pgc --env CartPole --mechanism laplace --epsilon 1 --agents 90000
    privrl reproduce ono2020
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.papers.ono2020.learner import PGC

__all__ = ["PGC"]

__getattr__ = lazy(__name__, {"learner": ("PGC",)})
