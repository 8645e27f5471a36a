"""A result on its way out: opened before the first byte, so that the cleaner cannot take it away.
Decides nothing about which user may have it.
"""

from __future__ import annotations

import base64
import os
from email.utils import formatdate

from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from tenuto.service.rows import JobRow


class ResultResponse(FileResponse):
    """A ZIP by its descriptor, with ranges; the descriptor is closed whatever happens."""

    def __init__(self, descriptor: int, row: JobRow) -> None:
        self._descriptor = descriptor
        digest = row.result_sha256 or ""
        status = os.fstat(descriptor)
        headers = {
            "etag": f'"{digest}"',
            "repr-digest": f"sha-256=:{base64.b64encode(bytes.fromhex(digest)).decode()}:",
            "last-modified": formatdate(status.st_mtime, usegmt=True),
            "cache-control": "private, no-cache",
            "content-security-policy": "sandbox",
        }
        super().__init__(
            f"/proc/self/fd/{descriptor}",
            headers=headers,
            media_type="application/zip",
            filename=f"results-{row.id}.zip",
            stat_result=status,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            os.close(self._descriptor)


def open_result(path: str) -> int | None:
    """A descriptor of a result; None if it is gone."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
