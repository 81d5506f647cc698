"""Names of the paper's tasks, and what its Table 1 says where the text repeats it."""

MOUNTAIN_CAR_ON = "mountain car, on-policy"
MOUNTAIN_CAR_OFF = "mountain car, off-policy"
HIV_OFF = "HIV, off-policy"

PARAMETERS = {
    "epsilon": "ε",
    "delta": "δ",
    "iterations": "N",
    "sigma": "σ",
    "trajectories": "m",
}
"""Of Table 1, in its order."""

NEGATIVE = {
    ("epsilon", "delta"): "For example, if ε is decreased, and only δ is changed, then δ must be "
    "increased.",
    ("epsilon", "trajectories"): "Similarly, if size of dataset m is increased, and only ε "
    "changed, then ε must be decreased.",
}
"""Its cells that the text gives, both negative (red); the colours are not in our copy."""
