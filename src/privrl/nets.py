"""What networks are made of: the multilayer perceptron and optimisers, for NumPy and for JAX.

A learner's network with its parameters in one vector is `privrl.control.heads.Layers`; the network
of PGC (`privrl.control.pgc.losses.Model`) has no biases, shares layers between actor and critic,
and keeps many networks side by side, so that it has a forward pass of its own.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

ACTIVATIONS = ("relu", "tanh")

# Of the first and second moment, and what keeps the denominator from 0 (Kingma and Ba 2015).
_ADAM = (0.9, 0.999, 1e-8)
_RMSPROP_DECAY = 0.99


def mlp(layers: Iterable[tuple[Any, Any]], x: Any, activation: str) -> Any:
    """The multilayer perceptron x W_1 + b_1, act(.) W_2 + b_2, ..., without act at the end.

    Args:
        layers: pairs of weights (in, out) and biases (out,).
        x: (n, in), of NumPy's or JAX's; all that is computed has its type.
        activation: "relu" or "tanh".
    """
    xp = x.__array_namespace__()
    for number, (weights, biases) in enumerate(layers):
        if number:
            x = xp.tanh(x) if activation == "tanh" else _relu(x)
        x = x @ xp.asarray(weights, dtype=x.dtype) + xp.asarray(biases, dtype=x.dtype)
    return x


def _relu(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np.maximum(x, 0.0)
    import jax  # the gradient at 0 is 0 there, rather than a half

    return jax.nn.relu(x)


def adam(mean: Any, moments: Any, count: Any) -> tuple[Any, Any]:
    """Adam's direction (Kingma and Ba 2015) and its moments, the `count`th time.

    Ours, since the aggregator of a fleet runs without JAX and must come to what JAX comes to.
    """
    xp = mean.__array_namespace__()
    first, second, tiny = _ADAM
    m = first * moments[0] + (1.0 - first) * mean
    v = second * moments[1] + (1.0 - second) * mean**2
    direction = (m / (1.0 - first**count)) / (xp.sqrt(v / (1.0 - second**count)) + tiny)
    return direction, xp.stack([m, v])


def rmsprop(mean: Any, moments: Any, count: Any) -> tuple[Any, Any]:
    """RMSprop's direction (Tieleman and Hinton 2012) and its moments, the `count`th time.

    As TensorFlow 1 has it: the mean square begins with 1, and 1e-10 is added within the root. The
    decay is 0.99. The moments are zeros at first, as those of `adam`; the first of them stay so.
    """
    xp = mean.__array_namespace__()
    v = _RMSPROP_DECAY * moments[1] + (1.0 - _RMSPROP_DECAY) * mean**2
    square = v + _RMSPROP_DECAY**count  # what is left of the 1
    return mean / xp.sqrt(square + 1e-10), xp.stack([moments[0], v])
