"""What a learned agent promises, in JSON: a certificate, a paper's claim, or nothing, and why."""

from typing import Any

from privrl.core import files
from privrl.core.errors import InputError
from privrl.privacy.certificate import Certificate, Claim

Promise = Certificate | Claim | str
"""A text where there is neither."""


def promise_to_dict(promise: Promise) -> dict[str, Any]:
    """The JSON form."""
    if isinstance(promise, str):
        return {"kind": "privrl not private", "why": promise}
    return promise.to_dict()


def promise_from_dict(data: Any) -> Promise:
    """The promise of which `promise_to_dict` gave the JSON form."""
    kind = files.kind_of(data)
    if kind is None:
        raise KeyError("kind")
    if kind == "privrl not private":
        return str(data["why"])
    return Claim.from_dict(data) if kind == "privrl claim" else Certificate.from_dict(data)


class HasPromise:
    """What was learned, with a promise about it: for results to inherit from."""

    promise: Promise

    @property
    def certificate(self) -> Certificate:
        """The certificate, if there is one."""
        if not isinstance(self.promise, Certificate):
            raise InputError(f"This agent has no certificate. {self.promise}")
        return self.promise

    @property
    def claim(self) -> Claim:
        """The paper's claim, if there is one."""
        if not isinstance(self.promise, Claim):
            raise InputError("This agent makes no paper's claim.")
        return self.promise
