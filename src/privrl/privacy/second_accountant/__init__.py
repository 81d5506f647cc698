"""The second accountant: a floor and a ceiling around the true epsilon of a plan of events.

`accounting` computes the figure that is certified. This package shares no code with it below
NumPy and SciPy and answers the same question by other means, so that a slip in one shows as a
figure outside the bracket of the other.

The way of a plan: `events_to_pairs` finds the pairs of laws that dominate its events (`pairs`,
`sampled_pairs`, `allocation_pair`). *Ceiling*: `renyi_ceiling` adds up their Rényi divergences.
*Floor*: `worlds` composes the pairs themselves, one alone by `pair_floor` and several by
`composed_floor`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from privrl.privacy.events import Event, as_events
from privrl.privacy.promise import Relation
from privrl.privacy.second_accountant.renyi_ceiling import ceiling, ceiling_over, renyi
from privrl.privacy.second_accountant.worlds import floor

__all__ = ["Bracket", "bracket", "ceiling", "ceiling_over", "floor", "renyi"]


@dataclass(frozen=True)
class Bracket:
    """`floor` <= the true epsilon <= `ceiling`, at the delta that was asked for."""

    floor: float
    ceiling: float


def bracket(
    events: Event | Iterable[Event], delta: float, relation: Relation = Relation.REPLACE_ONE
) -> Bracket:
    """The floor and the ceiling of the composition of `events` under `relation`."""
    plan = as_events(events)
    return Bracket(floor(plan, delta, relation), ceiling(plan, delta, relation))
