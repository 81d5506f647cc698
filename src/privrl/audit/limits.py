"""What no private learner can do: ceilings over families of tasks.

A learner is shown one of M tasks, drawn uniformly, and names it, or picks a decision whose worth
depends on the task. If any two of the tasks are neighbours, privacy limits how often the learner
can be right, however clever it is. A ceiling is about a *family*: on one known task a constant
policy is private and optimal.

    best_accuracy(tasks, budget)     M tasks under (epsilon, delta)
    best_accuracy_gdp(mu)            two tasks under mu-GDP
    best_accuracy_of(events, ...)    two tasks and any list of events
    ceiling(values, budget)          the best average worth of decisions, by linear programming
    steps_between, group, group_gdp  what is promised to tasks that are not neighbours

Tasks at a distance above the radius are joined by a chain of neighbours. For reward functions the
straight line between the two is one, of ceil(distance / radius) steps.
"""

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from privrl.core import checks
from privrl.core.errors import InputError
from privrl.core.types import Array
from privrl.privacy import accounting
from privrl.privacy.events import Event
from privrl.privacy.noise import as_float64
from privrl.privacy.promise import Budget, Relation

# Beyond this the linear program is no longer a matter of seconds.
_MOST_VARIABLES = 15_000

# Rows, columns and values of some entries of a sparse matrix.
_Entries = tuple[Any, Any, Any]


def best_accuracy(tasks: int, budget: Budget) -> float:
    """The best probability of naming one of `tasks` mutually neighbouring tasks.

        (e^epsilon + (M - 1) delta) / (e^epsilon + M - 1)

    Let D_i be the outcomes on which the learner names task i, and s the sum of the P_i(D_i). Add up
    P_i(D_i) <= e^epsilon P_j(D_i) + delta over all pairs i != j; on the right the P_j(D_i) add up
    to at most M - s. So (M - 1) s <= e^epsilon (M - s) + M (M - 1) delta. Attained by telling the
    truth with probability delta and randomised response otherwise.
    """
    tasks = checks.count("tasks", tasks)
    others = (tasks - 1) * math.exp(-budget.epsilon)
    return (1.0 + others * budget.delta) / (1.0 + others)


def best_accuracy_gdp(mu: float) -> float:
    """The best probability of naming one of two tasks under mu-GDP: Phi(mu / 2).

    The errors a and b of any test obey b >= Phi(Phi^-1(1 - a) - mu), and their mean is least where
    they are equal, at Phi(-mu / 2). Attained by the Gaussian mechanism.
    """
    from scipy.special import ndtr

    return float(ndtr(checks.non_negative("mu", mu) / 2.0))


def best_accuracy_of(
    events: Event | Iterable[Event], relation: Relation = Relation.REPLACE_ONE
) -> float:
    """The best probability of naming one of two neighbouring tasks from what `events` release.

    (1 + delta(0)) / 2, since delta at epsilon 0 is the total variation distance. The accountant's
    figure is an upper bound; where it is exact (Gaussian and Laplace noise, randomised response),
    so is this, for tasks that differ by the whole sensitivity.
    """
    return (1.0 + accounting.delta(events, 0.0, relation)) / 2.0


def steps_between(distance: float, radius: float) -> int:
    """How many steps between neighbours lead over `distance`: ceil(distance / radius).

    Both are taken as written in decimal, so that 0.05 is five times 0.01.
    """
    if checks.non_negative("distance", distance) == 0.0:
        raise InputError(
            "must be positive: at distance 0 there is one input, not two.", field="distance"
        )
    apart = Fraction(repr(float(distance)))
    return math.ceil(apart / Fraction(repr(checks.positive("radius", radius))))


def group_privacy(budget: Budget, steps: int) -> Budget:
    """What `budget` promises to two inputs that are `steps` steps between neighbours apart.

    Along the chain P_0(A) <= e^epsilon P_1(A) + delta <= e^(2 epsilon) P_2(A) + (1 + e^epsilon)
    delta, and so on: k epsilon, and delta (e^(k epsilon) - 1) / (e^epsilon - 1).
    """
    epsilon, delta = _group_privacy(budget, checks.count("steps", steps))
    if delta >= 1.0:
        raise InputError(f"Nothing is promised over {steps} steps: delta adds up to 1 or more.")
    return Budget(epsilon, delta)


def group_privacy_gdp(mu: float, steps: int) -> float:
    """The same for mu-GDP: k mu (Dong, Roth, Su 2022)."""
    return checks.non_negative("mu", mu) * checks.count("steps", steps)


def ceiling(values: ArrayLike, budget: Budget, steps: ArrayLike | None = None) -> float:
    """At least the average worth, over tasks, of the decisions of any learner within `budget`.

    values[i, j] is what decision j is worth in task i. A learner is a matrix P of probabilities of
    decision j in task i: all else it releases only helps an observer. It maximises the mean over i
    of sum_j P_ij values_ij, subject to

        sum_j max(P_ij - e^epsilon P_kj, 0) <= delta    for all pairs of tasks i != k,

    a linear program, and any such P is a private learner: with every two tasks neighbours the
    ceiling is exact. steps[i, k], symmetric, says how many steps apart tasks are that are not; the
    pair then has the `group_privacy` budget, and the ceiling is an upper bound.

    What is returned follows from the solver's *dual* prices by weak duality, which holds for any
    prices, so that the solver's tolerances do not make it too small; and it is at most the mean of
    the best values of the tasks, which no learner exceeds.
    """
    worth = _matrix("values", values)
    tasks, decisions = worth.shape
    apart = np.ones((tasks, tasks)) if steps is None else _matrix("steps", steps)
    fits = apart.shape == (tasks, tasks) and bool(np.all(apart == apart.T))
    others = apart[~np.eye(tasks, dtype=np.bool_)] if fits else np.zeros(1)
    if not (fits and np.all(others >= 1.0) and np.all(others == np.floor(others))):
        raise InputError(
            f"must be a symmetric {tasks} by {tasks} table of whole numbers of at least 1.",
            field="steps",
        )
    pairs = [
        (i, k, *_group_privacy(budget, int(apart[i, k])))
        for i in range(tasks)
        for k in range(tasks)
        if i != k
    ]
    # A pair to whom nothing is promised is no constraint. Leaving out one more can only raise the
    # ceiling, and beyond epsilon 30 by less than a part in 10^12.
    pairs = [pair for pair in pairs if pair[2] < 30.0 and pair[3] < 1.0]
    size = tasks * decisions * (1 + tasks)
    if size > _MOST_VARIABLES:
        raise InputError(f"{tasks} tasks and {decisions} decisions are too many for the program.")
    return _dual_bound(worth, pairs)


def _group_privacy(budget: Budget, steps: int) -> tuple[float, float]:
    """`group_privacy` as plain numbers, delta infinite where it is too large for them."""
    epsilon = steps * budget.epsilon
    if budget.delta == 0.0:
        return epsilon, 0.0
    if epsilon > 700.0:
        return epsilon, math.inf
    # The quotient first: delta times a tiny epsilon would vanish.
    return epsilon, budget.delta * (math.expm1(epsilon) / math.expm1(budget.epsilon))


def _dual_bound(worth: Array, pairs: list[tuple[int, int, float, float]]) -> float:
    from scipy import optimize

    tasks, decisions = worth.shape
    # A power of two for a unit, so that differences of huge numbers do not overflow.
    size = math.frexp(float(np.max(np.abs(worth))))[1]
    worth = np.ldexp(worth, -size)
    # Centred and scaled per task, which moves the answer by a constant: the solver likes units.
    offset = worth.min(axis=1, keepdims=True)
    unit = float(np.max(worth - offset)) or 1.0
    gain = np.zeros(tasks * decisions + len(pairs) * decisions)
    gain[: worth.size] = ((worth - offset) / unit / tasks).ravel()

    # Variables: P_ij, then for each pair t_j >= P_ij - e^epsilon P_kj; all between 0 and 1. Rows:
    # one for each t_j, then one for each pair with the sum of its t_j.
    column = np.arange(decisions)
    entries: list[_Entries] = []
    ones = np.ones(decisions)
    for n, (i, k, epsilon, _) in enumerate(pairs):
        row, extra = n * decisions + column, worth.size + n * decisions + column
        entries += [
            (row, i * decisions + column, ones),
            (row, k * decisions + column, -math.exp(epsilon) * ones),
            (row, extra, -ones),
            (len(pairs) * decisions + n * ones, extra, ones),
        ]
    limits = np.concatenate([np.zeros(len(pairs) * decisions), [delta for *_, delta in pairs]])
    upper = _sparse(entries, (limits.size, gain.size))
    rows = [(i * ones, i * decisions + column, ones) for i in range(tasks)]
    equal = _sparse(rows, (tasks, gain.size))

    found = optimize.linprog(
        -gain,
        A_ub=upper,
        b_ub=limits,
        A_eq=equal,
        b_eq=np.ones(tasks),
        bounds=(0.0, 1.0),
        method="highs",
        # The bound below holds at any tolerance; it is as close as the prices are good.
        options={"dual_feasibility_tolerance": 1e-10, "primal_feasibility_tolerance": 1e-10},
    )
    if found.ineqlin is None or found.eqlin is None:
        raise InputError("The linear program was not solved: try fewer tasks or other values.")
    prices = np.maximum(-found.ineqlin.marginals, 0.0)
    levels = -found.eqlin.marginals
    left = gain - upper.T @ prices - equal.T @ levels
    bound = prices @ limits + levels.sum() + np.maximum(left, 0.0).sum()
    # The best decision in every task is a ceiling too, and the solver does not know it exactly.
    known = math.fsum(worth.max(axis=1)) / tasks
    return math.ldexp(min(float(offset.mean() + unit * bound), known), size)


def _sparse(entries: Sequence[_Entries], shape: tuple[int, int]) -> Any:
    from scipy import sparse

    if not entries:
        return sparse.csr_matrix(shape)
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    return sparse.csr_matrix((value, (row.astype(np.int64), column)), shape=shape)


def _matrix(name: str, value: ArrayLike) -> Array:
    matrix = as_float64(name, value)
    if matrix.ndim != 2 or matrix.size == 0 or not np.all(np.isfinite(matrix)):
        raise InputError("must be a table of finite numbers with a row for each task.", field=name)
    return matrix
