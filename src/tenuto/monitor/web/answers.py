"""Answers of the server: JSON that every browser can read, and errors of one shape."""

from __future__ import annotations

import json
import math
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from tenuto.errors import (
    Ambiguous,
    BadQuestion,
    FilterError,
    InvalidName,
    MonitorUnavailable,
    NotAllowed,
    NotFound,
)


def encode(value: Any) -> bytes:
    """JSON in ASCII, so that a lone surrogate in a name does no harm; a number that is not finite is null."""
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


def refused_by(error: Exception) -> Json:
    """The answer that an error of a route becomes."""
    match error:
        case FilterError():
            return refusal(400, "bad_filter", str(error), position=error.position)
        case BadQuestion():
            return refusal(400, "bad_request", str(error))
        case NotAllowed():
            return refusal(403, "read_only", str(error))
        case NotFound() | Ambiguous() | InvalidName():
            return refusal(404, "not_found", str(error))
        case RequestValidationError():
            return refusal(400, "bad_request", _first_problem(error))
        case HTTPException(status_code=404):
            return refusal(404, "not_found", "there is no such address")
        case HTTPException():
            return refusal(error.status_code, "bad_request", str(error.detail))
        case MonitorUnavailable():
            return refusal(503, "unavailable", str(error))
    return refusal(503, "unavailable", f"{type(error).__name__}: {error}")


def _first_problem(error: RequestValidationError) -> str:
    problems = error.errors()
    if not problems:
        return "the request cannot be read"
    place = ".".join(str(part) for part in problems[0].get("loc", ()) if part not in ("query", "body"))
    return f"{place}: {problems[0].get('msg', 'cannot be read')}" if place else str(problems[0].get("msg"))
