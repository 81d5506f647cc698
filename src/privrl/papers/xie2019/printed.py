"""What the paper shows of its experiments: curves and no table, so these are sentences."""

MOUNTAIN_CAR_ON = "mountain car, on-policy"
MOUNTAIN_CAR_OFF = "mountain car, off-policy"
HIV_OFF = "HIV, off-policy"

PRINTED = {
    MOUNTAIN_CAR_ON: "GPOPE better than output perturbation by orders of magnitude and close to "
    "LSTD as data grows (figures 2 and 3a); stable over a wide range of step sizes",
    MOUNTAIN_CAR_OFF: "GPOPE's errors remarkably similar to the on-policy ones (figure 3b)",
    HIV_OFF: "GPOPE's relative error falls with more data (figure 4)",
}
