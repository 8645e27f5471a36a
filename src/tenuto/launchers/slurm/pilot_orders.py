"""The orders of a pilot: a file of lines that the driver appends to and the pilot reads.
Both sides of the format are here; nothing is started.
"""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from typing import NamedTuple

from tenuto.workspace.inotify import watch_directory
from tenuto.workspace.ports import Files

END = ["end"]
"""The last line."""
KILL = "kill"
"""First word of a line that names, by its nonce, a job whose runner is to be killed."""
VANISHED = "vanished"
"""The file beside the orders into which a pilot writes the nonces of attempts that left no marker."""
_CHUNK = 1 << 20
_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 0.2


class PilotOrder(NamedTuple):
    """One line of the orders."""

    directory: str
    script_name: str
    nonce: str
    cores: int
    duration_s: float | None


def needed_s(time_s: float | None, pilot_time_s: float) -> float:
    """What a job needs of a pilot's time: one of unknown length gets a quarter of it all."""
    return pilot_time_s / 4 if time_s is None else time_s


def append(path: str, *lines: PilotOrder | list[str]) -> None:
    """Appends lines to the orders of a pilot, in one write."""
    text = "".join(f"{json.dumps(list(line))}\n" for line in lines)
    with suppress(OSError):  # then the pilot never claims them, and they are sent again after its end
        fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)


class Orders:
    """The orders as a pilot reads them; in the thread of a loop."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path
        self._offset = 0
        self._unfinished = b""
        self._look_s = _FIRST_LOOK_S
        self._watch = watch_directory(path.rpartition("/")[0])
        self._came = asyncio.Event()
        self.is_over = False
        """True once the last line was read."""
        self.to_kill: set[str] = set()
        """Nonces of the jobs whose runners are to be killed."""
        if self._watch is not None:
            asyncio.get_running_loop().add_reader(self._watch.fileno(), self._wake)

    def take(self) -> list[PilotOrder]:
        """The orders that came since the last call."""
        self._came.clear()
        data = b""
        with suppress(OSError):
            data = self._files.read_range(self._path, self._offset, _CHUNK)
        self._offset += len(data)
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        found = [json.loads(line) for line in lines]
        self.is_over = self.is_over or END in found
        self.to_kill |= {words[1] for words in found if words[0] == KILL}
        if data:
            self._look_s = _FIRST_LOOK_S
        return [PilotOrder(*words) for words in found if words != END and words[0] != KILL]

    async def come(self) -> None:
        """Returns when there may be more: when the kernel says so, else soon, then later."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._look_s):
                await self._came.wait()
        self._look_s = min(2 * self._look_s, _LONGEST_LOOK_S)

    def close(self) -> None:
        """Listens no more."""
        if self._watch is not None:
            asyncio.get_running_loop().remove_reader(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.drain()
            self._came.set()
