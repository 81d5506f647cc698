"""Runs of Wang and Hegde's (2019) figures, and what their noise is worth: `targets` judges them."""

from collections.abc import Mapping, Sequence
from typing import Any

from privrl.papers.reproduce.target import Row
from privrl.papers.wang2019.printed import SIGMAS

DELTA = 1e-4
EPSILONS = (0.9, 0.45)
RADII = (1.0, 0.01)
"""Of the certified learner: what the paper protects, and what leaves something to learn."""

LIMITED = 0.9 * 20.71
"""A run has converged with limited sub-optimality if it keeps nine tenths of the best return."""

REACHED = 18.0
"""The return whose first time is "the same return" of the text: 0.87 of the best."""

UPDATES = 39
"""T / B."""

CURVES = 1048
"""Parts whose seeds begin below this have curves; others would only make the results long."""

_LAST = 10
_POINTS = 20


# --- runs -----------------------------------------------------------------------------------------


def noise_trials(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Figure 1: learning at one noise level, with one path or with fresh ones."""
    method = setting["method"]
    if method == "proposition":
        return _proposition(setting, seeds)
    if method != "paper":
        return _flat(setting, seeds)
    from privrl.papers.wang2019.learner import FunctionalQ

    make = FunctionalQ.printed if options["preset"] == "printed" else FunctionalQ.public_code
    resets = 1 if setting["paths"] == "one" else options.get("resets", UPDATES)
    chosen = make(
        samples=setting["samples"],
        resets=1 if resets == 1 else _fitting(resets, setting["samples"]),
        sigma=setting["sigma"],
        rate=1.0,
        edge=options.get("edge", "correct"),
    )
    return _learn(chosen, seeds)


def comparison_trials(
    options: Mapping[str, Any], setting: Mapping[str, Any], seeds: Sequence[int]
) -> list[Row]:
    """Figure 2: the paper's algorithm at its own epsilon, baselines, and what is certified."""
    from privrl.papers.wang2019.learner import FunctionalQ

    method, samples = setting["method"], setting["samples"]
    resets = _fitting(UPDATES, samples)
    if method == "plain":
        return _learn(FunctionalQ.public_code(samples=samples, resets=1, sigma=0.0), seeds)
    if method in ("rewards", "gradients"):
        return _baseline(method, setting, seeds)
    if method != "paper":
        return _flat(setting, seeds)
    make = FunctionalQ.printed if options["preset"] == "printed" else FunctionalQ.public_code
    sigma, rate = theorem_noise(setting["epsilon"], options["inside"])
    rate = options.get("rate", rate)
    return _learn(make(samples=samples, resets=resets, sigma=sigma, rate=rate), seeds)


def theorem_noise(epsilon: float, inside: bool) -> tuple[float, float]:
    """sigma and beta of Theorem 5, for T / B updates; C inside the root or outside."""
    from privrl.privacy.claims import wang2019_theorem5

    found = wang2019_theorem5(epsilon, DELTA, UPDATES, norm_inside_root=inside).details
    return float(found["sigma"]), float(found["beta"])


def _fitting(resets: int, samples: int) -> int:
    """As many paths, or as many as fewer samples than the paper's have whole batches."""
    return resets if samples == 5000 else max(2, resets * samples // 5000)


def _learn(learner: Any, seeds: Sequence[int]) -> list[Row]:
    from privrl.envs import Interval
    from privrl.papers.wang2019.draws import keys
    from privrl.papers.wang2019.fast import train

    return _curves(train(keys(seeds), learner, Interval()).returns, seeds)


def _baseline(method: str, setting: Mapping[str, Any], seeds: Sequence[int]) -> list[Row]:
    from privrl.envs import Interval
    from privrl.papers.wang2019.baselines import Baseline, noise_multiplier, train
    from privrl.papers.wang2019.draws import keys
    from privrl.papers.wang2019.learner import FunctionalQ

    learner = FunctionalQ.public_code(samples=setting["samples"], resets=1, sigma=0.0)
    form = Baseline("rewards" if method == "rewards" else "gradients", learner, Interval())
    noise = noise_multiplier(setting["epsilon"], DELTA, *baseline_releases(method))
    return _curves(train(keys(seeds), form, [noise] * len(seeds)), seeds)


def baseline_releases(method: str) -> tuple[int, float]:
    """How often a baseline releases something, and by how much that moves, in units of its noise.

    DP-SGD is given the T / B updates that the paper's own algorithm is given.
    """
    return (5000, 1.0) if method == "rewards" else (UPDATES, 2.0)


def _curves(returns: Any, seeds: Sequence[int]) -> list[Row]:
    """Rows from the returns of each episode."""
    import numpy as np

    rows, episodes = [], returns.shape[1]
    for seed, own in zip(seeds, returns, strict=True):
        parts = np.array_split(own, min(_POINTS, episodes))
        window = min(_LAST, episodes)
        means = np.convolve(own, np.full(window, 1.0 / window), "valid")
        there = np.flatnonzero(means >= REACHED)
        reached = 50 * (int(there[0]) + window if there.size else episodes)
        last = float(own[-window:].mean())
        rows.append(
            {
                "seed": seed,
                "last": round(last, 4),
                "gain": round(last - float(own[:window].mean()), 4),
                "thousands": reached / 1000.0,
                "limited": float(last >= LIMITED),
            }
        )
        if seeds[0] < CURVES:
            rows[-1] |= {
                "samples": [50 * int(k) for k in np.cumsum([len(one) for one in parts])],
                "curve": [round(float(one.mean()), 2) for one in parts],
            }
    return rows


def _flat(setting: Mapping[str, Any], seeds: Sequence[int]) -> list[Row]:
    """What learners without a curve reach on the task, and in the mean over it and its mirror."""
    from dataclasses import replace

    import numpy as np

    from privrl.papers.wang2019.certified import LEARNERS, TASKS, mean_return
    from privrl.privacy.promise import Budget
    from privrl.privacy.session import PrivacySession

    method, rows = setting["method"], []
    for seed in seeds:
        found = []
        for task in TASKS:
            if method == "random":
                policy: Any = _Uniform()
            else:
                name = "reward model" if method == "certified" else "policy iteration"
                budget = Budget(setting["epsilon"], DELTA)
                radius = setting.get("radius", 0.01)
                learner = replace(LEARNERS[name], budget=budget, reward_radius=radius)
                policy = learner.learn(task, session=PrivacySession(seed=seed)).policy
            found.append(round(mean_return(task, policy, seed), 4))
        both = float(np.mean(found))
        ends = [50, setting["samples"]]
        rows.append(
            {"seed": seed, "last": found[0], "both": both, "samples": ends, "curve": found[:1] * 2}
        )
    return rows


class _Uniform:
    """Any action, all alike."""

    def probabilities(self, observations: Any) -> Any:
        import numpy as np

        return np.full((len(observations), 2), 0.5)


def _proposition(setting: Mapping[str, Any], seeds: Sequence[int]) -> list[Row]:
    from privrl.papers.wang2019.proposition import bound, mean_error

    states, gamma = setting["states"], 0.9
    most = bound(1.0, states, gamma)
    return [
        {"seed": seed, "share": mean_error(states, gamma, 1.0, 1.0, seed) / most} for seed in seeds
    ]


# --- what the noise is worth ----------------------------------------------------------------------


def noise_privacy() -> list[Row]:
    """Figure 1: what Theorem 5 would claim for its sigmas, and that nothing is certified."""
    rows = []
    for sigma in SIGMAS[1:]:
        rows.append(
            {
                "series": f"sigma {sigma:g}, J = T / B",
                "claimed": _claimed(sigma),
                "epsilon": None,
                "delta": DELTA,
                "unit": "reward functions within 1 of each other",
                "basis": "Theorem 5, solved for epsilon",
                "note": "Nothing is certified: the weights are carried on without noise, so that "
                "no bound on the sensitivity holds. The theorem is for its own beta; the "
                "figure's is 1.",
            }
        )
    return rows + [_certified_row(0.9, radius) for radius in RADII]


def comparison_privacy() -> list[Row]:
    """Figure 2: Theorem 5's noise, and the baselines' by the accountant."""
    from privrl.papers.wang2019.baselines import noise_multiplier
    from privrl.privacy.accounting.privacy_profile import epsilon as epsilon_of
    from privrl.privacy.events import Gaussian, Repeated
    from privrl.privacy.promise import Relation

    rows: list[Row] = []
    for epsilon in EPSILONS:
        for inside in (True, False):
            sigma, rate = theorem_noise(epsilon, inside)
            where = "inside" if inside else "outside"
            rows.append(
                {
                    "series": f"Algorithm 1, C {where} the root: sigma {sigma:.3g}, "
                    f"beta {rate:.3g}",
                    "claimed": epsilon,
                    "epsilon": None,
                    "delta": DELTA,
                    "unit": "reward functions within 1 of each other",
                    "basis": "claim",
                    "note": "Nothing is certified: no bound on the sensitivity holds.",
                }
            )
        for method, name in (("rewards", "input perturbation"), ("gradients", "DP-SGD")):
            releases, moves = baseline_releases(method)
            noise = noise_multiplier(epsilon, DELTA, releases, moves)
            counted = releases if method == "rewards" else 5000 - 127
            event = Repeated(Gaussian(noise, moves), counted)
            rows.append(
                {
                    "series": f"{name}: standard deviation {noise:.3g}",
                    "claimed": epsilon,
                    "epsilon": epsilon_of(event, DELTA, Relation.REWARD_RADIUS),
                    "delta": DELTA,
                    "unit": "reward functions within 1 of each other",
                    "basis": "accountant; nothing is certified",
                    "note": f"{counted:,} releases are made, and {releases:,} are claimed. The "
                    "arithmetic has 32 bits.",
                }
            )
        rows += [_certified_row(epsilon, radius) for radius in RADII]
    return rows


def _certified_row(epsilon: float, radius: float) -> Row:
    from dataclasses import replace

    from privrl.papers.wang2019.certified import LEARNERS, TASKS
    from privrl.privacy.promise import Budget
    from privrl.privacy.session import PrivacySession

    budget = Budget(epsilon, DELTA)
    learner = replace(LEARNERS["reward model"], budget=budget, reward_radius=radius)
    certificate = learner.learn(TASKS[0], session=PrivacySession(seed=0)).certificate
    assert certificate is not None
    return {
        "series": f"certified reward model, radius {radius:g}",
        "claimed": epsilon,
        "epsilon": certificate.epsilon,
        "delta": DELTA,
        "unit": f"reward functions within {radius:g} of each other",
        "basis": "accountant",
        "note": "One Gaussian release, by Bessel's inequality; planning on it is free.",
    }


def _claimed(sigma: float) -> float | None:
    """The epsilon for which Theorem 5 asks for this sigma, by bisection."""
    from privrl.core.errors import InputError

    low, high = 0.01, 1e4
    for _ in range(100):
        middle = (low * high) ** 0.5
        try:
            needed = theorem_noise(middle, True)[0]
        except InputError:
            needed = float("inf")
        low, high = (middle, high) if needed > sigma else (low, middle)
    return round(high, 3)
