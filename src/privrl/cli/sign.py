"""`privrl sign`: a signature under a certificate."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from privrl.cli.common import Json
from privrl.cli.printing import answer, say, shell_quote


def sign(
    certificate: Annotated[Path, Argument(help="A certificate, as written by privrl.")],
    key: Annotated[Path, Option(help="The private key, as made by privrl keygen.")],
    as_json: Json = False,
) -> None:
    """Sign a certificate, if it can be verified; the signature is put into its file."""
    from privrl.core import files
    from privrl.privacy import Certificate, signing

    # A signature that was there before is replaced.
    read = replace(Certificate.read(certificate), signature=None)
    found = read.verify()
    signed = signing.sign(read, key)
    files.write(certificate, signed.to_json().encode(), secret=False)
    assert signed.signature is not None
    name = signed.signature.public_key
    told = {"signed": True, "key": name, "warnings": list(found.warnings)}
    answer(as_json, told, f"Signed {shell_quote(certificate)} with the key", f"{name}.")
    for warning in () if as_json else found.warnings:
        say(f"privrl: warning: {warning}", aside=True)
