"""Locally private reports under attack: the bytes that leave an agent.

Importing this module puts its targets into the catalogue of `privrl.audit`. An attacker is
the aggregator: it sees every byte of every payload, and what
can be computed of them. The promise is the plan's, epsilon for all payloads of an agent together.

The two worlds differ in all that an agent knows. Its gradient points the other way (one payload, or
two, of which each has half of epsilon); or its gradients are broken, zeros and then not numbers,
where in the other world they are in order; or it reached the target, or did not.
"""

from collections.abc import Sequence

import numpy as np

from privrl.audit.attacks import Outputs
from privrl.audit.auditor import Target
from privrl.audit.catalogue import target
from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.spec import Mechanism
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.events import Event, RandomizedResponse
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation

EPSILON = 2.0
_ROW = 50.0 * np.linspace(0.5, 1.0, 3)
_NAN = np.full(3, np.nan)

World = tuple[tuple[Array, bool], ...]
"""What an agent knows at each of its submissions: a gradient, and whether it reached the target."""


def _payload_features(plan: Privatiser, sent: Sequence[bytes]) -> object:
    """What an attacker makes of one agent's payloads.

    Vectors, their differences, whether they point along the gradient, and the bytes; or the bytes
    alone, if the aggregator could not have read them.
    """
    try:
        vectors = [plan.read(payload)[0] for payload in sent]
    except InputError:
        return b"".join(sent)
    raw = np.frombuffer(b"".join(sent), dtype=np.uint8).astype(np.float64)
    moves = [later - vectors[0] for later in vectors[1:]]
    along = np.array(vectors) @ _ROW
    return np.concatenate([*vectors, *moves, along, [np.sign(along).sum()], raw])


def _agents_target(
    name: str,
    plan: Privatiser,
    worlds: tuple[World, World],
    runs: int,
    promise: Event | None = None,
) -> Target:
    """Many agents, alike but for randomness, in either world."""

    def draw(world: int, count: int, source: Source) -> Outputs:
        sent = [
            plan.payloads([gradient] * count, source, [reached] * count)
            for gradient, reached in worlds[world]
        ]
        return [_payload_features(plan, own) for own in zip(*sent, strict=True)]

    event = plan.event if promise is None else promise
    return Target(name, draw, (event,), Relation.LOCAL, 0.0, runs, note="bytes on the wire")


def _opposite_target(mechanism: Mechanism) -> Target:
    """One payload about a gradient, or about its opposite."""
    plan = Privatiser(EPSILON, 3, mechanism)
    worlds = ((-_ROW, False),), ((_ROW, False),)
    # Noise of 0.8 is harder to see where a report is far more than a coin.
    return _agents_target(
        f"pgc-{mechanism}", plan, worlds, 80_000 if mechanism == "laplace" else 20_000
    )


def _twice_target(mechanism: Mechanism) -> Target:
    """Two payloads about a gradient, or about its opposite."""
    plan = Privatiser(EPSILON, 3, mechanism, submissions=2)
    worlds = ((-_ROW, False), (-_ROW, False)), ((_ROW, False), (_ROW, False))
    return _agents_target(f"pgc-{mechanism}-twice", plan, worlds, 12_000)


def _turning_target(mechanism: Mechanism) -> Target:
    """Two payloads, about the same gradient both times, or about it and then its opposite."""
    plan = Privatiser(EPSILON, 3, mechanism, submissions=2)
    worlds = ((_ROW, False), (_ROW, False)), ((_ROW, False), (-_ROW, False))
    return _agents_target(f"pgc-{mechanism}-turning", plan, worlds, 4_000)


def _broken_target(mechanism: Mechanism) -> Target:
    """Two payloads of an agent whose gradients are zeros and NaN, or in order."""
    plan = Privatiser(EPSILON, 3, mechanism, submissions=2)
    worlds = ((np.zeros(3), False), (_NAN, False)), ((_ROW, False), (_ROW, False))
    return _agents_target(f"pgc-{mechanism}-broken", plan, worlds, 4_000)


@target
def pgc_privunit() -> Target:
    return _opposite_target("privunit")


@target
def pgc_sign() -> Target:
    return _opposite_target("sign")


@target
def pgc_laplace() -> Target:
    return _opposite_target("laplace")


@target
def pgc_privunit_twice() -> Target:
    return _twice_target("privunit")


@target
def pgc_sign_twice() -> Target:
    return _twice_target("sign")


@target
def pgc_laplace_twice() -> Target:
    return _twice_target("laplace")


@target
def pgc_privunit_turning() -> Target:
    return _turning_target("privunit")


@target
def pgc_sign_turning() -> Target:
    return _turning_target("sign")


@target
def pgc_laplace_turning() -> Target:
    return _turning_target("laplace")


@target
def pgc_privunit_broken() -> Target:
    return _broken_target("privunit")


@target
def pgc_sign_broken() -> Target:
    return _broken_target("sign")


@target
def pgc_laplace_broken() -> Target:
    return _broken_target("laplace")


@target
def pgc_score() -> Target:
    """The same gradient; the target reached or not, for which half of epsilon is set aside."""
    plan = Privatiser(2.0 * EPSILON, 3, score_share=0.5)
    worlds = ((_ROW, False),), ((_ROW, True),)
    return _agents_target("pgc-score", plan, worlds, 20_000, RandomizedResponse(EPSILON))
