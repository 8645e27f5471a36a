"""The report: what a payload tells its supervisor, lines of JSON in a file that only the two of them have.
A payload may die at any point, so a line counts only if it is whole, and the exit status outranks them all.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenuto.light import NamedTuple, late
from tenuto.workspace.flags import STORED_RESULT_LIMIT
from tenuto.workspace.json_bytes import from_json, to_json

if TYPE_CHECKING:
    from tenuto.lifecycle import states
    from tenuto.lifecycle.states import JobFailureStatus
else:
    states = late("tenuto.lifecycle.states")  # only its reader needs it


class Report(NamedTuple):
    """Everything a payload said."""

    done: bool = False
    result: Any = None
    reason: JobFailureStatus | None = None
    message: str | None = None
    provenance: Mapping[str, str] = {}
    flags: tuple[str, ...] = ()
    executes: bool = False
    """It is a Python task, which tells when it has returned."""
    handles_term: bool = False
    """The task has a handler of TERM of its own: its good end may be the answer to that signal."""
    is_late: bool = False
    """It returned when its walltime was over, which its runner may not have seen yet."""


def open_report() -> int:
    """A descriptor that both ends share across the fork, backed by no disk that could be full."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tenuto-report", os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415  only where the kernel has no memory files

    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


class ReportWriter:
    """The payload's end. Forked children of the payload have it too, but are not heard."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    def provenance(self, provenance: Mapping[str, str], *, executes: bool = False) -> None:
        """`executes`: what follows is a Python task, and no end is a good one that it does not tell of."""
        self._say({"provenance": dict(provenance), "executes": executes})

    def done(
        self,
        result: Any = None,
        *,
        message: str | None = None,
        flags: tuple[str, ...] = (),
        caveats: Mapping[str, bool] | None = None,
    ) -> None:
        """`result` is plain data; `TypeError`, `ValueError` or `RecursionError` for what JSON cannot say.

        `ValueError` as well if it is too large to be read again. `caveats`: why a good end may be none, as
        fields of the report.
        """
        line = {"done": True, "result": result, "message": message, "flags": flags}
        self._say({**line, **(caveats or {})})

    def failed(self, reason: JobFailureStatus, message: str) -> None:
        self._say({"reason": reason.name, "message": message})

    def _say(self, line: dict[str, Any]) -> None:
        if os.getpid() == self._pid:
            data = to_json(line)
            if len(data) > STORED_RESULT_LIMIT:
                raise ValueError(
                    f"it has {len(data):,} bytes as JSON, at most {STORED_RESULT_LIMIT:,} are kept: write it "
                    f"to a file in the job's directory"
                )
            os.write(self._fd, data + b"\n")


def read_report(fd: int, *, executes: bool = False) -> Report:
    """All whole lines, the later over the earlier; `executes`: what holds until the payload says it."""
    said: dict[str, Any] = {"executes": executes}
    for line in os.pread(fd, os.fstat(fd).st_size, 0).split(b"\n")[:-1]:
        try:
            said |= _said(from_json(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # the task wrote into a descriptor it found: not a word of ours
    return Report(**said)


def _said(line: Any) -> dict[str, Any]:
    """What a line says, as fields of the report."""
    if "provenance" in line:
        return {"provenance": line["provenance"], "executes": line.get("executes") is True}
    if "done" in line:
        return {
            "done": True,
            "result": line["result"],
            "message": line["message"],
            "flags": tuple(line["flags"]),
            "handles_term": line.get("handles_term") is True,
            "is_late": line.get("is_late") is True,
        }
    return {"done": False, "reason": states.JobFailureStatus[line["reason"]], "message": line["message"]}


def disk_message(error: OSError) -> str:
    """An error of the system for a marker; a full disk is called by its name."""
    full = "DISK_FULL: " if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
    return f"{full}{error}"
