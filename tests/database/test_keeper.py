"""The private servers of the tests end with the process that started them, also when that is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

START = """
import sys, time
from tests.parts.postgresql import PostgreSQL
server = PostgreSQL()
print(server.directory, flush=True)
time.sleep(60)
"""


def test_a_server_ends_with_the_test_that_was_killed(require: Callable[[str], None]) -> None:
    require("postgresql")
    root = Path(__file__).parents[2]
    test = subprocess.Popen([sys.executable, "-c", START], stdout=subprocess.PIPE, text=True, cwd=root)
    assert test.stdout is not None
    directory = Path(test.stdout.readline().strip())
    assert (directory / "data").is_dir()
    test.kill()
    test.wait(60)
    test.stdout.close()
    deadline = time.monotonic() + 60
    while directory.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
