"""A pretended cluster: it starts runners later, elsewhere and perhaps twice, forgets, lies and loses nodes.

The real rules decide how far to believe its words (`launchers.observation`), and its runners take the
steps of real ones: claim, locks, beats. Its timers are the running loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from tenuto.errors import LaunchRefused
from tenuto.launchers.observation import BEAT_S, ClusterEntry, Observer, Seen
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.runner_protocol import STALE
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.cluster_job import ClusterJob, ClusterRunner, Fate
from tenuto.testing.host import FakeHost
from tenuto.testing.launcher import Behaviour, Delay, FakeLauncher, FakePayload, FakeRunner, Step
from tenuto.workspace import job_directory
from tenuto.workspace.claims import Claim, Claimer, claimer, keep_claim
from tenuto.workspace.derive import ClusterReport
from tenuto.workspace.derive_table import ClusterSays
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import has_marker
from tenuto.workspace.ports import Machine
from tenuto.workspace.records import LaunchRecord, PidRecord


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

    def see(self, launch: LaunchRecord, job_id: str | None) -> ClusterEntry:
        if self.is_silent:
            return ClusterEntry(Seen.NOTHING)
        job = self.jobs.get(job_id) if job_id is not None else self.by_nonce.get(launch.nonce)
        return ClusterEntry(Seen.MISSING, message="unknown to the cluster") if job is None else job.sighting

    def take(self, launcher: FakeClusterLauncher, order: StartOrder) -> ClusterJob:
        """A submission arrives."""
        job = ClusterJob(next(self._numbers), order, self.fate(order))
        self.jobs[job.id] = self.by_nonce[order.launch.nonce] = job
        pending_s = self.pending_s() * (100.0 if job.fate in (Fate.LATE, Fate.CACHED) else 1.0)
        launcher.later(pending_s, lambda: self._begin(launcher, job))
        return job

    def _begin(self, launcher: FakeClusterLauncher, job: ClusterJob) -> None:
        if job.sighting.seen is not Seen.PENDING:
            return
        if job.fate is Fate.TAKEN:
            self._have_it_taken(launcher, job)
            return
        job.sighting = ClusterEntry(Seen.RUNNING)
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

    def _have_it_taken(self, launcher: FakeClusterLauncher, job: ClusterJob) -> None:
        """The process of another job, which is done, continues with the order of this one."""
        host = ClusterJob(next(self._numbers), job.order, Fate.ORDINARY)
        host.sighting = ClusterEntry(Seen.RUNNING)
        self.jobs[host.id] = host
        host.runners.append(launcher.begin(host))
        launcher.later(1.0, lambda: self._drop_needless(launcher, job, host))

    def _drop_needless(self, launcher: FakeClusterLauncher, job: ClusterJob, host: ClusterJob) -> None:
        """A scheduler that sees the claim has the cluster cancel the job; one without a claim is started."""
        order = job.order
        made = claimer(launcher.view.machine, order.paths, order.launch.nonce)
        if isinstance(made, Claim) and made.job == host.id:
            try:
                keep_claim(launcher.view.machine, order.paths, order.launch.nonce)
            except OSError:
                launcher.later(1.0, lambda: self._drop_needless(launcher, job, host))
            else:
                self.cancel(launcher, job)
        else:
            job.fate = Fate.ORDINARY
            self._begin(launcher, job)

    def _lose_node_of(self, launcher: FakeClusterLauncher, job: ClusterJob) -> None:
        if any(runner.alive() for runner in job.runners):
            launcher.node_lost(job)
            self.lose_node(job)

    def power_loss(self) -> None:
        """Every node was without power; pending jobs stay."""
        for job in self.jobs.values():
            if job.fate is Fate.CACHED:  # nor does a node remember old files
                job.fate = Fate.LATE
            if job.sighting.seen is Seen.RUNNING:
                self._ended(job, message="NODE_FAIL", confirmed=False, blameless=True)

    def forget(self, job: ClusterJob) -> None:
        """The cluster knows nothing of a job any more, though its runner continues."""
        self.jobs.pop(job.id, None)
        self.by_nonce.pop(job.order.launch.nonce, None)

    def runner_ended(self, job: ClusterJob, exit_code: int) -> None:
        """A runner is gone: the job ended if it was its last. A code other than 75 counts."""
        if job.sighting.seen is Seen.RUNNING and job.fate is Fate.TWICE_LYING and exit_code == STALE:
            self._ended(job, exit_code=STALE, message="its runner exited with 75")
        elif job.sighting.seen is Seen.RUNNING and not any(runner.alive() for runner in job.runners):
            codes = [runner.exit_code for runner in job.runners if runner.exit_code not in (None, STALE)]
            code = codes[0] if codes else exit_code
            known = None if code < 0 else code  # a killed runner has none
            self._ended(job, exit_code=known, message=f"its runner exited with {code}")

    def cancel(self, launcher: FakeClusterLauncher, job: ClusterJob) -> None:
        """A person, or a scheduler, cancels a job: a running job is sent TERM."""
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
        job.sighting = ClusterEntry(Seen.ENDED, **said)


class ClusterView:
    """What one scheduler knows of a cluster: a `Cluster`."""

    def __init__(self, cluster: FakeCluster, machine: Machine) -> None:
        self.cluster = cluster
        self.machine = machine
        self.launcher: FakeClusterLauncher | None = None
        self.observer = Observer(machine, cluster.beat_s)

    def report(self, paths: JobPaths, launch: LaunchRecord) -> ClusterReport:
        return self.observer.report(paths, launch, lambda job_id: self.cluster.see(launch, job_id))

    def process(self, paths: JobPaths, launch: LaunchRecord) -> FakeClusterProcess:
        return FakeClusterProcess(self, paths, launch)

    def stop(self, paths: JobPaths, launch: LaunchRecord) -> None:
        for job in list(self.cluster.jobs.values()):
            if job.order.launch.nonce == launch.nonce and self.launcher is not None:
                self.cluster.cancel(self.launcher, job)


class FakeClusterProcess:
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
        while not self._is_over():  # noqa: ASYNC110  a cluster tells its drivers nothing
            await asyncio.sleep(self._view.cluster.poll_s)

    def _is_over(self) -> bool:
        files, launch = self._view.machine.files, self._launch
        current = job_directory.read_launch(files, self._paths)
        if current is None or current.nonce != launch.nonce:
            return True
        if has_marker(files, self._paths, launch.nonce):
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


class FakeClusterLauncher(FakeLauncher):
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

    async def start(self, order: StartOrder) -> FakeClusterProcess:  # type: ignore[override]
        if self.errors:
            raise self.errors.pop(0)
        if self.refusals:
            raise LaunchRefused(self.refusals.pop(0))
        job = self.cluster.take(self, order)
        if job.fate is Fate.UNANSWERED:
            await asyncio.sleep(self.cluster.answer_s)
            job = self.cluster.take(self, order)  # the same once more, which is safe
        return FakeClusterProcess(self.view, order.paths, order.launch)

    def find(  # type: ignore[override]
        self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None
    ) -> FakeClusterProcess | None:
        is_over = self.view.report(paths, launch).says is ClusterSays.ENDED
        return None if is_over else FakeClusterProcess(self.view, paths, launch)

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        return ()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Has the cluster do something after a while, whatever becomes of the scheduler."""
        asyncio.get_running_loop().call_later(seconds, action)

    def node_lost(self, job: ClusterJob) -> None:
        """The node of a job is about to lose power."""

    def begin(self, job: ClusterJob) -> ClusterRunner:
        """The cluster starts a runner."""
        runner = ClusterRunner(self, job, beat_s=self.cluster.beat_s, has_locks=self.cluster.has_locks)
        self.runners[runner.identity] = runner
        runner.go_on(Step.BEGIN)
        return runner

    def gone(self, runner: FakeRunner) -> None:
        assert isinstance(runner, ClusterRunner)
        self.cluster.runner_ended(runner.job, -9 if runner.exit_code is None else runner.exit_code)


def external(cluster: FakeCluster, host: FakeHost) -> tuple[ClusterView, FakeClusterLauncher]:
    """A view and a launcher of a cluster for one scheduler."""
    view = cluster.seen_by(host.machine())
    return view, FakeClusterLauncher(cluster, view)
