"""HTCondor's words: condor_submit, condor_q, condor_history, condor_rm, and how their answers are read.
Asks and tells; decides nothing. Tried on answers written after the documented format, on no real system.
Hosts must share the disk of the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tenuto.launchers.cluster.dialect import Dialect, JobScript, QueueRow, SubmissionAnswer

_FIELDS = "ClusterId,ProcId,JobStatus,HoldReason,JobBatchName,ExitCode,ExitBySignal,CompletionDate"
_DESCRIPTION = """universe = vanilla
executable = {shell}
arguments = "'{directory}/script.sh'"
output = {directory}/out
error = {directory}/out
initialdir = /
getenv = True
should_transfer_files = NO
environment = "TENUTO_CONDOR_JOB=$(Cluster) TENUTO_CONDOR_INDEX=$(Process)"
batch_name = {name}
{options}
queue {jobs}
"""


class CondorDialect(Dialect):
    """HTCondor, by its command line. It starts jobs again by itself; their claims make that harmless."""

    title = "HTCondor"
    submit_words = ("condor_submit", "-terse", "-")
    submit_id = r"(\d+)\.\d+"
    later = ("can't find address", "failed to connect", "timed out", "failed to fetch", "connection refused")
    full = ("max_jobs_submitted", "max_jobs_per_owner", "number of jobs submitted would exceed")
    options: Mapping[str, str] = {
        "time": "allowed_execute_duration={seconds}",
        "cores": "request_cpus={n}",
        "memory": "request_memory={mib}",
        "gpus": "request_gpus={n}",
        "account": "accounting_group={value}",
        "constraint": "requirements={value}",
    }
    variables: Mapping[str, str] = {
        "job": "TENUTO_CONDOR_JOB",
        "index": "TENUTO_CONDOR_INDEX",
        "task": "{job}.{index}",
    }
    list_words = ("condor_q", "-json", "-attributes", _FIELDS)
    end_words = ("condor_history", "-json", "-attributes", _FIELDS, "{ids}")
    states: Mapping[str, str] = {
        **dict.fromkeys(("1", "5"), "pending"),
        **dict.fromkeys(("2", "6", "7"), "running"),
        "3": "cancelled",
        "4": "exited",
    }
    cancel_words = ("condor_rm", "{ids}")
    never_starts = ("held",)
    foreign_variables = ("_CONDOR_", "TENUTO_CONDOR_")
    array_blanks = ()  # the description of a job says all that

    def job_variables(self, *, is_array: bool) -> tuple[str, ...]:
        return super().job_variables(is_array=True)  # a single job has an index, too

    def task_id(self, job: str, index: int, *, is_array: bool) -> str:
        return super().task_id(job, index, is_array=True)

    def submit(self, job: JobScript) -> SubmissionAnswer:
        shell = job.script.partition("\n")[0].removeprefix("#!").split()[0]
        options = "\n".join(job.options)
        given = _DESCRIPTION.format(
            shell=shell, directory=job.directory, name=job.name, options=options, jobs=job.jobs
        )
        return self._submitted(list(self.submit_words), given)

    def read_list(self, text: str) -> list[QueueRow]:
        return [_row(told) for told in self.read_json(text) or () if "ClusterId" in told]


DIALECT = CondorDialect


def _row(told: Mapping[str, Any]) -> QueueRow:
    state, held = str(told.get("JobStatus", "")), str(told.get("HoldReason", ""))
    code = told.get("ExitCode")
    is_own = type(code) is int and not told.get("ExitBySignal")
    ended = told.get("CompletionDate") or None
    return QueueRow(
        f"{told['ClusterId']}_{told.get('ProcId', 0)}",
        state,
        f"held: {held}" if state == "5" else "",
        float(ended) if isinstance(ended, int | float) else None,
        code if is_own else None,
        str(told.get("JobBatchName", "")),
    )
