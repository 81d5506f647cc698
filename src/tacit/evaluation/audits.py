"""The private estimators under attack: whole fits on neighbouring data, and all they give away.

Importing this module puts its targets and its sabotaged twins into the catalogues of
`tacit.privacy.audit`, where `tacit audit` finds them. Each run is a call of a public `fit`, with
fresh secret noise; what an attacker sees of it is every number and every word of the result as it
would be saved. The promise is the certificate's. In the two worlds everybody's data is the same but
for the last person's, whose rewards and ratios lie far outside their ranges, one way or the other.

A fit takes milliseconds and a mechanism microseconds, so these audits make do with few runs. Three
things give them power: promises large enough for an attack to come near them (`BUDGET`), settings
with which the released figures are all but linear in the noised sums, and data that goes through
the shipped clipping to the very bound. Where only one point of the promise's curve can be had at a
reasonable price, it lies where few runs can see it (`POINT`).
"""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.data import OneHot, Tabular, Trajectories
from tacit.evaluation import dplsw as dplsw_module
from tacit.evaluation import private_gtd as gtd_module
from tacit.evaluation import private_lstd as lstd_module
from tacit.evaluation import sums as sums_module
from tacit.evaluation.dplsl import DPLSL
from tacit.evaluation.dplsw import DPLSW
from tacit.evaluation.gpope import GPOPE
from tacit.evaluation.private_gtd import Plan, PrivateGTD
from tacit.evaluation.private_lstd import PrivateLSTD
from tacit.evaluation.private_value import PrivateValue
from tacit.evaluation.result import Result
from tacit.evaluation.selection import LEVELS, Choice, PermuteAndFlip, choose
from tacit.privacy import exact
from tacit.privacy.audit.attacks import Outputs, everything
from tacit.privacy.audit.auditor import Target
from tacit.privacy.audit.sabotage import (
    Twin,
    less_compiled_noise,
    less_noise,
    no_clip,
    no_factor_two,
    register,
)
from tacit.privacy.audit.targets import target
from tacit.privacy.events import ApproxDP
from tacit.privacy.exact import Booleans
from tacit.privacy.grid import Array
from tacit.privacy.ledger import LargeDelta
from tacit.privacy.noise import Source
from tacit.privacy.promise import Budget, Unit

BUDGET = Budget(10.0, 1e-5)
POINT = Budget(1.0, 0.2)
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


def _fits(
    name: str,
    fit: Callable[[Any], Result | Choice],
    neighbours: Sequence[Any],
    *,
    runs: int,
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

    def draw(world: int, count: int, source: Source) -> Outputs:
        return [given_away(quiet(neighbours[world])) for _ in range(count)]

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

    The last person's stays have all the weight and the highest return, or next to none of it and
    the lowest.
    """
    people = 100
    stay = np.arange(people * each)
    actions = np.stack([stay % 2, stay // 2 % 2], axis=1)
    rewards = np.repeat(np.where(stay // 4 % 2, -0.5, 0.5), 2).reshape(-1, 2)
    actions[-each:], rewards[-each:] = world, FAR[world]
    return _cohort(
        np.tile([0, 1], stay.size),
        actions.ravel(),
        rewards.ravel(),
        num_states=2,
        length=2,
        behavior=np.full(2 * stay.size, 0.5),
        users=None if each == 1 else np.repeat(np.arange(people), each),
    )


def _private_value(name: str, runs: int, budget: Budget = BUDGET, **more: Any) -> Target:
    each = more.pop("each", 1)
    judge = PrivateValue(budget, weight_cap=3.24, horizon=2, reward_range=RANGE, **more)
    policy = Tabular(np.array([[0.1, 0.9]] * 2))
    return _fits(
        name,
        lambda data: judge.fit(data, policy),
        [_stays(world, each) for world in (0, 1)],
        runs=runs,
    )


@target
def private_value() -> Target:
    return _private_value("private-value", 800)


@target
def private_value_users() -> Target:
    """All of one person's three trajectories are replaced."""
    return _private_value("private-value-users", 800, each=3)


@target
def private_value_grid() -> Target:
    """Discrete noise in several dimensions is accounted for by its concentration only.

    Such a curve lies far above the truth where few runs can see it, so it takes a much sabotaged
    twin to cross it, and least so at this budget.
    """
    return _private_value("private-value-grid", 600, Budget(4.0, 0.01), grid=True)


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
    """Many people, so that the matrix is all but free of noise, and the vector is told by theta."""
    judge = PrivateLSTD(OneHot(2), RANGE, BUDGET, gamma=0.9, clip=0.1, matrix_weight=0.02)
    return _fits("private-lstd", judge.fit, [_walks(world, 200) for world in (0, 1)], runs=800)


def _private_gtd(name: str, people: int, runs: int, budget: Budget = BUDGET, **more: Any) -> Target:
    """Steps so small that the last theta is all but the sum of what was released."""
    settings = {"gamma": 0.9, "step": 0.05, "clip": 0.1, "average": 0.0, **more}
    judge = PrivateGTD(OneHot(2), RANGE, budget, **settings)
    neighbours = [_walks(world, people) for world in (0, 1)]
    point = judge.rate < 1.0
    return _fits(name, judge.fit, neighbours, runs=runs, point=point)


@target
def private_gtd() -> Target:
    return _private_gtd("private-gtd", 5, 800, iterations=4)


@target
def private_gtd_sampled() -> Target:
    """Held against one point: the whole curve of sampled noise takes longer than the audit."""
    return _private_gtd("private-gtd-sampled", 5, 1200, POINT, iterations=2, rate=0.5)


@target
def private_gtd_one_pass() -> Target:
    """The last person is in either of two steps, and theta shows the sum of both."""
    return _private_gtd("private-gtd-one-pass", 6, 800, iterations=2, batch_units=3)


@target
def private_gtd_primal_dual() -> Target:
    """Steps so large that what w learns in the first step is what theta shows after the second."""
    judge = PrivateGTD(
        OneHot(2),
        RANGE,
        BUDGET,
        gamma=0.9,
        weight_cap=1000.0,
        form="primal-dual",
        iterations=2,
        step=20.0,
        clip=0.1,
        average=0.0,
    )
    policy = Tabular.uniform(2, 2)
    return _fits(
        "private-gtd-primal-dual",
        lambda data: judge.fit(data, policy),
        [_walks(world, 100, behavior=NEVER) for world in (0, 1)],
        runs=1000,
    )


def _gpope(name: str, people: int, budget: Budget, runs: int) -> Target:
    """One state, one step: w learns the sign of the reward, and theta follows w.

    All of (theta, w) is paid for and theta alone is released, so less than half of what may be lost
    is ever seen.
    """
    judge = GPOPE(OneHot(1), budget, clip=1.0, step=1.0, gamma=0.0, iterations=2, weight_cap=1000.0)
    policy = Tabular.uniform(1, 2)

    def data(world: int) -> Trajectories:
        rewards = np.full(people, -0.1)
        rewards[-1] = 0.1 if world else -0.1
        zeros = np.zeros(people, dtype=np.int64)
        return _cohort(zeros, zeros, rewards, num_states=1, behavior=np.full(people, NEVER))

    return _fits(
        name,
        lambda data: judge.fit(data, policy),
        [data(world) for world in (0, 1)],
        runs=runs,
        point=people > 1,
    )


@target
def gpope() -> Target:
    """Of one person, who is drawn each time."""
    return _gpope("gpope", 1, BUDGET, 800)


@target
def gpope_sampled() -> Target:
    """Of two, of whom one is drawn each time; held against one point."""
    return _gpope("gpope-sampled", 2, POINT, 1000)


# --- output perturbation --------------------------------------------------------------------------


def _perturbed(name: str, judge: DPLSW | DPLSL, neighbours: Sequence[Trajectories]) -> Target:
    return _fits(name, judge.fit, neighbours, runs=1600)


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
def dplsl() -> Target:
    """A ridge so large that the bound on the local sensitivity is all but reached."""
    judge = DPLSL(OneHot(2), RANGE, POINT, gamma=0.0, state_weights=[1.0, 0.0], ridge=1000.0)
    return _perturbed("dplsl", judge, _only_visitor())


# --- ways of going wrong --------------------------------------------------------------------------


@contextmanager
def _no_clip() -> Iterator[None]:
    """Nobody clips, by whichever function an estimator does it."""

    def kept(squares: Array, bound: float, entries: int) -> Array:
        return np.ones(squares.shape)

    with no_clip(), ExitStack() as stack:
        for module in (sums_module, gtd_module, lstd_module):
            stack.enter_context(patch.object(module, "shrinking", kept))
        yield


@contextmanager
def _no_clamp() -> Iterator[None]:
    """A score counts at whatever size it comes."""

    def sums(self: PermuteAndFlip, scores: ArrayLike) -> NDArray[np.int64]:
        share = (np.asarray(scores) - self.low) / (self.high - self.low)
        return np.asarray(np.rint(share * LEVELS).astype(np.int64).sum(axis=0))

    with patch.object(PermuteAndFlip, "sums", sums):
        yield


@contextmanager
def _half_the_distance() -> Iterator[None]:
    """Scores that may move in opposite directions, paid for as if they moved together."""
    coin = exact.bernoulli_exp

    def twice(generator: np.random.Generator, x: Any, size: int) -> Booleans:
        return coin(generator, 2 * x, size)

    with patch.object(exact, "bernoulli_exp", twice):
        yield


@contextmanager
def _nobody_grouped() -> Iterator[None]:
    """Each trajectory clipped on its own, for a promise to people."""

    def index(self: Trajectories) -> NDArray[np.int64]:
        return np.arange(self.num_trajectories)

    def count(self: Trajectories) -> int:
        return self.num_trajectories

    with (
        patch.object(Trajectories, "unit_index", property(index)),
        patch.object(Trajectories, "num_units", property(count)),
    ):
        yield


@contextmanager
def _refitted(change: Callable[..., Result]) -> Iterator[None]:
    """Every estimator's `fit` replaced by `change(fit, estimator, data, ...)`."""
    with ExitStack() as stack:
        for kind in (PrivateValue, PrivateLSTD, PrivateGTD, GPOPE, DPLSW, DPLSL):
            stack.enter_context(patch.object(kind, "fit", _wrapped(kind.fit, change)))
        yield


def _wrapped(fit: Callable[..., Result], change: Callable[..., Result]) -> Callable[..., Result]:
    def fitted(self: Any, *given: Any, **named: Any) -> Result:
        return change(fit, self, *given, **named)

    return fitted


def _shown(fit: Callable[..., Result], judge: Any, *given: Any, **named: Any) -> Result:
    """What is for public data only, shown of any data."""
    return fit(judge, *given, **{**named, "public": True})


def _measured(fit: Callable[..., Result], judge: Any, data: Any, *given: Any) -> Result:
    """The range of rewards read off the data."""
    found = float(np.min(data.rewards)), float(np.max(data.rewards))
    return fit(replace(judge, reward_range=found), data, *given)


@contextmanager
def _all_drawn() -> Iterator[None]:
    """Everybody takes part in each step that is paid for as a sample."""
    run = Plan.run

    def everybody(self: Plan, *given: Any) -> Any:
        return run(replace(self, rate=1.0), *given)

    with patch.object(Plan, "run", everybody):
        yield


@contextmanager
def _not_smoothed() -> Iterator[None]:
    """Noise scaled to the local sensitivity of the data at hand."""

    def local_only(local: Callable[[NDArray[np.int64]], Array], beta: float, most: int) -> float:
        return float(local(np.zeros(1, dtype=np.int64))[0])

    with patch.object(dplsw_module, "smooth_bound", local_only):
        yield


_RELEASED_ONCE = ("private-value", "private-value-users", "private-lstd")
_GTD = ("private-gtd", "private-gtd-one-pass")
_DUAL = "private-gtd-primal-dual"
# So few runs show what is wrong by far.
_FEW = 400

register(
    Twin("noise x 0.5", partial(less_noise, 0.5), (*_RELEASED_ONCE, *_GTD, "dplsw", "dplsl")),
    Twin("noise x 0.4", partial(less_noise, 0.4), (_DUAL,)),
    Twin("noise x 0.3", partial(less_noise, 0.3), ("private-value-grid", "private-gtd-sampled")),
    Twin("noise x 0.15, compiled", partial(less_compiled_noise, 0.15), ("gpope",), runs=1600),
    Twin("clip forgotten", _no_clip, ("private-lstd", *_GTD, _DUAL, "gpope"), _FEW),
    Twin("clip forgotten", _no_clip, ("gpope-sampled",)),
    Twin("factor 2 forgotten", no_factor_two, (*_RELEASED_ONCE, *_GTD)),
    Twin("distance halved", _half_the_distance, ("private-choice",), 2000),
    Twin("scores not clamped", _no_clamp, ("private-choice",), _FEW),
    Twin("people not grouped", _nobody_grouped, ("private-value-users",), _FEW),
    Twin("range read off the data", partial(_refitted, _measured), ("private-lstd", "dplsl"), _FEW),
    Twin(
        "diagnostics shown",
        partial(_refitted, _shown),
        ("private-value", "private-lstd", "private-gtd", "dplsw"),
        _FEW,
    ),
    Twin("everybody drawn", _all_drawn, ("private-gtd-sampled",), 800),
    Twin("not smoothed", _not_smoothed, ("dplsw-visits",), 800),
)
