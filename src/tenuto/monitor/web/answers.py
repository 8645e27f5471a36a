"""Answers of the server: JSON that every browser can read, and errors of one shape."""

from __future__ import annotations

import json
import math
from typing import Any

from starlette.responses import Response


def encode(value: Any) -> bytes:
    """JSON in ASCII, so that a lone surrogate in a name does no harm; what is no finite number is null."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False, separators=(",", ":"), default=str).encode()
    except TypeError:
        return json.dumps(_finite(value), separators=(",", ":"), default=str).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


class Json(Response):
    """Plain values as an answer."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return encode(content)


def refusal(status: int, code: str, message: str, **more: Any) -> Json:
    """An error as a client reads it: a code for programs, a sentence for people."""
    return Json({"error": code, "message": message, **more}, status)
