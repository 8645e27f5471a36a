"""The warm launcher: forks runners from parents that have imported their tasks' modules already.
A job that must not be forked gets a fresh interpreter, a spare if ready, and that is said once: never more
spares than the launcher has slots, nor than jobs wait, within its memory limit.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from functools import cached_property

from tenuto.launchers.forking_launcher import ForkingLauncher
from tenuto.launchers.instructions import Instructions
from tenuto.launchers.local import LocalProcess
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.runner_protocol import BARE
from tenuto.launchers.warm.helper import Helper, order_of, retire, watched
from tenuto.launchers.warm.parent import changed_variables
from tenuto.launchers.warm.parent_spec import ParentSpec, ProcessVariables, spec_of
from tenuto.launchers.warm.wire import MessageTooLong, receive, send
from tenuto.workspace.ports import Machine

# One spare, seen from the launcher: a runner that waits for a job beside an interpreter that imports ahead.
# `Spares` decides how many there are, and `WarmLauncher` for which jobs.


_GONE = (BrokenPipeError, ConnectionResetError)


class Spare(Helper):
    """A runner without a job."""

    def __init__(
        self, machine: Machine, python: str, needs: ParentSpec, environment: ProcessVariables
    ) -> None:
        """Raises `OSError` if it cannot be started."""
        super().__init__()
        self.needs = needs
        self.environment = environment
        self.changed = needs.changed()
        """When the files of the modules had last been changed, before they are imported."""
        self.size: int | None = None
        """Bytes that it fills, once it has imported everything."""
        self.is_up = False
        """Its interpreter runs: before that, to wait for it is no better than to start another."""
        self.unfit: str | None = None
        """Why its modules cannot be imported ahead of time, if they cannot."""
        first = {"classes": needs.classes, "import_path": needs.import_path, "python": python}
        told = {**first, "environment": dict(needs.environment)}
        try:
            self._begin(python, BARE, "--spare", environment.variables, told)
            self._handle = watched(machine, self.pid)
        except BaseException:
            self._socket.close()
            raise

    def hear(self) -> None:
        """Take in its output so far."""
        while self.usable:
            try:
                received = receive(self._socket)
            except BlockingIOError:
                return
            if received is None or "gone" in received.content:
                self.usable = False
            elif "unfit" in received.content:
                self.unfit = received.content["unfit"]
                self.usable = False
            elif "loaded" in received.content:
                self.size = received.content["loaded"]
            self.is_up = True

    def is_stale(self) -> bool:
        """Whether a file of the modules has changed since; of files that they import it knows itself."""
        return self.changed != self.needs.changed()

    def start(
        self, launcher: str, order: StartOrder, environment: ProcessVariables, why_fresh: str
    ) -> LocalProcess | None:
        """Make it the runner of a job; None if it cannot be, and nothing was started. It is used up then."""
        ready, ready_there = os.pipe()
        os.set_blocking(ready, False)
        changes = changed_variables(self.environment.variables, environment.variables)
        try:
            send(self._socket, *order_of(order, changes, why_fresh, ready_there))
        except (*_GONE, BlockingIOError, MessageTooLong):
            os.close(ready)
            return None
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(ready_there)
        self.usable = False
        self._socket.close()
        return LocalProcess(launcher, self._handle, order.launch.attempt, ready=ready, child=True)

    def close(self) -> None:
        """Let it go: it ends, with its interpreter."""
        with suppress(OSError):  # a process that was forked from this one may keep the socket open
            send(self._socket, {"end": True})
        super().close()
        self._handle.close()


_SHARE_OF_MEMORY = 0.5
"""A spare may fill that much of what the machine has left; the jobs that run need the rest."""


class Spares:
    """Interpreters that import the modules of the next jobs while the jobs before them run."""

    def __init__(self, machine: Machine, python: str, *, slots: int, memory_limit: int) -> None:
        """`memory_limit`: of all spares together."""
        self._machine = machine
        self._python = python
        self._slots = slots
        self._memory_limit = memory_limit
        self._spares: list[Spare] = []
        """Oldest first."""
        self._sizes: dict[ParentSpec, int] = {}
        """Bytes that a spare with these needs fills, once one has said so."""
        self._unfit: set[ParentSpec] = set()
        """Needs of modules that cannot be imported ahead of time."""
        self._pid = os.getpid()

    def __len__(self) -> int:
        return len(self._spares)

    def of(self, needs: ParentSpec) -> list[Spare]:
        """Those with these needs, oldest first."""
        return [spare for spare in self._spares if spare.needs == needs]

    def is_unfit(self, needs: ParentSpec) -> bool:
        """True if a spare found that its modules cannot be imported ahead of time."""
        return needs in self._unfit

    def start(
        self,
        launcher: str,
        needs: ParentSpec,
        order: StartOrder,
        environment: ProcessVariables,
        why_fresh: str,
    ) -> LocalProcess | None:
        """A runner that was a spare until now; None if there is none for this job."""
        self._look()
        while (spare := self._next(needs)) is not None:
            self._spares.remove(spare)
            if not spare.is_stale():
                process = spare.start(launcher, order, environment, why_fresh)
                if process is not None:
                    return process
            retire(spare)
        return None

    def prepare(self, needs: ParentSpec, environment: ProcessVariables, behind: int) -> None:
        """Begin a spare for the next job with these needs, if one is likely to come, and there is room.

        `behind`: how many jobs wait.
        """
        self._look()
        of_these = self.of(needs)
        for spare in of_these[behind:]:
            self._drop(spare)
        if len(of_these) >= min(behind, self._slots) or self.is_unfit(needs):
            return
        others = [spare for spare in self._spares if spare.needs != needs]
        while len(self._spares) >= self._slots and others:
            self._drop(others.pop(0))
        if self._has_memory(needs):
            with suppress(OSError):  # short of processes or descriptors: the jobs need them more
                self._spares.append(Spare(self._machine, self._python, needs, environment))

    def close(self) -> None:
        """End all of them."""
        while self._spares:
            self._drop(self._spares[-1])

    def _look(self) -> None:
        """Hear what the spares said, and drop the useless ones."""
        if self._pid != os.getpid():  # this process was forked: the spares are another's
            self._pid = os.getpid()
            self._spares.clear()
        for spare in list(self._spares):
            spare.hear()
            if spare.unfit is not None:
                self._unfit.add(spare.needs)
            if spare.size is not None:
                self._sizes[spare.needs] = spare.size
            if not spare.usable or self._filled() > self._memory_limit:
                self._drop(spare)

    def _next(self, needs: ParentSpec) -> Spare | None:
        """The spare that is furthest: ready spares before others, the oldest first."""
        fitting = [spare for spare in self.of(needs) if spare.is_up]
        return min(fitting, key=lambda spare: spare.size is None, default=None)

    def _filled(self) -> int:
        return sum(self._sizes.get(spare.needs, 0) for spare in self._spares)

    def _has_memory(self, needs: ParentSpec) -> bool:
        size = self._sizes.get(needs, 0)
        return self._filled() + size <= self._memory_limit and size <= _available() * _SHARE_OF_MEMORY

    def _drop(self, spare: Spare) -> None:
        self._spares.remove(spare)
        retire(spare)


def _available() -> float:
    """Bytes of memory that this machine could still give."""
    with suppress(OSError, ValueError, StopIteration), open("/proc/meminfo", "rb") as stream:
        line = next(line for line in stream if line.startswith(b"MemAvailable:"))
        return int(line.split()[1]) * 1024.0
    return float("inf")


class WarmLauncher(ForkingLauncher):
    """Starts each runner, and its payload, by forks where that is safe."""

    name = "warm"
    _behind = 0
    """How many jobs wait, as the scheduler last said."""
    _not_forked: ParentSpec | None = None
    """Of the last job that could have started from a spare: the next job is likely to have the same."""

    @cached_property
    def _spares(self) -> Spares:
        spares = Spares(self._machine, self._python, slots=self.slots, memory_limit=self._memory_limit)
        weakref.finalize(self, spares.close)  # for a launcher that is never closed
        return spares

    async def start(self, order: StartOrder) -> LocalProcess:
        self._behind = order.behind
        return await super().start(order)

    def expect(self, behind: int) -> None:
        """Begin a spare for jobs that were submitted after the last one started; so many wait."""
        self._behind = behind
        needs = self._not_forked
        if needs is not None and len(self._spares.of(needs)) < behind:
            self._spares.prepare(needs, self._surroundings.now(), behind)

    def close(self) -> None:
        self._not_forked = None
        self._spares.close()
        super().close()

    def _needs(self, order: StartOrder, environment: ProcessVariables) -> ParentSpec:
        instructions = Instructions.of(order.launch)
        return spec_of(self._machine.files, order.paths, instructions, environment, order.params)

    def _started_ahead(
        self, needs: ParentSpec, order: StartOrder, environment: ProcessVariables, why_fresh: str
    ) -> LocalProcess | None:
        started = self._spares.start(self.name, needs, order, environment, why_fresh)
        self._spares.prepare(needs, environment, self._behind)
        self._not_forked = needs
        return started
