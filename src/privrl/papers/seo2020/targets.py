"""Tables 2 to 4 and Figures 2 to 5 of Seo and Yang (2020) as targets of `privrl reproduce`.

Our copy of the paper has no pictures, so no value of a learning curve can be read off it: what
stands for Figures 2 to 5 is what the text says of them. "About as good" is taken to be within 0.15
of what lies between learning nothing and the optimum. `trials` makes the rows.
"""

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
from privrl.papers.seo2020.printed import TABLE_2
from privrl.papers.seo2020.shown import (
    LOST,
    MARGIN,
    NAMES,
    POINTS,
    PRIVACY,
    PRIVATE,
    READINGS,
    SPREAD,
    TITLES,
    TRIALS,
    pilot,
)
from privrl.papers.seo2020.targets_runs import FIGURE_2, FIGURE_3, TABLE_3_TARGET
from privrl.papers.seo2020.targets_traces import FIGURE_4, TABLE_4_TARGET

# --- Figure 5 -------------------------------------------------------------------------------------

ACTING = Experiment(
    "seo2020.acting",
    f"{TRIALS}:acting",
    tuple({"environment": name} for name in NAMES),
    full=Plan(range(1000, 1040)),
    quick=Plan(range(100, 102), {"episodes": 4}, is_reduced=True),
    readings=tuple(READINGS[k] for k in (2, 0, 1, 3)),
    seeds_at_once=20,
    privacy=PRIVACY,
    options_by="environment",
)
_WAYS = ("epsilon-greedy", "softmax")


def _by_acting(name: str, variant: str, way: str) -> Quantity:
    return Quantity(
        f"{name}, {TITLES[variant]}, {way}",
        f"mean {variant} {way}",
        {"environment": name},
        spread=SPREAD[name],
        lost=LOST,
    )


_FASTER = tuple(
    above(
        f"{name}: {TITLES[variant]} gains more in 500 episodes by epsilon-greedy than by softmax",
        f"{name}, {TITLES[variant]}, epsilon-greedy",
        f"{name}, {TITLES[variant]}, softmax",
        least=MARGIN[name],
        counts=variant == "actor",
    )
    for name in NAMES
    for variant in PRIVATE
)
FIGURE_5 = Target(
    "seo2020.figure5",
    "Learning curves by epsilon-greedy and by softmax",
    "Section 4.2.3, Figure 5",
    ACTING,
    tuple(_by_acting(name, variant, way) for name in NAMES for variant in TITLES for way in _WAYS),
    _FASTER,
    tuple(
        Figure(
            f"Figure 5, {name}",
            "episode",
            "return",
            tuple(
                Series(
                    f"{TITLES[variant]}, {way}",
                    f"curve {variant} {way}",
                    POINTS,
                    {"environment": name},
                )
                for variant in PRIVATE
                for way in _WAYS
            ),
        )
        for name in NAMES
    ),
    (
        Statement(
            "the soft-max policy inevitably convergences to the local optimal slower than the "
            "e-greedy one",
            "Section 4.2.3",
            tuple(one.name for one in _FASTER if one.counts),
        ),
        Statement(
            "in all DP-applied cases, if we set the policy to be the e-greedy, the DP-Actor only "
            "converges to local optimal faster than soft-max one",
            "Section 4.2.3",
            tuple(one.name for one in _FASTER),
        ),
    ),
    notes=(
        LOST,
        "The mean return of all 500 episodes measures how fast a run converges.",
        "Nothing is printed to choose a reading by, so the best settings, as in its caption, are "
        "judged.",
    ),
)

# --- Table 2 --------------------------------------------------------------------------------------

GRID = Experiment(
    "seo2020.grid",
    f"{TRIALS}:grid",
    tuple(
        {"environment": name, "variant": variant, "acting": way}
        for name in NAMES
        for variant, way in (
            ("actor", "epsilon-greedy"),
            ("critic", "epsilon-greedy"),
            ("both", "epsilon-greedy"),
            ("none", "epsilon-greedy"),
            ("actor", "softmax"),
        )
    ),
    full=Plan(range(1008, 1044)),
    quick=Plan(range(108, 110), {"episodes": 4, "most": 6}, is_reduced=True),
    readings=READINGS[:2],
    # Of all settings, since `trials.BEST` is chosen on these seeds too.
    selection=Plan(range(10)),
    seeds_at_once=4,
    privacy=PRIVACY,
    options_by="environment",
)
_OURS = {"variant": "actor", "acting": "epsilon-greedy"}
_PARAMETERS = {
    name: ", ".join(f"{key} {value:g}" for key, value in TABLE_2[name].items()) for name in NAMES
}
TABLE_2_TARGET = Target(
    "seo2020.table2",
    "Settings that are best for DP-Actor: their rank in the grid of Table 1",
    "Section 4.2.1, Table 2",
    GRID,
    tuple(
        one
        for name in NAMES
        for one in (
            Quantity(
                f"{name}, share of the grid that is worse",
                "beats",
                {"environment": name, **_OURS},
                printed=Printed(
                    1.0,
                    f"Table 2, row {name}",
                    note=f"The best of the grid: {_PARAMETERS[name]}, epsilon 10, delta 1e-6.",
                ),
                tolerance=0.01,
                spread=0.08,
            ),
            Quantity(
                f"{name}, return",
                "table 2",
                {"environment": name, **_OURS},
                **pilot(name, "actor 10"),
                lost="The paper prints no return.",
            ),
            Quantity(
                f"{name}, best of 36 settings",
                "best",
                {"environment": name, **_OURS},
                spread=SPREAD[name],
                lost="The paper prints no return.",
            ),
        )
    ),
    tuple(
        Difference(
            f"{name}: Table 2's settings are better than nine in ten of the grid",
            {f"{name}, share of the grid that is worse": 1.0},
            beyond=0.9,
        )
        for name in NAMES
    ),
    Table(
        ("worse share", "return", "best of 36"),
        tuple(
            (
                name,
                tuple(
                    f"{name}, {what}"
                    for what in ("share of the grid that is worse", "return", "best of 36 settings")
                ),
            )
            for name in NAMES
        ),
    ),
    (
        Statement(
            "All parameters were processed according to Table 1 to find the optimal parameter "
            "combination",
            "Section 4",
            tuple(
                f"{name}: Table 2's settings are better than nine in ten of the grid"
                for name in NAMES
            ),
        ),
    ),
    notes=(
        *(f"{name}: {settings}." for name, settings in _PARAMETERS.items()),
        "Of the grid's epsilons, 10 is taken. A seed is a 36th of the grid: 36 of them are all.",
    ),
)

TARGETS = (
    TABLE_2_TARGET,
    TABLE_3_TARGET,
    TABLE_4_TARGET,
    FIGURE_2,
    FIGURE_3,
    FIGURE_4,
    FIGURE_5,
)
