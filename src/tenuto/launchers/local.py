"""A runner on this machine, seen from a scheduler: told of its exit by a pidfd, whichever process started it.
Starts nothing; the launchers do.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Sequence
from contextlib import closing, suppress
from typing import Any

from tenuto.launchers.leftovers import find_leftovers
from tenuto.launchers.payload.limits import clear_group, group_members
from tenuto.launchers.runner.runner_protocol import READY, REFUSAL
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import DESCENDANTS_BYTE, Machine, ProcessHandle
from tenuto.workspace.records import LaunchRecord, PidRecord

_SWEEP_GIVES_UP_S = 10.0
_LOOK_AGAIN_S = 0.01


class Readable:
    """A descriptor that becomes readable once; any number of coroutines may wait for it.

    It is listened to from the first wait on, also between two of them: to begin and to end that takes longer
    than the rest of a wait.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop: asyncio.AbstractEventLoop | None = None
        """Where it is listened to."""
        self._waiting: list[asyncio.Future[None]] = []
        self._is_readable = False

    async def wait(self) -> None:
        await first_readable(self)

    def close(self) -> None:
        """Listens no more; to be called before the descriptor is closed."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        self._loop = None

    def add(self, future: asyncio.Future[None]) -> None:
        """Have a future of the running loop resolved once the descriptor is readable."""
        if self._is_readable:
            resolve(future)
            return
        self._waiting.append(future)
        loop = future.get_loop()
        if self._loop is not loop:
            self.close()
            loop.add_reader(self._fd, self._wake)
            self._loop = loop

    def forget(self, future: asyncio.Future[None]) -> None:
        if future in self._waiting:
            self._waiting.remove(future)

    def _wake(self) -> None:
        self._is_readable = True
        self.close()
        for future in self._waiting:
            resolve(future)


async def first_readable(*readables: Readable) -> None:
    """Return once one of them is readable."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    for readable in readables:
        readable.add(future)
    try:
        await future
    finally:
        for readable in readables:
            readable.forget(future)


def resolve(future: asyncio.Future[None]) -> None:
    """Wake the waiter, if nothing else has."""
    if not future.done():
        future.set_result(None)


class LocalProcess:
    """A `Process` on this machine."""

    def __init__(
        self,
        launcher: str,
        handle: ProcessHandle,
        attempt: int,
        *,
        ready: int | None = None,
        word: Readable | None = None,
        child: bool = False,
    ) -> None:
        """`ready`: the pipe on which the runner says that it wrote its pid record; None if that is known.

        `word`: what listens to it already.
        """
        self.exit_code: int | None = None
        self._launcher = launcher
        self._handle = handle
        self._attempt = attempt
        self._ready = ready
        self._word = word if word is not None or ready is None else Readable(ready)
        self._confirmed = True if ready is None else None
        self._refusal: OSError | None = None
        self._child = child
        self._exit = Readable(handle.fileno())
        self._closed = False

    async def confirmed(self) -> bool:
        if self._word is not None:
            # If the user's script forked this process, a dead runner gives no end-of-file: its exit tells.
            await first_readable(self._word, self._exit)
            self._hear()
        if self._refusal is not None:
            raise self._refusal
        return bool(self._confirmed)

    async def wait(self) -> None:
        # A pidfd stays readable for ever once its process ended: an exit before this call is not missed.
        await self._exit.wait()
        self._reap()

    def signal_stop(self) -> None:
        self._handle.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._handle.send_signal(signal.SIGKILL)

    def describe(self) -> dict[str, Any]:
        identity = self._handle.identity
        return {
            "launcher": self._launcher,
            "host": identity.host,
            "pid": identity.pid,
            "attempt": self._attempt,
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._child and self._handle.ended():
            self._reap()
        self._exit.close()
        self._handle.close()
        self._close_ready()

    def _hear(self) -> None:
        if self._ready is not None:  # another waiter has not heard it yet
            try:
                said = os.read(self._ready, 2)
            except BlockingIOError:
                said = b""
            self._confirmed = said == READY
            if said.startswith(REFUSAL):
                self._refusal = OSError(said[-1], f"the runner could not begin: {os.strerror(said[-1])}")
            self._close_ready()

    def _close_ready(self) -> None:
        if self._ready is not None and self._word is not None:
            self._word.close()
            os.close(self._ready)
            self._ready = self._word = None

    def _reap(self) -> None:
        if not self._child:
            return
        self._child = False
        with suppress(ChildProcessError):  # a `wait` of the user's script got it; the marker tells the rest
            ended = os.waitid(os.P_PIDFD, self._handle.fileno(), os.WEXITED | os.WNOHANG)
            if ended is not None:
                self.exit_code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def find_local(
    machine: Machine, launcher: str, launch: LaunchRecord, pid: PidRecord | None
) -> LocalProcess | None:
    """The runner of an attempt that another scheduler started, if it lives on this machine."""
    if pid is None or pid.attempt != launch.attempt:
        return None
    handle = machine.processes.open(pid.identity)
    return None if handle is None else LocalProcess(launcher, handle, launch.attempt)


async def _all_ended(handles: Sequence[ProcessHandle]) -> None:
    for handle in handles:
        with closing(Readable(handle.fileno())) as exit_:
            await exit_.wait()


def _is_under_way(machine: Machine, paths: JobPaths) -> bool:
    """Whether the lock of a job's descendants is held by no process: it is in a message to one that died.
    Linux takes such a message apart a moment after the end of its receiver.
    """
    is_locked = machine.locks.is_locked(paths.lock, DESCENDANTS_BYTE)
    return is_locked and not machine.locks.holders(paths.lock, DESCENDANTS_BYTE)


async def sweep_local(machine: Machine, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
    """End what a dead runner left; the pids that would not go."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _SWEEP_GIVES_UP_S
    while handles := find_leftovers(machine, paths, launch, group_members(launch.nonce) if launch else ()):
        try:
            for handle in handles:
                handle.send_signal(signal.SIGKILL)
            try:
                async with asyncio.timeout_at(give_up):
                    await _all_ended(handles)
            except TimeoutError:
                return tuple(handle.identity.pid for handle in handles if not handle.ended())
        finally:
            for handle in handles:
                handle.close()
    while _is_under_way(machine, paths) and loop.time() < give_up:  # noqa: ASYNC110  nothing tells of it
        await asyncio.sleep(_LOOK_AGAIN_S)
    if launch is not None:
        clear_group(launch.nonce)
    return ()
