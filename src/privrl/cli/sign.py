"""`privrl sign`: a signature under a certificate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from privrl.cli.common import Json
from privrl.cli.printing import say, say_json, shell_quote

if TYPE_CHECKING:
    pass


def sign(
    certificate: Annotated[Path, typer.Argument(help="A certificate, as written by privrl.")],
    key: Annotated[Path, typer.Option(help="The private key, as made by privrl keygen.")],
    as_json: Json = False,
) -> None:
    """Sign a certificate, if it can be verified; the signature is put into its file."""
    from dataclasses import replace

    from privrl.core import files
    from privrl.privacy import Certificate, signing

    # A signature that was there before is replaced.
    read = replace(Certificate.read(certificate), signature=None)
    found = read.verify()
    signed = signing.sign(read, key)
    files.write(certificate, signed.to_json().encode(), secret=False)
    assert signed.signature is not None
    if as_json:
        told = {"key": signed.signature.public_key, "warnings": list(found.warnings)}
        say_json({"signed": True, **told})
    else:
        say(f"Signed {shell_quote(certificate)} with the key")
        say(f"{signed.signature.public_key}.")
        for warning in found.warnings:
            say(f"privrl: warning: {warning}", aside=True)
