"""Table I and Figure 2 of Rajabi et al. (2022) for `privrl reproduce`.

Both come from the same runs: for each objective and noise level learn, note the loss, then roll
policies out for 400 steps. The paper has no sizes; all that it leaves open is from the authors'
public code, and what was run for it is not known, since the printed weights of Algorithm 1 raise
negative numbers to fractional powers. So besides Algorithms 1 to 3 with the estimator corrected
there is the reading `public_code`, with the code's mistakes. The caption of Table I has the columns
in the order of penalties 50, 25, 10, 5; the code lists obstacles as 50, 5, 25, 10. Both are tried.

The curves of Figure 2 are not in our copy. The three numbers are read off the picture in the
authors' repository, which shows 400 of the code's 800 episodes, at its right end.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from privrl.papers.rajabi2022.printed import HORIZON, SIGMAS, STATEMENTS, TABLE_1
from privrl.papers.reproduce.target import (
    Difference,
    Experiment,
    Figure,
    Kind,
    Plan,
    Printed,
    Quantity,
    Reading,
    Row,
    Series,
    Statement,
    Table,
    Target,
    above,
)

SHOWN = 400
"""Episodes that Figure 2 shows."""

FIGURE_2 = {0.0: 7.8, 1.0: 8.0, 5.0: 20.5}
"""The loss at the right end of the picture in the authors' repository, about, by sigma."""

READING_ERROR = 0.3
"""Half a unit of the loss, over the root of 3."""

EPSILON, DELTA, RADIUS = 1.0, 1e-6, 1.0
"""Of the certified learner: the radius is that of the paper's reward functions."""

_ACTINGS = {"greedy": "Max.Q", "proportional": "RandQ"}
_OBJECTIVES = {"CPT": "CPT", "expectation": "No CPT"}
_LEVELS = {5.0: "DP-5", 1.0: "DP-1", 0.0: "No DP"}
_POINTS = 20


# --- runs -----------------------------------------------------------------------------------------


def trials(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Learn and roll out: an objective at a noise level, or what to compare with."""
    method = setting["method"]
    if method == "random":
        return _uniform(seeds)
    if method == "certified":
        return _certified(seeds)
    losses, visits = (_run_code if options["kind"] == "code" else _run_corrected)(
        options, setting, seeds
    )
    return [
        _row(seed, losses[k], {name: one[k] for name, one in visits.items()}, options)
        for k, seed in enumerate(seeds)
    ]


def _run_code(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> tuple[Any, dict[str, Any]]:
    """The public code with its mistakes."""
    from privrl.papers.rajabi2022.public_code import PublicCode, train
    from privrl.papers.wang2019.draws import keys

    form = PublicCode(
        cpt=setting["objective"] == "CPT",
        episodes=setting["episodes"],
        samples=setting["samples"],
        fourth=options.get("fourth", "below"),
    )
    found = train(keys(seeds), form, setting["sigma"])
    return found.losses, found.visits


def _run_corrected(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> tuple[Any, dict[str, Any]]:
    """Algorithms 1 to 3 with the right weights, as printed or with the code's settings."""
    from dataclasses import replace

    import numpy as np

    from privrl.papers.rajabi2022.fast import train
    from privrl.papers.rajabi2022.judging import PolicyEvaluator, learner, make_env
    from privrl.papers.wang2019.draws import keys

    is_code = options["kind"] == "settings"
    preset: Any = "public-code" if is_code else "printed"
    env = make_env(preset)
    sigma = np.full(len(seeds), setting["sigma"])
    visits: dict[str, Any] = {}
    losses, run = None, None
    for acting in _ACTINGS:
        # The names in settings and in `_ACTINGS` are those of the learner, which mypy cannot see.
        chosen: Any = learner(preset, setting["objective"], acting)  # type: ignore[arg-type]
        chosen = replace(chosen, iterations=setting["episodes"], samples=setting["samples"])
        if run is None or not is_code:
            # The public code learns once, and acts in both ways on that.
            run = train(keys(seeds), chosen, env, {"sigma": sigma})
        losses = run.losses if losses is None else losses
        evaluator = PolicyEvaluator(env)
        probs = run.program.probabilities(
            run.state, evaluator.points, chosen.acting, noise=not is_code
        )
        visits[acting] = np.array(
            [
                evaluator.cell_visits(policy, past_target=is_code)[evaluator.obstacles]
                for policy in evaluator.tables(probs)
            ]
        )
    return losses, visits


def _row(seed: int, losses: Any, visits: Mapping[str, Any], options: Mapping[str, Any]) -> Row:
    import numpy as np

    seen = np.asarray(losses[:SHOWN], np.float64)
    first = int(np.argmax(np.isfinite(seen)))
    parts = np.array_split(seen, min(_POINTS, len(seen)))
    row: Row = {
        "seed": seed,
        "loss": float(np.nanmean(seen[-max(1, len(seen) // 4) :])),
        "first": float(seen[first]),
        "episodes": [int(k) for k in np.cumsum([len(one) for one in parts])],
        # Until there is a minibatch the loss is that of the first.
        "curve": [round(float(np.mean(np.nan_to_num(one, nan=seen[first]))), 3) for one in parts],
    }
    order = options.get("order", [0, 1, 2, 3])
    total = worst = 0.0
    for acting, own in visits.items():
        ordered = [float(own[k]) for k in order]
        row |= {f"{acting}_obs{k}": round(x, 4) for k, x in enumerate(ordered, 1)}
        total += sum(ordered) / len(visits)
        worst += sum(ordered[:2]) / len(visits)
    return {**row, "visits": round(total, 4), "worst": round(worst, 4)}


def _uniform(seeds: Sequence[int]) -> list[Row]:
    """Any action, all alike, on the square of the code and past the target: exactly."""
    from privrl.papers.rajabi2022.judging import PolicyEvaluator, make_env

    evaluator = PolicyEvaluator(make_env("public-code"))
    found = evaluator.cell_visits(evaluator.grid.uniform(), past_target=True)[evaluator.obstacles]
    own = {f"obs{k}": round(float(x), 4) for k, x in enumerate(found, 1)}
    return [{"seed": seed, **own, "visits": round(float(sum(found)), 4)} for seed in seeds]


def _certified(seeds: Sequence[int]) -> list[Row]:
    """The certified reward model, planned on for the standard person; visits until the target."""
    import numpy as np

    from privrl.envs import ObstacleGrid

    grid, rows = ObstacleGrid(), []
    states = np.arange(grid.num_states)
    for seed in seeds:
        policy = _learn_certified(grid, seed).probabilities(states)
        entries = grid.visits(policy, HORIZON).tolist()
        found = [entries[grid.cell(x, y)] for x, y, _ in grid.obstacles]
        own = {f"obs{k}": round(x, 5) for k, x in enumerate(found, 1)}
        rows.append({"seed": seed, **own, "visits": round(sum(found), 5), "arrives": entries[-1]})
    return rows


def _learn_certified(grid: Any, seed: int) -> Any:
    from privrl.control import ProspectQ
    from privrl.privacy.promise import Budget
    from privrl.privacy.session import PrivacySession
    from privrl.risk import Prospect

    learner = ProspectQ(
        gamma=0.9,
        prospect=Prospect.tversky_kahneman(),
        reward_range=(-50.0, 0.0),
        budget=Budget(EPSILON, DELTA),
        reward_radius=RADIUS,
    )
    return learner.learn(grid, session=PrivacySession(seed=seed))


def privacy_rows() -> list[Row]:
    """What Theorem 1 would claim for sigma 1 and 5, and that nothing is certified."""
    from privrl.core.errors import InputError
    from privrl.envs import ObstacleGrid
    from privrl.privacy.claims import rajabi2022_theorem1

    def claimed(sigma: float) -> float:
        low, high = 1e-6, 1e4
        for _ in range(100):
            middle = (low * high) ** 0.5
            try:
                needed = float(rajabi2022_theorem1(middle, 1e-4, batch=20).details["sigma"])
            except InputError:
                needed = float("inf")
            low, high = (middle, high) if needed > sigma else (low, middle)
        return round(high, 4)

    unit = "reward functions within 1 of each other"
    rows: list[Row] = [
        {
            "series": f"sigma {sigma:g}",
            "claimed": claimed(sigma),
            "epsilon": None,
            "delta": 1e-4,
            "unit": unit,
            "basis": "Theorem 1 for each iteration, solved for epsilon, batches of 20",
            "note": "Nothing is certified: the weights are carried on without noise, 800 "
            "iterations are not added up, and the policy that is rolled out has no noise.",
        }
        for sigma in (1.0, 5.0)
    ]
    return [
        *rows,
        {
            "series": f"certified reward model, radius {RADIUS:g}",
            "claimed": EPSILON,
            "epsilon": _learn_certified(ObstacleGrid(), 0).certificate.epsilon,
            "delta": DELTA,
            "unit": unit,
            "basis": "accountant",
            "note": "One Gaussian release for all that follows.",
        },
    ]


# --- the experiment -------------------------------------------------------------------------------

RUNS = Experiment(
    "rajabi2022.runs",
    "privrl.papers.rajabi2022.targets:trials",
    (
        *(
            {"method": "paper", "objective": objective, "sigma": sigma}
            for objective in _OBJECTIVES
            for sigma in SIGMAS
        ),
        {"method": "random"},
        {"method": "certified"},
    ),
    # 120 were planned. Their spread asks for 152 to see that two losses are the same within 3, and
    # that of 168 for 170. Verdicts were looked at both times: two looks more, which count.
    earlier=2,
    full=Plan(range(1000, 1192), {"episodes": 800, "samples": 100}),
    quick=Plan(range(100, 102), {"episodes": 30, "samples": 10}, is_reduced=True),
    readings=(
        Reading(
            "as printed, weights corrected",
            {"paper": {"kind": "printed"}},
            "Algorithms 1 to 3 on the square of the text, policies with noise, episodes that end "
            "at the target.",
        ),
        Reading(
            "public code's settings, weights corrected",
            {"paper": {"kind": "settings"}},
            "Random behaviour, replay, RMSprop; policies without noise, past the target.",
            private=False,
        ),
        Reading(
            "public code, its fourth neighbour corrected",
            {"paper": {"kind": "code"}},
            "With its other mistakes: complex weights of which the real part is kept, gamma V "
            "counted twice, penalties of 1 without CPT, noise by the distance to the corner, and "
            "no end.",
            private=False,
        ),
        Reading(
            "public code, fourth neighbour corrected, columns 50, 5, 25, 10",
            {"paper": {"kind": "code", "order": [0, 3, 1, 2]}},
            "The order in which the code lists obstacles.",
            private=False,
        ),
        Reading(
            "public code as it is",
            {"paper": {"kind": "code", "fourth": "left"}},
            "Its fourth neighbour is that to the left: it changes the wrong coordinate.",
            private=False,
        ),
    ),
    selection=Plan(range(10), {"episodes": 800, "samples": 100}),
    quick_settings=(
        *({"method": "paper", "objective": "CPT", "sigma": sigma} for sigma in (0.0, 5.0)),
        {"method": "random"},
        {"method": "certified"},
    ),
    seeds_at_once=24,
    privacy="privrl.papers.rajabi2022.targets:privacy_rows",
    options_by="method",
)

_TRIALS = 20

# Standard deviations over seeds 0 to 9 of the public code, neighbour corrected, pooled over rows:
# of visits to each obstacle, to all and to the two worst (both the mean of both ways of acting), of
# the loss.
_SPREADS = (7.6, 2.0, 0.8, 2.0)
_ALL_SPREAD, _WORST_SPREAD = 8.1, 7.7
_LOSS_SPREADS = {0.0: 4.8, 1.0: 4.8, 5.0: 7.8}


def _printed(value: float, place: str, spread: float) -> Printed:
    """A mean over the paper's runs, whose spread is taken to be that of seeds 0 to 9."""
    return Printed(value, place, trials=_TRIALS, error=spread / _TRIALS**0.5)


# --- Table I --------------------------------------------------------------------------------------


def _cell(objective: str, acting: str, sigma: float, number: int) -> str:
    return f"{_ACTINGS[acting]} {_LEVELS[sigma]}, {_OBJECTIVES[objective]}, obs{number}"


def _sum_name(what: str, objective: str, sigma: float) -> str:
    return f"{what}: {_OBJECTIVES[objective]}, {_LEVELS[sigma]}"


def _table_quantities() -> tuple[Quantity, ...]:
    cells, sums = [], []
    for objective in _OBJECTIVES:
        for sigma in _LEVELS:
            where = {"method": "paper", "objective": objective, "sigma": sigma}
            both = []
            for acting in _ACTINGS:
                values = TABLE_1[objective, acting, sigma]  # type: ignore[index]
                both.append(values)
                for number, (value, spread) in enumerate(zip(values, _SPREADS, strict=True), 1):
                    row = f"{_ACTINGS[acting]} {_LEVELS[sigma]}"
                    place = f"Table I, row {row}, {_OBJECTIVES[objective]}, obs{number}"
                    cells.append(
                        Quantity(
                            _cell(objective, acting, sigma, number),
                            f"{acting}_obs{number}",
                            where,
                            printed=_printed(value, place, spread),
                            tolerance=0.5,
                            spread=spread,
                        )
                    )
            for what, measure, count, spread in (
                ("all visits", "visits", 4, _ALL_SPREAD),
                ("visits to obs1 and obs2", "worst", 2, _WORST_SPREAD),
            ):
                value = sum(sum(one[:count]) for one in both) / 2.0
                place = f"Table I, sums over rows {_LEVELS[sigma]}, {_OBJECTIVES[objective]}"
                sums.append(
                    Quantity(
                        _sum_name(what, objective, sigma),
                        measure,
                        where,
                        printed=_printed(value, place, spread),
                        tolerance=0.5,
                        spread=spread,
                    )
                )
    compared: tuple[tuple[str, str, Kind, tuple[float, ...], float], ...] = (
        ("any action", "random", "control", (2.73, 3.9, 4.1, 4.4), 0.0),
        ("certified", "certified", "certified", (0.64, 0.09, 0.5, 0.15), 0.5),
    )
    others = [
        Quantity(
            f"{name}, obs{number}",
            f"obs{number}",
            {"method": method},
            pilot=pilot,
            spread=spread,
            kind=kind,
        )
        for name, method, kind, pilots, spread in compared
        for number, pilot in enumerate(pilots, 1)
    ]
    return (*cells, *sums, *others)


def _fewer(name: str, what: str) -> Difference:
    weights = {_sum_name(what, "expectation", sigma): 1.0 / 3.0 for sigma in SIGMAS}
    weights |= {_sum_name(what, "CPT", sigma): -1.0 / 3.0 for sigma in SIGMAS}
    return Difference(name, weights)


_MORE = {
    _sum_name("all visits", objective, sigma): weight
    for objective in _OBJECTIVES
    for sigma, weight in ((5.0, 0.5), (0.0, -0.5))
}

TABLE_I = Target(
    "rajabi2022.table1",
    "Visits to obstacles in a roll-out, by objective, noise and way of acting",
    "Section VI, Table I",
    RUNS,
    _table_quantities(),
    (
        _fewer("fewer visits with CPT", "all visits"),
        _fewer("fewer visits with CPT to the two worst obstacles", "visits to obs1 and obs2"),
        Difference("more visits with more noise", _MORE),
    ),
    Table(
        tuple(f"{one}, obs{k}" for one in _OBJECTIVES.values() for k in range(1, 5)),
        (
            *(
                (
                    f"{_ACTINGS[acting]} {_LEVELS[sigma]}",
                    tuple(
                        _cell(objective, acting, sigma, k)
                        for objective in _OBJECTIVES
                        for k in range(1, 5)
                    ),
                )
                for acting in _ACTINGS
                for sigma in _LEVELS
            ),
            *(
                (name, (*(f"{name}, obs{k}" for k in range(1, 5)), "", "", "", ""))
                for name in ("any action", "certified")
            ),
        ),
    ),
    (
        Statement(STATEMENTS[0], "Section VI, first observation", ("fewer visits with CPT",)),
        Statement(
            STATEMENTS[1],
            "Section VI, second observation",
            ("fewer visits with CPT to the two worst obstacles",),
        ),
        Statement(STATEMENTS[2], "Section VI, third observation", ("more visits with more noise",)),
    ),
    (
        "The paper prints no errors. Over runs of the public code a cell has a standard "
        "deviation of up to twenty visits, and a mean over 20 runs a standard error as large as "
        "most entries: none of the three observations is beyond that of the table.",
        "Certified: epsilon 1, delta 1e-6, radius 1, for the standard person with loss aversion, "
        "episodes that end at the target. No noise is left to act by: what is shown is the policy.",
        "Roll-outs of the public code go on past the target, which is next to obs1.",
        "obs1 and obs2 are the two worst in the order of the caption. In the order 50, 5, 25, 10 "
        "they are not, and the second observation is not judged by them.",
    ),
)


# --- Figure 2 -------------------------------------------------------------------------------------


def _loss(sigma: float) -> str:
    return f"loss, {_LEVELS[sigma]}"


def _varies(sigma: float) -> str:
    return f"standard deviation of the loss, {_LEVELS[sigma]}"


_CPT = {"method": "paper", "objective": "CPT"}

FIGURE = Target(
    "rajabi2022.figure2",
    "Loss while learning with the CPT objective, by noise level",
    "Section VI, Figure 2",
    RUNS,
    (
        *(
            Quantity(
                _loss(sigma),
                "loss",
                {**_CPT, "sigma": sigma},
                printed=Printed(
                    value,
                    f"Figure 2, right end, {_LEVELS[sigma]}",
                    trials=_TRIALS,
                    reading=READING_ERROR,
                    note="Read off the picture in the authors' repository.",
                ),
                tolerance=1.0,
                spread=_LOSS_SPREADS[sigma],
            )
            for sigma, value in FIGURE_2.items()
        ),
        *(
            Quantity(
                _varies(sigma),
                "loss",
                {**_CPT, "sigma": sigma},
                statistic=statistics.pstdev,
                pilot=_LOSS_SPREADS[sigma],
                spread=_LOSS_SPREADS[sigma] / 2.0**0.5,
                lost="Our copy has lost the shaded regions.",
            )
            for sigma in (0.0, 1.0)
        ),
        Quantity(
            "loss before learning, No DP",
            "first",
            {**_CPT, "sigma": 0.0},
            pilot=25.1,
            spread=2.8,
            kind="control",
        ),
    ),
    (
        above("DP-5 above No DP", _loss(5.0), _loss(0.0)),
        above("DP-5 above DP-1", _loss(5.0), _loss(1.0)),
        Difference("DP-1 like No DP", {_loss(1.0): 1.0, _loss(0.0): -1.0}, "same", least=3.0),
        # With no learning at all the loss is the higher, the more noise there is.
        above("the loss falls", "loss before learning, No DP", _loss(0.0), least=3.0),
        Difference(
            "the loss varies with DP-1 as with No DP",
            {_varies(1.0): 1.0, _varies(0.0): -1.0},
            "same",
            least=3.0,
            counts=False,
        ),
    ),
    (
        Figure(
            "Loss, CPT",
            "episodes",
            "loss",
            tuple(
                Series(
                    _LEVELS[sigma],
                    "curve",
                    "episodes",
                    {**_CPT, "sigma": sigma},
                    printed=((float(SHOWN), value),),
                )
                for sigma, value in FIGURE_2.items()
            ),
        ),
    ),
    (
        Statement(
            "When σ = 1 (red curve, denoted DP-1), the average loss and its variance is comparable "
            "to the setting without differential privacy (blue curve, denoted No DP).",
            "Figure 2, caption",
            ("DP-1 like No DP", "the loss varies with DP-1 as with No DP"),
        ),
        Statement(
            "Choosing σ = 5 [...] results in a higher loss, thus demonstrating a privacy-utility "
            "tradeoff.",
            "Figure 2, caption",
            ("DP-5 above No DP", "DP-5 above DP-1", "the loss falls"),
        ),
    ),
    (
        "The loss is against the learner's own target, which has the same noise in it: it says "
        "nothing of what the policy is worth. A certified reward model has no such loss; what its "
        "policy does is in Table I.",
        '"Like" is within 3, a quarter of what sigma 5 adds in the picture.',
    ),
)

TARGETS = (TABLE_I, FIGURE)
