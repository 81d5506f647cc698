"""Xie, Thomas and Miklau (2019): privacy preserving off-policy evaluation.

Read in this order: `algorithm` (GPOPE, Algorithm 1, line by line), `gpope` (the fast version, with
the paper's claim), `output_perturbation` (DP-LSW and DP-LSL, what it is compared with), `chain` and
`control` (its tasks: the chain, mountain car and HIV), `lanes` (GPOPE for many settings at once),
and `trials`, which runs all of them beside the certified estimators of `privrl.evaluation` for the
targets in `targets`.

`GPOPE` yields the paper's claim. The published constants of `DPLSW` and `DPLSL` are valid, so these
two yield certificates.

    privrl reproduce xie2019
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
