"""The connection of the terminal to its provider: a thread that looks for changes, and whether it hears any.
It draws nothing: the application is told in its own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from tenuto.errors import NotAllowed, TenutoError
from tenuto.monitor.state_provider import StateProvider
from tenuto.monitor.tui.background import call

WAIT_S = 1.0
"""How long one look for changes lasts, and the pause after a failed one."""


class Connection:
    """Follows a provider until it is closed."""

    def __init__(
        self, provider: StateProvider, heard: Callable[[], object], lost: Callable[[], object]
    ) -> None:
        """`heard`: called after a change, and once the provider is heard again; `lost`: when it is not."""
        self._provider = provider
        self._heard = heard
        self._lost = lost
        self._since: str | None = None
        self._has_ended = threading.Event()
        self.is_live = False
        self.is_logged_out = False

    @property
    def words(self) -> str:
        """What a person reads of it."""
        if self.is_live:
            return "live ●"
        return "logged out: c takes a new code" if self.is_logged_out else "reconnecting"

    def start(self) -> None:
        """Begin to follow; in the loop of the application."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._follow, args=(loop,), name="tenuto-top", daemon=True).start()

    def close(self) -> None:
        """Have the thread end; a question that is open ends with the process."""
        self._has_ended.set()

    def lose(self, error: TenutoError) -> None:
        """Take note of an error of the provider; in the loop."""
        self.is_live, self.is_logged_out = False, isinstance(error, NotAllowed)
        self._lost()

    def _follow(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._has_ended.is_set():
            try:
                frame = self._provider.changes(self._since, WAIT_S)
            except TenutoError as error:
                call(loop, self.lose, error)
                self._has_ended.wait(WAIT_S)
                continue
            since = f"{frame['epoch']}-{frame['seq']}"
            is_news, self._since = since != self._since, since
            call(loop, self._hear, is_news)

    def _hear(self, is_news: bool) -> None:
        was_live, self.is_live, self.is_logged_out = self.is_live, True, False
        if is_news or not was_live:
            self._heard()
