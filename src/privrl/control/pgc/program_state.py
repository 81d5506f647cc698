"""Where the replicas of a `PGCProgram` stand."""

from typing import Any, NamedTuple


class Slots(NamedTuple):
    """Those in flight. In all arrays the last axis is replicas x flight, a replica's places
    together."""

    weights: Any
    """The model that the agent was sent, as matrices."""

    version: Any
    """And its version."""

    explore: Any
    """With what probability the agent acts at random."""

    sums: Any
    """`Sums`; of old episodes too, until the first step."""

    state: Any
    params: Any
    observation: Any
    score: Any
    """The sum of the rewards so far."""

    over: Any
    """Whether the episode has ended."""

    sent: Any
    """Whether the report about it has been sent."""


class Aggregators(NamedTuple):
    """The replicas' aggregators; in all arrays the first axis is replicas."""

    theta: Any
    moments: Any
    total: Any
    held: Any
    version: Any
    accepted: Any


class CollectionState(NamedTuple):
    """Where all replicas stand, with the agents in flight: **private**, and so are the keys."""

    slots: Slots
    aggregators: Aggregators
    block: Any
    """(replicas,): how many blocks have been played."""

    actions: Any
    """(replicas,): keys of the randomness in each block."""

    arrivals: Any
    """(replicas,): keys of agents, for their dynamics and where they begin."""

    noise: Any
    """(replicas,): keys of the reports' noise."""

    settings: dict[str, Any]
