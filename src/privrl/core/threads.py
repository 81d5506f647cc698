"""A pool of threads for generators, which may be left half-way."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that are waited for at the end and after an error, but not where a generator closes.

    A generator that nobody reads to its end closes when garbage is collected. That may be while
    another thread starts, which holds a lock that waiting for a thread asks for: it would wait for
    ever. A pool that is not referred to any more ends its threads by itself.
    """
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool
    except GeneratorExit:
        raise
    except BaseException:
        pool.shutdown()
        raise
    pool.shutdown()
