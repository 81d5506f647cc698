"""Privacy figures that must come out, recomputed; see README.md for what they are compared with."""

import time
from collections.abc import Iterator

from privrl.privacy import (
    Certificate,
    Event,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    RandomizedResponse,
    Relation,
    Repeated,
    Unit,
    epsilon,
    second_accountant,
)
from privrl.privacy.claims import claim

AR, RO, LO = Relation.ADD_REMOVE, Relation.REPLACE_ONE, Relation.LOCAL


def run() -> Iterator[dict[str, object]]:
    """The figures, one row each, bracketed by the second accountant."""
    cases: list[tuple[str, Event, float, Relation]] = [
        ("Gaussian, add-remove", Gaussian(1, 1), 1e-5, AR),
        ("Gaussian, replace-one", Gaussian(1, 1), 1e-5, RO),
        ("Laplace of ono2020 at 1", Laplace(0.01, 0.005), 0.0, LO),
        ("Poisson", Repeated(PoissonSampled(Gaussian(1, 1), 1e-3), 1000), 1e-5, AR),
        ("one step at a tiny rate, Poisson", PoissonSampled(Gaussian(0.5, 1), 1e-6), 1e-12, AR),
        ("the same, replaced", PoissonSampled(Gaussian(0.5, 1), 1e-6), 1e-12, RO),
        ("the same, fixed size", FixedSizeSampled(Gaussian(0.5, 1), 10**6), 1e-12, RO),
        ("fixed size", Repeated(FixedSizeSampled(Gaussian(1, 1), 1000), 1000), 1e-5, RO),
    ]
    for name, event, delta, relation in cases:
        bracket = second_accountant.bracket(event, delta, relation)
        began = time.perf_counter()
        found = epsilon(event, delta, relation)
        taken = time.perf_counter() - began
        yield {
            "figure": name,
            "event": str(event),
            "delta": delta,
            "relation": relation.value,
            "epsilon": found,
            "floor": bracket.floor,
            "ceiling": bracket.ceiling,
            "seconds": taken,
        }
    one = RandomizedResponse(0.5)
    stored = Certificate.issue([one] * 100, 1e-5, unit=Unit.AGENT, relation=LO).to_json()
    yield {
        "figure": "100 randomised responses",
        "by_count": epsilon(Repeated(one, 100), 1e-5, LO),
        "by_loop": epsilon([one] * 100, 1e-5, LO),
        "by_replay": epsilon(Certificate.from_json(stored).events, 1e-5, LO),
    }
    made = claim("xie2019", {})
    assert made.certified is not None
    yield {
        "figure": "xie2019 Lemma 1",
        "claimed": made.epsilon,
        "certified": made.certified.epsilon,
        "floor": made.certified.verify().floor,
    }
