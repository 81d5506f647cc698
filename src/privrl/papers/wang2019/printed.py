"""What Wang and Hegde (2019) print of their experiments: Figure 1.

There is no number to compare its curves with, only noise levels, and what the text says of their
order.
"""

SIGMAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The noise levels of Figure 1."""

STATEMENTS = (
    "The more noise there is, the more samples it takes to reach the same return.",
    "With a fresh path for each round the return converges with limited sub-optimality, at sigma "
    "of at most 0.4.",
    "A fresh path for each round does better than one for the whole run.",
)
