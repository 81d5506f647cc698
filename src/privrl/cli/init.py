"""`privrl init`: a commented job.toml from the columns of a table."""

from pathlib import Path

from privrl.cli.derived import CommandSpec
from privrl.cli.printing import answer, shell_quote
from privrl.core.spec import REQUIRED, option


class Options(CommandSpec):
    """Write a commented configuration for privrl evaluate, from the columns of a table.

    Names and types of columns are looked at, and no row. Which column is what is a guess.
    """

    table: tuple[str, ...] = option(
        "Parquet or CSV files, a pattern, or a folder.", REQUIRED, argument=True
    )
    out: Path = option("Where to write.", Path("job.toml"))

    def run(self) -> None:
        from privrl.run.job_file import write_job

        written = shell_quote(write_job(self.table, self.out))
        told = f"Wrote {written}. Check every line, say what is missing, and try it:"
        answer({"job": str(self.out)}, told, f"  privrl evaluate --config {written} --dry-run")
