"""How an experiment treats the tasks that are submitted to it, and what the command line imposes on it.
Decides nothing.
"""

from __future__ import annotations

from contextvars import ContextVar
from enum import Enum, unique


@unique
class RunMode(Enum):
    """What `submit()` leads to."""

    NORMAL = "jobs are run"
    DRY_RUN = "nothing is run or written: the plan is printed"
    GENERATE_ONLY = "job directories are written, ready to be run by hand"
    PREPARE = "only `Prepare` work is done, here and now"


imposed_rerun: ContextVar[bool | None] = ContextVar("tenuto_rerun_changed", default=None)
"""Whether the command line has jobs run again whose code has changed; None: as the script says."""
imposed_mode: ContextVar[RunMode | None] = ContextVar("tenuto_run_mode", default=None)
"""What the command line makes of every experiment that a script opens, whatever the script says."""
imposed_fail_fast: ContextVar[bool | None] = ContextVar("tenuto_fail_fast", default=None)
"""Set by `tenuto run --fail-fast`."""
