"""Wang and Hegde (2019), "Privacy-preserving Q-learning with functional noise".

Read the folder in this order:

- `algorithm`: Algorithm 1 in NumPy, in the paper's line order, and what the paper leaves open.
- `learner`: `FunctionalQ`, its settings; the algorithm as printed and as in the authors' public
  code; Theorem 5's claim, and why it is no certificate.
- `fast`: the algorithm compiled, for many runs side by side; tests hold it equal to `algorithm`.
  `path` draws its noise, with the exact law, and `draws` random numbers in few calls.
- `printed`: what the paper prints. `targets` and `trials`: its figures run again by `privrl
  reproduce wang2019`. `certified`: what certified learners (`privrl.control.FunctionalQ`) reach on
  its task.
- `spec`: the options of `privrl train wang2019-functional-q`; `runner`: how it is run.

>>> from privrl.papers.wang2019 import FunctionalQ
>>> FunctionalQ.printed(epsilon=0.9).theorem.source
'wang2019, Theorem 5'
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.papers.wang2019.learner import FunctionalQ

__all__ = ["FunctionalQ"]

__getattr__ = lazy(__name__, {"learner": ("FunctionalQ",)})
