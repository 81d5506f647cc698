"""Locks of generators that are free in a forked process.

A generator draws under a lock. If another thread draws at the moment of a fork, the child would
inherit the lock held, by a thread that the child has not, and would wait for it for ever: when it
draws, or when its secure sources take fresh keys. So whoever forks waits until the draws that are
under way are over, holds all guarded locks over the fork, and lets them go in both processes. What
cannot be had within some seconds is made anew in the child; a generator may then have been copied
in the middle of a draw, which does no harm to one that takes a fresh key, and nothing is promised
about one with a seed.
"""

import os
import threading
import time
from typing import Any
from weakref import WeakSet

_GUARDED: WeakSet[Any] = WeakSet()
_FORK_LOCK = threading.RLock()  # or two threads that fork would wait for one another
_held: list[Any] = []
_LOCK_TIMEOUT = 5.0  # seconds that a fork waits for draws, which take milliseconds


def guard(lock: Any) -> None:
    """Have `lock` free in forked processes."""
    _GUARDED.add(lock)


def _guarded_locks() -> list[Any]:
    while True:
        try:
            return list(_GUARDED)
        except RuntimeError:  # another thread has just made one
            continue


def _acquire_locks() -> None:
    _FORK_LOCK.acquire()
    until = time.monotonic() + _LOCK_TIMEOUT
    for lock in _guarded_locks():
        if lock.acquire(timeout=max(0.0, until - time.monotonic())):
            _held.append(lock)


def _release_locks() -> None:
    while _held:
        _held.pop().release()
    _FORK_LOCK.release()


def _release_in_child() -> None:
    try:
        _release_locks()
    finally:
        _reset_locks()


def _reset_locks() -> None:
    # Taken by other threads for longer than that, or made since: nobody is left to let them go.
    for lock in _guarded_locks():
        if lock.acquire(blocking=False):
            lock.release()
        else:
            lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_acquire_locks, after_in_parent=_release_locks, after_in_child=_release_in_child
    )
