"""The OpenAPI description of a server or node, as its routes really answer.
FastAPI documents a validation error of its own, which no route of ours gives.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

_NEVER_SENT = ("HTTPValidationError", "ValidationError")


def described(api: FastAPI) -> dict[str, Any]:
    """The description of an application."""
    is_new = api.openapi_schema is None
    description: dict[str, Any] = api.openapi()
    return _without_foreign_errors(description) if is_new else description


def _without_foreign_errors(description: dict[str, Any]) -> dict[str, Any]:
    for methods in description["paths"].values():
        for route in methods.values():
            answer = route["responses"].get("422", {})
            if any(name in str(answer) for name in _NEVER_SENT):
                del route["responses"]["422"]
    schemas = description.get("components", {}).get("schemas", {})
    for name in _NEVER_SENT:
        schemas.pop(name, None)
    return description
