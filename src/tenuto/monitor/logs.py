"""Parts of logs as the provider gives them: the tail, or the text after an offset.
Reads at most 1 MiB at a time; the text is as written, without NULs.
"""

from __future__ import annotations

from tenuto.errors import BadQuestion
from tenuto.jobs.source import Source
from tenuto.monitor import shapes

TAIL_BYTES = 65_536
MOST_BYTES = 1 << 20
STREAMS = ("out", "err")
_LONGEST_CHARACTER = 4


def read_log(
    source: Source,
    key: str,
    stream: str,
    earlier: int = 0,
    tail: int | None = None,
    start: int | None = None,
    limit: int | None = None,
) -> shapes.LogPart:
    """The last `tail` bytes of a log, or `limit` bytes from `start` on."""
    if stream not in STREAMS:
        raise BadQuestion(f"{stream!r:.40} is no stream: it is out or err")
    log = source.log(key, stream, earlier)
    size, has_ended = log.size(), log.ended()  # asked in this order: text printed between is read later
    if start is None:
        wanted = min(max(TAIL_BYTES if tail is None else tail, 0), MOST_BYTES)
        offset = max(size - wanted, 0)
        data = log.read(offset, wanted)
        if offset and b"\n" in data:
            cut = data.index(b"\n") + 1
            offset, data = offset + cut, data[cut:]
    else:
        offset = min(max(start, 0), size)
        data = log.read(offset, min(max(MOST_BYTES if limit is None else limit, 0), MOST_BYTES))
    data = _whole_characters(data, is_last=has_ended and offset + len(data) >= size)
    return {
        "key": key,
        "stream": stream,
        "attempt": log.attempt,
        "offset": offset,
        "next": offset + len(data),
        "text": data.replace(b"\0", b"").decode("utf-8", "replace"),
        "whole": offset == 0 and offset + len(data) >= size,
        "ended": has_ended and offset + len(data) >= size,
    }


def _whole_characters(data: bytes, *, is_last: bool) -> bytes:
    """Without the beginning of a character whose end is not there yet."""
    if is_last:
        return data
    for length in range(1, min(_LONGEST_CHARACTER, len(data)) + 1):
        byte = data[-length]
        if byte < 0x80:
            return data
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-length] if needed > length and len(data) > length else data
    return data
