"""Figures 2 and 3 and Table 3 of Seo and Yang (2020): returns."""

from dataclasses import replace

from privrl.papers.reproduce import (
    Difference,
    Experiment,
    Figure,
    Plan,
    Printed,
    Quantity,
    Series,
    Statement,
    Table,
    Target,
    above,
)
from privrl.papers.reproduce.target import Kind
from privrl.papers.seo2020.printed import BUDGETS, TABLE_3
from privrl.papers.seo2020.shown import (
    LOST,
    MARGIN,
    NAMES,
    POINTS,
    PRIVACY,
    PRIVATE,
    READINGS,
    TITLES,
    TRIALS,
    pilot,
)

_DEVIATION_READINGS = tuple(
    replace(
        one,
        name=f"{one.name}; deviation {kind}",
        options={name: {**one.options.get(name, {}), "deviation": kind} for name in NAMES},
    )
    for one in READINGS
    for kind in ("within a run", "late in a run", "between runs")
)


_PAPER = tuple(
    {"environment": name, "method": "paper", "epsilons": list(BUDGETS)} for name in NAMES
)
RUNS = Experiment(
    "seo2020.runs",
    f"{TRIALS}:budgets",
    (*_PAPER, *({"environment": name, "method": "reference"} for name in NAMES)),
    full=Plan(range(1000, 1070)),
    quick=Plan(range(100, 102), {"episodes": 4}, is_reduced=True),
    readings=READINGS + _DEVIATION_READINGS,
    selection_settings=tuple({**one, "epsilons": [10.0]} for one in _PAPER),
    seeds_at_once=24,
    privacy=PRIVACY,
    options_by="environment",
)


def _last(name: str, series: str, title: str, kind: Kind = "paper") -> Quantity:
    """The mean return of the last 50 episodes."""
    is_paper = kind == "paper"
    return Quantity(
        f"{name}, {title}",
        f"last {series}" if is_paper else series,
        {"environment": name, "method": "paper" if is_paper else "reference"},
        kind=kind,
        lost=LOST if is_paper else "",
        **pilot(name, series),
    )


def _returns(series: tuple[str, ...]) -> list[Quantity]:
    found = []
    for name in NAMES:
        for one in series:
            variant, _, epsilon = one.partition(" ")
            title = TITLES[variant] + (f", epsilon {epsilon}" if epsilon else "")
            found.append(_last(name, one, title))
    return found


def _references(epsilons: tuple[int, ...]) -> list[Quantity]:
    found = []
    for name in NAMES:
        found.append(_last(name, "chance", "choosing at random", "control"))
        for epsilon in epsilons:
            title = f"certified, epsilon {epsilon}"
            found.append(_last(name, f"certified {epsilon}", title, "certified"))
    return found


_CURVES = tuple(
    Figure(
        f"Figure 2, {name}: epsilon 10 for each step (certified: for each person)",
        "episode",
        "return",
        (
            *(
                Series(
                    title,
                    f"curve {variant}" + ("" if variant == "none" else " 10"),
                    POINTS,
                    {"environment": name},
                    "plain" if variant == "none" else "paper",
                )
                for variant, title in TITLES.items()
            ),
            Series(
                "certified, epsilon 10",
                "certified curve 10",
                POINTS,
                {"environment": name},
                "certified",
            ),
        ),
    )
    for name in NAMES
)

_CRITIC_BEST = tuple(
    above(
        f"{name}: DP-Critic above {TITLES[other]}",
        f"{name}, DP-Critic, epsilon 10",
        f"{name}, {TITLES[other]}, epsilon 10",
        least=MARGIN[name],
    )
    for name in NAMES
    for other in ("actor", "both")
)
_WIDER = Difference(
    "DP-Critic is further above DP-Actor in Taxi-v2 than in MDP-100",
    {
        "Taxi-v2, DP-Critic, epsilon 10": 1.0,
        "Taxi-v2, DP-Actor, epsilon 10": -1.0,
        "MDP-100, DP-Critic, epsilon 10": -1.0,
        "MDP-100, DP-Actor, epsilon 10": 1.0,
    },
    least=100.0,
)
_LEARNS = tuple(
    above(
        f"{name}: DP-Actor above choosing at random",
        f"{name}, DP-Actor, epsilon 10",
        f"{name}, choosing at random",
        least=MARGIN[name],
    )
    for name in NAMES
)
_CERTIFIED = above(
    "MDP-100: certified for each person above the best of the paper's at the same epsilon",
    "MDP-100, certified, epsilon 10",
    "MDP-100, DP-Critic, epsilon 10",
    least=MARGIN["MDP-100"] / 2.0,
    counts=False,
)
FIGURE_2 = Target(
    "seo2020.figure2",
    "Learning curves of the four variants",
    "Section 4.2.1, Figure 2",
    RUNS,
    (*_returns(("none", "actor 10", "critic 10", "both 10")), *_references((10,))),
    (*_CRITIC_BEST, _WIDER, *_LEARNS, _CERTIFIED),
    _CURVES,
    (
        Statement(
            "the DP-Critic achieved the highest performance in all environments",
            "Section 4.2.1, first observation",
            tuple(one.name for one in _CRITIC_BEST),
        ),
        Statement(
            "the differences in performance estimates corresponding to the DP-Critic and DP-Actor "
            "were larger in Taxi-v2 compared with MDP-100",
            "Section 4.2.1, second observation",
            (_WIDER.name,),
        ),
        Statement(
            "the results confirmed the feasibility of the proposed method",
            "Abstract",
            tuple(one.name for one in _LEARNS),
        ),
    ),
    notes=(LOST,),
)


def _fall(name: str, variant: str, high: str, low: str) -> dict[str, float]:
    """By how much a variant is worse at a smaller epsilon."""
    title = f"{name}, {TITLES[variant]}, epsilon"
    return {f"{title} {high}": 1.0, f"{title} {low}": -1.0}


def _minus(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    return one | {name: -weight for name, weight in other.items()}


def _about_as_good(name: str, variant: str, low: str) -> Difference:
    return Difference(
        f"{name}: {TITLES[variant]} is about as good at epsilon {low} as at 10",
        _fall(name, variant, "10", low),
        "same",
        MARGIN[name],
    )


_AS_GOOD = (
    _about_as_good("MDP-100", "actor", "0.5"),
    _about_as_good("Taxi-v2", "actor", "1"),
    _about_as_good("MDP-100", "critic", "1"),
    _about_as_good("Taxi-v2", "critic", "5"),
)
_FALLS = (
    Difference(
        "MDP-100: DP-Critic is worse at epsilon 0.5 than at 1",
        _fall("MDP-100", "critic", "1", "0.5"),
        least=MARGIN["MDP-100"],
    ),
    Difference(
        "Taxi-v2: DP-Critic is worse at epsilon 1 than at 5",
        _fall("Taxi-v2", "critic", "5", "1"),
        least=MARGIN["Taxi-v2"],
    ),
)
_STEADIER = tuple(
    Difference(
        f"{name}: from epsilon 10 to 0.1 DP-Critic loses more than DP-Actor",
        _minus(_fall(name, "critic", "10", "0.1"), _fall(name, "actor", "10", "0.1")),
        least=MARGIN[name],
    )
    for name in NAMES
)
_BOTH = Difference(
    "from epsilon 5 to 1 DP-Both loses more in Taxi-v2 than in MDP-100",
    _minus(_fall("Taxi-v2", "both", "5", "1"), _fall("MDP-100", "both", "5", "1")),
    least=100.0,
)
FIGURE_3 = Target(
    "seo2020.figure3",
    "Return by privacy budget",
    "Section 4.2.1, Figure 3",
    RUNS,
    (
        *_returns(tuple(f"{variant} {epsilon:g}" for variant in PRIVATE for epsilon in BUDGETS)),
        *_references((10, 1)),
    ),
    (*_AS_GOOD, *_FALLS, *_STEADIER, _BOTH),
    tuple(
        Figure(
            f"Figure 3, {name}: the last 50 of 500 episodes",
            "epsilon, for each step (certified: for each person)",
            "return",
            (
                *(
                    Series(TITLES[one], f"by epsilon {one}", BUDGETS, {"environment": name})
                    for one in PRIVATE
                ),
                Series(
                    "certified",
                    "certified by epsilon",
                    (10.0, 1.0),
                    {"environment": name},
                    "certified",
                ),
            ),
            log_x=True,
        )
        for name in NAMES
    ),
    (
        Statement(
            "DP-Actor exhibited almost similar performance estimates in a wider privacy budget "
            "range ({10, 5, 1, 0.5} in MDP-100, and {10, 5, 1} in Taxi-v2)",
            "Section 4.2.1",
            (_AS_GOOD[0].name, _AS_GOOD[1].name),
        ),
        Statement(
            "compared with the results corresponding to DP-Critic ({10, 5, 1} in MDP-100, {10, 5} "
            "in Taxi-v2)",
            "Section 4.2.1",
            (_AS_GOOD[2].name, _AS_GOOD[3].name, *(one.name for one in _FALLS)),
        ),
        Statement(
            "the performance degradation corresponding to the lower privacy budget in the case of "
            "DP-Actor deemed to be more stable compared with DP-Critic",
            "Section 4.2.1",
            tuple(one.name for one in _STEADIER),
        ),
        Statement(
            "in the DP-Both case [...] it demonstrated more significant performance degradation "
            "from e = 5 to e = 1 in Taxi-v2 compared with the results corresponding to MDP-100",
            "Section 4.2.1",
            (_BOTH.name,),
        ),
    ),
    notes=(
        LOST,
        "The curves at each epsilon are drawn as what they end in.",
        "A run whose preferences are no numbers any more takes the first action, which on MDP-100 "
        "is to stay and on Taxi-v2 to go south, at -1 a step: better there than what was learned. "
        "Rows say which runs diverged.",
    ),
)

_DEVIATION_SPREAD = {"MDP-100": 20.0, "Taxi-v2": 25.0}
"""Of what a run contributes, for planning."""

TABLE_3_TARGET = Target(
    "seo2020.table3",
    "Standard deviation of the performance",
    "Section 4.2.1, Table 3",
    RUNS,
    tuple(
        Quantity(
            f"{name}, {title}",
            f"square {variant}" + ("" if variant == "none" else " 10"),
            {"environment": name, "method": "paper"},
            "root-mean",
            printed=Printed(
                TABLE_3[name][variant], f"Table 3, row {name}, column {title}", trials=10
            ),
            tolerance=0.1 * TABLE_3[name][variant],
            spread=_DEVIATION_SPREAD[name],
        )
        for name in NAMES
        for variant, title in TITLES.items()
    ),
    tuple(
        above(
            f"{name}: {TITLES[more]} varies more than DP-Critic",
            f"{name}, {TITLES[more]}",
            f"{name}, DP-Critic",
        )
        for name in NAMES
        for more in ("actor", "both")
    ),
    Table(
        tuple(TITLES.values()),
        tuple((name, tuple(f"{name}, {title}" for title in TITLES.values())) for name in NAMES),
    ),
    (
        Statement(
            "the learning variances of DP-Both and DP-Actor were greater than those of the "
            "DP-Critic",
            "Section 4.2.1, third observation",
            tuple(
                f"{name}: {TITLES[more]} varies more than DP-Critic"
                for name in NAMES
                for more in ("actor", "both")
            ),
        ),
    ),
    notes=("What the deviation is of is not said: the definitions tried are among the readings.",),
)
