"""The experiments of xie2019: the chain, and mountain car and HIV; see `privrl.papers.xie2019`.

`PRIVRL_XIE2019` names the parts to run, by commas; all by default.
"""

import os
from collections.abc import Iterator

PARTS = ("chain", "control")


def run() -> Iterator[dict[str, object]]:
    from privrl.papers.xie2019 import chain, control

    wanted = os.environ.get("PRIVRL_XIE2019", ",".join(PARTS)).split(",")
    for part, rows in (("chain", chain.run), ("control", control.run)):
        if part in wanted:
            for row in rows():
                yield {"part": part, **row}
