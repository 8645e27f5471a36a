"""A pretended cluster: it starts runners later, elsewhere and perhaps twice, forgets, lies and loses nodes.

What is believed of its words is decided by the real rules (`launchers.observation`), and its runners take the
steps of real ones: claim, locks, beats. Its timers are the running loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, unique
from itertools import count
from typing import Any

from tenuto.errors import LaunchRefused
from tenuto.launchers.fence import BEAT_S
from tenuto.launchers.observation import Observer, Seen, Sighting
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.beats import LOOK_S, MOST_MISSED
from tenuto.launchers.runner.terms import STALE, UNMARKED, shown
from tenuto.launchers.runner.verdict import Stop, judge
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.host import FakeHost
from tenuto.testing.launcher import Behaviour, Delay, FakeLauncher, FakePayload, FakeRunner, Step
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claim, Claimer, claim, claimer
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker, read_markers
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Machine
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


class ClusterJob:
    """One job of the cluster: one try of it to run an attempt."""

    def __init__(self, number: int, order: StartOrder, fate: Fate) -> None:
        self.id = str(number)
        self.order = order
        self.fate = fate
        self.sighting = Sighting(Seen.PENDING)
        self.runners: list[ClusterRunner] = []


class FakeCluster:
    """The cluster, and what one scheduler knows of it: `Cluster` of `launchers.clusters`."""

    def __init__(
        self,
        host: FakeHost,
        *,
        fate: Callable[[StartOrder], Fate] = lambda order: Fate.ORDINARY,
        pending_s: Callable[[], float] = lambda: 1.0,
        beat_s: float = BEAT_S,
        poll_s: float = 1.0,
        answer_s: float = 60.0,
        has_locks: bool = True,
    ) -> None:
        """`has_locks`: locks of a node exclude other hosts. `poll_s`: how often a process is looked at."""
        self.host = host
        self.fate = fate
        self.pending_s = pending_s
        self.beat_s = beat_s
        self.poll_s = poll_s
        self.answer_s = answer_s
        """How long an answer that is lost is waited for."""
        self.has_locks = has_locks
        self.is_silent = False
        """Asked, it does not answer."""
        self.jobs: dict[str, ClusterJob] = {}
        self.by_nonce: dict[str, ClusterJob] = {}
        self._numbers = count(1)

    # What schedulers see

    def seen_by(self, machine: Machine) -> ClusterView:
        """The cluster, as one scheduler sees it: each observes for itself."""
        return ClusterView(self, machine)

    def see(self, launch: LaunchRecord, job_id: str | None) -> Sighting:
        if self.is_silent:
            return Sighting(Seen.NOTHING)
        job = self.jobs.get(job_id) if job_id is not None else self.by_nonce.get(launch.nonce)
        return Sighting(Seen.MISSING, message="unknown to the cluster") if job is None else job.sighting

    def take(self, launcher: ClusterLauncher, order: StartOrder) -> ClusterJob:
        """A submission arrives."""
        job = ClusterJob(next(self._numbers), order, self.fate(order))
        self.jobs[job.id] = self.by_nonce[order.launch.nonce] = job
        pending_s = self.pending_s() * (100.0 if job.fate in (Fate.LATE, Fate.CACHED) else 1.0)
        launcher.later(pending_s, lambda: self._begin(launcher, job))
        return job

    def _begin(self, launcher: ClusterLauncher, job: ClusterJob) -> None:
        if job.sighting.seen is not Seen.PENDING:
            return
        job.sighting = Sighting(Seen.RUNNING)
        for _ in range(2 if job.fate in (Fate.TWICE, Fate.TWICE_LYING) else 1):
            runner = launcher.begin(job)
            job.runners.append(runner)
        if job.fate is Fate.FORGOTTEN:
            launcher.later(2.0, lambda: self.forget(job))
        elif job.fate is Fate.NODE_BELIEVED_DEAD:
            launcher.later(
                2.0, lambda: self._ended(job, message="NODE_FAIL", confirmed=False, blameless=True)
            )

        elif job.fate is Fate.NODE_DEAD:
            launcher.later(2.0, lambda: self._lose_node_of(launcher, job))

    def _lose_node_of(self, launcher: ClusterLauncher, job: ClusterJob) -> None:
        if any(runner.alive() for runner in job.runners):
            launcher.node_lost(job)
            self.lose_node(job)

    def power_loss(self) -> None:
        """Every node was without power; what is pending stays."""
        for job in self.jobs.values():
            if job.fate is Fate.CACHED:  # nor does a node remember old files
                job.fate = Fate.LATE
            if job.sighting.seen is Seen.RUNNING:
                self._ended(job, message="NODE_FAIL", confirmed=False, blameless=True)

    def forget(self, job: ClusterJob) -> None:
        """The cluster knows nothing of a job any more, though its runner goes on."""
        self.jobs.pop(job.id, None)
        self.by_nonce.pop(job.order.launch.nonce, None)

    def runner_ended(self, job: ClusterJob, exit_code: int) -> None:
        """A runner is gone: the job ended if it was its last. A code other than 75 counts."""
        if job.sighting.seen is Seen.RUNNING and job.fate is Fate.TWICE_LYING and exit_code == STALE:
            self._ended(job, exit_code=STALE, message="its runner exited with 75")
        elif job.sighting.seen is Seen.RUNNING and not any(runner.alive() for runner in job.runners):
            codes = [runner.exit_code for runner in job.runners if runner.exit_code not in (None, STALE)]
            code = codes[0] if codes else exit_code
            known = None if code < 0 else code  # one that is killed has none
            self._ended(job, exit_code=known, message=f"its runner exited with {code}")

    def cancel(self, launcher: ClusterLauncher, job: ClusterJob) -> None:
        """A person, or a scheduler, cancels a job: one that runs is sent TERM."""
        if job.fate is Fate.CACHED:
            return
        if job.sighting.seen is Seen.PENDING:
            self._ended(job, reason=JobFailureStatus.CANCELLED, message="CANCELLED")
        elif job.sighting.seen is Seen.RUNNING:
            for runner in job.runners:
                launcher.deliver(runner, runner.ask_to_stop)

    def lose_node(self, job: ClusterJob) -> None:
        """The node of a job loses power: the cluster knows that it does not answer, and nothing more."""
        for runner in job.runners:
            runner.kill()
        self._ended(job, message="NODE_FAIL", confirmed=False, blameless=True)

    def _ended(self, job: ClusterJob, **said: Any) -> None:
        job.sighting = Sighting(Seen.ENDED, **said)


class ClusterView:
    """What one scheduler knows of a cluster: a `Cluster`."""

    def __init__(self, cluster: FakeCluster, machine: Machine) -> None:
        self.cluster = cluster
        self.machine = machine
        self.launcher: ClusterLauncher | None = None
        self.observer = Observer(machine, cluster.beat_s)

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        return self.observer.report(paths, launch, lambda job_id: self.cluster.see(launch, job_id))

    def process(self, paths: JobPaths, launch: LaunchRecord) -> ClusterProcess:
        return ClusterProcess(self, paths, launch)

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        for job in list(self.cluster.jobs.values()):
            if job.order.launch.nonce == launch.nonce and self.launcher is not None:
                self.cluster.cancel(self.launcher, job)


class ClusterProcess:
    """A `Process` of a pretended cluster."""

    exit_code: int | None = None

    def __init__(self, view: ClusterView, paths: JobPaths, launch: LaunchRecord) -> None:
        self._view = view
        self._paths = paths
        self._launch = launch

    async def confirmed(self) -> bool:
        while not self._is_over():
            if job_directory.read_pid(self._view.machine.files, self._paths, self._launch.attempt):
                return True
            await asyncio.sleep(self._view.cluster.poll_s)
        pid = job_directory.read_pid(self._view.machine.files, self._paths, self._launch.attempt)
        return pid is not None

    async def wait(self) -> None:
        while not self._is_over():  # noqa: ASYNC110  a cluster tells nobody
            await asyncio.sleep(self._view.cluster.poll_s)

    def _is_over(self) -> bool:
        files, launch = self._view.machine.files, self._launch
        current = job_directory.read_launch(files, self._paths)
        if current is None or current.nonce != launch.nonce:
            return True
        markers = read_markers(files, self._paths)
        if any(isinstance(marker, Marker) and marker.nonce == launch.nonce for marker in markers):
            return True
        made = claimer(self._view.machine, self._paths, launch.nonce)
        if isinstance(made, Claim) and made.by is Claimer.SCHEDULER:
            return True
        return self._view.report(self._paths, launch).says is ClusterSays.ENDED

    def signal_stop(self) -> None:
        self._view.stop(self._paths, self._launch)

    def kill(self) -> None:
        for job in list(self._view.cluster.jobs.values()):
            if job.order.launch.nonce == self._launch.nonce:
                for runner in job.runners:
                    runner.kill()

    def describe(self) -> dict[str, Any]:
        files = self._view.machine.files
        pid = job_directory.read_pid(files, self._paths, self._launch.attempt)
        return {
            "launcher": self._launch.launcher,
            "host": pid.identity.host if pid else None,
            "pid": pid.identity.pid if pid else None,
            "attempt": self._launch.attempt,
        }

    def close(self) -> None:
        pass


class ClusterLauncher(FakeLauncher):
    """An external `Launcher` over a `FakeCluster`; its view is what a scheduler is given as `Clusters`."""

    external = True

    def __init__(
        self,
        cluster: FakeCluster,
        view: ClusterView,
        behaviour: Behaviour = lambda order: FakePayload(),
        *,
        name: str = "cluster",
        slots: int = 1000,
        delay: Delay = lambda step: 0.001,
        dies_at: Callable[[StartOrder], Step | None] = lambda order: None,
    ) -> None:
        super().__init__(cluster.host, behaviour, name=name, slots=slots, delay=delay, dies_at=dies_at)
        self.cluster = cluster
        self.view = view
        view.launcher = self
        self.refusals: list[str] = []
        """What the next submissions are refused with."""

    async def start(self, order: StartOrder) -> ClusterProcess:  # type: ignore[override]
        if self.errors:
            raise self.errors.pop(0)
        if self.refusals:
            raise LaunchRefused(self.refusals.pop(0))
        job = self.cluster.take(self, order)
        if job.fate is Fate.UNANSWERED:
            await asyncio.sleep(self.cluster.answer_s)
            job = self.cluster.take(self, order)  # the same once more, which is safe
        return ClusterProcess(self.view, order.paths, order.launch)

    def find(  # type: ignore[override]
        self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None
    ) -> ClusterProcess | None:
        is_over = self.view.report(paths, launch).says is ClusterSays.ENDED
        return None if is_over else ClusterProcess(self.view, paths, launch)

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return ()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Has the cluster do something after a while, whatever becomes of the scheduler."""
        asyncio.get_running_loop().call_later(seconds, action)

    def node_lost(self, job: ClusterJob) -> None:
        """The node of a job is about to lose power."""

    def begin(self, job: ClusterJob) -> ClusterRunner:
        """The cluster starts a runner."""
        runner = ClusterRunner(self, job)
        self.runners[runner.identity] = runner
        runner.go_on(Step.BEGIN)
        return runner

    def gone(self, runner: FakeRunner) -> None:
        assert isinstance(runner, ClusterRunner)
        self.cluster.runner_ended(runner.job, -9 if runner.exit_code is None else runner.exit_code)


class ClusterRunner(FakeRunner):
    """A runner that a cluster started: as `runner.claimed`, then as any, with beats."""

    def __init__(self, launcher: ClusterLauncher, job: ClusterJob) -> None:
        self.job = job
        super().__init__(launcher, job.order)
        self.cluster = launcher.cluster
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
            return True  # the node shows what was there when the job was submitted
        return found is not None and found.nonce == self.order.launch.nonce

    def _take_locks(self) -> None:
        if self.cluster.has_locks:
            path = self.order.paths.lock
            lock = self._machine.locks.try_lock(path, RUNNER_BYTE)
            descendants = self._machine.locks.try_lock(path, DESCENDANTS_BYTE) if lock else None
            if lock is None or descendants is None:
                if lock is not None:
                    lock.close()
                self._again_or_leave(self._take_locks)
                return
            self.order = self.order._replace(runner_lock=lock, descendants_lock=descendants)
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
        self._later(self.cluster.beat_s, lambda: self._guarded(self._beat))
        self._later(LOOK_S, lambda: self._guarded(self._look))
        self.go_on(Step.SAY_READY)

    def _pass_on_descendants(self, payload: int) -> None:
        if self.cluster.has_locks:
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
            self._later(self.cluster.beat_s, lambda: self._guarded(self._beat))

    def _look(self) -> None:
        paths, attempt = self.order.paths, self.order.launch.attempt
        asked = None
        with suppress(OSError):
            asked = job_directory.read_stop(self._machine.files, paths, attempt)
        if asked is not None:
            self._end_payload(Stop(asked.reason, asked.message or "stopped"))
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
            self.job.sighting = Sighting(Seen.ENDED, code, message=f"its runner exited with {code}")
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


def external(cluster: FakeCluster, host: FakeHost) -> tuple[ClusterView, ClusterLauncher]:
    """A view and a launcher of a cluster for one scheduler."""
    view = cluster.seen_by(host.machine())
    return view, ClusterLauncher(cluster, view)
