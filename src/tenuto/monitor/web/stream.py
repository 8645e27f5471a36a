"""The stream of changes as server-sent events, and the frames it is made of.
A client gets state, not history: a slow client costs nothing, and a returning one misses nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool

from tenuto.errors import BadQuestion, TenutoError
from tenuto.monitor import shapes
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.web.answers import encode

FIRST = b"retry: 1000\n\n"
PING = b": ping\n\n"
PING_S = 15.0
FRAME_S = 0.1
"""Between two frames of a burst."""
SHARED_S = 0.05
"""How long a frame serves the streams that stand where it begins."""
METRICS_S = 0.05
"""Between two frames about metrics alone, which only name the jobs that logged more."""
LOG_S = 0.2
CHECK_S = 1.0
MOST_LOG_BYTES = 256 * 1024


class LogRequest(NamedTuple):
    """Which log a client follows, and from where on."""

    key: str
    stream: str
    offset: int


def parse_log(text: str) -> LogRequest:
    """``KEY:STREAM:OFFSET``; a key has colons of its own."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0] or parts[1] not in ("out", "err") or not _is_number(parts[2]):
        raise BadQuestion(f"{text!r:.100} names no log: write KEY:out:OFFSET or KEY:err:OFFSET")
    return LogRequest(parts[0], parts[1], int(parts[2]))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 16


def frame(event: str, data: Any, frame_id: str | None = None) -> bytes:
    """One server-sent event; the data is one line."""
    head = f"id: {frame_id}\n" if frame_id is not None else ""
    return f"{head}event: {event}\ndata: ".encode() + encode(data) + b"\n\n"


class Frame(NamedTuple):
    """A frame, and the id that a client of it asks with next."""

    id: str
    data: bytes


class Hub:
    """Tells the streams of one server of changes, and makes each frame once for all that need it."""

    def __init__(self, provider: LocalProvider) -> None:
        self._provider = provider
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: set[asyncio.Event] = set()
        self._frames: dict[str | None, tuple[float, asyncio.Task[Frame | None]]] = {}
        """By the id that it follows: when a frame was begun, and the frame."""
        self.is_closing = False

    def open(self) -> None:
        """Begin, on the loop of the server."""
        self._loop = asyncio.get_running_loop()
        self._provider.add_waker(self._wake)

    def close(self) -> None:
        """End all streams."""
        self.is_closing = True
        self._notify()

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            try:
                self._loop.call_soon_threadsafe(self._notify)
            except RuntimeError:  # closed meanwhile
                return

    def _notify(self) -> None:
        # A frame that is being made may have been read before this change: a stream that joined it
        # now would find nothing, and wait for a word that has already come.
        self._frames = {since: made for since, made in self._frames.items() if made[1].done()}
        for event in self._waiting:
            event.set()

    async def next_frame(self, since: str | None) -> Frame | None:
        """All that is newer, or was a moment ago: a stream asks again after a frame. None: nothing is."""
        now = time.monotonic()
        self._frames = {
            one: made for one, made in self._frames.items() if now - made[0] < SHARED_S or not made[1].done()
        }
        if since not in self._frames:
            task = asyncio.create_task(self._make(since))
            task.add_done_callback(_retrieved)
            self._frames[since] = (now, task)
        return await asyncio.shield(self._frames[since][1])

    async def _make(self, since: str | None) -> Frame | None:
        found = await run_in_threadpool(self._provider.changes, since, 0.0)
        frame_id = f"{found['epoch']}-{found['seq']}"
        if frame_id == since:
            self._frames.pop(since, None)  # the next change is asked for anew
            return None
        return Frame(frame_id, frame("reset" if "reset" in found else "delta", found, frame_id))

    async def frames(
        self, since: str | None, asked: LogRequest | None, metrics: Sequence[str], is_open: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """What one client is sent, until the session or the server ends."""
        event = asyncio.Event()
        self._waiting.add(event)
        log = _LogTail(self._provider, asked) if asked is not None else None
        curves = _MetricsWatch(self._provider, metrics) if metrics else None
        try:
            yield FIRST
            spoken = time.monotonic()
            while not self.is_closing and is_open():
                event.clear()
                begun = time.monotonic()
                found = await self.next_frame(since)
                if found is not None:
                    since = found.id
                    yield found.data
                has_log = False
                for part in await log.read() if log is not None else ():
                    yield frame("log", part)
                    has_log = True
                grown = await curves.read() if curves is not None else []
                if grown:
                    yield frame("metrics", {"keys": grown})
                if found is not None or has_log or grown:
                    spoken = time.monotonic()
                    pause_s = FRAME_S if found is not None or has_log else METRICS_S
                    await asyncio.sleep(max(begun + pause_s - spoken, (spoken - begun) / 2))
                    continue  # a shared frame may be older than the last change
                if time.monotonic() - spoken >= PING_S:
                    yield PING
                    spoken = time.monotonic()
                await _wait(event, LOG_S if log is not None or curves is not None else CHECK_S)
        finally:
            self._waiting.discard(event)


def _retrieved(task: asyncio.Task[Any]) -> None:
    """Take the error of a frame that no stream waits for any more: all its clients have left."""
    if not task.cancelled():
        task.exception()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


class _MetricsWatch:
    """Watches the files of metrics of some jobs, or of all jobs of groups."""

    def __init__(self, provider: LocalProvider, asked: Sequence[str]) -> None:
        self._provider = provider
        self._asked = asked
        self._stamps: dict[str, object] | None = None

    async def read(self) -> list[str]:
        """The keys of jobs that logged something since; a stream that begins hears of none."""
        try:
            found = await run_in_threadpool(self._provider.metrics_stamps, self._asked)
        except (OSError, TenutoError):
            return []  # a job is being removed: the next look tells
        before, self._stamps = self._stamps, found
        return [] if before is None else [key for key, stamp in found.items() if before.get(key) != stamp]


class _LogTail:
    """Follows the log of a job, from attempt to attempt."""

    def __init__(self, provider: LocalProvider, asked: LogRequest) -> None:
        self._provider = provider
        self._asked = asked
        self._offset = asked.offset
        self._attempt: int | None = None
        self._has_ended = False

    async def read(self) -> list[shapes.LogPart]:
        """The new text; a new attempt begins a new log."""
        try:
            return await run_in_threadpool(self._read)
        except (OSError, TenutoError):
            return []  # the job is being removed, or its log is replaced: the next look tells

    def _read(self) -> list[shapes.LogPart]:
        key, stream = self._asked.key, self._asked.stream
        part = self._provider.log(key, stream, start=self._offset, limit=MOST_LOG_BYTES)
        is_new = self._attempt is not None and part["attempt"] != self._attempt
        if is_new or part["offset"] < self._offset:
            part = self._provider.log(key, stream, start=0, limit=MOST_LOG_BYTES)
            self._has_ended = False
            is_new = True
        has_ended, self._has_ended = self._has_ended, part["ended"]
        self._attempt, self._offset = part["attempt"], part["next"]
        has_news = part["text"] or is_new or part["ended"] != has_ended
        return [part] if has_news else []
