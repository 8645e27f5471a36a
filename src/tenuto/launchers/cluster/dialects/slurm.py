"""Slurm's words: sbatch, squeue, sacct, scancel, scontrol, sinfo, and how their answers are read.
Asks and tells; decides nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tenuto.errors import InvalidSetting
from tenuto.launchers.cluster.dialect import (
    ASK_S,
    ClusterError,
    ClusterOptions,
    Dialect,
    QueueRow,
    exit_code,
    first_line,
    instant,
    leading_number,
)
from tenuto.launchers.instructions import GRACE_S
from tenuto.settings import process_environment
from tenuto.settings.clusters import ClusterSettings
from tenuto.tasks.arguments import guarded_by

_UNKNOWN_JOB = "invalid job id"
_UNKNOWN_TASK = "not found"
"""Of an array whose other tasks the controller knows; it says so on standard output."""
_CLUSTERS = "SLURM_CLUSTERS"
_HEADING = "CLUSTER: "
_ID = re.compile(r"(?:(?P<before>[^\W\d]\w*?)_)?(?P<number>\d+)(?P<index>_\d+)?(?:;(?P<after>\S+))?")
_AT = re.compile(r"@[^_]*")
_PARTITION = 5
"""Fields that are asked of each."""
_FIELDS = "JobArrayID:|,State:|,Reason:|,EndTime:|,exit_code:|,Name:|"


class SlurmDialect(Dialect):
    """Slurm, by its command line."""

    title = "Slurm"
    submit_words = (
        *("sbatch", "--parsable", "--no-requeue", "--open-mode=append", "--input=none", "--chdir=/"),
        *("--job-name={name}", "--output={out}", "{options}", "[", "--array=0-{last}{throttle}", "]"),
    )
    submit_id = r"(\d+(?:;\S+)?)\s*\Z"
    later = (
        *("unable to contact", "socket timed out", "try again", "temporarily", "connection refused"),
        *("connect failure", "zero bytes were transmitted", "slurm_receive_msg", "communication connection"),
    )
    full = ("accounting/qos policy", "maxsubmit", "maxjobcount", "job violates", "limit on the number")
    options: Mapping[str, str] = {
        "time": "--time={minutes}",
        "cores": "--cpus-per-task={n}",
        "memory": "--mem={mib}M",
        "nodes": "--nodes={n} --ntasks={tasks} --ntasks-per-node={tasks_per_node} --cpus-per-task={cores}",
        "gpus": "--gpus={n}",
        "gpu_type": "--gpus={type}:{n}",
        "node_gpus": "--gpus-per-node={n}",
        "node_gpu_type": "--gpus-per-node={type}:{n}",
        "partition": "--partition={value}",
        "account": "--account={value}",
        "qos": "--qos={value}",
        "constraint": "--constraint={value}",
    }
    variables: Mapping[str, str] = {
        "job": "SLURM_JOB_ID",
        "array": "SLURM_ARRAY_JOB_ID",
        "index": "SLURM_ARRAY_TASK_ID",
    }
    list_words = ("squeue", "-h", "-r", "-t", "all", "--me", "-O", _FIELDS)
    end_words = (
        *("sacct", "-X", "-n", "-P", "-S", "now-7days", "-o", "JobID,State,ExitCode,End,JobName"),
        *("-j", "{comma_ids}"),
    )
    states: Mapping[str, str] = {
        **dict.fromkeys(
            ("PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"), "pending"
        ),
        **dict.fromkeys(
            ("RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT"), "running"
        ),
        **dict.fromkeys(("COMPLETED", "FAILED"), "exited"),
        **dict.fromkeys(("TIMEOUT", "DEADLINE"), "timeout"),
        "OUT_OF_MEMORY": "memory",
        **dict.fromkeys(("CANCELLED", "REVOKED"), "cancelled"),
        **dict.fromkeys(("PREEMPTED", "BOOT_FAIL"), "preempted"),
        "NODE_FAIL": "node_failed",
    }
    # A signal to a pending job would hang for minutes.
    cancel_words = ("scancel", "-Q", "[", "--state=PENDING", "]", "{ids}")
    signal_words = ("scancel", "-Q", "-b", "-s", "TERM", "--state=RUNNING", "{ids}")
    kill_words = ("scancel", "-Q", "-f", "-s", "KILL", "--state=RUNNING", "{ids}")
    throttle_words = ("%{n}",)
    limit_words = ("--signal=B:USR1@60",)
    ours = tuple(
        "--array -a --chdir --clusters -M -D --input -i --job-name -J --open-mode --output -o --parsable "
        "--requeue --no-requeue --signal --test-only --wait -W --wrap".split()
    )
    never_starts = (
        *("DependencyNeverSatisfied", "PartitionConfig", "PartitionTimeLimit", "PartitionNodeLimit"),
        *(
            "BadConstraints",
            "JobHeld",
            "Invalid",
            "AccountNotAllowed",
            "QOSNotAllowed",
            "QOSMin",
            "MaxMemPerLimit",
        ),
        # Of the accounting: what one job may have, which is less than this one wants.
        *(
            f"{who}Max{what}PerJob"
            for who in ("QOS", "Assoc")
            for what in ("Cpu", "Node", "Mem", "Memory", "GRES", "WallDuration", "WallDur")
        ),
    )
    foreign_variables = ("SLURM_",)
    kept_variables = ("SLURM_CONF", "SLURM_CLUSTERS")

    def __init__(self, name: str, settings: ClusterSettings, member: str = "") -> None:
        """`member`: the one cluster of a federation that is asked and told."""
        super().__init__(name, settings)
        self._known: dict[str, str] | None = None
        self._member = member
        self._members: dict[str, SlurmDialect] = {}

    # A federation: `SLURM_CLUSTERS` names its clusters, and an id is of one of them: `12@a`, and `12@a_3`

    def environment(self) -> dict[str, str]:
        return super().environment() | ({_CLUSTERS: self._member} if self._member else {})

    def job_variables(self, *, is_array: bool) -> tuple[str, ...]:
        of_federation = ("SLURM_CLUSTER_NAME",) if _CLUSTERS in process_environment() else ()
        return (*of_federation, *super().job_variables(is_array=is_array))

    def normal(self, job: str) -> str:
        """Also of `12;a`, which sbatch answers, and `a_12_3`, which a runner puts together."""
        found = _ID.fullmatch(job)
        member = found and (found["before"] or found["after"] or self._member)
        if not found or not member:
            return job
        return f"{found['number']}@{member.replace('_', '~')}{found['index'] or ''}"

    def native(self, job: str) -> str:
        return _AT.sub("", job)

    def shown_id(self, job: str) -> str:
        member = _member_of(job)
        return f"{self.native(job)};{member}" if member else job

    def _by_member(self, jobs: Iterable[str]) -> Iterator[tuple[SlurmDialect, list[str]]]:
        """The jobs of each cluster of a federation, and what asks and tells that; most are of none."""
        found: dict[str, list[str]] = {}
        for job in jobs:
            found.setdefault(_member_of(job), []).append(job)
        for member, own in found.items():
            yield self._at(member), own

    def _at(self, member: str) -> SlurmDialect:
        if member == self._member:
            return self
        return self._members.setdefault(member, SlurmDialect(self.name, self.settings, member))

    def _end(self, words: tuple[str, ...], jobs: Iterable[str], *, in_brackets: bool = False) -> None:
        for at, own in self._by_member(jobs):
            Dialect._end(at, words, own, in_brackets=in_brackets)

    def offers(self) -> str:
        version = self.configuration().get("SLURM_VERSION", "?")
        done = self.asked(["sinfo", "-h", "-o", "%R|%D|%c|%l|%G"])
        rows = [row for line in done.stdout.splitlines() if len(row := line.split("|")) == _PARTITION]
        found = [
            f"{name} ({nodes} nodes, {cores} cores, {limit}{'' if gpus == '(null)' else f', {gpus}'})"
            for name, nodes, cores, limit, gpus in rows
        ]
        return f"Slurm {version}: {', '.join(found)}"

    def why_refused(self, arguments: Sequence[str]) -> str | None:
        done = self.run([self.submit_words[0], "--test-only", *arguments], ASK_S, "#!/bin/sh\n")
        return None if done.returncode == 0 else first_line(done.stderr)

    def out_path(self, path: str) -> str:
        return path.replace("%", "%%")

    def configuration(self) -> dict[str, str]:
        """The settings of the cluster, by name. Raises `ClusterError`."""
        done = self.asked(["scontrol", "show", "config"])
        pairs = (line.partition("=") for line in done.stdout.splitlines() if "=" in line)
        return {name.strip(): value.strip() for name, _, value in pairs}

    def known_configuration(self) -> dict[str, str]:
        """The settings of the cluster, asked once; empty while it does not answer."""
        if self._known is None:
            with suppress(ClusterError):
                self._known = self.configuration()
        return self._known or {}

    def largest_array(self) -> int:
        if self.largest is not None:
            return super().largest_array()
        return leading_number(self.known_configuration().get("MaxArraySize", ""), super().largest_array())

    def remembers_s(self) -> float | None:
        age = self.known_configuration().get("MinJobAge")
        return None if age is None else leading_number(age, 300)

    def read_list(self, text: str) -> list[QueueRow]:
        at, found = self, []
        for line in text.splitlines():
            if line.startswith(_HEADING):  # of the rows of one cluster
                at = self._at(line.removeprefix(_HEADING).strip())
            elif (row := _queue_row(line)) is not None:
                found.append(row._replace(job=at.normal(row.job)))
        return found

    def read_end(self, text: str) -> list[QueueRow]:
        return self.read_end_lines(text)

    def look_up(self, jobs: Mapping[str, str]) -> dict[str, QueueRow]:
        found: dict[str, QueueRow] = {}
        for at, own in self._by_member(jobs):
            found |= at._look_up(dict.fromkeys(own, ""))
        return found

    def _look_up(self, jobs: Mapping[str, str]) -> dict[str, QueueRow]:
        has_accounting = "slurmdbd" in self.known_configuration().get("AccountingStorageType", "")
        if has_accounting or self.settings.end is not None:
            return super().look_up(jobs)
        return {row.job: row for job in jobs for row in self.shown(job) if row.job == job}

    def shown(self, job: str) -> list[QueueRow]:
        """Of the controller; tasks of an array that wait may share a row.

        Raises `ClusterError` for an answer that tells nothing.
        """
        return self._at(_member_of(job))._shown(self.native(job))

    def _shown(self, job: str) -> list[QueueRow]:
        done = self.run(["scontrol", "-o", "show", "job", job], ASK_S)
        is_unknown = _UNKNOWN_JOB in done.stderr.lower() or f"{job} {_UNKNOWN_TASK}" in done.stdout
        if done.returncode and is_unknown:
            return []
        rows = [row for line in done.stdout.splitlines() if (row := _shown_row(line)) is not None]
        rows = [row._replace(job=self.normal(row.job)) for row in rows]
        if done.returncode or not rows:
            told = first_line(done.stderr) or f"scontrol ended with {done.returncode}, showing no job"
            raise ClusterError(told)
        return rows

    def cancel_tasks(self, tasks: Iterable[str]) -> None:
        """In one word for each array."""
        arrays: dict[str, list[int]] = {}
        for task in tasks:
            array, _, index = task.partition("_")
            arrays.setdefault(array, []).append(int(index))
        super().cancel_tasks(f"{array}_[{ranges(indices)}]" for array, indices in arrays.items())

    def cancel_named(self, name: str) -> None:
        self.told(["scancel", "-Q", "--state=PENDING", f"--name={name}"])


DIALECT = SlurmDialect


@guarded_by(InvalidSetting)
@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmOptions(ClusterOptions):
    """What each job asks of Slurm; None and 0 leave it to Slurm."""

    def __post_init__(self) -> None:
        ClusterOptions.__post_init__(self)
        _BY_DEFAULT.check(self)

    def arguments(self, grace_s: float = GRACE_S) -> list[str]:
        """The arguments of sbatch, what the job needs first.

        `grace_s`: how long a job may take to stop; Slurm is asked for that, and half a minute, on top.
        """
        return _BY_DEFAULT.arguments(self, grace_s)


def _member_of(job: str) -> str:
    """The cluster of a federation that an id names; empty: none."""
    return job.partition("@")[2].partition("_")[0].replace("~", "_")


_BY_DEFAULT = SlurmDialect("slurm", ClusterSettings())


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as Slurm writes those of an array, such as `1-3,7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)


def _queue_row(line: str) -> QueueRow | None:
    parts = line.split("|", 5)
    if len(parts) != 6:
        return None
    job, state, reason, ended, status, name = parts
    return QueueRow(job, state, reason, instant(ended), _of_status(status), name.removesuffix("|"))


def _of_status(status: str) -> int | None:
    """The exit code of a wait status, as squeue gives it."""
    if not status.isdecimal():
        return None
    number = int(status)
    return None if number & 0x7F else number >> 8 & 0xFF


def _shown_row(line: str) -> QueueRow | None:
    fields = dict(word.partition("=")[::2] for word in line.split(" ") if "=" in word)
    array, task = fields.get("ArrayJobId"), fields.get("ArrayTaskId")
    job = fields.get("JobId") if array is None or task is None else f"{array}_{task}"
    if job is None or "JobState" not in fields:
        return None
    return QueueRow(
        job,
        fields["JobState"],
        fields.get("Reason", ""),
        instant(fields.get("EndTime", "")),
        exit_code(fields.get("ExitCode", "")),
        fields.get("JobName", ""),
    )
