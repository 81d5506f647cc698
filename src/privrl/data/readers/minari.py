"""Trajectories from Minari data sets."""

from typing import Any

import numpy as np

from privrl.core.errors import InputError
from privrl.core.types import AnyArray
from privrl.data.readers.arrays import from_arrays
from privrl.data.sources import first_line
from privrl.data.trajectories import Note, Trajectories


def from_minari(
    dataset: Any, behavior_prob: str | None, num_states: int | None, num_actions: int | None
) -> Trajectories:
    """Observations have one entry more than actions: the last is the final state."""
    if isinstance(dataset, str):
        try:
            import minari
        except ImportError:
            raise InputError(
                "Reading a Minari data set by name needs Minari: pip install 'privrl[minari]'."
            ) from None
        try:
            dataset = minari.load_dataset(dataset)
        except (FileNotFoundError, ValueError) as error:
            raise InputError(f"Minari cannot load the data set: {first_line(error)}.") from None
    if not hasattr(dataset, "iterate_episodes"):
        raise InputError(f"A {type(dataset).__name__} is not a Minari data set or the name of one.")
    parts: dict[str, list[AnyArray]] = {}
    for position, episode in enumerate(dataset.iterate_episodes()):
        where = f"Minari episode {position} (counting from 0)"
        steps = len(episode.rewards)
        if steps == 0:
            raise InputError(f"{where} is empty.")
        if isinstance(episode.observations, dict | tuple) or isinstance(
            episode.actions, dict | tuple
        ):
            raise InputError(
                f"{where}: observations and actions must be arrays, not compound spaces."
            )
        observations = np.asarray(episode.observations)
        if len(observations) != steps + 1:
            raise InputError(f"{where} has {len(observations)} observations for {steps} steps.")
        for flag in (episode.terminations, episode.truncations):
            if np.any(np.asarray(flag)[:-1]):
                raise InputError(f"{where} goes on after it ended.")
        row: dict[str, Any] = {
            "states": _flat(observations[:-1]),
            "actions": _flat(np.asarray(episode.actions)),
            "rewards": np.asarray(episode.rewards, dtype=np.float64),
            "lengths": np.array([steps]),
            "trajectory_ids": np.array([episode.id]),
            "terminated": np.asarray(episode.terminations, dtype=bool)[-1:],
            "truncated": np.asarray(episode.truncations, dtype=bool)[-1:],
            "final_states": _flat(observations[-1:]),
        }
        if behavior_prob is not None:
            infos = episode.infos or {}
            if behavior_prob not in infos:
                raise InputError(f"{where} has no {behavior_prob!r} in its infos.")
            # Minari keeps infos of the reset too: with one entry more, the first is dropped.
            try:
                logged = np.asarray(infos[behavior_prob], dtype=np.float64).ravel()
            except (TypeError, ValueError):
                raise InputError(f"{where}: {behavior_prob!r} must be numbers.") from None
            if len(logged) not in (steps, steps + 1):
                raise InputError(f"{where} has {len(logged)} {behavior_prob!r} for {steps} steps.")
            row["behavior_probs"] = logged[-steps:]
        for name, values in row.items():
            parts.setdefault(name, []).append(values)
    if not parts:
        raise InputError("The Minari data set has no episodes.")
    for name in ("states", "actions"):
        if len({p.shape[1:] for p in parts[name]}) > 1:
            raise InputError(f"The Minari data set mixes {name} of different dimensions.")
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in parts.items()}
    joined |= {"num_states": num_states, "num_actions": num_actions}
    states, actions, rewards = (joined.pop(name) for name in ("states", "actions", "rewards"))
    data = from_arrays(states, actions, rewards, joined)
    return data.with_notes(Note("origin", "from a Minari data set"))


def _flat(values: AnyArray) -> AnyArray:
    """One row for each step, whatever the shape of an observation."""
    return values if values.ndim == 1 else values.reshape(len(values), -1)
