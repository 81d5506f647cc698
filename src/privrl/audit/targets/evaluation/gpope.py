"""GPOPE (Xie et al. 2019) under attack."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy import sparse

from privrl.audit.attacks import Outputs, evidence
from privrl.audit.auditor import Target
from privrl.audit.catalogue import target
from privrl.audit.targets.evaluation.fits import RARE_PROBABILITY, cohort, fit_target
from privrl.audit.targets.whole_runs import BUDGET
from privrl.core.types import Array
from privrl.data import OneHot, Tabular, Trajectories
from privrl.evaluation import gpope as gpope_module
from privrl.evaluation.bellman_error import UnitMoments
from privrl.evaluation.gpope import GPOPE
from privrl.privacy.events import ApproxDP
from privrl.privacy.mechanisms import clip
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation


@contextmanager
def _record_states(programs: dict[Any, Any]) -> Iterator[list[Array]]:
    """Every (theta, w) of compiled runs, which give away the last theta only.

    While this lasts the loop's second result, the sum of the thetas that are averaged, is all
    states in a row. `programs` are those compiled for it.
    """
    import jax
    import jax.numpy as jnp

    scan, run, seen = jax.lax.scan, GPOPE._run, list[Array]()
    made = gpope_module._program
    make = getattr(made, "__wrapped__", made)

    def scan_states(body: Any, begin: Any, xs: Any) -> Any:
        def emit_state(carry: Any, x: Any) -> Any:
            after, _ = body(carry, x)
            return after, after[0]

        (last, _), states = scan(emit_state, begin, xs)
        return (last, jnp.ravel(states)), None

    def program(*key: Any) -> Any:
        if key not in programs:
            programs[key] = make(*key)
        return programs[key]

    def run_recording(self: GPOPE, units: Any, *given: Any) -> Any:
        with (
            patch.object(jax.lax, "scan", scan_states),
            patch.object(gpope_module, "_program", program),
        ):
            states = run(self, units, *given)
        times = self.iterations or units.count
        # Of the first step size.
        found = np.reshape(states[:, 0], (len(states), times, 2 * units.dimension))
        seen.append(found)
        return found[:, -1:, : units.dimension]

    with patch.object(GPOPE, "_run", run_recording):
        yield seen


_POLICY = Tabular.uniform(1, 2)


def _one_state(world: int, people: int) -> Trajectories:
    """One state, one step; rewards beside which all else is small, of the last person too."""
    rewards = np.full(people, -1000.0)
    rewards[-1] = 1000.0 if world else -1000.0
    zeros = np.zeros(people, dtype=np.int64)
    return cohort(zeros, zeros, rewards, num_states=1, behavior=np.full(people, RARE_PROBABILITY))


def _gpope(budget: Budget, iterations: int) -> GPOPE:
    settings: dict[str, Any] = {"clip": 1.0, "step": 1.0, "gamma": 0.0, "weight_cap": 1000.0}
    return GPOPE(OneHot(1), budget, iterations=iterations, **settings)


@target
def gpope() -> Target:
    """Of one person, who is drawn each time. Every theta and w is seen, and what was added."""
    judge, programs = _gpope(BUDGET, 2), dict[Any, Any]()
    neighbours = [_one_state(world, 1) for world in (0, 1)]
    moments = [judge._units(data, _POLICY, certified=True) for data in neighbours]

    def contribution(units: UnitMoments, states: Array) -> Array:
        """What the one person adds from each state, with one feature: (-A w, A theta + C w - b)."""
        a, b, c = (
            float(np.asarray(sparse.coo_array(x).toarray()).ravel()[0])
            for x in (units.A, units.b, units.C)
        )
        theta, w = states.T
        return clip.l2(np.stack([-a * w, a * theta + c * w - b], axis=1), judge.clip)

    @contextmanager
    def watch() -> Iterator[list[Array]]:
        with _record_states(programs) as seen:
            yield seen
            found = np.concatenate([np.zeros((1, 2)), seen[0][0]])
            known = [contribution(units, found[:-1]) for units in moments]
            seen.extend(evidence(-np.diff(found, axis=0), *known))

    return fit_target(
        "gpope", lambda data: judge.fit(data, _POLICY), neighbours, runs=2400, watch=watch
    )


@target
def gpope_sampled() -> Target:
    """Of ten, of whom one is drawn each time; held against one point.

    Runs of the shipped program side by side, as `sweep` makes them: every theta and w is seen.
    """
    judge, programs, people = _gpope(Budget(2.0, 0.035), 4), dict[Any, Any](), 10
    units = [judge._units(_one_state(world, people), _POLICY, certified=True) for world in (0, 1)]
    sigma = judge.noise(people)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        import jax

        keys = jax.random.split(source.key(), runs)
        with _record_states(programs) as seen:
            judge._run(units[world], sigma, keys, [judge.step])
        found = np.concatenate([np.zeros((runs, 1, 2)), seen[0]], axis=1)
        return -np.diff(found, axis=1).reshape(runs, -1)

    event = ApproxDP(judge.budget.epsilon, judge.budget.delta, relation=Relation.REPLACE_ONE)
    note = "held against one point of the curve"
    name, replace_one = "gpope-sampled", Relation.REPLACE_ONE
    return Target(name, draw, (event,), replace_one, judge.budget.delta, runs=100_000, note=note)
