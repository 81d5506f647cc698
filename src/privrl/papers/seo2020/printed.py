"""The numbers that the paper prints, as data.

The grid that was searched (Table 1), the settings found best for DP-Actor (Table 2), standard
deviations of the performance (Table 3), cosine similarities of eligibility traces (Table 4).
Learning curves are printed as figures only, which our copy lacks; `targets` has what the text says
of them.
"""

STEPS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5)
TABLE_1: dict[str, tuple[float, ...]] = {
    "correction_step": STEPS,
    "critic_step": STEPS,
    "actor_step": STEPS,
    "lambda_": (0.0, 0.2, 0.4, 0.6, 0.8, 0.99),
    "epsilon": (0.1, 0.5, 1.0, 5.0, 10.0),
}
"""The ranges searched."""

TABLE_2: dict[str, dict[str, float]] = {
    "MDP-100": {"critic_step": 0.01, "correction_step": 0.5, "actor_step": 0.5, "lambda_": 0.8},
    "Taxi-v2": {"critic_step": 0.05, "correction_step": 0.05, "actor_step": 0.5, "lambda_": 0.0},
}
"""The best for DP-Actor; epsilon 10 and delta 1e-6 in both."""

TABLE_3: dict[str, dict[str, float]] = {
    "MDP-100": {"none": 30.26, "actor": 68.04, "critic": 27.1, "both": 66.63},
    "Taxi-v2": {"none": 43.47, "actor": 57.21, "critic": 50.03, "both": 52.72},
}
"""Standard deviations of the performance."""

TABLE_4: dict[str, dict[str, dict[str, float]]] = {
    "MDP-100": {
        "actor": {"actor": 0.021},
        "critic": {"critic": 0.839},
        "both": {"actor": 0.014, "critic": 0.497},
    },
    "Taxi-v2": {
        "actor": {"actor": -0.0008},
        "critic": {"critic": 0.035},
        "both": {"actor": -0.0001, "critic": 0.0146},
    },
}
"""Mean cosine similarity with the trace of the run without noise: by variant, then by trace."""

TABLE_4_VARIANCES: dict[str, dict[str, dict[str, float]]] = {
    "MDP-100": {
        "actor": {"actor": 0.0042},
        "critic": {"critic": 0.006},
        "both": {"actor": 0.003, "critic": 0.006},
    },
    "Taxi-v2": {
        "actor": {"actor": 0.0003},
        "critic": {"critic": 0.001},
        "both": {"actor": 0.0003, "critic": 0.0007},
    },
}
"""Variances of the same, in brackets in the table."""

BUDGETS = (10.0, 5.0, 1.0, 0.5, 0.1)
"""Of Figure 3."""
