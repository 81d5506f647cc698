"""What can go wrong, as types whose message is one sentence for people.

Every error that a caller's input can provoke derives from `PrivRLError`; the command line prints
its message and exits with 2. Anything else that escapes is a bug of ours and keeps its traceback.
"""


class PrivRLError(Exception):
    """Base of every error whose message is meant for the user."""


class InputError(PrivRLError, ValueError):
    """A parameter, file or combination of them that cannot mean anything."""


class UnsupportedError(PrivRLError):
    """A well-formed question for which no proven bound is implemented; nothing is approximated."""


class CertificateError(PrivRLError):
    """A certificate that does not say what its events say, or that cannot be read."""


class LedgerError(PrivRLError):
    """A ledger that cannot be read, written or trusted; nothing may be released on it."""


class OverBudget(PrivRLError):  # noqa: N818 (the public name says what happened)
    """A spend that would exceed the limit of its population; it was not recorded."""
