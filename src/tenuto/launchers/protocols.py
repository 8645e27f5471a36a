"""A launcher, and the values that it hands back: the seam between the scheduler and whatever runs a job.
Starts nothing itself; each launcher has its own module, and one contract suite covers them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tenuto.launchers.instructions import Limits
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.ports import LockHandle
from tenuto.workspace.records import LaunchRecord, PidRecord

if TYPE_CHECKING:
    from tenuto.launchers.requirements import Alternative


class StartOrder(NamedTuple):
    """Everything a launcher needs to start one attempt; what its runner needs is in `launch.instructions`.

    The scheduler keeps its copies of the locks until `Process.confirmed()` answered; then it closes them. A
    launcher that is external gets no locks: its runner takes them itself, once it has made its claim.
    """

    paths: JobPaths
    launch: LaunchRecord
    """As it lies in `launch.json`, written before."""
    runner_lock: LockHandle | None
    """Byte 0 of the job's lock file; None for an external launcher."""
    descendants_lock: LockHandle | None
    """Byte 1: held by all that the payload ever forks, by no other process; None for an external launcher."""
    tokens: tuple[LockHandle, ...] = ()
    """One handle for each unit of a token; of an external launcher's job the scheduler keeps them."""
    params: bytes | None = None
    """The content of `params.json`, if the starter of the attempt has it at hand."""
    behind: int = 0
    """How many jobs of the scheduler wait for a slot, a token or another job."""

    @property
    def locks(self) -> tuple[LockHandle, LockHandle]:
        """Both locks of a job, for a launcher whose runners inherit them."""
        assert self.runner_lock is not None, "a local launcher is given the job's locks"
        assert self.descendants_lock is not None, "a local launcher is given the job's locks"
        return self.runner_lock, self.descendants_lock


class Process(Protocol):
    """One attempt's runner, as seen from a scheduler."""

    @property
    def exit_code(self) -> int | None:
        """The runner's own, once it ended, for the process that started it; the job's is in the marker."""
        ...

    async def confirmed(self) -> bool:
        """True once the runner has written its pid record; False if it ended before it could.

        Raises `OSError` if the machine refused the runner a resource: nothing was run, and it ends.
        """
        ...

    async def wait(self) -> None:
        """Return once the runner has exited, however long ago that was.

        Of an external launcher's: once a marker of the attempt is seen, its cluster reports the end, or the
        attempt was revoked or followed by another.
        """
        ...

    def signal_stop(self) -> None:
        """Ask the runner to stop its job; the caller has written `stop.json` before.

        The runner itself ends the whole tree after the grace period, and writes the marker.
        """
        ...

    def kill(self) -> None:
        """End the runner at once. It leaves no marker: only for one that no longer answers."""
        ...

    def describe(self) -> dict[str, Any]:
        """Plain values for messages and events: launcher, host, pid, attempt."""
        ...

    def close(self) -> None:
        """Release the process, which continues unharmed; if this process started it, its end leaves a zombie.

        `wait` and `confirmed` must not be under way.
        """
        ...


class Launcher(Protocol):
    """A way to run jobs."""

    name: str
    """As it is recorded in `launch.json`."""
    external: bool
    """True if another system starts the runner: later, elsewhere, and without the locks."""
    slots: int
    """How many jobs may run at once."""
    lock_path: str | None
    """A lock file to hold while a job runs, or None."""
    limits: Limits | None
    """What its jobs may use unless their submission says otherwise; None: there is nothing to add."""

    @property
    def pool(self) -> object:
        """What its slots belong to: launchers of one pool share them. A launcher is its own pool, usually."""
        ...

    def adapted(self, alternative: Alternative) -> Launcher:
        """The launcher for jobs that need this, of the same pool; itself if there is nothing to ask for.

        Raises `LauncherNotFound` for what its system cannot be asked.
        """
        ...

    async def start(self, order: StartOrder) -> Process:
        """Start a runner.

        Raises `LaunchRefused` if it can never work, and `OSError` if it may work later (no process, no
        descriptor, no memory left); in both cases nothing was started.
        """
        ...

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> Process | None:
        """The runner of an attempt that another scheduler started; None if it is not alive.

        An external launcher finds a job that its cluster has, without a pid record, too.
        """
        ...

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        """End what a runner that is dead left behind; the pids of what would not go. Under the job's lock.

        Never called for an attempt that was external: its processes are on other machines.
        """
        ...

    def close(self) -> None:
        """Release what the launcher keeps for next starts; its jobs continue, and it can be used anew."""
        ...


class EndedProcess:
    """A `Process` that ended before it could be seen."""

    exit_code: int | None = 0

    def __init__(self, launcher: str) -> None:
        """`launcher`: the name of the one that is said to have run it."""
        self._launcher = launcher

    async def confirmed(self) -> bool:
        return False

    async def wait(self) -> None:
        """It has ended."""

    def signal_stop(self) -> None:
        """It has ended."""

    def kill(self) -> None:
        """It has ended."""

    def describe(self) -> dict[str, Any]:
        return {"launcher": self._launcher}

    def close(self) -> None:
        """Nothing is kept."""
