"""Where `privrl` and `python -m privrl` begin: ready for Ctrl-C before large imports."""

import os
import signal
import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and leave with its exit code; 130 if it was interrupted."""
    # Nothing has been done yet that would have to be cleared up, and an exception in the middle of
    # an import can be swallowed, or come out as another one.
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    from privrl import cli

    try:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        cli.main()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        # All is written: no second thoughts while Python ends.
        if ours:
            signal.signal(signal.SIGINT, lambda *_: os._exit(130))


if __name__ == "__main__":
    main()
