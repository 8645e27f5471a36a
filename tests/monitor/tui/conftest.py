"""The terminal under Textual's pilot, in this process: keys are pressed, the window is read as text."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from textual.pilot import Pilot

from tenuto.jobs.source import Source
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.app import Top
from tenuto.testing.monitor_demo import demo_sources

WAIT_S = 30.0
SWEEP = "experiments:sweep/20260101_1402"
SEARCH = "search:packing"
RUNNING = "experiments:demo.Train/00000006aaaaaaaa"
FAILED = "experiments:demo.Train/00000005aaaaaaaa"


class Terminal:
    """A window of the application."""

    def __init__(self, app: Top, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.copied: list[str] = []
        app.copy_to_clipboard = self.copied.append  # type: ignore[method-assign]

    @property
    def text(self) -> str:
        return "\n".join(self.app.text())

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def until(self, found: str | Callable[[], Any]) -> str:
        """Wait for a text in the window, or for a condition."""
        deadline = time.monotonic() + WAIT_S
        while not (found in self.text if isinstance(found, str) else found()):
            assert time.monotonic() < deadline, f"never seen: {found}\n{self.text}"
            await self.pilot.pause(0.02)
        return self.text

    async def answer(self) -> None:
        """Ask again, and wait until an answer was drawn."""
        before = self.app.answered
        self.app.renew()
        await self.until(lambda: self.app.answered > before)

    async def see(self, key: str) -> None:
        """Press a key, and wait until the view that it leads to was answered."""
        before = self.app.answered
        await self.press(key)
        await self.until(lambda: self.app.answered > before)

    async def type(self, text: str) -> None:
        for character in text:
            await self.pilot.press("space" if character == " " else character)


Scenario = Callable[[Terminal], Awaitable[None]]


def show(
    provider: StateProvider, scenario: Scenario, size: tuple[int, int] = (80, 24), **options: Any
) -> None:
    """Run the application over a provider, and a scenario in it."""

    async def run() -> None:
        app = Top(provider, by="tester", **options)
        async with app.run_test(size=size) as pilot:
            terminal = Terminal(app, pilot)
            await terminal.until(lambda: app.answered)  # a key before the first rows finds none
            await scenario(terminal)

    asyncio.run(run())


@contextmanager
def provided(*sources: Source, **options: Any) -> Iterator[LocalProvider]:
    """A provider of sources, by default of the made-up jobs of all doors."""
    provider = LocalProvider(sources or demo_sources(24), workspace="/ws", version="1", **options)
    try:
        assert provider.wait_until_loaded(WAIT_S)
        yield provider
    finally:
        provider.close()
