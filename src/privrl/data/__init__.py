"""Trajectories in from anything; features with proven bounds; policies.

>>> import numpy as np
>>> from privrl.data import Trajectories
>>> Trajectories.from_arrays([0, 1, 1], [1, 0, 1], [0.0, 1.0, 0.5], lengths=[2, 1])
Trajectories(2 trajectories, 3 steps)
"""

from typing import TYPE_CHECKING

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.data.behavior import PrivateEstimate
    from privrl.data.collection import collect
    from privrl.data.columns import Columns, Facts, NullRule
    from privrl.data.composed import Cells, ConcatFeatures, CosineProducts, NetworkOutputs
    from privrl.data.features import (
        Features,
        Fourier,
        FunctionFeatures,
        OneHot,
        Polynomial,
        Radial,
        RandomFourier,
        features_from_dict,
    )
    from privrl.data.policies import (
        EpsilonGreedy,
        FunctionPolicy,
        Network,
        Policy,
        Softmax,
        Tabular,
    )
    from privrl.data.policy_json import load_policy, policy_from_dict, policy_from_json
    from privrl.data.stream import Totals, TrajectoryStream, stream_parquet
    from privrl.data.trajectories import Behavior, Note, Trajectories
    from privrl.data.views import Padded, Trajectory, Transitions

_HOMES = {
    "behavior": ("PrivateEstimate",),
    "collection": ("collect",),
    "columns": ("Columns", "Facts", "NullRule"),
    "composed": ("Cells", "ConcatFeatures", "CosineProducts", "NetworkOutputs"),
    "features": (
        "Features",
        "Fourier",
        "FunctionFeatures",
        "OneHot",
        "Polynomial",
        "Radial",
        "RandomFourier",
        "features_from_dict",
    ),
    "policies": ("EpsilonGreedy", "FunctionPolicy", "Network", "Policy", "Softmax", "Tabular"),
    "policy_json": ("load_policy", "policy_from_dict", "policy_from_json"),
    "stream": ("Totals", "TrajectoryStream", "stream_parquet"),
    "trajectories": ("Behavior", "Note", "Trajectories"),
    "views": ("Padded", "Trajectory", "Transitions"),
}

__all__ = [
    "Behavior",
    "Cells",
    "Columns",
    "ConcatFeatures",
    "CosineProducts",
    "EpsilonGreedy",
    "Facts",
    "Features",
    "Fourier",
    "FunctionFeatures",
    "FunctionPolicy",
    "Network",
    "NetworkOutputs",
    "Note",
    "NullRule",
    "OneHot",
    "Padded",
    "Policy",
    "Polynomial",
    "PrivateEstimate",
    "Radial",
    "RandomFourier",
    "Softmax",
    "Tabular",
    "Totals",
    "Trajectories",
    "Trajectory",
    "TrajectoryStream",
    "Transitions",
    "collect",
    "features_from_dict",
    "load_policy",
    "policy_from_dict",
    "policy_from_json",
    "stream_parquet",
]


__getattr__ = lazy(__name__, _HOMES)
