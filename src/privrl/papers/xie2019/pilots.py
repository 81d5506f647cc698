"""What seeds 0 to 9 gave for the targets, under their first reading.

Means, and the standard deviation of what one seed contributes, on the scale on which numbers are
compared. Fewer seeds: 0 to 5 for the chain at m = 10,000, 0 and 1 at m = 100,000, 0 to 7 for
section 6, 0 to 2 for mountain car on-policy, 0 and 1 for off-policy and HIV.
"""

Pilot = tuple[float, float]

ERRORS: dict[tuple[str, int, float], dict[str, Pilot]] = {
    ("chain", 1000, 0.1): {
        "gpope": (0.0209, 0.073),
        "gpope_low": (0.0358, 0.013),
        "gpope_high": (0.347, 0.21),
        "certified_gpope": (0.0194, 0.067),
        "certified_gpope_low": (0.0359, 0.011),
        "certified_gpope_high": (0.251, 0.21),
        "dp_lsw": (7690000000.0, 0.2),
        "dp_lsl": (3070.0, 0.21),
        "dp_lsl_calibrated": (0.0261, 0.12),
        "private_lstd": (0.0321, 0.037),
        "private_gtd": (0.0044, 0.1),
        "lstd": (5.96e-08, 0.12),
        "zero": (0.0367, 0.0),
    },
    ("chain", 10000, 0.1): {
        "gpope": (0.00167, 0.054),
        "gpope_low": (0.00944, 0.012),
        "gpope_high": (0.0135, 0.16),
        "certified_gpope": (0.00169, 0.055),
        "certified_gpope_low": (0.00945, 0.012),
        "certified_gpope_high": (0.014, 0.16),
        "dp_lsw": (907000000.0, 0.22),
        "dp_lsl": (389.0, 0.22),
        "dp_lsl_calibrated": (0.00812, 0.063),
        "private_lstd": (0.00525, 0.052),
        "private_gtd": (1.65e-05, 0.44),
        "lstd": (8.42e-09, 0.13),
        "zero": (0.0367, 0.0),
    },
    ("chain", 100000, 0.1): {
        "gpope": (5.77e-05, 0.11),
        "gpope_low": (0.000748, 0.0044),
        "gpope_high": (0.000338, 0.049),
        "certified_gpope": (0.000388, 0.02),
        "certified_gpope_low": (0.00376, 0.00078),
        "certified_gpope_high": (0.000487, 0.043),
        "dp_lsw": (65100000.0, 0.28),
        "dp_lsl": (42.5, 0.28),
        "dp_lsl_calibrated": (0.00146, 0.041),
        "private_lstd": (0.000283, 0.031),
        "private_gtd": (4.05e-06, 0.08),
        "lstd": (3.82e-10, 0.089),
        "zero": (0.0367, 0.0),
    },
}

THEORY: dict[str, Pilot] = {
    "constant_short": (0.0237, 0.062),
    "diminishing_short": (0.0365, 0.024),
    "constant_long": (223.0, 0.11),
    "tuned_long": (0.0205, 0.054),
    "diminishing_long": (0.0367, 0.00011),
    "updates_1": (0.00208, 0.069),
    "updates_2": (0.00331, 0.04),
    "updates_4": (0.00637, 0.061),
}

DECADES: dict[str, Pilot] = {
    "chain 1000": (0.746, 0.079),
    "chain 10000": (2.34, 0.053),
    "chain 100000": (4.02, 0.00095),
}
