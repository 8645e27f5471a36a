"""The body of an upload as it arrives: piece by piece, at a pace that a client must keep.
Reads no part of it; `uploads` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from tenuto.clock import Clock
from tenuto.errors import RequestRefused
from tenuto.service.contract import ErrorCode
from tenuto.service.uploads import Received, Receiver, UploadLimits, refused

SLOWEST_BYTES_S = 1 << 10
GATHERED = 1 << 19
"""Larger pieces are parsed in a thread, so that a slow disk holds up no other request."""


async def receive(
    stream: AsyncIterator[bytes], receiver: Receiver, limits: UploadLimits, clock: Clock
) -> Received:
    """Feeds a body to a receiver; refuses a client that is too slow."""
    pace = _Pace(limits.idle_s, clock)
    gathered: list[bytes] = []
    size = 0
    async for piece in paced(stream, pace):
        gathered.append(piece)
        size += len(piece)
        if size >= GATHERED:
            data, gathered, size = b"".join(gathered), [], 0
            await asyncio.to_thread(receiver.feed, data)
    receiver.feed(b"".join(gathered))
    return receiver.finish()


async def gathered(stream: AsyncIterator[bytes], limits: UploadLimits, clock: Clock) -> bytes:
    """A body that is known to be small; refuses a client that is too slow."""
    return b"".join([piece async for piece in paced(stream, _Pace(limits.idle_s, clock))])


class _Pace:
    """How fast a body arrives."""

    def __init__(self, idle_s: float, clock: Clock) -> None:
        self.idle_s = idle_s
        self._now: Callable[[], float] = clock.monotonic
        self._began = self._now()
        self._bytes = 0

    def count(self, size: int) -> None:
        """Counts a piece; refuses a client that sent too little for its time."""
        self._bytes += size
        took_s = self._now() - self._began
        if took_s > self.idle_s and self._bytes < SLOWEST_BYTES_S * took_s:
            raise too_slow()


def too_slow() -> RequestRefused:
    return refused(ErrorCode.TOO_SLOW, "The upload was too slow")


async def paced(stream: AsyncIterator[bytes], pace: _Pace) -> AsyncIterator[bytes]:
    """The pieces of a body; refuses a client that sends none for too long, or too few."""
    iterator = stream.__aiter__()
    while True:
        try:
            async with asyncio.timeout(pace.idle_s):
                piece = await anext(iterator)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise too_slow() from None
        pace.count(len(piece))
        yield piece
