"""Forks runners from parent processes, which have loaded beforehand what a runner needs.
What else a parent should have loaded is for the launchers to say that are made of this one.
"""

from __future__ import annotations

import errno
import os
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, NamedTuple, Self

from tenuto.errors import LaunchRefused
from tenuto.launchers.instructions import Limits
from tenuto.launchers.leftovers import STAMP
from tenuto.launchers.local import LocalProcess, Readable, find_local, sweep_local
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.runner_protocol import BARE, ENTRY, SIGNALS
from tenuto.launchers.warm.fork_advice import Reasons
from tenuto.launchers.warm.fork_safety import MEMORY_LIMIT
from tenuto.launchers.warm.helper import bury, retire, watched
from tenuto.launchers.warm.parent import (
    Answer,
    NotSent,
    ParentGone,
    WarmParent,
    changed_variables,
    retire_all,
    said_ready,
)
from tenuto.launchers.warm.parent_spec import LEAN, ParentSpec, ProcessVariables, Surroundings
from tenuto.launchers.warm.wire import LARGEST, MOST_DESCRIPTORS, MessageTooLong
from tenuto.tasks.arguments import guarded, whole_number
from tenuto.workspace.job_directory import read_pid
from tenuto.workspace.json_bytes import to_json
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.machine import this_machine
from tenuto.workspace.modes import file_mode
from tenuto.workspace.ports import Machine, ProcessHandle, ProcessIdentity
from tenuto.workspace.processes import PidfdHandle
from tenuto.workspace.records import LaunchRecord, PidRecord

if TYPE_CHECKING:
    from tenuto.launchers.requirements import Alternative

NEVER = (errno.E2BIG, errno.ENOEXEC)
"""What an attempt to start a program answers that waiting will not cure."""
_LOG = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


class DirectLauncher:
    """Starts each runner in an interpreter of its own, without anything between."""

    name = "direct"
    external = False
    lock_path: str | None = None
    limits: Limits | None = None

    def __init__(
        self, machine: Machine | None = None, *, slots: int | None = None, python: str | None = None
    ) -> None:
        """`python`: by default this interpreter. `slots`: by default the cores this process may use."""
        self._machine = machine or this_machine()
        self._python = python or sys.executable
        self.slots = len(os.sched_getaffinity(0)) if slots is None else whole_number(slots, "slots", least=1)

    @property
    def pool(self) -> object:
        return self

    def adapted(self, alternative: Alternative) -> Self:
        """This launcher: the limits of a job on this machine go with the job."""
        return self

    async def start(self, order: StartOrder) -> LocalProcess:
        if not os.access(self._python, os.X_OK, effective_ids=True):
            raise LaunchRefused(f"EXEC: the Python interpreter {self._python!r} cannot be run")
        ready, said_ready = os.pipe()
        os.set_blocking(ready, False)
        try:
            pid = self._spawn(order, said_ready)
        except OSError as error:
            os.close(ready)
            if error.errno in NEVER:
                raise LaunchRefused(f"EXEC: {self._python} cannot be run: {error.strerror}") from error
            raise
        except BaseException:
            os.close(ready)
            raise
        finally:
            os.close(said_ready)
        try:
            handle = watched(self._machine, pid)
        except OSError:
            os.close(ready)
            raise
        return LocalProcess(self.name, handle, order.launch.attempt, ready=ready, child=True)

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> LocalProcess | None:
        return find_local(self._machine, self.name, launch, pid)

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return await sweep_local(self._machine, paths, launch)

    def close(self) -> None:
        pass

    def _spawn(self, order: StartOrder, said_ready: int) -> int:
        paths = order.paths
        passed = [
            *(lock.fileno() for lock in order.locks),
            said_ready,
            *(token.fileno() for token in order.tokens),
        ]
        if min(passed) <= 2:
            raise LaunchRefused("this process runs without standard streams; start it with /dev/null instead")
        # Every descriptor is closed on exec. To duplicate one onto itself keeps it open in this child alone;
        # making it inheritable here would let a process that another thread starts meanwhile keep the lock.
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (
                os.POSIX_SPAWN_OPEN,
                2,
                paths.err,
                _LOG,
                file_mode(paths.err),
            ),  # where a runner that cannot begin complains
            (os.POSIX_SPAWN_DUP2, 2, 1),
            *((os.POSIX_SPAWN_DUP2, fd, fd) for fd in passed),
        ]
        job = (paths.directory, paths.script_name, order.launch.nonce)
        return os.posix_spawn(
            self._python,
            [self._python, *BARE, ENTRY, *job, self._python, *map(str, passed)],
            os.environ,
            file_actions=actions,
            setsid=True,  # before anything else: a Ctrl-C in the terminal must not reach a runner
            setsigmask=SIGNALS,
            setsigdef=SIGNALS,
        )


# The handle of a runner that ended before the launcher could open it.
# Only its records told of it.


class EndedHandle:
    """A `ProcessHandle` on a process that is no more."""

    def __init__(self, identity: ProcessIdentity) -> None:
        self.identity = identity
        self._fd = os.eventfd(1, os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def send_signal(self, signal: int) -> bool:
        return False

    def ended(self) -> bool:
        return True

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


_MOST_PARENTS = 8
"""The parent that was used least recently makes room. To start one takes as long as a fresh interpreter."""
_IMPORT_TAKES_S = 60.0
"""A parent that imports for longer is given up, so that the job shows by itself where it hangs."""
_ANSWER_TAKES_S = 30.0
"""A parent that takes longer for a fork is stopped or stuck: it is killed, and the start tried again."""
_ENDS_S = 0.2
UNSETTLED_S = 60.0
"""Modules whose files change while they are imported, twice in a row, are tried again after this time."""


class _NotForked(NamedTuple):
    """Why a parent forked nothing, as the end of the sentence "the module ...", and what to do."""

    why: str
    with_another_parent: bool = False


class _Unfit(NamedTuple):
    """Needs that no parent is built for."""

    why: str
    changed: tuple[int, ...]
    """When the files of their modules had last been changed; a later change is a reason to try again."""
    until: float
    """Until when this holds, on the monotonic clock."""
    spares_help: bool = False
    """Harm comes from the fork alone: an interpreter that is used once may import the modules early."""

    def holds(self, needs: ParentSpec) -> bool:
        return time.monotonic() < self.until and self.changed == needs.changed()


class ForkingLauncher(DirectLauncher):
    """Starts each runner by a fork; by an interpreter of its own where that cannot be."""

    @guarded
    def __init__(
        self,
        machine: Machine | None = None,
        *,
        slots: int | None = None,
        shares_slots: bool = False,
        python: str | None = None,
        memory_limit: int = MEMORY_LIMIT,
        import_takes_s: float = _IMPORT_TAKES_S,
        answer_takes_s: float = _ANSWER_TAKES_S,
    ) -> None:
        """As `DirectLauncher`. `memory_limit`: of a parent, beyond which its tasks are not forked.

        `shares_slots`: the slots are those of a workspace on this machine, whichever process uses them.
        """
        super().__init__(machine, slots=slots, python=python)
        self.shares_slots = shares_slots
        self.is_in_job = STAMP in os.environ
        """This process was started by a job, which holds a slot meanwhile."""
        self._memory_limit = memory_limit
        self._import_takes_s = import_takes_s
        self._answer_takes_s = answer_takes_s
        self._own = self._machine.processes.own()
        self._surroundings = Surroundings()
        self._parents: OrderedDict[ParentSpec, WarmParent] = OrderedDict()
        weakref.finalize(self, retire_all, self._parents)  # a caller may forget to close the launcher
        self._is_closed = False
        self._reasons = Reasons()
        self._unfit: dict[ParentSpec, _Unfit] = {}

    async def start(self, order: StartOrder) -> LocalProcess:
        environment = self._surroundings.now()
        wanted = LEAN if self._cannot_fork(order) else self._needs(order, environment)
        why_fresh: str | None = None
        if wanted != LEAN:
            started = await self._started_from(wanted, order, environment, None)
            if isinstance(started, LocalProcess):
                return started
            why_fresh = started
            if self._spares_help(wanted):
                ahead = self._started_ahead(wanted, order, environment, why_fresh)
                if ahead is not None:
                    return ahead
        if not self._cannot_fork(order):
            started = await self._started_from(LEAN, order, environment, why_fresh)
            if isinstance(started, LocalProcess):
                return started
        return await super().start(order)

    async def _started_from(
        self, needs: ParentSpec, order: StartOrder, environment: ProcessVariables, why_fresh: str | None
    ) -> LocalProcess | str:
        """A runner forked from a parent with these needs; the reason if none can be."""
        unfit = self._unfit.get(needs)
        if unfit is not None and unfit.holds(needs):
            return unfit.why
        why = "cannot be told to its parent process"
        for _ in range(2):  # once more if the source has changed since it was imported
            parent = self._parent(needs)
            if parent is None:
                return why
            changes = changed_variables(parent.environment, environment.variables)
            started = await self._fork(parent, order, changes, why_fresh)
            if isinstance(started, LocalProcess):
                return started
            why = started.why
            if not started.with_another_parent:
                return why
        if needs != LEAN:
            self._note_unfit(needs, why, UNSETTLED_S)
        return why

    def remarks(self) -> list[str]:
        """The jobs that were not forked and why, one sentence for each, for the summary of a run."""
        return self._reasons.said()

    def _cannot_fork(self, order: StartOrder) -> bool:
        return self._is_closed or len(order.tokens) + 3 > MOST_DESCRIPTORS

    def warm_up(self) -> None:
        """Starts the parent that commands are forked from: for a server, whose first job then need not wait.

        `LaunchRefused` if the interpreter cannot be run. A machine that is short of something is not asked
        twice: the first job starts the parent then.
        """
        if not self._is_closed:
            with suppress(OSError):
                self._parent(LEAN)

    def close(self) -> None:
        """Ends the parents. Later jobs start here without."""
        self._is_closed = True
        retire_all(self._parents)
        give_up = time.monotonic() + _ENDS_S
        while bury() and time.monotonic() < give_up:
            time.sleep(0.002)

    # Without a fork.

    def _spares_help(self, needs: ParentSpec) -> bool:
        unfit = self._unfit.get(needs)
        return unfit is not None and unfit.spares_help

    def _started_ahead(
        self, needs: ParentSpec, order: StartOrder, environment: ProcessVariables, why_fresh: str
    ) -> LocalProcess | None:
        """A runner whose payload has imported the modules already; None if there is none."""
        return None

    # Which parent.

    def _needs(self, order: StartOrder, environment: ProcessVariables) -> ParentSpec:
        """What the job's parent should have loaded."""
        return LEAN

    def _parent(self, needs: ParentSpec) -> WarmParent | None:
        bury()
        if self._own.pid != os.getpid():  # this process was forked: the parents are another's
            self._own = self._machine.processes.own()
            self._parents.clear()
        parent = self._parents.get(needs)
        if parent is not None and parent.usable:
            self._parents.move_to_end(needs)
            return parent
        if not os.access(self._python, os.X_OK, effective_ids=True):
            raise LaunchRefused(f"EXEC: the Python interpreter {self._python!r} cannot be run")
        if len(to_json(needs)) > LARGEST // 2:
            return None
        if parent is not None:
            self._drop(parent)
        while len(self._parents) >= _MOST_PARENTS:
            retire(self._parents.popitem(last=False)[1])
        try:
            self._parents[needs] = WarmParent(self._python, needs, self._memory_limit)
        except OSError as error:
            if error.errno in NEVER:
                return None  # the start without a parent will say it
            raise
        return self._parents[needs]

    def _drop(self, parent: WarmParent) -> None:
        if self._parents.get(parent.needs) is parent:
            del self._parents[parent.needs]
        retire(parent)

    # One start.

    async def _fork(
        self, parent: WarmParent, order: StartOrder, changes: Mapping[str, str | None], why_fresh: str | None
    ) -> LocalProcess | _NotForked:
        ready, ready_there = os.pipe()
        os.set_blocking(ready, False)
        word = Readable(ready)
        started: LocalProcess | _NotForked
        try:
            try:
                takes_s = self._answer_takes_s if parent.loaded else self._import_takes_s
                answer = await parent.fork(order, changes, ready_there, word, takes_s, why_fresh)
            except NotSent:
                self._drop(parent)
                started = _NotForked("lost its parent process", with_another_parent=parent.loaded)
            except MessageTooLong:
                started = _NotForked("has an environment too large to be sent to its parent process")
            except (ParentGone, TimeoutError):
                parent.kill()
                started = await self._after_its_death(parent, order, ready, word)
            else:
                started = self._answered(parent, order, answer, ready, word)
        except BaseException:
            word.close()
            os.close(ready)
            raise
        if not isinstance(started, LocalProcess):
            word.close()
            os.close(ready)
        return started

    def _answered(
        self, parent: WarmParent, order: StartOrder, answer: Answer, ready: int, word: Readable
    ) -> LocalProcess | _NotForked:
        said = answer.content
        if "pid" in said:
            handle = self._forked(parent, said["pid"], answer.pidfd)
            return LocalProcess(self.name, handle, order.launch.attempt, ready=ready, word=word)
        if "errno" in said:
            raise OSError(said["errno"], said["problem"])
        if "environment" in said:
            why = f"reads {said['environment']} while it is imported, which has changed since"
            self._reasons.say(parent.needs, why)
            return _NotForked(why)
        self._drop(parent)
        if "unfit" in said:
            self._note_unfit(parent.needs, said["unfit"], spares_help=said["spares_help"])
            return _NotForked(said["unfit"])
        return _NotForked(f"changes while it is imported ({said['stale']})", with_another_parent=True)

    def _forked(self, parent: WarmParent, pid: int, pidfd: int | None) -> ProcessHandle:
        identity = self._own._replace(pid=pid, start_time=0)
        if pidfd is not None:
            return PidfdHandle(identity, pidfd)
        # One of the two processes has no descriptor left. A runner that cannot be watched must not run.
        found = self._machine.processes.identify(pid)
        try:
            handle = found and self._machine.processes.open(found)
        except OSError:
            parent.kill_runner(pid)
            raise
        return handle or EndedHandle(identity)

    async def _after_its_death(
        self, parent: WarmParent, order: StartOrder, ready: int, word: Readable
    ) -> LocalProcess | _NotForked:
        """The parent died with the order in its hands: the other end of `ready` tells its answer."""
        self._drop(parent)
        if await said_ready(ready, word):
            word.close()
            os.close(ready)
            return self._found(order)
        if not parent.loaded:
            why = "ends its process, or does not come to an end, when it is imported"
            if parent.needs != LEAN:
                self._note_unfit(parent.needs, why)
            return _NotForked(why)
        raise OSError(errno.EAGAIN, "the warm parent died; nothing was started")

    def _found(self, order: StartOrder) -> LocalProcess:
        """The runner that wrote its pid record, whether it still lives or not."""
        attempt = order.launch.attempt
        pid = read_pid(self._machine.files, order.paths, attempt)
        found = find_local(self._machine, self.name, order.launch, pid)
        return found or LocalProcess(self.name, EndedHandle(pid.identity if pid else self._own), attempt)

    # The remarks that are made once.

    def _note_unfit(
        self, needs: ParentSpec, why: str, for_s: float = inf, *, spares_help: bool = False
    ) -> None:
        self._unfit[needs] = _Unfit(why, needs.changed(), time.monotonic() + for_s, spares_help)
        self._reasons.say(needs, why, ", from a spare if one is ready" if spares_help else "")
