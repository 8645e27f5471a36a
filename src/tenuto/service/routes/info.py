"""`GET /`, `/health`, `/openapi.json`, `/swagger`, `/usage` and `/metrics`."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from tenuto.errors import InvalidValue
from tenuto.service.contract import ErrorCode, HealthBody, PongBody, UsageBody, UsageListBody
from tenuto.service.data_paths import free_bytes
from tenuto.service.metrics import NodeFigures
from tenuto.service.openapi import add_pages
from tenuto.service.routes.common import FrontOf, MayAdminister, MayMeasure, errors
from tenuto.service.uploads import refused
from tenuto.service.usage import BY, groups_of, used

router = APIRouter()
OPEN_PATHS = frozenset({"/", "/health", "/openapi.json", "/swagger"})
"""The only paths that need no scope."""


def _policy(page: str) -> str:
    """The content security policy of a page: it runs its own script and style, and asks this server only."""
    own = {
        name: base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        for name, text in re.findall(r"<(script|style)>(.*?)</\1>", page, re.DOTALL)
    }
    return (
        f"default-src 'none'; script-src 'sha256-{own['script']}'; style-src 'sha256-{own['style']}'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )


FORM = Path(__file__).parents[1].joinpath("form.html").read_text(encoding="utf-8")
_FORM_HEADERS = {"content-security-policy": _policy(FORM), "vary": "accept"}


@router.get(
    "/",
    response_model=PongBody,
    summary="Whether the server answers; to a browser, a form to submit jobs",
    responses={**errors(), 200: {"model": PongBody, "description": "Or a page, for `Accept: text/html`"}},
)
async def root(request: Request) -> Response:
    if "text/html" in request.headers.get("accept", "").lower():
        return HTMLResponse(FORM, headers=_FORM_HEADERS)
    return JSONResponse({"message": "pong"}, headers={"vary": "accept"})


@router.get(
    "/health",
    response_model=HealthBody,
    summary="Whether the server can work",
    responses={**errors(), 503: {"model": HealthBody, "description": "It cannot work, or is about to stop"}},
)
async def health(front: FrontOf) -> JSONResponse:
    database = "ok" if await front.operations.health() else "unavailable"
    status = "draining" if front.operations.is_draining and database == "ok" else database
    return JSONResponse({"status": status, "database": database}, 200 if status == "ok" else 503)


add_pages(router, errors())


@router.get(
    "/usage",
    response_model=UsageListBody,
    summary="What users took of the service, by user, service and month",
    responses=errors(ErrorCode.BAD_PARAMETER),
)
async def usage(
    front: FrontOf,
    principal: MayAdminister,
    by: Annotated[str, Query(max_length=64, description="Some of `user,service,month`.")] = ",".join(BY),
) -> UsageListBody:
    try:
        groups = groups_of(by)
    except InvalidValue as error:
        raise refused(ErrorCode.BAD_PARAMETER, f"Invalid by: {error}") from None
    found = await front.parts.sql(
        front.parts.requests.database.read, lambda connection: used(connection, groups)
    )
    return UsageListBody(usage=[UsageBody(**row._asdict()) for row in found])


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    responses={
        **errors(),
        200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
    response_class=Response,
)
async def metrics(front: FrontOf, principal: MayMeasure) -> Response:
    parts = front.parts
    counts = await parts.sql(parts.requests.counts)
    ages = await parts.sql(parts.requests.queue_ages)
    nodes = {name: NodeFigures(parts.book.is_up(name), parts.book.slots(name)) for name in parts.book.nodes}
    free = await parts.files(free_bytes, parts.places.root)
    text = await parts.files(parts.metrics.text, counts, list(parts.services), nodes, ages, free)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
