"""How a payload tells its supervisor how it went: lines of JSON in a file that only the two of them have.
What the lines mean, `report` reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tenuto.workspace.flags import STORED_RESULT_LIMIT
from tenuto.workspace.json_bytes import to_json

if TYPE_CHECKING:
    from tenuto.lifecycle.states import JobFailureStatus


class ReportWriter:
    """The payload's end. Forked children of the payload have it too, but are not heard."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = os.getpid()

    def provenance(self, provenance: Mapping[str, str], *, executes: bool = False) -> None:
        """`executes`: what follows is a Python task, and no end is a good one that it does not tell of."""
        self._say({"provenance": dict(provenance), "executes": executes})

    def done(self, result: Any = None, *, message: str | None = None, flags: tuple[str, ...] = ()) -> None:
        """`result` is plain data; `TypeError`, `ValueError` or `RecursionError` for what JSON cannot say.

        `ValueError` as well for what is too large to be read again.
        """
        self._say({"done": True, "result": result, "message": message, "flags": flags})

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
