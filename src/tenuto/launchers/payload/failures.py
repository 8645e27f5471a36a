"""What a task raised, told twice: the gist for the marker, the traceback for the log.
Loaded only when a task has failed.
"""

from __future__ import annotations

import errno
import os
import traceback
from types import TracebackType

from tenuto.errors import GracefulTimeout, TaskCancelled
from tenuto.launchers.payload.report import disk_message
from tenuto.lifecycle.states import JobFailureStatus

_LONGEST_MESSAGE = 1500
_PACKAGE = __file__.rpartition("launchers")[0]
_LIBRARY = os.path.dirname(os.__file__) + os.sep


def explained(error: BaseException) -> tuple[JobFailureStatus, str]:
    """The reason and the gist, for the marker."""
    reason = JobFailureStatus.FAILED
    if isinstance(error, GracefulTimeout):
        reason = JobFailureStatus.TIMEOUT
    elif isinstance(error, TaskCancelled):
        reason = JobFailureStatus.CANCELLED
    elif isinstance(error, MemoryError):
        reason = JobFailureStatus.MEMORY
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        text = disk_message(error)
    return reason, text[:_LONGEST_MESSAGE] + _relative(error) + _place(error.__traceback__)


def left(code: object) -> tuple[JobFailureStatus, str]:
    """The same for `sys.exit(code)`."""
    if isinstance(code, int):
        return JobFailureStatus.FAILED, f"the task called sys.exit({code})"
    return JobFailureStatus.FAILED, f"the task called sys.exit: {code}"[:_LONGEST_MESSAGE]


def left_early() -> tuple[JobFailureStatus, str]:
    """The same for `sys.exit(0)` in a module, in `__init__` or in an init task."""
    return JobFailureStatus.FAILED, "sys.exit(0) was called before execute() began"


def not_begun(error: OSError) -> tuple[JobFailureStatus, str]:
    """The same for a payload that could not settle in."""
    return JobFailureStatus.FAILED, f"EXEC: {disk_message(error)}"


def _relative(error: BaseException) -> str:
    """Where a relative path led, and what to do: a script's working directory is not its jobs'."""
    path = error.filename if isinstance(error, FileNotFoundError) else None
    if not isinstance(path, str) or os.path.isabs(path) or not path:
        return ""
    return (
        f"; a job runs in its own directory, {os.getcwd()}, and {path!r} was looked for there: give an "
        f"absolute path as a parameter, as in Path({path!r}).resolve() for Meta[Path] or DataPath, or use "
        f"Path(__file__).parent / {path!r}"
    )


def _place(trace: TracebackType | None) -> str:
    """Where it was raised, in the code of the task, or else of a library."""
    frames = traceback.extract_tb(trace)
    own = [frame for frame in frames if not frame.filename.startswith(_PACKAGE)]
    users = [frame for frame in own if not _is_library(frame.filename)] or own
    return f" ({users[-1].filename}:{users[-1].lineno})" if users else ""


def _is_library(file: str) -> bool:
    """True for a file that comes with Python or was installed: a person looks for a line of their own."""
    return "-packages/" in file or file.startswith((_LIBRARY, "<"))


def shown(error: BaseException) -> str:
    """The traceback, without the runner's own lines at its top."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__)).rstrip()
