"""The routes of a node: what servers of both generations ask of it.
Every route but the probes wants the node's secret, unless the node was started without one.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import os
import shutil
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Header, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from starlette.types import ASGIApp

from tenuto.clock import Clock, Randomness
from tenuto.errors import DatabaseError, NodeRefusal, NodeTakesNothing, NotOurs, RequestRefused
from tenuto.lifecycle.service import PayloadState
from tenuto.service.access import bearer
from tenuto.service.contract import (
    LINES_OF_JSON,
    MARK_HEADER,
    NEXT_OFFSET_HEADER,
    USAGE_HEADER,
    DrainBody,
    ErrorCode,
    NodeHealthBody,
    PayloadBody,
    PongBody,
    ProgressBody,
)
from tenuto.service.guard import Guard
from tenuto.service.log import log
from tenuto.service.names import RUN_SCRIPT
from tenuto.service.node.node import EmbeddedNode, threaded
from tenuto.service.node.payloads import PayloadRow, Sender
from tenuto.service.node.work import decoded_command
from tenuto.service.nodes import COMMAND
from tenuto.service.openapi import add_pages, application
from tenuto.service.routes.common import HANDLERS, LARGEST_ID, ClosingResponse, early, errors
from tenuto.service.uploads import (
    ReceivedUpload,
    Receiver,
    UploadLimits,
    boundary_of,
    check_room,
    receive,
    refused,
)
from tenuto.workspace.layout import METRICS

# How busy the processors of a node are, as the kernel counts it.
# Asked by servers that share their jobs out by load.


BETWEEN_S = 0.1


async def cpu_percent() -> float:
    """The share of time, in a short while, in which the processors were not idle; 0 to 100."""
    busy, total = _ticks()
    await asyncio.sleep(BETWEEN_S)
    later_busy, later_total = _ticks()
    passed = later_total - total
    return round(100.0 * (later_busy - busy) / passed, 1) if passed > 0 else 0.0


def _ticks() -> tuple[int, int]:
    """Ticks of all processors since the start: busy ones, and all."""
    with open("/proc/stat", encoding="ascii") as stat:
        counted = [int(word) for word in stat.readline().split()[1:9]]
    idle = counted[3] + counted[4]
    return sum(counted) - idle, sum(counted)


LOG_PIECE = 1 << 20
OF_PAYLOAD = (ErrorCode.BAD_ID, ErrorCode.BAD_PARAMETER, ErrorCode.NOT_FOUND, ErrorCode.NOT_OURS)
_ZIP: dict[str, Any] = {"application/zip": {"schema": {"type": "string", "format": "binary"}}}
router = APIRouter()


FIGURES = {
    "slots": "Payloads that run at once",
    "queue_age_seconds": "Age of the oldest payload that waits for a slot",
    "disk_free_bytes": "Room for payloads",
    "takes": "1 if payloads are taken",
}


class NodeFront:
    """What a route finds of its node, under `app.state.front`."""

    def __init__(
        self, node: EmbeddedNode, secret: str | None, version: str, clock: Clock, limits: UploadLimits
    ) -> None:
        self.node = node
        self.secret = secret
        self.version = version
        self.clock = clock
        self.limits = limits
        self.is_draining = False

        self._registry = CollectorRegistry()
        self._figures = {
            name: Gauge(f"tenuto_node_{name}", text, registry=self._registry)
            for name, text in FIGURES.items()
        }
        self._payloads = Gauge(
            "tenuto_node_payloads", "Payloads by state", ["state"], registry=self._registry
        )
        self.refusals = Counter(
            "tenuto_node_refusals", "Payloads that were not taken", ["why"], registry=self._registry
        )

    def figures(self) -> bytes:
        """The figures of the node, as Prometheus reads them; blocks."""
        node, counts = self.node, self.node.payloads.counts()
        for state in PayloadState:
            self._payloads.labels(state.value).set(counts.get(state, 0))
        free, is_taking = node.runner.free_bytes(), not (self.is_draining or node.is_drained)
        found = (node.slots, node.payloads.queue_age_s(), free, is_taking and not node.runner.is_full())
        for name, value in zip(FIGURES, found, strict=True):
            self._figures[name].set(value)
        return generate_latest(self._registry)

    def drain(self) -> None:
        """Takes no more payloads, and lets no server wait."""
        log("draining")
        self.is_draining = True
        self.node.runner.waiters.close()


async def _front(request: Request) -> NodeFront:
    front: NodeFront = request.app.state.front
    return front


async def _server(request: Request) -> NodeFront:
    """The dependency of every route that only servers may call."""
    front = await _front(request)
    if front.secret is not None:
        given = bearer(request.headers.get("authorization")) or ""
        if not hmac.compare_digest(given.encode(), front.secret.encode()):
            raise refused(
                ErrorCode.UNAUTHORIZED,
                "The node's secret is needed: a server names a file with it as token_file of [nodes.NAME]",
            )
    return front


_server.scope = "server"  # type: ignore[attr-defined]  # a test looks for it on every route

AnyFront = Annotated[NodeFront, Depends(_front)]
ServerFront = Annotated[NodeFront, Depends(_server)]
PayloadId = Annotated[int, Path(le=LARGEST_ID, ge=-LARGEST_ID)]


Mark = Annotated[str | None, Header(alias=MARK_HEADER, description="Whose the payload must be.")]


def _said(row: PayloadRow) -> JSONResponse:
    body = PayloadBody(
        id=row.id, status=row.state, killed=row.killed, message=row.message, exit_code=row.exit_code
    )
    return JSONResponse(body.model_dump(mode="json"), headers=_headers(row))


def _headers(row: PayloadRow) -> dict[str, str]:
    """The owner of a payload, and its use."""
    used = {"cpu_s": row.cpu_s, "memory_peak": row.memory_peak}
    told = urlencode({name: value for name, value in used.items() if value is not None})
    return {MARK_HEADER: row.mark, **({USAGE_HEADER: told} if told else {})}


def _its(row: PayloadRow | None, id: int, mark: str | None) -> PayloadRow:
    """The row of the payload that was asked for; refuses another's."""
    if row is None:
        raise RequestRefused(ErrorCode.NOT_FOUND.value, "There is no such payload", job_id=id)
    try:
        row.refuse_other(mark)
    except NotOurs as error:
        raise RequestRefused(ErrorCode.NOT_OURS.value, str(error), job_id=id) from None
    return row


@router.get("/", response_model=PongBody, summary="Whether the node answers", responses=errors())
async def root() -> PongBody:
    return PongBody()


@router.get(
    "/health",
    response_model=NodeHealthBody,
    summary="Whether the node can work",
    responses={**errors(), 503: {"model": NodeHealthBody, "description": "It cannot work, or takes nothing"}},
)
async def health(front: AnyFront) -> JSONResponse:
    node, database = front.node, "ok"
    try:
        await node.runner.get(0)
        status = "draining" if front.is_draining else await node.takes() or "ok"
    except OSError:  # the disk of the data is not there
        status = "unavailable"
    except DatabaseError:
        status = database = "unavailable"
    body = NodeHealthBody.model_validate(
        {
            "status": status,
            "database": database,
            "tenuto": front.version,
            "slots": node.slots,
            "takes": status == "ok",
            "payloads": node.runner.open_count,
        }
    )
    return JSONResponse(body.model_dump(mode="json"), 200 if status == "ok" else 503)


@router.post(
    "/submit",
    response_model=PayloadBody,
    summary="Take files with a run.sh or a command, and run them",
    responses=errors(
        ErrorCode.BAD_MULTIPART,
        ErrorCode.NO_RUN_SH,
        ErrorCode.BAD_FIELD,
        ErrorCode.BAD_ORIGIN,
        ErrorCode.NOT_OURS,
        ErrorCode.TOO_LARGE,
        ErrorCode.DRAINING,
        ErrorCode.DISK_FULL,
    ),
)
async def submit(request: Request, front: ServerFront) -> Response:
    try:
        return _said(await _taken(request, front))
    except RequestRefused as error:
        front.refusals.labels(error.code).inc()
        return early(error)


async def _taken(request: Request, front: NodeFront) -> PayloadRow:
    if front.is_draining or front.node.is_drained:
        raise refused(ErrorCode.DRAINING, "The node takes no payloads now: it drains, or is about to stop")
    nonce = os.urandom(16).hex()
    key = request.headers.get("idempotency-key") or nonce
    directory = os.path.join(front.node.uploads, nonce)
    boundary = boundary_of(request.headers.get("content-type", ""))
    await asyncio.to_thread(check_room, front.node.uploads, front.limits, 0)
    await asyncio.to_thread(os.mkdir, directory, 0o700)
    receiver: Receiver | None = None
    try:
        receiver = Receiver(boundary, directory, front.limits)
        received = await receive(request.stream(), receiver, front.limits, front.clock)
        await asyncio.to_thread(receiver.sync)
        fields = received.fields
        sender = Sender(fields.get("service", ""), fields.get("user_id", ""), fields.get("job_id", ""))
        command = _command(received)
        return await front.node.runner.take(key, directory, sender, command)
    except NotOurs as error:
        raise refused(ErrorCode.NOT_OURS, str(error)) from None
    except NodeTakesNothing as error:
        raise refused(ErrorCode.DISK_FULL, str(error)) from None
    except NodeRefusal as error:
        raise refused(ErrorCode.BAD_REQUEST, str(error)) from None
    finally:
        if receiver is not None:
            receiver.close()
        await asyncio.shield(asyncio.to_thread(shutil.rmtree, directory, True))


def _command(received: ReceivedUpload) -> tuple[str, ...]:
    """What a payload runs, as its server says; nothing: its own `run.sh`, which it must have then."""
    try:
        command = decoded_command(received.fields.get(COMMAND, ""))
    except ValueError as error:
        raise refused(ErrorCode.BAD_FIELD, f"Invalid command: {error}") from None
    if not command and RUN_SCRIPT not in received.files:
        raise refused(ErrorCode.NO_RUN_SH, f"No {RUN_SCRIPT} was uploaded: one file must have this name")
    return command


@router.get(
    "/find/{key}", response_model=PayloadBody, summary="The payload of a key", responses=errors(*OF_PAYLOAD)
)
async def find(key: str, front: ServerFront, mark: Mark = None) -> Response:
    return _said(_its(await front.node.runner.find(key), 0, mark))


@router.get(
    "/retrieve/{id}",
    response_model=PayloadBody,
    summary="The result of a payload as a ZIP, or where it stands",
    responses={
        **errors(*OF_PAYLOAD),
        200: {"model": PayloadBody, "content": _ZIP, "description": "The result, or the status"},
    },
)
async def retrieve(
    id: PayloadId,
    front: ServerFront,
    wait: Annotated[float, Query(ge=0, le=60)] = 0.0,
    known: PayloadState | None = None,
    mark: Mark = None,
) -> Response:
    row = _its(await front.node.changed(id, known, wait), id, mark)
    if row.state is PayloadState.COMPLETED:
        return _zip(front, row)
    return _said(row)


@router.get(
    "/retrieve_partial/{id}",
    summary="The files of a payload as they are now, as a ZIP",
    responses={**errors(*OF_PAYLOAD), 200: {"content": _ZIP, "description": "The files"}},
    response_class=Response,
)
async def retrieve_partial(id: PayloadId, front: ServerFront, mark: Mark = None) -> Response:
    row = _its(await front.node.runner.get(id), id, mark)
    if row.state is PayloadState.CLEANED:
        raise RequestRefused(ErrorCode.NOT_FOUND.value, "The files of the payload were removed", job_id=id)
    return _zip(front, row)


def _zip(front: NodeFront, row: PayloadRow) -> Response:
    headers = {
        **_headers(row),
        "content-disposition": f'attachment; filename="payload-{row.id}.zip"',
    }
    if row.state.is_final and row.result_sha256 is not None and row.result_bytes is not None:
        digest = base64.b64encode(bytes.fromhex(row.result_sha256)).decode()
        headers |= {"repr-digest": f"sha-256=:{digest}:", "content-length": str(row.result_bytes)}
    return ClosingResponse(threaded(front.node.partial(row)), media_type="application/zip", headers=headers)


@router.get(
    "/logs/{id}",
    summary="A piece of what a payload printed",
    responses={**errors(*OF_PAYLOAD), 200: {"content": {"text/plain": {}}, "description": "At most 1 MiB"}},
    response_class=Response,  # which has no media type of its own: errors are JSON
)
async def logs(
    id: PayloadId,
    front: ServerFront,
    stream: Annotated[str, Query(pattern="^(stdout|stderr)$")] = "stdout",
    offset: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
    mark: Mark = None,
) -> Response:
    return await _printed(front, id, mark, (stream, offset), "text/plain; charset=utf-8")


async def _printed(
    front: NodeFront, id: int, mark: str | None, where: tuple[str, int], kind: str
) -> Response:
    row = _its(await front.node.runner.get(id), id, mark)
    piece = await asyncio.to_thread(front.node.read_log, row, *where, LOG_PIECE)
    headers = {MARK_HEADER: row.mark, NEXT_OFFSET_HEADER: str(piece.next_offset)}
    return Response(piece.data, media_type=kind, headers=headers)


@router.get(
    "/points/{id}",
    summary="A piece of the metrics that a payload logged",
    responses={**errors(*OF_PAYLOAD), 200: {"content": {LINES_OF_JSON: {}}, "description": "At most 1 MiB"}},
    response_class=Response,
)
async def points(
    id: PayloadId,
    front: ServerFront,
    offset: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
    mark: Mark = None,
) -> Response:
    return await _printed(front, id, mark, (METRICS, offset), LINES_OF_JSON)


@router.get(
    "/progress/{id}",
    response_model=ProgressBody,
    summary="What a payload said last of its progress",
    responses=errors(*OF_PAYLOAD),
)
async def progress(id: PayloadId, front: ServerFront, mark: Mark = None) -> Response:
    row = _its(await front.node.runner.get(id), id, mark)
    said = await asyncio.to_thread(front.node.progress, row)
    return JSONResponse({"progress": said}, headers={MARK_HEADER: row.mark})


@router.post(
    "/kill/{id}",
    response_model=PayloadBody,
    summary="End a payload",
    responses=errors(*OF_PAYLOAD, ErrorCode.BAD_ORIGIN),
)
async def kill(id: PayloadId, front: ServerFront, mark: Mark = None) -> Response:
    _its(await front.node.runner.get(id), id, mark)
    return _said(_its(await front.node.runner.kill(id), id, mark))


@router.post(
    "/drain",
    response_model=DrainBody,
    summary="Take no payloads from now on, until `resume`; those that it has continue",
    responses=errors(ErrorCode.BAD_ORIGIN),
)
async def drain(front: ServerFront) -> DrainBody:
    return await _drained(front, is_drained=True)


@router.post(
    "/resume",
    response_model=DrainBody,
    summary="Take payloads again",
    responses=errors(ErrorCode.BAD_ORIGIN),
)
async def resume(front: ServerFront) -> DrainBody:
    return await _drained(front, is_drained=False)


async def _drained(front: NodeFront, *, is_drained: bool) -> DrainBody:
    await front.node.drain(is_drained=is_drained)
    return DrainBody(node=front.node.name, draining=is_drained, payloads=front.node.runner.open_count)


@router.get("/load", summary="How busy the processors are, in percent", responses=errors())
async def load(front: ServerFront) -> JSONResponse:
    return JSONResponse(await cpu_percent())


@router.get(
    "/metrics",
    summary="Figures for Prometheus",
    responses={**errors(), 200: {"description": "Prometheus text", "content": {"text/plain": {}}}},
    response_class=Response,
)
async def metrics(front: AnyFront) -> Response:
    """Numbers alone, and nothing of users: they need no secret, with which one could do all else."""
    text = await asyncio.to_thread(front.figures)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


add_pages(router, errors())


def node_app(front: NodeFront, hosts: tuple[str, ...], randomness: Randomness) -> ASGIApp:
    """A node as an ASGI application."""
    api = application(
        "Tenuto node", front.version, "Executes the jobs of servers.", exception_handlers=HANDLERS
    )
    api.state.routers = (router,)
    api.include_router(router)
    api.state.front = front
    api.state.wants_token = front.secret is not None
    return Guard(api, hosts=hosts, randomness=randomness, monotonic=front.clock.monotonic)
