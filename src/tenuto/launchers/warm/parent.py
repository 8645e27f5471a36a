"""A warm parent, seen from the launcher: started, given orders, let go.
What it answers is told as it is; what to do about it is `launcher`'s business.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from contextlib import closing, suppress
from signal import SIGKILL
from socket import AF_UNIX, SOCK_SEQPACKET, socket, socketpair
from typing import Any

from tenuto.launchers.local import Readable
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.fresh import BARE, ENTRY, PLAIN
from tenuto.launchers.runner.signals import SIGNALS
from tenuto.launchers.warm.needs import Needs
from tenuto.launchers.warm.wire import close_all, receive, send


class ParentGone(Exception):
    """The parent ended before it answered."""


class NotSent(ParentGone):
    """It had ended before it was asked."""


class Answer:
    """What a parent said: `content`, and the pidfd of a runner if it forked one."""

    def __init__(self, content: Mapping[str, Any], pidfd: int | None) -> None:
        self.content = content
        self.pidfd = pidfd


class WarmParent:
    """One parent process."""

    def __init__(self, python: str, needs: Needs, memory_limit: int) -> None:
        """Raises `OSError` if it cannot be started."""
        self.needs = needs
        self.environment = dict(os.environ)
        """What its children start from."""
        self.loaded = False
        """It has said that it can be forked."""
        self.usable = True
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._orders = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket, theirs = socketpair(AF_UNIX, SOCK_SEQPACKET)
        try:
            with theirs:
                self.pid = self._spawn(python, theirs)
            self._socket.setblocking(False)
            with suppress(BrokenPipeError, ConnectionResetError):  # killed already: the first order finds out
                send(
                    self._socket,
                    {
                        "classes": needs.classes,
                        "import_path": needs.import_path,
                        "environment": dict(needs.environment),
                        "memory_limit": memory_limit,
                        "python": python,
                    },
                )
        except BaseException:
            self._socket.close()
            raise

    def _spawn(self, python: str, theirs: socket) -> int:
        fd = theirs.fileno()
        flags = PLAIN if self.needs.classes else BARE
        return os.posix_spawn(
            python,
            [python, *flags, ENTRY, "--warm", str(fd), str(os.getpid())],
            self.environment,
            file_actions=[
                *((os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)),
                (os.POSIX_SPAWN_DUP2, fd, fd),
            ],
            setsid=True,  # a Ctrl-C in the terminal must not reach it
            setsigmask=SIGNALS,
            setsigdef=SIGNALS,
        )

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    async def fork(
        self, order: StartOrder, changes: Mapping[str, str | None], ready: int, takes_s: float
    ) -> Answer:
        """Have a runner forked, which is given `ready` to say that it is up.

        Raises `ParentGone`, and `TimeoutError` if there is no answer for too long.
        """
        self._orders += 1
        number = self._orders
        content = {
            "number": number,
            "directory": order.paths.directory,
            "script_name": order.paths.script_name,
            "nonce": order.launch.nonce,
            "environment": changes,
        }
        descriptors = [
            order.runner_lock.fileno(),
            order.descendants_lock.fileno(),
            ready,
            *(token.fileno() for token in order.tokens),
        ]
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        self._pending[number] = answer
        self._listen(loop)
        too_long = loop.call_later(takes_s, self._give_up, number)
        try:
            try:
                await self._send(content, descriptors, answer)
            finally:
                os.close(ready)
            return await answer
        finally:
            too_long.cancel()
            del self._pending[number]
            if not self.usable:
                self._hang_up()

    def kill_runner(self, pid: int) -> None:
        with suppress(OSError):  # it died: so did, or will, its runner be found by other means
            send(self._socket, {"kill": pid})

    def kill(self) -> None:
        """End a parent that does not answer."""
        self.usable = False
        with suppress(ProcessLookupError):
            os.kill(self.pid, SIGKILL)

    def close(self) -> None:
        """Let the parent go: it ends when it sees that nobody is there. From any thread."""
        self.usable = False
        self._hang_up()

    def reap(self) -> bool:
        """Whether the process is gone."""
        try:
            return os.waitpid(self.pid, os.WNOHANG)[0] != 0
        except ChildProcessError:  # somebody else's `wait` got it
            return True

    async def _send(
        self, content: dict[str, Any], descriptors: list[int], answer: asyncio.Future[Answer]
    ) -> None:
        while True:
            try:
                send(self._socket, content, descriptors)
            except BlockingIOError:
                if answer.done():  # it took too long
                    return
                await asyncio.sleep(0.001)  # it has hundreds of orders to fill
            except (BrokenPipeError, ConnectionResetError):
                raise NotSent from None
            else:
                return

    # Listening, from the first order on: a launcher may be used from one loop after another.

    def _listen(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not loop:
            self._stop_listening()
            loop.add_reader(self._socket.fileno(), self._take)
            self._loop = loop

    def _stop_listening(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._socket.fileno())
        self._loop = None

    def _hang_up(self) -> None:
        """Close the socket once nobody waits, in the thread of the loop that listens to it."""
        loop = self._loop
        if loop is not None and loop.is_running() and loop is not _running_loop():
            with suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(self._hang_up)
                return
        if not self._pending:
            self._stop_listening()
            self._socket.close()

    def _take(self) -> None:
        try:
            received = receive(self._socket)
        except BlockingIOError:
            return
        if received is None:
            self.usable = False
            self._stop_listening()
            self._settle_all(ParentGone())
        elif "loaded" in received.content:
            self.loaded = True
        elif "unfit" in received.content:
            self.usable = False
            for number in list(self._pending):
                self._settle(number, Answer(received.content, None))
        else:
            number = received.content["number"]
            handle = received.descriptors[0] if received.descriptors else None
            if not self._settle(number, Answer(received.content, handle)):
                close_all(received.descriptors)  # who asked has gone

    def _settle(self, number: int, answer: Answer) -> bool:
        future = self._pending.get(number)
        if future is None or future.done():
            return False
        future.set_result(answer)
        return True

    def _settle_all(self, error: Exception) -> None:
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)

    def _give_up(self, number: int) -> None:
        future = self._pending.get(number)
        if future is not None and not future.done():
            future.set_exception(TimeoutError())


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def said_ready(ready: int) -> bool:
    """Whether a runner says that it is up; False if there is none any more that could."""
    with closing(Readable(ready)) as word:
        await word.wait()
    return bool(os.read(ready, 1))


def changed_variables(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """What to set, and with None to remove, to get from one environment to another."""
    if before == now:
        return {}
    changes: dict[str, str | None] = {name: None for name in before if name not in now}
    changes.update({name: value for name, value in now.items() if before.get(name) != value})
    return changes
