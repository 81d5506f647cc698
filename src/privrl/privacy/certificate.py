"""Certificate and Claim: the two things a result can carry, and the type says which.

A `Certificate` is recomputable: it holds the events it was computed from, and `verify()` recomputes
its epsilon with the accountant that issued it and brackets it with one that shares no code with it.
A `Claim` is what a paper states, together with why it is not a certificate. There is no way from a
claim to a certificate; where a valid figure exists for the same noise, the claim carries it along,
and it is never shown without one or the other.
"""

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privrl.core import checks, files
from privrl.core.errors import CertificateError, InputError, UnsupportedError
from privrl.core.text import Displayed
from privrl.privacy import accounting, old_certificates
from privrl.privacy.certificate_card import card, claim_card
from privrl.privacy.events import Event, as_events
from privrl.privacy.promise import (
    NoiseOrigin,
    Relation,
    Release,
    Unit,
    WordEnum,
    check_unit_relation,
)

_FORMAT = 1
_KIND = "privrl certificate"
# The same accountant on the same events must come back to the same figure, up to this.
_EPSILON_TOLERANCE = 1e-6


def _issuer() -> str:
    # The version of the code which runs, rather than of what was installed once; `privrl.privacy`
    # imports nothing above itself, and the package that it is in is there already.
    name = __name__.partition(".")[0]
    return f"{name} {sys.modules[name].__version__}"


@dataclass(frozen=True)
class Assumption:
    """Something the guarantee rests on, and what makes it true."""

    statement: str
    enforced: str


IDEALISED_ARITHMETIC = Assumption(
    "idealised real arithmetic",
    "not enforced: noise and sums are 64-bit floating point, and the proof is about real numbers",
)


@dataclass(frozen=True)
class Population:
    """What everybody in a ledger has paid in all, when the certificate was issued.

    `epsilon` is that of the recorded events as if they had been planned together, or an upper bound
    where that cannot be found (`totals.py`); None if no finite epsilon is proven at this delta.
    `head` is the digest of the ledger's newest entry, which pins the state of the ledger that is
    meant.
    """

    name: str
    epsilon: float | None
    delta: float
    entries: int
    head: str

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            checks.set_checked(self, epsilon=checks.non_negative)
        checks.set_checked(self, delta=checks.probability, entries=checks.count)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return files.fields_to_json(self)


@dataclass(frozen=True)
class Signature:
    """An ed25519 signature of a certificate's canonical bytes, and the key it says it is by.

    Both in hexadecimal digits. `privrl.privacy.signing` makes and checks them.
    """

    public_key: str
    value: str

    def __post_init__(self) -> None:
        for name, digits in (("public_key", 64), ("value", 128)):
            given = getattr(self, name)
            if type(given) is not str or len(given) != digits or set(given) - set(_HEXADECIMAL):
                raise InputError(f"The {name} of a signature must be {digits} hexadecimal digits.")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"algorithm": _ALGORITHM, "public_key": self.public_key, "value": self.value}

    @classmethod
    def from_dict(cls, data: object) -> "Signature":
        """The signature whose JSON form is `data`."""
        if not isinstance(data, Mapping) or set(data) != {"algorithm", "public_key", "value"}:
            raise InputError("its signature lacks something, or has something unknown.")
        if data["algorithm"] != _ALGORITHM:
            raise InputError(f"its signature is not by {_ALGORITHM}, which this version reads.")
        return cls(data["public_key"], data["value"])


_ALGORITHM = "ed25519"
_HEXADECIMAL = "0123456789abcdef"


class SignatureStatus(WordEnum):
    """What is known of a certificate's signature. Whose a key is, is never known here."""

    NO = "no"
    NOT_CHECKED = "not-checked"
    BY_THE_KEY_IT_NAMES = "by-the-key-it-names"
    BY_THE_GIVEN_KEY = "by-the-given-key"


@dataclass(frozen=True)
class Verification:
    """What `Certificate.verify` found; it exists only for a certificate that passed.

    `warnings` are about what verification cannot see.
    """

    epsilon: float
    recomputed: float
    floor: float
    ceiling: float
    signed: SignatureStatus = SignatureStatus.NO
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return files.fields_to_json(self)


@dataclass(frozen=True, repr=False)
class Certificate(Displayed):
    """(epsilon, delta)-differential privacy of `events` for a unit, under a relation.

    Made by `Certificate.issue`, which computes epsilon; the constructor is for reading one back.
    """

    epsilon: float
    delta: float
    unit: Unit
    relation: Relation
    release: Release
    events: tuple[Event, ...]
    accountant: str
    assumptions: tuple[Assumption, ...] = ()
    noise: NoiseOrigin = NoiseOrigin.NOT_DRAWN
    reward_radius: float | None = None
    population: Population | None = None
    issued_by: str = field(default_factory=lambda: _issuer())
    """Package and version: `privrl 0.2.0`, or of its earlier name, `tacit 0.1.0`."""

    signature: Signature | None = None

    def __post_init__(self) -> None:
        checks.set_checked(self, epsilon=checks.non_negative, delta=checks.probability)
        checks.set_checked(self, unit=Unit.check, relation=Relation.check)
        checks.set_checked(self, release=Release.check, noise=NoiseOrigin.check)
        object.__setattr__(self, "events", as_events(self.events))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))
        own = isinstance(self.issued_by, str) and self._package[0] in files.PACKAGE_NAMES
        if not (own and self._package[1]):
            raise InputError(
                "must be the package that issued this and its version.", field="issued_by"
            )
        if not self.events:
            raise InputError("A certificate needs at least one event.")
        if not all(isinstance(a, Assumption) for a in self.assumptions):
            raise InputError("must be of the type Assumption.", field="assumptions")
        check_unit_relation(self.unit, self.relation)
        by_reward = self.relation is Relation.REWARD_RADIUS
        if by_reward and self.reward_radius is None:
            raise InputError(
                "is needed: how far apart may two reward functions be?", field="reward_radius"
            )
        if not by_reward and self.reward_radius is not None:
            raise InputError("belongs to the relation reward-radius only.", field="reward_radius")
        if self.reward_radius is not None:
            checks.set_checked(self, reward_radius=checks.positive)

    @classmethod
    def issue(
        cls,
        events: Event | Iterable[Event],
        delta: float,
        *,
        unit: Unit,
        relation: Relation = Relation.REPLACE_ONE,
        release: Release = Release.FINAL_MODEL,
        assumptions: Iterable[Assumption] = (),
        noise: NoiseOrigin = NoiseOrigin.NOT_DRAWN,
        reward_radius: float | None = None,
        population: Population | None = None,
    ) -> "Certificate":
        """Account for `events` and write down the result."""
        listed = as_events(events)
        found = accounting.account(listed, delta, relation)
        return cls(
            epsilon=found.epsilon,
            delta=delta,
            unit=unit,
            relation=relation,
            release=release,
            events=listed,
            accountant=found.method,
            assumptions=tuple(assumptions),
            noise=noise,
            reward_radius=reward_radius,
            population=population,
        )

    @property
    def invalid_reason(self) -> str | None:
        """Why this certificate is known to be false, whatever its figures say, or None."""
        return old_certificates.invalid_reason(self)

    def verify(self, *, strict: bool = False, public_key: str | None = None) -> Verification:
        """Recompute epsilon with two accountants; raise `CertificateError` unless both agree.

        `strict` also refuses noise that anyone who knows the seed can take off again, and
        certificates of plans for which no noise has been drawn. A signature that does not fit is
        refused; with a `public_key` (`signing.public_key` reads one), so is whatever that key has
        not signed. Certificates of earlier versions that are known to be false are refused too.
        """
        from privrl.privacy import second_accountant

        if self.invalid_reason is not None:
            raise CertificateError(self.invalid_reason)
        signed = self._check_signature(public_key)
        if strict and not self.noise.is_secret:
            raise CertificateError(
                f"The noise of this certificate is {self.noise}, which --strict does not accept: "
                "only secret noise protects anyone."
            )
        try:
            recomputed = accounting.epsilon(self.events, self.delta, self.relation)
            bracket = second_accountant.bracket(self.events, self.delta, self.relation)
        except (InputError, UnsupportedError, RecursionError, MemoryError) as error:
            raise CertificateError(
                f"The events of this certificate cannot be accounted for: {error}"
            ) from error
        if not math.isclose(
            self.epsilon, recomputed, rel_tol=_EPSILON_TOLERANCE, abs_tol=_EPSILON_TOLERANCE
        ):
            raise CertificateError(
                f"This certificate says epsilon {self.epsilon:.6g}, "
                f"but its events cost {recomputed:.6g}."
            )
        # The floor is compared up to rounding; above, the first accountant's grid shows wherever
        # the second one happens to be exact.
        lowest = bracket.floor - 1e-9 * (1.0 + self.epsilon)
        highest = bracket.ceiling * (1.0 + 1e-4) + accounting.GRID
        if not lowest <= self.epsilon <= highest:
            raise CertificateError(
                f"The two accountants disagree: epsilon {self.epsilon:.6g} is not between "
                f"{bracket.floor:.6g} and {bracket.ceiling:.6g}; please report this."
            )
        return Verification(
            self.epsilon,
            recomputed,
            bracket.floor,
            bracket.ceiling,
            signed,
            old_certificates.warnings(self),
        )

    def _check_signature(self, public_key: str | None) -> SignatureStatus:
        """What is known of the signature; raises if it does not fit."""
        from privrl.privacy import signing

        if self.signature is None:
            if public_key is not None:
                raise CertificateError("This certificate is not signed.")
            return SignatureStatus.NO
        if public_key is None:
            if not signing.is_available():
                return SignatureStatus.NOT_CHECKED
            signing.check(self)
            return SignatureStatus.BY_THE_KEY_IT_NAMES
        if self.signature.public_key != public_key:
            raise CertificateError(
                "This certificate names another key than the given one as the key it is signed by."
            )
        signing.check(self)
        return SignatureStatus.BY_THE_GIVEN_KEY

    # --- JSON ---------------------------------------------------------------------------------

    def canonical_bytes(self) -> bytes:
        """The bytes of which the digest is, and which a signature signs."""
        return files.canonical_json(self._body()).encode()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, with a digest of itself that shows accidents (not malice)."""
        body = self._body()
        signature = {} if self.signature is None else {"signature": self.signature.to_dict()}
        return {**body, "digest": _digest(body), **signature}

    @property
    def _package(self) -> tuple[str, str]:
        """Its name, and its version."""
        package, _, version = self.issued_by.partition(" ")
        return package, version

    def _body(self) -> dict[str, Any]:
        package, version = self._package
        own = files.fields_to_json(self)
        head = {"kind": f"{package} certificate", "format": _FORMAT, package: version}
        return {**head, **{name: own[name] for name in _FIELDS}}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, data: object) -> "Certificate":
        """The certificate whose JSON form is `data`, unless it was edited or is from the future."""
        if files.kind_of(data) != _KIND:
            if files.kind_of(data) == _CLAIM_KIND:
                raise CertificateError("This is a claim, and a claim is never a certificate.")
            raise CertificateError("This is not a privrl certificate.")
        assert isinstance(data, Mapping)
        made_by = data.get("format")
        if not isinstance(made_by, int) or made_by > _FORMAT:
            raise CertificateError(
                f"This certificate has format {made_by!r}; this version of privrl reads {_FORMAT}."
            )
        body = {key: value for key, value in data.items() if key not in _UNSIGNED_FIELDS}
        try:
            intact = data.get("digest") == _digest(body)
        except (ValueError, TypeError, RecursionError):
            intact = False
        if not intact:
            raise CertificateError("This certificate was changed after it was issued.")
        package = data["kind"].partition(" ")[0]
        expected = {"kind", "format", package, *_FIELDS}
        if set(body) != expected:
            odd = sorted(set(body) ^ expected)[0]
            raise CertificateError(f"The field {odd!r} of this certificate is missing or unknown.")
        if not isinstance(body[package], str):
            raise CertificateError(f"The field {package!r} of this certificate must be text.")
        try:
            own = {name: body[name] for name in _FIELDS}
            own["events"] = tuple(map(Event.from_dict, own["events"]))
            own["assumptions"] = tuple(
                Assumption(item["statement"], item["enforced"]) for item in own["assumptions"]
            )
            own["population"] = Population(**own["population"]) if own["population"] else None
            signature = Signature.from_dict(data["signature"]) if "signature" in data else None
            return cls(**own, issued_by=f"{package} {body[package]}", signature=signature)
        except RecursionError:
            raise CertificateError("The events of this certificate are nested too deep.") from None
        except (InputError, KeyError, TypeError) as error:
            raise CertificateError(f"This certificate cannot be read: {error}") from error

    @classmethod
    def from_json(cls, text: str) -> "Certificate":
        """The certificate written as `text`."""
        try:
            data = files.parse_json(text)
        except files.DuplicateKeyError as error:
            raise CertificateError(f"This certificate cannot be read: {error}") from None
        except (ValueError, RecursionError):
            raise CertificateError("This is not a privrl certificate: it is not JSON.") from None
        return cls.from_dict(data)

    @classmethod
    def read(cls, path: str | Path) -> "Certificate":
        """The certificate in a file."""
        try:
            text = files.read_text(path)
        except FileNotFoundError:
            raise CertificateError(f"There is no file {str(path)!r}.") from None
        except (OSError, ValueError) as error:
            why = files.reason(error)
            raise CertificateError(f"{str(path)!r} cannot be read: {why}.") from None
        return cls.from_json(text)

    def card(self) -> str:
        """The promise in plain words, in lines of at most 79 characters."""
        return card(self)

    def __str__(self) -> str:
        return self.card()


# Not part of what is digested and signed.
_UNSIGNED_FIELDS = ("digest", "signature")
_FIELDS = [
    "epsilon",
    "delta",
    "unit",
    "relation",
    "reward_radius",
    "release",
    "noise",
    "accountant",
    "population",
    "assumptions",
    "events",
]


def _digest(body: Mapping[str, Any]) -> str:
    return "sha256:" + hashlib.sha256(files.canonical_json(body).encode()).hexdigest()


# --- claims -------------------------------------------------------------------------------------

_CLAIM_KIND = "privrl claim"


@dataclass(frozen=True, repr=False)
class Claim(Displayed):
    """What a paper states about the privacy of an algorithm, and why it is not a certificate.

    `scope` says what the figure is stated for (a step, a submission, a run). `certified` is a valid
    figure for the same noise, if there is one; `covers` says what that figure is about or, without
    one, why there is none.
    """

    epsilon: float
    delta: float
    source: str
    scope: str
    why_not: str
    covers: str
    certified: Certificate | None = None
    details: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("source", "scope", "why_not", "covers"):
            if not getattr(self, name).strip():
                raise InputError(f"A claim needs its {name}: it is never shown alone.")

    def card(self) -> str:
        """The claim beside the certified figure in plain words, in lines of at most 79 columns."""
        return claim_card(self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, which reads back as a claim and as nothing else."""
        return {
            "kind": _CLAIM_KIND,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "source": self.source,
            "scope": self.scope,
            "why_not": self.why_not,
            "details": dict(self.details),
            "certified": self.certified.to_dict() if self.certified else None,
            "covers": self.covers,
        }

    @classmethod
    def from_dict(cls, data: object) -> "Claim":
        """The claim whose JSON form is `data`."""
        if files.kind_of(data) != _CLAIM_KIND or not isinstance(data, Mapping):
            raise InputError("This is not a claim as privrl writes it.")
        try:
            certified = data["certified"]
            return cls(
                epsilon=checks.number("epsilon", data["epsilon"]),
                delta=checks.number("delta", data["delta"]),
                **{name: str(data[name]) for name in ("source", "scope", "why_not", "covers")},
                certified=None if certified is None else Certificate.from_dict(certified),
                details={
                    str(name): checks.number(str(name), value)
                    for name, value in dict(data["details"]).items()
                },
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"This claim lacks or garbles {error}.") from None

    def __str__(self) -> str:
        lines = [
            f"Claim by {self.source}: epsilon {self.epsilon:.4g} at delta {self.delta:.4g}, "
            f"for {self.scope}.",
            f"Not a certificate: {self.why_not}",
        ]
        if self.certified is None:
            lines.append(f"No certified figure: {self.covers}")
        else:
            c = self.certified
            lines.append(
                f"Certified for the same noise: epsilon {c.epsilon:.4g} at delta {c.delta:.4g} "
                f"({c.relation}). {self.covers}"
            )
        return "\n".join(lines)
