"""A file that a killed writer left is told from one that a live writer is writing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tenuto.workspace.machine import this_machine
from tenuto.workspace.ports import temporary_name, writer_of
from tenuto.workspace.trash import clear_forsaken


def dead_pid() -> int:
    process = subprocess.Popen(["/bin/true"])
    process.wait()
    return process.pid


def test_what_a_dead_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    left = temporary_name("status.json", f"{dead_pid()}-3")
    kept = {
        temporary_name("status.json", f"{os.getpid()}-4"),
        temporary_name("status.json", "of-somebody-else"),
        "status.json",
        f"notes.{dead_pid()}-1",
    }
    for name in (left, *kept):
        (tmp_path / name).touch()
    machine = this_machine()
    assert clear_forsaken(machine, str(tmp_path)) == 1
    assert set(os.listdir(tmp_path)) == kept
    assert clear_forsaken(machine, f"{tmp_path}/nowhere") == 0


def test_a_temporary_file_names_its_writer() -> None:
    assert writer_of(temporary_name("/a/b.json", "12-7")) == 12
    for name in ("b.json", "b.json.12-7", temporary_name("b.json", "x-7")):
        assert writer_of(name) is None
