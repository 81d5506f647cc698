"""What the noise of xie2019's experiments is worth, and Table 1: how its parameters are related."""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privrl.papers.reproduce.target import Row
from privrl.papers.xie2019.gpope import lemma1_sigma
from privrl.papers.xie2019.printed import PARAMETERS
from privrl.privacy import Budget
from privrl.privacy.claims import xie2019_lemma1

_UNIT = "one trajectory replaced"


def _gpope_row(label: str, epsilon: float, m: int, passes: float, delta: float = 1e-5) -> Row:
    times = round(passes * m)
    sigma = lemma1_sigma(Budget(epsilon, delta), m, times)
    claim = xie2019_lemma1(sigma, m, times, delta)
    assert claim.certified is not None
    return {
        "series": f"GPOPE, {label}, m = {m:,}, N = {times:,}",
        "claimed": epsilon,
        "epsilon": claim.certified.epsilon,
        "delta": delta,
        "unit": _UNIT,
        "basis": "accountant",
        "note": f"Lemma 1 asks for sigma {sigma:.3g}; it drops all orders above the second, and "
        "takes the distance of two clipped gradients to be h, not 2 h.",
    }


def _certified_row(series: str, epsilon: float, basis: str, note: str) -> Row:
    return {
        "series": series,
        "claimed": None,
        "epsilon": epsilon,
        "delta": 1e-5,
        "unit": _UNIT,
        "basis": basis,
        "note": note,
    }


def _ours(epsilon: float) -> Iterator[Row]:
    for series in ("GPOPE, certified noise", "PrivateLSTD", "PrivateGTD"):
        yield _certified_row(series, epsilon, "accountant", "By certificate.")


def chain_rows() -> list[Row]:
    """Figures 1 and 5."""
    from privrl.papers.xie2019.targets import CHAIN_CHOSEN

    rows = [
        _gpope_row("chain", 0.1, int(key.split()[0]), chosen[0])
        for key, chosen in CHAIN_CHOSEN.items()
    ]
    for series in ("DP-LSW (V1)", "DP-LSL (V2)", "DP-LSL, calibrated"):
        rows.append(_certified_row(series, 0.1, "proof", "The published proof holds."))
    return [*rows, *_ours(0.1)]


def car_rows() -> list[Row]:
    """Figures 2, 3 and 6."""
    from privrl.papers.xie2019.targets_control import CAR_CHOSEN

    return _control_rows("mountain car", next(iter(CAR_CHOSEN.values())))


def hiv_rows() -> list[Row]:
    """Figure 4."""
    from privrl.papers.xie2019.targets_control import HIV_CHOSEN

    return _control_rows("HIV", HIV_CHOSEN)


def _control_rows(task: str, chosen: Mapping[str, Sequence[Any]]) -> list[Row]:
    rows, epsilons = [], []
    for key, (passes, *_) in chosen.items():
        m, epsilon = key.split(" at ")
        rows.append(_gpope_row(task, float(epsilon), int(m), passes))
        epsilons.append(float(epsilon))
    return [*rows, *(row for epsilon in sorted(set(epsilons)) for row in _ours(epsilon))]


def relations(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Table 1 at a random point of a seed: 1 for each pair of parameters negatively related.

    Five parameters are tied by epsilon = f(delta, N, sigma, m), Lemma 1's or the accountant's. Two
    of them, with all others fixed, rise together if their partial derivatives in f - epsilon have
    opposite signs, and otherwise one falls as the other rises.
    """
    rows = []
    for seed in seeds:
        draw = random.Random(seed)
        m = round(10.0 ** draw.uniform(2.0, 4.5))
        base = {
            "delta": 10.0 ** draw.uniform(-8.0, -3.0),
            "iterations": round(m * 10.0 ** draw.uniform(-0.5, 1.0)),
            "sigma": 10.0 ** draw.uniform(0.15, 1.0),
            "trajectories": m,
        }
        before, signs = _both(base), {"epsilon": (-1.0, -1.0)}
        for name, value in base.items():
            more = round(1.5 * value) if isinstance(value, int) else 1.5 * value
            after = _both({**base, name: more})
            signs[name] = (after[0] - before[0], after[1] - before[1])
        row: Row = {"seed": seed}
        for one, other in itertools.combinations(PARAMETERS, 2):
            for k, kind in enumerate(("lemma1", "certified")):
                product = signs[one][k] * signs[other][k]
                row[f"{kind} {one} {other}"] = 1.0 if product > 0.0 else 0.0
        rows.append(row)
    return rows


def _both(given: Mapping[str, Any]) -> tuple[float, float]:
    """Epsilon by Lemma 1, and by the accountant."""
    claim = xie2019_lemma1(**given)
    assert claim.certified is not None
    return claim.epsilon, claim.certified.epsilon
