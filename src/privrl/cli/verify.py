"""`privrl verify`: whether a certificate says what is true."""

import textwrap
from pathlib import Path

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import CheckFailed, answer, shell_quote
from privrl.core.spec import REQUIRED, option
from privrl.core.text import printable

# What is known of the signature, and no more, by `SignatureStatus`.
_SIGNED = {
    "no": "Not signed.",
    "not-checked": "A signature is there, and was not checked: that needs pip install "
    "'privrl[sign]'.",
    "by-the-key-it-names": "Signed by the key {key}, which may be anybody's: compare it with one "
    "that you know, with --public-key.",
    "by-the-given-key": "Signed by the key in {file}; who has that key is for you to know.",
}


class Options(CommandSpec):
    """Recompute a certificate with two accountants that share no code.

    Leaves with exit code 1 if it is not valid, and 2 if it cannot be read.
    """

    certificate: Path = option("A certificate, as written by privrl.", REQUIRED, argument=True)
    strict: bool = option("Refuse noise that is not secret.", False)
    public_key: Path | None = option("Refuse what this key has not signed.")

    def run(self) -> None:
        from privrl.privacy import Certificate, CertificateError, signing

        key = None if self.public_key is None else signing.public_key(self.public_key)
        read = None
        try:
            read = Certificate.read(self.certificate)
            found = read.verify(strict=self.strict, public_key=key)
        except CertificateError as error:
            if isinstance(error.__context__, OSError):
                raise  # there is nothing to check
            held = None if read is None else read.to_dict()
            reason = None if read is None else read.invalid_reason
            raise CheckFailed(error, verified=False, invalid=reason, certificate=held) from None
        name = read.signature and read.signature.public_key
        signed = _SIGNED[found.signed.value].format(key=name, file=shell_quote(self.public_key))
        answer(
            {"verified": True, "invalid": None, **found.to_dict(), "certificate": read.to_dict()},
            *read.card().split("\n"),
            "",
            f"Verified: recomputed {found.recomputed:.6g}; the second accountant says",
            f"between {found.floor:.6g} and {found.ceiling:.6g}.",
            *textwrap.wrap(printable(signed), 79),
        )
