"""`privrl keygen`: a pair of keys by which certificates are signed."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from privrl.cli.common import Json
from privrl.cli.printing import answer, shell_quote


def keygen(
    key: Annotated[Path, Argument(help="Where to put the private key.", metavar="KEY")],
    as_json: Json = False,
) -> None:
    """Make a pair of keys for `privrl sign`: KEY, for its owner only, and KEY.pub, for others."""
    from privrl.privacy import signing

    public = signing.make_key(key)
    told = {"private_key": str(key), "public_key": str(public), "key": signing.public_key(public)}
    made = f"Made {shell_quote(key)} (keep it) and {shell_quote(public)} (give it away)."
    answer(as_json, told, made)
