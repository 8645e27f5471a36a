"""JSON as Tenuto keeps it: compact, in UTF-8. The only place in this room that knows how it is spelled.
`records` decides what a record holds.
"""

from __future__ import annotations

import json
from typing import Any

from tenuto.light import json_encoder

_encoded = json_encoder(",", ":")
_DECODER = json.JSONDecoder()


def to_json(value: object) -> bytes:
    """Compact, one line, UTF-8. Raises `TypeError` or `ValueError` for what JSON cannot say."""
    return _encoded(value).encode()


def from_json(data: bytes) -> Any:
    """Any JSON value. Raises `ValueError`, also for input made to exhaust the parser."""
    try:
        # What Tenuto writes is a value and perhaps a line end, and each job found done has two such files.
        try:
            text = data.decode()
            value, end = _DECODER.raw_decode(text)
        except ValueError:
            return json.loads(data)  # which names the error, or knows the encoding
        return value if text[end:] in ("", "\n") else json.loads(data)
    except (RecursionError, MemoryError) as hostile:
        raise ValueError("nested too deeply") from hostile
