"""Epsilon of 1000 Poisson-sampled Gaussians: ours against dp-accounting, on a grid of 1e-4 both.

Ours puts one step's law on the grid by arrays and composes it by tilted FFTs, several of them, with
bounds on round-off; theirs builds the law point by point and composes it by one plain FFT. Nothing
is cached between calls.
"""

from collections.abc import Iterator

from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation

from benchmarks.measure import compare
from privrl.privacy import Gaussian, PoissonSampled, Relation, Repeated, accounting
from privrl.privacy.accounting import privacy_profile


def run() -> Iterator[dict[str, object]]:
    """One row for each relation."""
    for relation, theirs_relation in (
        (Relation.ADD_REMOVE, NeighboringRelation.ADD_OR_REMOVE_ONE),
        (Relation.REPLACE_ONE, NeighboringRelation.REPLACE_ONE),
    ):

        def ours(relation: Relation = relation) -> float:
            privacy_profile._compositions.cache_clear()
            event = Repeated(PoissonSampled(Gaussian(0.8, 1), 0.01), 1000)
            return accounting.epsilon(event, 1e-5, relation)

        def theirs(relation: NeighboringRelation = theirs_relation) -> float:
            law = pld.from_gaussian_mechanism(
                0.8, sampling_prob=0.01, neighboring_relation=relation
            )
            return float(law.self_compose(1000).get_epsilon_for_delta(1e-5))

        yield {
            "relation": relation.value,
            "ours_epsilon": ours(),
            "theirs_epsilon": theirs(),
            **compare(ours, theirs),
        }
