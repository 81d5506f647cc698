"""`privrl verify`: whether a certificate says what is true."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privrl.cli.common import Json
from privrl.cli.printing import say, say_json, shell_quote

if TYPE_CHECKING:
    from privrl.privacy import Certificate
    from privrl.privacy.certificate import SignatureStatus


def verify(
    certificate: Annotated[Path, typer.Argument(help="A certificate, as written by privrl.")],
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse noise that is not secret.")
    ] = False,
    public_key: Annotated[
        Path | None, typer.Option(help="Refuse what this key has not signed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Recompute a certificate with two accountants that share no code."""
    import textwrap

    from privrl.core.text import printable
    from privrl.privacy import Certificate, signing

    read = Certificate.read(certificate)
    if as_json and read.invalid_reason is not None:
        # Refused below like any other; programs find the reason here.
        answer = {"verified": False, "invalid": read.invalid_reason, "certificate": read.to_dict()}
        say_json(answer)
    key = None if public_key is None else signing.public_key(public_key)
    found = read.verify(strict=strict, public_key=key)
    if as_json:
        answer = {"verified": True, "invalid": None, **found.to_dict()}
        say_json({**answer, "certificate": read.to_dict()})
        return
    say(*read.card().split("\n"), "")
    say(f"Verified: recomputed {found.recomputed:.6g}; the second accountant says")
    say(f"between {found.floor:.6g} and {found.ceiling:.6g}.")
    say(*textwrap.wrap(printable(_signature_sentence(read, found.signed, public_key)), 79))


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
