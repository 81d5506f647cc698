"""Words that were made numbers by reading the data, which no payment covers."""

from privrl.core.errors import InputError, option
from privrl.data.trajectories import Trajectories


def refuse_read_vocabulary(data: Trajectories) -> None:
    """Raise if the numbers of states or actions were given out by reading the data.

    They are then places in the sorted list of all words that occur: one person with a word of their
    own moves everybody else's rows to other features, and no bound on one contribution covers that.
    """
    for what, read in (
        ("state", data.facts.state_vocabulary_read),
        ("action", data.facts.action_vocabulary_read),
    ):
        if read:
            say = "say which there could be, with " + option(f"{what}_vocabulary")
            raise InputError(
                f"The {what}s there are were read from this very data, which a certificate would "
                "not cover",
                remedy=say + ", when loading it.",
            )
