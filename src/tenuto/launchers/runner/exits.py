"""The exit codes of a runner, for the system that started it; the job's own is in the marker.
Only numbers: a cluster's tools show them, and `launchers` reads them back.
"""

from __future__ import annotations

ENDED = 0
"""The marker is written, whatever it says; of an external attempt: the job is done."""
FAILED = 1
"""Of an external attempt: the marker says that it failed, and its job has no exit code of its own to show."""
BROKEN = 70
"""A bug of the runner's own."""
REFUSED = 71
"""The machine was short of something before the payload began: nothing was run, and the scheduler knows."""
UNRECORDED = 74
"""The attempt ended, and its marker could not be written."""
STALE = 75
"""Another runner has the job by now; nothing was touched."""
UNMARKED = 143
"""Of an external attempt: the cluster ended it without a reason that the runner knows; there is no marker."""
NO_MARKER = (BROKEN, REFUSED, UNRECORDED, STALE, UNMARKED)
"""Codes of runners that have probably written no marker."""


def shown(failed: bool, exit_code: int | None) -> int:
    """The exit code by which an external runner has its cluster's own tools tell how the job ended."""
    if not failed:
        return ENDED
    return FAILED if exit_code is None or exit_code in (ENDED, *NO_MARKER) else exit_code
