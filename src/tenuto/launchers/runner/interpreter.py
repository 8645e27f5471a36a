"""The interpreter of a runner that a cluster starts: whether its payload may be forked from it.
Imports nothing of the user's; what the environment loads at each start (`site`) is all that came before.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

_READ_AT_START = ("PYTHON", "LD_", "GLIBC_", "MALLOC_", "LANG", "LC_", "TZ")
"""Variables that an interpreter or the C library reads at its start: too late for a child."""
_STANDARD_STREAMS = 3


def look_in_standard_library() -> None:
    """Have the runner import from the standard library alone; its payload sets the path of its job."""
    standard = os.path.dirname(os.__file__)
    sys.path[:] = [place for place in sys.path if place.startswith(standard)]


def is_forkable() -> bool:
    """True if a child of this process is as good as a fresh interpreter of the environment.

    To be asked before anything is opened: what `site` started or opened must not be shared by a child.
    """
    tasks, descriptors = os.listdir("/proc/self/task"), os.listdir("/proc/self/fd")  # and the one that lists
    return not sys.flags.no_site and len(tasks) == 1 and len(descriptors) <= _STANDARD_STREAMS + 1


def needs_a_fresh_one(variables: Iterable[str]) -> bool:
    """True if a job is given a variable that only an interpreter which starts with it would heed."""
    return any(name.startswith(_READ_AT_START) for name in variables)
