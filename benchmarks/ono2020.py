"""The experiments of ono2020: Tables 1 to 3 and Figures 2 and 3 as printed, and the recipe.

In mode "paper" no setting was chosen by results. Those of the recipe were chosen on seeds 0 to 9.
What is reported is from seeds 100 to 119.

`PRIVRL_ONO2020` names the parts to run, by commas; all by default.

- *tables*: first success, success ratio, area under it and sustained success, for both mechanisms
  and each epsilon, beside the control without gradients and what is printed; and Figure 3;
- *figure2*: average scores while learning, with and without a buffer;
- *readings*: the paper's algorithm without noise, as printed and in other readings;
- *recipe*: the same tables for the default recipe.
"""

import os
from collections.abc import Iterator
from typing import Any

PARTS = ("tables", "figure2", "readings", "recipe")


def run() -> Iterator[dict[str, Any]]:
    from privrl.papers.ono2020 import experiments as ono2020

    wanted = os.environ.get("PRIVRL_ONO2020", ",".join(PARTS)).split(",")
    algorithms: list[ono2020.Algorithm] = []
    if "tables" in wanted:
        algorithms += ["laplace", "sign"]
    if "recipe" in wanted:
        algorithms += ["recipe"]
    for algorithm in algorithms:
        found = ono2020.experiment(algorithm)
        yield from found.tables()
        yield from found.figure_3()
    if "figure2" in wanted:
        yield from ono2020.figure_2()
    if "readings" in wanted:
        yield from ono2020.readings()
