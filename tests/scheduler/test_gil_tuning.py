"""Owns what a server asks for once it has started, so that its event loop is kept from standing still."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import gc, sys
import tenuto
from tenuto.scheduler.loop import keep_loops_free
before = len(gc.get_objects())
keep_loops_free()
is_frozen = gc.get_freeze_count() > 0.9 * before > 9 * len(gc.get_objects())
print(sys.getswitchinterval() <= 0.001, is_frozen)
"""


def test_a_server_leaves_what_it_loaded_out_of_collections_and_threads_give_way_soon() -> None:
    said = subprocess.check_output([sys.executable, "-c", SCRIPT], text=True)
    assert said.split() == ["True", "True"]
