"""Rajabi et al. (2022), "Privacy-preserving reinforcement learning beyond expectation".

Read the folder in this order:

- `algorithm`: Algorithms 1 to 3 in NumPy, in the paper's line order, and what the paper leaves open
  or prints otherwise.
- `learner`: `ProspectQ`, its settings; the algorithms as printed and with the settings of the
  authors' public code; Theorem 1's claim, and why it is no certificate.
- `fast`: the algorithms compiled, for many runs side by side; tests hold it equal to `algorithm`.
  `field` has its noise.
- `printed`: what the paper prints. `targets`: Table I and Figure 2 run again by `privrl reproduce
  rajabi2022`; `judging`: exact visits of its policies.
- `spec`: the options of `privrl train rajabi2022-prospect`; `runner`: how it is run.

>>> from privrl.papers.rajabi2022 import ProspectQ
>>> ProspectQ.printed(epsilon=0.9).theorem.source
'rajabi2022, Theorem 1'
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.papers.rajabi2022.learner import ProspectQ

__all__ = ["ProspectQ"]

__getattr__ = lazy(__name__, {"learner": ("ProspectQ",)})
