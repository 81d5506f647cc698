"""The first accountant: from events to epsilon.

    epsilon(events, delta, relation)    delta(events, epsilon, relation)    calibrate(build, budget)

The way of a list of events: `worst_cases` flattens it into *losses*, privacy-loss laws of pairs of
inputs that dominate each event under the relation (`losses`, `finite_losses`, `sampled_losses`,
`allocation`); `privacy_profile` composes them, exactly where it can and else on a `grid`;
`calibration` searches for the parameter of the noise.

Composition is adaptive in all of them (Zhu, Dong, Wang 2022: the composition of dominating pairs
dominates the composition). dp-accounting is compared with in tests, not used: version 0.6 forgets
the factor 2 of replace-one on its Renyi side and the count of randomised responses on its PLD side,
and its convolution loses small deltas to round-off.
`second_accountant` recomputes brackets for every figure and shares no code with this package.
"""

from privrl.privacy.accounting.calibration import calibrate
from privrl.privacy.accounting.privacy_profile import (
    GRID,
    Account,
    account,
    basic_composition,
    check,
    delta,
    epsilon,
    gaussian_mu,
)
from privrl.privacy.accounting.worst_cases import sensitivity

__all__ = [
    "GRID",
    "Account",
    "account",
    "basic_composition",
    "calibrate",
    "check",
    "delta",
    "epsilon",
    "gaussian_mu",
    "sensitivity",
]
