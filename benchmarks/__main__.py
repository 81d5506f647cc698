"""Run all benchmarks, or those named."""

import importlib
import json
import pkgutil
import sys

import benchmarks
from benchmarks.measure import environment


def main(names: list[str]) -> int:
    known = [m.name for m in pkgutil.iter_modules(benchmarks.__path__)]
    runnable = sorted(set(known) - {"__main__", "measure"})
    unknown = sorted(set(names) - set(runnable))
    if unknown:
        print(f"There is no benchmark {unknown[0]!r}: use {', '.join(runnable)}.", file=sys.stderr)
        return 2
    print(json.dumps({"benchmark": "environment", **environment()}), flush=True)
    for name in names or runnable:
        for row in importlib.import_module(f"benchmarks.{name}").run():
            print(json.dumps({"benchmark": name, **row}), flush=True)
    return 0


sys.exit(main(sys.argv[1:]))
