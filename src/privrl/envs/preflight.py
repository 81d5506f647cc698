"""A pre-flight: an environment of Gymnasium's is tried where nobody is, before anybody pays.

While people play, an environment that fails must fail in silence, since an error would tell about
the person with whom it did. One that fails with everybody would then end in a policy that was
learned from nothing, with a certificate. So `run_preflight` plays a few random episodes first, in
another instance: a second one that Gymnasium makes of the same id, or one that the caller gives
(`preflight_env`). Nobody may be in it, since its errors are shown. Who cannot have another instance
waives the pre-flight (`preflight=False`), and the certificate says so.

What is tried: that it resets and steps; that observations are of the space that it declares (a
number of a discrete one, a vector of the right length without NaN and infinities of another); that
actions are numbered; that rewards are finite numbers; that an end is said by true or false.
"""

from contextlib import suppress
from typing import Any, Literal

import numpy as np

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.envs.base import Discrete, Environment
from privrl.envs.host import HostEnvironment
from privrl.envs.registry import make
from privrl.privacy.certificate import Assumption

Outcome = Literal["passed", "waived"]

ASSUMPTIONS: dict[str | None, tuple[Assumption, ...]] = {
    None: (),
    "passed": (
        Assumption(
            "nobody was in the instance of the environment that was tried before the run",
            "not enforced: the caller named an id of which another was made, or gave the instance",
        ),
    ),
    "waived": (
        Assumption(
            "the environment works: episodes in which it fails count as not played, in silence",
            "not enforced: the caller waived the pre-flight",
        ),
    ),
}

# So many episodes are played, of so many steps in all.
_EPISODES, _STEPS = 3, 200


def run_preflight(
    env: Environment[Any, Any] | HostEnvironment,
    *,
    private: bool,
    preflight: bool = True,
    other: Any = None,
    again: bool = False,
) -> Outcome | None:
    """Refuse an environment that does not work; which of `ASSUMPTIONS` a certificate then lists.

    None where there is nothing to try: compiled environments do not fail, and in a run that is not
    `private` errors are shown when they happen. `other` is an instance that nobody is in. A run
    that is gone on with, `again`, had its pre-flight or its waiver, so that it may do without.
    """
    tried = checks.boolean("preflight", preflight)
    if other is not None and not tried:
        raise InputError("preflight_env is for a pre-flight, which you waived: leave one out.")
    if not private or not isinstance(env, HostEnvironment) or not env.is_live:
        return None
    if not tried:
        return "waived"
    if other is not None:
        spare = make(other)
        if not isinstance(spare, HostEnvironment) or _spaces(spare) != _spaces(env):
            raise InputError(
                f"preflight_env must be another instance of {env.name}, with the same spaces."
            )
        if spare.env.unwrapped is env.env.unwrapped:
            raise InputError("preflight_env must be an instance of its own, which nobody is in.")
        try_out(spare)
        return "passed"
    try:
        made = env.second_instance()
    except Exception as problem:  # whatever an environment of the caller's may raise
        if again:
            return None
        raise InputError(
            f"{env.name} could not be made a second time, for its pre-flight: "
            f"{_format_error(problem)}. "
            "Give one with preflight_env, or waive the pre-flight."
        ) from None
    if made is None:
        if again:
            return None
        raise InputError(
            f"{env.name} is tried in another instance before anybody plays, since its errors are "
            "hidden then: give one that nobody is in with preflight_env=..., or waive this with "
            "preflight=False."
        )
    try:
        try_out(made)
    finally:
        with suppress(Exception):
            made.env.close()
    return "passed"


def try_out(env: HostEnvironment) -> None:
    """Play a few random episodes in an environment that nobody is in, or say what went wrong."""
    draw = np.random.default_rng(0)
    taken = 0
    for _ in range(_EPISODES):
        where = "reset"
        try:
            answer = env.env.reset(seed=int(draw.integers(2**31 - 1)))
            _check(isinstance(answer, tuple) and len(answer) == 2, "an observation and a dict")
            _check_observation(env, answer[0])
            over = False
            while not over and taken < _STEPS:
                taken += 1
                where = f"step {taken}"
                action = env._to_action(np.int64(draw.integers(env.num_actions)))
                step: Any = env.env.step(action)
                _check(isinstance(step, tuple) and len(step) == 5, "five things from a step")
                seen, reward, terminated, truncated, _ = step
                _check_observation(env, seen)
                _check(_is_finite(reward), "a reward that is a finite number")
                for flag in (terminated, truncated):
                    _check(isinstance(flag, bool | np.bool_), "true or false for an end")
                over = bool(terminated) or bool(truncated)
        except Exception as problem:  # whatever an environment of the caller's may raise
            raise InputError(
                f"{env.name} does not work, so nobody should play in it: its pre-flight failed at "
                f"its {where} with {_format_error(problem)}."
            ) from None


class _CheckFailed(Exception):  # noqa: N818 (it is said in the middle of a sentence)
    """What is missing."""


def _check(holds: bool, wanted: str) -> None:
    if not holds:
        raise _CheckFailed(f"something else than {wanted}")


def _check_observation(env: HostEnvironment, seen: Any) -> None:
    space, observed = env.env.observation_space, env.observation
    if isinstance(observed, Discrete):
        _check(bool(space.contains(seen)), f"an observation of {space}")
        return
    found = np.asarray(env._to_observation(seen), float)
    _check(found.shape == observed.shape, f"an observation of the shape {observed.shape}")
    _check(bool(np.all(np.isfinite(found))), "a finite observation")


def _is_finite(reward: Any) -> bool:
    try:
        return np.ndim(reward) == 0 and bool(np.isfinite(float(reward)))
    except (TypeError, ValueError, OverflowError):
        return False


def _spaces(env: HostEnvironment) -> tuple[Any, Any]:
    return env.env.observation_space, env.env.action_space


def _format_error(problem: Exception) -> str:
    """An error in one line, without a full stop."""
    if isinstance(problem, _CheckFailed):
        return str(problem)
    return " ".join(f"{type(problem).__name__}, {problem}".split()).rstrip(".,")
