"""The result of a payload: its files, its logs and what became of it, packed once and kept.
Moves no row; `runner` does, once the result is on the disk.
"""

from __future__ import annotations

import asyncio
import heapq
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, NamedTuple

from tenuto.service.archive import ArchiveSource, Packed, PackingStopped, write_zip
from tenuto.service.data_paths import private, remove_quietly, synced
from tenuto.service.names import OWN_DIRECTORY
from tenuto.service.node.payloads import PayloadRow
from tenuto.workspace.layout import METRICS, JobPaths

WORK = "work"
"""The directory of a payload's program, below the job's."""
RESULT = "result.zip"
STARTED = "begun"
POINTS = METRICS
"""The log of the metrics that a payload appends, in a directory of its own in `work`."""
STREAMS = ("stdout", "stderr")
"""The logs that each result has, of a payload that printed nothing too."""
SMALL_BYTES = 64 << 20
"""Of a result that is packed while large ones are."""


class Place(NamedTuple):
    """Where the files of a payload lie."""

    paths: JobPaths

    @property
    def work(self) -> str:
        return f"{self.paths.directory}/{WORK}"

    @property
    def result(self) -> str:
        return f"{self.paths.directory}/{RESULT}"

    @property
    def started(self) -> str:
        """Has a line in it once the program of the payload has begun, in a sandbox."""
        return f"{self.paths.directory}/{STARTED}"

    @property
    def part(self) -> str:
        return f"{self.paths.directory}/{RESULT}.part"

    @property
    def logs(self) -> dict[str, str]:
        points = f"{self.work}/{OWN_DIRECTORY}/{POINTS}"
        return {**dict(zip(STREAMS, (self.paths.out, self.paths.err), strict=True)), POINTS: points}


def facts_of(row: PayloadRow, status: str, message: str, exit_code: int | None) -> dict[str, Any]:
    """What `.tenuto/job.json` says of a payload."""
    return {
        "id": int(row.job_id) if row.job_id.isdecimal() else row.id,
        "user_id": row.user_id,
        "service": row.service,
        "status": status,
        "message": message,
        "exit_code": exit_code,
    }


def pack(place: Place, packed: ArchiveSource, is_stopped: Callable[[], bool]) -> Packed:
    """Packs a result; it is on the disk when this returns. Raises `OSError` if there is no room.

    `PackingStopped` once ``is_stopped`` says so.
    """
    try:
        with open(place.part, "wb", opener=private) as target:
            done = write_zip(packed, target, is_stopped)
            target.flush()
            os.fsync(target.fileno())
        os.rename(place.part, place.result)
        synced(place.paths.directory)
    except (OSError, PackingStopped):
        remove_quietly(place.part)
        raise
    return done


class PackingOrder:
    """Whose result is packed next: the smallest. One place is kept for small results, which never wait for
    large ones to end.
    """

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        """(bytes, number, told when it is their turn)."""
        self._numbers = count()

    @asynccontextmanager
    async def turn(self, size: int, cut: asyncio.Future[None] | None) -> AsyncIterator[None]:
        """Waits until a result of this size may be packed; `PackingStopped` if ``cut`` is done first."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (size, next(self._numbers), turn))
        self._call()
        try:
            either: set[asyncio.Future[None]] = {turn} if cut is None else {turn, cut}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                raise PackingStopped
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._free += 1
            turn.cancel()
            self._call()

    def _call(self) -> None:
        """Tells those whose turn has come."""
        while self._waiting and (self._free > 1 or (self._free == 1 and self._waiting[0][0] <= SMALL_BYTES)):
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                self._free -= 1
                turn.set_result(None)
