"""What a learned agent promises, in JSON: a certificate, a paper's claim, or nothing, and why."""

from typing import Any

from tacit.privacy.certificate import Certificate, Claim

Promise = Certificate | Claim | str
"""A text where there is neither."""


def promise_to_dict(promise: Promise) -> dict[str, Any]:
    """The JSON form."""
    if isinstance(promise, str):
        return {"kind": "tacit not private", "why": promise}
    return promise.to_dict()


def promise_from_dict(data: Any) -> Promise:
    """The promise of which `promise_to_dict` gave the JSON form."""
    if data["kind"] == "tacit not private":
        return str(data["why"])
    return Claim.from_dict(data) if data["kind"] == "tacit claim" else Certificate.from_dict(data)
