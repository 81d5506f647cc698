"""Tables 1 to 3 of the paper, as data."""

EPSILONS = (1.0, 2.0, 5.0, 10.0, None)

# Cells that our copy of the paper has lost are None.
PRINTED: dict[str, dict[str, tuple[float | None, ...]]] = {
    "laplace": {
        "median_first_success": (None, 20238.5, None, None, 1769.0),
        "success_ratio": (0.80, 0.90, 1.00, 1.00, 1.0),
        "relative_auc": (None, 0.711, None, 0.965, 1.0),
    },
    "sign": {
        "median_first_success": (25226.5, 7549.0, 2656.5, 11217.5, 1709.0),
        "success_ratio": (0.85, 0.95, 0.90, 0.90, 1.0),
        "relative_auc": (None, 0.862, None, 0.771, 1.0),
    },
}
"""Tables 1, 2 and 3, in the order of `EPSILONS`."""


def printed_row(algorithm: str, epsilon: float | None) -> dict[str, float | None] | None:
    """What the paper's tables have in the place of a row, if there is one."""
    if algorithm not in PRINTED or epsilon not in EPSILONS:
        return None
    place = EPSILONS.index(epsilon)
    return {name: cells[place] for name, cells in PRINTED[algorithm].items()}
