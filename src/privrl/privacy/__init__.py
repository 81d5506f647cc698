"""What is promised and what it costs. Knows nothing of reinforcement learning.

>>> from privrl.privacy import Gaussian, Relation, epsilon
>>> round(epsilon(Gaussian(1, 1), 1e-5, Relation.ADD_REMOVE), 3)
4.377
"""

from privrl.core.errors import (
    CertificateError,
    InputError,
    LedgerError,
    OverBudget,
    PrivRLError,
    UnsupportedError,
)
from privrl.privacy.accounting import Account, account, calibrate, delta, epsilon, sensitivity
from privrl.privacy.certificate import (
    IDEALISED_ARITHMETIC,
    Assumption,
    Certificate,
    Claim,
    Population,
    Verification,
)
from privrl.privacy.events import (
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
from privrl.privacy.ledger import LargeDelta, Ledger, LimitUsedUp
from privrl.privacy.promise import Budget, NoiseOrigin, Relation, Release, Unit
from privrl.privacy.session import PrivacySession
from privrl.privacy.shuffling import EpsilonIfShufflerIsTrusted, shuffled_epsilon

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
    "PrivRLError",
    "PrivacySession",
    "PureDP",
    "RandomAllocation",
    "RandomizedResponse",
    "Relation",
    "Release",
    "Repeated",
    "Unit",
    "UnsupportedError",
    "Verification",
    "account",
    "calibrate",
    "delta",
    "epsilon",
    "sensitivity",
    "shuffled_epsilon",
]
