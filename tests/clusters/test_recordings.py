"""Owns the reading of batch systems that are not installed here: answers written after their formats."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import InvalidSetting, LauncherNotFound
from tenuto.launchers.cluster.dialect import (
    ClusterError,
    ClusterOptions,
    Dialect,
    JobScript,
    SubmissionOutcome,
    dialect_of,
)
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.settings.clusters import DIALECTS, ClusterSettings
from tenuto.workspace.derive_table import ClusterSays

PENDING, RUNNING, ENDED = ClusterSays.PENDING, ClusterSays.RUNNING, ClusterSays.ENDED
LOST, TIMEOUT = JobFailureStatus.LOST, JobFailureStatus.TIMEOUT
MEMORY, CANCELLED = JobFailureStatus.MEMORY, JobFailureStatus.CANCELLED
ASKED = ClusterOptions(time_s=3600.0, cpus=2, memory_bytes=1 << 30, partition="long", account="lab")
GRACE_S = 10.0

PBS = {
    "Jobs": {
        "12[0].head": {"Job_Name": "T-01234567", "job_state": "Q", "comment": "Not Running: no nodes"},
        "12[1].head": {"Job_Name": "T-01234567", "job_state": "R"},
        "12[2].head": {"Job_Name": "T-01234567", "job_state": "X", "Exit_status": 3},
        "13.head": {"Job_Name": "U-01234567", "job_state": "F", "Exit_status": 271},
        "14.head": {"job_state": "F", "Exit_status": -29, "comment": "job killed: walltime 3700 exceeded"},
    }
}
LSF: dict[str, list[dict[str, str]]] = {
    "RECORDS": [
        {"JOBID": "12", "JOBINDEX": "1", "STAT": "PEND", "PEND_REASON": "slots", "JOB_NAME": "T-1[1]"},
        {"JOBID": "12", "JOBINDEX": "2", "STAT": "SSUSP", "JOB_NAME": "T-1[2]"},
        {"JOBID": "12", "JOBINDEX": "3", "STAT": "EXIT", "EXIT_CODE": "3", "JOB_NAME": "T-1[3]"},
        {"JOBID": "13", "JOBINDEX": "0", "STAT": "EXIT", "EXIT_CODE": "130", "EXIT_REASON": "TERM_OWNER: x"},
        {"JOBID": "14", "STAT": "EXIT", "EXIT_CODE": "140", "EXIT_REASON": "TERM_RUNLIMIT: time"},
        {"JOBID": "15", "STAT": "EXIT", "EXIT_CODE": "137", "EXIT_REASON": "TERM_MEMLIMIT: memory"},
    ]
}
CONDOR: list[dict[str, Any]] = [
    {"ClusterId": 12, "ProcId": 0, "JobStatus": 5, "HoldReason": "no disk", "JobBatchName": "T-01234567"},
    {"ClusterId": 12, "ProcId": 1, "JobStatus": 2},
    {"ClusterId": 12, "ProcId": 2, "JobStatus": 4, "ExitCode": 3, "CompletionDate": 1790000000},
    {"ClusterId": 13, "ProcId": 0, "JobStatus": 3},
    {"ClusterId": 14, "ProcId": 0, "JobStatus": 4, "ExitBySignal": True, "ExitCode": 0},
]
SGE = """<?xml version='1.0'?><job_info><queue_info>
<job_list state="running"><JB_job_number>12</JB_job_number><JB_name>T-01234567</JB_name><state>r</state>
<tasks>1</tasks></job_list></queue_info><job_info>
<job_list state="pending"><JB_job_number>12</JB_job_number><JB_name>T-01234567</JB_name><state>qw</state>
<tasks>2-4:1,7</tasks></job_list>
<job_list state="pending"><JB_job_number>13</JB_job_number><JB_name>U</JB_name><state>Eqw</state></job_list>
</job_info></job_info>"""


class Recorded:
    """Commands that answer as they once did."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")

    def __call__(self, name: str, answer: object, code: int = 0, complaint: str = "") -> None:
        path = self._directory / name
        text = answer if isinstance(answer, str) else json.dumps(answer)
        (self._directory / f"{name}.answer").write_text(text)
        path.write_text(
            f'#!/bin/sh\ncat >"{path}.given"\necho "$*" >>"{path}.calls"\ncat "{path}.answer"\n'
            f"echo '{complaint}' >&2\nexit {code}\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def calls(self, name: str) -> list[str]:
        return (self._directory / f"{name}.calls").read_text().splitlines()

    def given(self, name: str) -> str:
        return (self._directory / f"{name}.given").read_text()


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(tmp_path, monkeypatch)


def dialect(name: str, **words: Any) -> Dialect:
    return dialect_of(name, ClusterSettings(dialect=name, **words))


def read(of: Dialect) -> dict[str, tuple[ClusterSays, JobFailureStatus, int | None]]:
    """What each job of the list means, and its exit code."""
    found = {row.job: (of.meaning(row.state), row.exit_code) for row in of.queue()}
    return {job: (meaning.says, meaning.reason, code) for job, (meaning, code) in found.items()}


@pytest.mark.parametrize(
    ("name", "command", "answer", "expected"),
    [
        (
            *("pbs", "qstat", PBS),
            {
                "12.head_0": (PENDING, LOST, None),
                "12.head_1": (RUNNING, LOST, None),
                "12.head_2": (ENDED, LOST, 3),
                "13.head": (ENDED, CANCELLED, None),
                "14.head": (ENDED, TIMEOUT, None),
            },
        ),
        (
            *("lsf", "bjobs", LSF),
            {
                "12_1": (PENDING, LOST, None),
                "12_2": (RUNNING, LOST, None),
                "12_3": (ENDED, LOST, 3),
                "13": (ENDED, CANCELLED, None),
                "14": (ENDED, TIMEOUT, None),
                "15": (ENDED, MEMORY, None),
            },
        ),
        (
            *("condor", "condor_q", CONDOR),
            {
                "12_0": (PENDING, LOST, None),
                "12_1": (RUNNING, LOST, None),
                "12_2": (ENDED, LOST, 3),
                "13_0": (ENDED, CANCELLED, None),
                "14_0": (ENDED, LOST, None),
            },
        ),
        (
            *("sge", "qstat", SGE),
            {
                "12_1": (RUNNING, LOST, None),
                **{f"12_{index}": (PENDING, LOST, None) for index in (2, 3, 4, 7)},
                "13": (PENDING, LOST, None),
            },
        ),
    ],
    ids=["pbs", "lsf", "condor", "sge"],
)
def test_a_list_is_read(
    recorded: Recorded, name: str, command: str, answer: object, expected: dict[str, Any]
) -> None:
    recorded(command, answer)
    assert read(dialect(name)) == expected
    recorded(command, "{ what is this")
    with pytest.raises(ClusterError, match="cannot be read"):
        dialect(name).queue()
    recorded(command, "", code=1, complaint="cannot connect to server")
    with pytest.raises(ClusterError, match="cannot connect"):
        dialect(name).queue()


@pytest.mark.parametrize(
    ("name", "command", "answer", "job", "task"),
    [
        ("pbs", "qsub", "12[].head\n", "12.head", "12[1].head"),
        ("lsf", "bsub", "Job <12> is submitted to default queue <normal>.\n", "12", "12[2]"),
        ("condor", "condor_submit", "12.0 - 12.2\n", "12", "12.1"),
        ("sge", "qsub", "12.1-3:1\n", "12", "12.2"),
    ],
)
def test_an_array_is_submitted_and_its_second_task_is_called_by_its_name(
    recorded: Recorded, name: str, command: str, answer: str, job: str, task: str
) -> None:
    recorded(command, answer)
    recorded("qhost", "")  # of Grid Engine, which is asked whether a host has the memory
    spoken = dialect(name)
    words = spoken.arguments(ASKED, GRACE_S) if name != "condor" else []
    said = spoken.submit(JobScript("T-01234567", 3, words, "#!/bin/bash\n", "/ws/x"))
    assert said.text == job
    own = spoken.task_id(job, 1, is_array=True)
    assert spoken.native(own) == task
    assert spoken.normal(task) == own
    told = recorded.calls(command)[-1] + recorded.given(command)
    assert "T-01234567" in told
    assert "3" in told


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pbs", "-l walltime=01:00:40 -l ncpus=2 -l mem=1024mb -q long -A lab"),
        ("lsf", "-W 61 -n 2 -R span[hosts=1] -M 1024MB -q long -P lab"),
        ("sge", "-l h_rt=3640 -pe smp 2 -l mem_free=1024M -q long -P lab"),
    ],
)
def test_what_a_job_needs_is_asked_for(name: str, expected: str) -> None:
    assert " ".join(dialect(name).arguments(ASKED, GRACE_S)) == expected


def test_what_a_system_has_no_word_for_is_refused_and_a_site_can_say_it() -> None:
    with pytest.raises(LauncherNotFound, match=r"say how in clusters.sge.options"):
        dialect("sge").arguments(ClusterOptions(qos="high"))
    mended = dialect("sge", options={"qos": "-l qos={value}"})
    assert mended.arguments(ClusterOptions(qos="high")) == ["-l", "qos=high"]


def test_a_site_mends_a_word(recorded: Recorded) -> None:
    recorded("mylist", "7 ODD x T-1\n8|OTHER|y|T-2\n")
    spoken = dialect("slurm", list=("mylist",), states={"ODD": "timeout"})
    assert read(spoken) == {"7": (ENDED, TIMEOUT, None), "8": (RUNNING, LOST, None)}
    with pytest.raises(InvalidSetting, match="'late' is no meaning of a state"):
        dialect("slurm", states={"ODD": "late"})


def test_every_dialect_can_be_had() -> None:
    for name in DIALECTS:
        words = {"submit": ("qsub", "{script}")} if name == "generic" else {}
        words |= {"hosts": ("a:4", "b")} if name == "ssh" else {}
        assert dialect(name, **words).title


@pytest.mark.parametrize(
    "hosts",
    [None, ("a:x",), (":4",), ("a:0",), ("::1",), ("fe80::1:4",), ("a;b:2",), ("$a",), ("-a",), ("a:4", "a")],
)
def test_hosts_that_make_no_sense_are_refused(hosts: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"clusters.ssh.hosts"):
        dialect("ssh", hosts=hosts)


@pytest.mark.parametrize(
    ("host", "name"),
    [("a:4", "a"), ("a:004", "a"), ("me@10.0.0.1:4", "me@10.0.0.1"), ("[fe80::1%eth0]:4", "fe80::1%eth0")],
)
def test_a_host_is_read_with_its_slots(recorded: Recorded, tmp_path: Path, host: str, name: str) -> None:
    spoken = dialect("ssh", hosts=(host,))
    assert spoken.most_jobs() == 4
    recorded("ssh", "71\n")
    job = JobScript("t-01234567", 1, [], "#!/bin/sh\n", str(tmp_path / "ssh" / "0123"))
    assert spoken.submit(job) == (SubmissionOutcome.TAKEN, f"{name}:71")


def test_a_slot_whose_driver_was_killed_while_it_took_it_is_free_after_a_while(
    recorded: Recorded, tmp_path: Path
) -> None:
    spoken = dialect("ssh", hosts=("a:1",))
    recorded("ssh", "71\n")
    job = JobScript("t-01234567", 1, [], "#!/bin/sh\n", str(tmp_path / "ssh" / "0123"))
    slot = tmp_path / "ssh-slots" / "a" / "0"
    slot.parent.mkdir(parents=True)
    slot.touch()
    assert spoken.submit(job) == (SubmissionOutcome.LATER, "every slot is taken")
    os.utime(slot, (0, 0))
    assert spoken.submit(job).outcome is SubmissionOutcome.TAKEN


def test_a_system_that_gives_no_answer_is_not_offered(recorded: Recorded) -> None:
    recorded("qstat", SGE)
    assert dialect("sge").offers() == "Grid Engine, by qsub"
    recorded("qstat", "", code=1, complaint="error: unable to contact qmaster")
    with pytest.raises(ClusterError, match="unable to contact qmaster"):
        dialect("sge").offers()


def test_hosts_that_give_no_answer_are_named(recorded: Recorded, tmp_path: Path) -> None:
    spoken = dialect("ssh", hosts=("a:4", "b:2"))
    recorded("ssh", "")
    program = (tmp_path / "ssh").read_text()
    (tmp_path / "ssh").write_text(program.replace("exit 0", 'case "$*" in *" b "*) exit 255 ;; esac'))
    assert spoken.offers() == "by ssh: a (4 slots), b (2 slots, gives no answer)"
    recorded("ssh", "", code=255)
    with pytest.raises(ClusterError, match="no answer by ssh from a, b"):
        dialect("ssh", hosts=("a:4", "b:2")).offers()


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({"Exit_status": -29}, (ENDED, TIMEOUT, None)),
        ({"Exit_status": -27}, (ENDED, MEMORY, None)),
        ({"Exit_status": "3"}, (ENDED, LOST, 3)),
        ({"Exit_status": -3}, (ENDED, LOST, None)),
        ({"Exit_status": 265}, (ENDED, LOST, None)),
        ({"Exit_status": 143, "substate": 91}, (ENDED, CANCELLED, 143)),
        ({"substate": 91, "comment": None}, (ENDED, CANCELLED, None)),
        ({"job_state": "C", "Exit_status": 271}, (ENDED, CANCELLED, None)),
        ({"Exit_status": 265, "comment": "Job run on (n1:mem=4gb) and failed"}, (ENDED, LOST, None)),
        ({"Exit_status": 265, "comment": "Job run and exceeded resource mem"}, (ENDED, MEMORY, None)),
        ({"Exit_status": 271, "comment": "mem 2000kb exceeded limit 1000kb"}, (ENDED, MEMORY, None)),
        ({"Exit_status": 0, "comment": "Job run at 10:02 on (n1:mem=4gb) and finished"}, (ENDED, LOST, 0)),
    ],
)
def test_the_history_of_pbs_tells_why_a_job_ended(recorded: Recorded, told: Any, expected: Any) -> None:
    recorded("qstat", {"Jobs": {"7.head": {"job_state": "F", **told}}})
    assert read(dialect("pbs")) == {"7.head": expected}


@pytest.mark.parametrize(
    ("name", "command", "complaint", "answer", "job"),
    [
        ("pbs", "qstat", "qstat: Unknown Job Id 8.head", PBS, "13.head"),
        ("lsf", "bjobs", "Job <8> is not found", LSF, "13"),
        ("lsf", "bjobs", "No job found", "", None),
        ("sge", "qacct", "error: job id 8 not found", "", None),
    ],
)
def test_a_job_that_the_system_forgot_does_not_hide_the_end_of_another(
    recorded: Recorded, name: str, command: str, complaint: str, answer: object, job: str | None
) -> None:
    recorded(command, answer, code=1, complaint=complaint)
    found = dialect(name).look_up({"8": "", **({} if job is None else {job: ""})})
    assert "8" not in found
    assert job is None or found[job].state in ("DELETED", "TERM_OWNER")


def test_a_generic_system_without_words_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"clusters.generic.submit is missing"):
        dialect("generic")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ({"submit_id": r"job (\d+"}, r"submit_id: 'job \(\\\\d\+' is no pattern: missing \)"),
        ({"submit_id": r"job \d+"}, r"submit_id: .* has no group"),
        (
            {"submit": ("qsub", "[", "-t", "1-{count}", "{script}")},
            r"submit: `\[` and `\]` must come in pairs",
        ),
        ({"cancel": ("qdel", "]", "{ids}", "[")}, r"cancel: `\[` and `\]` must come in pairs"),
        ({"options": {"mem": "-l mem={mib}M"}}, r"options: 'mem' is none of time, cores, memory, "),
        ({"variables": {"jobs": "JOB_ID"}}, r"variables: 'jobs' is none of job, array, "),
        ({"variables": {"first": "one"}}, r"variables: first must be a number from 0 up, not 'one'"),
        ({"states": {"R": "runs"}}, r"states: 'runs' is no meaning of a state"),
    ],
)
def test_words_by_which_a_job_would_be_lost_sight_of_are_refused(words: Any, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"^clusters\.generic\.{problem}"):
        dialect("generic", **{"submit": ("qsub", "{script}"), **words})


@pytest.mark.parametrize(("name", "command"), [("lsf", "bsub"), ("condor", "condor_submit"), ("pbs", "qsub")])
def test_a_command_that_was_never_there_refuses_a_job_and_one_that_is_away_delays_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, command: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    spoken, job = dialect(name), JobScript("T-01234567", 1, [], "#!/bin/sh\n", "/ws/x")
    refused = spoken.submit(job)
    assert (refused.outcome, refused.text) == (
        SubmissionOutcome.REFUSED,
        f"{command} cannot be run: No such file or directory",
    )
    (tmp_path / command).write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / command).chmod(0o755)
    spoken.submit(job)
    (tmp_path / command).unlink()
    assert spoken.submit(job).outcome is SubmissionOutcome.LATER


FEDERATION = """#!/bin/sh
echo "$(basename $0) $SLURM_CLUSTERS: $*" >> {directory}/calls
case "$(basename $0) $SLURM_CLUSTERS" in
    sbatch*) echo '12;b_2' ;;
    "squeue a,b_2") printf 'CLUSTER: a\\n12_0|RUNNING|None|N/A|0|T-76543210|\\n'
        printf 'CLUSTER: b_2\\n12_0|PENDING|Priority|N/A|0|T-01234567|\\n'
        printf '12_1|RUNNING|None|N/A|0|T-01234567|\\n' ;;
    "scontrol b_2") echo 'JobId=3 ArrayJobId=12 ArrayTaskId=1 JobName=T-01234567 JobState=TIMEOUT' ;;
    scontrol*) exit 1 ;;
esac
"""


def test_an_id_of_a_federation_keeps_its_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sbatch", "squeue", "scancel", "scontrol"):
        (tmp_path / name).write_text(FEDERATION.format(directory=tmp_path))
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CLUSTERS", "a,b_2")
    spoken = dialect("slurm")
    job = spoken.submit(JobScript("T-01234567", 2, [], "", "/ws/x")).text
    own = spoken.task_id(job, 1, is_array=True)
    assert spoken.job_variables(is_array=True)[0] == "SLURM_CLUSTER_NAME"
    assert spoken.normal("b_2_12_1") == own  # as the claim of its runner says
    assert spoken.shown_id(own) == "12_1;b_2"
    says = {row.job: spoken.meaning(row.state).says for row in spoken.queue()}
    assert (says[own], says[spoken.task_id(job, 0, is_array=True)]) == (RUNNING, PENDING)
    assert len(says) == 3
    assert spoken.look_up({own: ""})[own].state == "TIMEOUT"
    spoken.signal([own, "7"])
    spoken.cancel_tasks([own])
    calls = (tmp_path / "calls").read_text()
    assert "scancel b_2: -Q -b -s TERM --state=RUNNING 12_1\n" in calls
    assert "scancel a,b_2: -Q -b -s TERM --state=RUNNING 7\n" in calls
    assert "scancel b_2: -Q 12_[1]\n" in calls


@pytest.mark.parametrize(
    ("name", "command", "answer"),
    [
        (
            "sge",
            "qstat",
            "<job_info><job_list><JB_job_number>3</JB_job_number><tasks>a-b</tasks></job_list></job_info>",
        ),
        ("sge", "qstat", "no XML"),
        ("pbs", "qstat", "[1, 2]"),
        ("pbs", "qstat", '{"Jobs": {"1": 2}}'),
        ("lsf", "bjobs", '{"RECORDS": 3}'),
        ("condor", "condor_q", '[{"ClusterId": 3, "CompletionDate": 4}, 5]'),
        ("condor", "condor_q", "{"),
    ],
)
def test_an_answer_of_another_shape_tells_nothing(
    recorded: Recorded, name: str, command: str, answer: str
) -> None:
    recorded(command, answer)
    with pytest.raises(ClusterError, match="answered what cannot be read"):
        dialect(name).queue()


def test_a_machine_without_ssh_refuses_jobs_and_one_without_a_process_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that the lists of hosts raised would else fail every job that waits."""
    spoken = dialect_of("lab", ClusterSettings(dialect="ssh", hosts=("a:4", "b:4")))
    job = JobScript("t-01234567", 1, [], "#!/bin/sh\n", str(tmp_path / "lab" / "0123"))
    path = os.environ["PATH"]
    monkeypatch.setenv("PATH", str(tmp_path))
    assert spoken.submit(job) == (SubmissionOutcome.REFUSED, "ssh is not on the PATH")
    with pytest.raises(ClusterError, match=r"^ssh cannot be run: No such file or directory$"):
        spoken.queue()
    monkeypatch.setenv("PATH", path)
    begun: list[object] = []

    def start(*arguments: object, **options: object) -> object:
        if begun:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        begun.append(real(["sleep", "60"], stdout=subprocess.PIPE, text=True))
        return begun[-1]

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", start)
    with pytest.raises(ClusterError, match=r"^ssh cannot be run: Resource temporarily unavailable$"):
        spoken.queue()
    (first,) = begun
    assert isinstance(first, real)
    assert first.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "reason",
    [
        *("PartitionTimeLimit", "PartitionNodeLimit", "JobHeldUser", "JobHeldAdmin", "InvalidAccount"),
        *("InvalidQOS", "AccountNotAllowed", "QOSNotAllowed", "QOSMinCpuNotSatisfied", "MaxMemPerLimit"),
        *(
            "QOSMaxWallDurationPerJobLimit",
            "AssocMaxCpuPerJobLimit",
            "QOSMaxMemoryPerJob",
            "AssocMaxGRESPerJob",
        ),
    ],
)
def test_a_reason_that_no_waiting_cures_is_told_to_never_start(reason: str) -> None:
    told = dialect("slurm").pending_text(reason)
    assert told == f"it waits in Slurm's queue and will not start: {reason}"


@pytest.mark.parametrize(
    "reason",
    ["Resources", "Priority", "QOSMaxJobsPerUserLimit", "QOSMaxCpuPerUserLimit", "AssocMaxJobsLimit"],
)
def test_a_job_that_waits_for_others_is_only_told_to_wait(reason: str) -> None:
    assert dialect("slurm").pending_text(reason) == f"it waits in Slurm's queue: {reason}"
