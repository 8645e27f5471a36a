"""The watch over a running payload: signals, walltime, logs, leftovers, until nothing of it is left.
Single-threaded, and all signals are taken by `sigtimedwait`: no handler ever runs, so none can come between.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

from tenuto.launchers.kernel import is_unlinked
from tenuto.launchers.leftovers import kill_descendants
from tenuto.launchers.payload.limits import BoundedLogs, OutputLimit, group_kills, is_large, machine_kills
from tenuto.launchers.payload.payload import Payload
from tenuto.launchers.payload.report import Report, read_report
from tenuto.launchers.runner.runner_protocol import ENDING, PASSED_ON, TAKEN, signal_name
from tenuto.launchers.runner.verdict import Ending, PayloadStop, looks_killed
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.light import late, signal
from tenuto.workspace.attempt_files import read_stop, request_stop
from tenuto.workspace.records import StopRecord

if TYPE_CHECKING:
    from tenuto.launchers.runner import beats, process_events
    from tenuto.launchers.runner.beats import Beats, Lease
    from tenuto.launchers.runner.process_events import ProcessEvents
else:
    beats = late("tenuto.launchers.runner.beats")
    process_events = late("tenuto.launchers.runner.process_events")

_EVENTS_AFTER_S = 1.0
"""Shorter jobs leave no events of their own: their marker says everything, and a no-op would pay double."""
_KILL_AGAIN_S = 0.1
_PATIENCE_S = 0.5
"""For helpers that end by themselves when they see the payload gone, such as multiprocessing's tracker."""
_SIGNALS_APART_S = 2.0
"""A cluster signals the processes of a job one after another: the payload may hear of the end first."""
LEFTOVERS_ALIVE = "leftovers_alive"
"""In the marker: processes of the job could not be ended."""
_GIVE_UP_S = 10.0
"""A process that survives KILL this long hangs in the kernel; the supervisor cannot wait for it."""


class Supervisor:
    """Watches one payload."""

    def __init__(self, payload: Payload, child: int, logs: BoundedLogs) -> None:
        self._payload = payload
        self._child = child
        self._logs = logs
        self._clock = payload.machine.clock
        self._limits = payload.instructions.limits
        self._began = self._clock.monotonic()
        self._look_at_logs = self._began + logs.pause_s
        self._kill_at: float | None = None
        self._stop: PayloadStop | None = None
        self._is_stop_late = False
        self._grace = True
        """The payload is asked to end before it is killed."""
        self._grace_over = False
        self._status: int | None = None
        self._cpu_s = [0.0, 0.0]
        self._max_rss = 0
        self._flags: list[str] = []
        self._kills_before: int | None = None
        self._lease: Lease | None = None
        if self._limits.lease_path is not None:
            self._lease = beats.Lease(self._limits, self._began)
        self._events: ProcessEvents | None = None
        self._events_due = self._began + _EVENTS_AFTER_S
        self._beats: Beats | None = None
        self._unexplained = False
        if payload.beat_s is not None:  # a cluster started this runner
            self._beats = beats.Beats(payload, payload.beat_s)
            self._group_kills_before = group_kills()
        with suppress(OSError):  # the payload does it too; the first of the two does it
            os.setpgid(child, child)

    def supervise(self) -> Ending:
        """Return once the payload and all it started are gone."""
        while self._status is None:
            self._take_signal(min(self._due()) - self._clock.monotonic())
            self._reap()
            if self._status is None:
                self._act_on_time(self._clock.monotonic())
        if self._events is not None:
            self._events.payload_gone()
        if self._beats is not None and self._stop is None:
            self._hear_of_the_end(self._status)
        self._end_leftovers()
        self._bound_logs()
        return self._ending(self._status)

    def flags(self) -> tuple[str, ...]:
        return (*self._flags, "truncated") if self._logs.truncated else tuple(self._flags)

    def usage(self) -> dict[str, float]:
        return {
            "wall_s": round(self._clock.monotonic() - self._began, 6),
            "user_s": round(self._cpu_s[0], 6),
            "system_s": round(self._cpu_s[1], 6),
            "max_rss_bytes": self._max_rss * 1024,
        }

    # Signals.

    def _take_signal(self, timeout_s: float) -> None:
        taken = signal.sigtimedwait(TAKEN, max(timeout_s, 0.0))
        if taken is None:
            return
        if taken.si_signo in ENDING:
            if not self._is_meant_for_earlier():
                self._end(self._asked(signal_name(taken.si_signo)))
        elif taken.si_signo == signal.SIGUSR1 and self._beats is not None:
            self._time_is_up("its cluster says that its time is nearly up")
        elif taken.si_signo in PASSED_ON:
            os.kill(self._child, taken.si_signo)

    def _asked(self, signal_name: str) -> PayloadStop:
        """What `stop.json` says of the end that was asked for."""
        request = self._request()
        self._unexplained |= request is None and self._beats is not None
        return request or PayloadStop(JobFailureStatus.CANCELLED, f"its runner was sent {signal_name}")

    def _is_meant_for_earlier(self) -> bool:
        """True if a scheduler stops a job that this process ran before, and that ended before the signal."""
        files = self._payload.machine.files
        return self._request() is None and any(files.stat(path) is not None for path in self._payload.earlier)

    def _hear_of_the_end(self, status: int) -> None:
        """The payload of an external attempt may have ended by TERM: the runner's own may be on its way."""
        said = self._report()
        is_by_term = said.reason is JobFailureStatus.CANCELLED or said.handles_term
        is_by_term = is_by_term or os.waitstatus_to_exitcode(status) == -signal.SIGTERM
        taken = signal.sigtimedwait(ENDING, _SIGNALS_APART_S if is_by_term else 0.0)
        if self._request() is not None or (taken is not None and not self._is_meant_for_earlier()):
            self._stop = self._asked("SIGTERM")
            # A task that leaves TERM to Tenuto reports it; of a command the runner cannot know.
            self._is_stop_late = said.done and not said.handles_term

    def _request(self) -> PayloadStop | None:
        payload = self._payload
        with suppress(OSError):  # the directory is gone: then there is only the signal
            asked = read_stop(payload.machine.files, payload.paths, payload.launch.attempt)
            if asked is not None:
                return PayloadStop(asked.reason, asked.message or "stopped")
        return None

    def _end(self, stop: PayloadStop) -> None:
        """Ask the payload to end; the first reason counts, but a person outranks the clock.

        What timed out may be tried again, and what a person was told would stop may not.
        """
        if self._stop is not None:
            outranked = self._stop.reason is JobFailureStatus.TIMEOUT
            if outranked and stop.reason is JobFailureStatus.CANCELLED:
                self._stop = stop
            return
        self._note(stop)
        if self._status is not None:
            return
        self._kill_at = self._clock.monotonic() + self._limits.grace_s
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process takes no TERM
            with suppress(ProcessLookupError):
                # A Python task ends its own children; a shell would leave its foreground command running.
                if self._payload.is_command:
                    os.killpg(self._child, number)
                else:
                    os.kill(self._child, number)
        self._process_events().stopping()

    def _note(self, stop: PayloadStop) -> None:
        """Remember the request, and whether the payload had ended or reported its result before it."""
        self._reap()
        said = self._report()
        self._is_stop_late = (self._status is not None or said.done) and not said.is_late
        self._stop = stop

    # Time.

    def _due(self) -> list[float]:
        due = [self._look_at_logs, self._events_due]
        if self._beats is not None:
            due.append(self._beats.due)
        if self._lease is not None:
            due.append(self._lease.due)
        if self._kill_at is not None:
            due.append(self._kill_at)
        elif self._payload.deadline is not None:
            due.append(self._payload.deadline)
        return due

    def _act_on_time(self, now: float) -> None:
        if self._beats is not None and now >= self._beats.due:
            self._beat(self._beats, now)
        if self._lease is not None and now >= self._lease.due:
            self._look_at_lease(self._lease, now)
        if self._kill_at is not None and now >= self._kill_at:
            self._grace_over = self._grace
            kill_descendants()
            self._kill_at = now + _KILL_AGAIN_S
        elif self._kill_at is None and self._payload.deadline is not None and now >= self._payload.deadline:
            self._time_is_up()
        if now >= self._look_at_logs:
            if self._kills_before is None:  # not at once: a short job has no time to fill the memory
                self._kills_before = machine_kills()
            self._bound_logs()
            self._look_at_directory(now)
            self._look_at_logs = now + self._logs.pause_s
        if now >= self._events_due:
            events = self._process_events()
            if now >= events.due:
                events.act(now)
            self._events_due = events.due

    def _beat(self, beats: Beats, now: float) -> None:
        beats.act(now)
        if beats.is_given_up:
            self._note(PayloadStop(JobFailureStatus.LOST, "it was given up"))
            self._kill_at = now
        elif (request := self._request()) is not None:
            self._end(request)

    def _look_at_directory(self, now: float) -> None:
        """End the payload at once if the job's directory was deleted: another may begin in a new one."""
        lock = self._payload.lock
        if lock is not None and is_unlinked(lock):
            self._events = None  # the journal is the next runner's
            self._end_at_once(
                PayloadStop(JobFailureStatus.DELETED, "DIR_GONE: its directory was deleted"), now
            )

    def _end_at_once(self, stop: PayloadStop, now: float) -> None:
        if self._stop is None:
            self._note(stop)
        self._grace = False
        kill_descendants()
        self._kill_at = now + _KILL_AGAIN_S

    def _look_at_lease(self, lease: Lease, now: float) -> None:
        """End the payload at once if its lease is over: another machine may be about to run the job."""
        lease.look(now)
        if lease.is_over:
            self._end_at_once(PayloadStop(JobFailureStatus.LOST, lease.message), now)

    def _time_is_up(self, message: str | None = None) -> None:
        asked = self._request()
        if asked is not None:  # its signal is on the way
            self._end(asked)
            return
        payload = self._payload
        stop = self._timeout(message)
        record = StopRecord(payload.launch.attempt, stop.reason, self._clock.now(), stop.message)
        with suppress(OSError):  # the payload then takes the signal for a cancellation: it ends all the same
            request_stop(payload.machine.files, payload.paths, record)
        self._end(stop)

    def _timeout(self, message: str | None = None) -> PayloadStop:
        return PayloadStop(
            JobFailureStatus.TIMEOUT, message or f"it ran longer than {self._payload.walltime_s:g} s"
        )

    def _process_events(self) -> ProcessEvents:
        """For jobs that have run for a moment: a shorter one pays nothing for it, not even the import."""
        if self._events is None:
            self._events = process_events.ProcessEvents(self._payload, self._began)
            assert self._events is not None
            self._events_due = self._events.due
        return self._events

    def _bound_logs(self) -> None:
        try:
            self._logs.check()
        except OutputLimit as limit:
            self._end(PayloadStop(JobFailureStatus.FAILED, f"OUTPUT_LIMIT: {limit}"))

    # Processes.

    def _reap(self) -> bool:
        """Collect every child that ended; False if there are no children left at all."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if self._events is not None and self._events.took_leave(pid):
                continue
            self._cpu_s[0] += usage.ru_utime
            self._cpu_s[1] += usage.ru_stime
            self._max_rss = max(self._max_rss, usage.ru_maxrss)
            if pid == self._child:
                self._status = status

    def _end_leftovers(self) -> None:
        """End whatever the payload left. Every orphan of it has become a child, so none can be missed."""
        if not self._anything_left():
            return
        began = self._clock.monotonic()
        while self._anything_left():
            waited = self._clock.monotonic() - began
            if waited > _GIVE_UP_S:
                self._flags.append(LEFTOVERS_ALIVE)
                return
            if waited > _PATIENCE_S or self._stop is not None:
                self._note_leftovers()
                kill_descendants()
            signal.sigtimedwait({signal.SIGCHLD}, _KILL_AGAIN_S)

    def _anything_left(self) -> bool:
        """Whether a process of the payload is left; the meter of the runner does not count."""
        return self._reap() and (self._events is None or not self._events.is_alone())

    def _note_leftovers(self) -> None:
        if self._stop is None and "leftovers" not in self._flags:
            self._flags.append("leftovers")

    def _ending(self, status: int) -> Ending:
        code = os.waitstatus_to_exitcode(status)
        exit_code, number = (code, None) if code >= 0 else (None, -code)
        if self._events is not None:
            self._events.ended(exit_code, number)
        memory = self._payload.memory
        out_of_memory = over_limit = memory is not None and memory.kills() > 0
        if looks_killed(exit_code, number) and is_large(self._max_rss * 1024):
            # Where memory is short this process is slow, too: the payload may be dead before the first look.
            # A large one that was killed so early was killed by the kernel, if that ever killed anything.
            out_of_memory = out_of_memory or machine_kills() > (self._kills_before or 0)
        if memory is not None:
            memory.close()
        if self._beats is not None:
            out_of_memory = out_of_memory or group_kills() > self._group_kills_before
            self._explain()
        said = self._report()
        if said.is_late and self._stop is None:  # the task looked at the clock first
            self._stop = self._timeout()
        return Ending(
            exit_code=exit_code,
            signal=number,
            report=said,
            stop=self._stop,
            is_stop_late=self._is_stop_late,
            grace_over=self._grace_over,
            out_of_memory=out_of_memory,
            over_limit=over_limit,
            given_up=self._beats is not None and (self._beats.is_given_up or self._beats.is_replaced()),
            unexplained=self._unexplained,
        )

    def _report(self) -> Report:
        return read_report(self._payload.report, executes=self._payload.instructions.program is None)

    def _explain(self) -> None:
        """The disk may have shown only by now why a scheduler has the cluster end the job."""
        request = self._request() if self._unexplained else None
        if request is not None:
            self._stop, self._unexplained = request, False
