"""PBS Pro's words (OpenPBS): qsub, qstat, qdel, qsig, and how their answers are read.
Asks and tells; decides nothing. Tried on answers written after the documented format, on no real system.
The history of jobs must be on at the site.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tenuto.launchers.cluster.dialect import Dialect, QueueRow
from tenuto.launchers.requirements import Alternative
from tenuto.launchers.runner.runner_protocol import ENDING

_SIGNALLED = 256
"""From here on an exit status tells of a signal."""
_LIMITS = {-29: "TIMEOUT", -28: "TIMEOUT", -27: "MEMORY", -26: "MEMORY"}
"""Exit statuses of jobs that reached a limit; of all others below 0 PBS itself could not run the job."""
_EXCEEDED = re.compile(r"(\bexceeded resource )?\b(v?mem|walltime|cput)\b(?(1)| \S+ exceeded)")
_TERMINATED = "91"
"""The substate of a job that was deleted, whether it had begun or not."""
_LONGEST_NAME = 15


class PbsDialect(Dialect):
    """PBS Pro, by its command line."""

    title = "PBS"
    submit_words = (
        *("qsub", "-N", "{name}", "-o", "{out}", "-j", "oe", "-r", "n", "-V", "{options}"),
        *("[", "-J", "0-{last}{throttle}", "]", "{script}"),
    )
    later = ("cannot connect", "connection refused", "pbs_iff", "timed out", "no route to host")
    unknown = ("unknown job id",)
    full = ("would exceed", "max_queued", "limit on the number", "maximum number of jobs")
    options: Mapping[str, str] = {
        "time": "-l walltime={hms}",
        "cores": "-l ncpus={n}",
        "memory": "-l mem={mib}mb",
        "gpus": "-l ngpus={n}",
        "partition": "-q {value}",
        "account": "-A {value}",
        "constraint": "-l {value}",
    }
    variables: Mapping[str, str] = {"job": "PBS_JOBID", "index": "PBS_ARRAY_INDEX"}
    list_words = ("qstat", "-t", "-x", "-f", "-F", "json")
    end_words = (*list_words, "{ids}")
    states: Mapping[str, str] = {
        **dict.fromkeys(("Q", "H", "W", "T"), "pending"),
        **dict.fromkeys(("R", "E", "S", "U", "B"), "running"),
        **dict.fromkeys(("F", "X", "C"), "exited"),
        "TIMEOUT": "timeout",
        "MEMORY": "memory",
        "DELETED": "cancelled",
    }
    cancel_words = ("qdel", "{ids}")
    signal_words = ("qsig", "-s", "TERM", "{ids}")
    throttle_words = ("%{n}",)
    ours = ("-J", "-N", "-o", "-e", "-j", "-r", "-W")
    never_starts = ("Can Never Run", "H")
    foreign_variables = ("PBS_",)
    kept_variables = ("PBS_CONF_FILE", "PBS_SERVER", "PBS_EXEC", "PBS_HOME", "PBS_DEFAULT")

    def _places(self, needs: Alternative) -> list[str]:
        """Several nodes, or a type of GPU, are chunks, beside which PBS takes no other word for needs.

        PBS may else put two chunks on one host.
        """
        has_type = needs.gpus is not None and needs.gpus.type is not None and "gpu_type" not in self.options
        is_wide = (needs.nodes or 1) > 1 or needs.tasks_per_node > 1
        if "nodes" in self.options or not (is_wide or has_type):
            return super()._places(needs)
        chunk = f"{needs.nodes or 1}:ncpus={needs.cores_per_node}:mpiprocs={needs.tasks_per_node}"
        if needs.memory_bytes is not None:
            chunk += f":mem={-(-needs.memory_bytes // (1 << 20))}mb"
        if needs.gpus is not None:
            chunk += f":ngpus={needs.gpus.count}"
            chunk += f":gpu_model={needs.gpus.type}" if needs.gpus.type else ""
        return ["-l", f"select={chunk}", *(("-l", "place=scatter") if (needs.nodes or 1) > 1 else ())]

    def job_name(self, text: str) -> str:
        text = re.sub(r"[^\w.+-]", "_", text)
        name, _, end = text.rpartition("-")
        text = f"{name[: _LONGEST_NAME - len(end) - 1]}-{end}"
        return text if text[:1].isalpha() else f"j{text[1:]}"

    def job_variables(self, *, is_array: bool) -> tuple[str, ...]:
        names = super().job_variables(is_array=is_array)
        return names[:1] if "PBS_JOBID" in names else names  # of a task that is `12[3].server`

    def normal(self, job: str) -> str:
        """`12[3].server` is `12.server_3`, and its array `12[].server` is `12.server`."""
        found = re.fullmatch(r"(\d+)\[(\d*)\](.*)", job)
        if found is None:
            return job
        return f"{found[1]}{found[3]}" + (f"_{found[2]}" if found[2] else "")

    def native(self, job: str) -> str:
        array, is_task, index = job.rpartition("_")
        number, _, server = array.partition(".")
        return f"{number}[{index}]" + (f".{server}" if server else "") if is_task else job

    def read_list(self, text: str) -> list[QueueRow]:
        jobs = (self.read_json(text) or {}).get("Jobs", {})
        return [self._row(job, told) for job, told in jobs.items()]

    def _row(self, job: str, told: Mapping[str, Any]) -> QueueRow:
        state, comment = str(told.get("job_state", "")), str(told.get("comment") or "")
        reason = "H" if state == "H" else comment.removeprefix("Not Running: ")
        status = int(told.get("Exit_status") or 0)
        code = status if "Exit_status" in told and 0 <= status < _SIGNALLED else None
        if state in ("F", "X", "C"):
            limit = _EXCEEDED.search(comment)
            is_deleted = str(told.get("substate")) == _TERMINATED or status - _SIGNALLED in ENDING
            state = _LIMITS.get(status) or ("DELETED" if is_deleted else state)
            if limit and code is None:
                state = "MEMORY" if "mem" in limit[0] else "TIMEOUT"
        return QueueRow(self.normal(job), state, reason, None, code, str(told.get("Job_Name", "")))


DIALECT = PbsDialect
