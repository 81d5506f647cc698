"""A made-up HIV clinic, to try things on: patients whose doctors vary their prescriptions.

Patients of `privrl.envs.HIV` arrive untreated, each with rates of their own. Every five days,
twelve times, a doctor sees the viral load and the immune response (decimal logarithms) and
prescribes none, one or both of two drugs; how likely each choice was is on record. The reward of a
decision is 1 if the virus is suppressed (below 1,000 copies) five days later, less 0.1 for each
drug taken.

The protocol to be judged prescribes both drugs more often while there is much virus, and one drug
more often once there is little.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from privrl.core import checks, files
from privrl.core.errors import InputError
from privrl.data import Polynomial, Softmax, Trajectories

_MOST_PEOPLE = 200_000

DECISIONS = 12
ACTIONS = ("none", "RTI", "PI", "both")
STATE = ("decision", "log_virus", "log_immune")
LOW, HIGH = (0.0, -5.0, 0.5), (11.0, 6.5, 6.0)
START = (0.0, 4.81, 1.38)
REWARD_RANGE = (-0.2, 1.0)
SUPPRESSED = 3.0
PER_DRUG = 0.1

_BASIS = Polynomial(1, LOW, HIGH)
_VIRUS = 1 + STATE.index("log_virus")


def _policy(constant: tuple[float, ...], by_virus: tuple[float, ...]) -> Softmax:
    weights = np.zeros((_BASIS.dimension, len(ACTIONS)))
    weights[0] = constant
    weights[_VIRUS] = by_virus
    return Softmax(_BASIS, weights)


def doctors() -> Softmax:
    """How doctors prescribe."""
    return _policy((0.0, 0.3, 0.0, 0.5), (0.0, 0.0, 0.0, 0.4))


def protocol() -> Softmax:
    """The protocol to be judged."""
    return _policy((-0.1, 0.45, -0.35, 0.6), (0.0, -0.3, 0.0, 0.7))


def clinic(people: int, seed: int, policy: Softmax | None = None) -> Trajectories:
    """`people` courses of treatment, a patient each, as `policy` or else the doctors prescribe."""
    import jax
    import jax.numpy as jnp

    from privrl.envs import HIV

    env, acting = HIV(), policy or doctors()
    who, when = jax.random.split(jax.random.key(seed))
    patients = env.patients(who, people, 0.15)
    drugs = jnp.array([0.0, 1.0, 1.0, 2.0])

    def to_state(time: jax.Array, observation: jax.Array) -> jax.Array:
        return jnp.stack([time.astype(observation.dtype), observation[4], observation[5]])

    def course(key: jax.Array, patient: Any, weights: jax.Array) -> Any:
        state, observation = env.reset(key, patient)

        def decide(now: Any, drawn: Any) -> Any:
            state, observation = now
            time, key = drawn
            probs = jax.nn.softmax(_BASIS(to_state(time, observation)[None])[0] @ weights)
            action = jax.random.choice(key, len(ACTIONS), p=probs)
            after = env.step(key, state, action, patient)
            reward = (after.observation[4] < SUPPRESSED) - PER_DRUG * drugs[action]
            row = (to_state(time, observation), action, probs[action], reward)
            return (after.state, after.observation), row

        draws = (jnp.arange(DECISIONS), jax.random.split(key, DECISIONS))
        return jax.lax.scan(decide, (state, observation), draws)[1]

    keys = jax.random.split(when, people)
    played = jax.jit(jax.vmap(course, in_axes=(0, 0, None)))
    found = played(keys, patients, jnp.asarray(acting.weights))
    states, actions, probs, rewards = (np.asarray(one) for one in found)
    rows = people * DECISIONS
    return Trajectories.from_arrays(
        states.reshape(rows, -1).astype(np.float64),
        np.array(ACTIONS)[actions.reshape(rows)],
        rewards.reshape(rows).astype(np.float64),
        lengths=np.full(people, DECISIONS),
        users=np.arange(people),
        behavior_probs=np.minimum(probs.reshape(rows).astype(np.float64), 1.0),
        terminated=np.ones(people, dtype=bool),
        action_vocabulary=ACTIONS,
    )


def write(folder: Path, people: int, seed: int) -> dict[str, Any]:
    """Put stays.parquet and policy.json into `folder`; what `privrl evaluate` must be told."""
    checks.count("seed", seed, least=0)
    if checks.count("people", people) > _MOST_PEOPLE:
        raise InputError(
            f"must be at most {_MOST_PEOPLE:,}: all of them are simulated at once, a "
            "kilobyte each and more.",
            field="people",
        )
    try:
        str(folder).encode()
    except UnicodeEncodeError:
        raise InputError(f"{str(folder)!r} is no text: say another name for the folder.") from None
    with files.create_folder(folder):
        data = clinic(people, seed)
    table, policy = folder / "stays.parquet", folder / "policy.json"
    rows: Any = {
        "patient": np.repeat(np.asarray(data.users), DECISIONS),
        **{name: data.states[:, k] for k, name in enumerate(STATE)},
        "prescribed": np.array(ACTIONS)[data.actions],
        "probability": data.behavior_probs,
        "reward": data.rewards,
    }
    pq.write_table(pa.table(rows), table)
    protocol().save(policy)
    ranges = zip(LOW, HIGH, strict=True)
    return {
        "table": (str(table),),
        "policy": str(policy),
        "trajectory": "patient",
        "user": "patient",
        "time": "decision",
        "state": ",".join(STATE),
        "action": "prescribed",
        "reward": "reward",
        "behavior_prob": "probability",
        "terminated": "true",
        "actions": ",".join(ACTIONS),
        "reward_range": ",".join(f"{end:g}" for end in REWARD_RANGE),
        "horizon": DECISIONS,
        "weight_cap": 5.0,
        "state_range": ",".join(f"{low:g}:{high:g}" for low, high in ranges),
        "start": ":".join(f"{x:g}" for x in START),
        "epsilon": 1.0,
        "delta": 1e-6,
        "policy_source": "independent",
        "behavior_source": "logged",
        "title": "Is the new HIV protocol better?",
        "target_name": "new protocol",
        "behavior_name": "the doctors",
    }
