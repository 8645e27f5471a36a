"""The small JSON files: written once, read whatever happened to them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.lifecycle.states import JobFailureStatus, JobState, StateRecord
from tenuto.testing import FakeDisk
from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.markers import Marker
from tenuto.workspace.ports import ProcessIdentity
from tenuto.workspace.records import (
    RECORD_LIMIT,
    Corrupt,
    LaunchRecord,
    LocksRecord,
    PidRecord,
    StatusRecord,
    StopRecord,
    TokenUnits,
    read_record,
)

NOW = datetime(2030, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)

EXAMPLES: list[Any] = [
    LaunchRecord(2, "ff", "slurm", "job", "host", NOW, external=True, retry_count=1, blameless_count=2),
    LaunchRecord(1, "ff", "spawn", "job", "host", NOW, withdrawn=True),
    PidRecord(ProcessIdentity("host", "boot", "pid:[1]", 12, 345), 2, NOW),
    StopRecord(2, JobFailureStatus.CANCELLED, NOW, "by ada"),
    LocksRecord(2, (TokenUnits("gpu", (0, 3)), TokenUnits("net", ()))),
    StatusRecord(
        "ab12", "task", StateRecord(JobState.ERROR, JobFailureStatus.LOST, "gone", NOW, NOW, NOW), 2, 1, -9
    ),
    StatusRecord("ab12", "task", StateRecord()),
    Marker(1, "ff"),
    Marker(
        attempt=3,
        nonce="ff",
        reason=JobFailureStatus.FAILED,
        message="ValueError: π",
        exit_code=1,
        signal=9,
        starttime=NOW,
        endtime=NOW,
        usage={"cpu_s": 1.5},
        result={"loss": [0.5, None]},
        provenance={"git": "abc"},
        flags=("truncated",),
    ),
]
by_type = pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)


@by_type
def test_a_record_survives_the_disk(record: Any) -> None:
    assert type(record).decode(record.encode()) == record


@by_type
def test_unknown_fields_are_tolerated(record: Any) -> None:
    fields = from_json(record.encode())
    assert type(record).decode(to_json({**fields, "mood": "happy"})) == record


@by_type
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 4096,
        b"null",
        b"[]",
        b'"text"',
        b"{",
        b"{}",
        b"\xff\xfe",
        b"[" * 50_000,
        b'{"a":' * 20_000,
        b"9" * 5_000,
        b'{"attempt":' + b"9" * 5_000 + b"}",
    ],
    ids=lambda data: repr(data[:12]),
)
def test_hostile_content_is_corrupt_and_never_an_error(record: Any, data: bytes) -> None:
    assert isinstance(type(record).decode(data), Corrupt)


@by_type
def test_no_truncation_of_a_record_raises(record: Any) -> None:
    data = record.encode().rstrip()
    for length in range(len(data)):
        assert isinstance(type(record).decode(data[:length]), Corrupt)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.sampled_from(EXAMPLES).flatmap(
        lambda record: st.tuples(
            st.just(record), st.sampled_from(sorted(from_json(record.encode()))), json_values
        )
    )
)
def test_a_field_of_any_type_gives_a_record_or_corrupt(case: tuple[Any, str, object]) -> None:
    record, name, value = case
    found = type(record).decode(to_json({**from_json(record.encode()), name: value}))
    assert isinstance(found, type(record) | Corrupt)
    if not isinstance(found, Corrupt):
        found.encode()


@given(st.sampled_from(EXAMPLES), st.binary(max_size=200))
def test_any_bytes_give_a_record_or_corrupt(record: Any, data: bytes) -> None:
    assert isinstance(type(record).decode(data), type(record) | Corrupt)


def test_a_lone_surrogate_is_corrupt() -> None:
    data = EXAMPLES[0].encode().replace(b'"host"', b'"\\ud800"', 1).replace(b'"\\ud800":', b'"host":')
    assert isinstance(LaunchRecord.decode(data.replace(b':"host"', b':"\\ud800"')), Corrupt)


def test_a_record_of_a_newer_format_says_so() -> None:
    data = to_json({**from_json(EXAMPLES[1].encode()), "version": 2})
    found = LaunchRecord.decode(data)
    assert isinstance(found, Corrupt)
    assert "newer version" in found.problem


def test_an_instant_without_a_time_zone_is_corrupt() -> None:
    data = EXAMPLES[1].encode().replace(b"+00:00", b"")
    assert isinstance(LaunchRecord.decode(data), Corrupt)


@pytest.fixture
def disk() -> FakeDisk:
    return FakeDisk()


def read(disk: FakeDisk) -> LaunchRecord | Corrupt | None:
    return read_record(disk, "/launch.json", LaunchRecord.decode)


def test_no_file_is_no_record(disk: FakeDisk) -> None:
    assert read(disk) is None
    assert read_record(disk, "/no/such/directory", LaunchRecord.decode) is None


def test_a_huge_file_is_corrupt(disk: FakeDisk) -> None:
    disk.write("/launch.json", EXAMPLES[1].encode().ljust(RECORD_LIMIT + 1))
    assert isinstance(read(disk), Corrupt)


@pytest.mark.parametrize("put", [lambda d, p: d.symlink("x", p), lambda d, p: d.make_directory(p)])
def test_a_link_or_a_directory_is_corrupt(disk: FakeDisk, put: Callable[[FakeDisk, str], None]) -> None:
    put(disk, "/launch.json")
    assert isinstance(read(disk), Corrupt)
