"""An upload, streamed part by part into a directory; whatever is wrong with it is refused by name.
Writes below the given directory only, and keeps no file in memory.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import re
import stat
import zipfile
from collections.abc import AsyncIterator, Callable
from typing import Any, NamedTuple
from urllib.parse import unquote_to_bytes

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header

from tenuto.clock import Clock
from tenuto.errors import RequestRefused
from tenuto.service.contract import ErrorCode
from tenuto.service.data_paths import free_bytes, synced
from tenuto.service.names import OWN_DIRECTORY, RUN_SCRIPT, file_name, folded, path_problem

LONGEST_FIELD = 4 << 10
LONGEST_SCRIPT = 1 << 20
CALLBACK = "callback"
"""The field that names an address to be called at the end of the job."""
UNPACK = "unpack"
"""The field that names an uploaded ZIP whose files are the upload's."""
LOOK_EVERY = 8 << 20
"""How often an upload of unknown length asks how much room is left."""
LARGEST_ENTRY = 4 << 10
"""Of the list of files in a ZIP, which its parser keeps in memory: bytes for one of them."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_KIND = re.compile(rb"[ \t]*+form-data[ \t]*+(?=;|\Z)", re.IGNORECASE)
_OPTION = re.compile(  # nothing in it is tried twice: a header may be long
    rb'[ \t]*+;[ \t]*+([^\s;="]++)[ \t]*+=[ \t]*+(?:"((?:[^"\\]|\\.)*+)"[ \t]*+|([^";]*+))(?=;|\Z)'
)
_ESCAPED = re.compile(rb'\\(["\\])')


class UploadLimits(NamedTuple):
    """What an upload may be."""

    max_bytes: int
    max_parts: int
    min_free_bytes: int
    cut_names: bool = False
    """Keep of a file name what follows its last slash, instead of refusing it."""


class ReceivedUpload(NamedTuple):
    """An upload that lies in its directory."""

    fields: dict[str, str]
    files: tuple[str, ...]
    bytes: int
    """Of the files together."""
    digest: str
    """The same for the same fields and files, in whatever order and however delimited."""


def refused(code: ErrorCode, message: str, **more: Any) -> RequestRefused:
    return RequestRefused(code.value, message, **more)


def check_room(directory: str, limits: UploadLimits, needed: int) -> None:
    """Refuses an upload that would leave too little room on the disk."""
    if free_bytes(directory) - needed < limits.min_free_bytes:
        raise refused(ErrorCode.DISK_FULL, "The disk of the server is nearly full; try again later")


def boundary_of(content_type: str) -> bytes:
    """The boundary of a multipart body; refuses anything else."""
    kind, options = parse_options_header(content_type)
    if kind != b"multipart/form-data":
        raise refused(
            ErrorCode.BAD_MULTIPART,
            "Multipart error: the body is not multipart/form-data (curl sends it with -F)",
        )
    boundary = options.get(b"boundary", b"")
    if not boundary:
        raise refused(ErrorCode.BAD_MULTIPART, "Multipart error: the Content-Type has no boundary")
    return boundary


def disposition_options(header: bytes) -> dict[bytes, bytes]:
    """The options of the Content-Disposition of a part, in UTF-8; refuses a header that can be misread.

    Some clients write a name that is not ASCII as ``filename*=UTF-8''...`` alone: the parser of
    `python_multipart` leaves that out, so that the part were no file.
    """
    kind = _KIND.match(header)
    options: dict[bytes, bytes] = {}
    extended: dict[bytes, bytes] = {}
    at = kind.end() if kind else 0
    while kind and (found := _OPTION.match(header, at)):
        at = found.end()
        key, quoted, plain = found[1].lower(), found[2], found[3]
        value = plain.strip() if quoted is None else _ESCAPED.sub(rb"\1", quoted)
        into = extended if b"*" in key else options
        if key in into:
            raise refused(ErrorCode.BAD_MULTIPART, "Multipart error: a part has two names")
        into[key] = value
    if kind is None or header[at:].strip(b" \t;"):
        raise refused(ErrorCode.BAD_MULTIPART, "Multipart error: the header of a part cannot be read")
    return options | {key.partition(b"*")[0]: _decoded(key, value) for key, value in extended.items()}


def _decoded(key: bytes, value: bytes) -> bytes:
    """The value of an option as RFC 5987 writes it: charset, language, and bytes with percent signs."""
    charset, _, rest = value.partition(b"'")
    _, mark, text = rest.partition(b"'")
    try:
        if key.endswith(b"*") and mark and charset.lower() in (b"utf-8", b"iso-8859-1"):
            return unquote_to_bytes(text).decode(charset.decode()).encode()
    except UnicodeDecodeError:
        pass
    raise refused(
        ErrorCode.BAD_NAME, f'Invalid file name {value[:80]!a}: write it in UTF-8, as filename="..."'
    )


class Receiver:
    """Takes the body of an upload, piece by piece, and writes its files into a directory."""

    def __init__(self, boundary: bytes, directory: str, limits: UploadLimits) -> None:
        self._directory = directory
        self._limits = limits
        self._fields: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._digests: list[bytes] = []
        self._parts = 0
        self._bytes = 0
        self._looked = 0
        self._ended = False
        self._headers: dict[bytes, bytes] = {}
        self._header = [b"", b""]
        self._part: _Part | None = None
        self._folders: dict[str, str] = {}
        """Of `_names`, by their folded paths."""
        self._file_bytes = 0
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin_part,
                    "on_header_field": self._header_field,
                    "on_header_value": self._header_value,
                    "on_header_end": self._end_header,
                    "on_headers_finished": self._open_part,
                    "on_part_data": self._part_data,
                    "on_part_end": self._end_part,
                    "on_end": self._end,
                },
            )
        except FormParserError as error:
            raise refused(ErrorCode.BAD_MULTIPART, f"Multipart error: {error}") from None

    def feed(self, data: bytes) -> None:
        """Takes the next piece of the body; raises `RequestRefused`, after which the rest is of no use."""
        self._bytes += len(data)
        if self._bytes > self._limits.max_bytes:
            raise too_large(self._limits)
        if self._bytes - self._looked > LOOK_EVERY:
            self._looked = self._bytes
            check_room(self._directory, self._limits, 0)
        try:
            self._parser.write(data)
        except FormParserError as error:
            raise refused(ErrorCode.BAD_MULTIPART, f"Multipart error: {error}") from None
        except OSError as error:
            raise no_room(error) from None

    def finish(self) -> ReceivedUpload:
        """What arrived, once the body is over, and unpacked if it asks for that.

        Refuses a body that ended early.
        """
        if not self._ended:
            raise refused(ErrorCode.BAD_MULTIPART, "Multipart error: the body ended early")
        if self._fields.get(UNPACK):
            try:
                self._unpack(self._fields[UNPACK])
            except OSError as error:
                raise no_room(error) from None
        digest = hashlib.sha256()
        for part in sorted(self._digests):
            digest.update(part)
        return ReceivedUpload(self._fields, tuple(self._names.values()), self._file_bytes, digest.hexdigest())

    def sync(self) -> None:
        """Has the kernel write the files to the disk, and their directory."""
        for name in (*self._names.values(), *self._folders.values(), "."):
            synced(os.path.join(self._directory, name))

    def close(self) -> None:
        """Closes the file that was being written when the upload was refused."""
        if self._part is not None:
            self._part.close()
            self._part = None

    # What the parser calls

    def _begin_part(self) -> None:
        self._parts += 1
        if self._parts > self._limits.max_parts:
            raise too_many(self._limits)
        self._headers = {}
        self._header = [b"", b""]

    def _header_field(self, data: bytes, start: int, end: int) -> None:
        self._header[0] += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._header[1] += data[start:end]

    def _end_header(self) -> None:
        self._headers[self._header[0].lower()] = self._header[1]
        self._header = [b"", b""]

    def _open_part(self) -> None:
        disposition = self._headers.get(b"content-disposition", b"")
        options = disposition_options(disposition)
        if b"name" not in options:
            raise refused(ErrorCode.BAD_MULTIPART, "Multipart error: a part has no name")
        encoding = self._headers.get(b"content-transfer-encoding", b"binary").lower()
        if encoding not in (b"binary", b"8bit", b"7bit"):
            raise refused(ErrorCode.BAD_MULTIPART, "Multipart error: encoded parts are not taken")
        if b"filename" not in options:
            self._part = _Field(options[b"name"])
            return
        self._part = self._open_file(options[b"filename"])

    def _open_file(self, raw: bytes) -> _File:
        name, problem = file_name(raw, cut=self._limits.cut_names)
        return self._new_file(name, problem)

    def _new_file(self, name: str, problem: str | None) -> _File:
        """A file of a name that is not taken, in its folder."""
        if problem:
            raise refused(ErrorCode.BAD_NAME, f"Invalid file name {name[:80]!a}: {problem}")
        above = [name[:at] for at, character in enumerate(name) if character == "/"]
        same = self._names.get(folded(name)) or self._folders.get(folded(name))
        same = same or next((self._names[key] for key in map(folded, above) if key in self._names), None)
        if same is not None:
            raise twice(name, same)
        for folder in above:
            if self._folders.setdefault(folded(folder), folder) != folder:
                raise twice(folder, self._folders[folded(folder)])
            os.makedirs(os.path.join(self._directory, folder), 0o700, exist_ok=True)
        self._names[folded(name)] = name
        return _File(self._directory, name)

    def _unpack(self, name: str) -> None:
        """Replaces an uploaded ZIP by its files, which are held to the rules and limits of all others.

        The sizes in a ZIP are claims of its maker: the unpacked bytes are counted.
        """
        if self._names.get(folded(name)) != name:
            raise refused(ErrorCode.BAD_ARCHIVE, f"Nothing to unpack: no file {name[:80]!a} was uploaded")
        path = os.path.join(self._directory, name)
        aside = os.path.join(self._directory, OWN_DIRECTORY)
        os.rename(path, aside)
        del self._names[folded(name)]
        self._file_bytes -= os.stat(aside).st_size
        try:
            if _list_bytes(aside) > self._limits.max_parts * LARGEST_ENTRY:
                raise too_many(self._limits)
            with zipfile.ZipFile(aside) as archive:
                entries = [entry for entry in archive.infolist() if not entry.is_dir()]
                if self._parts + len(entries) > self._limits.max_parts:
                    raise too_many(self._limits)
                for entry in entries:
                    self._unpack_one(archive, entry)
        except Exception as error:  # of a damaged ZIP the parser raises whatever it stumbles over
            is_of_disk = isinstance(error, OSError) and error.errno != errno.EINVAL  # a seek beyond the end
            if is_of_disk or isinstance(error, RequestRefused):
                raise
            raise refused(ErrorCode.BAD_ARCHIVE, f"{name[:80]!a} cannot be unpacked: {error}") from None
        finally:
            os.unlink(aside)

    def _unpack_one(self, archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
        if (entry.external_attr >> 16) & 0o170000 not in (0, stat.S_IFREG):
            raise refused(ErrorCode.BAD_ARCHIVE, f"{entry.filename[:80]!a} in the ZIP is a link or a device")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            # The others let the ZIP say how much memory unpacking takes.
            raise refused(
                ErrorCode.BAD_ARCHIVE,
                f"{entry.filename[:80]!a} in the ZIP is packed in another way than by deflate",
            )
        with archive.open(entry) as packed:
            part = self._part = self._new_file(entry.filename, path_problem(entry.filename))
            looked = self._file_bytes
            while piece := packed.read(GATHERED):
                self._file_bytes += len(piece)
                if self._file_bytes > self._limits.max_bytes:
                    raise too_large(self._limits)
                if self._file_bytes - looked > LOOK_EVERY:
                    looked = self._file_bytes
                    check_room(self._directory, self._limits, 0)
                part.write(piece)
        self._part = None
        part.close()
        part.check()

    def _part_data(self, data: bytes, start: int, end: int) -> None:
        if self._part is not None:
            self._part.write(data[start:end])

    def _end_part(self) -> None:
        part, self._part = self._part, None
        if part is not None:
            part.close()
            self._digests.append(part.digest())
            if isinstance(part, _Field):
                self._fields[part.name] = part.text()
            else:
                part.check()
                self._file_bytes += part.size

    def _end(self) -> None:
        self._ended = True


class _Field:
    """A text field; the ones that are not known are taken and ignored."""

    def __init__(self, name: bytes) -> None:
        self.name = name.decode("utf-8", "replace")
        self._content = b""

    def write(self, data: bytes) -> None:
        self._content += data
        if len(self._content) > LONGEST_FIELD:
            raise refused(ErrorCode.BAD_FIELD, f"The field {self.name[:80]!a} is over {LONGEST_FIELD} bytes")

    def close(self) -> None:
        pass

    def text(self) -> str:
        try:
            return self._content.decode("utf-8")
        except UnicodeDecodeError:
            raise refused(ErrorCode.BAD_FIELD, f"The field {self.name[:80]!a} is not UTF-8") from None

    def digest(self) -> bytes:
        return hashlib.sha256(b"field\0" + self.name.encode() + b"\0" + self._content).digest()


class _File:
    """A file, written as it arrives."""

    def __init__(self, directory: str, name: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._name = name
        self._descriptor = os.open(os.path.join(directory, name), flags, 0o600)
        self._sha256 = hashlib.sha256(b"file\0" + name.encode() + b"\0")
        self.size = 0
        self._has_crlf = False
        self._tail = b""

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self._name == RUN_SCRIPT:
            if self.size > LONGEST_SCRIPT:
                raise refused(ErrorCode.BAD_RUN_SH, f"Invalid {RUN_SCRIPT}: it is larger than 1 MiB")
            joined = self._tail + data
            self._has_crlf = self._has_crlf or b"\r\n" in joined
            self._tail = joined[-1:]
        self._sha256.update(data)
        left = memoryview(data)
        while left:
            left = left[os.write(self._descriptor, left) :]

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def check(self) -> None:
        if self._name == RUN_SCRIPT and not self.size:
            raise refused(ErrorCode.BAD_RUN_SH, f"Invalid {RUN_SCRIPT}: it is empty")
        if self._has_crlf:
            raise refused(
                ErrorCode.BAD_RUN_SH,
                f"Invalid {RUN_SCRIPT}: its lines end as on Windows (CRLF), which no shell can run; "
                "convert it, for example with dos2unix",
            )

    def digest(self) -> bytes:
        return self._sha256.digest()


_Part = _Field | _File


def _list_bytes(path: str) -> int:
    """The size of the list of files in a ZIP, as its end says it."""
    with open(path, "rb") as file:
        end = zipfile._EndRecData(file)  # type: ignore[attr-defined]  # no more than the last 64 KiB is read
    return end[zipfile._ECD_SIZE] if end else 0  # type: ignore[attr-defined]


def no_room(error: OSError) -> Exception:
    """The refusal of an upload that the disk has no room for; any other error as it is."""
    if error.errno not in NO_ROOM:
        return error
    return refused(ErrorCode.DISK_FULL, "The disk of the server is full; try again later")


def twice(name: str, same: str) -> RequestRefused:
    return refused(
        ErrorCode.DUPLICATE_NAME,
        f"Two files have one name, on some systems at least: {name[:80]!a} and {same[:80]!a}",
    )


def too_many(limits: UploadLimits) -> RequestRefused:
    return refused(ErrorCode.TOO_MANY_PARTS, f"The upload has more than {limits.max_parts} parts")


def too_large(limits: UploadLimits) -> RequestRefused:
    return refused(ErrorCode.TOO_LARGE, f"The upload is larger than {limits.max_bytes} bytes")


# The body of an upload as it arrives: piece by piece, at a speed that a client must keep.
# Reads no part of it; `uploads` does.


IDLE_S = 10.0
"""Time without a byte after which an upload is ended."""
SLOWEST_BYTES_S = 1 << 10
GATHERED = 1 << 19
"""Larger pieces are parsed in a thread, so that a slow disk holds up no other request."""


async def receive(
    stream: AsyncIterator[bytes], receiver: Receiver, limits: UploadLimits, clock: Clock
) -> ReceivedUpload:
    """Feeds a body to a receiver; refuses a client that is too slow."""
    speed = _UploadSpeed(clock)
    gathered: list[bytes] = []
    size = 0
    async for piece in paced(stream, speed):
        gathered.append(piece)
        size += len(piece)
        if size >= GATHERED:
            data, gathered, size = b"".join(gathered), [], 0
            await asyncio.to_thread(receiver.feed, data)
    receiver.feed(b"".join(gathered))
    return await asyncio.to_thread(receiver.finish)  # which may unpack a ZIP


async def gathered(stream: AsyncIterator[bytes], limits: UploadLimits, clock: Clock) -> bytes:
    """A body that is known to be small; refuses a client that is too slow."""
    return b"".join([piece async for piece in paced(stream, _UploadSpeed(clock))])


class _UploadSpeed:
    """How fast a body arrives."""

    def __init__(self, clock: Clock) -> None:
        self._now: Callable[[], float] = clock.monotonic
        self._began = self._now()
        self._bytes = 0

    def count(self, size: int) -> None:
        """Counts a piece; refuses a client that sent too little for its time."""
        self._bytes += size
        took_s = self._now() - self._began
        if took_s > IDLE_S and self._bytes < SLOWEST_BYTES_S * took_s:
            raise too_slow()


def too_slow() -> RequestRefused:
    return refused(ErrorCode.TOO_SLOW, "The upload was too slow")


async def paced(stream: AsyncIterator[bytes], speed: _UploadSpeed) -> AsyncIterator[bytes]:
    """The pieces of a body; refuses a client that sends none for too long, or too few."""
    iterator = stream.__aiter__()
    while True:
        try:
            async with asyncio.timeout(IDLE_S):
                piece = await anext(iterator)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise too_slow() from None
        speed.count(len(piece))
        yield piece
