"""The table behind `derive_state`: what a job's directory shows -> the state of the job.
Only data; `docs/lifecycle.md` prints it, and a test covers each row.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import NamedTuple

from tenuto.lifecycle.states import JobFailureStatus, JobState


@unique
class Action(Enum):
    """What a scheduler that wants the job done does next."""

    KEEP = "nothing: the state is final"
    START = "start it, or retry it if the rules allow"
    WATCH = "wait: another process has it"
    SWEEP = "take the lock, end the leftovers, then derive again"


@unique
class ClusterSays(Enum):
    """What a cluster says about a job it runs."""

    NOTHING = "no answer"
    PENDING = "pending"
    RUNNING = "running"
    ENDED = "ended"


@unique
class Mark(Enum):
    """What the markers of the current attempt say."""

    NONE = "none"
    DONE = "`.done`"
    FAILED = "`.failed`"
    BOTH = "both"
    CORRUPT = "unreadable"


@unique
class Launch(Enum):
    """What `launch.json` says."""

    NONE = "none"
    LOCAL = "local"
    EXTERNAL = "external"
    CORRUPT = "unreadable"


@unique
class Claimed(Enum):
    """What the claim on the current attempt says, if another system starts it."""

    NONE = "none"
    BEGUN = "a runner's"
    REVOKED = "revoked"


@unique
class Runner(Enum):
    """The fate of the process in the pid record of the current attempt."""

    NONE = "no record"
    ALIVE = "alive"
    DEAD = "dead"
    REBOOTED = "rebooted"
    UNKNOWN = "elsewhere"


class Facts(NamedTuple):
    """The evidence, reduced to what the table asks."""

    mark: Mark
    launch: Launch
    locked: bool
    runner: Runner
    descendants: bool
    claimed: Claimed
    cluster: ClusterSays


class TableRow(NamedTuple):
    """One line of the table. A condition that is None fits anything."""

    name: str
    state: JobState
    action: Action
    mark: tuple[Mark, ...] = (Mark.NONE,)
    launch: tuple[Launch, ...] | None = None
    locked: bool | None = None
    runner: tuple[Runner, ...] | None = None
    descendants: bool | None = None
    claimed: tuple[Claimed, ...] | None = None
    cluster: tuple[ClusterSays, ...] | None = None
    reason: JobFailureStatus | None = None
    message: str | None = None
    alarming: bool = False
    payload_may_have_run: bool = True

    @property
    def asks_for_mark_alone(self) -> bool:
        others = (self.launch, self.locked, self.runner, self.descendants, self.claimed, self.cluster)
        return all(condition is None for condition in others)

    def fits(self, facts: Facts) -> bool:
        return (
            facts.mark in self.mark
            and (self.launch is None or facts.launch in self.launch)
            and (self.locked is None or facts.locked == self.locked)
            and (self.runner is None or facts.runner in self.runner)
            and (self.descendants is None or facts.descendants == self.descendants)
            and (self.claimed is None or facts.claimed in self.claimed)
            and (self.cluster is None or facts.cluster in self.cluster)
        )


_STARTED = (Runner.ALIVE, Runner.DEAD, Runner.REBOOTED, Runner.UNKNOWN)

ROWS: tuple[TableRow, ...] = (
    # A marker of the current attempt is the last word.
    TableRow("done", JobState.DONE, Action.KEEP, mark=(Mark.DONE,)),
    TableRow("failed", JobState.ERROR, Action.KEEP, mark=(Mark.FAILED,)),
    TableRow(
        "contradiction",
        JobState.ERROR,
        Action.KEEP,
        mark=(Mark.BOTH,),
        message="both .done and .failed exist; .failed counts",
        alarming=True,
    ),
    TableRow(
        "unreadable marker",
        JobState.ERROR,
        Action.KEEP,
        mark=(Mark.CORRUPT,),
        reason=JobFailureStatus.FAILED,
        message="CORRUPT: its marker cannot be read",
        alarming=True,
    ),
    # The lock is held: a process has the job.
    TableRow(
        "held after its runner died",
        JobState.ERROR,
        Action.WATCH,
        locked=True,
        runner=(Runner.DEAD,),
        reason=JobFailureStatus.LOST,
        message="its runner died; a scheduler that takes it up, or something it left, holds the lock",
    ),
    TableRow(
        "running, launch record unreadable",
        JobState.RUNNING,
        Action.WATCH,
        launch=(Launch.CORRUPT,),
        locked=True,
        message="launch.json cannot be read",
        alarming=True,
    ),
    TableRow("running", JobState.RUNNING, Action.WATCH, locked=True, runner=(Runner.ALIVE, Runner.UNKNOWN)),
    TableRow(
        "being prepared",
        JobState.SCHEDULED,
        Action.WATCH,
        launch=(Launch.NONE,),
        locked=True,
        message="a scheduler is preparing it",
        payload_may_have_run=False,
    ),
    TableRow(
        "taken up after a reboot",
        JobState.SCHEDULED,
        Action.WATCH,
        locked=True,
        runner=(Runner.REBOOTED,),
        message="a scheduler is preparing it",
    ),
    TableRow("starting", JobState.SCHEDULED, Action.WATCH, locked=True, payload_may_have_run=False),
    # The lock is free, but something of the job may still run.
    TableRow(
        "running, lock file replaced",
        JobState.RUNNING,
        Action.WATCH,
        locked=False,
        runner=(Runner.ALIVE,),
        message="its runner is alive, but its lock file was deleted or replaced",
        alarming=True,
    ),
    TableRow(
        "leftovers",
        JobState.ERROR,
        Action.SWEEP,
        launch=(Launch.NONE, Launch.LOCAL, Launch.CORRUPT),
        locked=False,
        descendants=True,
        reason=JobFailureStatus.LOST,
        message="its runner is gone, and processes it left still run",
    ),
    TableRow(
        "leftovers in the cluster",
        JobState.ERROR,
        Action.WATCH,
        launch=(Launch.EXTERNAL,),
        locked=False,
        descendants=True,
        reason=JobFailureStatus.LOST,
        message="its runner is gone, and processes it left still run",
    ),
    # Nothing of it runs here, but a cluster may have it.
    TableRow(
        "revoked",
        JobState.ERROR,
        Action.START,
        launch=(Launch.EXTERNAL,),
        locked=False,
        claimed=(Claimed.REVOKED,),
        reason=JobFailureStatus.LOST,
        message="it was given up before it began",
        payload_may_have_run=False,
    ),
    TableRow(
        "pending in the cluster",
        JobState.SCHEDULED,
        Action.WATCH,
        launch=(Launch.EXTERNAL,),
        locked=False,
        cluster=(ClusterSays.PENDING,),
    ),
    TableRow(
        "running in the cluster",
        JobState.RUNNING,
        Action.WATCH,
        launch=(Launch.EXTERNAL,),
        locked=False,
        cluster=(ClusterSays.RUNNING,),
    ),
    TableRow(
        "ended in the cluster, never begun",
        JobState.ERROR,
        Action.START,
        launch=(Launch.EXTERNAL,),
        locked=False,
        claimed=(Claimed.NONE,),
        cluster=(ClusterSays.ENDED,),
        reason=JobFailureStatus.LOST,
        message="the cluster says it ended, and it never began",
        payload_may_have_run=False,
    ),
    TableRow(
        "ended in the cluster",
        JobState.ERROR,
        Action.START,
        launch=(Launch.EXTERNAL,),
        locked=False,
        cluster=(ClusterSays.ENDED,),
        reason=JobFailureStatus.LOST,
        message="the cluster says it ended, and it left no marker",
    ),
    TableRow(
        "cluster silent, seen running",
        JobState.RUNNING,
        Action.WATCH,
        launch=(Launch.EXTERNAL,),
        locked=False,
        runner=_STARTED,
        cluster=(ClusterSays.NOTHING,),
        message="the cluster does not answer",
    ),
    TableRow(
        "cluster silent",
        JobState.SCHEDULED,
        Action.WATCH,
        launch=(Launch.EXTERNAL,),
        locked=False,
        cluster=(ClusterSays.NOTHING,),
        message="the cluster does not answer",
    ),
    # Nothing of it runs anywhere.
    TableRow(
        "untouched",
        JobState.UNSCHEDULED,
        Action.START,
        launch=(Launch.NONE,),
        locked=False,
        payload_may_have_run=False,
    ),
    TableRow(
        "lost, launch record unreadable",
        JobState.ERROR,
        Action.START,
        launch=(Launch.CORRUPT,),
        locked=False,
        reason=JobFailureStatus.LOST,
        message="launch.json cannot be read, and nothing of it runs",
        alarming=True,
    ),
    TableRow(
        "lost before it started",
        JobState.ERROR,
        Action.START,
        launch=(Launch.LOCAL,),
        locked=False,
        runner=(Runner.NONE,),
        reason=JobFailureStatus.LOST,
        message="its runner vanished before it reached the task",
        payload_may_have_run=False,
    ),
    TableRow(
        "lost in a reboot",
        JobState.ERROR,
        Action.START,
        launch=(Launch.LOCAL,),
        locked=False,
        runner=(Runner.REBOOTED,),
        reason=JobFailureStatus.LOST,
        message="REBOOT: its machine was started again while it ran",
    ),
    TableRow(
        "lost",
        JobState.ERROR,
        Action.START,
        launch=(Launch.LOCAL,),
        locked=False,
        runner=(Runner.DEAD, Runner.UNKNOWN),
        reason=JobFailureStatus.LOST,
        message="KILLED: its runner vanished without leaving a marker",
    ),
)
"""Read from the top; the first row that fits decides."""
