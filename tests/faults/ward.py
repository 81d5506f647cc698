"""People, for all that anybody knows."""

from typing import Any

import gymnasium
from gymnasium import spaces


class Ward(gymnasium.Env[int, int]):
    """One decision for each of them."""

    observation_space: Any = spaces.Discrete(2)
    action_space: Any = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        return 0, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        return 1, float(action), True, False, {}
