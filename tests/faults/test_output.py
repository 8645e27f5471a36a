"""Jobs that print too much, or what no reader expects (F21, F22)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tenuto.launchers.instructions import Limits
from tenuto.lifecycle.states import JobState

from .builders import WAIT_S, Bench

S = JobState
LIMIT = 4 << 20
GIGABYTE = 1 << 30

# As fast as it goes: the bound is enforced from behind, so a burst may overshoot it for a moment.
FLOOD = """
import os, sys
line = b"".join(b"line %08d\\n" % number for number in range(4096))
head, total = b"HEAD\\n", int(sys.argv[1])
os.write(1, head)
written = 0
while written < total:
    written += os.write(1, line)
os.write(1, b"TAIL\\n")
"""


@pytest.mark.slow
def test_a_gigabyte_of_output_takes_a_few_megabytes_of_disk(tmp_path: Path) -> None:
    """F21: the head and the tail stay, and the marker says that something is missing between."""
    with Bench(tmp_path / "ws") as bench:
        job = bench.command("job", sys.executable, "-c", FLOOD, str(GIGABYTE), limits=Limits(log_bytes=LIMIT))
        assert job.wait(WAIT_S) is S.DONE
        assert job.marker is not None
        assert "truncated" in job.marker.flags
        assert os.stat(job.paths.out).st_blocks * 512 <= 2 * LIMIT
        with open(job.paths.out, "rb") as log:
            assert log.readline() == b"HEAD\n"
            log.seek(-64, os.SEEK_END)
            assert log.read().endswith(b"TAIL\n")


def test_a_log_over_its_limit_keeps_head_and_tail(tmp_path: Path) -> None:
    """F21, small."""
    with Bench(tmp_path / "ws") as bench:
        job = bench.command(
            "job", sys.executable, "-c", FLOOD, str(24 << 20), limits=Limits(log_bytes=1 << 20)
        )
        assert job.wait(WAIT_S) is S.DONE
        assert job.marker is not None
        assert "truncated" in job.marker.flags
        assert os.stat(job.paths.out).st_blocks * 512 <= 2 << 20
        content = Path(job.paths.out).read_bytes()
        assert content.startswith(b"HEAD\n")
        assert content.endswith(b"TAIL\n")


@pytest.mark.parametrize(
    "script",
    [
        "head -c 33554432 /dev/zero | tr '\\0' x",
        "head -c 4194304 /dev/urandom",
        "head -c 4194304 /dev/urandom >&2; exit 3",
        "printf '\\377\\376\\000\\033]0;title\\007\\n'",
    ],
    ids=["one endless line", "garbage", "garbage and a failure", "escape sequences"],
)
def test_output_that_is_no_text_harms_nobody(tmp_path: Path, script: str) -> None:
    """F22."""
    with Bench(tmp_path / "ws") as bench:
        job = bench.shell("job", script, limits=Limits(log_bytes=1 << 20))
        assert job.wait(WAIT_S) is (S.ERROR if "exit 3" in script else S.DONE)
        (job.state_record.message or "").encode()
        logs = [Path(log) for log in (job.paths.out, job.paths.err)]
        kept = [log.stat() for log in logs if log.exists()]  # of a job that is done, what is not empty
        assert all(log.st_blocks * 512 <= 2 << 20 for log in kept)
        assert any(log.st_size for log in kept)
