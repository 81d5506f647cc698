"""What private gradient collection learned, and whether scores reached a target."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from privrl.control.promises import HasPromise, Promise, promise_from_dict, promise_to_dict
from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Policy
from privrl.data.policy_json import policy_from_dict
from privrl.privacy.certificate import Claim


def first_success(scores: Any, target: float = 195.0, window: int = 10) -> int | None:
    """After how many reports the mean of the last `window` scores first was at least `target`."""
    values, window = np.ravel(np.asarray(scores, np.float64)), checks.count("window", window)
    if values.size < window:
        return None
    # What is not a number, or no end of it, is no success, and neither are sums that are none.
    with np.errstate(invalid="ignore", over="ignore"):
        means = np.mean(np.lib.stride_tricks.sliding_window_view(values, window), axis=-1)
    met = np.isfinite(means) & (means >= target)
    return int(np.argmax(met)) + window if np.any(met) else None


def is_sustained(scores: Any, target: float = 195.0, window: int = 1000) -> bool:
    """Whether the mean of the last `window` scores is at least `target`."""
    values, window = np.ravel(np.asarray(scores, np.float64)), checks.count("window", window)
    with np.errstate(invalid="ignore", over="ignore"):
        mean = np.mean(values[-window:]) if values.size >= window else np.nan
    return bool(np.isfinite(mean) and mean >= target)


@dataclass(frozen=True, eq=False, repr=False)
class LearnedPGC(HasPromise):
    """A policy that agents trained, and the promise to each of them."""

    KIND: ClassVar[str] = "privrl collected policy"
    SAVED: ClassVar[str] = "what PGC learned"

    promise: Promise
    policy: Policy
    scores: Floats | None = None
    """Of each report's episode, in order; only if they are public."""

    reached: tuple[float, float] | None = None
    """The share of the last agents who reached the target, as far as answers tell, and its standard
    error."""

    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def privacy_statement(self) -> str:
        """In a sentence or two: what is protected, how far, and what is not."""
        if isinstance(self.promise, str):
            return self.promise
        found = self.promise
        if isinstance(found, Claim):
            assert found.certified is not None
            found = found.certified
        count = self.settings["submissions"]
        told = "its report" if count == 1 else f"its {count} reports"
        told += "" if self.settings["target"] is None else " and what it answers"
        shown = (
            "" if self.scores is None else " Scores and lengths of episodes were declared public."
        )
        opened = "; not protected is when it reports" if self.settings["timing"] == "open" else ""
        begin = "Protected is"
        if self.settings["seed"] is not None:
            begin = "With secret noise, and not from a seed, protected would be"
        return (
            f"{begin} each agent, with all that it saw and did, against whoever collects {told}, "
            f"with epsilon {found.epsilon:.4g}{opened}.{shown}"
        )

    def first_success(self, target: float = 195.0, window: int = 10) -> int | None:
        """After how many reports the mean of the last `window` scores first was at least `target`;
        None if never."""
        return first_success(self._public_scores, target, window)

    def is_sustained(self, target: float = 195.0, window: int = 1000) -> bool:
        """Whether the mean of the last `window` scores is at least `target`."""
        return is_sustained(self._public_scores, target, window)

    @property
    def _public_scores(self) -> Floats:
        if self.scores is None:
            raise InputError("Scores were not kept: they are about agents, unless public=True.")
        return self.scores

    def _to_json(self) -> dict[str, Any]:
        scores = self.scores
        return {
            "promise": promise_to_dict(self.promise),
            "policy": self.policy.to_dict(),
            # JSON has no infinities, which rewards may add up to.
            "scores": None
            if scores is None
            else [x if math.isfinite(x) else None for x in scores.tolist()],
            "reached": None if self.reached is None else list(self.reached),
            "settings": dict(self.settings),
        }

    @classmethod
    def _from_json(cls, data: Mapping[str, Any]) -> Self:
        scores, reached = data["scores"], data["reached"]
        missing = {"submissions", "target", "timing", "seed"} - set(data["settings"])
        if missing or np.ndim([] if scores is None else scores) != 1:
            raise ValueError
        return cls(
            promise=promise_from_dict(data["promise"]),
            policy=policy_from_dict(data["policy"]),
            scores=None if scores is None else np.array(scores, np.float64),
            reached=None if reached is None else (float(reached[0]), float(reached[1])),
            settings=dict(data["settings"]),
        )
