"""Owns the reading of Slurm's words: states, and the answers of its commands."""

from __future__ import annotations

import os
import stat
from datetime import datetime
from pathlib import Path

import pytest

from tenuto.launchers.cluster import dialect
from tenuto.launchers.cluster.dialect import (
    ClusterError,
    JobScript,
    QueueRow,
    SubmissionAnswer,
    SubmissionOutcome,
)
from tenuto.launchers.cluster.dialects.slurm import SlurmDialect
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.settings.clusters import ClusterSettings
from tenuto.workspace.derive_table import ClusterSays

ENDED = datetime.fromisoformat("2026-01-01T00:00:00").timestamp()
"""In the time of the place, as Slurm writes it."""
SLURM = SlurmDialect("slurm", ClusterSettings())
LOST, CANCELLED = JobFailureStatus.LOST, JobFailureStatus.CANCELLED


@pytest.mark.parametrize(
    ("states", "says", "reason", "confirmed", "blameless"),
    [
        (
            "PENDING CONFIGURING REQUEUED REQUEUE_HOLD SPECIAL_EXIT RESV_DEL_HOLD",
            "PENDING",
            LOST,
            True,
            False,
        ),
        ("RUNNING COMPLETING SUSPENDED STOPPED SIGNALING STAGE_OUT", "RUNNING", LOST, True, False),
        ("SOMETHING_NEW", "RUNNING", LOST, True, False),
        ("COMPLETED FAILED", "ENDED", LOST, True, False),
        ("TIMEOUT DEADLINE", "ENDED", JobFailureStatus.TIMEOUT, True, False),
        ("OUT_OF_MEMORY", "ENDED", JobFailureStatus.MEMORY, True, False),
        ("CANCELLED REVOKED", "ENDED", CANCELLED, True, False),
        ("PREEMPTED BOOT_FAIL", "ENDED", LOST, True, True),
        ("NODE_FAIL", "ENDED", LOST, False, True),
    ],
)
def test_each_state_has_its_meaning(
    states: str, says: str, reason: JobFailureStatus, confirmed: bool, blameless: bool
) -> None:
    for state in states.split():
        assert SLURM.meaning(state) == (ClusterSays[says], reason, confirmed, blameless), state


def test_a_state_may_say_by_whom() -> None:
    assert SLURM.meaning("CANCELLED by 1000").reason is CANCELLED
    assert SLURM.meaning("CANCELLED+").reason is CANCELLED


@pytest.mark.parametrize(
    "reason",
    ["JobHeldUser", "JobHeldAdmin", "DependencyNeverSatisfied", "PartitionConfig", "BadConstraints"],
)
def test_a_job_that_will_never_start_says_so(reason: str) -> None:
    assert "will not start" in SLURM.pending_text(reason)
    assert "will not start" not in SLURM.pending_text("Priority")


def submit() -> SubmissionAnswer:
    return SLURM.submit(JobScript("a", 1, (), "#!/bin/sh\n", "/nowhere"))


def look_up(job: str, *, accounting: bool = False) -> dict[str, QueueRow]:
    """What Slurm remembers of a job, with or without a database of its own."""
    slurm = SlurmDialect("slurm", ClusterSettings())
    slurm._known = {"AccountingStorageType": "accounting_storage/slurmdbd"} if accounting else {"a": "b"}
    return slurm.look_up({job: ""})


class Shim:
    """Commands of Slurm's that answer as a test says."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")

    def __call__(self, name: str, body: str) -> None:
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shim:
    return Shim(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("complaint", "outcome"),
    [
        ("error: invalid partition specified: x", SubmissionOutcome.REFUSED),
        ("error: Batch job submission failed: Unable to contact slurm controller", SubmissionOutcome.LATER),
        ("error: Socket timed out on send/recv operation", SubmissionOutcome.LATER),
        ("error: Slurm temporarily unable to accept job, sleeping and retrying", SubmissionOutcome.LATER),
        ("error: QOSMaxSubmitJobPerUserLimit", SubmissionOutcome.FULL),
        ("error: Batch job submission failed: Job violates accounting/QOS policy", SubmissionOutcome.FULL),
    ],
)
def test_why_sbatch_takes_no_job(shim: Shim, complaint: str, outcome: SubmissionOutcome) -> None:
    shim("sbatch", f"cat >/dev/null; echo 'sbatch: {complaint}' >&2; exit 1")
    answer = submit()
    assert answer == (outcome, complaint.removeprefix("error: "))


@pytest.mark.parametrize(
    ("said", "job"), [("123", "123"), ("a warning\n123", "123"), ("a warning\n123;cluster", "123@cluster")]
)
def test_the_id_of_a_job_is_the_last_word(shim: Shim, said: str, job: str) -> None:
    shim("sbatch", f"cat >/dev/null; echo '{said}'")
    assert submit() == (SubmissionOutcome.TAKEN, job)


def test_a_command_that_hangs_is_no_answer(shim: Shim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialect, "SUBMIT_S", 0.2)
    shim("sbatch", "exec sleep 60")
    assert submit().outcome is SubmissionOutcome.LATER


def test_the_queue_is_read_row_by_row(shim: Shim) -> None:
    shim(
        "squeue",
        "echo '1_0|FAILED|NonZeroExitCode|2026-01-01T00:00:00|768|a|b-12345678|'; "
        "echo '2|RUNNING|None|2026-01-01T00:00:00|0|t|'; echo '3|FAILED|None|x|9|t|'; echo garbage",
    )
    assert SLURM.queue() == [
        QueueRow("1_0", "FAILED", "NonZeroExitCode", ENDED, 3, "a|b-12345678"),
        QueueRow("2", "RUNNING", "None", ENDED, 0, "t"),
        QueueRow("3", "FAILED", "None", None, None, "t"),
    ]


def test_what_a_partition_offers_is_told_with_its_gpus(shim: Shim) -> None:
    shim("scontrol", "echo 'SLURM_VERSION = 22.05'")
    shim(
        "sinfo",
        "echo 'a100|8|64|2-00:00:00|gpu:a100:4'\necho 'long|2|16|10-00:00:00|(null)'",
    )
    assert SLURM.offers() == (
        "Slurm 22.05: a100 (8 nodes, 64 cores, 2-00:00:00, gpu:a100:4), long (2 nodes, 16 cores, 10-00:00:00)"
    )


def test_a_failing_queue_tells_nothing(shim: Shim) -> None:
    shim("squeue", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(ClusterError, match="Unable to contact"):
        SLURM.queue()


def test_only_an_invalid_id_is_a_job_that_slurm_forgot(shim: Shim) -> None:
    shim("scontrol", "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1")
    assert look_up("7") == {}
    shim("scontrol", "echo 'Job 7_1 not found'; exit 1")
    assert look_up("7_1") == {}
    shim("scontrol", "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1")
    with pytest.raises(ClusterError):
        look_up("7")
    shim(
        "scontrol",
        "echo 'JobId=9 ArrayJobId=7 ArrayTaskId=1 JobName=t JobState=FAILED Reason=x ExitCode=3:0'",
    )
    assert look_up("7_1")["7_1"].exit_code == 3
    shim("scontrol", "exit 0")
    with pytest.raises(ClusterError, match="showing no job"):
        look_up("7_1")
    shim("sacct", "echo '7_1|CANCELLED by 0|0:15|2026|t'")
    assert look_up("7_1", accounting=True)["7_1"].state == "CANCELLED by 0"
    shim("sacct", "exit 1")
    with pytest.raises(ClusterError):
        look_up("7_1", accounting=True)


def test_variables_of_an_outer_job_are_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_CONF", "SLURM_CLUSTERS", "MINE"):
        monkeypatch.setenv(name, "x")
    passed = SLURM.environment()
    assert {"SLURM_CONF", "SLURM_CLUSTERS", "MINE"} <= passed.keys()
    assert "SLURM_JOB_ID" not in passed
    assert "SLURM_NTASKS" not in passed
