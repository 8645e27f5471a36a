"""The wait for a change in the directory of one job: told by the kernel where it can, by a poll elsewhere.
Reads no file of the job.
"""

from __future__ import annotations

import select
import time
from enum import Enum, unique
from types import TracebackType

from tenuto.workspace.inotify import watch_directories
from tenuto.workspace.layout import JobPaths

POLL_S = 0.2
"""The pause where the kernel does not tell."""
_LEAST_S = 0.05
"""Between two answers: a job may write thousands of times a second."""


@unique
class News(Enum):
    """What a wait brought."""

    NOTHING = "nothing was told"
    FILES = "files were written"
    STATE = "the job may stand elsewhere"


class JobWatch:
    """Waits for changes of one job; a context manager."""

    def __init__(self, paths: JobPaths) -> None:
        self._directories = (paths.directory, paths.private)
        self._telling = {path.rpartition("/")[2] for path in (paths.done, paths.failed, paths.launch)}
        self._watches = watch_directories()
        self._answered = 0.0

    def __enter__(self) -> JobWatch:
        self._watch_more()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.distrust()

    @property
    def is_told(self) -> bool:
        """Whether the kernel tells of changes."""
        return self._watches is not None and all(path in self._watches for path in self._directories)

    def distrust(self) -> None:
        """Polls from now on: a change was found that the kernel did not tell, as on a network disk."""
        if self._watches is not None:
            self._watches.close()
            self._watches = None

    def wait(self, timeout_s: float) -> News:
        """Returns when the kernel tells of a change, or after `timeout_s`; sooner where it cannot tell."""
        if self._watch_more():
            return News.STATE  # what was there before the watch was not told
        if self._watches is None or not self.is_told:
            time.sleep(min(timeout_s, POLL_S))
            return News.NOTHING
        poll = select.poll()
        poll.register(self._watches.fileno(), select.POLLIN)
        if not poll.poll(timeout_s * 1000):
            return News.NOTHING
        time.sleep(max(self._answered + _LEAST_S - time.monotonic(), 0.0))
        self._answered = time.monotonic()
        changes = self._watches.read()
        return News.STATE if any(self._tells(change.name) for change in changes) else News.FILES

    def _tells(self, name: str | None) -> bool:
        return name is None or name in self._telling

    def _watch_more(self) -> bool:
        """Whether a directory is watched that was not before: it may come late, or be replaced."""
        if self._watches is None:
            return False
        missing = [path for path in self._directories if path not in self._watches]
        return bool([path for path in missing if self._watches.add(path)])
