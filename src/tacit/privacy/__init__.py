"""What is promised and what it costs. Knows nothing of reinforcement learning.

>>> from tacit.privacy import Gaussian, Relation, epsilon
>>> round(epsilon(Gaussian(1, 1), 1e-5, Relation.ADD_REMOVE), 3)
4.377
"""

from tacit.privacy.accounting import Account, account, calibrate, delta, epsilon, movement
from tacit.privacy.certificate import (
    IDEALISED_ARITHMETIC,
    Assumption,
    Certificate,
    Claim,
    Population,
    Verification,
)
from tacit.privacy.errors import (
    CertificateError,
    InputError,
    LedgerError,
    OverBudget,
    TacitError,
    UnsupportedError,
)
from tacit.privacy.events import (
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDP,
    RandomAllocation,
    RandomizedResponse,
    Repeated,
)
from tacit.privacy.ledger import LargeDelta, Ledger, LimitUsedUp
from tacit.privacy.promise import Budget, NoiseOrigin, Relation, Release, Unit
from tacit.privacy.shuffling import EpsilonIfShufflerIsTrusted, shuffled_epsilon

__all__ = [
    "IDEALISED_ARITHMETIC",
    "Account",
    "ApproxDP",
    "Assumption",
    "Budget",
    "Certificate",
    "CertificateError",
    "Claim",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Disjoint",
    "EpsilonIfShufflerIsTrusted",
    "Event",
    "FixedSizeSampled",
    "Gaussian",
    "InputError",
    "Laplace",
    "LargeDelta",
    "Ledger",
    "LedgerError",
    "LimitUsedUp",
    "NoiseOrigin",
    "OverBudget",
    "PoissonSampled",
    "Population",
    "PureDP",
    "RandomAllocation",
    "RandomizedResponse",
    "Relation",
    "Release",
    "Repeated",
    "TacitError",
    "Unit",
    "UnsupportedError",
    "Verification",
    "account",
    "calibrate",
    "delta",
    "epsilon",
    "movement",
    "shuffled_epsilon",
]
