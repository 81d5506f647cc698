"""Table 4 and Figure 4 of Seo and Yang (2020): similarities of traces."""

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
from privrl.papers.seo2020.printed import TABLE_4, TABLE_4_VARIANCES
from privrl.papers.seo2020.shown import (
    LOST,
    NAMES,
    POINTS,
    PRIVACY,
    READINGS,
    STAY,
    TITLES,
    TRIALS,
    by_environment,
)

TRACES = Experiment(
    "seo2020.traces",
    f"{TRIALS}:similarities",
    tuple({"environment": name} for name in NAMES),
    full=Plan(range(1000, 1012)),
    quick=Plan(range(100, 102), {"episodes": 4}, is_reduced=True),
    readings=(
        *READINGS,
        Reading(
            "other worlds",
            by_environment({}, worlds="other"),
            "runs with and without noise may draw their worlds apart",
        ),
        Reading("stay advances, other worlds", by_environment(STAY, worlds="other"), "both"),
    ),
    # A seed is ten runs of each variant.
    selection=Plan(range(3)),
    seeds_at_once=4,
    privacy=PRIVACY,
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
                    POINTS,
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
