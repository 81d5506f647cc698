"""The chain of xie2019 with all variants of `PrivateGTD`; figures: `privrl reproduce xie2019`."""

from collections.abc import Iterator


def run() -> Iterator[dict[str, object]]:
    from privrl.papers.xie2019 import chain

    yield from chain.run()
