"""The task of rajabi2022, certified, and choices between gambles.

CPT value and visits of certified learners, by budget and radius; then what the certified CPT
actor-critic chooses, by budget and number of people. Settings were chosen on seeds 0 to 9; what is
reported is from seeds 100 to 119, or 109 for the gambles. Table I and Figure 2 as the paper has
them are `privrl reproduce rajabi2022`.
"""

from collections.abc import Iterator
from typing import Any

SEEDS = range(100, 120)
GAMBLES = range(100, 110)


def run() -> Iterator[dict[str, Any]]:
    from privrl.papers.rajabi2022 import certified as rajabi2022_certified
    from privrl.papers.rajabi2022 import gamble as rajabi2022_gamble

    for prospect in rajabi2022_certified.PROSPECTS:
        for learner in rajabi2022_certified.LEARNERS:
            yield rajabi2022_certified.without_noise(SEEDS, learner, prospect)
    yield from rajabi2022_certified.certified_rows(SEEDS)
    yield from rajabi2022_gamble.choices(GAMBLES)
