"""Attacks that put a lower bound under epsilon.

>>> import numpy as np
>>> from privrl.privacy import Budget
>>> from privrl.audit import Target, Verdict, audit
>>> from privrl.privacy.mechanisms import GaussianMechanism
>>> plan = GaussianMechanism.from_budget(1.0, Budget(4.0, 1e-5))
>>> def mechanism(people, source):
...     return plan.release(sum(people), source)[0]
>>> neighbours = (np.array([0.5, 1.0]), np.array([0.5, -1.0]))
>>> found = audit(Target.from_mechanism(mechanism, neighbours, Budget(4.0, 1e-5), runs=4000))
>>> found.verdict is Verdict.NOT_REFUTED
True
"""

from privrl.audit.auditor import FALSE_ALARM, Audit, GaussianFit, Target, Verdict, audit
from privrl.audit.bounds import Counts
from privrl.audit.canaries import CanaryAudit, CanaryTarget, audit_with_canaries

__all__ = [
    "FALSE_ALARM",
    "Audit",
    "CanaryAudit",
    "CanaryTarget",
    "Counts",
    "GaussianFit",
    "Target",
    "Verdict",
    "audit",
    "audit_with_canaries",
]
