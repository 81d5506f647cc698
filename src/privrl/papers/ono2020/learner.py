"""PGC-A3C, private gradient collection as printed: the fast version of `algorithm`.

Losses as `privrl.control.pgc.losses` reads them, greedy actions with exploration that ends, a
critic, and plain gradient descent on the mean of a buffer. The noise of the paper is sound, so the
result has the paper's claim, and the certificate of the run inside it.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from privrl.control.pgc.learner import Collector
from privrl.control.pgc.privatiser import Privatiser
from privrl.control.pgc.reports import Arm
from privrl.control.pgc.spec import Mechanism
from privrl.control.promises import Promise
from privrl.papers.ono2020.spec import PGCSpec
from privrl.privacy import claims
from privrl.privacy.certificate import Certificate

# No gradient is longer than this.
_ANY_NORM = 1e100
# C for each mechanism, and how many reports make an update.
_CLIP: dict[Mechanism | None, float] = {"laplace": 0.01, "sign": 1.0, None: 2.0 * _ANY_NORM}
_BUFFER: dict[Mechanism | None, int] = {"laplace": 1, "sign": 100, None: 1}


@dataclass(frozen=True)
class PGC(PGCSpec, Collector):
    """PGC-A3C with the Laplace mechanism or projected random signs."""

    CRITIC: ClassVar[bool] = True

    @property
    def _clip_bound(self) -> float:
        return _CLIP[self.mechanism] if self.clip is None else self.clip

    @property
    def _privatiser_options(self) -> dict[str, Any]:
        if self.mechanism == "laplace":
            return {"norm": "clip", "radius": self._clip_bound / 2.0}
        return {"norm": "clip", "clip": self._clip_bound, "debias": False}

    @property
    def _noiseless_arm(self) -> Arm:
        return Arm(None, "clip", self._clip_bound / 2.0)

    def _defaults(self, dimension: int) -> dict[str, float]:
        buffer = float(_BUFFER[self.mechanism])
        return {"rate": 0.5, "buffer": buffer, "decay": 0.0, "value_weight": 0.5, "entropy": 0.01}

    def _promise_of(self, certificate: Certificate, privatiser: Privatiser) -> Promise:
        each = privatiser.report_epsilon
        claim = (
            claims.ono2020_laplace(each, self._clip_bound, self.submissions)
            if self.mechanism == "laplace"
            else claims.ono2020_sign(each, privatiser.dimension, self.submissions)
        )
        covers = "It is for all that one agent sends in this run."
        return replace(claim, certified=certificate, covers=covers)

    def _settings_dict(self, program: Any) -> dict[str, Any]:
        return {
            **super()._settings_dict(program),
            "clip": self._clip_bound if self.mechanism else self.clip,
        }
