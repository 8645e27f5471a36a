"""Line 14: a frame is made once for all streams that stand at one place, and none misses a change by that."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.web.stream import Frame, Hub

WAIT_S = 30.0


class CountedProvider:
    """Says what changed when it is let, and counts how often it was asked."""

    def __init__(self) -> None:
        self.seq = 1
        self.asked = 0
        self.questions = threading.Semaphore(0)
        self.may_answer = threading.Event()
        self.may_answer.set()

    def changes(self, since: str | None, wait_s: float) -> dict[str, Any]:
        seq = self.seq  # what is read now is told later
        self.asked += 1
        self.questions.release()
        assert self.may_answer.wait(WAIT_S)
        return {"epoch": "e", "seq": seq, "now": "", "jobs": [], "gone": [], "groups": []}

    def add_waker(self, waker: Any) -> None:
        self.waker = waker


async def was_asked(provider: CountedProvider) -> None:
    """Wait until the provider was asked once more."""
    assert await asyncio.to_thread(provider.questions.acquire, timeout=WAIT_S)


def test_line_14_streams_at_one_place_share_one_frame() -> None:
    async def scenario() -> None:
        provider = CountedProvider()
        hub = Hub(cast(LocalProvider, provider))
        hub.open()
        frames = await asyncio.gather(*(hub.next_frame("e-0") for _ in range(40)))
        assert provider.asked == 1
        assert {frame.id for frame in frames if frame is not None} == {"e-1"}
        assert await hub.next_frame("e-1") is None
        assert provider.asked == 2

    asyncio.run(scenario())


def test_line_14_a_stream_does_not_join_a_frame_that_was_read_before_a_change() -> None:
    async def scenario() -> list[Frame | None]:
        provider = CountedProvider()
        hub = Hub(cast(LocalProvider, provider))
        hub.open()
        provider.may_answer.clear()
        early = asyncio.create_task(hub.next_frame("e-1"))
        await was_asked(provider)  # it has read that nothing is new
        provider.seq = 2
        hub._notify()
        late = asyncio.create_task(hub.next_frame("e-1"))
        await was_asked(provider)
        provider.may_answer.set()
        return [await early, await late]

    nothing, news = asyncio.run(scenario())
    assert nothing is None
    assert news is not None
    assert news.id == "e-2"


def test_a_stream_that_left_takes_no_frame_from_the_others() -> None:
    async def scenario() -> Frame | None:
        provider = CountedProvider()
        hub = Hub(cast(LocalProvider, provider))
        hub.open()
        provider.may_answer.clear()
        leaving = asyncio.create_task(hub.next_frame("e-0"))
        staying = asyncio.create_task(hub.next_frame("e-0"))
        await was_asked(provider)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        provider.may_answer.set()
        return await staying

    frame = asyncio.run(scenario())
    assert frame is not None
    assert frame.id == "e-1"
