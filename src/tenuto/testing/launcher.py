"""A launcher whose runners are entries in the table of a `FakeHost`, for the simulator and for fast tests.

A fake runner takes the steps of a real one, in the same order and by the same functions, on the fake disk.
Between two steps time may pass, and at each it can be killed. Its timers are the running loop's, so that on a
`VirtualLoop` all of it is deterministic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum, unique
from signal import SIGKILL
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

from tenuto.errors import LockLost
from tenuto.launchers.instructions import Instructions, Limits
from tenuto.launchers.payload.report import Report, disk_message
from tenuto.launchers.protocols import StartOrder
from tenuto.launchers.runner.runner_protocol import STALE, UNRECORDED
from tenuto.launchers.runner.verdict import Ending, PayloadStop, judge
from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.testing.disk import Crash
from tenuto.testing.host import FakeHost
from tenuto.workspace import job_directory
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import DESCENDANTS_BYTE, Machine, ProcessIdentity
from tenuto.workspace.records import LaunchRecord, PidRecord, StatusRecord

if TYPE_CHECKING:
    from tenuto.launchers.requirements import Alternative


@unique
class Step(IntEnum):
    """What a runner is about to do."""

    BEGIN = 0
    WRITE_PID = 1
    SAY_READY = 2
    FORK = 3
    CONCLUDE = 4
    WRITE_MARKER = 5
    EXIT = 6


class FakePayload(NamedTuple):
    """What a pretended task does."""

    duration_s: float = 1.0
    exit_code: int = 0
    result: Any = None
    reason: JobFailureStatus | None = None
    """Its own report, as an exception would give."""
    stops_after_s: float | None = 0.0
    """How long it takes to end once it is asked to; None if it does not listen."""
    leaves_daemon: bool = False
    """If its runner is killed, something of it lives on."""
    on_start: Callable[[Machine, StartOrder], None] | None = None
    """The task's own doing, when it starts and when it ends by itself."""
    on_end: Callable[[Machine, StartOrder], None] | None = None


Behaviour = Callable[[StartOrder], FakePayload]
Delay = Callable[[Step], float]
T = TypeVar("T")


class Timer(Protocol):
    """A call that can be taken back."""

    def cancel(self) -> None: ...


class FakeLauncher:
    """A `Launcher` on a `FakeHost`. All schedulers of the host share it, as they share a machine."""

    external = False
    lock_path: str | None = None
    limits: Limits | None = None

    def __init__(
        self,
        host: FakeHost,
        behaviour: Behaviour = lambda order: FakePayload(),
        *,
        name: str = "fake",
        slots: int = 4,
        delay: Delay = lambda step: 0.001,
        dies_at: Callable[[StartOrder], Step | None] = lambda order: None,
    ) -> None:
        """`delay`: how long a runner takes to get to a step. `dies_at`: the step at which it is killed."""
        self.name = name
        self.slots = slots
        self.host = host
        self.behaviour = behaviour
        self.delay = delay
        self.dies_at = dies_at
        self.errors: list[BaseException] = []
        """What the next starts raise, one each, instead of starting anything."""
        self.runners: dict[ProcessIdentity, FakeRunner] = {}

    @property
    def pool(self) -> object:
        return self

    def adapted(self, alternative: Alternative) -> Self:
        """This launcher: the limits of a job on this machine go with the job."""
        return self

    async def start(self, order: StartOrder) -> FakeProcess:
        if self.errors:
            raise self.errors.pop(0)
        runner = FakeRunner(self, order)
        self.runners[runner.identity] = runner
        runner.go_on(Step.BEGIN)
        return FakeProcess(self, runner, order.launch.attempt)

    def find(self, paths: JobPaths, launch: LaunchRecord, pid: PidRecord | None) -> FakeProcess | None:
        if pid is None or pid.attempt != launch.attempt or pid.identity not in self.runners:
            return None
        runner = self.runners[pid.identity]
        return FakeProcess(self, runner, launch.attempt) if runner.alive() else None

    async def sweep(self, paths: JobPaths, launch: LaunchRecord | None) -> tuple[int, ...]:
        for pid in self.host.locks.holders(paths.lock, DESCENDANTS_BYTE):
            self.host.end(pid)
        return ()

    def close(self) -> None:
        pass

    # What a simulator does in its own way.

    def call_later(self, runner: FakeRunner, seconds: float, action: Callable[[], None]) -> Timer:
        """Has a runner continue after a while."""
        return asyncio.get_running_loop().call_later(seconds, action)

    def deliver(self, runner: FakeRunner, signal: Callable[[], None]) -> None:
        """Hands a runner a signal that it handles itself."""
        signal()

    def gone(self, runner: FakeRunner) -> None:
        """A runner ended, however it went."""

    def notice(self) -> None:
        """Tell the waiters of every runner that is gone: to be called after a power loss and the like."""
        for runner in self.runners.values():
            if not runner.alive():
                runner.end()


class _News(Generic[T]):
    """Something that becomes known once, and that many may wait for, each in a loop of its own."""

    def __init__(self) -> None:
        self._told: list[T] = []
        self._waiting: list[asyncio.Future[T]] = []

    def tell(self, value: T) -> None:
        """The first word counts."""
        if self._told:
            return
        self._told.append(value)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(value)

    async def heard(self) -> T:
        if self._told:
            return self._told[0]
        waiter: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return await waiter


class FakeRunner:
    """A runner and its payload: two processes of the host, moved on by timers."""

    def __init__(self, launcher: FakeLauncher, order: StartOrder) -> None:
        self.order = order
        self.exit_code: int | None = None
        self.confirmed: _News[bool] = _News()
        self.ended: _News[None] = _News()
        self._launcher = launcher
        self._host = launcher.host
        self._pid = launcher.host.start()
        self._payload_pid: int | None = None
        self._payload = launcher.behaviour(order)
        self._dies_at = launcher.dies_at(order)
        self._machine = launcher.host.machine(self._pid)
        self.identity = self._machine.processes.own()
        self._instructions = Instructions.of(order.launch)
        self._stop: PayloadStop | None = None
        self._ending: Ending | None = None
        self._timers: list[Timer] = []
        self._inherit()

    def _inherit(self) -> None:
        """The runner has the descriptors that it was started with."""
        for lock in (*self.order.locks, *self.order.tokens):
            self._host.locks.inherit(lock, self._pid)  # type: ignore[arg-type]

    def alive(self) -> bool:
        return self._host.processes.identify(self._pid) == self.identity

    def go_on(self, step: Step) -> None:
        self._later(self._launcher.delay(step), lambda: self._take(step))

    def ask_to_stop(self) -> None:
        """TERM."""
        if self._stop is not None or not self.alive():
            return
        asked = None
        with suppress(OSError):  # as `Supervisor._asked`: then there is only the signal
            asked = job_directory.read_stop(self._machine.files, self.order.paths, self.order.launch.attempt)
        reason = asked.reason if asked else JobFailureStatus.CANCELLED
        self._end_payload(PayloadStop(reason, (asked and asked.message) or "stopped"))

    def kill(self) -> None:
        """KILL."""
        if self.alive():
            self.exit_code = -SIGKILL
            self.end()

    def end(self) -> None:
        """The process is gone, however it went."""
        for timer in self._timers:
            timer.cancel()
        self._host.end(self._pid)
        if self._payload_pid is not None and not self._payload.leaves_daemon:
            self._host.end(self._payload_pid)
        self._launcher.gone(self)
        self.confirmed.tell(False)
        self.ended.tell(None)

    # The steps.

    def _take(self, step: Step) -> None:
        if not self.alive():
            self.end()
        elif step is self._dies_at:
            self.kill()
        else:
            self._guarded(getattr(self, _STEPS[step]))

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except OSError as error:
            self._fail(error)
        except Crash:
            self.kill()

    def _begin(self) -> None:
        if not self._is_current():
            self._exit(STALE)
        else:
            self.go_on(Step.WRITE_PID)

    def _is_current(self) -> bool:
        """As `attempt._current_launch`."""
        paths, launch = self.order.paths, self.order.launch
        try:
            found = job_directory.read_launch(self._machine.files, paths)
            lock, descendants = self.order.locks
            self._machine.locks.adopt(lock.fileno(), paths.lock)
            self._machine.locks.adopt(descendants.fileno(), paths.lock, DESCENDANTS_BYTE)
        except LockLost:
            return False
        return found is not None and found.nonce == launch.nonce

    def _write_pid(self) -> None:
        record = PidRecord(self.identity, self.order.launch.attempt, self._machine.clock.now())
        job_directory.write_pid(self._machine.files, self.order.paths, record)
        self.started = record.started
        self.go_on(Step.SAY_READY)

    def _say_ready(self) -> None:
        self.confirmed.tell(True)
        self.go_on(Step.FORK)

    def _fork(self) -> None:
        self._payload_pid = self._host.start()
        self._pass_on_descendants(self._payload_pid)
        if self._payload.on_start is not None:
            self._payload.on_start(self._machine, self.order)
        if self._stop is not None:
            self._end_payload(self._stop)
            return
        self._later(self._payload.duration_s, self._payload_ends)
        walltime_s = self._instructions.limits.walltime_s
        if walltime_s is not None:
            timeout = PayloadStop(JobFailureStatus.TIMEOUT, f"it ran longer than {walltime_s:g} s")
            self._later(walltime_s, lambda: self._end_payload(timeout))

    def _pass_on_descendants(self, payload: int) -> None:
        _, descendants = self.order.locks
        self._host.locks.inherit(descendants, payload)  # type: ignore[arg-type]
        # The runner closes its copy of the second byte, so that the payload alone holds it.
        self._machine.locks.adopt(descendants.fileno(), self.order.paths.lock, DESCENDANTS_BYTE).close()

    def _payload_ends(self) -> None:
        if self._ending is None:
            if self._payload.on_end is not None:
                self._payload.on_end(self._machine, self.order)
            report = Report(
                done=self._payload.exit_code == 0 and self._payload.reason is None,
                result=self._payload.result,
                reason=self._payload.reason,
                message=self._payload.reason and "as it was told to",
            )
            self._conclude_with(Ending(exit_code=self._payload.exit_code, report=report, stop=self._stop))

    def _end_payload(self, stop: PayloadStop) -> None:
        """As `Supervisor._end`: ask, and kill once the grace is over."""
        outranked = self._stop is not None and self._stop.reason is JobFailureStatus.TIMEOUT
        if self._stop is None or (outranked and stop.reason is JobFailureStatus.CANCELLED):
            self._stop = stop
        if self._payload_pid is None:
            return  # as soon as there is one
        grace_s = self._instructions.limits.grace_s
        stops_after_s = self._payload.stops_after_s
        if stops_after_s is not None and stops_after_s < grace_s:
            self._later(stops_after_s, lambda: self._conclude_with(Ending(signal=15, stop=self._stop)))
        else:
            killed = Ending(signal=9, grace_over=True)
            self._later(grace_s, lambda: self._conclude_with(killed._replace(stop=self._stop)))

    def _conclude_with(self, ending: Ending) -> None:
        if self._ending is None:
            self._ending = ending
            self.go_on(Step.CONCLUDE)

    def _conclude(self) -> None:
        assert self._payload_pid is not None
        self._host.end(self._payload_pid)
        self.go_on(Step.WRITE_MARKER)

    def _write_marker(self) -> None:
        assert self._ending is not None
        verdict = judge(self._ending)
        marker = Marker(
            attempt=self.order.launch.attempt,
            nonce=self.order.launch.nonce,
            reason=verdict.reason,
            message=verdict.message,
            exit_code=self._ending.exit_code,
            signal=self._ending.signal,
            starttime=self.started,
            endtime=self._machine.clock.now(),
        )
        if marker.reason is None:
            marker = job_directory.preserve(
                self._machine.files,
                self.order.paths,
                marker,
                self._ending.report.result,
                self._instructions.durability,
            )
        self._finish(marker)
        self.go_on(Step.EXIT)

    def _finish(self, marker: Marker) -> None:
        record = StateRecord(
            state=JobState.DONE if marker.reason is None else JobState.ERROR,
            reason=marker.reason,
            message=marker.message,
            starttime=marker.starttime,
            endtime=marker.endtime,
        )
        status = StatusRecord(
            self._instructions.job_id,
            self._instructions.task_id,
            record,
            marker.attempt,
            exit_code=marker.exit_code,
        )
        durability = self._instructions.durability
        launch = self.order.launch
        job_directory.finish(self._machine.files, self.order.paths, marker, status, durability, launch)

    def _fail(self, error: OSError) -> None:
        """As `attempt.run`: what the disk refuses ends the attempt, with a marker if that can be written."""
        now = self._machine.clock.now()
        launch = self.order.launch
        marker = Marker(
            launch.attempt,
            launch.nonce,
            JobFailureStatus.FAILED,
            disk_message(error),
            starttime=now,
            endtime=now,
        )
        try:
            self._finish(marker)
        except OSError:
            self._exit(UNRECORDED)
        else:
            self._exit(0)

    def _exit(self, code: int = 0) -> None:
        self.exit_code = code
        self.end()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        def act() -> None:
            if self.alive():
                action()
            else:
                self.end()

        self._timers.append(self._launcher.call_later(self, seconds, act))


_STEPS: dict[Step, str] = {
    Step.BEGIN: "_begin",
    Step.WRITE_PID: "_write_pid",
    Step.SAY_READY: "_say_ready",
    Step.FORK: "_fork",
    Step.CONCLUDE: "_conclude",
    Step.WRITE_MARKER: "_write_marker",
    Step.EXIT: "_exit",
}


class FakeProcess:
    """A `Process` of a `FakeLauncher`."""

    def __init__(self, launcher: FakeLauncher, runner: FakeRunner, attempt: int) -> None:
        self._launcher = launcher
        self._runner = runner
        self._attempt = attempt

    @property
    def exit_code(self) -> int | None:
        return self._runner.exit_code

    async def confirmed(self) -> bool:
        return await self._runner.confirmed.heard()

    async def wait(self) -> None:
        await self._runner.ended.heard()

    def signal_stop(self) -> None:
        self._launcher.deliver(self._runner, self._runner.ask_to_stop)

    def kill(self) -> None:
        self._runner.kill()

    def describe(self) -> dict[str, Any]:
        identity = self._runner.identity
        return {
            "launcher": self._launcher.name,
            "host": identity.host,
            "pid": identity.pid,
            "attempt": self._attempt,
        }

    def close(self) -> None:
        pass
