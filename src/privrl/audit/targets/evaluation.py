"""The private estimators under attack: whole fits on neighbouring data, and all they give away.

Importing this module puts its targets into the catalogue of `privrl.audit`, where
`privrl audit` finds them. Each run is a call of a public `fit`, with fresh secret noise. What an
attacker sees of it is every number and every word of the result as it would be saved, and all else
that the promise covers: the noised sums, and where every iterate is covered, every iterate. The
promise is the certificate's. In the two worlds everybody's data is the same but for the last
person's, whose rewards and ratios lie far outside their ranges, one way or the other.

A fit takes milliseconds and a mechanism microseconds, so these audits make do with few runs. Three
things give them power: promises large enough for an attack to come near them (`BUDGET`, at which
the noise of some 900 runs that are judged shows to be 0.8 of what it should be), all noised sums
seen, and data that goes through the shipped clipping to the very bound. Where only one point of
the promise's curve can be had at a reasonable price, it lies where few runs can see it.

Noise that is used again shows in the *differences* of iterates, if somebody contributes differently
to one than to the other. So where everybody takes part in every step, what is looked at is each
noised sum less what it would be in the first world, given the iterate before, which is pure noise
there; how that changes from step to step; and by how much more likely all of it is in the second
world (`evidence`).
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from privrl.audit.attacks import Outputs, everything, evidence
from privrl.audit.auditor import Target
from privrl.audit.catalogue import target, watched
from privrl.core.types import Array
from privrl.data import FunctionFeatures, OneHot, Tabular, Trajectories
from privrl.evaluation import gpope as gpope_module
from privrl.evaluation.bellman_error import UnitMoments, unit_moments
from privrl.evaluation.dplsl import DPLSL
from privrl.evaluation.dplsw import DPLSW
from privrl.evaluation.gpope import GPOPE
from privrl.evaluation.gtd_iterations import Walk, clipped_sum, contributions
from privrl.evaluation.private_gtd import PrivateGTD
from privrl.evaluation.private_lstd import PrivateLSTD
from privrl.evaluation.private_value import PrivateValue
from privrl.evaluation.result import Result
from privrl.evaluation.selection import Choice, choose
from privrl.privacy.events import ApproxDP
from privrl.privacy.ledger import LargeDelta
from privrl.privacy.mechanisms import clip
from privrl.privacy.mechanisms.smooth import SmoothMechanism
from privrl.privacy.noise import Source
from privrl.privacy.promise import Budget, Relation, Unit

BUDGET = Budget(10.0, 1e-5)
RUNS = 1600
"""So many runs in each world show noise of 0.8 of what `BUDGET` asks for."""

POINT = Budget(2.0, 0.3)
"""One point of a curve, where a few thousand runs see the same."""

RANGE = (-1.0, 1.0)
FAR = (-50.0, 100.0)
"""Rewards far outside their range, in either world; not symmetric, lest anything unclipped be."""

NEVER = 1e-9
"""A behaviour probability that makes ratios far larger than any cap."""


def given_away(result: Result | Choice) -> Array:
    """Every number in a result, as it would be saved, and a number for every word."""
    if isinstance(result, Choice):
        return everything([result.index, result.name, result.certificate.to_dict()])
    return everything(result.to_dict())


Watch = Callable[[], Any]
"""A block that lists what is given away while it lasts, besides the result."""


@contextmanager
def _nothing_else() -> Iterator[list[Array]]:
    yield []


def _noised_sums(
    mechanism: object, fit: Callable[[Any], Result], neighbours: Sequence[Any]
) -> Watch:
    """The one noised sum that a fit releases, and how far it is on the way between the worlds."""
    kind = type(mechanism)
    exact = []
    for data in neighbours:
        with watched(kind, "release", lambda plan, given, found: given[0]) as seen:
            fit(data)
        exact.append(np.ravel(seen[0]))

    @contextmanager
    def watch() -> Iterator[list[Array]]:
        with watched(kind, "release", lambda plan, given, found: found[0]) as seen:
            yield seen
            seen.append((np.ravel(seen[0]) - exact[0]) @ (exact[1] - exact[0])[:, None])

    return watch


def _fits(
    name: str,
    fit: Callable[[Any], Result | Choice],
    neighbours: Sequence[Any],
    *,
    runs: int,
    watch: Watch = _nothing_else,
    point: bool = False,
) -> Target:
    """Whole fits against their certificate, or against its epsilon and delta only.

    Of a few made-up people a delta may be what it must not be of real ones: nobody is warned.
    """

    def quiet(neighbour: Any) -> Result | Choice:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", LargeDelta)
            return fit(neighbour)

    certificate = quiet(neighbours[0]).certificate
    delta, relation = certificate.delta, certificate.relation
    events, note = certificate.events, "whole fits"
    if point:
        events = (ApproxDP(certificate.epsilon, delta, relation=relation),)
        note = "whole fits, held against one point of the curve"

    def once(world: int) -> Array:
        with watch() as seen:
            result = quiet(neighbours[world])
        return np.concatenate([given_away(result), *map(np.ravel, seen)])

    def draw(world: int, count: int, source: Source) -> Outputs:
        return [once(world) for _ in range(count)]

    return Target(name, draw, events, relation, delta, runs, note=note)


def _cohort(
    states: ArrayLike,
    actions: ArrayLike,
    rewards: ArrayLike,
    *,
    num_states: int,
    length: int = 1,
    behavior: ArrayLike | None = None,
    users: ArrayLike | None = None,
) -> Trajectories:
    """Trajectories of one length, all of which terminate."""
    count = np.size(states) // length
    return Trajectories.from_arrays(
        np.asarray(states),
        np.asarray(actions),
        np.asarray(rewards, dtype=np.float64),
        lengths=[length] * count,
        terminated=[True] * count,
        behavior_probs=behavior,
        users=users,
        num_states=num_states,
        num_actions=2,
    )


# --- values of policies ---------------------------------------------------------------------------


def _stays(world: int, each: int = 1) -> Trajectories:
    """A hundred people with `each` stays of two steps: enough that no figure is cut off by chance.

    The last person's stays have ratios far beyond the cap, and the highest return or the lowest: no
    two contributions are further apart.
    """
    people = 100
    stay = np.arange(people * each)
    actions = np.stack([stay % 2, stay // 2 % 2], axis=1)
    rewards = np.repeat(np.where(stay // 4 % 2, -0.5, 0.5), 2).reshape(-1, 2)
    actions[-each:], rewards[-each:] = 1, FAR[world]
    behavior = np.full(actions.shape, 0.5)
    behavior[-each:] = 0.01
    return _cohort(
        np.tile([0, 1], stay.size),
        actions.ravel(),
        rewards.ravel(),
        num_states=2,
        length=2,
        behavior=behavior.ravel(),
        users=None if each == 1 else np.repeat(np.arange(people), each),
    )


_JUDGED = Tabular(np.array([[0.1, 0.9]] * 2))


def _value(budget: Budget, **more: Any) -> PrivateValue:
    return PrivateValue(budget, weight_cap=3.24, horizon=2, reward_range=RANGE, **more)


def _private_value(name: str, each: int) -> Target:
    judge = _value(BUDGET)
    neighbours = [_stays(world, each) for world in (0, 1)]

    def fit(data: Trajectories) -> Result:
        return judge.fit(data, _JUDGED)

    watch = _noised_sums(judge.mechanism, fit, neighbours)
    # Twice as many: half of them decide between attacks on dozens of figures beside the sums.
    return _fits(name, fit, neighbours, runs=2 * RUNS, watch=watch)


@target
def private_value() -> Target:
    return _private_value("private-value", 1)


@target
def private_value_users() -> Target:
    """All of one person's three trajectories are replaced."""
    return _private_value("private-value-users", 3)


@target
def private_value_grid() -> Target:
    """Discrete noise in several dimensions is accounted for by its concentration only.

    Such a curve lies far above the truth where few runs can see it: noise of 0.8 would take 200,000
    fits, each of which draws exactly, and slowly. Noise of 0.3 is seen.
    """
    judge = _value(Budget(4.0, 0.01), grid=True)
    return _fits(
        "private-value-grid",
        lambda data: judge.fit(data, _JUDGED),
        [_stays(world) for world in (0, 1)],
        runs=600,
    )


@target
def private_choice() -> Target:
    """The others prefer the first candidate by just as much as one person's opinion can weigh."""
    tables = [[[1.0, 0.0], [FAR[1], FAR[0]]], [[1.0, 0.0], [FAR[0], FAR[1]]]]
    return _fits(
        "private-choice",
        lambda scores: choose(scores, low=0.0, high=1.0, epsilon=2.0, unit=Unit.USER),
        tables,
        runs=4000,
    )


# --- value functions ------------------------------------------------------------------------------


def _walks(world: int, people: int, behavior: float | None = None) -> Trajectories:
    """Everybody goes from the first state to the second; only the last person is rewarded.

    Or punished. With `behavior`, everybody's actions are as likely as the judged policy has them,
    but for the last person's, which were likely to that degree only.
    """
    rewards = np.zeros(2 * people)
    rewards[-2:] = FAR[world]
    chances = None
    if behavior is not None:
        chances = np.full(2 * people, 0.5)
        chances[-2:] = behavior
    return _cohort(
        np.tile([0, 1], people),
        np.zeros(2 * people, dtype=np.int64),
        rewards,
        num_states=2,
        length=2,
        behavior=chances,
    )


@target
def private_lstd() -> Target:
    judge = PrivateLSTD(OneHot(2), RANGE, BUDGET, gamma=0.9, clip=0.1, matrix_weight=0.02)
    neighbours = [_walks(world, 200) for world in (0, 1)]
    watch = _noised_sums(judge.mechanism, judge.fit, neighbours)
    return _fits("private-lstd", judge.fit, neighbours, runs=RUNS, watch=watch)


def _iterates() -> Any:
    """Every iterate of `PrivateGTD`, behind the first one."""
    return watched(Walk, "advance", lambda walk, given, found: walk.state)


def _private_gtd(
    name: str,
    runs: int,
    neighbours: Sequence[Trajectories],
    budget: Budget = BUDGET,
    policy: Tabular | None = None,
    **more: Any,
) -> Target:
    """Whole fits in which every iterate is seen, and what was added to each."""
    judge = PrivateGTD(
        OneHot(2), RANGE, budget, **{"gamma": 0.9, "clip": 0.1, "average": 0.0, **more}
    )
    form = judge.form_for(policy is not None)
    given: dict[str, Any] = {
        "cap": judge.weight_cap,
        "reward_range": judge.reward_range,
        "change": judge.change,
    }
    units = [
        unit_moments(data, policy, judge.features, judge.gamma, dual=True, **given)
        for data in neighbours
    ]
    count = units[0].count
    plan = judge.plan(form, count)

    @contextmanager
    def watch() -> Iterator[list[Array]]:
        with _iterates() as states:
            yield states
            found = np.stack([np.zeros_like(states[0]), *states])
            sums = np.diff(found, axis=0) * ((judge.batch_units or plan.rate * count) / plan.step)
            states.append(sums)
            if judge.rate < 1.0:
                return
            known = [
                [
                    clipped_sum(contributions(own, state, form), plan.bound(k))
                    for k, state in enumerate(found[:-1])
                ]
                for own in units
            ]
            if judge.batch_units is None:
                states.extend(evidence(sums, *known))
            else:
                stds = plan.noise * np.array([plan.bound(k) for k in range(plan.iterations)])
                logs = [_in_one_step(sums, np.stack(one), stds) for one in known]
                states.append(np.array([logs[1] - logs[0]]))

    return _fits(
        name,
        lambda data: judge.fit(data, policy),
        neighbours,
        runs=runs,
        watch=watch,
        point=judge.rate < 1.0,
    )


@target
def private_gtd() -> Target:
    """What anybody contributes depends on the iterate, if only a little: enough for differences."""
    neighbours = [_walks(world, 5) for world in (0, 1)]
    return _private_gtd("private-gtd", RUNS, neighbours, iterations=4, step=0.5)


@target
def private_gtd_sampled() -> Target:
    """Held against one point: the whole curve of sampled noise takes longer than the audit.

    Somebody is seldom drawn, and twenty times over; who is drawn every time if at all is seen.
    """
    neighbours = [_walks(world, 20) for world in (0, 1)]
    return _private_gtd(
        "private-gtd-sampled",
        3200,
        neighbours,
        Budget(1.0, 0.0055),
        iterations=20,
        rate=0.05,
        step=0.001,
    )


def _in_one_step(sums: Array, each: Array, stds: Array) -> float:
    """log of how likely `sums` are, up to a constant, if any one row of `each` is in them."""
    rows = (np.sum(sums * each, axis=1) - np.sum(each * each, axis=1) / 2.0) / stds**2
    return float(np.logaddexp.reduce(rows))


@target
def private_gtd_one_pass() -> Target:
    """The last person is in either of two steps; nobody else contributes anything to speak of."""
    neighbours = [_walks(world, 6) for world in (0, 1)]
    more: dict[str, Any] = {"iterations": 2, "batch_units": 3, "step": 0.001}
    return _private_gtd("private-gtd-one-pass", RUNS, neighbours, **more)


@target
def private_gtd_secret_steps() -> Target:
    """Twenty steps and a small budget, kept only if nobody knows the last person's step."""
    neighbours = [_walks(world, 40) for world in (0, 1)]
    more: dict[str, Any] = {"iterations": 20, "batch_units": 2, "step": 0.001}
    budget = Budget(2.0, 0.01)
    return _private_gtd("private-gtd-secret-steps", RUNS, neighbours, budget, **more)


@target
def private_gtd_primal_dual() -> Target:
    """Off-policy, with ratios far beyond any cap."""
    return _private_gtd(
        "private-gtd-primal-dual",
        RUNS,
        [_walks(world, 100, behavior=NEVER) for world in (0, 1)],
        policy=Tabular.uniform(2, 2),
        weight_cap=1000.0,
        form="primal-dual",
        iterations=2,
        step=20.0,
    )


@target
def private_gtd_not_a_number() -> Target:
    """Ratios so large that what the person adds is infinity less infinity, or as likely as not."""

    def data(behavior: float) -> Trajectories:
        chances = np.full(10, 0.5)
        chances[-2:] = behavior
        zeros = np.zeros(10, np.int64)
        return _cohort(zeros, zeros, np.ones(10), num_states=2, length=2, behavior=chances)

    return _private_gtd(
        "private-gtd-not-a-number",
        400,
        [data(0.5), data(2e-309)],
        policy=Tabular.uniform(2, 2),
        weight_cap=1.7e308,
        iterations=3,
        step=2000.0,
    )


@contextmanager
def _states_of_gpope(programs: dict[Any, Any]) -> Iterator[list[Array]]:
    """Every (theta, w) of compiled runs, which give away the last theta only.

    While this lasts the loop's second result, the sum of the thetas that are averaged, is all
    states in a row. `programs` are those compiled for it.
    """
    import jax
    import jax.numpy as jnp

    scan, run, seen = jax.lax.scan, GPOPE._run, list[Array]()
    made = gpope_module._program
    make = getattr(made, "__wrapped__", made)

    def every(body: Any, begin: Any, xs: Any) -> Any:
        def told(carry: Any, x: Any) -> Any:
            after, _ = body(carry, x)
            return after, after[0]

        (last, _), states = scan(told, begin, xs)
        return (last, jnp.ravel(states)), None

    def program(*key: Any) -> Any:
        if key not in programs:
            programs[key] = make(*key)
        return programs[key]

    def watching(self: GPOPE, units: Any, *given: Any) -> Any:
        with (
            patch.object(jax.lax, "scan", every),
            patch.object(gpope_module, "_program", program),
        ):
            states = run(self, units, *given)
        times = self.iterations or units.count
        # Of the first step size.
        found = np.reshape(states[:, 0], (len(states), times, 2 * units.dimension))
        seen.append(found)
        return found[:, -1:, : units.dimension]

    with patch.object(GPOPE, "_run", watching):
        yield seen


_WHO = Tabular.uniform(1, 2)


def _one_state(world: int, people: int) -> Trajectories:
    """One state, one step; rewards beside which all else is small, of the last person too."""
    rewards = np.full(people, -1000.0)
    rewards[-1] = 1000.0 if world else -1000.0
    zeros = np.zeros(people, dtype=np.int64)
    return _cohort(zeros, zeros, rewards, num_states=1, behavior=np.full(people, NEVER))


def _gpope(budget: Budget, iterations: int) -> GPOPE:
    settings: dict[str, Any] = {"clip": 1.0, "step": 1.0, "gamma": 0.0, "weight_cap": 1000.0}
    return GPOPE(OneHot(1), budget, iterations=iterations, **settings)


@target
def gpope() -> Target:
    """Of one person, who is drawn each time. Every theta and w is seen, and what was added."""
    judge, programs = _gpope(BUDGET, 2), dict[Any, Any]()
    neighbours = [_one_state(world, 1) for world in (0, 1)]
    moments = [judge._units(data, _WHO, certified=True) for data in neighbours]

    def contributed(units: UnitMoments, states: Array) -> Array:
        """What the one person adds from each state, with one feature: (-A w, A theta + C w - b)."""
        a, b, c = (
            float(np.asarray(sparse.coo_array(x).toarray()).ravel()[0])
            for x in (units.A, units.b, units.C)
        )
        theta, w = states.T
        return clip.l2(np.stack([-a * w, a * theta + c * w - b], axis=1), judge.clip)

    @contextmanager
    def watch() -> Iterator[list[Array]]:
        with _states_of_gpope(programs) as seen:
            yield seen
            found = np.concatenate([np.zeros((1, 2)), seen[0][0]])
            known = [contributed(units, found[:-1]) for units in moments]
            seen.extend(evidence(-np.diff(found, axis=0), *known))

    return _fits("gpope", lambda data: judge.fit(data, _WHO), neighbours, runs=2400, watch=watch)


@target
def gpope_sampled() -> Target:
    """Of ten, of whom one is drawn each time; held against one point.

    Runs of the shipped program side by side, as `sweep` makes them: every theta and w is seen.
    """
    judge, programs, people = _gpope(Budget(2.0, 0.035), 4), dict[Any, Any](), 10
    units = [judge._units(_one_state(world, people), _WHO, certified=True) for world in (0, 1)]
    sigma = judge.noise(people)

    def draw(world: int, runs: int, source: Source) -> Outputs:
        import jax

        keys = jax.random.split(source.key(), runs)
        with _states_of_gpope(programs) as seen:
            judge._run(units[world], sigma, keys, [judge.step])
        found = np.concatenate([np.zeros((runs, 1, 2)), seen[0]], axis=1)
        return -np.diff(found, axis=1).reshape(runs, -1)

    event = ApproxDP(judge.budget.epsilon, judge.budget.delta, relation=Relation.REPLACE_ONE)
    note = "held against one point of the curve"
    name, replace_one = "gpope-sampled", Relation.REPLACE_ONE
    return Target(name, draw, (event,), replace_one, judge.budget.delta, runs=100_000, note=note)


# --- output perturbation --------------------------------------------------------------------------


def _perturbed(name: str, judge: DPLSW | DPLSL, neighbours: Sequence[Trajectories]) -> Target:
    return _fits(name, judge.fit, neighbours, runs=5000)


def _visits(states: Sequence[int], rewards: Sequence[float], num_states: int) -> Trajectories:
    return _cohort(states, np.zeros(len(states), dtype=np.int64), rewards, num_states=num_states)


def _only_visitor() -> list[Trajectories]:
    """Nobody but the last person visits the state that counts."""
    return [_visits([1, 1, 0], [0.0, 0.0, reward], 2) for reward in FAR]


@target
def dplsw() -> Target:
    judge = DPLSW(OneHot(2), RANGE, POINT, gamma=0.0, state_weights=[1.0, 0.0])
    return _perturbed("dplsw", judge, _only_visitor())


@target
def dplsw_visits() -> Target:
    """The last person visits the state that counts, beside another, or does not.

    This moves the local sensitivity by a factor of two, and with it the noise on all features, were
    it not smoothed.
    """
    judge = DPLSW(OneHot(8), RANGE, POINT, gamma=0.0, state_weights=[1.0] + [0.0] * 7)
    rewards = [0.0, *FAR]
    return _perturbed("dplsw-visits", judge, [_visits([1, 0, last], rewards, 8) for last in (0, 1)])


@target
def dplsw_smoothing() -> Target:
    """The same in one dimension, where smoothing half as much breaks the promise, if only just.

    Value and smooth bound as one fit in each world makes them, noised many times.
    """
    first = FunctionFeatures(lambda states: np.equal(states, 0)[:, None] * 1.0, 1, 2.0)
    judge = DPLSW(first, RANGE, Budget(4.0, 0.3), gamma=0.0, state_weights=[1.0, 0.0], num_states=2)
    given: list[Array] = []
    for last in (1, 0):
        with watched(SmoothMechanism, "release", lambda plan, had, made: [*had[0], had[1]]) as seen:
            judge.fit(_visits([0, last], [FAR[1], FAR[0]], 2))
        given += seen
    plan = judge.mechanism()

    def draw(world: int, runs: int, source: Source) -> Outputs:
        value, bound = given[world][:-1], float(given[world][-1])
        return np.array([plan.release(value, bound, source)[0] for _ in range(runs)])

    name = "dplsw-smoothing"
    return Target(name, draw, (plan.event,), Relation.REPLACE_ONE, 0.3, runs=160_000)


@target
def dplsl() -> Target:
    """A ridge so large that the bound on the local sensitivity is all but reached."""
    judge = DPLSL(OneHot(2), RANGE, POINT, gamma=0.0, state_weights=[1.0, 0.0], ridge=1000.0)
    return _perturbed("dplsl", judge, _only_visitor())
