"""The core by itself: a step for each input, and effects in their order; nothing is run."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.lifecycle.states import JobFailureStatus, JobState, TransientMode
from tenuto.scheduler import core as core_module
from tenuto.scheduler import inputs
from tenuto.scheduler import inputs as told
from tenuto.scheduler.core import Core
from tenuto.scheduler.decisions import Tries, Verdict
from tenuto.scheduler.entries import Entry, JobDependency, Phase
from tenuto.scheduler.jobs import Job
from tenuto.testing.clock import FakeClock
from tenuto.testing.jobs import FakeOwner
from tenuto.workspace.machine import this_machine
from tenuto.workspace.token_files import Need
from tests.parts.instant import InstantLauncher

DONE = Verdict(JobState.DONE)
FAILED = Verdict(JobState.ERROR, JobFailureStatus.FAILED)


class Stage:
    """A core, and a shell that only notes what it is to do."""

    def __init__(self, slots: int = 100) -> None:
        self.core = Core()
        self.owner = FakeOwner()
        self.launcher = InstantLauncher(this_machine(), slots=slots)
        self.effects: list[told.Effect] = []

    def job(self, name: str, *needed: Job, **options: Any) -> Job:
        dependencies = [JobDependency(one) for one in needed]
        entry = Entry(
            "task", name, clock=FakeClock(), launcher=self.launcher, dependencies=dependencies, **options
        )
        entry.owners = (self.owner,)
        return cast("Job", entry)

    def feed(self, input: inputs.Input, *, is_shared: bool = False) -> list[told.Effect]:
        """One step, and the starts that follow; `is_shared`: other processes have all slots."""
        effects = self.core.step(input)
        while (job := self.core.next_start()) is not None:
            effects += self.core.step(inputs.Unseated(job) if is_shared else inputs.Seated(job))
        self.effects += effects
        return effects

    def submit(self, *jobs: Job) -> None:
        for job in jobs:
            self.feed(inputs.Submitted(job, is_new=True))

    def end(self, job: Job, verdict: Verdict = DONE) -> None:
        """A job that is starting runs to its end, and gives its slot back."""
        self.feed(inputs.Begun(job))
        self.feed(inputs.AttemptEnded(job, verdict))
        self.feed(inputs.Ended(job, verdict))
        self.feed(inputs.SlotFree(job))

    def started(self) -> list[str]:
        return [effect.job.job_id for effect in self.effects if isinstance(effect, told.Start)]


def typed(*effects: told.Effect) -> list[tuple[Any, ...]]:
    """Effects with their types: as tuples, those of two kinds with the same values are equal."""
    return [(type(effect), *effect) for effect in effects]


@pytest.fixture
def stage() -> Stage:
    return Stage()


def test_every_input_has_a_step_and_every_phase_a_sentence() -> None:
    assert set(core_module._STEPS) == set(inputs.Input.__args__)
    assert all(callable(getattr(Core, name)) for name in core_module._STEPS.values())
    for phase in Phase:
        assert f"\n| {phase.name.lower().replace('_', ' '):12} |" in (core_module.__doc__ or "")


def test_a_job_goes_through_its_phases(stage: Stage) -> None:
    job = stage.job("a")
    phases = [job.phase]
    for input in (
        inputs.Submitted(job, is_new=True),
        inputs.Begun(job),
        inputs.AttemptEnded(job, DONE),
        inputs.Ended(job, DONE),
    ):
        stage.feed(input)
        phases.append(job.phase)
    assert phases == [Phase.ASLEEP, Phase.STARTING, Phase.RUNNING, Phase.SETTLING, Phase.ENDED]
    assert typed(*stage.effects) == typed(
        told.Tell(job, JobState.WAITING),
        told.Tell(job, JobState.READY),
        told.Start(job),
        told.Settle(job, DONE),
        told.End(job, DONE),
        told.Notify(),
    )


def test_a_job_becomes_ready_with_the_last_job_that_it_waits_for(stage: Stage) -> None:
    a, b = stage.job("a"), stage.job("b")
    c = stage.job("c", a, b)
    stage.submit(a, b, c)
    stage.end(a)
    assert (c.phase, c.missing) == (Phase.BLOCKED, 1)
    stage.end(b)
    assert stage.started() == ["a", "b", "c"]


def test_jobs_that_become_ready_keep_the_order_they_came_in(stage: Stage) -> None:
    a = stage.job("a")
    stage.submit(a, *(stage.job(name, a) for name in "zyx"))
    stage.end(a)
    assert stage.started() == ["a", "z", "y", "x"]


def test_a_failure_strands_all_jobs_that_follow_and_no_other(stage: Stage) -> None:
    a, other = stage.job("a"), stage.job("other")
    b = stage.job("b", a)
    c = stage.job("c", b, other)
    free = stage.job("free", other)
    stage.submit(a, other, b, c, free)
    stage.end(a, FAILED)
    assert [effect.job for effect in stage.effects if isinstance(effect, told.Strand)] == [b, c]
    stage.end(other)
    assert stage.started() == ["a", "other", "free"]
    assert (c.phase, c.has_failed) == (Phase.ENDED, True)


def test_a_job_that_needs_a_failed_one_is_stranded_as_it_comes(stage: Stage) -> None:
    a = stage.job("a")
    stage.submit(a)
    stage.end(a, FAILED)
    b = stage.job("b", a)
    stage.submit(b)
    assert typed(told.Strand(b, a))[0] in typed(*stage.effects)
    assert b.has_failed


def test_a_cancelled_job_never_becomes_ready(stage: Stage) -> None:
    a = stage.job("a")
    b = stage.job("b", a)
    stage.submit(a, b)
    assert typed(*stage.feed(inputs.Cancelled(b, "no"))) == typed(told.Cancel(b, "no"))
    stage.feed(inputs.Ended(b, FAILED))
    stage.end(a)
    assert stage.started() == ["a"]


def test_a_job_that_enters_again_waits_for_all_jobs_that_it_needs(stage: Stage) -> None:
    a, b = stage.job("a"), stage.job("b")
    c = stage.job("c", a, b)
    stage.submit(a, b, c)
    stage.end(a, FAILED)
    stage.feed(inputs.Submitted(a))
    stage.feed(inputs.Submitted(c))
    stage.end(b)
    assert c.phase is Phase.BLOCKED
    stage.end(a)
    assert c.phase is Phase.STARTING


@pytest.mark.slow
def test_a_failing_chain_of_20_000_needs_no_recursion(stage: Stage) -> None:
    stage.launcher.slots = 0
    jobs = [stage.job("0")]
    for number in range(1, 20_000):
        jobs.append(stage.job(str(number), jobs[-1]))
    stage.submit(*jobs)
    stage.feed(inputs.Cancelled(jobs[0], "no"))
    stage.feed(inputs.Ended(jobs[0], FAILED))
    assert all(job.has_failed for job in jobs)


def test_a_transient_job_sleeps_until_a_job_needs_it_and_again_when_that_is_cancelled(stage: Stage) -> None:
    stage.launcher.slots = 0
    deep = stage.job("deep", transient=TransientMode.TRANSIENT)
    near = stage.job("near", deep, transient=TransientMode.REMOVE)
    stage.submit(deep, near)
    assert stage.effects == []
    user = stage.job("user", near)
    stage.submit(user)
    assert [job.phase for job in (deep, near, user)] == [Phase.READY, Phase.BLOCKED, Phase.BLOCKED]
    stage.feed(inputs.Cancelled(user, "no"))
    stage.feed(inputs.Ended(user, FAILED))
    assert [job.phase for job in (deep, near, user)] == [Phase.ASLEEP, Phase.ASLEEP, Phase.ENDED]
    assert [effect.job for effect in stage.effects if isinstance(effect, told.Sleep)] == [near, deep]


@pytest.mark.parametrize("keeps_slot", [True, False])
@pytest.mark.parametrize("way", ["tried again", "adopted", "short"])
def test_a_transient_job_is_not_tried_again_once_the_job_that_needed_it_is_cancelled(
    stage: Stage, way: str, keeps_slot: bool
) -> None:
    needed = stage.job("needed", transient=TransientMode.TRANSIENT)
    user = stage.job("user", needed)
    stage.submit(needed, user)
    stage.feed(inputs.Begun(needed))
    stage.feed(inputs.Cancelled(user, "no"))
    stage.feed(inputs.Ended(user, FAILED))
    assert needed.phase is Phase.RUNNING
    again = Verdict(JobState.ERROR, JobFailureStatus.TIMEOUT, "time is up", tries=Tries(1))
    ends: dict[str, inputs.Input] = {
        "tried again": inputs.AttemptEnded(needed, again, keeps_slot),
        "adopted": inputs.AdoptedEnded(needed, again),
        "short": inputs.Short(needed, "time is up", of_descriptors=False),
    }
    assert typed(*stage.feed(ends[way])) == typed(
        told.Tell(needed, JobState.WAITING, "time is up"), told.Sleep(needed), told.Notify()
    )
    stage.feed(inputs.SlotFree(needed))
    stage.feed(inputs.Recovered())
    assert (needed.phase, stage.started()) == (Phase.ASLEEP, ["needed"])
    stage.submit(stage.job("another", needed))
    assert stage.started() == ["needed", "needed"]


def test_a_running_job_is_stopped_and_one_without_an_attempt_cancelled(stage: Stage) -> None:
    a = stage.job("a")
    stage.submit(a)
    assert a.phase is Phase.STARTING  # and nothing of it runs yet
    running = stage.job("b")
    stage.submit(running)
    stage.feed(inputs.Begun(running))
    assert typed(*stage.feed(inputs.Cancelled(a, "no"))) == typed(told.Cancel(a, "no"))
    assert typed(*stage.feed(inputs.Cancelled(running, "no"))) == typed(told.Stop(running, "no"))
    assert (a.phase, running.phase) == (Phase.SETTLING, Phase.RUNNING)


@pytest.mark.parametrize("phase", [Phase.ASLEEP, Phase.SETTLING, Phase.ENDED])
def test_a_cancellation_changes_no_other_phase(stage: Stage, phase: Phase) -> None:
    job = stage.job("a")
    job.phase = phase
    assert stage.feed(inputs.Cancelled(job, "no")) == []
    assert job.phase is phase


def test_the_job_of_two_owners_is_cancelled_when_the_last_one_withdraws(stage: Stage) -> None:
    job, other = stage.job("a"), FakeOwner()
    job.owners += (other,)
    stage.submit(job)
    assert typed(*stage.feed(inputs.Withdrawn(job, other, "bye"))) == typed(
        told.Disown(job, other), told.Notify()
    )
    job.owners = (stage.owner,)
    assert typed(*stage.feed(inputs.Withdrawn(job, stage.owner, "bye"))) == typed(told.Cancel(job, "bye"))


def test_an_attempt_is_tried_again_in_its_slot_or_before_others(stage: Stage) -> None:
    stage.launcher.slots = 1
    a, b = stage.job("a"), stage.job("b")
    stage.submit(a, b)
    stage.feed(inputs.Begun(a))
    again = Verdict(JobState.ERROR, JobFailureStatus.TIMEOUT, tries=Tries(1))
    stage.feed(inputs.AttemptEnded(a, again, keeps_slot=True))
    assert a.phase is Phase.RUNNING
    stage.feed(inputs.AttemptEnded(a, again))
    assert a.phase is Phase.READY
    stage.feed(inputs.SlotFree(a))
    assert stage.started() == ["a", "a"]


def test_a_job_with_tokens_takes_no_slot_before_it_has_them(stage: Stage) -> None:
    job = stage.job("a", needs=(Need("licences", 1),))
    stage.submit(job)
    assert (job.phase, stage.core.slots.started()) == (Phase.WANTS_TOKENS, 0)
    stage.core.slots.take(job)
    grant: Any = object()
    assert typed(*stage.feed(inputs.Granted(job, grant))) == typed(
        told.Tell(job, JobState.READY), told.Start(job, grant)
    )
    assert job.phase is Phase.STARTING


def test_tokens_that_come_too_late_are_given_back_by_a_start_that_finds_nothing_to_do(stage: Stage) -> None:
    job = stage.job("a", needs=(Need("licences", 1),))
    stage.submit(job)
    stage.feed(inputs.Cancelled(job, "no"))
    grant: Any = object()
    assert typed(*stage.feed(inputs.Granted(job, grant))) == typed(told.Start(job, grant))
    assert job.phase is Phase.SETTLING


def test_a_job_that_no_owner_wants_is_passed_over_until_one_does(stage: Stage) -> None:
    stage.core.slots.stop(stage.owner)
    job = stage.job("a")
    stage.submit(job)
    assert (job.phase, job.is_passed_over) == (Phase.READY, True)
    job.owners += (FakeOwner("another"),)
    stage.feed(inputs.Submitted(job))
    assert stage.started() == ["a"]


def test_a_short_machine_starts_nothing_until_it_recovered(stage: Stage) -> None:
    a, b = stage.job("a"), stage.job("b")
    stage.submit(a)
    stage.feed(inputs.Begun(a))
    stage.feed(inputs.Short(a, "no memory", of_descriptors=False))
    stage.feed(inputs.SlotFree(a))
    stage.submit(b)
    assert (a.phase, b.phase) == (Phase.READY, Phase.READY)
    stage.feed(inputs.Recovered())
    assert stage.started() == ["a", "a", "b"]


def test_a_slot_that_other_processes_have_is_asked_for_once_until_one_is_free(stage: Stage) -> None:
    a, b = stage.job("a"), stage.job("b")
    stage.feed(inputs.Submitted(a, is_new=True), is_shared=True)
    stage.feed(inputs.Submitted(b, is_new=True), is_shared=True)
    assert stage.started() == []
    stage.feed(inputs.SlotFree())
    assert stage.started() == ["a", "b"]


def test_a_job_whose_directory_is_locked_is_ready_or_enters_once_it_is_free(stage: Stage) -> None:
    done, gone = stage.job("a"), stage.job("b")
    for job in (done, gone):
        stage.feed(inputs.Found(job, DONE))
        stage.feed(inputs.Ended(job, DONE))
        stage.feed(inputs.Locked(job))
        assert (job.phase, job.is_done) == (Phase.BLOCKED, False)
    stage.launcher.slots = 0
    stage.feed(inputs.Unlocked(done, is_done=True))
    stage.feed(inputs.Unlocked(gone, is_done=False))
    assert (done.phase, gone.phase) == (Phase.READY, Phase.READY)


def test_an_attempt_that_ends_after_its_job_was_refused_changes_nothing(stage: Stage) -> None:
    job = stage.job("a")
    stage.submit(job)
    stage.feed(inputs.Begun(job))
    stage.feed(inputs.Failed(job, "an owner raised"))
    assert job.has_failed
    assert stage.feed(inputs.AttemptEnded(job, DONE)) == stage.feed(inputs.Ended(job, DONE)) == []
    assert job.has_failed


@given(st.data())
def test_every_job_of_a_random_graph_starts_once_after_all_that_it_needs(data: st.DataObject) -> None:
    stage = Stage()
    jobs: list[Job] = []
    for number in range(data.draw(st.integers(1, 30))):
        needed = data.draw(st.sets(st.sampled_from(jobs))) if jobs else set()
        jobs.append(stage.job(str(number), *needed))
    stage.submit(*jobs)
    ended: list[Job] = []
    while starting := [job for job in jobs if job.phase is Phase.STARTING]:
        job = data.draw(st.sampled_from(starting))
        assert all(dependency.origin in ended for dependency in job.dependencies)
        stage.end(job)
        ended.append(job)
    assert len(ended) == len(jobs)
    assert sorted(stage.started()) == sorted(job.job_id for job in jobs)
