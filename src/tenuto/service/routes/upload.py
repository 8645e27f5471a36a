"""`POST /upload`."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from tenuto.errors import RequestRefused
from tenuto.lifecycle.service import ServiceState
from tenuto.service.contract import ErrorCode, StatusBody, UploadForm
from tenuto.service.operations import UPLOADED, UploadHead
from tenuto.service.routes.common import FrontOf, MaySubmit, early, errors, status_json

router = APIRouter()

_E = ErrorCode
_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"multipart/form-data": {"schema": UploadForm.model_json_schema()}},
    },
    "parameters": [
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": False,
            "description": "The same key and the same upload are the same job.",
            "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
        }
    ],
}


@router.post(
    "/upload",
    status_code=201,
    response_model=StatusBody,
    summary="Upload files, to be run by a service",
    openapi_extra=_FORM,
    responses=errors(
        _E.TOO_MANY_QUEUED,
        _E.MISSING_FIELD,
        _E.BAD_USER_ID,
        _E.UNKNOWN_SERVICE,
        _E.NO_RUN_SH,
        _E.BAD_RUN_SH,
        _E.MISSING_INPUT,
        _E.UNEXPECTED_FILE,
        _E.BAD_ARCHIVE,
        _E.CALLBACKS_OFF,
        _E.BAD_CALLBACK,
        _E.BAD_NAME,
        _E.DUPLICATE_NAME,
        _E.TOO_MANY_PARTS,
        _E.BAD_FIELD,
        _E.BAD_MULTIPART,
        _E.BAD_IDEMPOTENCY_KEY,
        _E.WRONG_USER,
        _E.BAD_ORIGIN,
        _E.TOO_SLOW,
        _E.TOO_LARGE,
        _E.IDEMPOTENCY_MISMATCH,
        _E.DRAINING,
        _E.DISK_FULL,
        _E.QUOTA_BYTES,
    ),
)
async def upload(request: Request, front: FrontOf, principal: MaySubmit) -> JSONResponse:
    headers = request.headers
    length = headers.get("content-length", "")
    head = UploadHead(
        headers.get("content-type", ""),
        int(length) if length.isdecimal() else None,
        headers.get("idempotency-key"),
    )
    try:
        row = await front.operations.upload(head, request.stream(), principal)
    except RequestRefused as error:
        return early(error)
    code = 200 if front.parts.settings.compat == "v1" else 201
    return status_json(row._replace(state=ServiceState.QUEUED), UPLOADED, code)
