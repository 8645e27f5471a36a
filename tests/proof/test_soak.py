"""The soak in a few seconds; and a judge that sees what is wrong, so that its silence means something."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from proof.report import Options, text
from proof.soak import judge, oracle, run
from proof.soak.judge import Entry, by_ledger, by_witness, growth
from proof.soak.plan import CAPACITY, SCHEDULERS, Fate, Kind, PlannedJob, draw
from proof.soak.proving import hunt
from proof.soak.strikes import Seen, victims
from tenuto.workspace.machine import this_machine

WELL = [Entry("start", "a", 1), Entry("end", "a", 1), Entry("seen", "a", 9)]
HOST = "host"


@pytest.mark.slow
@pytest.mark.watchdog(2400)
def test_nothing_is_lost_doubled_or_leaked_while_schedulers_and_jobs_are_killed() -> None:
    report = run(Options(small=True))
    assert report.good, text(report)
    assert report.cases[0].count == 60


@pytest.mark.slow
@pytest.mark.watchdog(900)
@pytest.mark.prove("each bug is hunted with processes; the judge of repeats is asked directly below")
@pytest.mark.parametrize("bug", ["some write no marker", "runners die with their parent"])
def test_jobs_that_are_lost_without_need_are_found(bug: str) -> None:
    """The soak said "holds" of both: nothing asked whether a repeat was justified."""
    assert hunt(bug, 1, jobs=40, seconds=8.0).found


def test_a_repeat_needs_a_strike() -> None:
    job = PlannedJob(0, Kind.TASK, 0.0, Fate.DONE)
    twice = [
        Entry("start", "a", 5, 4),
        Entry("end", "a", 5, 4),
        Entry("start", "b", 7, 6),
        Entry("end", "b", 7, 6),
    ]
    assert "without need" in judge.by_strikes([job], {0: twice}, {6, 7})[0]
    for struck in ({4}, {5}):
        assert judge.by_strikes([job], {0: twice}, struck) == []
    for other in (
        job._replace(fate=Fate.FAILED),
        job._replace(kind=Kind.RESUMABLE),
        job._replace(removed=True),
    ):
        assert judge.by_strikes([other], {0: twice}, set()) == []


def test_a_job_begins_when_all_that_it_needs_has_ended() -> None:
    needed = PlannedJob(0, Kind.TASK, 0.0, Fate.DONE)
    job = PlannedJob(1, Kind.TASK, 0.0, Fate.DONE, needs=(0,))
    ended = [Entry("start", "a", 1, at=1.0), Entry("end", "a", 1, at=2.0)]
    for at, problems in ((2.5, 0), (1.5, 1)):
        assert len(judge.by_order([needed, job], {0: ended, 1: [Entry("start", "b", 2, at=at)]})) == problems


def test_a_done_job_has_its_result_and_its_log() -> None:
    jobs = [PlannedJob(7, Kind.TASK, 0.0, Fate.DONE), PlannedJob(8, Kind.COMMAND, 0.0, Fate.DONE)]
    good = {7: {"state": "DONE", "result": 7, "log_is_whole": True}, 8: {"state": "DONE", "result": None}}
    assert judge.by_answers(jobs, good) == []
    assert "result" in judge.by_answers(jobs, {**good, 7: {"state": "DONE", "result": 8}})[0]
    assert "log" in judge.by_answers(jobs, {**good, 8: {"state": "DONE", "log_is_whole": False}})[0]


def judged(
    entries: Sequence[Entry], answer: str = "DONE", fate: Fate = Fate.DONE, **fields: Any
) -> list[str]:
    job = PlannedJob(0, Kind.TASK, 0.0, fate, **fields)
    return by_ledger([job], {0: entries}, {0: answer}, {0: entries})


@pytest.mark.parametrize(
    ("entries", "answer", "fate", "fields"),
    [
        (WELL, "DONE", Fate.DONE, {}),
        ([Entry("start", "0", 1), *WELL], "DONE", Fate.DONE, {}),
        ([Entry("start", "0", 1), Entry("end", "0", 1), *WELL], "DONE", Fate.DONE, {}),
        ([Entry("start", "a", 1)], "ERROR", Fate.FAILED, {}),
        ([], "ERROR", Fate.STRANDED, {}),
        ([], "UNSCHEDULED", Fate.PASSING, {}),
        ([*WELL, Entry("start", "b", 2), Entry("end", "b", 2)], "DONE", Fate.PASSING, {"removed": True}),
    ],
)
def test_an_allowed_end_is_no_violation(
    entries: Sequence[Entry], answer: str, fate: Fate, fields: Mapping[str, Any]
) -> None:
    problems = judged(entries, answer, fate, **fields)
    assert not [problem for problem in problems if "nobody needs it" not in problem]


@pytest.mark.parametrize(
    ("entries", "answer", "fate", "said"),
    [
        ([], "DONE", Fate.DONE, "is lost"),
        ([Entry("start", "a", 1)], "DONE", Fate.DONE, "is lost"),
        (WELL, "ERROR", Fate.DONE, "is lost"),
        ([*WELL[:1], Entry("overlap", "a", 2), *WELL[1:]], "DONE", Fate.DONE, "twice at once"),
        ([*WELL[:1], Entry("overcommit", "a", 2), *WELL[1:]], "DONE", Fate.DONE, "units of a token"),
        ([*WELL[:1], *WELL], "DONE", Fate.DONE, "one attempt ran twice"),
        ([*WELL, Entry("start", "b", 1)], "DONE", Fate.DONE, "after it was seen done"),
        ([*WELL[:2], Entry("seen", "b", 1)], "DONE", Fate.DONE, "never came to its end"),
        (WELL, "DONE", Fate.FAILED, "did not fail"),
        (WELL, "ERROR", Fate.STRANDED, "ran, or did not fail"),
        ([], "ERROR", Fate.PASSING, "is lost"),
        (WELL, "DONE", Fate.PASSING, "nobody needs it"),
    ],
)
def test_the_ledger_betrays_what_went_wrong(
    entries: Sequence[Entry], answer: str, fate: Fate, said: str
) -> None:
    assert any(said in problem for problem in judged(entries, answer, fate))


def test_a_done_job_must_not_run_again_when_it_is_submitted_again() -> None:
    job = PlannedJob(0, Kind.TASK, 0.0, Fate.DONE)
    ran = [*WELL[:2], Entry("start", "b", 2), Entry("end", "b", 2)]
    assert "ran again" in by_ledger([job], {0: ran}, {0: "DONE"}, {0: WELL[:2]})[0]


def test_temporary_files_and_locks_that_are_left_are_found(tmp_path: Path) -> None:
    machine = this_machine()
    job = tmp_path / "ws" / "jobs" / "task" / "0123"
    job.mkdir(parents=True)
    (job / "status.json.1-2.tenuto-tmp").touch()
    lock = machine.locks.try_lock(f"{job}/task.lock")
    assert lock is not None
    found = judge.by_files(machine, tmp_path)
    assert ["temporary file" in problem for problem in found].count(True) == 1
    assert ["is held" in problem for problem in found].count(True) == 1
    lock.close()


def test_growth_is_told_only_of_a_long_soak() -> None:
    sizes = [(1, 90), (59, 100), *((100 + number, 95) for number in range(10)), (300, 106)]
    reports: list[dict[str, Any]] = [{"at": at, "rss": rss, "descriptors": ["pipe"]} for at, rss in sizes]
    assert growth(reports, 0.0, 300.0)[:2] == (100, 106)
    assert "memory grew by 6.0%" in by_witness(reports, growth(reports, 0.0, 300.0))[0]
    assert by_witness(reports, growth(reports, 0.0, 10.0)) == []
    reports[-1]["descriptors"] = ["pipe", "pipe"]
    assert "descriptors grew from 1 to 2" in by_witness(reports, growth(reports, 0.0, 10.0))[0]
    # A strike ended the process that it should have ended itself.
    reports[-2]["descriptors"], reports[-1]["descriptors"] = ["pipe", "pipe"], ["pipe"]
    assert "descriptors grew from 1 to 2" in by_witness(reports, growth(reports, 0.0, 10.0))[0]


def payload(place: Path, name: str, *more: str) -> subprocess.Popen[str]:
    """An oracle under a parent of its own, as a payload is under its runner; it says when it is at work."""
    work = f"import sys; sys.path.insert(0, {os.path.dirname(oracle.__file__)!r}); import oracle; "
    work += (
        "oracle.time.sleep = lambda s: (print('at work', flush=True), sys.stdin.read()) if s == 9 else None; "
    )
    work += "oracle.main()"
    runner = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    return subprocess.Popen(
        [sys.executable, "-c", runner, work, str(place), name, "9", "0", "0", *more],
        env={**os.environ, oracle.STAMP: f"nonce-{name}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("ledger", "locks", "units"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (("1", "t", "3", "2"), ("1",), "overlap"),
        (("1", "t", "3", "2"), ("2", "t", "3", "2"), "overcommit"),
        (("1", "t", "3", "2"), ("2", "t", "3", "1"), None),
    ],
)
def test_two_at_work_at_once_are_written_down(
    place: Path, first: tuple[str, ...], second: tuple[str, ...], said: str | None
) -> None:
    with payload(place, *first) as one, payload(place, *second) as other:
        for process in (one, other):
            assert process.stdout is not None
            assert process.stdout.readline().startswith("nonce-")
            assert process.stdout.readline() == "at work\n"
        for process in (one, other):
            process.communicate()
    kinds = [entry.what for name in ("1", "2") for entry in judge.read_ledger(place, int(name))]
    assert [kind for kind in kinds if kind not in ("start", "end")] == ([said] if said else [])


def test_a_plan_is_the_same_for_all_and_has_everything_in_it() -> None:
    waves = draw(7, 2000)
    assert waves == draw(7, 2000)
    jobs = judge.planned(waves)
    assert [job.number for job in jobs] == list(range(2000))
    assert {job.fate for job in jobs} == set(Fate)
    assert {job.kind for job in jobs} == set(Kind)
    assert {who for wave in waves for who in wave.schedulers} == set(range(SCHEDULERS))
    for has in ("needs", "tokens", "is_needed", "removed", "daemon", "dallies"):
        assert any(getattr(job, has) for job in jobs), has
    assert all(amount <= CAPACITY[name] for job in jobs for name, amount in job.tokens)


def test_processes_are_told_apart_by_their_place_in_the_tree() -> None:
    runner = "python -P /x/launchers/runner/__main__.py"
    seen = {
        pid: Seen(pid, parent, "0", command)
        for pid, parent, command in (
            (1, 0, "python -m proof.soak scheduler"),
            (2, 1, f"{runner} --warm 5 1"),
            (3, 2, f"{runner} --warm 5 1"),
            (4, 3, f"{runner} --warm 5 1"),
            (5, 1, f"{runner} /ws/jobs/x"),
            (6, 5, "python -I -S oracle.py"),
            (7, 0, f"{runner} /ws/jobs/y"),
        )
    }
    roles = {victim.process.pid: victim.role for victim in victims(seen, {1: 2})}
    assert roles == {
        1: "scheduler",
        2: "warm parent",
        3: "runner",
        4: "payload",
        5: "runner",
        6: "payload",
        7: "runner",
    }
