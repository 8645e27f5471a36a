"""Grid Engine's words: qsub, qstat, qacct, qdel, and how their answers are read.
Asks and tells; decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from xml.etree import ElementTree

from tenuto.launchers.cluster.dialect import (
    ASK_S,
    MEANINGS,
    ClusterError,
    Dialect,
    JobScript,
    Meaning,
    QueueRow,
    SubmissionAnswer,
    SubmissionOutcome,
    first_line,
)
from tenuto.launchers.requirements import about_size, size_text

_OVER_MEMORY = "h_vmem"
"""The limit by which execd kills a job; else its accounting says the same of it as of a deleted one."""
_BY_LOAD = "mem_free="
"""A request for what hosts report as their load, which `-w e` takes for one that no host can meet."""
_SIZE = re.compile(r"([\d.]+)([KMGTkmgt]?)")
_UNFIT = re.compile(r"[\s/:@\\*?]")
"""Characters that no name of a job may have."""


class GridEngineDialect(Dialect):
    """Grid Engine, by its command line."""

    title = "Grid Engine"
    submit_words = (
        *("qsub", "-terse", "-w", "e", "-r", "n", "-V", "-S", "/bin/bash", "-wd", "/", "-j", "y"),
        *("-N", "{name}", "-o", "{out}", "{options}", "[", "-t", "1-{count}", "{throttle}", "]", "{script}"),
    )
    submit_id = r"(\d+)(?:\.\S+)?\s*\Z"
    later = (
        *("unable to contact qmaster", "can't connect", "commlib error", "got select timeout"),
        *("unable to send message", "failed receiving gdi", "connection refused"),
    )
    unknown = ("error: job id",)
    full = ("job rejected: only", "max_u_jobs", "max_jobs", "too many")
    options: Mapping[str, str] = {
        "time": "-l h_rt={seconds}",
        "cores": "-pe smp {n}",
        "memory": "-l mem_free={mib}M",
        "gpus": "-l gpu={n}",
        "partition": "-q {value}",
        "account": "-P {value}",
        "constraint": "-l {value}",
    }
    variables: Mapping[str, str] = {
        "job": "JOB_ID",
        "index": "SGE_TASK_ID",
        "first": "1",
        "task": "{job}.{index}",
    }
    # -g d: tasks that wait are else one row, with a range.
    list_words = ("qstat", "-g", "d", "-xml", "-u", "{user}")
    end_words = ("qacct", "-j", "{ids}")
    end_late_s = 15.0
    states: Mapping[str, str] = {
        "failed 37": "timeout",
        "failed 100": "cancelled",
        "exited": "exited",
        _OVER_MEMORY: "memory",
    }
    cancel_words = ("qdel", "{ids}")
    throttle_words = ("-tc", "{n}")
    keeps_shell = True
    ours = ("-t", "-N", "-o", "-e", "-j", "-S", "-sy", "-te", "-wd", "-cw", "-r")
    never_starts = ("E", "h")
    foreign_variables = ("JOB_ID", "JOB_NAME", "SGE_TASK_", "SGE_STDOUT_", "SGE_STDERR_", "SGE_JOB_")

    def job_name(self, text: str) -> str:
        text = _UNFIT.sub("_", text)
        return text if text[:1].isalpha() else f"j{text}"

    def submit(self, job: JobScript) -> SubmissionAnswer:
        """Queues a job; one that asks for memory is checked before, since `-w e` would refuse it anywhere."""
        if self.settings.submit is not None or not any(word.startswith(_BY_LOAD) for word in job.options):
            return super().submit(job)
        try:
            problem = self.why_refused(job.options)
        except ClusterError as error:
            return SubmissionAnswer(SubmissionOutcome.LATER, str(error))
        if problem is not None:
            return SubmissionAnswer(self.outcome(problem), problem)
        return super().submit(job._replace(options=[*job.options, "-w", "n"]))

    def why_refused(self, arguments: Sequence[str]) -> str | None:
        words: list[str] = []
        asked = 0.0
        for word in arguments:
            if word.startswith(_BY_LOAD):
                asked = max(asked, _bytes(word.removeprefix(_BY_LOAD)))
                words.pop()  # its -l
            else:
                words.append(word)
        done = self.run(["qsub", "-w", "v", *words], ASK_S, "true\n")
        if done.returncode:
            return first_line(done.stderr).removeprefix("Unable to run job: ")
        hosts = self.asked(["qhost"]).stdout.splitlines()
        largest = max((_bytes(line.split()[7]) for line in hosts[2:] if len(line.split()) > 7), default=0.0)
        if asked > largest > 0:
            said = f"{size_text(int(asked))} of memory are asked for"
            return f"{said}, and no host has more than {about_size(int(largest))}"
        return None

    def _read_meaning(self, state: str) -> Meaning:
        """States are letters: `qw hqw Eqw` wait, whatever else runs, and `failed N` tells of an end."""
        if state in self.states:
            return super()._read_meaning(state)
        if state.startswith("failed "):
            return MEANINGS["exited"]
        return MEANINGS["pending" if "q" in state else "running"]

    def read_list(self, text: str) -> list[QueueRow]:
        return [row for job in ElementTree.fromstring(text).iter("job_list") for row in _rows(job)]

    def look_up(self, jobs: Mapping[str, str]) -> dict[str, QueueRow]:
        if self.settings.end is not None:
            return super().look_up(jobs)
        wanted = set(jobs)
        found: dict[str, QueueRow] = {}
        for array in {job.rpartition("_")[0] or job for job in wanted}:
            text = self.asked([*self.end_words[:-1], array]).stdout
            found |= {row.job: row for row in self.read(self.read_end, text) if row.job in wanted}
        return found

    def read_end(self, text: str) -> list[QueueRow]:
        return [_ended_row(block) for block in text.split("=" * 30) if "jobnumber" in block]


DIALECT = GridEngineDialect


def _rows(job: ElementTree.Element) -> Iterator[QueueRow]:
    """A job, or the tasks that share an element: `3`, `5-10:1`, or both with a comma between."""
    number, state = job.findtext("JB_job_number", ""), job.findtext("state", "")
    name, tasks = job.findtext("JB_name", ""), job.findtext("tasks", "")
    for part in tasks.split(",") if tasks else [""]:
        first, is_range, rest = part.partition("-")
        last, _, step = rest.partition(":")
        indices = [part] if not is_range else map(str, range(int(first), int(last) + 1, int(step or 1)))
        for index in indices:
            reason = "" if state == "qw" else state
            yield QueueRow(f"{number}_{index}" if index else number, state, reason, None, None, name)


def _bytes(text: str) -> float:
    """A size as Grid Engine writes it: `600M` of a request, `268.020MB` of the accounting."""
    found = _SIZE.match(text)
    return float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " ") if found else 0.0


def _ended_row(block: str) -> QueueRow:
    """One job of qacct's: names and values, one on each line."""
    fields = dict(line.partition(" ")[::2] for line in block.splitlines() if " " in line)
    told = {name: value.strip() for name, value in fields.items()}
    task, failed = told.get("taskid", ""), told.get("failed", "0").split(" ")[0]
    code = told.get("exit_status", "").split(" ")[0]
    ended = None
    for pattern in ("%a %b %d %H:%M:%S %Y", "%m/%d/%Y %H:%M:%S.%f"):
        try:
            ended = datetime.strptime(told.get("end_time", ""), pattern).timestamp()  # noqa: DTZ007  local
        except ValueError:
            continue
    job = told["jobnumber"] if task in ("", "undefined") else f"{told['jobnumber']}_{task}"
    exit_code = int(code) if code.isdecimal() and int(code) < 128 else None
    state = "exited" if failed == "0" else f"failed {failed}"
    limit = re.search(rf"\b{_OVER_MEMORY}=(\S+?)(?:,|\s|$)", told.get("category", ""))
    if failed == "100" and limit and _bytes(told.get("maxvmem", "")) >= _bytes(limit[1]):
        state = _OVER_MEMORY
    return QueueRow(job, state, "", ended, exit_code, told.get("jobname", ""))
