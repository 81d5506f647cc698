"""`privrl init`: a commented job.toml from the columns of a table."""

from pathlib import Path
from typing import Annotated

import typer

from privrl.cli.common import Json
from privrl.cli.printing import say, say_json, shell_quote


def init(
    table: Annotated[
        list[str], typer.Argument(help="Parquet or CSV files, a pattern, or a folder.")
    ],
    out: Annotated[Path, typer.Option(help="Where to write.")] = Path("job.toml"),
    as_json: Json = False,
) -> None:
    """Write a commented configuration for privrl evaluate, from the columns of a table.

    Names and types of columns are looked at, and no row. Which column is what is a guess.
    """
    from privrl.run.job_file import write_job

    written = shell_quote(write_job(table, out))
    if as_json:
        say_json({"job": str(out)})
        return
    say(f"Wrote {written}. Check every line, say what is missing, and try it:")
    say(f"  privrl evaluate --config {written} --dry-run")
