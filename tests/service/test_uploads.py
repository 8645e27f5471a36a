"""Uploads: what is taken, what is refused by which name, and that files never lie in memory."""

from __future__ import annotations

import asyncio
import io
import os
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenuto.clock import SystemClock
from tenuto.errors import RequestRefused
from tenuto.service import uploads
from tenuto.service.uploads import (
    ReceivedUpload,
    Receiver,
    UploadLimits,
    boundary_of,
    check_room,
    disposition_options,
    receive,
)
from tests.service.multipart import BOUNDARY, body, field, file, good

LIMITS = UploadLimits(max_bytes=1 << 20, max_parts=50, min_free_bytes=0)


def take(directory: Path, content: bytes, limits: UploadLimits = LIMITS, step: int = 0) -> ReceivedUpload:
    receiver = Receiver(BOUNDARY, str(directory), limits)
    try:
        for at in range(0, len(content), step or len(content) or 1):
            receiver.feed(content[at : at + (step or len(content))])
        return receiver.finish()
    finally:
        receiver.close()


def code(directory: Path, content: bytes, limits: UploadLimits = LIMITS) -> str:
    with pytest.raises(RequestRefused) as refusal:
        take(directory, content, limits)
    return refusal.value.code


@given(step=st.integers(1, 200))
def test_an_upload_is_taken_however_it_is_cut(tmp_path_factory: pytest.TempPathFactory, step: int) -> None:
    directory = tmp_path_factory.mktemp("up")
    content = body(
        field("user_id", "1"),
        field("service", "dock"),
        file("run.sh"),
        file("data", b"\r\n--xY" * 20, name=b"other"),
    )
    received = take(directory, content, step=step)
    assert received.fields == {"user_id": "1", "service": "dock"}
    assert set(received.files) == {"run.sh", "data"} == set(os.listdir(directory))
    assert (directory / "data").read_bytes() == b"\r\n--xY" * 20


def test_of_a_repeated_field_the_last_counts_and_unknown_ones_are_ignored(tmp_path: Path) -> None:
    received = take(
        tmp_path, body(field("user_id", "1"), field("x", "y"), field("user_id", "2"), file("run.sh"))
    )
    assert received.fields["user_id"] == "2"


def test_a_preamble_and_an_epilogue_do_no_harm(tmp_path: Path) -> None:
    """H04."""
    received = take(tmp_path, good() + b"epilogue\r\n")
    assert received.files == ("run.sh",)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("filename*=UTF-8''caf%C3%A9.txt", "café.txt"),
        ("filename*=utf-8'en'a%20b%22.txt", 'a b".txt'),
        ("filename*=ISO-8859-1''caf%E9.txt", "café.txt"),
        ("filename=\"caf_.txt\"; filename*=UTF-8''caf%C3%A9.txt", "café.txt"),
        ("FileName=plain", "plain"),
        ('filename="x:\\"y;=z"', 'x:"y;=z'),
        ('filename="a%20b"', "a%20b"),
    ],
)
def test_a_file_name_is_understood_however_a_client_writes_it(
    tmp_path: Path, options: str, name: str
) -> None:
    """S3-1: of urllib3 below 2 the file was left out, and the job ran without it."""
    part = f'--xYzZy\r\nContent-Disposition: form-data; name="f"; {options}\r\n\r\nx\r\n'.encode()
    received = take(tmp_path, body(file("run.sh"), part))
    assert received.files == ("run.sh", name)
    assert (tmp_path / name).read_bytes() == b"x"


@pytest.mark.parametrize(
    ("expected", "options"),
    [
        ("bad_name", "filename*=KOI8-R''x"),
        ("bad_name", "filename*=UTF-8''%FF"),
        ("bad_name", "filename*=UTF-8''..%2Fx"),
        ("bad_name", "filename*=x"),
        ("bad_name", "filename*0=a; filename*1=b"),
        ("bad_multipart", 'filename="x'),
        ("bad_multipart", 'filename="x"y'),
        ("bad_multipart", 'filename="x"; filename="y"'),
    ],
)
def test_a_file_name_that_is_not_understood_is_refused(tmp_path: Path, expected: str, options: str) -> None:
    part = f'--xYzZy\r\nContent-Disposition: form-data; name="f"; {options}\r\n\r\nx\r\n'.encode()
    assert code(tmp_path, body(file("run.sh"), part)) == expected


@pytest.mark.parametrize(
    "tail", [b"; x=" + b" " * 300_000 + b'"', b'; x="' + b"\\a" * 150_000, b"; x=" + b"y " * 150_000 + b'"']
)
def test_a_long_header_of_a_part_is_read_in_one_go(tail: bytes) -> None:
    """Tried at each of its spaces anew, it would take an hour."""
    with pytest.raises(RequestRefused):
        disposition_options(b'form-data; name="f"' + tail)


@pytest.mark.parametrize(
    ("expected", "content"),
    [
        ("bad_run_sh", body(file("run.sh", b""))),
        ("bad_run_sh", body(file("run.sh", b"x" * ((1 << 20) + 1)))),
        ("bad_run_sh", body(file("run.sh", b"echo\r\nls\r\n"))),
        ("bad_name", body(file("../run.sh"))),
        ("bad_name", body(file("/etc/passwd"))),
        ("bad_name", body(file("a\\\\..\\\\b"))),
        ("bad_name", body(file("C:\\\\x\\\\run.sh"))),
        ("bad_name", body(file(".."))),
        ("bad_name", body(file(".tenuto"))),
        ("bad_name", body(file(""))),
        ("bad_name", body(file("x" * 256))),
        ("bad_name", body(file(b"\xff\xfe"))),
        ("bad_name", body(file("\u202egpj.sh"))),
        ("duplicate_name", body(file("run.sh"), file("run.sh"))),
        ("duplicate_name", body(file("run.sh"), file("RUN.SH"))),
        ("duplicate_name", body(file("run.sh"), file("é"), file("e\u0301"))),
        ("too_many_parts", body(*(field(f"f{n}", "") for n in range(51)))),
        ("bad_field", body(field("user_id", "x" * 5000))),
        ("bad_field", body(field("user_id", b"\xff"))),
        ("bad_multipart", b"this is not multipart"),
        ("bad_multipart", good()[:-20]),
        ("bad_multipart", b""),
        ("bad_multipart", body(b"--xYzZy\r\nContent-Type: text/plain\r\n\r\nx\r\n")),
        ("bad_multipart", body(file("run.sh", headers=b"X: " + b"y" * 20_000 + b"\r\n"))),
        ("bad_multipart", body(file("run.sh", headers=b"X: y\r\n" * 100))),
        ("bad_multipart", body(file("run.sh", headers=b"Content-Transfer-Encoding: base64\r\n"))),
    ],
)  # fmt: skip
def test_a_wrong_upload_is_refused_by_name(tmp_path: Path, expected: str, content: bytes) -> None:
    """H01, H02, H03, H04."""
    inside = tmp_path / "data" / "files"
    inside.mkdir(parents=True)
    assert code(inside, content, LIMITS._replace(max_bytes=1 << 22)) == expected
    assert [path for path in tmp_path.rglob("*") if path.parent != inside] == [tmp_path / "data", inside]


def test_an_archive_is_a_file_like_others(tmp_path: Path) -> None:
    """H07: whatever a ZIP holds, nothing of it is unpacked."""
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("../../escaped", bytes(1 << 20))
        made.writestr("run.sh", "echo from inside\n")
    received = take(tmp_path, body(file("run.sh"), file("input.zip", bomb.getvalue())))
    assert received.files == ("run.sh", "input.zip")
    assert (tmp_path / "input.zip").read_bytes() == bomb.getvalue()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["input.zip", "run.sh"]
    assert not (tmp_path.parent / "escaped").exists()


def test_the_limit_holds_while_it_streams(tmp_path: Path) -> None:
    assert code(tmp_path, body(file("run.sh"), file("x", b"x" * (1 << 20)))) == "too_large"


def test_a_million_tiny_parts_end_at_the_limit(tmp_path: Path) -> None:
    receiver = Receiver(BOUNDARY, str(tmp_path), LIMITS._replace(max_bytes=1 << 40))
    for n in range(50):
        receiver.feed(field(f"f{n}", "x"))
    with pytest.raises(RequestRefused, match="more than 50 parts"):
        receiver.feed(field("f50", "x") * 1_000)


def test_old_clients_have_their_folders_cut(tmp_path: Path) -> None:
    assert take(tmp_path, body(file("a/b/run.sh")), LIMITS._replace(cut_names=True)).files == ("run.sh",)


def test_the_digest_is_of_what_was_sent_not_of_how(tmp_path: Path) -> None:
    parts = [field("user_id", "1"), field("service", "s"), file("run.sh"), file("b", b"2")]
    digests = set()
    for n, order in enumerate([parts, parts[::-1]]):
        (tmp_path / str(n)).mkdir()
        digests.add(take(tmp_path / str(n), body(*order)).digest)
    assert len(digests) == 1
    (tmp_path / "other").mkdir()
    assert take(tmp_path / "other", body(*parts[:3], file("b", b"3"))).digest not in digests


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/plain",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=x",
    ],
)
def test_other_bodies_are_refused(content_type: str) -> None:
    with pytest.raises(RequestRefused, match="Multipart error"):
        boundary_of(content_type)


def test_a_disk_that_is_nearly_full_is_said(tmp_path: Path) -> None:
    with pytest.raises(RequestRefused, match="nearly full"):
        check_room(str(tmp_path), LIMITS._replace(min_free_bytes=1 << 60), 0)
    with pytest.raises(RequestRefused, match="nearly full"):
        check_room(str(tmp_path), LIMITS, 1 << 60)
    check_room(str(tmp_path), LIMITS, 0)


def test_a_client_that_sends_nothing_is_too_slow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "IDLE_S", 0.1)

    async def stream() -> AsyncIterator[bytes]:
        yield good()[:30]
        await asyncio.Event().wait()

    async def main() -> None:
        with pytest.raises(RequestRefused, match="too slow"):
            await receive(stream(), Receiver(BOUNDARY, str(tmp_path), LIMITS), LIMITS, SystemClock())

    asyncio.run(main())


def test_a_client_that_trickles_is_too_slow(tmp_path: Path) -> None:
    class Hurried(SystemClock):
        at = 0.0

        def monotonic(self) -> float:
            self.at += 1.0
            return self.at

    async def stream() -> AsyncIterator[bytes]:
        for byte in good():
            yield bytes([byte])

    async def main() -> None:
        with pytest.raises(RequestRefused, match="too slow"):
            await receive(stream(), Receiver(BOUNDARY, str(tmp_path), LIMITS), LIMITS, Hurried())

    asyncio.run(main())


def test_a_large_upload_is_taken_in_a_thread_and_synced(tmp_path: Path) -> None:
    content = body(file("run.sh"), file("large", os.urandom(3 << 20)))

    async def stream() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 65536):
            yield content[at : at + 65536]

    limits = LIMITS._replace(max_bytes=1 << 30)
    received = asyncio.run(
        receive(stream(), Receiver(BOUNDARY, str(tmp_path), limits), limits, SystemClock())
    )
    assert received.bytes == (3 << 20) + len(b"echo\n")
    assert (tmp_path / "large").stat().st_size == 3 << 20
