"""ChaCha20 with a key that no other process and no copy has.

A module of its own, because randomgen takes a while to import and few need it.
"""

import os
import secrets
from typing import NoReturn
from weakref import WeakSet

from randomgen import ChaCha

from privrl.privacy.forking import guard


class SecureChaCha(ChaCha):  # type: ignore[misc]  # randomgen's types are not published
    """ChaCha20 keyed by the operating system, again in every forked process and every copy."""

    def __init__(self, seed: object = None) -> None:
        # NumPy's `spawn` brings a seed, which two forked processes would have in common.
        super().__init__(key=secrets.randbits(256), rounds=20)
        _INSTANCES.add(self)
        guard(self.lock)

    def __reduce__(self) -> tuple[type["SecureChaCha"], tuple[()]]:
        # A copy with the same key would draw the same noise: in a pool of processes, for example.
        return SecureChaCha, ()

    def rekey(self) -> None:
        """Take another key, and forget what the old one made."""
        self.seed(key=secrets.randbits(256))


class KeyedChaCha(SecureChaCha):
    """The same with a key that was stored, so that a run can draw its noise once more.

    In a forked process it has a fresh key, and there are no copies of it.
    """

    def __init__(self, key: bytes) -> None:
        super().__init__()
        self.seed(key=int.from_bytes(key, "little"))

    def __reduce__(self) -> NoReturn:
        raise TypeError("Noise by a stored key belongs to one run, and cannot be copied.")


_INSTANCES: WeakSet[SecureChaCha] = WeakSet()


def _rekey_all() -> None:
    waiting, interrupted = list(_INSTANCES), False
    while waiting:
        try:
            waiting[-1].rekey()
            waiting.pop()
        except KeyboardInterrupt:  # never go on with the parent's keys
            interrupted = True
    if interrupted:
        raise KeyboardInterrupt


# After the locks are free: `forking`, imported above, was registered before. In place, so that
# generators which somebody holds already are renewed as well.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_rekey_all)
