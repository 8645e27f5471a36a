"""The settings of the Slurm launcher.
Declares them only; `load_settings` reads them, the launcher uses them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tenuto.settings.declaration import (
    BYTES,
    FLAG,
    LINES,
    SECONDS,
    TEXT,
    WAIT,
    WORDS,
    integer,
    optional,
    setting,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """What jobs ask of Slurm, unless they say otherwise, and how the launcher deals with it."""

    partition: str | None = setting(optional(TEXT), None, "The partition of jobs.")
    account: str | None = setting(optional(TEXT), None, "The account that jobs are charged to.")
    qos: str | None = setting(optional(TEXT), None, "The quality of service of jobs.")
    constraint: str | None = setting(optional(TEXT), None, "Features that a job's host must have.")
    time_s: float | None = setting(optional(SECONDS), None, "Time limit of a job that names none.")
    cpus: int = setting(integer(1), 1, "Cores of a job.")
    memory_bytes: int | None = setting(optional(BYTES), None, "Memory of a job.")
    gpus: int = setting(integer(0), 0, "GPUs of a job.")
    extra: tuple[str, ...] | None = setting(optional(WORDS), None, "Further arguments of sbatch.")
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
    poll_s: float = setting(SECONDS, 5.0, "How often Slurm is asked while something changes.")
    beat_s: float = setting(SECONDS, 30.0, "How often a running job says that it lives.")
    pilots: int = setting(
        integer(0), 0, "Allocations that run many short jobs each; 0: each job has its own."
    )
    pilot_cpus: int = setting(integer(1), 8, "Cores of a pilot.")
    pilot_time_s: float = setting(SECONDS, 3600.0, "Time limit of a pilot.")
    pilot_idle_s: float = setting(SECONDS, 60.0, "Time without a job after which a pilot ends.")
