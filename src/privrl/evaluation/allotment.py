"""One step for each unit: uniform, secret, and the same however the data is read.

    with allotted(data, key) as dealt:
        for step, piece in dealt.steps(50):
            ...    # whole units of that step; steps come in order, and some may be empty

A unit's place is a number u in [0, 1): BLAKE2b of its id, keyed with 32 secret bytes from the
source of the noise. Of T steps it takes part in step floor(T u). To whoever does not know the key,
places are independent and uniform (BLAKE2b is taken to be a pseudorandom function). A place depends
on the key and on the unit's own id: nobody's rows, nor how many there are, nor the order of the
data, nor who else is there, move anybody else.

Data in memory is cut there. A stream is first dealt into temporary files, by place, and then read
back file by file: their number is a constant, and memory is bounded by the batches of the stream
and by a 64th of the data. These files have no name, so that nothing is left of them however the
process ends: whoever could read them would know who took part when, which is to be a secret.
"""

import pickle
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import blake2b
from tempfile import TemporaryFile, gettempdir
from typing import IO, Any

import numpy as np

from privrl.core.errors import InputError
from privrl.core.types import Floats
from privrl.data import Trajectories, TrajectoryStream
from privrl.evaluation.steps import Data
from privrl.privacy.promise import Unit

# Open at the same time while a stream is dealt. Public, like everything that decides an order.
_PARTS = 64


def keyed_uniforms(ids: Any, key: bytes) -> Floats:
    """The place in [0, 1) of each id; see the module."""
    digests = (blake2b(str(one).encode(), key=key, digest_size=8).digest() for one in ids)
    drawn = np.frombuffer(b"".join(digests), dtype="<u8")
    return np.asarray((drawn >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


@dataclass(frozen=True)
class Allotment:
    """Data in the order of its units' places."""

    count: int
    """How many units there are; public under replace-one."""

    key: bytes
    parts: Callable[[], Iterator[Trajectories]]

    def steps(self, count: int) -> Iterator[tuple[int, Trajectories]]:
        """Numbers of steps, never falling, and units that take part in them."""
        for part in self.parts():
            step = np.floor(count * keyed_uniforms(part.unit_ids, self.key)).astype(np.int64)
            own = step[part.unit_index]
            order = np.argsort(own, kind="stable")
            taken, begins = np.unique(own[order], return_index=True)
            ends = np.append(begins[1:], order.size)
            for number, begin, end in zip(taken.tolist(), begins, ends, strict=True):
                yield number, part.take(order[begin:end])


@contextmanager
def allot(
    data: Data, key: bytes, checked: Callable[[Trajectories], None] = lambda _: None
) -> Iterator[Allotment]:
    """`data` dealt by secret places; `checked` is called with each batch, and may refuse it."""
    if isinstance(data, Trajectories):
        checked(data)
        yield Allotment(data.num_units, key, lambda: iter((data,)))
        return
    with ExitStack() as stack:
        files: list[IO[bytes]] = []
        try:
            for _ in range(_PARTS):
                files.append(TemporaryFile(dir=data.scratch))  # noqa: SIM115 (the stack closes it)
                stack.callback(_close, files[-1])
        except OSError as error:
            raise InputError(f"scratch {data.scratch} cannot be used: {error.strerror}.") from None
        yield _deal(data, key, checked, files)


def unit_of(data: Data) -> Unit:
    """Whose step is drawn: a person's, or a trajectory's if nobody is named."""
    if isinstance(data, Trajectories):
        return data.unit
    given: object = data
    if not isinstance(given, TrajectoryStream):
        # Batches of somebody's own may hold the same id for different units.
        raise InputError(
            "must be Trajectories, or a stream of them made by stream_parquet.", field="data"
        )
    return Unit.TRAJECTORY if data.plan.user is None else Unit.USER


def _close(file: IO[bytes]) -> None:
    # What was not written, for want of room, is not wanted any more.
    with suppress(OSError):
        file.close()


def _deal(
    data: TrajectoryStream,
    key: bytes,
    checked: Callable[[Trajectories], None],
    files: list[IO[bytes]],
) -> Allotment:
    count = 0
    try:
        for batch in data:
            checked(batch)
            count += batch.num_units
            part = np.floor(_PARTS * keyed_uniforms(batch.unit_ids, key)).astype(np.int64)
            part = part[batch.unit_index]
            for number in np.unique(part).tolist():
                piece = batch.take(np.flatnonzero(part == number))
                pickle.dump(piece, files[number], protocol=pickle.HIGHEST_PROTOCOL)
        for file in files:
            file.flush()
    except OSError as error:
        where = data.scratch or gettempdir()
        raise InputError(
            f"Dealing people to steps needs room in {where}: {error.strerror}."
        ) from None
    return Allotment(count, key, lambda: _load_parts(files))


def _load_parts(files: list[IO[bytes]]) -> Iterator[Trajectories]:
    for file in files:
        pieces, size = [], file.tell()
        file.seek(0)
        while file.tell() < size:
            pieces.append(pickle.load(file))
        file.close()
        if pieces:
            yield _concatenate(pieces)


def _concatenate(pieces: list[Trajectories]) -> Trajectories:
    """Pieces of one stream as one, in their order."""
    last = pieces[-1]
    ends = np.cumsum([piece.num_steps for piece in pieces])
    offsets = [pieces[0].offsets]
    offsets += [piece.offsets[1:] + end for piece, end in zip(pieces[1:], ends[:-1], strict=True)]
    columns: dict[str, Any] = {}
    for name, column in vars(last).items():
        if isinstance(column, np.ndarray) and name != "offsets":
            columns[name] = np.concatenate([getattr(piece, name) for piece in pieces])
    return replace(last, offsets=np.concatenate(offsets), **columns)
