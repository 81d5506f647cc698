"""What a certificate assumes of the data it is about: listed by every certified fit."""

from typing import Any

from privrl.data.readers.tables import inspect_footers
from privrl.data.stream import TrajectoryStream
from privrl.data.trajectories import Trajectories
from privrl.privacy.certificate import Assumption

VALIDATED = Assumption(
    "the table passed the curator's validation",
    "not enforced: a refusal is seen by the curator only",
)
NEUTRAL = Assumption(
    "whoever is not valid counts as one fixed person, and how many people there are is the "
    "caller's constant",
    "by the loader, for any table of this schema",
)
ESTIMATED = Assumption(
    "the behaviour probabilities were estimated: what the estimate tells of the people it was made "
    "from is not covered",
    "not enforced: that they were declared public, or paid for, is the caller's",
)
DECLARED_PUBLIC = Assumption(
    "the data was declared public by the caller: diagnostics are exact and not covered",
    "not enforced: it is the caller's word",
)


def data_assumptions(data: Any, public: bool = False) -> tuple[Assumption, ...]:
    """What is assumed of trajectories, of a stream of them, or of some of their batches.

    `public` says that the fit shows diagnostics, because the caller declared the data public.
    """
    stance, estimated = "refuse", False
    if isinstance(data, Trajectories):
        stance, estimated = data.invalid, data.behavior.source == "estimated"
    elif isinstance(data, TrajectoryStream):
        stance = data.plan.invalid
        told = inspect_footers(data.paths, data.plan)[1]["behavior"].get("source")
        known = data.behavior is not None or data.plan.behavior_prob is None
        estimated = told == "estimated" and not known
    listed = [NEUTRAL if stance == "neutral" else VALIDATED]
    if estimated:
        listed.append(ESTIMATED)
    if public:
        listed.append(DECLARED_PUBLIC)
    return tuple(listed)
