"""One job of a pretended cluster: its fate, and the runners that it is started as, which claim and beat.
What the cluster says of it is the cluster's.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum, unique

from tenuto.launchers.observation import ClusterEntry, Seen
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.beats import LOOK_S, MOST_MISSED
from tenuto.launchers.runner.runner_protocol import STALE, UNMARKED, shown
from tenuto.launchers.runner.verdict import PayloadStop, judge
from tenuto.testing.launcher import FakeLauncher, FakeRunner, Step
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claimer, claim
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, has_marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE
from tenuto.workspace.records import LaunchRecord, PidRecord

DISK_PATIENCE_S = 60.0
NODE = "node"
"""The host of its runners: to a scheduler their pids say nothing."""
_TRY_AGAIN_S = 1.0


@unique
class Fate(Enum):
    """What a cluster may do to a job that it was given."""

    ORDINARY = "started soon"
    LATE = "started late"
    UNANSWERED = "taken, but the answer is lost"
    TWICE = "started twice"
    FORGOTTEN = "started, and then forgotten"
    NODE_BELIEVED_DEAD = "said to have lost its node, which lives"
    DISK_LATE = "ended before the disk shows its marker"
    TWICE_LYING = "started twice, and said to have ended when the second left"
    CACHED = "started late by a node that shows old files, and deaf to cancellations"
    NODE_DEAD = "its node dies"
    TAKEN = "run by the process of another job, and then cancelled as needless"


class ClusterJob:
    """One job of the cluster: one try of it to run an attempt."""

    def __init__(self, number: int, order: StartOrder, fate: Fate) -> None:
        self.id = str(number)
        self.order = order
        self.fate = fate
        self.sighting = ClusterEntry(Seen.PENDING)
        self.runners: list[ClusterRunner] = []


class ClusterRunner(FakeRunner):
    """A runner that a cluster started: as `runner.claimed`, then as any, with beats."""

    def __init__(self, launcher: FakeLauncher, job: ClusterJob, *, beat_s: float, has_locks: bool) -> None:
        """`has_locks`: the locks that it takes exclude other hosts."""
        self.job = job
        super().__init__(launcher, job.order)
        self._beat_s = beat_s
        self._has_locks = has_locks
        self._tries = 0
        self._missed = 0
        self._unexplained = False

    def _inherit(self) -> None:
        """Nothing: it takes its locks itself."""

    def _begin(self) -> None:
        paths, launch = self.order.paths, self.order.launch
        if not self._is_launched():
            self._again_or_leave(self._begin)
        elif not self._makes_claim(paths, launch) or not self._is_launched():
            self._exit(STALE)
        else:
            self._tries = 0
            self._take_locks()

    def _makes_claim(self, paths: JobPaths, launch: LaunchRecord) -> bool:
        return claim(self._machine, paths, launch.nonce, Claimer.RUNNER, self.job.id)

    def _is_launched(self) -> bool:
        found = job_directory.read_launch(self._machine.files, self.order.paths)
        if self.job.fate is Fate.CACHED and found is not None:
            return True  # the node shows the files of the time at which the job was submitted
        return found is not None and found.nonce == self.order.launch.nonce

    def _take_locks(self) -> None:
        if self._has_locks:
            path = self.order.paths.lock
            lock = self._machine.locks.try_lock(path, RUNNER_BYTE)
            descendants = self._machine.locks.try_lock(path, DESCENDANTS_BYTE) if lock else None
            if lock is None or descendants is None:
                if lock is not None:
                    lock.close()
                self._again_or_leave(self._take_locks)
                return
            self.order = self.order._replace(runner_lock=lock, descendants_lock=descendants)
        if has_marker(self._machine.files, self.order.paths, self.order.launch.nonce):
            self._exit(STALE)
        else:
            self.go_on(Step.WRITE_PID)

    def _again_or_leave(self, step: Callable[[], None]) -> None:
        self._tries += 1
        if self._tries * _TRY_AGAIN_S >= DISK_PATIENCE_S:
            self._exit(STALE)
        else:
            self._later(_TRY_AGAIN_S, lambda: self._guarded(step))

    def _write_pid(self) -> None:
        own = self.identity._replace(host=NODE)
        record = PidRecord(own, self.order.launch.attempt, self._machine.clock.now())
        job_directory.write_pid(self._machine.files, self.order.paths, record)
        self.started = record.started
        self._later(self._beat_s, lambda: self._guarded(self._beat))
        self._later(LOOK_S, lambda: self._guarded(self._look))
        self.go_on(Step.SAY_READY)

    def _pass_on_descendants(self, payload: int) -> None:
        if self._has_locks:
            super()._pass_on_descendants(payload)

    # Beats, as `runner.beats`

    def _beat(self) -> None:
        try:
            self._machine.files.touch(self.order.paths.pid)
            self._missed = 0
        except OSError:
            self._missed += 1
        if self._is_replaced() or self._missed >= MOST_MISSED:
            self._exit(STALE)
        else:
            self._later(self._beat_s, lambda: self._guarded(self._beat))

    def _look(self) -> None:
        paths, attempt = self.order.paths, self.order.launch.attempt
        asked = None
        with suppress(OSError):
            asked = job_directory.read_stop(self._machine.files, paths, attempt)
        if asked is not None:
            self._end_payload(PayloadStop(asked.reason, asked.message or "stopped"))
        else:
            self._later(LOOK_S, lambda: self._guarded(self._look))

    def _is_replaced(self) -> bool:
        try:
            found = job_directory.read_launch(self._machine.files, self.order.paths)
        except OSError:
            return False
        return found is not None and found.nonce != self.order.launch.nonce

    def ask_to_stop(self) -> None:
        if self._stop is None and self.alive():
            asked = None
            with suppress(OSError):
                paths, attempt = self.order.paths, self.order.launch.attempt
                asked = job_directory.read_stop(self._machine.files, paths, attempt)
            self._unexplained = asked is None
        super().ask_to_stop()

    # The end

    def _write_marker(self) -> None:
        assert self._ending is not None
        if self._is_replaced():
            self._exit(STALE)
        elif self._unexplained and judge(self._ending).reason is not None:
            self._exit(UNMARKED)
        elif self.job.fate is Fate.DISK_LATE and self._tries >= 0:
            self._tries = -1
            code = shown(judge(self._ending).reason is not None, self._ending.exit_code)
            self.job.sighting = ClusterEntry(Seen.ENDED, code, message=f"its runner exited with {code}")
            self._later(20.0, lambda: self._guarded(self._write_marker))
        else:
            super()._write_marker()

    def _fail(self, error: OSError) -> None:
        """As `runner.claimed`: what goes wrong before the pid record is written leaves nothing behind."""
        if hasattr(self, "started") and not self._is_replaced():
            super()._fail(error)
        else:
            self._exit(STALE)

    def _finish(self, marker: Marker) -> None:
        super()._finish(marker)
        self._code = shown(marker.reason is not None, marker.exit_code)

    def _exit(self, code: int = 0) -> None:
        super()._exit(code or getattr(self, "_code", 0))
