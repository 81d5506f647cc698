"""`privrl verify`: whether a certificate says what is true."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from privrl.cli.common import Json
from privrl.cli.printing import CheckFailed, answer, shell_quote

if TYPE_CHECKING:
    from privrl.privacy import Certificate
    from privrl.privacy.certificate import SignatureStatus


def verify(
    certificate: Annotated[Path, Argument(help="A certificate, as written by privrl.")],
    strict: Annotated[bool, Option("--strict", help="Refuse noise that is not secret.")] = False,
    public_key: Annotated[Path | None, Option(help="Refuse what this key has not signed.")] = None,
    as_json: Json = False,
) -> None:
    """Recompute a certificate with two accountants that share no code.

    Leaves with exit code 1 if it is not valid, and 2 if it cannot be read.
    """
    import textwrap

    from privrl.core.text import printable
    from privrl.privacy import Certificate, CertificateError, signing

    key, read = None if public_key is None else signing.public_key(public_key), None
    try:
        read = Certificate.read(certificate)
        found = read.verify(strict=strict, public_key=key)
    except CertificateError as error:
        if isinstance(error.__context__, OSError):
            raise  # there is nothing to check
        held = None if read is None else read.to_dict()
        reason = None if read is None else read.invalid_reason
        raise CheckFailed(error, verified=False, invalid=reason, certificate=held) from None
    told = {"verified": True, "invalid": None, **found.to_dict(), "certificate": read.to_dict()}
    lines = [
        *read.card().split("\n"),
        "",
        f"Verified: recomputed {found.recomputed:.6g}; the second accountant says",
        f"between {found.floor:.6g} and {found.ceiling:.6g}.",
        *textwrap.wrap(printable(_signature_sentence(read, found.signed, public_key)), 79),
    ]
    answer(as_json, told, *lines)


def _signature_sentence(read: "Certificate", signed: "SignatureStatus", given: Path | None) -> str:
    """What is known of the signature, and no more."""
    if read.signature is None:
        return "Not signed."
    key = read.signature.public_key
    match signed.value:
        case "by-the-given-key":
            return (
                f"Signed by the key in {shell_quote(given)}; who has that key is for you to know."
            )
        case "by-the-key-it-names":
            return (
                f"Signed by the key {key}, which may be anybody's: compare it with one that you "
                "know, with --public-key."
            )
    return "A signature is there, and was not checked: that needs pip install 'privrl[sign]'."
