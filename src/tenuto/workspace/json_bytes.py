"""JSON as Tenuto keeps it: compact, in UTF-8. The only place in this room that knows how it is spelled.
`records` decides what a record holds.
"""

from __future__ import annotations

from typing import Any

from tenuto.light import json_decoder, json_encoder

_encoded = json_encoder(",", ":")
_decoded = json_decoder()


def to_json(value: object) -> bytes:
    """Compact, one line, UTF-8. Raises `TypeError` or `ValueError` for what JSON cannot say."""
    return _encoded(value).encode()


def from_json(data: bytes) -> Any:
    """Any JSON value. Raises `ValueError`, also for input made to exhaust the parser."""
    try:
        return _decoded(data)
    except (RecursionError, MemoryError) as hostile:
        raise ValueError("nested too deeply") from hostile
