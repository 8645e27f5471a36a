"""What Ctrl-C, or a TERM, does to a search: once it drains, twice it leaves, thrice it ends at once.
Changes the process's signal handlers, and puts them back.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any

INTERRUPTED = 5


class SearchInterrupts:
    """Counts interrupts while a search runs; does nothing outside the main thread."""

    def __init__(
        self, drain: Callable[[], None], leave: Callable[[], None], say: Callable[[str], None]
    ) -> None:
        self._drain = drain
        self._leave = leave
        self._say = say
        self._before: dict[int, Any] = {}
        self.count = 0

    @property
    def is_left(self) -> bool:
        """True once a person did not want to wait for what runs."""
        return self.count > 1

    def __enter__(self) -> SearchInterrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._interrupted)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _interrupted(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        # In a thread: a handler interrupts whatever the main thread does, also what holds a lock.
        if self.count == 1:
            self._start(
                self._drain, "nothing more is started; waiting for what runs (again: leave, jobs go on)"
            )
        elif self.count == 2:
            self._start(self._leave, "leaving; running jobs go on, and the next run takes them over")
        else:
            os._exit(INTERRUPTED)

    def _start(self, act: Callable[[], None], text: str) -> None:
        def work() -> None:
            self._say(text)
            act()

        threading.Thread(target=work, name="interrupt", daemon=True).start()
