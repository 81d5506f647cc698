"""Xie, Thomas and Miklau (2019): privacy preserving off-policy evaluation.

Read in this order: `algorithm` (GPOPE, Algorithm 1, line by line), `gpope` (the fast version, with
the paper's claim), `output_perturbation` (DP-LSW and DP-LSL, what it is compared with), `chain`
(section 6.1) and `control` (mountain car and HIV, figures 2 to 4), which run all of them beside the
certified estimators of `privrl.evaluation`.

`GPOPE` yields the paper's claim. The published constants of `DPLSW` and `DPLSL` are valid, so these
two yield certificates.

    PRIVRL_XIE2019=chain python -m benchmarks xie2019
    PRIVRL_XIE2019=control python -m benchmarks xie2019
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.papers.xie2019.gpope import GPOPE, lemma1_sigma
    from privrl.papers.xie2019.output_perturbation import DPLSL, DPLSW

__all__ = ["DPLSL", "DPLSW", "GPOPE", "lemma1_sigma"]

__getattr__ = lazy(
    __name__, {"gpope": ("GPOPE", "lemma1_sigma"), "output_perturbation": ("DPLSL", "DPLSW")}
)
