"""`GET /`, `/health`, `/openapi.json`, `/swagger` and `/metrics`."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response

from tenuto.service.contract import HealthBody, PongBody
from tenuto.service.openapi import described, documentation_page
from tenuto.service.routes.common import FrontOf, MayAdminister, errors

router = APIRouter()
OPEN_PATHS = frozenset({"/", "/health", "/openapi.json", "/swagger"})
"""The only paths that need no scope."""


@router.get("/", response_model=PongBody, summary="Whether the server answers", responses=errors())
async def root() -> PongBody:
    return PongBody()


@router.get(
    "/health",
    response_model=HealthBody,
    summary="Whether the server can work",
    responses={**errors(), 503: {"model": HealthBody, "description": "The database does not answer"}},
)
async def health(front: FrontOf) -> JSONResponse:
    is_well = await front.operations.health()
    word = "ok" if is_well else "unavailable"
    return JSONResponse({"status": word, "database": word}, 200 if is_well else 503)


@router.get("/openapi.json", summary="This description", responses=errors())
async def openapi(request: Request) -> JSONResponse:
    return JSONResponse(described(request.app))


@router.get(
    "/swagger", summary="This description, as a page", response_class=HTMLResponse, responses=errors()
)
async def swagger(request: Request) -> HTMLResponse:
    policy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
    page = documentation_page(described(request.app), str(request.base_url).rstrip("/"))
    return HTMLResponse(page, headers={"content-security-policy": policy})


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    responses={
        **errors(),
        200: {"description": "Prometheus text", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
    response_class=Response,
)
async def metrics(front: FrontOf, principal: MayAdminister) -> Response:
    parts = front.parts
    counts = await parts.sql(parts.requests.counts)
    nodes = {name: parts.book.is_up(name) for name in parts.book.nodes}
    text = await parts.files(partial(parts.metrics.text, counts, list(parts.services), nodes))
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")
