"""`GET /jobs/{id}/logs` and `GET /jobs/{id}/events`: what a job prints, where it stands, also as it happens.
Streams are server-sent events; each ends by itself after the job's end, or when the server drains.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import AsyncGenerator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from fastapi.responses import Response

from tenuto.errors import NodeError, PayloadGone, RequestRefused
from tenuto.lifecycle.service import ServiceState
from tenuto.service.access import Principal
from tenuto.service.archive import LogPiece, read_archived_log
from tenuto.service.contract import LINES_OF_JSON, NEXT_OFFSET_HEADER, ErrorCode
from tenuto.service.operations import LOOK_AGAIN_S
from tenuto.service.periodic import wait_for
from tenuto.service.routes.common import (
    LARGEST_ID,
    OF_FILES,
    OF_JOB,
    ClosingResponse,
    Front,
    FrontOf,
    JobId,
    MayRead,
    cleaned,
    errors,
    no,
    node_trouble,
    not_started,
)
from tenuto.service.rows import JobRow, instant
from tenuto.workspace.layout import METRICS

router = APIRouter()

LOG_PIECE = 1 << 20
LOOK_AT_LOG_S = 0.5
LONGEST_LOOK_S = 3.0
"""A job that prints nothing is looked at less and less often."""
KEEP_ALIVE_S = 10.0
"""A stream without news says after so long that the server is there."""
_NOT_STARTED = (ServiceState.QUEUED, ServiceState.PROCESSING)
KEEP_ALIVE = ": still here\n\n"
Stream = Literal["stdout", "stderr"]
_EVENT = {
    "type": "object",
    "properties": {name: {"type": "string"} for name in ("event", "id", "data")},
}
"""One event of a stream, as OpenAPI describes it."""
_TEXT: dict[str, Any] = {
    "text/plain": {"schema": {"type": "string"}},
    "text/event-stream": {"schema": _EVENT},
}


@router.get(
    "/jobs/{id}/logs",
    summary="What a job printed",
    response_class=Response,
    responses={
        **errors(*OF_FILES),
        200: {
            "description": "At most 1 MiB; `Tenuto-Next-Offset` says where to continue. `follow`: events",
            "content": _TEXT,
        },
    },
)
async def logs(
    id: JobId,
    front: FrontOf,
    principal: MayRead,
    stream: Stream = "stdout",
    offset: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
    follow: Annotated[bool, Query(description="Continue until the job ends, as server-sent events.")] = False,
) -> Response:
    row = await front.operations.get(id, principal)
    if follow:
        await _news(front, row, stream, offset)  # which may be refused
        return _events(_follow_log(front, principal, row, stream, offset))
    return await _printed(front, row, stream, offset, "text/plain; charset=utf-8")


@router.get(
    "/jobs/{id}/points",
    summary="The metrics that a job logged",
    response_class=Response,
    responses={
        **errors(*OF_FILES),
        200: {"description": "Lines of JSON, at most 1 MiB; as of logs", "content": {LINES_OF_JSON: {}}},
    },
)
async def points(
    id: JobId,
    front: FrontOf,
    principal: MayRead,
    offset: Annotated[int, Query(ge=0, le=LARGEST_ID)] = 0,
) -> Response:
    return await _printed(front, await front.operations.get(id, principal), METRICS, offset, LINES_OF_JSON)


async def _printed(front: Front, row: JobRow, stream: str, offset: int, kind: str) -> Response:
    piece = await _piece(front, row, stream, offset)
    headers = {NEXT_OFFSET_HEADER: str(piece.next_offset), "content-security-policy": "sandbox"}
    return Response(piece.data, media_type=kind, headers=headers)


async def _piece(front: Front, row: JobRow, stream: str, offset: int) -> LogPiece:
    """A piece of a job's log: from its node while it has one, later from the result."""
    if row.state in _NOT_STARTED:
        raise not_started(row)
    if row.state is ServiceState.CLEANED:
        raise cleaned(row)
    if row.state.is_final:
        result = front.parts.place(row).result
        found = await front.parts.files(read_archived_log, result, stream, offset, LOG_PIECE)
        if found is None:
            raise no(ErrorCode.NOT_STARTED, "The job left no files", row)
        return found
    node = front.parts.book.nodes.get(row.node or "")
    if node is None or row.payload_id is None:
        raise not_started(row)
    try:
        return await node.read_log(front.parts.payload(row), stream, offset, LOG_PIECE)
    except PayloadGone:
        raise no(ErrorCode.NOT_STARTED, "The node of the job does not have it", row) from None
    except NodeError as error:
        raise node_trouble(error, row) from None


async def _news(front: Front, row: JobRow, stream: str, offset: int) -> LogPiece:
    """A piece of a log for a follower; nothing while the job has none, or its node does not answer."""
    try:
        return await _piece(front, row, stream, offset)
    except RequestRefused as error:
        if error.code not in (ErrorCode.NOT_STARTED.value, ErrorCode.NODE_UNAVAILABLE.value):
            raise
        return LogPiece(b"", offset)


async def _follow_log(
    front: Front, principal: Principal, row: JobRow, stream: str, offset: int
) -> AsyncGenerator[str]:
    waiters, clock = front.parts.waiters, front.parts.clock
    look_s, told_at = LOOK_AT_LOG_S, clock.monotonic()
    text = codecs.getincrementaldecoder("utf-8")("replace")  # a piece may end within a character
    with waiters.listen(row.id) as event:
        while True:
            row = await front.operations.get(row.id, principal)
            piece = await _news(front, row, stream, offset)
            has_ended = not piece.data and row.state.is_final
            offset = piece.next_offset
            if shown := text.decode(piece.data, final=has_ended):
                told_at, told = clock.monotonic(), offset - len(text.getstate()[0])
                yield _event("log", {"offset": told, "text": shown}, str(told))
            if piece.data:
                look_s = LOOK_AT_LOG_S
            elif has_ended or waiters.is_closed:
                body = {"id": row.id, "status": row.state.value, "message": row.message}
                yield _event("end", body)
                return
            elif not await wait_for(event, LOOK_AGAIN_S if row.state in _NOT_STARTED else look_s):
                look_s = min(1.5 * look_s, LONGEST_LOOK_S)
                if clock.monotonic() - told_at >= KEEP_ALIVE_S:
                    told_at = clock.monotonic()
                    yield KEEP_ALIVE


@router.get(
    "/jobs/{id}/events",
    summary="Where a job stands, as it changes",
    response_class=Response,
    responses={
        **errors(*OF_JOB),
        200: {
            "description": "Server-sent events `state`; ends after the final state",
            "content": {"text/event-stream": {"schema": _EVENT}},
        },
    },
)
async def events(
    id: JobId,
    front: FrontOf,
    principal: MayRead,
    last_event_id: Annotated[str | None, Header(max_length=30)] = None,
) -> Response:
    row = await front.operations.get(id, principal)
    after = int(last_event_id) if last_event_id is not None and last_event_id.isdecimal() else 0
    return _events(_follow_moves(front, row.id, min(after, LARGEST_ID)))


async def _follow_moves(front: Front, job_id: int, after: int) -> AsyncGenerator[str]:
    parts = front.parts
    with parts.waiters.listen(job_id) as event:
        while True:
            for move in await parts.sql(parts.requests.moves_of, job_id, after):
                after = move.id
                body = {
                    "id": job_id,
                    "status": move.state.value,
                    "message": move.message,
                    "at": instant(move.at),
                }
                yield _event("state", body, str(move.id))
                if move.state.is_final:
                    return
            row = await parts.sql(parts.requests.get, job_id)
            if row is None or row.state.is_final or parts.waiters.is_closed:
                return
            if not await wait_for(event, LOOK_AGAIN_S):
                yield KEEP_ALIVE


def _events(stream: AsyncGenerator[str]) -> Response:
    return ClosingResponse(stream, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def _event(name: str, body: dict[str, Any], id: str | None = None) -> str:
    number = f"id: {id}\n" if id is not None else ""
    return f"event: {name}\n{number}data: {json.dumps(body)}\n\n"
