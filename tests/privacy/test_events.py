"""Events: what they accept, and that their JSON form is the whole truth."""

import json
import math
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privrl.privacy import (
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Disjoint,
    Event,
    FixedSizeSampled,
    Gaussian,
    InputError,
    Laplace,
    PoissonSampled,
    PureDP,
    RandomAllocation,
    RandomizedResponse,
    Relation,
    Repeated,
)

positive = st.floats(1e-300, 1e300)
simple = st.one_of(
    st.builds(Gaussian, positive, positive),
    st.builds(Laplace, positive, positive),
    st.builds(DiscreteGaussian, positive, positive, st.integers(1, 10**6)),
    st.builds(DiscreteLaplace, positive, positive),
    st.builds(
        RandomizedResponse,
        positive,
        categories=st.integers(2, 100),
        relation=st.sampled_from(Relation),
    ),
    st.builds(PureDP, positive, relation=st.sampled_from(Relation)),
    st.builds(ApproxDP, positive, st.floats(1e-300, 0.999), relation=st.sampled_from(Relation)),
)
events = st.recursive(
    simple,
    lambda inner: st.one_of(
        st.builds(PoissonSampled, inner, st.floats(1e-300, 1.0)),
        st.builds(FixedSizeSampled, inner, st.just(10**6), st.integers(1, 10**6)),
        st.builds(Repeated, inner, st.integers(1, 10**18)),
        st.builds(RandomAllocation, inner, st.integers(1, 10**18)),
        st.builds(Disjoint, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@given(events)
def test_json_round_trip_is_exact(event: Event) -> None:
    assert Event.from_dict(json.loads(json.dumps(event.to_dict()))) == event
    assert hash(Event.from_dict(event.to_dict())) == hash(event)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, -math.inf, "1", None, True, 10**400])
@pytest.mark.parametrize(
    "build",
    [
        lambda x: Gaussian(x, 1),
        lambda x: Gaussian(1, x),
        lambda x: Laplace(x, 1),
        lambda x: Laplace(1, x),
        lambda x: DiscreteGaussian(x, 1),
        lambda x: DiscreteGaussian(1, x),
        lambda x: DiscreteLaplace(x, 1),
        lambda x: DiscreteLaplace(1, x),
        lambda x: RandomizedResponse(x),
        lambda x: PureDP(x),
        lambda x: ApproxDP(1, x),
        lambda x: PoissonSampled(Gaussian(1, 1), x),
        lambda x: Repeated(Gaussian(1, 1), -1 if x == 10**400 else x),
        lambda x: FixedSizeSampled(Gaussian(1, 1), -1 if x == 10**400 else x, 1),
    ],
)
def test_bad_numbers_are_refused_in_one_sentence(build: object, bad: object) -> None:
    assert callable(build)
    with pytest.raises(InputError) as caught:
        build(bad)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_limits_between_parameters() -> None:
    with pytest.raises(InputError, match="must not be larger than population"):
        FixedSizeSampled(Gaussian(1, 1), 10, 11)
    with pytest.raises(InputError, match="at most 1"):
        PoissonSampled(Gaussian(1, 1), 1.01)
    with pytest.raises(InputError, match="at least 2"):
        RandomizedResponse(1, categories=1)
    with pytest.raises(InputError, match="at least one event"):
        Disjoint(())
    with pytest.raises(InputError, match="must be an event"):
        Repeated("Gaussian(1, 1)", 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not a relation"):
        PureDP(1, relation="neighbours")  # type: ignore[arg-type]


def test_numpy_numbers_become_plain_ones() -> None:
    std, bound, times = cast(float, np.float32(0.5)), cast(float, np.int64(1)), np.int32(3)
    event = Repeated(Gaussian(std, bound), cast(int, times))
    assert event == Repeated(Gaussian(0.5, 1.0), 3)
    assert json.loads(json.dumps(event.to_dict())) == event.to_dict()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ([], "must be a JSON object"),
        ({"std": 1}, "must be a JSON object"),
        ({"type": "Gaussian", "std": 1}, "lacks 'bound'"),
        ({"type": "Gaussian", "std": 1, "bound": 1, "mean": 0}, "unknown field 'mean'"),
        ({"type": "Cauchy", "scale": 1}, "not an event this version"),
        ({"type": "Event"}, "not an event this version"),
        ({"type": "Gaussian", "std": "1", "bound": 1}, "must be a number"),
    ],
)
def test_malformed_json_is_refused(data: object, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        Event.from_dict(data)


def test_events_read_as_they_are_written() -> None:
    event = Repeated(PoissonSampled(Gaussian(1, 1), 0.001), 1000)
    assert str(event) == "Repeated(PoissonSampled(Gaussian(1, 1), 0.001), 1000)"
    assert str(Disjoint((PureDP(0.5),))) == "Disjoint([PureDP(0.5, replace-one)])"
