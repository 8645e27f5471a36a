"""The core: what happens next to a job. Each phase, and each step from one phase to another, is in this file.
It is pure: it reads no clock and no file, starts nothing and tells nothing; `shell` carries out its effects.

| Phase        | A step out of it                                                                       |
|--------------|----------------------------------------------------------------------------------------|
| asleep       | `Submitted`, or a job that needs it enters: blocked                                    |
| blocked      | the last job that it waits for is done, `Unlocked` or `Rested`: ready;                 |
|              | one of them fails: ended                                                               |
| ready        | `Seated`: starting, or wants tokens                                                    |
| wants tokens | `Granted`: starting; `Unwanted`: ready                                                 |
| starting     | `Begun`: running                                                                       |
| running      | `AttemptEnded`: settling, or another try: running, ready or, to rest first, blocked;   |
|              | `Short`: ready                                                                         |
| settling     | `Ended`: ended                                                                         |
| ended        | `Submitted`: blocked                                                                   |

`Found`, `Adopted` and `Locked` take a new job from asleep to settling, running and blocked. A job that has no
attempt (blocked, ready, wants tokens, starting) settles when it is `Cancelled`, and falls asleep when it is
transient and no job needs it any more; one that would have another attempt does so, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler.decisions import Verdict
from tenuto.scheduler.entries import Phase
from tenuto.scheduler.inputs import (
    AskForTokens,
    AwaitLock,
    Cancel,
    Disown,
    Effect,
    End,
    GiveOutTokens,
    Input,
    Notify,
    Rest,
    Retry,
    Settle,
    Sleep,
    Start,
    Stop,
    Strand,
    Tell,
    Wake,
    Watch,
    methods,
)
from tenuto.scheduler.slots import Slots

if TYPE_CHECKING:
    from tenuto.scheduler.jobs import Job
    from tenuto.scheduler.owners import Owner
    from tenuto.scheduler.tokens import Grant

_STEPS = methods(Input)
WITHOUT_ATTEMPT = frozenset({Phase.BLOCKED, Phase.READY, Phase.WANTS_TOKENS, Phase.STARTING})


class Core:
    """Moves entries from phase to phase. The step for each input is the method of its name."""

    def __init__(self) -> None:
        self.slots = Slots()
        self.next_start = self.slots.next
        """The job that is to get the next free slot; the shell answers with `Seated` or `Unseated`."""
        self._do: Callable[[Effect], None] = list[Effect]().append

    def step(self, input: Input) -> list[Effect]:
        """The core takes in one input; the shell carries out the effects, in their order."""
        effects: list[Effect] = []
        self._do = effects.append
        getattr(self, _STEPS[type(input)])(*input)
        return effects

    # A job comes

    def _submitted(self, job: Job, is_new: bool) -> None:
        if job.phase is Phase.ASLEEP:
            if job.transient is TransientMode.NONE:
                if not is_new:
                    self._wake(job)
                self._enter(job)
        elif job.phase is Phase.ENDED:
            self._enter(job)
        elif job.is_passed_over:
            self.slots.append(job)

    def _found(self, job: Job, verdict: Verdict) -> None:
        job.phase = Phase.SETTLING
        self._do(Settle(job, verdict))

    def _adopted(self, job: Job) -> None:
        job.phase, job.is_done = Phase.RUNNING, False
        self._do(Watch(job))

    def _locked(self, job: Job) -> None:
        job.phase, job.is_done = Phase.BLOCKED, False
        self._do(AwaitLock(job))

    def _unlocked(self, job: Job, is_done: bool) -> None:
        if job.phase is not Phase.BLOCKED or job.missing:  # cancelled meanwhile
            return
        if is_done:
            self._make_ready([job])  # its start looks once more, under the lock
        elif not self._has_spared(job):
            self._enter(job)

    def _enter(self, first: Job) -> None:
        """Have a job wait for its dependencies; wake transient jobs that are needed now."""
        stranded: list[Job] = []
        for job in self._with_sleepers(first):
            job.phase, job.is_done = Phase.BLOCKED, False
            self._do(Tell(job, JobState.WAITING))
            failed = next((d.origin for d in job.dependencies if d.origin.has_failed), None)
            if failed is not None:
                stranded += self._strand([job, *job.stranded()], failed)
            elif not job.block():
                self._make_ready([job])
        # Only now is it known which jobs need which; and only then may anything start.
        if stranded:
            self._spare_unneeded_by(stranded)

    def _with_sleepers(self, first: Job) -> list[Job]:
        """A job, and the sleeping jobs that are needed for it, each once."""
        woken = [first]
        for job in woken:
            for needed in job.dependencies:
                if needed.origin.phase is Phase.ASLEEP:
                    self._wake(needed.origin)
                    woken.append(needed.origin)
        return woken

    def _wake(self, job: Job) -> None:
        job.phase = Phase.BLOCKED
        self._do(Wake(job))

    # It waits its turn

    def _make_ready(self, jobs: Iterable[Job]) -> None:
        for job in jobs:
            job.phase = Phase.READY
            self._do(Tell(job, JobState.READY))
            self.slots.append(job)

    def _promoted(self, job: Job) -> None:
        self.slots.promote(job)

    def _seated(self, job: Job) -> None:
        self.slots.leave(job)
        if job.needs:
            job.phase = Phase.WANTS_TOKENS
            self._do(AskForTokens(job))
        else:
            job.phase = Phase.STARTING
            self.slots.take(job)
            self._do(Start(job))

    def _unseated(self, job: Job) -> None:
        self.slots.note_full(job)

    def _granted(self, job: Job, grant: Grant) -> None:
        if job.phase is Phase.WANTS_TOKENS:
            job.phase = Phase.STARTING
            self._do(Tell(job, JobState.READY))
        self._do(Start(job, grant))  # else it finds that nothing is to be started, and gives its slots back

    def _unwanted(self, job: Job) -> None:
        job.phase, job.pool = Phase.READY, None
        self._do(Tell(job, JobState.READY))

    def _slot_free(self, job: Job | None) -> None:
        if job is not None:
            self.slots.vacate(job)
        self.slots.look_again()
        self._do(GiveOutTokens())

    # It runs

    def _begun(self, job: Job) -> None:
        job.phase = Phase.RUNNING

    def _attempt_ended(self, job: Job, verdict: Verdict, keeps_slot: bool) -> None:
        if self._has_settled(job, verdict) or self._has_spared(job, verdict.message):
            return
        self._do(Retry(job, verdict, was_adopted=False))
        if verdict.after_s:
            self._rest(job, verdict)
        elif not keeps_slot:
            job.phase = Phase.READY
            self.slots.add_first(job)

    def _adopted_ended(self, job: Job, verdict: Verdict) -> None:
        if not self._has_settled(job, verdict) and not self._has_spared(job, verdict.message):
            self._do(Retry(job, verdict, was_adopted=True))
            if verdict.after_s:
                self._rest(job, verdict)
            else:
                self._enter(job)

    def _rest(self, job: Job, verdict: Verdict) -> None:
        """The rule of a job has it wait before its next attempt, without a slot and without tokens."""
        job.phase = Phase.BLOCKED
        self._do(Tell(job, JobState.WAITING, verdict.message))
        self._do(Rest(job, verdict.after_s))

    def _rested(self, job: Job) -> None:
        if job.phase is Phase.BLOCKED and not job.missing and not self._has_spared(job):
            self._enter(job)

    def _has_settled(self, job: Job, verdict: Verdict) -> bool:
        """False if another attempt is to follow."""
        if job.phase is not Phase.RUNNING:  # an owner refused it while it ran
            return True
        if verdict.tries is not None:
            return False
        job.phase = Phase.SETTLING
        self._do(Settle(job, verdict))
        return True

    def _short(self, job: Job, message: str, of_descriptors: bool) -> None:
        if of_descriptors:
            self.slots.start_fewer()
        self.slots.pause()
        if self._has_spared(job, message):
            return
        job.phase = Phase.READY
        self._do(Tell(job, JobState.WAITING, message))
        self._do(Tell(job, JobState.READY, message))
        self.slots.add_first(job)

    def _recovered(self) -> None:
        self.slots.resume()

    # It ends

    def _cancelled(self, job: Job, message: str) -> None:
        if job.phase in WITHOUT_ATTEMPT:
            job.unblock()
            job.phase = Phase.SETTLING
            self._do(Cancel(job, message))
        elif job.phase is Phase.RUNNING:
            self._do(Stop(job, message))

    def _withdrawn(self, job: Job, owner: Owner, message: str) -> None:
        """The last owner stays the job's owner: it is told of the end, and may forget the job then."""
        if len(job.owners) == 1:
            self._cancelled(job, message)
        else:
            self._do(Disown(job, owner))
            self._do(Notify())

    def _failed(self, job: Job, message: str) -> None:
        if job.phase is Phase.ENDED:
            return
        if job.phase is Phase.ASLEEP:
            self._do(Tell(job, JobState.WAITING))
        job.unblock()
        job.phase = Phase.SETTLING
        self._ended(job, Verdict(JobState.ERROR, JobFailureStatus.FAILED, message))

    def _ended(self, job: Job, verdict: Verdict) -> None:
        if job.phase is Phase.ENDED:  # an owner refused it while its outputs were handed over
            return
        job.phase, job.is_done = Phase.ENDED, verdict.state is JobState.DONE
        self._do(End(job, verdict))
        if job.is_done:
            self._make_ready(job.released())
        else:
            self._spare_unneeded_by([job, *self._strand(job.stranded(), job)])
        self._do(Notify())

    def _strand(self, jobs: Sequence[Job], cause: Job) -> Sequence[Job]:
        for job in jobs:
            job.phase = Phase.ENDED
            self._do(Strand(job, cause))
        self._do(Notify())
        return jobs

    # No job needs it any more

    def _spare_unneeded_by(self, ended: Iterable[Job]) -> None:
        """Jobs ended without having run: transient jobs that wait for their sake alone need not run."""
        pending = list(ended)
        while pending:
            for dependency in pending.pop().dependencies:
                needed = dependency.origin
                is_spared = needed.transient is not TransientMode.NONE and needed.phase in WITHOUT_ATTEMPT
                if is_spared and not needed.is_awaited():
                    self._put_to_sleep(needed)
                    pending.append(needed)

    def _has_spared(self, job: Job, message: str | None = None) -> bool:
        """True if a transient job that would be tried again is put to sleep: no job needs it any more."""
        if job.transient is TransientMode.NONE or job.is_awaited():
            return False
        self._do(Tell(job, JobState.WAITING, message))
        self._put_to_sleep(job)
        self._spare_unneeded_by([job])
        return True

    def _put_to_sleep(self, job: Job) -> None:
        job.unblock()
        job.phase = Phase.ASLEEP
        self._do(Sleep(job))
        self._do(Notify())
