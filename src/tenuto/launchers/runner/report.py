"""What a payload tells its supervisor: lines of JSON in a file that only the two of them have.
A payload may die at any point, so a line counts only if it is whole, and the exit status outranks them all.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.workspace.records import from_json, to_json


class Report(NamedTuple):
    """Everything a payload said."""

    done: bool = False
    result: Any = None
    reason: JobFailureStatus | None = None
    message: str | None = None
    provenance: Mapping[str, str] = {}
    flags: tuple[str, ...] = ()


class Reporter:
    """The payload's end. Forked children of the payload have it too, but are not heard."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    def provenance(self, provenance: Mapping[str, str]) -> None:
        self._say({"provenance": dict(provenance)})

    def done(self, result: Any = None, *, message: str | None = None, flags: tuple[str, ...] = ()) -> None:
        """`result` is plain JSON data already."""
        self._say({"done": True, "result": result, "message": message, "flags": flags})

    def failed(self, reason: JobFailureStatus, message: str) -> None:
        self._say({"reason": reason.name, "message": message})

    def _say(self, line: dict[str, Any]) -> None:
        if os.getpid() == self._pid:
            os.write(self._fd, to_json(line) + b"\n")


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
        return {"provenance": line["provenance"]}
    if "done" in line:
        return {
            "done": True,
            "result": line["result"],
            "message": line["message"],
            "flags": tuple(line["flags"]),
        }
    return {"done": False, "reason": JobFailureStatus[line["reason"]], "message": line["message"]}
