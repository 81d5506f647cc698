"""What is wrong with certificates of earlier versions, as far as a certificate shows it.

tacit 0.1 issued certificates whose epsilon was not established in four cases:

- *one pass over a sorted stream* (`PrivateGTD` in batches): the number of parts in which a stream
  was sorted, and with it everybody's place in the order, depended on the number of rows, so that
  one more row of one person moved most of the others into other batches. `Disjoint` needs slots
  that do not depend on the data. Such a certificate can be told by its event and its assumption,
  though not whether the stream was sorted: it is refused.
- *nulls carried*: what was printed said whether anybody had a null;
- *tables above 5,000,000 rows*: which algorithm ran depended on the number of rows;
- *runs resumed more than once from one checkpoint*: each resume drew fresh noise, and gave another
  model at one payment.

Of the last three a certificate shows nothing, so that all certificates of tables get a warning, and
so do those of learners that kept checkpoints.

Ledgers go on from version to version, and what tacit 0.1 entered in one is part of what a
population has paid. An entry has the event and no assumption, so that one pass cannot be told from
an actor-critic: where there is such an entry, new certificates list `OLD_ENTRIES` (`ledger.py`).
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from privrl.privacy.events import Disjoint, Event, Gaussian
from privrl.privacy.promise import NoiseOrigin, Unit

if TYPE_CHECKING:
    from privrl.privacy.certificate import Certificate

# What the certificates of tacit 0.1 say, word for word; never to be changed.
_ORDER_STATEMENT = "a unit's place in the order of the data does not depend on what its rows say"
_SLOT_STATEMENT = "a person plays one episode, in a slot that does not depend on what happens in it"

_ONE_PASS_REASON = (
    "This certificate is of one pass over a stream by tacit 0.1, in which the order of a sorted "
    "stream depended on the number of rows, so its epsilon is not established: evaluate again."
)
_UNSEEN_WARNING = (
    "made by tacit 0.1: void if made with --nulls carry or from a table above 5,000,000 rows, "
    "neither of which a certificate shows."
)
_RESUMED_WARNING = (
    "made by tacit 0.1: void if its run was resumed more than once from one checkpoint and without "
    "a seed, which a certificate does not show."
)


def _is_by_tacit_0_1(certificate: "Certificate") -> bool:
    return re.match(r"tacit 0\.1(?!\d)", certificate.issued_by) is not None


def _has_assumption(certificate: "Certificate", statement: str) -> bool:
    return any(one.statement == statement for one in certificate.assumptions)


def may_be_one_pass(events: Iterable[Event]) -> bool:
    """Whether these may be of one pass; those of an actor-critic look the same."""
    return any(
        isinstance(event, Disjoint) and all(isinstance(part, Gaussian) for part in event.events)
        for event in events
    )


def invalid_reason(certificate: "Certificate") -> str | None:
    """Why this certificate is known to be false, if it is."""
    one_pass = may_be_one_pass(certificate.events)
    if (
        _is_by_tacit_0_1(certificate)
        and one_pass
        and _has_assumption(certificate, _ORDER_STATEMENT)
    ):
        return _ONE_PASS_REASON
    return None


def warnings(certificate: "Certificate") -> tuple[str, ...]:
    """What may be wrong with this certificate and cannot be seen in it.

    Plans, for which no noise was drawn, are not concerned. People of an actor-critic play in slots
    and are in no table; it and learners for a secret reward function kept checkpoints.
    """
    if not _is_by_tacit_0_1(certificate) or certificate.noise is NoiseOrigin.NOT_DRAWN:
        return ()
    in_slots = _has_assumption(certificate, _SLOT_STATEMENT)
    if in_slots or certificate.unit is Unit.REWARD_FUNCTION:
        return (_RESUMED_WARNING,) if certificate.noise.is_secret else ()
    return (_UNSEEN_WARNING,) if certificate.unit in (Unit.TRAJECTORY, Unit.USER) else ()
