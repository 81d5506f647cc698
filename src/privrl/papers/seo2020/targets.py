"""Tables 2 to 4 and Figures 2 to 5 of Seo and Yang (2020) as targets of `privrl reproduce`.

Our copy of the paper has no pictures, so no value of a learning curve can be read off it: what
stands for Figures 2 to 5 is what the text says of them. "About as good" is taken to be within 0.15
of what lies between learning nothing and the optimum. `trials` makes the rows.
"""

from dataclasses import replace
from typing import Any

from privrl.papers.reproduce import (
    Difference,
    Experiment,
    Figure,
    Plan,
    Printed,
    Quantity,
    Reading,
    Series,
    Statement,
    Table,
    Target,
    above,
)
from privrl.papers.reproduce.target import Kind
from privrl.papers.seo2020.printed import BUDGETS, TABLE_2, TABLE_3, TABLE_4, TABLE_4_VARIANCES

NAMES = ("MDP-100", "Taxi-v2")
TITLES = {"none": "Non-DP", "actor": "DP-Actor", "critic": "DP-Critic", "both": "DP-Both"}
PRIVATE = ("actor", "critic", "both")
LOST = "Our copy of the paper has no pictures."
_HERE = "privrl.papers.seo2020.trials"
_PRIVACY = f"{_HERE}:privacy_rows"
_POINTS = tuple(20.0 * k + 10.0 for k in range(25))

# --- readings -------------------------------------------------------------------------------------

_STAY = {"stay": 0.9, "limit": 2000}


def _options(chain: dict[str, Any], **others: Any) -> dict[str, Any]:
    """By environment, so that what differs in MDP-100 alone is run once in Taxi-v2."""
    return {"MDP-100": {**chain, **others}, "Taxi-v2": others}


_READINGS = (
    Reading("as printed", why="stay stays, 500 steps at most; Table 2's settings for all"),
    Reading(
        "stay advances",
        _options(_STAY),
        "right is 'for example': stay may advance with probability 0.1; episodes have no cap",
    ),
    Reading(
        "best settings",
        _options({}, settings="best"),
        "the optimal combination is chosen for each case",
    ),
    Reading("stay advances, best settings", _options(_STAY, settings="best"), "both"),
    Reading(
        "greedy law",
        _options(_STAY, law="epsilon-greedy", rows="visited"),
        "gradient and ratio of the epsilon-greedy law, noise on the visited row alone",
        private=False,
    ),
)
_DEVIATION_READINGS = tuple(
    replace(
        one,
        name=f"{one.name}; deviation {kind}",
        options={name: {**one.options.get(name, {}), "deviation": kind} for name in NAMES},
    )
    for one in _READINGS
    for kind in ("within a run", "late in a run", "between runs")
)

# --- Figures 2 and 3, Table 3 ---------------------------------------------------------------------

_PAPER = tuple(
    {"environment": name, "method": "paper", "epsilons": list(BUDGETS)} for name in NAMES
)
RUNS = Experiment(
    "seo2020.runs",
    f"{_HERE}:budgets",
    (*_PAPER, *({"environment": name, "method": "reference"} for name in NAMES)),
    full=Plan(range(100, 170)),
    quick=Plan(range(100, 102), {"episodes": 4}, is_reduced=True),
    readings=_READINGS + _DEVIATION_READINGS,
    selection_settings=tuple({**one, "epsilons": [10.0]} for one in _PAPER),
    seeds_at_once=24,
    privacy=_PRIVACY,
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
        **_pilot(name, series),
    )


_MEASURED: dict[tuple[str, str], tuple[float, float]] = {
    ("MDP-100", "none"): (-205.3, 12.0),
    ("MDP-100", "actor 10"): (-472.9, 27.0),
    ("MDP-100", "critic 10"): (-226.1, 30.0),
    ("MDP-100", "both 10"): (-480.2, 17.0),
    ("MDP-100", "chance"): (-219.0, 3.0),
    ("MDP-100", "certified 10"): (-109.1, 0.4),
    ("MDP-100", "certified 1"): (-112.2, 5.0),
    ("Taxi-v2", "none"): (-208.2, 10.0),
    ("Taxi-v2", "actor 10"): (-840.4, 121.0),
    ("Taxi-v2", "critic 10"): (-338.1, 58.0),
    ("Taxi-v2", "both 10"): (-984.1, 78.0),
    ("Taxi-v2", "chance"): (-766.0, 20.0),
}
"""What earlier runs in the reading as printed gave (docs/control/actor-critic.md): return of the
last 50 episodes, and its spread over runs. For planning alone."""

_SPREAD = {"MDP-100": 40.0, "Taxi-v2": 120.0}
"""What is planned with where nothing was measured."""


def _pilot(name: str, series: str) -> dict[str, Any]:
    mean, spread = _MEASURED.get((name, series), (None, _SPREAD[name]))
    return {"pilot": mean, "spread": spread}


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


_MARGIN = {"MDP-100": 60.0, "Taxi-v2": 120.0}
"""0.15 of what lies between the optimum (-109; 8.5) and learning nothing (-500; -766)."""

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
                    _POINTS,
                    {"environment": name},
                    "plain" if variant == "none" else "paper",
                )
                for variant, title in TITLES.items()
            ),
            Series(
                "certified, epsilon 10",
                "certified curve 10",
                _POINTS,
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
        least=_MARGIN[name],
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
        least=_MARGIN[name],
    )
    for name in NAMES
)
_CERTIFIED = above(
    "MDP-100: certified for each person above the best of the paper's at the same epsilon",
    "MDP-100, certified, epsilon 10",
    "MDP-100, DP-Critic, epsilon 10",
    least=_MARGIN["MDP-100"] / 2.0,
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
        _MARGIN[name],
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
        least=_MARGIN["MDP-100"],
    ),
    Difference(
        "Taxi-v2: DP-Critic is worse at epsilon 1 than at 5",
        _fall("Taxi-v2", "critic", "5", "1"),
        least=_MARGIN["Taxi-v2"],
    ),
)
_STEADIER = tuple(
    Difference(
        f"{name}: from epsilon 10 to 0.1 DP-Critic loses more than DP-Actor",
        _minus(_fall(name, "critic", "10", "0.1"), _fall(name, "actor", "10", "0.1")),
        least=_MARGIN[name],
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

# --- Table 4 and Figure 4 -------------------------------------------------------------------------

TRACES = Experiment(
    "seo2020.traces",
    f"{_HERE}:similarities",
    tuple({"environment": name} for name in NAMES),
    full=Plan(range(100, 112)),
    quick=Plan(range(100, 102), {"episodes": 4}, is_reduced=True),
    readings=(
        *_READINGS,
        Reading(
            "other worlds",
            _options({}, worlds="other"),
            "runs with and without noise may draw their worlds apart",
        ),
        Reading("stay advances, other worlds", _options(_STAY, worlds="other"), "both"),
    ),
    # A seed is ten runs of each variant.
    selection=Plan(range(3)),
    seeds_at_once=4,
    privacy=_PRIVACY,
    options_by="environment",
)
_PAIRS = (("actor", "actor"), ("critic", "critic"), ("both", "actor"), ("both", "critic"))
_TRACE = {"actor": "e_u", "critic": "e_v"}


def _pair(name: str, variant: str, trace: str) -> str:
    return f"{name}, {TITLES[variant]}, {_TRACE[trace]}"


_COSINE_SPREAD: dict[tuple[str, str, str], tuple[float, float]] = {
    ("MDP-100", "actor", "actor"): (0.005, 0.0006),
    ("MDP-100", "critic", "critic"): (0.02, 0.002),
    ("MDP-100", "both", "actor"): (0.005, 0.0005),
    ("MDP-100", "both", "critic"): (0.03, 0.002),
    ("Taxi-v2", "actor", "actor"): (0.002, 0.00005),
    ("Taxi-v2", "critic", "critic"): (0.003, 0.0002),
    ("Taxi-v2", "both", "actor"): (0.002, 0.00005),
    ("Taxi-v2", "both", "critic"): (0.003, 0.00015),
}
"""Of means and of variances, over whole repetitions of the table: from the printed variances, with
500 episodes that hang together a little. For planning."""


def _cosine(name: str, variant: str, trace: str, kind: str) -> Quantity:
    printed = (TABLE_4 if kind == "mean" else TABLE_4_VARIANCES)[name][variant][trace]
    brackets = ", in brackets" if kind == "variance" else ""
    return Quantity(
        _pair(name, variant, trace) + (", variance" if kind == "variance" else ""),
        f"{kind} {variant} {trace}",
        {"environment": name},
        printed=Printed(
            printed,
            f"Table 4, row {name}, column {TITLES[variant]}, {_TRACE[trace]}{brackets}",
            trials=1,
        ),
        tolerance=max(0.005, 0.05 * abs(printed)) if kind == "mean" else 0.3 * printed,
        spread=_COSINE_SPREAD[name, variant, trace][kind == "variance"],
    )


_CLOSER = tuple(
    above(
        f"{name}: {_TRACE['critic']} of {TITLES[of]} is more like that without noise than e_u of "
        f"{TITLES[than]}",
        _pair(name, of, "critic"),
        _pair(name, than, "actor"),
    )
    for name in NAMES
    for of, than in (("critic", "actor"), ("both", "both"))
)
_LESS_ALIKE = tuple(
    above(
        f"e_v of {TITLES[one]} is more like that without noise in MDP-100 than in Taxi-v2",
        _pair("MDP-100", one, "critic"),
        _pair("Taxi-v2", one, "critic"),
    )
    for one in ("critic", "both")
)
_FURTHER = tuple(
    above(
        f"{name}: e_v of DP-Critic is more like that without noise than e_v of DP-Both",
        _pair(name, "critic", "critic"),
        _pair(name, "both", "critic"),
    )
    for name in NAMES
)
TABLE_4_TARGET = Target(
    "seo2020.table4",
    "Cosine similarity of traces with and without noise, which is no guarantee",
    "Section 4.2.2, Table 4",
    TRACES,
    tuple(
        _cosine(name, *pair, kind)
        for name in NAMES
        for pair in _PAIRS
        for kind in ("mean", "variance")
    ),
    (*_CLOSER, *_LESS_ALIKE, *_FURTHER),
    Table(
        tuple(f"{TITLES[variant]} {_TRACE[trace]}" for variant, trace in _PAIRS),
        tuple(
            (name + more, tuple(_pair(name, *pair) + more for pair in _PAIRS))
            for name in NAMES
            for more in ("", ", variance")
        ),
    ),
    (
        Statement(
            "the cosine similarity in DP-Critic was inevitably higher than that of DP-Actor",
            "Section 4.2.2",
            (_CLOSER[0].name, _CLOSER[2].name),
        ),
        Statement(
            "with an increase of complexity, the cosine similarity of an overall eligibility trace "
            "vector decreased",
            "Section 4.2.2",
            tuple(one.name for one in _LESS_ALIKE),
        ),
    ),
)


def _half(name: str, variant: str, trace: str, half: str) -> Quantity:
    """Figure 4's curve, as the mean of half of its episodes."""
    return Quantity(
        f"{_pair(name, variant, trace)}, {half} half",
        f"{half} {variant} {trace}",
        {"environment": name},
        spread=1.5 * _COSINE_SPREAD[name, variant, trace][0],
        lost=LOST,
    )


_CONSTANT = tuple(
    Difference(
        f"{name}: e_u of DP-Actor stays as unlike as it was",
        {
            f"{_pair(name, 'actor', 'actor')}, second half": 1.0,
            f"{_pair(name, 'actor', 'actor')}, first half": -1.0,
        },
        "same",
        0.05,
    )
    for name in NAMES
)
_HIGHER = tuple(
    above(
        f"{name}: e_v of DP-Critic is above e_u of DP-Actor in the {half} half",
        f"{_pair(name, 'critic', 'critic')}, {half} half",
        f"{_pair(name, 'actor', 'actor')}, {half} half",
        least={"MDP-100": 0.4, "Taxi-v2": 0.018}[name],
    )
    for name in NAMES
    for half in ("first", "second")
)
FIGURE_4 = Target(
    "seo2020.figure4",
    "Cosine similarity of traces by episode",
    "Section 4.2.2, Figure 4",
    TRACES,
    tuple(
        _half(name, *pair, half)
        for name in NAMES
        for pair in _PAIRS
        for half in ("first", "second")
    ),
    (*_HIGHER, *_CONSTANT),
    tuple(
        Figure(
            f"Figure 4, {name}",
            "episode",
            "cosine similarity",
            tuple(
                Series(
                    f"{TITLES[variant]}, {_TRACE[trace]}",
                    f"series {variant} {trace}",
                    _POINTS,
                    {"environment": name},
                )
                for variant, trace in _PAIRS
            ),
        )
        for name in NAMES
    ),
    (
        Statement(
            "its cosine similarity was maintained at a constant level, indicating that privacy was "
            "protected to a certain degree regardless of environments",
            "Section 4.2.2",
            tuple(one.name for one in _CONSTANT),
        ),
    ),
    notes=(LOST, "A similarity of traces says nothing of what an attacker can learn."),
)

# --- Figure 5 -------------------------------------------------------------------------------------

ACTING = Experiment(
    "seo2020.acting",
    f"{_HERE}:acting",
    tuple({"environment": name} for name in NAMES),
    full=Plan(range(100, 140)),
    quick=Plan(range(100, 102), {"episodes": 4}, is_reduced=True),
    readings=tuple(_READINGS[k] for k in (2, 0, 1, 3)),
    seeds_at_once=20,
    privacy=_PRIVACY,
    options_by="environment",
)
_WAYS = ("epsilon-greedy", "softmax")


def _by_acting(name: str, variant: str, way: str) -> Quantity:
    return Quantity(
        f"{name}, {TITLES[variant]}, {way}",
        f"mean {variant} {way}",
        {"environment": name},
        spread=_SPREAD[name],
        lost=LOST,
    )


_FASTER = tuple(
    above(
        f"{name}: {TITLES[variant]} gains more in 500 episodes by epsilon-greedy than by softmax",
        f"{name}, {TITLES[variant]}, epsilon-greedy",
        f"{name}, {TITLES[variant]}, softmax",
        least=_MARGIN[name],
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
                    _POINTS,
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
    f"{_HERE}:grid",
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
    full=Plan(range(108, 144)),
    quick=Plan(range(108, 110), {"episodes": 4, "most": 6}, is_reduced=True),
    readings=_READINGS[:2],
    # Of all settings, since `trials.BEST` is chosen on these seeds too.
    selection=Plan(range(10)),
    seeds_at_once=4,
    privacy=_PRIVACY,
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
                **_pilot(name, "actor 10"),
                lost="The paper prints no return.",
            ),
            Quantity(
                f"{name}, best of 36 settings",
                "best",
                {"environment": name, **_OURS},
                spread=_SPREAD[name],
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
