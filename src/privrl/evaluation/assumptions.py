"""What certificates of several estimators assume, and what makes it true."""

from privrl.privacy.certificate import Assumption

CLIPPED = Assumption(
    "each unit's contribution is clipped to a public bound", "by the algorithm, for any data"
)
PUBLIC_SETTINGS = Assumption(
    "features, ranges, bounds and step sizes were chosen without looking at the data",
    "not enforced: they are the caller's",
)
SECRET_STEPS = Assumption(
    "each unit's step is uniform, independent of all others', and secret",
    "by the algorithm: a keyed hash of the unit's id, with a key from the source of its noise",
)
SECRET_DRAWS = Assumption(
    "each batch is drawn freshly and secretly",
    "by the algorithm, from the source of its noise",
)
