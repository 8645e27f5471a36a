"""A runner on this machine, seen from a scheduler: told of its exit by a pidfd, whoever started it.
Starts nothing; the launchers do.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

from tenuto.launchers.leftovers import find_leftovers
from tenuto.launchers.runner.memory import clear_group
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import Machine, ProcessHandle
from tenuto.workspace.records import LaunchRecord, PidRecord

_SWEEP_GIVES_UP_S = 10.0


class Readable:
    """A descriptor that becomes readable once; any number of coroutines may wait for it."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: list[asyncio.Future[None]] = []

    async def wait(self) -> None:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._waiting.append(future)
        if len(self._waiting) == 1:
            loop.add_reader(self._fd, self._wake)
        try:
            await future
        finally:
            self._waiting.remove(future)
            if not self._waiting:
                loop.remove_reader(self._fd)

    def _wake(self) -> None:
        for future in self._waiting:
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
        child: bool = False,
    ) -> None:
        """`ready`: the pipe on which the runner says that it wrote its pid record; None if that is known."""
        self.exit_code: int | None = None
        self._launcher = launcher
        self._handle = handle
        self._attempt = attempt
        self._ready = ready
        self._confirmed = True if ready is None else None
        self._listening = asyncio.Lock()
        self._child = child
        self._exit = Readable(handle.fileno())
        self._closed = False

    async def confirmed(self) -> bool:
        async with self._listening:
            if self._confirmed is None:
                await self._word_or_exit()
        return bool(self._confirmed)

    async def wait(self) -> None:
        # A pidfd stays readable for ever once its process ended: an exit before this call is not missed.
        if not self._handle.ended():
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
        if self._handle.ended():
            self._reap()
        self._handle.close()
        self._close_ready()

    async def _word_or_exit(self) -> None:
        """Wait for the runner's word. If somebody forked this process, a dead runner gives no end-of-file."""
        assert self._ready is not None
        waits = [asyncio.ensure_future(w) for w in (Readable(self._ready).wait(), self._exit.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        try:
            self._confirmed = bool(os.read(self._ready, 1))
        except BlockingIOError:
            self._confirmed = False
        self._close_ready()

    def _close_ready(self) -> None:
        if self._ready is not None:
            os.close(self._ready)
            self._ready = None

    def _reap(self) -> None:
        if not self._child:
            return
        self._child = False
        with suppress(ChildProcessError):  # somebody else's `wait` got it; the marker tells the rest
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


async def sweep_local(machine: Machine, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
    """End what a dead runner left; the pids that would not go."""
    loop = asyncio.get_running_loop()
    give_up = loop.time() + _SWEEP_GIVES_UP_S
    while handles := find_leftovers(machine, paths, launch.nonce if launch else None):
        try:
            for handle in handles:
                handle.send_signal(signal.SIGKILL)
            exits = [asyncio.ensure_future(Readable(handle.fileno()).wait()) for handle in handles]
            _, alive = await asyncio.wait(exits, timeout=max(give_up - loop.time(), 0.0))
            for still in alive:
                still.cancel()
            await asyncio.gather(*alive, return_exceptions=True)
            if loop.time() >= give_up:
                return tuple(handle.identity.pid for handle in handles if not handle.ended())
        finally:
            for handle in handles:
                handle.close()
    if launch is not None:
        clear_group(launch.nonce)
    return ()
