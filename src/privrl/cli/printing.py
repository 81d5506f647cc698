"""All that the commands print: no other module in this package may (ruff's T20 forbids it).

A command hands over lines. The breaks between them are the only ones that reach the terminal: what
a file or an option has put into a line is escaped (`privrl.core.text`), so that no name can move
the cursor, start a line of its own, or turn around the numbers beside it.
"""

import json
import shlex
import sys
from typing import Any

from privrl.core.text import printable_line


def say(*lines: object, aside: bool = False) -> None:
    """Print lines to standard output, or, `aside`, to standard error."""
    text = "\n".join(printable_line(str(line)) for line in lines)
    print(text, file=sys.stderr if aside else sys.stdout)


def shell_quote(path: object) -> str:
    """A path as a shell takes it: in quotes if it has spaces or the like in it."""
    return shlex.quote(str(path))


def say_json(value: Any, indent: int | None = None) -> None:
    """Print JSON, in ASCII: whatever else there is in it is escaped."""
    print(json.dumps(value, indent=indent, ensure_ascii=True))  # noqa: T201 (the one place for JSON)


def refuse(message: str) -> int:
    """Say what is wrong in one short line, whatever a file has put into it; the exit code 2."""
    from privrl.core.text import shorten

    say(f"privrl: {shorten(message)}", aside=True)
    return 2
