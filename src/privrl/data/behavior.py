"""Behaviour probabilities that were not logged, estimated from the data they are needed for.

- *counts*: (N(s, a) + smoothing) / (N(s) + smoothing A), for discrete states and actions;
- *logistic*: multinomial logistic regression on the states, or on features of them, mixed with a
  share `smoothing` of the uniform distribution.

Either fit looks at every trajectory, and every probability of it then depends on all people. A
certificate that treats those probabilities as each person's own is wrong: the estimate must be paid
for (release the counts or the weights through a mechanism, and hand over the resulting policy by
`Trajectories.with_behavior`), or the data declared public. What comes out of here says which.
"""

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data.features import Features, OneHot
from privrl.data.policies import softmax
from privrl.data.trajectories import Behavior, Note

if TYPE_CHECKING:
    from privrl.data.trajectories import Trajectories


# No logged action is given a probability below this, so that weights stay finite.
FLOOR = 1e-12
# Penalty on squared weights, per row: it keeps separable data from sending weights to infinity.
RIDGE = 1e-4


class PrivateEstimate(UserWarning):
    """Probabilities were fitted to private data without paying for it."""


def estimate_behavior(
    data: "Trajectories",
    method: str,
    smoothing: float | None,
    features: Features | None,
    public: bool,
    overwrite: bool,
) -> "Trajectories":
    """`data` with estimated behaviour probabilities; see `Trajectories.with_estimated_behavior`."""
    if data.behavior_probs is not None and not overwrite:
        raise InputError(
            "The data has behaviour probabilities already: pass overwrite=True to replace them."
        )
    public = checks.boolean("public", public)
    if not data.discrete_actions:
        raise InputError("Behaviour can be estimated for discrete actions only.")
    if data.num_actions is None:
        raise InputError("num_actions is needed: say, when loading, how many actions there are.")
    checks.choice("method", method, ("counts", "logistic"))
    if method == "counts":
        probabilities = _counts(data, 1.0 if smoothing is None else smoothing)
    else:
        probabilities = _logistic(data, 0.01 if smoothing is None else smoothing, features)
    behavior = Behavior("estimated", method, public)
    if not public:
        warnings.warn(f"{behavior}: no certificate covers them.", PrivateEstimate, stacklevel=3)
    note = Note("origin" if public else "private", str(behavior))
    clipped = np.clip(probabilities, FLOOR, 1.0)
    return data._with_behavior_probs(clipped, behavior, note)


def _counts(data: "Trajectories", smoothing: float) -> Floats:
    smoothing = checks.non_negative("smoothing", smoothing)
    if not data.discrete_states or data.num_states is None:
        raise InputError(
            "method='counts' needs discrete states and num_states: use 'logistic' for vectors."
        )
    assert data.num_actions is not None
    cell = data.states.astype(np.int64) * data.num_actions + data.actions
    # Only cells that occur are kept: a table of all of them may not fit into memory.
    _, where, times = np.unique(cell, return_inverse=True, return_counts=True)
    _, at, visits = np.unique(data.states, return_inverse=True, return_counts=True)
    found: Floats = (times[where] + smoothing) / (visits[at] + smoothing * data.num_actions)
    return found


def _logistic(data: "Trajectories", smoothing: float, features: Features | None) -> Floats:
    from scipy.optimize import minimize

    smoothing = checks.probability("smoothing", smoothing)
    assert data.num_actions is not None
    n, actions = data.num_steps, data.num_actions
    x: Any
    if features is not None:
        x = np.asarray(features(data.states), dtype=np.float64)
    elif data.discrete_states:
        if data.num_states is None:
            raise InputError("num_states is needed: say, when loading, how many states there are.")
        x = OneHot(data.num_states)(data.states)
    else:
        # Divided by the largest first: the square of 1e200 is no number.
        largest = np.abs(data.states).max(axis=0)
        x = data.states / np.where(largest > 0, largest, 1.0)
        spread = x.std(axis=0)
        x = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    x = np.hstack([x, np.ones((n, 1))])
    taken = np.zeros((n, actions))
    taken[np.arange(n), data.actions] = 1.0

    def loss(flat: Floats) -> tuple[float, Floats]:
        w = flat.reshape(-1, actions)
        scores = x @ w
        scores -= scores.max(axis=1, keepdims=True)
        raised = np.exp(scores)
        p = raised / raised.sum(axis=1, keepdims=True)
        value = -np.mean(np.sum(taken * (scores - np.log(raised.sum(1, keepdims=True))), axis=1))
        gradient = x.T @ (p - taken) / n + RIDGE * w
        return float(value + 0.5 * RIDGE * np.sum(w * w)), gradient.ravel()

    fit = minimize(loss, np.zeros(x.shape[1] * actions), jac=True, method="L-BFGS-B")
    p = softmax(np, x @ np.asarray(fit.x).reshape(-1, actions))
    mixed: Floats = (1.0 - smoothing) * p[np.arange(n), data.actions] + smoothing / actions
    return mixed
