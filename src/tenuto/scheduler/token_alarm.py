"""When to look at the queue of tokens again: told by the kernel, by a neighbour, or after a while.
Knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Callable

from tenuto.scheduler.loop import Loop
from tenuto.workspace.inotify import DirectoryWatch

POLL_S = 2.0
"""How long a change can stay unseen where the kernel does not tell."""
BUSY_S = 0.005
"""How soon to try again when another scheduler is at the queue; longer each time."""
LONGEST_BUSY_S = 0.2


class Alarm:
    """Calls back in the loop's thread, where it is to be used, too."""

    def __init__(
        self,
        loop: Loop,
        watch: Callable[[str], DirectoryWatch | None],
        directory: str,
        *,
        told: Callable[[], None],
        unsure: Callable[[], None],
    ) -> None:
        """`told` is called when something changed, `unsure` when nothing was heard for a while."""
        self._loop = loop
        self._open_watch = watch
        self._directory = directory
        self._told = told
        self._unsure = unsure
        self._watch: DirectoryWatch | None = None
        self._is_polling = False
        self._is_posted = False
        self._is_retrying = False
        self._is_short = False
        """The last look failed for want of something; the trace it left is no reason for another."""
        self._busy_s = BUSY_S

    def set(self) -> None:
        """A job waits."""
        if not self._is_polling:
            self._is_polling = True
            self._loop.later(POLL_S, self._poll)
        if self._watch is None:
            self._watch = self._open_watch(self._directory)
            if self._watch is not None:
                self._loop.loop.add_reader(self._watch.fileno(), self._changed)
                self.soon()  # for what changed before the watch was there

    def rest(self) -> None:
        """No job waits any more."""
        if self._watch is not None:
            self._loop.loop.remove_reader(self._watch.fileno())
            self.close()

    def soon(self) -> None:
        """Calls `told` once this step of the loop is over."""
        if not self._is_posted:
            self._is_posted = True
            self._loop.post(self._posted)

    def busy(self) -> None:
        """Calls `told` in a moment: another scheduler was faster, or stopped there. One chain of tries."""
        if not self._is_retrying:
            self._is_retrying = True
            self._loop.later(self._busy_s, self._retry)
            self._busy_s = min(2 * self._busy_s, LONGEST_BUSY_S)

    def got_through(self) -> None:
        """No other scheduler was there."""
        self._busy_s = BUSY_S

    def short(self) -> None:
        """A look failed for want of something: only `unsure` is called until one succeeds."""
        self._is_short = True

    def recovered(self) -> None:
        self._is_short = False

    def close(self) -> None:
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    def _posted(self) -> None:
        self._is_posted = False
        self._told()

    def _retry(self) -> None:
        self._is_retrying = False
        self._told()

    def _poll(self) -> None:
        self._is_polling = False
        self._unsure()

    def _changed(self) -> None:
        if self._watch is not None:
            self._watch.drain()
            if not self._is_short:  # else it would wake itself for as long as the disk is full
                self._told()
