"""A warm parent, seen from the launcher: started, given orders, let go.
Passes the parent's answers on as they are; `launcher` decides what follows.
"""

from __future__ import annotations

import asyncio
import os
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from signal import SIGKILL
from typing import Any, NamedTuple

from tenuto.launchers.local import Readable, resolve
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.runner_protocol import BARE, PLAIN, READY
from tenuto.launchers.warm.helper import Helper, order_of, retire
from tenuto.launchers.warm.parent_spec import ParentSpec
from tenuto.launchers.warm.wire import close_all, receive, send

_UP_S = 0.05
"""How long a runner that is not up yet is waited for before its parent's answer is."""


class ParentGone(Exception):
    """The parent ended before it answered."""


class NotSent(ParentGone):
    """It had ended before it was asked."""


class Answer(NamedTuple):
    """What a parent said: `content`, and the pidfd of a runner if it forked one."""

    content: Mapping[str, Any]
    pidfd: int | None


def retire_all(parents: OrderedDict[ParentSpec, WarmParent]) -> None:
    """Release all parents of a launcher."""
    while parents:
        retire(parents.popitem()[1])


class WarmParent(Helper):
    """One parent process."""

    def __init__(self, python: str, needs: ParentSpec, memory_limit: int) -> None:
        """Raises `OSError` if it cannot be started."""
        super().__init__()
        self.needs = needs
        self.environment = dict(os.environ)
        """What its children start from."""
        self.loaded = False
        """It has said that it can be forked."""
        self._pending: dict[int, asyncio.Future[Answer]] = {}
        self._orders = 0
        self._listening = 0
        """How many wait for an answer that is late."""
        first = {
            "classes": needs.classes,
            "import_path": needs.import_path,
            "environment": dict(needs.environment),
            "memory_limit": memory_limit,
            "python": python,
        }
        try:
            self._begin(python, PLAIN if needs.classes else BARE, "--warm", self.environment, first)
        except BaseException:
            self._socket.close()
            raise

    @property
    def busy(self) -> bool:
        return bool(self._pending)

    async def fork(
        self,
        order: StartOrder,
        changes: Mapping[str, str | None],
        ready: int,
        word: Readable,
        takes_s: float,
        why_fresh: str | None = None,
    ) -> Answer:
        """Have a runner forked, which is given `ready` to say that it is up; `word` is the other end of it.

        `why_fresh`: for the marker, if the task could have been forked and gets a fresh interpreter instead.
        Returns once it is up, or takes its time. Raises `ParentGone`, and `TimeoutError` if there is no
        answer for too long.
        """
        self._orders += 1
        number = self._orders
        told, descriptors = order_of(order, changes, why_fresh, ready)
        content = {"number": number, **told}
        loop = asyncio.get_running_loop()
        give_up = loop.time() + takes_s
        answer: asyncio.Future[Answer] = loop.create_future()
        self._pending[number] = answer
        try:
            try:
                await self._send(content, descriptors, give_up)
            finally:
                os.close(ready)
            await self._until_up(word)
            return answer.result() if answer.done() else await self._listen_for(answer, give_up)
        except BaseException:
            _forsake(answer)
            raise
        finally:
            del self._pending[number]
            if not self.usable:
                self.close()

    def kill_runner(self, pid: int) -> None:
        with suppress(OSError):  # it died: so did, or will, its runner be found by other means
            send(self._socket, {"kill": pid})

    def kill(self) -> None:
        """End a parent that does not answer."""
        self.usable = False
        with suppress(ProcessLookupError):
            os.kill(self.pid, SIGKILL)

    def close(self) -> None:
        """Let the parent go: it ends when it sees that its launcher is gone."""
        self.usable = False
        if not self._pending:
            self._socket.close()

    async def _send(self, content: dict[str, Any], descriptors: list[int], give_up: float) -> None:
        while True:
            try:
                send(self._socket, content, descriptors)
            except BlockingIOError:
                if asyncio.get_running_loop().time() > give_up:
                    raise TimeoutError from None
                await asyncio.sleep(0.001)  # it has hundreds of orders to fill
            except (BrokenPipeError, ConnectionResetError):
                raise NotSent from None
            else:
                return

    # Listening. What a runner says comes after the parent's answer, nearly always: to be woken for the one is
    # enough for both. Only an answer that is late is listened for.

    async def _until_up(self, word: Readable) -> None:
        """Return once a runner said that it is up, or no process is left that could, or after a while."""
        loop = asyncio.get_running_loop()
        up: asyncio.Future[None] = loop.create_future()
        word.add(up)
        a_while = loop.call_later(_UP_S, resolve, up)
        try:
            await up
        finally:
            a_while.cancel()
            word.forget(up)
        while self._take():
            pass

    async def _listen_for(self, answer: asyncio.Future[Answer], give_up: float) -> Answer:
        loop = asyncio.get_running_loop()
        too_long = loop.call_at(give_up, _time_out, answer)
        if not self._listening:
            loop.add_reader(self._socket.fileno(), self._take)
        self._listening += 1
        try:
            return await answer
        finally:
            too_long.cancel()
            self._listening -= 1
            if not self._listening:
                loop.remove_reader(self._socket.fileno())

    def _take(self) -> bool:
        """Take in a message; False if there is none, for now or for ever."""
        try:
            received = receive(self._socket)
        except BlockingIOError:
            return False
        if received is None:
            self.usable = False
            self._settle_all(ParentGone())
            return False
        if "loaded" in received.content:
            self.loaded = True
        elif "unfit" in received.content:
            self.usable = False
            for number in list(self._pending):
                self._settle(number, Answer(received.content, None))
        else:
            number = received.content["number"]
            handle = received.descriptors[0] if received.descriptors else None
            if not self._settle(number, Answer(received.content, handle)):
                close_all(received.descriptors)  # the asker has gone
        return True

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


def _forsake(answer: asyncio.Future[Answer]) -> None:
    """Drop an answer that no caller waits for any more; it may have come."""
    came = answer.done() and not answer.cancelled() and answer.exception() is None
    pidfd = answer.result().pidfd if came else None
    if pidfd is not None:
        os.close(pidfd)


def _time_out(answer: asyncio.Future[Answer]) -> None:
    if not answer.done():
        answer.set_exception(TimeoutError())


async def said_ready(ready: int, word: Readable) -> bool:
    """Whether a runner says that it is up; False if it could not begin, or is gone."""
    await word.wait()
    return os.read(ready, 2) == READY


def changed_variables(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str | None]:
    """What to set, and with None to remove, to get from one environment to another."""
    if before == now:
        return {}
    changes: dict[str, str | None] = {name: None for name in before if name not in now}
    changes.update({name: value for name, value in now.items() if before.get(name) != value})
    return changes
