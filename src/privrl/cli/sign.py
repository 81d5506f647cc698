"""`privrl sign`: a signature under a certificate."""

from dataclasses import replace
from pathlib import Path

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer, shell_quote, warn
from privrl.core.spec import REQUIRED, option


class Options(CommandSpec):
    """Sign a certificate, if it can be verified; the signature is put into its file."""

    certificate: Path = option("A certificate, as written by privrl.", REQUIRED, argument=True)
    key: Path = option("The private key, as made by privrl keygen.", REQUIRED)

    def run(self) -> None:
        from privrl.core import files
        from privrl.privacy import Certificate, signing

        # A signature that was there before is replaced.
        read = replace(Certificate.read(self.certificate), signature=None)
        found = read.verify()
        signed = signing.sign(read, self.key)
        files.write(self.certificate, signed.to_json().encode(), secret=False)
        assert signed.signature is not None
        name = signed.signature.public_key
        told = {"signed": True, "key": name, "warnings": list(found.warnings)}
        answer(told, f"Signed {shell_quote(self.certificate)} with the key", f"{name}.")
        for warning in found.warnings:
            warn(warning)
