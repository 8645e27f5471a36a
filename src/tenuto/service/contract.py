"""The bodies of requests and answers, as OpenAPI shows them, and the codes of errors.
Decides nothing; `routes` fills them in.
"""

from __future__ import annotations

from enum import Enum, unique
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from tenuto.lifecycle.service import PayloadState, ServiceState


@unique
class ErrorCode(Enum):
    """Why a request was refused: `error` in the body, and the HTTP status that goes with it."""

    BAD_ID = "bad_id"
    BAD_PARAMETER = "bad_parameter"
    BAD_REQUEST = "bad_request"
    MISSING_FIELD = "missing_field"
    BAD_USER_ID = "bad_user_id"
    UNKNOWN_SERVICE = "unknown_service"
    NO_RUN_SH = "no_run_sh"
    BAD_RUN_SH = "bad_run_sh"
    BAD_NAME = "bad_name"
    DUPLICATE_NAME = "duplicate_name"
    TOO_MANY_PARTS = "too_many_parts"
    BAD_FIELD = "bad_field"
    BAD_MULTIPART = "bad_multipart"
    BAD_IDEMPOTENCY_KEY = "bad_idempotency_key"
    BAD_HOST = "bad_host"
    TOKEN_IN_URL = "token_in_url"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    WRONG_USER = "wrong_user"
    BAD_ORIGIN = "bad_origin"
    NOT_FOUND = "not_found"
    NOT_STARTED = "not_started"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    TOO_SLOW = "too_slow"
    ALREADY_ENDED = "already_ended"
    NOT_OURS = "not_ours"
    CLEANED = "cleaned"
    TOO_LARGE = "too_large"
    IDEMPOTENCY_MISMATCH = "idempotency_mismatch"
    RATE_LIMITED = "rate_limited"
    TOO_MANY_CONNECTIONS = "too_many_connections"
    INTERNAL = "internal"
    DRAINING = "draining"
    DATABASE_UNAVAILABLE = "database_unavailable"
    NODE_UNAVAILABLE = "node_unavailable"
    DISK_FULL = "disk_full"

    @property
    def http_status(self) -> int:
        return _HTTP_STATUS.get(self, 400)


_HTTP_STATUS = {
    ErrorCode.UNAUTHORIZED: 401,
    ErrorCode.FORBIDDEN: 403,
    ErrorCode.WRONG_USER: 403,
    ErrorCode.BAD_ORIGIN: 403,
    ErrorCode.NOT_FOUND: 404,
    ErrorCode.NOT_STARTED: 404,
    ErrorCode.METHOD_NOT_ALLOWED: 405,
    ErrorCode.TOO_SLOW: 408,
    ErrorCode.ALREADY_ENDED: 409,
    ErrorCode.NOT_OURS: 409,
    ErrorCode.CLEANED: 410,
    ErrorCode.TOO_LARGE: 413,
    ErrorCode.IDEMPOTENCY_MISMATCH: 422,
    ErrorCode.RATE_LIMITED: 429,
    ErrorCode.INTERNAL: 500,
    ErrorCode.TOO_MANY_CONNECTIONS: 503,
    ErrorCode.DRAINING: 503,
    ErrorCode.DATABASE_UNAVAILABLE: 503,
    ErrorCode.NODE_UNAVAILABLE: 503,
    ErrorCode.DISK_FULL: 507,
}


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True)


class StatusBody(_Body):
    """Where a job stands."""

    id: int
    status: ServiceState
    message: str


class ErrorBody(_Body):
    """Why a request was refused."""

    id: int = Field(description="The id asked for, or 0.")
    status: ServiceState = Field(description="The job's, or Unknown.")
    message: str
    error: ErrorCode


def error_json(
    code: ErrorCode, message: str, job_id: int = 0, status: ServiceState = ServiceState.UNKNOWN
) -> dict[str, object]:
    """The body of an error, ready to be sent."""
    return ErrorBody(id=job_id, status=status, message=message, error=code).model_dump(mode="json")


class JobBody(_Body):
    """Everything that is known of a job. Instants are RFC 3339, in UTC."""

    id: int
    user_id: str
    service: str
    status: ServiceState
    message: str
    created_at: str
    started_at: str | None
    ended_at: str | None
    exit_code: int | None
    node: str | None
    result_bytes: int | None
    result_sha256: str | None


class JobsBody(_Body):
    """A page of jobs, the newest first."""

    jobs: list[JobBody]
    next: int | None = Field(description="Ask again with `before` set to this; null: there are no more.")


class PongBody(_Body):
    message: Literal["pong"] = "pong"


class HealthBody(_Body):
    """Whether the server can work."""

    status: Literal["ok", "unavailable"]
    database: Literal["ok", "unavailable"]


class NodeHealthBody(HealthBody):
    """Whether the node can work, which version it is, and how much it runs at once."""

    tenuto: str
    slots: int


MARK_HEADER = "Tenuto-Payload"
"""Whose a payload is (`nodes.mark_of`): said by a server that asks for it, and by the node that answers."""


class PayloadBody(_Body):
    """Where a payload stands; the first six are what old servers need."""

    id: int
    input: dict[str, str] = {}
    status: PayloadState
    loc: str = ""
    pid: int = 0
    killed: bool
    message: str = ""
    exit_code: int | None = None


class UploadForm(_Body):
    """An upload, as OpenAPI shows it; the body itself is streamed."""

    user_id: str = Field(description="Who asks; a number, unless tokens are used.")
    service: str = Field(description="Which service is to run it.")
    files: list[bytes] = Field(
        description="Any part with a filename is a file, whatever its field name; one is `run.sh`.",
        json_schema_extra={"items": {"type": "string", "format": "binary"}},
    )
