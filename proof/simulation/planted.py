"""Owns the planted bugs: mutations of the real code, each of which the simulation must find.
A simulation that misses one of them says nothing about bugs of its kind.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tenuto.launchers import observation
from tenuto.launchers.protocols import Process, StartOrder
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler import (
    attempts,
    core,
    decisions,
    entries,
    external_attempts,
    intake,
    jobs,
    scheduler,
    shell,
    token_queue,
    tokens,
    workers,
)
from tenuto.scheduler.decisions import Arrival, Tries, Verdict
from tenuto.scheduler.inputs import AdoptedEnded, Cancelled
from tenuto.testing import cluster, cluster_job
from tenuto.workspace import attempt_files, claims, job_directory, markers
from tenuto.workspace.derive_table import Action
from tenuto.workspace.markers import Durability
from tenuto.workspace.ports import Liveness
from tenuto.workspace.records import PidRecord, StopRecord, read_record


class Patch:
    """Replaces parts of the real code, and puts them back."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        self._before.append((owner, name, owner.__dict__[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        while self._before:
            setattr(*self._before.pop())


class Bug(NamedTuple):
    """A bug, and how it gets into the code."""

    name: str
    stands_for: str
    plant: Callable[[Patch], None]


BUGS: dict[str, Bug] = {}


def _bug(stands_for: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def add(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
        name = plant.__name__.strip("_").replace("_", "-")
        BUGS[name] = Bug(name, stands_for, plant)
        return plant

    return add


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The code with one bug in it."""
    patch = Patch()
    BUGS[name].plant(patch)
    try:
        yield
    finally:
        patch.undo()


# Locks


@_bug("the scheduler lets go of the job's lock before the runner has it")
def _lock_released_before_the_start(patch: Patch) -> None:
    run = jobs.Job.aio_run

    async def aio_run(self: jobs.Job, order: StartOrder) -> Process:
        order.locks[0].close()
        return await run(self, order)

    patch.set(jobs.Job, "aio_run", aio_run)


@_bug("the scheduler keeps its copy of the lock after the runner is confirmed")
def _lock_never_released(patch: Patch) -> None:
    start = attempts.Attempt._start

    class Kept:
        def __init__(self, lock: Any) -> None:
            self._lock = lock

        def __getattr__(self, name: str) -> Any:
            return getattr(self._lock, name)

        def close(self) -> None:
            pass

    async def _start(self: Any, lock: Any) -> Verdict:
        kept: Any = Kept(lock)
        return await start(self, kept)

    patch.set(attempts.Attempt, "_start", _start)


@_bug("submitting tries the lock to see whether the directory is usable, and forgets to let it go")
def _lock_leaked_at_submission(patch: Patch) -> None:
    look = intake.Intake.look

    def leak(self: Any, job: Any) -> Any:
        found = look(self, job)
        if found.arrival is Arrival.RUN:
            job_directory.take_lock(self._machine, job.paths)
        return found

    patch.set(intake.Intake, "look", leak)


@_bug("two schedulers lock different bytes, so that neither sees the other")
def _lock_not_shared(patch: Patch) -> None:
    def take_lock(machine: Any, paths: Any) -> Any:
        machine.files.make_directory(paths.private)
        taken = machine.locks.try_lock(paths.lock, 0)
        if taken is not None:
            taken.close()  # only tried, never kept
        return taken

    patch.set(job_directory, "take_lock", take_lock)


@_bug("leftovers of a killed runner are not ended before the job starts again")
def _leftovers_not_swept(patch: Patch) -> None:
    async def _swept(self: Any, lock: Any, found: Any) -> Any:
        return found

    patch.set(attempts.Attempt, "_swept", _swept)


# Markers and attempts


@_bug("the marker is renamed into place before its content is on the disk")
def _marker_not_synced(patch: Patch) -> None:
    write = markers.write_marker

    def write_marker(files: Any, paths: Any, marker: Any, durability: Any = Durability.NONE) -> None:
        write(files, paths, marker, Durability.NONE)

    patch.set(attempt_files, "write_marker", write_marker)


@_bug("what a task left is not on the disk when its job counts as done")
def _outputs_not_synced(patch: Patch) -> None:
    patch.set(attempt_files, "_sync_outputs", lambda files, paths: None)


@_bug("nobody looks whether the parameters of a job that is done survived a power loss")
def _params_not_mended(patch: Patch) -> None:
    patch.set(attempts.Attempt, "mend", lambda self, found, lock=None: True)


@_bug("the failure of an earlier attempt counts as that of the current one")
def _markers_of_older_attempts_counted(patch: Patch) -> None:
    def read_markers(files: Any, paths: Any) -> Any:
        found = markers.read_markers(files, paths)
        launch = attempt_files.read_launch(files, paths)
        newest = launch.attempt if launch else 0
        return found._replace(
            **{
                name: marker._replace(attempt=newest, nonce=launch.nonce)
                for name, marker in found._asdict().items()
                if launch and isinstance(marker, markers.Marker) and marker.attempt < newest
            }
        )

    patch.set(job_directory, "read_markers", read_markers)


@_bug("the next attempt gets the number of the last one")
def _attempt_not_bumped(patch: Patch) -> None:
    last = job_directory._last_attempt

    def _last_attempt(files: Any, paths: Any, evidence: Any) -> int:
        return max(last(files, paths, evidence) - 1, 0)

    patch.set(job_directory, "_last_attempt", _last_attempt)


@_bug("the markers of earlier attempts stay when a new one is opened")
def _older_markers_kept(patch: Patch) -> None:
    def _clear_older_attempts(files: Any, paths: Any) -> None:
        for path in (paths.pid, paths.stop, paths.locks, paths.result):
            files.remove(path)

    patch.set(job_directory, "_clear_older_attempts", _clear_older_attempts)


@_bug("the launch record is written after the runner was started")
def _launch_recorded_too_late(patch: Patch) -> None:
    run = jobs.Job.aio_run

    async def aio_run(self: jobs.Job, order: StartOrder) -> Process:
        assert self.scheduler is not None
        files = self.scheduler.machine.files
        files.remove(order.paths.launch)
        process = await run(self, order)
        await asyncio.sleep(0.01)
        files.replace(order.paths.launch, order.launch.encode(), durable=False)
        return process

    patch.set(jobs.Job, "aio_run", aio_run)


@_bug("no disk is set aside for the marker, so a full disk takes the last word of a job")
def _no_reserve_for_the_marker(patch: Patch) -> None:
    patch.set(job_directory, "reserve_marker", lambda files, paths: None)


@_bug("files that cannot be written because the disk is full are silently left out")
def _full_disk_swallowed(patch: Patch) -> None:
    put = attempt_files._put

    def _put(files: Any, path: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            put(files, path, data)

    patch.set(attempt_files, "_put", _put)


# What a directory means


@_bug("a pid record is believed though another process has the pid by now")
def _pid_without_start_time(patch: Patch) -> None:
    read = job_directory.read_evidence

    def read_evidence(machine: Any, paths: Any, **options: Any) -> Any:
        found = read(machine, paths, **options)
        if isinstance(found.pid, PidRecord) and machine.processes.identify(found.pid.identity.pid):
            return found._replace(liveness=Liveness.ALIVE)
        return found

    patch.set(job_directory, "read_evidence", read_evidence)


@_bug("a pid record of before the reboot is believed")
def _boot_id_ignored(patch: Patch) -> None:
    read = job_directory.read_evidence

    def read_evidence(machine: Any, paths: Any, **options: Any) -> Any:
        found = read(machine, paths, **options)
        return found._replace(liveness=Liveness.ALIVE) if found.liveness is Liveness.REBOOTED else found

    patch.set(job_directory, "read_evidence", read_evidence)


@_bug("a job whose runner vanished counts as done")
def _lost_reported_done(patch: Patch) -> None:
    after = decisions.after_attempt

    def after_attempt(found: Any, tries: Any, limits: Any) -> Verdict:
        verdict = after(found, tries, limits)
        return Verdict(JobState.DONE) if verdict.reason is JobFailureStatus.LOST else verdict

    patch.set(attempts, "after_attempt", after_attempt)


@_bug("a failed job that is found on the disk counts as done")
def _failure_reused(patch: Patch) -> None:
    def on_arrival(found: Any, **options: Any) -> Arrival:
        return Arrival.REUSE if found.action is Action.KEEP else decisions.on_arrival(found, **options)

    def is_at_rest(machine: Any, paths: Any) -> bool:
        markers_there = [machine.files.stat(path) for path in (paths.done, paths.failed)]
        return not machine.locks.is_locked(paths.lock) and any(markers_there)

    patch.set(intake, "on_arrival", on_arrival)
    patch.set(job_directory, "is_at_rest", is_at_rest)


@_bug("a failure that was known before the submission counts as the answer to it")
def _old_failure_answers(patch: Patch) -> None:
    patch.set(attempts, "has_answer", lambda job, found: found.derived.action is Action.KEEP)


@_bug("an adopted job is taken for done without waiting for its runner")
def _adoption_does_not_wait(patch: Patch) -> None:
    async def _adopt(self: Any, job: Any) -> None:
        self._feed(AdoptedEnded(job, Verdict(JobState.DONE)))

    patch.set(shell.Shell, "_adopt", _adopt)


@_bug("an adopted job that ended is never noticed")
def _adoption_never_ends(patch: Patch) -> None:
    async def _watch_runner(self: Any, found: Any) -> bool:
        if found.derived.state is JobState.RUNNING:
            await asyncio.get_running_loop().create_future()
        return False

    patch.set(attempts.Attempt, "_watch_runner", _watch_runner)


# Trying again


@_bug("the count of timeouts starts anew with each attempt")
def _retry_counter_reset(patch: Patch) -> None:
    patch.set(attempts, "tries_of", lambda launch: Tries())


@_bug("a resumable job is tried once too often")
def _one_retry_too_many(patch: Patch) -> None:
    def after_attempt(found: Any, tries: Any, limits: Any) -> Verdict:
        generous = limits._replace(max_retries=limits.max_retries + 1)
        return decisions.after_attempt(found, tries, generous)

    patch.set(attempts, "after_attempt", after_attempt)


@_bug("a lost job is started again, however often it was lost")
def _lost_without_limit(patch: Patch) -> None:
    def after_attempt(found: Any, tries: Any, limits: Any) -> Verdict:
        return decisions.after_attempt(found, tries, limits._replace(max_lost_retries=1000))

    patch.set(attempts, "after_attempt", after_attempt)


@_bug("a start that the machine refused counts as a loss")
def _refusal_counts_as_loss(patch: Patch) -> None:
    patch.set(job_directory, "withdraw_attempt", lambda files, paths, launch: None)


@_bug("a resumable job is not tried again after a timeout")
def _timeout_is_final(patch: Patch) -> None:
    def after_attempt(found: Any, tries: Any, limits: Any) -> Verdict:
        return decisions.after_attempt(found, tries, limits._replace(resumable=False))

    patch.set(attempts, "after_attempt", after_attempt)


@_bug("a restarted scheduler runs a failed job again that runs once")
def _failed_once_job_runs_again(patch: Patch) -> None:
    has_answer = attempts.has_answer

    def as_for_others(found: Any, **options: Any) -> Arrival:
        return decisions.on_arrival(found)

    def answers_others(job: Any, found: Any) -> bool:
        return has_answer(job, found) and (
            found.derived.state is JobState.DONE or job.answered != job.attempt
        )

    patch.set(intake, "on_arrival", as_for_others)
    patch.set(attempts, "on_arrival", as_for_others)
    patch.set(attempts, "has_answer", answers_others)


@_bug("a job that runs once is tried again after its runner was lost, or its time was up")
def _once_job_tried_again(patch: Patch) -> None:
    def after_attempt(found: Any, tries: Any, limits: Any) -> Verdict:
        return decisions.after_attempt(found, tries, limits._replace(once=False))

    patch.set(attempts, "after_attempt", after_attempt)
    patch.set(jobs.Job, "once", property(lambda self: False))


# Cancelling


@_bug("a job that was cancelled, and whose runner vanished, is started again")
def _cancelled_job_restarted(patch: Patch) -> None:
    patch.set(attempts.Attempt, "_explained", lambda self, derived: derived)


@_bug("a job that times out while it is being cancelled is started again")
def _cancelled_job_tried_again(patch: Patch) -> None:
    patch.set(attempts.Attempt, "_unless_cancelled", lambda self, verdict: verdict)


@_bug("a cancelled job is not asked to stop")
def _stop_not_sent(patch: Patch) -> None:
    patch.set(attempts.Attempt, "request_stop", lambda self: None)


@_bug("a cancelled job still waits for what it depends on")
def _cancelled_job_still_waits(patch: Patch) -> None:
    patch.set(entries.Entry, "unblock", lambda self: None)


@_bug("a cancelled job is killed at once, so that it cannot say why it ended")
def _cancelled_job_killed(patch: Patch) -> None:
    def request_stop(self: Any) -> None:
        if self.job.process is not None:
            self.job.process.kill()

    patch.set(attempts.Attempt, "request_stop", request_stop)


# Waiting


@_bug("a job starts although one it depends on failed")
def _dependency_released_on_error(patch: Patch) -> None:
    ended = core.Core._ended

    def _ended(self: Any, job: Any, verdict: Verdict) -> None:
        released = job.released() if verdict.state is JobState.ERROR else []
        ended(self, job, verdict)
        self._make_ready(released)

    patch.set(core.Core, "_ended", _ended)


@_bug("a job waits only for the first of those it depends on")
def _only_one_dependency_awaited(patch: Patch) -> None:
    block = entries.Entry.block

    def only_first(self: Any) -> bool:
        needed = self.dependencies
        self.dependencies = tuple(one for one in needed if not one.origin.is_done)[:1]
        try:
            return block(self)
        finally:
            self.dependencies = needed

    patch.set(entries.Entry, "block", only_first)


@_bug("a transient job is not woken when somebody needs it")
def _transient_never_woken(patch: Patch) -> None:
    patch.set(core.Core, "_with_sleepers", lambda self, first: [first])


@_bug("of transient jobs that need each other only the nearest is woken")
def _transient_woken_too_late(patch: Patch) -> None:
    def _with_sleepers(self: Any, first: Any) -> list[Any]:
        return [first, *(d.origin for d in first.dependencies if d.origin.phase is entries.Phase.ASLEEP)]

    patch.set(core.Core, "_with_sleepers", _with_sleepers)


@_bug("changes of a directory are waited for without a look now and then")
def _no_poll_underneath(patch: Patch) -> None:
    changed = attempts.Attempts.changed

    async def for_ever(self: Any, directory: str, timeout_s: float = 0.0) -> None:
        await changed(self, directory, 1e9 if self._watch(directory) else timeout_s)

    patch.set(attempts.Attempts, "changed", for_ever)


@_bug("the slot of an ended job is not given back")
def _slot_leaked(patch: Patch) -> None:
    slot_free = core.Core._slot_free

    def _slot_free(self: Any, job: Any) -> None:
        slot_free(self, job)
        if job is not None:
            self.slots.take(job)

    patch.set(core.Core, "_slot_free", _slot_free)


@_bug("after a shortage of the machine nothing is started any more")
def _never_resumes(patch: Patch) -> None:
    patch.set(shell.Pauses, "_resume", lambda self, job, error: None)


@_bug("a shortage of the machine fails the job instead of letting it wait")
def _shortage_is_final(patch: Patch) -> None:
    patch.set(shell, "shortage", lambda error: None)


@_bug("a finished job is still counted as waiting")
def _finished_job_not_released(patch: Patch) -> None:
    patch.set(shell.Shell, "_leave", lambda self, job: job.attach(None))


@_bug("who asked to be called when a job is done is not called")
def _callback_forgotten(patch: Patch) -> None:
    patch.set(jobs.Job, "done_handler", lambda self, state: None)


@_bug("nobody waits for the callbacks of a job that was found done")
def _found_done_not_awaited(patch: Patch) -> None:
    patch.set(workers.TaskOutputsWorker, "hold", lambda self, job: self._changed)


@_bug("who waits is not asked again when a job ends")
def _who_waits_forgotten(patch: Patch) -> None:
    patch.set(shell.ExitCondition, "notify_soon", lambda self: None)


# Tokens


@_bug("the runner does not inherit the units of its job, which fall when the scheduler lets go of them")
def _units_not_passed_on(patch: Patch) -> None:
    run = jobs.Job.aio_run

    async def aio_run(self: jobs.Job, order: StartOrder) -> Process:
        return await run(self, order._replace(tokens=()))

    patch.set(jobs.Job, "aio_run", aio_run)


@_bug("the scheduler keeps the units of a job that ended")
def _units_leaked(patch: Patch) -> None:
    def close(self: Any) -> None:
        if self.lock is not None:
            self.lock.close()

    patch.set(tokens.Grant, "close", close)


@_bug("who waits for tokens is forgotten when no unit is free")
def _waiting_for_tokens_forgotten(patch: Patch) -> None:
    settle = token_queue.TokenQueue._settle

    def _settle(self: Any, outcome: Any) -> None:
        settle(self, outcome)
        self._waiting.clear()

    patch.set(token_queue.TokenQueue, "_settle", _settle)


@_bug("what falls free is never kept for a request that was overtaken often enough")
def _nothing_reserved(patch: Patch) -> None:
    patch.set(tokens, "_is_due", lambda ticket, picks: False)


@_bug("how often a request was overtaken is not written down")
def _overtakings_forgotten(patch: Patch) -> None:
    decide = tokens.decide

    def forget(*arguments: Any, **options: Any) -> Any:
        decision = decide(*arguments, **options)
        return decision._replace(tickets=tuple(t._replace(overtaken={}) for t in decision.tickets))

    patch.set(token_queue, "decide", forget)


# Found by the simulation, and fixed since


@_bug("a cancellation that the disk refuses to record fails as it is carried out")
def _cancellation_escapes(patch: Patch) -> None:
    cancel = shell.Shell._cancel

    def _cancel(self: Any, job: Any, message: str) -> None:
        lock = job_directory.take_lock(self.machine, job.paths)
        if lock is not None:
            with contextlib.closing(lock):
                markers.reserve_marker(self.machine.files, job.paths)
        cancel(self, job, message)

    patch.set(shell.Shell, "_cancel", _cancel)


@_bug("a job submitted again is answered by a failure that another scheduler saw before")
def _older_failure_answers_again(patch: Patch) -> None:
    again = intake.Intake._submit_again

    def _submit_again(self: Any, job: Any, given: Any, found: Any) -> None:
        again(self, job, given, None)

    patch.set(intake.Intake, "_submit_again", _submit_again)


@_bug("a cancellation ends what was submitted after it")
def _cancellation_overtaken(patch: Patch) -> None:
    def cancel(self: Any, job: Any, message: str = "cancelled") -> None:
        def act() -> None:
            self._take_in()
            self._feed(Cancelled(job, message))

        self._runner.post(act)

    patch.set(scheduler.Scheduler, "cancel", cancel)


@_bug("of what a job waits for, that which it waited for before counts twice when it ends")
def _end_counted_twice(patch: Patch) -> None:
    block = entries.Entry.block

    def block_again(self: Any) -> bool:
        awaited = [d.origin for d in self.dependencies if not d.origin.is_done]
        twice = sum(self in (other.dependents or ()) for other in awaited)
        is_blocked = block(self)
        if twice and is_blocked:
            self.missing = max(self.missing - twice, 1)
        return is_blocked

    patch.set(entries.Entry, "block", block_again)


@_bug("a job that is tried again loses the tokens it has just got with those of the last attempt")
def _new_tokens_given_back(patch: Patch) -> None:
    release = token_queue.TokenQueue.release
    patch.set(token_queue.TokenQueue, "release", lambda self, job, grant=None: release(self, job))


# Jobs of a cluster


@_bug("a runner of a cluster begins without having made the claim")
def _no_claim(patch: Patch) -> None:
    patch.set(cluster_job.ClusterRunner, "_makes_claim", lambda self, paths, launch: True)


@_bug("the claims of earlier attempts are removed when the next one is opened")
def _claim_cleared_by_the_next_attempt(patch: Patch) -> None:
    clear = job_directory._clear_older_attempts

    def _clear_older_attempts(files: Any, paths: Any) -> None:
        clear(files, paths)
        for name in files.list(paths.private):
            if name.startswith("claim-"):
                files.remove(f"{paths.private}/{name}")

    patch.set(job_directory, "_clear_older_attempts", _clear_older_attempts)


@_bug("an exit code of 75 counts as the end of an attempt")
def _exit_75_believed(patch: Patch) -> None:
    patch.set(observation, "STALE", -1)


@_bug("the fence is shorter than two beats")
def _fence_shorter_than_two_beats(patch: Patch) -> None:
    patch.set(observation, "FENCE_BEATS", 0.5)


@_bug("a job that its cluster does not know any more counts as done")
def _missing_means_done(patch: Patch) -> None:
    after = decisions.after_attempt

    def after_attempt(found: Any, tries: Any, limits: Any) -> Verdict:
        if found.external and found.message == "unknown to the cluster":
            return Verdict(JobState.DONE)
        return after(found, tries, limits)

    patch.set(attempts, "after_attempt", after_attempt)
    patch.set(observation.Observer, "_is_fenced", lambda self, paths, nonce: True)


@_bug("a job that ended in the cluster is lost unless its marker is seen at once")
def _marker_judged_too_early(patch: Patch) -> None:
    patch.set(observation, "marker_patience_s", lambda exit_code: 0.0)


@_bug("a job that waits in the cluster is cancelled without revoking its attempt")
def _revoke_forgotten_on_cancel(patch: Patch) -> None:
    def claim(machine: Any, paths: Any, nonce: str, by: Any, job: Any = None) -> bool:
        return True

    def is_revoked(self: Any, job: Any, launch: Any) -> bool:
        return job.stop is not None

    def look(machine: Any, paths: Any, nonce: str) -> Any:
        found = claims.claimer(machine, paths, nonce)
        stop = attempt_files._readable(read_record(machine.files, paths.stop, StopRecord.decode))
        if found is None and stop is not None:
            return claims.Claim(claims.Claimer.SCHEDULER, "host", stop.requested)
        return found

    patch.set(external_attempts, "claim", claim)
    patch.set(external_attempts.ExternalAttempts, "is_revoked", is_revoked)
    patch.set(job_directory, "claimer", look)


@_bug("the end of the job that an attempt was given to counts, though the process of another one runs it")
def _claim_not_followed(patch: Patch) -> None:
    report = observation.Observer.report
    patch.set(
        observation.Observer,
        "report",
        lambda self, paths, launch, see: report(self, paths, launch, lambda job: see(None)),
    )


@_bug("a launcher writes launch.json once more, with the cluster's id, after its submission was answered")
def _launch_rewritten_after_the_submission(patch: Patch) -> None:
    start = cluster.FakeClusterLauncher.start

    async def rewrite(self: Any, order: StartOrder) -> Any:
        process = await start(self, order)
        await asyncio.sleep(2.0)
        self.view.machine.files.replace(order.paths.launch, order.launch.encode(), durable=False)
        return process

    patch.set(cluster.FakeClusterLauncher, "start", rewrite)


# Needs that grow


@_bug("a job that its cluster lost asks for more memory the next time")
def _grown_after_preemption(patch: Patch) -> None:
    after = decisions.after_attempt

    def after_attempt(found: Any, tries: Tries, limits: Any) -> Verdict:
        verdict = after(found, tries, limits)
        if verdict.tries is not None and found.reason is JobFailureStatus.LOST:
            return verdict._replace(tries=verdict.tries.after(decisions.Cause.MEMORY))
        return verdict

    patch.set(attempts, "after_attempt", after_attempt)
    patch.set(decisions, "after_attempt", after_attempt)


@_bug("one failure counts twice, and the next attempt asks for four times as much")
def _grown_twice_for_one_failure(patch: Patch) -> None:
    after = decisions.Tries.after

    def after_twice(self: Tries, cause: Any) -> Tries:
        return after(after(self, cause), cause)

    patch.set(decisions.Tries, "after", after_twice)


@_bug("an attempt asks for more than the bound of its rule")
def _grown_beyond_the_bound(patch: Patch) -> None:
    def grown(self: Any, needs: Any, times: int) -> Any:
        before = getattr(needs, self.need)
        return needs if before is None else needs._replace(**{self.need: int(before * self.factor**times)})

    patch.set(decisions.Growth, "grown", grown)


@_bug("a job that rests before its next attempt is forgotten")
def _rest_without_end(patch: Patch) -> None:
    patch.set(shell.Shell, "_rest", lambda self, job, after_s: None)
