"""Locally private reports under attack: the bytes that leave an agent.

Importing this module puts its targets and its sabotaged twins into the catalogues of
`tacit.privacy.audit`. An attacker is the aggregator: it sees every byte of every payload, and what
can be computed of them. The promise is the plan's, epsilon for all payloads of an agent together.

The two worlds differ in all that an agent knows. Its gradient points the other way (one payload, or
two, of which each has half of epsilon); or its gradients are broken, zeros and then not numbers,
where in the other world they are in order; or it reached the target, or did not.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from tacit.control import privatiser as privatiser_module
from tacit.control.privatiser import Mechanism, Privatiser, shares
from tacit.privacy.audit.attacks import Outputs
from tacit.privacy.audit.auditor import Target
from tacit.privacy.audit.sabotage import Twin, register
from tacit.privacy.audit.targets import target
from tacit.privacy.errors import InputError
from tacit.privacy.events import Event, RandomizedResponse
from tacit.privacy.grid import Array
from tacit.privacy.noise import Source
from tacit.privacy.promise import Relation

EPSILON = 2.0
_ROW = 50.0 * np.linspace(0.5, 1.0, 3)
_NAN = np.full(3, np.nan)

World = tuple[tuple[Array, bool], ...]
"""What an agent knows at each of its submissions: a gradient, and whether it reached the target."""


def _seen(plan: Privatiser, sent: Sequence[bytes]) -> object:
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


def _agents(
    name: str,
    plan: Privatiser,
    worlds: tuple[World, World],
    runs: int,
    promise: Event | None = None,
) -> Target:
    """Many agents, alike but for chance, in either world."""

    def draw(world: int, count: int, source: Source) -> Outputs:
        sent = [
            plan.payloads([gradient] * count, source, [reached] * count)
            for gradient, reached in worlds[world]
        ]
        return [_seen(plan, own) for own in zip(*sent, strict=True)]

    event = plan.event if promise is None else promise
    return Target(name, draw, (event,), Relation.LOCAL, 0.0, runs, note="bytes on the wire")


def _opposite(mechanism: Mechanism) -> Target:
    """One payload about a gradient, or about its opposite."""
    plan = Privatiser(EPSILON, 3, mechanism)
    worlds = ((-_ROW, False),), ((_ROW, False),)
    return _agents(f"pgc-{mechanism}", plan, worlds, 20_000)


def _twice(mechanism: Mechanism) -> Target:
    """Two payloads about a gradient, or about its opposite."""
    plan = Privatiser(EPSILON, 3, mechanism, submissions=2)
    worlds = ((-_ROW, False), (-_ROW, False)), ((_ROW, False), (_ROW, False))
    return _agents(f"pgc-{mechanism}-twice", plan, worlds, 12_000)


def _turning(mechanism: Mechanism) -> Target:
    """Two payloads, about the same gradient both times, or about it and then its opposite."""
    plan = Privatiser(EPSILON, 3, mechanism, submissions=2)
    worlds = ((_ROW, False), (_ROW, False)), ((_ROW, False), (-_ROW, False))
    return _agents(f"pgc-{mechanism}-turning", plan, worlds, 4_000)


def _broken(mechanism: Mechanism) -> Target:
    """Two payloads of an agent whose gradients are zeros and NaN, or in order."""
    plan = Privatiser(EPSILON, 3, mechanism, submissions=2)
    worlds = ((np.zeros(3), False), (_NAN, False)), ((_ROW, False), (_ROW, False))
    return _agents(f"pgc-{mechanism}-broken", plan, worlds, 4_000)


@target
def pgc_privunit() -> Target:
    return _opposite("privunit")


@target
def pgc_sign() -> Target:
    return _opposite("sign")


@target
def pgc_laplace() -> Target:
    return _opposite("laplace")


@target
def pgc_privunit_twice() -> Target:
    return _twice("privunit")


@target
def pgc_sign_twice() -> Target:
    return _twice("sign")


@target
def pgc_laplace_twice() -> Target:
    return _twice("laplace")


@target
def pgc_privunit_turning() -> Target:
    return _turning("privunit")


@target
def pgc_sign_turning() -> Target:
    return _turning("sign")


@target
def pgc_laplace_turning() -> Target:
    return _turning("laplace")


@target
def pgc_privunit_broken() -> Target:
    return _broken("privunit")


@target
def pgc_sign_broken() -> Target:
    return _broken("sign")


@target
def pgc_laplace_broken() -> Target:
    return _broken("laplace")


@target
def pgc_score() -> Target:
    """The same gradient; the target reached or not, for which half of epsilon is set aside."""
    plan = Privatiser(2.0 * EPSILON, 3, score_share=0.5)
    worlds = ((_ROW, False),), ((_ROW, True),)
    return _agents("pgc-score", plan, worlds, 20_000, RandomizedResponse(EPSILON))


# --- ways of going wrong --------------------------------------------------------------------------

_payloads = Privatiser.payloads


@contextmanager
def _sending(payloads: Callable[..., list[bytes]]) -> Iterator[None]:
    with patch.object(Privatiser, "payloads", payloads):
        yield


@contextmanager
def _less_noise() -> Iterator[None]:
    """A scale read off the wrong line: all chance is that of an epsilon 1 / 0.7 times as large."""

    def larger(epsilon: float, submissions: int, score_share: float) -> tuple[float, float]:
        report, score = shares(epsilon, submissions, score_share)
        return report / 0.7, score / 0.7

    with patch.object(privatiser_module, "shares", larger):
        yield


@contextmanager
def _not_split() -> Iterator[None]:
    """Each payload spends what all of them may."""

    def whole(epsilon: float, submissions: int, score_share: float) -> tuple[float, float]:
        return shares(epsilon, 1, score_share)

    with patch.object(privatiser_module, "shares", whole):
        yield


@contextmanager
def _not_finite() -> Iterator[None]:
    """A gradient that is not finite goes out as it is."""

    def through(self: Privatiser, gradients: Any, source: Source, reached: Any) -> list[bytes]:
        sent = _payloads(self, gradients, source, reached)
        raw = [np.asarray(one, "<f8").tobytes().ljust(self.size)[: self.size] for one in gradients]
        whole = [bool(np.all(np.isfinite(one))) for one in gradients]
        return [a if good else b for a, b, good in zip(sent, raw, whole, strict=True)]

    with _sending(through):
        yield


@contextmanager
def _silence() -> Iterator[None]:
    """An agent with nothing to say says nothing."""

    def silent(self: Privatiser, gradients: Any, source: Source, reached: Any) -> list[bytes]:
        sent = _payloads(self, gradients, source, reached)
        return [a if np.any(one) else b"" for a, one in zip(sent, gradients, strict=True)]

    with _sending(silent):
        yield


@contextmanager
def _division_by_zero() -> Iterator[None]:
    """Divided by the norm without a look at it: an error where there is nothing to divide."""

    def dividing(self: Privatiser, gradients: Any, source: Source, reached: Any) -> list[bytes]:
        for one in gradients:
            1.0 / float(np.sqrt(np.sum(np.nan_to_num(one) ** 2)))
        return _payloads(self, gradients, source, reached)

    with _sending(dividing):
        yield


@contextmanager
def _seed_again() -> Iterator[None]:
    """Each payload is drawn from the same seed, so that a repeated one looks the same."""
    first: list[Any] = []

    def again(self: Privatiser, gradients: Any, source: Source, reached: Any) -> list[bytes]:
        bits = source.generator.bit_generator
        if first:
            bits.state = first.pop()
        else:
            first.append(bits.state)
        return _payloads(self, gradients, source, reached)

    with _sending(again):
        yield


@contextmanager
def _score_as_it_is() -> Iterator[None]:
    """A yes or no is so little that nobody randomises it."""

    def plain(self: Privatiser, gradients: Any, source: Source, reached: Any) -> list[bytes]:
        sent = _payloads(self, gradients, source, reached)
        return [one[:-1] + bytes([yes]) for one, yes in zip(sent, reached, strict=True)]

    with _sending(plain):
        yield


_ONE = ("pgc-privunit", "pgc-sign", "pgc-laplace")
_BROKEN = tuple(f"{name}-broken" for name in _ONE)
# So few runs show what is wrong by far.
_FEW = 800

register(
    Twin("noise x 0.7 on the wire", _less_noise, (*_ONE, "pgc-score")),
    Twin("epsilon not split", _not_split, tuple(f"{name}-twice" for name in _ONE)),
    Twin("NaN sent as it is", _not_finite, _BROKEN, _FEW),
    Twin("silence for a zero gradient", _silence, _BROKEN, _FEW),
    Twin("an error for a zero gradient", _division_by_zero, _BROKEN, _FEW),
    Twin("seed used again", _seed_again, tuple(f"{name}-turning" for name in _ONE), _FEW),
    Twin("score told as it is", _score_as_it_is, ("pgc-score",), _FEW),
)
