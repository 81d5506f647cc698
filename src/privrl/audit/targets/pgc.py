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
from privrl.audit.catalogue import add_target, target
from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.spec import Mechanism
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy.events import Event, RandomizedResponse
from privrl.privacy.noise import Source
from privrl.privacy.promise import Relation

EPSILON = 2.0
_ROW = 50.0 * np.linspace(0.5, 1.0, 3)


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
    worlds: Sequence[Sequence[Array]],
    runs: int,
    reached: tuple[bool, bool] = (False, False),
    promise: Event | None = None,
) -> Target:
    """Many agents, alike but for randomness, who know so much in either world.

    That is a gradient for each of their submissions, and whether they reached the target.
    """

    def draw(world: int, count: int, source: Source) -> Outputs:
        sent = [
            plan.payloads([gradient] * count, source, [reached[world]] * count)
            for gradient in worlds[world]
        ]
        return [_payload_features(plan, own) for own in zip(*sent, strict=True)]

    event = plan.event if promise is None else promise
    return Target(name, draw, (event,), Relation.LOCAL, 0.0, runs, note="bytes on the wire")


_WORLDS: dict[str, tuple[list[Array], list[Array], int]] = {
    # One payload about a gradient, or about its opposite.
    "": ([-_ROW], [_ROW], 20_000),
    # Two of them.
    "-twice": ([-_ROW, -_ROW], [_ROW, _ROW], 12_000),
    # Two, about the same gradient both times, or about it and then its opposite.
    "-turning": ([_ROW, _ROW], [_ROW, -_ROW], 4_000),
    # Two of an agent whose gradients are zeros and NaN, or in order.
    "-broken": ([np.zeros(3), np.full(3, np.nan)], [_ROW, _ROW], 4_000),
}


def _gradient_target(name: str, mechanism: Mechanism, kind: str) -> Target:
    first, second, runs = _WORLDS[kind]
    if name == "pgc-laplace":  # noise of 0.8 is harder to see where a report is more than a coin
        runs = 80_000
    plan = Privatiser(EPSILON, 3, mechanism, submissions=len(first))
    return _agents_target(name, plan, (first, second), runs)


_MECHANISMS: tuple[Mechanism, ...] = ("privunit", "sign", "laplace")
for _kind in _WORLDS:
    for _mechanism in _MECHANISMS:
        add_target(f"pgc-{_mechanism}{_kind}", _gradient_target, _mechanism, _kind)


@target
def pgc_score() -> Target:
    """The same gradient; the target reached or not, for which half of epsilon is set aside."""
    plan = Privatiser(2.0 * EPSILON, 3, score_share=0.5)
    promise = RandomizedResponse(EPSILON)
    return _agents_target("pgc-score", plan, ([_ROW], [_ROW]), 20_000, (False, True), promise)
