"""Environments as pure functions, exact answers for those with tables, and Gymnasium both ways.

>>> from privrl.envs import Chain
>>> round(Chain().start_value(Chain().uniform(), 0.99), 4)
0.6944

Importing this registers `privrl/<Name>-v0` with Gymnasium; JAX loads when an environment is used.
"""

from typing import TYPE_CHECKING

import gymnasium

from privrl.core.lazy import lazy

if TYPE_CHECKING:
    from privrl.envs.base import (
        Box,
        Carry,
        Discrete,
        Environment,
        EnvState,
        Episodes,
        Policy,
        Step,
        Transitions,
        begin,
        episodes,
        random_policy,
        rollout,
        table_policy,
    )
    from privrl.envs.chain import MDP100, Chain
    from privrl.envs.control import (
        CartPole,
        CartPoleParams,
        Interval,
        IntervalParams,
        MountainCar,
        MountainCarParams,
    )
    from privrl.envs.grid import ObstacleGrid
    from privrl.envs.hiv import HIV, HIVParams
    from privrl.envs.host import GymnasiumEnv, HostEnvironment, collect, from_gymnasium
    from privrl.envs.registry import make
    from privrl.envs.square import ObstacleSquare
    from privrl.envs.tabular import Solution, TableParams, Tables, TabularMDP
    from privrl.envs.taxi import Taxi

_HOMES = {
    "base": (
        *("Box", "Carry", "Discrete", "Environment", "Episodes", "Policy", "EnvState", "Step"),
        *("Transitions", "begin", "episodes", "random_policy", "rollout", "table_policy"),
    ),
    "chain": ("MDP100", "Chain"),
    "control": (
        *("CartPole", "CartPoleParams", "Interval", "IntervalParams"),
        *("MountainCar", "MountainCarParams"),
    ),
    "grid": ("ObstacleGrid",),
    "hiv": ("HIV", "HIVParams"),
    "host": ("GymnasiumEnv", "HostEnvironment", "collect", "from_gymnasium"),
    "registry": ("make",),
    "square": ("ObstacleSquare",),
    "tabular": ("Solution", "TableParams", "Tables", "TabularMDP"),
    "taxi": ("Taxi",),
}

__all__ = [
    "HIV",
    "MDP100",
    "Box",
    "Carry",
    "CartPole",
    "CartPoleParams",
    "Chain",
    "Discrete",
    "EnvState",
    "Environment",
    "Episodes",
    "GymnasiumEnv",
    "HIVParams",
    "HostEnvironment",
    "Interval",
    "IntervalParams",
    "MountainCar",
    "MountainCarParams",
    "ObstacleGrid",
    "ObstacleSquare",
    "Policy",
    "Solution",
    "Step",
    "TableParams",
    "Tables",
    "TabularMDP",
    "Taxi",
    "Transitions",
    "begin",
    "collect",
    "episodes",
    "from_gymnasium",
    "make",
    "random_policy",
    "register",
    "rollout",
    "table_policy",
]

NAMES = (
    *("Chain", "MDP100", "Taxi", "MountainCar", "CartPole", "HIV"),
    *("ObstacleGrid", "ObstacleSquare", "Interval"),
)


__getattr__ = lazy(__name__, _HOMES)


def register() -> None:
    """Make `privrl/<Name>-v0` known to Gymnasium; doing so again changes nothing."""
    for name in NAMES:
        identifier = f"privrl/{name}-v0"
        if identifier not in gymnasium.registry:
            gymnasium.register(
                identifier,
                entry_point="privrl.envs.registry:gymnasium_entry",
                kwargs={"name": name},
            )


register()
