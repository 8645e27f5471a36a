"""Owns that many directories are watched through one descriptor, by name."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from proof.descriptors import open_files
from tenuto.workspace.inotify import Change, DirectoryWatches, watch_directories


@pytest.fixture
def watches() -> Iterator[DirectoryWatches]:
    made = watch_directories()
    assert made is not None
    yield made
    made.close()


def readable(watches: DirectoryWatches) -> bool:
    poll = select.poll()
    poll.register(watches.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def test_one_descriptor_tells_what_changed_in_which_directory(
    tmp_path: Path, watches: DirectoryWatches
) -> None:
    before = len(open_files())
    places = [tmp_path / f"d{number}" for number in range(300)]
    for place in places:
        place.mkdir()
        assert watches.add(str(place))
    assert len(open_files()) < before + len(places)  # other threads open some too
    assert not readable(watches)
    (places[7] / "a").touch()
    (places[290] / "b").mkdir()
    assert readable(watches)
    assert set(watches.read()) == {Change(str(places[7]), "a"), Change(str(places[290]), "b")}
    assert not readable(watches)


def test_a_file_that_grows_and_one_that_leaves_are_told(tmp_path: Path, watches: DirectoryWatches) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir(), there.mkdir()
    with open(here / "log", "w") as log:
        watches.add(str(here))
        log.write("more")
        log.flush()
        assert watches.read() == [Change(str(here), "log")]
    watches.read()
    os.rename(here / "log", there / "log")
    assert watches.read() == [Change(str(here), "log")]


def test_a_directory_that_goes_is_told_and_may_be_watched_again(
    tmp_path: Path, watches: DirectoryWatches
) -> None:
    place = tmp_path / "d"
    place.mkdir()
    watches.add(str(place))
    place.rmdir()
    assert Change(str(place), None) in watches.read()
    assert str(place) not in watches
    assert not watches.add(str(place))
    place.mkdir()
    assert watches.add(str(place))
    (place / "x").touch()
    assert watches.read() == [Change(str(place), "x")]


def test_a_directory_that_was_renamed_away_is_not_taken_for_the_new_one(
    tmp_path: Path, watches: DirectoryWatches
) -> None:
    place = tmp_path / "d"
    place.mkdir()
    watches.add(str(place))
    place.rename(tmp_path / "trash")
    assert watches.read() == [Change(str(place), None)]
    (tmp_path / "trash" / "x").touch()
    assert watches.read() == []


def test_a_directory_that_is_watched_no_more_tells_nothing(tmp_path: Path, watches: DirectoryWatches) -> None:
    watches.add(str(tmp_path))
    watches.remove(str(tmp_path))
    (tmp_path / "x").touch()
    assert watches.read() == []


def test_two_names_of_one_directory_are_both_told(tmp_path: Path, watches: DirectoryWatches) -> None:
    place = tmp_path / "d"
    place.mkdir()
    other = f"{tmp_path}/./d"
    assert watches.add(str(place))
    assert watches.add(other)
    (place / "x").touch()
    assert set(watches.read()) == {Change(str(place), "x"), Change(other, "x")}
    watches.remove(other)
    (place / "y").touch()
    assert watches.read() == [Change(str(place), "y")]


def test_a_file_is_no_directory(tmp_path: Path, watches: DirectoryWatches) -> None:
    (tmp_path / "file").touch()
    assert not watches.add(str(tmp_path / "file"))


@pytest.mark.slow
def test_when_the_kernel_dropped_changes_anything_may_have_changed(
    tmp_path: Path, watches: DirectoryWatches
) -> None:
    quiet, busy = tmp_path / "quiet", tmp_path / "busy"
    quiet.mkdir(), busy.mkdir()
    watches.add(str(quiet)), watches.add(str(busy))
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 10):
        name = str(busy / str(number % 2))
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        os.unlink(name)
    assert Change(str(quiet), None) in watches.read()
