"""Figure 2 of wang2019, certified: returns over the task and its mirror by learner, budget, radius.

Settings were chosen on seeds 0 to 9; the baselines were worked over once more after a look at seeds
100 to 119, so what is reported of all of them is from seeds 200 and up. The figures as the paper
has them are `privrl reproduce wang2019`.
"""

from collections.abc import Iterator
from typing import Any

FRESH = range(200, 220)


def run() -> Iterator[dict[str, Any]]:
    from privrl.papers.wang2019 import certified as wang2019_certified

    for name in wang2019_certified.LEARNERS:
        yield wang2019_certified.without_noise(FRESH, name)
    yield from wang2019_certified.certified_rows(FRESH)
