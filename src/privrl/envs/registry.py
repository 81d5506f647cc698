"""Environments by name: ours, and Gymnasium's under the names they have or had."""

import warnings
from dataclasses import fields
from typing import Any

import gymnasium

from privrl.core import files
from privrl.core.errors import InputError
from privrl.envs.base import Environment
from privrl.envs.chain import MDP100, Chain
from privrl.envs.control import CartPole, Interval, MountainCar
from privrl.envs.grid import ObstacleGrid
from privrl.envs.hiv import HIV
from privrl.envs.host import GymnasiumEnv, HostEnvironment, from_gymnasium
from privrl.envs.square import ObstacleSquare
from privrl.envs.taxi import Taxi

_KINDS: tuple[Any, ...] = (
    *(Chain, MDP100, Taxi, MountainCar, CartPole, HIV),
    *(ObstacleGrid, ObstacleSquare, Interval),
)
BUILTIN = {kind.__name__: kind for kind in _KINDS}

# As seo2020 spells it.
ALIASES = {"MDP-100": "MDP100"}

# Gymnasium's ids whose dynamics ours reproduce, whether or not the installed version knows them.
GYMNASIUM_EQUIVALENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Taxi-v4": ("Taxi", {}),
    "Taxi-v3": ("Taxi", {}),
    "Taxi-v2": ("Taxi", {"legacy_map": True}),
    "CartPole-v0": ("CartPole", {"step_limit": 200}),
    "CartPole-v1": ("CartPole", {"step_limit": 500}),
    "MountainCar-v0": ("MountainCar", {}),
}


def make(
    env: "str | Environment[Any, Any] | HostEnvironment | gymnasium.Env[Any, Any]", **options: Any
) -> "Environment[Any, Any] | HostEnvironment":
    """An environment from its name (`Chain`, `privrl/Chain-v0`, `Taxi-v4`, `FrozenLake-v1`, ...).

    Options go to the environment. Environments of Gymnasium's become tables if they have any, and
    run on the host otherwise; environments of ours come back as they are.
    """
    if not isinstance(env, str):
        if options:
            raise InputError("options belong to names: this environment has been made already.")
        if isinstance(env, Environment | HostEnvironment):
            return env
        if isinstance(env, gymnasium.Env):
            return from_gymnasium(env)
        raise InputError(f"{env!r} is neither an environment nor the name of one.")
    ours = _find_builtin(env)
    if ours is not None:
        name, settings = ours
        known = {field.name for field in fields(BUILTIN[name])}
        if set(options) <= known:
            made: Environment[Any, Any] = BUILTIN[name](**{**settings, **options})
            return made
        # An option that only Gymnasium's has, such as `is_rainy`, under the name it has there.
        same = [
            k for k, v in GYMNASIUM_EQUIVALENTS.items() if v == ours and k in gymnasium.registry
        ]
        if env not in GYMNASIUM_EQUIVALENTS or not same:
            raise InputError(
                f"{name} does not take {_format_options(sorted(set(options) - known))}."
            )
        return _make_gymnasium(same[0], options)
    return _make_gymnasium(env, options)


def gymnasium_entry(
    name: str, render_mode: str | None = None, params: Any = None, **options: Any
) -> GymnasiumEnv:
    """What Gymnasium calls for `privrl/<name>-v0`."""
    made = make(name, **options)
    assert isinstance(made, Environment)
    return GymnasiumEnv(made, params, render_mode)


def is_builtin(name: str) -> bool:
    """Whether `make` gives one of this package's environments, whose constants are public."""
    return _find_builtin(name) is not None


def _find_builtin(name: str) -> tuple[str, dict[str, Any]] | None:
    if name in GYMNASIUM_EQUIVALENTS:
        return GYMNASIUM_EQUIVALENTS[name]
    space, _, rest = name.partition("/")
    bare = rest.removesuffix("-v0") if space in files.PACKAGE_NAMES else name
    bare = ALIASES.get(bare, bare)
    return (bare, {}) if bare in BUILTIN else None


def _unknown_error(name: str) -> InputError:
    return InputError(
        f"There is no environment {name!r}: use {', '.join(BUILTIN)}, or an id that Gymnasium "
        "knows."
    )


def _make_gymnasium(
    name: str, options: dict[str, Any]
) -> "Environment[Any, Any] | HostEnvironment":
    if name.count(":") > 1:  # It is module:Id, and Gymnasium takes the colon apart unseen.
        raise _unknown_error(name)
    try:
        with warnings.catch_warnings():
            # An old but working id is what the caller asked for.
            warnings.filterwarnings("ignore", message=".*is out of date.*")
            return from_gymnasium(gymnasium.make(name, **options))
    except (gymnasium.error.UnregisteredEnv, gymnasium.error.DeprecatedEnv):
        raise _unknown_error(name) from None
    except InputError:
        raise
    # Whatever an environment of somebody else's makes of its options is not ours to list.
    except Exception as problem:
        reason = " ".join(f"{type(problem).__name__}, {problem}".split()).rstrip(".")
        raise InputError(f"Gymnasium could not make {name!r}: {reason}.") from None


def _format_options(options: list[str]) -> str:
    return f"the option{'s' if len(options) > 1 else ''} {', '.join(map(repr, options))}"
