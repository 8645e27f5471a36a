"""LSF's words: bsub, bjobs, bkill, and how their answers are read.
Asks and tells; decides nothing. Tried on answers written after the documented format, on no real system.
"""

from __future__ import annotations

from collections.abc import Mapping

from tenuto.launchers.cluster.dialect import Dialect, JobScript, QueueRow, SubmissionAnswer

_LIST = ("bjobs", "-a", "-json", "-o", "jobid jobindex stat exit_code exit_reason pend_reason job_name")


class LsfDialect(Dialect):
    """LSF, by its command line."""

    title = "LSF"
    submit_words = ("bsub", "-rn", "-J", "{name}", "-o", "{out}", "-cwd", "/", "{options}")
    submit_id = r"Job <(\d+)>"
    later = (
        "cannot open your job file",
        "lsf is down",
        "please wait",
        "failed in communication",
        "try later",
    )
    unknown = ("no job found", "no unfinished job found", "> is not found")
    full = ("job limit", "pending job threshold", "too many")
    options: Mapping[str, str] = {
        "time": "-W {minutes}",
        "cores": "-n {n} -R span[hosts=1]",
        "memory": "-M {mib}MB",
        "nodes": "-n {all_cores} -R span[ptile={cores_per_node}]",
        "gpus": "-gpu num={n}",
        "gpu_type": "-gpu num={n}:gmodel={type}",
        "partition": "-q {value}",
        "account": "-P {value}",
        "constraint": "-R {value}",
    }
    variables: Mapping[str, str] = {
        "job": "LSB_JOBID",
        "index": "LSB_JOBINDEX",
        "first": "1",
        "task": "{job}[{index}]",
    }
    list_words = _LIST
    end_words = (*_LIST, "{ids}")
    states: Mapping[str, str] = {
        **dict.fromkeys(("PEND", "PSUSP", "WAIT", "PROV"), "pending"),
        **dict.fromkeys(("RUN", "USUSP", "SSUSP", "UNKWN"), "running"),
        **dict.fromkeys(("DONE", "EXIT"), "exited"),
        **dict.fromkeys(("TERM_RUNLIMIT", "TERM_CPULIMIT", "TERM_DEADLINE"), "timeout"),
        **dict.fromkeys(("TERM_MEMLIMIT", "TERM_SWAP"), "memory"),
        **dict.fromkeys(("TERM_OWNER", "TERM_FORCE_OWNER", "TERM_ADMIN", "TERM_FORCE_ADMIN"), "cancelled"),
        **dict.fromkeys(("TERM_PREEMPT", "TERM_REQUEUE_OWNER"), "preempted"),
        "ZOMBI": "node_failed",
    }
    cancel_words = ("bkill", "{ids}")
    signal_words = ("bkill", "-s", "TERM", "{ids}")
    kill_words = ("bkill", "-s", "KILL", "{ids}")
    throttle_words = ("%{n}",)
    ours = ("-J", "-o", "-oo", "-e", "-eo", "-K", "-I", "-r", "-rn", "-cwd")
    foreign_variables = ("LSB_",)
    array_blanks = ("{name}",)

    def submit(self, job: JobScript) -> SubmissionAnswer:
        array = f"[1-{job.jobs}]{''.join(self._throttle())}" if job.jobs > 1 else ""
        return super().submit(job._replace(name=job.name + array))

    def read_list(self, text: str) -> list[QueueRow]:
        records = (self.read_json(text) or {}).get("RECORDS", [])
        return [self._row(record) for record in records if "JOBID" in record and "STAT" in record]

    def _row(self, record: Mapping[str, str]) -> QueueRow:
        index = record.get("JOBINDEX", "0")
        job = record["JOBID"] if index in ("", "0") else f"{record['JOBID']}_{index}"
        cause = record.get("EXIT_REASON", "").partition(":")[0]
        code = record.get("EXIT_CODE", "")
        is_ended = record["STAT"] in ("DONE", "EXIT")
        own = int(code) if code.isdecimal() and int(code) < 128 else 0 if record["STAT"] == "DONE" else None
        name = record.get("JOB_NAME", "").partition("[")[0]
        state = cause if is_ended and cause in self.states else record["STAT"]
        return QueueRow(job, state, record.get("PEND_REASON", ""), None, own if is_ended else None, name)


DIALECT = LsfDialect
