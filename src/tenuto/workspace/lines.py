"""Files of one JSON object a line, each with a checksum: written by appending, read while they grow.
Knows nothing of what the lines say.
"""

from binascii import crc32
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from tenuto.workspace.json_bytes import from_json, to_json
from tenuto.workspace.ports import Files

LINE_LIMIT = 1 << 20
"""A longer line was not written by Tenuto, and is not worth the memory."""
_CHUNK = 1 << 18
_TAIL = 1 << 12
_CHECKSUM = b',"c":"%08x"}\n'
_CHECKSUM_LENGTH = len(_CHECKSUM % 0)


class Line(NamedTuple):
    """A line as found, and where the next one starts. `content` is None if it is torn or garbled."""

    content: dict[str, Any] | None
    end: int


def seal(content: dict[str, Any]) -> bytes:
    """The object as a line. Raises `ValueError` if it is too long; it needs one key at least, and not `c`."""
    body = to_json(content)[:-1]
    line = body + _CHECKSUM % crc32(body)
    if len(line) > LINE_LIMIT:
        raise ValueError(f"a line of {len(line)} bytes is too long: at most {LINE_LIMIT}")
    return line


def is_sealed(line: bytes) -> bool:
    """Whether a complete line, newline included, is as `seal` made it; nothing is decoded."""
    return line[-_CHECKSUM_LENGTH:] == _CHECKSUM % crc32(line[:-_CHECKSUM_LENGTH])


def unseal(line: bytes) -> dict[str, Any] | None:
    """The object of a complete line, newline included; None if it is not as `seal` made it."""
    if not is_sealed(line):
        return None
    body = line[:-_CHECKSUM_LENGTH]
    try:
        content = from_json(body + b"}")
    except ValueError:
        return None
    return content if type(content) is dict else None


def last_line(files: Files, path: str) -> Line:
    """The last complete line; one with the content None at 0 if there is none. Reads the end of the file."""
    found = files.stat(path)
    if found is None:
        raise FileNotFoundError(path)
    length = _TAIL
    while True:
        start = max(found.size - length, 0)
        data = files.read_range(path, start, found.size - start)
        end = data.rfind(b"\n") + 1
        begin = data.rfind(b"\n", 0, max(end - 1, 0)) + 1
        if start == 0 or begin or length > 2 * LINE_LIMIT:
            return Line(unseal(data[begin:end]) if end else None, start + end)
        length *= 4


def sealed_lines(files: Files, path: str) -> Iterator[bytes]:
    """The complete lines that are as `seal` made them, newline included and not decoded."""
    offset, pending = 0, b""
    while chunk := files.read_range(path, offset, _CHUNK):
        offset += len(chunk)
        *complete, pending = (pending + chunk).split(b"\n")
        for text in complete:
            if is_sealed(line := text + b"\n"):
                yield line
        pending = pending if len(pending) <= LINE_LIMIT else b""


def read_lines(files: Files, path: str, offset: int = 0, *, naming: Collection[bytes] = ()) -> Iterator[Line]:
    """The complete lines from `offset` on. An unfinished last line is left for the next time.

    `naming`: lines that hold none of these bytes are passed over, hundreds of them by one look.
    """
    pending = b""
    while chunk := files.read_range(path, offset + len(pending), _CHUNK):
        data = pending + chunk
        if naming and not any(name in data for name in naming):
            end = data.rfind(b"\n") + 1
            offset, complete, pending = offset + end, [], data[end:]
        else:
            *complete, pending = data.split(b"\n")
        for text in complete:
            offset += len(text) + 1
            if naming and not any(name in text for name in naming):
                continue
            if text:  # an empty line only seals a torn one
                yield Line(unseal(text + b"\n"), offset)
        if len(pending) > LINE_LIMIT:
            offset += len(pending)
            pending = b""
            yield Line(None, offset)
