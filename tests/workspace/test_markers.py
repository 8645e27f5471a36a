"""Markers: small enough for their reserve, durable when asked, never misread."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing import Crash, FakeDisk
from tenuto.workspace.layout import JobPaths
from tenuto.workspace.markers import (
    MARKER_LIMIT,
    RESULT_LIMIT,
    Durability,
    Marker,
    MarkersFound,
    read_markers,
    reserve_marker,
    set_aside,
    write_marker,
)
from tenuto.workspace.records import Corrupt

PATHS = JobPaths("/job", "task")
DONE = Marker(1, "ff", exit_code=0)
FAILED = Marker(1, "ff", JobFailureStatus.FAILED, "ValueError")


@pytest.fixture
def disk() -> FakeDisk:
    disk = FakeDisk()
    disk.make_directory("/job")
    disk.sync_directory("/")
    disk.sync_directory("/job")
    return disk


@pytest.mark.parametrize(
    ("marker", "found"), [(DONE, MarkersFound(done=DONE)), (FAILED, MarkersFound(failed=FAILED))]
)
def test_a_marker_is_found_under_its_name(disk: FakeDisk, marker: Marker, found: MarkersFound) -> None:
    write_marker(disk, PATHS, marker)
    assert read_markers(disk, PATHS) == found


def test_a_marker_is_synced_before_and_after_it_gets_its_name(disk: FakeDisk) -> None:
    reserve_marker(disk, PATHS)
    disk.operations.clear()
    write_marker(disk, PATHS, DONE)
    assert [operation for operation, _ in disk.operations] == [
        "create",
        "write",
        "sync",
        "rename",
        "sync_directory",
    ]


def test_a_marker_survives_a_power_loss_right_after_it_was_written(disk: FakeDisk) -> None:
    write_marker(disk, PATHS, DONE)
    disk.power_loss()
    assert read_markers(disk, PATHS).done == DONE


def test_a_marker_without_durability_may_be_lost_but_not_torn(disk: FakeDisk) -> None:
    write_marker(disk, PATHS, DONE, Durability.NONE)
    disk.power_loss()
    assert read_markers(disk, PATHS) == MarkersFound()


def test_a_crash_at_any_step_leaves_the_whole_marker_or_none(disk: FakeDisk) -> None:
    for steps in range(5):
        disk.crash_after(steps)
        with pytest.raises(Crash):
            write_marker(disk, PATHS, DONE)
        assert read_markers(disk, PATHS).done in (None, DONE)
        disk.power_loss()
        assert read_markers(disk, PATHS).done in (None, DONE)
        disk.remove(PATHS.done)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failing_disk_never_leaves_a_torn_marker(disk: FakeDisk, code: int) -> None:
    for steps in range(5):
        disk.fail_after(steps, code)
        with pytest.raises(OSError, match="Errno"):
            write_marker(disk, PATHS, DONE)
        assert read_markers(disk, PATHS).done in (None, DONE)
        disk.remove(PATHS.done)
    assert disk.list("/job") == []


def test_a_full_disk_can_still_be_reported(disk: FakeDisk) -> None:
    reserve_marker(disk, PATHS)
    disk.capacity = 0
    with pytest.raises(OSError, match="No space"):
        disk.write("/job/anything", b"x")
    write_marker(disk, PATHS, FAILED._replace(message="x" * 10_000))
    assert isinstance(read_markers(disk, PATHS).failed, Marker)


def test_without_a_reserve_a_full_disk_is_an_error(disk: FakeDisk) -> None:
    disk.capacity = 0
    with pytest.raises(OSError, match="No space"):
        write_marker(disk, PATHS, FAILED)
    assert read_markers(disk, PATHS) == MarkersFound()


@given(
    message=st.text(max_size=6000),
    result=st.text(max_size=300),
    usage=st.dictionaries(st.text(max_size=50), st.floats(allow_nan=False), max_size=60),
    provenance=st.dictionaries(st.text(max_size=50), st.text(max_size=200), max_size=30),
    flags=st.lists(st.text(max_size=100), max_size=20).map(tuple),
)
def test_a_marker_always_fits_its_reserve_and_keeps_what_matters(
    message: str, result: str, usage: dict[str, float], provenance: dict[str, str], flags: tuple[str, ...]
) -> None:
    marker = Marker(
        7,
        "f" * 32,
        JobFailureStatus.MEMORY,
        message,
        exit_code=1,
        usage=usage,
        result=result,
        provenance=provenance,
        flags=flags,
    )
    data = marker.encode()
    assert len(data) <= MARKER_LIMIT
    found = Marker.decode(data)
    if isinstance(found, Corrupt):  # text with lone surrogates is refused when it is read
        return
    assert (found.attempt, found.nonce, found.reason, found.result) == (7, "f" * 32, marker.reason, result)


def test_of_a_long_message_the_head_and_the_tail_are_kept() -> None:
    found = Marker.decode(FAILED._replace(message="head" + "x" * 100_000 + "tail").encode())
    assert isinstance(found, Marker)
    assert found.message is not None
    assert found.message.startswith("head")
    assert found.message.endswith("tail")
    assert len(found.message) > MARKER_LIMIT * 0.7


def test_a_message_with_lone_surrogates_is_kept_without_them(disk: FakeDisk) -> None:
    write_marker(disk, PATHS, FAILED._replace(message="a \udc80 \U0001f600 \x00"))
    found = read_markers(disk, PATHS).failed
    assert isinstance(found, Marker)
    assert found.message == "a \ufffd \U0001f600 \x00"


def test_falsy_results_and_exit_codes_are_kept() -> None:
    for result in (0, False, "", [], {}):
        assert Marker.decode(DONE._replace(result=result).encode()) == DONE._replace(result=result)


def test_a_result_too_large_for_a_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="keep_result"):
        DONE._replace(result="x" * RESULT_LIMIT).encode()


@pytest.mark.parametrize("data", [b"", b"\0\0", b"not json", b"{}", FAILED.encode()], ids=repr)
def test_bytes_that_are_no_done_marker_are_corrupt(disk: FakeDisk, data: bytes) -> None:
    disk.write(PATHS.done, data)
    assert isinstance(read_markers(disk, PATHS).done, Corrupt)


def test_a_failed_marker_without_a_reason_is_corrupt(disk: FakeDisk) -> None:
    disk.write(PATHS.failed, DONE.encode())
    assert isinstance(read_markers(disk, PATHS).failed, Corrupt)


def test_a_file_that_is_set_aside_is_kept_under_a_free_name(disk: FakeDisk) -> None:
    for content in (b"one", b"two"):
        disk.write(PATHS.done, content)
        set_aside(disk, PATHS.done)
    assert disk.list("/job") == ["task.done.corrupt-1", "task.done.corrupt-2"]
    assert disk.read("/job/task.done.corrupt-2", 10) == b"two"


def test_the_gist_of_a_marker_leaves_out_what_only_a_reader_of_one_job_wants() -> None:
    whole = Marker(
        1, "n", result=[1], flags=("truncated",), usage={"wall_s": 2.0}, provenance={"file": "a.py"}
    )
    assert whole.gist() == whole._replace(usage={}, provenance={})
