"""`privrl keygen`: a pair of keys by which certificates are signed."""

from pathlib import Path

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer, shell_quote
from privrl.core.spec import REQUIRED, option


class Options(CommandSpec):
    """Make a pair of keys for `privrl sign`: KEY, for its owner only, and KEY.pub, for others."""

    key: Path = option("Where to put the private key.", REQUIRED, argument=True)

    def run(self) -> None:
        from privrl.privacy import signing

        public = signing.make_key(self.key)
        told = {"private_key": str(self.key), "public_key": str(public)}
        made = f"Made {shell_quote(self.key)} (keep it) and {shell_quote(public)} (give it away)."
        answer({**told, "key": signing.public_key(public)}, made)
