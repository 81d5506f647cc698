"""What Wang and Hegde (2019) print of their experiments: Figure 1.

There is no number to compare its curves with, only noise levels, and what the text says of their
order.
"""

SIGMAS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
"""The noise levels of Figure 1."""

STATEMENTS = (
    "With the increase of the noise level, the algorithm requires more samples to achieve the same "
    "return than the non-private version.",
    "with the noise being reset every round (J = T / B), the algorithm is likely to converge with "
    "limited sub-optimality as desired, especially when sigma < 0.4",
    "we suggest using J = T / B in practice to achieve a better utility",
)
