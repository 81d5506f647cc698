"""The card of a certificate: its promise in plain words, for people."""

import math
import textwrap
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from privrl.core.text import printable
from privrl.privacy import old_certificates
from privrl.privacy.promise import NoiseOrigin, Relation, Release, Unit

if TYPE_CHECKING:
    from privrl.privacy.certificate import Certificate, Claim

_UNIT_WORDS = {
    Unit.TRAJECTORY: "one trajectory (a person with several is covered for each, not for all)",
    Unit.USER: "one user, with all of their trajectories",
    Unit.REWARD_FUNCTION: "the reward function",
    Unit.AGENT: "one agent: everything it saw and did for its reports",
}
_RELATION_WORDS = {
    Relation.ADD_REMOVE: "learning whether that unit took part at all",
    Relation.REPLACE_ONE: "learning what its data was, any data against any other "
    "(how many units there are is public)",
    Relation.LOCAL: "learning what its data was, even for whoever collects the reports",
    Relation.REWARD_RADIUS: "telling it from any other reward function within {radius} of it, "
    "everywhere",
}
_RELEASE_WORDS = {
    Release.FINAL_MODEL: "the final model, and anything computed from it",
    Release.EVERY_ITERATE: "every model along the way, and anything computed from them",
    Release.EACH_REPORT: "each report, and anything computed from it",
}
_NOISE_WORDS = {
    NoiseOrigin.SECURE: "drawn from a cryptographic generator seeded by the operating system",
    NoiseOrigin.SECURE_KEY: "driven by a fresh secret key inside a compiled loop",
    NoiseOrigin.REPRODUCIBLE: "REPRODUCIBLE from a seed: an experiment, no protection",
    NoiseOrigin.NOT_DRAWN: "none drawn: this certifies a plan",
}


def card(certificate: "Certificate") -> str:
    """The promise in plain words, in lines of at most 79 characters."""
    rows = [
        *([("INVALID", certificate.invalid_reason)] if certificate.invalid_reason else []),
        *(("Warning", warning) for warning in old_certificates.warnings(certificate)),
        ("Protected", _UNIT_WORDS[certificate.unit]),
        ("Against", _relation_words(certificate)),
        ("In", _RELEASE_WORDS[certificate.release]),
        ("Meaning", _meaning(certificate.epsilon, certificate.delta)),
        ("Accountant", f"{certificate.accountant} ({certificate.issued_by})"),
        ("Noise", _NOISE_WORDS[certificate.noise]),
        *([("In all", _population_words(certificate))] if certificate.population else []),
        *(("Event", str(event)) for event in certificate.events),
        *(("Assumed", f"{a.statement} ({a.enforced})") for a in certificate.assumptions),
    ]
    lines = [f"Certificate: epsilon {certificate.epsilon:.4g} at delta {certificate.delta:.4g}", ""]
    for head, text in rows:
        lines += textwrap.wrap(
            printable(text), 79, initial_indent=f"  {head:<12}", subsequent_indent=" " * 14
        )
    return "\n".join(lines)


def _population_words(certificate: "Certificate") -> str:
    paid = certificate.population
    assert paid is not None
    if paid.epsilon is None:
        figure = f"more than any epsilon that can be stated at delta {paid.delta:.4g}"
    else:
        figure = f"epsilon {paid.epsilon:.4g} at delta {paid.delta:.4g}"
    return (
        f"the population {paid.name!r} has paid {figure}, this included, in {paid.entries} entries"
    )


def _relation_words(certificate: "Certificate") -> str:
    words = _RELATION_WORDS[certificate.relation]
    return words.format(
        radius=f"{certificate.reward_radius:g}" if certificate.reward_radius else ""
    )


def _meaning(epsilon: float, delta: float) -> str:
    factor = f"{math.exp(epsilon):.3g}" if epsilon < 50 else f"e^{epsilon:.4g}"
    plus = f", plus {delta:.3g}" if delta else ""
    return f"it makes nothing anyone may see more likely than by a factor of {factor}{plus}"


def claim_card(made: "Claim") -> str:
    """What a paper claims beside what is certified for its noise, for 79 columns."""
    certified = made.certified
    lines = textwrap.wrap(f"{made.source}, for {made.scope}", 78)
    lines.append("  " + ", ".join(f"{k} {v:.6g}" for k, v in made.details.items()))
    rows = [("", "claimed", "certified")]
    rows.append(
        ("epsilon", f"{made.epsilon:.4g}", f"{certified.epsilon:.4g}" if certified else "-")
    )
    rows.append(("delta", f"{made.delta:.3g}", f"{certified.delta:.3g}" if certified else "-"))
    lines += [f"  {head:<9}{left:>12}{right:>12}" for head, left, right in rows]
    why = f"Not a certificate: {made.why_not}"
    covers = (
        f"The certified figure: {made.covers}" if certified else f"None certified: {made.covers}"
    )
    for text in (why, covers):
        lines += textwrap.wrap(text, 78, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def promise_note(promise: "Certificate | Claim | str") -> str:
    """A promise in a sentence, or the sentence that stands in its place."""
    from privrl.privacy.certificate import Claim

    if isinstance(promise, str):
        return promise
    figures = f"epsilon {promise.epsilon:.4g} at delta {promise.delta:g}"
    if not isinstance(promise, Claim):
        return f"Certified: {figures}, {promise.unit}, {promise.relation}."
    note = f"Claimed, not certified: {figures} for {promise.scope}."
    if promise.certified is not None:
        note += f" Certified for the same noise: epsilon {promise.certified.epsilon:.4g}."
    return note


def claim_lines(made: "Mapping[str, Claim]") -> Iterator[str]:
    """What papers claim, beside what is certified for the same noise."""
    yield from ("Privacy as claimed by five papers, and as certified for the same noise.", "")
    yield f"{'claim':<18}{'for':<24}{'delta':>8}{'claimed':>10}{'certified':>11}"
    for name, item in made.items():
        scope = item.scope.split(",")[0]
        certified = f"{item.certified.epsilon:.4g}" if item.certified else "none"
        delta = f"{item.delta:.0e}" if item.delta else "0"
        yield f"{name:<18}{scope:<24}{delta:>8}{item.epsilon:>10.4g}{certified:>11}"
    yield from ("", "Why they differ: privrl budget --claim xie2019 (or another name above).")
