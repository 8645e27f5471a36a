"""The settings of clusters: `[clusters.NAME]`, and `[slurm]`, which is `[clusters.slurm]`.
Declares them only; `load_settings` reads them, the launcher uses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from tenuto.settings.declaration import (
    BYTES,
    DURATION,
    FLAG,
    LINES,
    SECONDS,
    TABLE_OF_WORDS,
    TEXT,
    TEXTS,
    WAIT,
    WORDS,
    Kind,
    Unfit,
    choice,
    integer,
    optional,
    setting,
)

DIALECTS = ("slurm", "sge", "pbs", "lsf", "condor", "generic", "ssh")
LOCAL_NAMES = ("direct", "spawn", "warm", "local", "auto")
"""What no cluster may be called: these are launchers of this machine."""
CLUSTER_NAME = "letters, digits, _ and -, not signals, and no end such as -pilots or -slots"
"""Its directories in a workspace are called so."""


def is_cluster_name(name: str) -> bool:
    """True if a directory of a workspace may have the name, and no other directory has it."""
    is_plain = name.replace("_", "").replace("-", "").isalnum() and name.isascii() and name[0].isalnum()
    return is_plain and name != "signals" and not name.endswith(("-pilots", "-slots"))


class PartitionSettings(NamedTuple):
    """What a job can have on one partition: `[clusters.NAME.partitions.X]`; None is without limit."""

    cores: int | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_kind: str = "cuda"
    gpu_memory_bytes: int = 0
    gpu_type: str = ""
    time_s: float | None = None
    priority: int = 0
    nodes: int | None = None


_PARTITION: dict[str, tuple[str, Kind[Any]]] = {
    "cores": ("cores", integer(1)),
    "memory": ("memory_bytes", BYTES),
    "gpus": ("gpus", integer(0)),
    "gpu_kind": ("gpu_kind", choice("cuda", "rocm")),
    "gpu_memory": ("gpu_memory_bytes", BYTES),
    "gpu_type": ("gpu_type", TEXT),
    "time": ("time_s", DURATION),
    "priority": ("priority", integer()),
    "nodes": ("nodes", integer(1)),
}
"""Name in the settings -> name here, and its kind."""


def _take_partitions(value: Any) -> Mapping[str, PartitionSettings]:
    if not isinstance(value, Mapping):
        raise Unfit
    taken = {}
    for name, told in value.items():
        if not isinstance(told, Mapping):
            raise Unfit(f"{name} is no table")
        known = {}
        for key, one in told.items():
            if key not in _PARTITION:
                raise Unfit(f"{name} has a {key}, which is none of these")
            field, kind = _PARTITION[key]
            try:
                known[field] = kind.take(one)
            except Unfit:
                raise Unfit(f"{name}.{key} is {kind.name}, not {one!r:.60}") from None
        taken[name] = PartitionSettings(**known)
    return MappingProxyType(taken)


PARTITIONS = Kind(f"tables of {', '.join(_PARTITION)}", _take_partitions)


def _own(kind: Kind[Any], description: str) -> Any:
    """A setting that replaces a word of the dialect."""
    return setting(optional(kind), None, description, default_text="of the dialect")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    """What jobs ask of a batch system, unless they say otherwise, and how the launcher deals with it."""

    dialect: str = setting(choice(*DIALECTS), "slurm", "Whose words the cluster speaks.")

    partition: str | None = setting(optional(TEXT), None, "The partition, or queue, of jobs.")
    account: str | None = setting(optional(TEXT), None, "The account, or project, that jobs are charged to.")
    qos: str | None = setting(optional(TEXT), None, "The quality of service of jobs.")
    constraint: str | None = setting(optional(TEXT), None, "Features that a job's host must have.")
    time_s: float | None = setting(optional(SECONDS), None, "Time limit of a job that names none.")
    cpus: int = setting(integer(1), 1, "Cores of a job.")
    memory_bytes: int | None = setting(optional(BYTES), None, "Memory of a job.")
    gpus: int = setting(integer(0), 0, "GPUs of a job.")
    extra: tuple[str, ...] | None = setting(optional(WORDS), None, "Further words of a submission.")
    setup: str | None = setting(
        optional(LINES),
        None,
        "Lines of bash that run before each job; where one of them fails, so does the job.",
    )
    login_shell: bool = setting(
        FLAG, False, "Whether jobs begin in a login shell, which reads `/etc/profile`."
    )
    wrap: tuple[str, ...] | None = setting(
        optional(WORDS), None, "A command that runs the job, such as `apptainer exec --nv image.sif`."
    )
    python: str | None = setting(optional(TEXT), None, "The interpreter there.", default_text="this one")
    max_jobs: int = setting(integer(1), 1000, "Jobs of this process that are in the queue or run.")
    array_size: int = setting(integer(1), 1000, "Jobs of one array.")
    reuse_s: float = setting(
        WAIT, 1.0, "How long after its start a task of an array takes further jobs of it; 0: never."
    )
    poll_s: float = setting(SECONDS, 5.0, "How often the batch system is asked while something changes.")
    beat_s: float = setting(SECONDS, 30.0, "How often a running job says that it lives.")
    pilots: int = setting(
        integer(0), 0, "Allocations that run many short jobs each; 0: each job has its own."
    )
    pilot_cpus: int = setting(integer(1), 8, "Cores of a pilot.")
    pilot_time_s: float = setting(SECONDS, 3600.0, "Time limit of a pilot.")
    pilot_idle_s: float = setting(SECONDS, 60.0, "Time without a job after which a pilot ends.")
    throttle: int | None = setting(
        optional(integer(1)), None, "Jobs of one array that the batch system runs at once."
    )
    partitions: Mapping[str, PartitionSettings] | None = setting(
        optional(PARTITIONS), None, "What jobs can have on each partition: one is chosen by what they need."
    )
    hosts: tuple[str, ...] | None = setting(
        optional(TEXTS), None, 'Of the dialect ssh: machines with their slots, such as `["a:4", "b:8"]`.'
    )
    submit: tuple[str, ...] | None = _own(
        WORDS,
        "The words that submit a job, with `{name} {out} {count} {last} {options} {script}`; those in `[ ]` "
        "are said for arrays alone.",
    )
    submit_id: str | None = _own(TEXT, "The pattern of the id in the answer; its first group.")
    later: tuple[str, ...] | None = _own(TEXTS, "Complaints after which it is submitted again.")
    full: tuple[str, ...] | None = _own(TEXTS, "Complaints after which less is submitted at once.")
    refused: tuple[str, ...] | None = _own(TEXTS, "Complaints that are final, as all others are.")
    options: Mapping[str, str] | None = _own(
        TABLE_OF_WORDS,
        "How `time cores memory gpus gpu_type nodes partition account qos constraint` are asked for.",
    )
    variables: Mapping[str, str] | None = _own(
        TABLE_OF_WORDS,
        "The variables `job array index` of a job, its `first` index, and how a `task` is called.",
    )
    list: tuple[str, ...] | None = _own(WORDS, "Lists all jobs: `id state reason name`.")
    end: tuple[str, ...] | None = _own(WORDS, "Tells how `{ids}` ended: `id|state|exit code|when|name`.")
    states: Mapping[str, str] | None = _own(
        TABLE_OF_WORDS,
        "What states mean: pending running exited timeout memory cancelled preempted node_failed.",
    )
    cancel: tuple[str, ...] | None = _own(WORDS, "Ends `{ids}`; words in `[ ]`: only those that wait.")
    signal: tuple[str, ...] | None = _own(WORDS, "Sends TERM to the runners of `{ids}`.")
    largest_array: int | None = _own(integer(1), "Jobs of the largest array; 1: no arrays.")
    limit_words: tuple[str, ...] | None = _own(WORDS, "Have a runner told of its time limit by USR1.")
