"""`privrl init`: a commented job.toml from the columns of a table."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from privrl.cli.common import Json
from privrl.cli.printing import answer, shell_quote


def init(
    table: Annotated[list[str], Argument(help="Parquet or CSV files, a pattern, or a folder.")],
    out: Annotated[Path, Option(help="Where to write.")] = Path("job.toml"),
    as_json: Json = False,
) -> None:
    """Write a commented configuration for privrl evaluate, from the columns of a table.

    Names and types of columns are looked at, and no row. Which column is what is a guess.
    """
    from privrl.run.job_file import write_job

    written = shell_quote(write_job(table, out))
    told = f"Wrote {written}. Check every line, say what is missing, and try it:"
    answer(as_json, {"job": str(out)}, told, f"  privrl evaluate --config {written} --dry-run")
