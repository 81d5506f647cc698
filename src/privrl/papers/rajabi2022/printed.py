"""What Rajabi et al. (2022) print of their experiments: Table I, and what the text says of it."""

from typing import Literal

from privrl.papers.rajabi2022.spec import Acting

Objective = Literal["CPT", "expectation"]

SIGMAS = (0.0, 1.0, 5.0)
"""The noise levels: none, DP-1 and DP-5."""

HORIZON = 400
"""Steps of a roll-out."""

TABLE_1: dict[tuple[Objective, Acting, float], tuple[float, ...]] = {
    ("CPT", "greedy", 5.0): (3.74, 0.74, 0.02, 0.0),
    ("CPT", "greedy", 1.0): (1.31, 2.63, 0.85, 0.2),
    ("CPT", "greedy", 0.0): (1.125, 4.26, 0.055, 0.81),
    ("CPT", "proportional", 5.0): (7.58, 0.115, 0.365, 0.165),
    ("CPT", "proportional", 1.0): (1.595, 1.825, 0.575, 0.815),
    ("CPT", "proportional", 0.0): (0.54, 3.49, 1.695, 3.605),
    ("expectation", "greedy", 5.0): (7.995, 0.63, 0.06, 0.08),
    ("expectation", "greedy", 1.0): (4.14, 1.49, 0.165, 2.375),
    ("expectation", "greedy", 0.0): (4.57, 2.59, 0.055, 0.05),
    ("expectation", "proportional", 5.0): (8.595, 0.705, 0.28, 0.215),
    ("expectation", "proportional", 1.0): (3.615, 1.56, 0.525, 1.045),
    ("expectation", "proportional", 0.0): (2.415, 4.43, 1.47, 3.385),
}
"""Table I: visits to the obstacles with penalties 50, 25, 10 and 5."""

STATEMENTS = (
    "the agent visits an obstacle fewer times when maximizing a CPT-based objective than when "
    "maximizing an expected utility (No CPT)",
    "the CPT-based objective is more effective in avoiding visits to obstacles with highest "
    "penalties",
    "the number of visits to an obstacle is higher for a higher privacy level",
)
