"""What an error in the scheduler means for a job: a passing shortage of the machine, or its end."""

from __future__ import annotations

import errno
import logging

from tenuto.errors import DirectoryUnusable, LaunchRefused, TenutoError
from tenuto.launchers.runner.verdict import PASSING
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.scheduler.decisions import Verdict
from tenuto.workspace.ports import Files

logger = logging.getLogger("tenuto.scheduler")

_FULL = (errno.ENOSPC, errno.EDQUOT)
ENOUGH_BYTES = 1 << 20
ENOUGH_INODES = 64
"""What a disk that was full must have free before jobs are started again."""


def shortage(error: Exception) -> OSError | None:
    """What the machine is short of for now, if that is what went wrong."""
    cause = error.__cause__ if isinstance(error, DirectoryUnusable) else error
    return cause if isinstance(cause, OSError) and cause.errno in PASSING else None


def has_recovered(error: OSError, files: Files, directory: str) -> bool:
    """Whether it is worth trying again: always, but for a disk that is still full."""
    if error.errno not in _FULL:
        return True
    try:
        free = files.free_space(directory)
    except OSError:  # the whole disk is gone: let the jobs find out, and say so
        return True
    return free.bytes >= ENOUGH_BYTES and free.inodes >= ENOUGH_INODES


def failure(job_id: str, error: Exception) -> Verdict:
    """The end of a job that could not be run."""
    if isinstance(error, LaunchRefused):
        return Verdict(JobState.ERROR, JobFailureStatus.REJECTED, str(error))
    if isinstance(error, TenutoError):
        return Verdict(JobState.ERROR, JobFailureStatus.FAILED, str(error))
    if not isinstance(error, OSError):
        logger.error("job %s could not be run", job_id, extra={"action": "run_failed"}, exc_info=error)
    return Verdict(JobState.ERROR, JobFailureStatus.FAILED, worded(error))


def worded(error: BaseException) -> str:
    """An error for a message; a full disk is called by its name."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"DISK_FULL: {error}"
    return f"{type(error).__name__}: {error}"
