"""What several topics share: how large faults are, how many runs show coarse ones, and targets."""

NOISE_FACTOR = 0.8
"""Noise of this share of what it should be is what audits must notice."""

FEW_RUNS = 400
"""So few runs show what is wrong by far."""

GTD = "private-gtd private-gtd-one-pass private-gtd-primal-dual"
