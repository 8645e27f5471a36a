"""What keeps the event loop of a server free while a scheduler works in the same process.
It changes the whole process, so that a program calls it and no library does.
"""

from __future__ import annotations

import gc
import sys

SWITCH_S = 0.001
"""How long a busy thread keeps a loop from going on; it is 5 ms as Python comes."""
COLLECT = (200, 5, 1_000)
"""How often Python collects: as it comes, one of its smaller collections takes up to 10 ms under load."""


def keep_loops_free() -> None:
    """Keep event loops from standing still for more than a few milliseconds; once a server has started.

    A full collection goes through everything that was ever imported, and stops every thread for 15 to 60 ms:
    loaded objects are left out of all that follow, and there is one in a million new objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT)
    sys.setswitchinterval(SWITCH_S)
