"""Ctrl-C and hang-ups while an experiment is open: once to stop starting, twice to leave, thrice to quit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tenuto.errors import GracefulExperimentExit

EXIT_INTERRUPTED = 5
EXIT_QUIT = 130


class Interrupts:
    """Counts the signals of a person who has had enough, from the outermost open experiment on."""

    def __init__(self, stop: Callable[[], str], say: Callable[[str], None]) -> None:
        """`stop` has nothing more started, and says what still runs."""
        self._stop = stop
        self._say = say
        self.count = 0
        self.is_interrupted = False
        """A person wants the script to end, or has gone."""
        self._previous: dict[int, Any] = {}

    def install(self) -> None:
        """Takes over the signals; does nothing outside of the main thread.

        One that is ignored stays so: under `nohup`, a closed window is no reason to leave.
        """
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:
                    self._previous[number] = signal.signal(number, self._handle)

    def remove(self) -> None:
        """Gives the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, _: FrameType | None) -> None:
        if number == signal.SIGHUP:
            # A shell and the kernel both send one; the second must not end us while we leave.
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            self._previous.pop(signal.SIGHUP, None)
            self.is_interrupted = True
            raise GracefulExperimentExit("the terminal is gone")
        self.count += 1
        self.is_interrupted = True
        if self.count == 1:
            running = self._stop()
            self._say(
                f"Interrupted: nothing more is started, {running}. Ctrl-C again to leave them running, "
                f"a third time to quit at once."
            )
        elif self.count == 2:
            raise GracefulExperimentExit("interrupted twice")
        else:
            os._exit(EXIT_QUIT)
