"""What a payload told its supervisor (see `report_writer`), as the supervisor reads it.
A payload may die at any point, so a line counts only if it is whole, and the exit status outranks them all.
"""

import os
from collections.abc import Mapping
from typing import Any

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.light import NamedTuple
from tenuto.workspace.json_bytes import from_json


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


def open_report() -> int:
    """A descriptor that both ends share across the fork, backed by no disk that could be full."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tenuto-report", os.MFD_CLOEXEC)
    import tempfile  # noqa: PLC0415  only where the kernel has no memory files

    fd, path = tempfile.mkstemp()
    os.unlink(path)
    return fd


def read_report(fd: int) -> Report:
    """All whole lines, the later over the earlier."""
    said: dict[str, Any] = {}
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
        }
    return {"done": False, "reason": JobFailureStatus[line["reason"]], "message": line["message"]}
