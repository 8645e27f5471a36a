"""The power fails right after a job ended (F11): on a real ext4, which forgets all that was not synced."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tenuto.lifecycle.states import JobState

from .builders import Bench

EXT4_IOC_SHUTDOWN = 0x8004587D
WITHOUT_JOURNAL = struct.pack("I", 2)
"""As a power cut: what the journal has not written to the disk is gone."""


class Disk:
    """An ext4 in a file, whose power can be cut."""

    def __init__(self, image: Path, place: Path) -> None:
        self.place = place
        self._image = image
        place.mkdir()
        with image.open("wb") as file:
            file.truncate(64 << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
        self._mount()

    def cut_power(self) -> None:
        """Lose what was not synced, and start the machine again."""
        fd = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, WITHOUT_JOURNAL)
        finally:
            os.close(fd)
        self.unmount()
        self._mount()

    def unmount(self) -> None:
        subprocess.run(["umount", str(self.place)], check=True)

    def _mount(self) -> None:
        subprocess.run(["mount", "-o", "loop", str(self._image), str(self.place)], check=True)


@pytest.fixture
def disk(tmp_path: Path, require: Callable[[str], None]) -> Iterator[Disk]:
    require("loop device")
    disk = Disk(tmp_path / "image", tmp_path / "disk")
    try:
        yield disk
    finally:
        disk.unmount()


LEAVES = {
    "nothing": "true",
    "a file": "echo left > one",
    "a file in a directory": "mkdir -p deep/er; echo left > deep/er/one",
    "many files": "for i in $(seq 30); do echo left > $i; done",
}


@pytest.mark.parametrize("left", LEAVES)
def test_a_done_job_keeps_what_it_left_and_gets_its_parameters_back(disk: Disk, left: str) -> None:
    with Bench(disk.place) as bench:
        job = bench.shell("job", LEAVES[left])
        bench.wait()
        assert job.state is JobState.DONE
        directory = Path(job.paths.directory)
        expected = contents(directory)
    disk.cut_power()
    assert contents(directory) == expected
    with Bench(disk.place) as bench:
        again = bench.shell("job", "false")
        bench.wait()
        assert again.state is JobState.DONE
    assert Path(job.paths.params).read_bytes() == b"{}"


def contents(directory: Path) -> dict[str, bytes]:
    """The files that the task left."""
    top = [path for path in directory.iterdir() if path.name.split(".")[0] not in ("", "fault", "params")]
    files = [file for path in top for file in (path.rglob("*") if path.is_dir() else [path])]
    return {str(file.relative_to(directory)): file.read_bytes() for file in files if file.is_file()}
