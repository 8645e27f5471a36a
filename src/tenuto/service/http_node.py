"""A node over HTTP, as its server sees it: ours, or one of the older service.
Follows no redirect; every call has an end, and says whether the request may have arrived.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import aiohttp

from tenuto.errors import (
    DamagedResult,
    NodeError,
    NodeNotReached,
    NodeRefusal,
    NodeSilent,
    NodeTakesNothing,
    NotOurs,
    PayloadGone,
)
from tenuto.lifecycle.service import PayloadState
from tenuto.service.archive import LogPiece, Packed
from tenuto.service.contract import MARK_HEADER, NEXT_OFFSET_HEADER, USAGE_HEADER, ErrorCode
from tenuto.service.data_paths import private, remove_quietly, synced
from tenuto.service.node.work import encoded_command
from tenuto.service.nodes import COMMAND, LONGEST_PROGRESS, Outgoing, PayloadRef, PayloadStatus, Retrieved
from tenuto.workspace.layout import METRICS

CONNECT_S = 5.0
READ_S = 40.0
PIECE = 1 << 18
LARGEST_BODY = 1 << 20
_LONGEST_USAGE = 200
_MOST_USED = 1 << 62
"""A node that says more does not know."""
_NOT_TAKEN = (429, 503)
_NOT_SERVED = (401, 403)
"""Nothing is wrong with the job: another node may take it."""
_OF_NO_NODE = (405, 501)
_NO_CONNECTION = (
    aiohttp.ClientConnectorError,
    aiohttp.ServerTimeoutError,
    aiohttp.InvalidURL,
    ssl.SSLError,
)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """Where a node is, and its credentials."""

    url: str
    secret: str | None = None
    secret_file: Path | None = None
    """Where the secret is read when it is needed: a node makes it at its first start."""
    poll_s: float = 0.5
    """How often a node that cannot hold a question back is asked."""


class _NodeBroken(NodeSilent):
    """A node of ours answered that something went wrong there."""


class _NoNode(NodeRefusal):
    """The server there answers in a way that no node does."""


class HttpNode:
    """A `Node` on another machine, or in another process."""

    def __init__(self, name: str, address: NodeAddress) -> None:
        self.name = name
        self.address = self._address = address
        self._url = address.url.rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._secret = address.secret
        self._is_ours: bool | None = None
        self._is_none: str | None = None
        """Why what answers there cannot be a node, as the last submission showed."""
        self._slots = 1

    # The calls of a server

    async def submit(self, job: Outgoing) -> PayloadStatus:
        is_ours = await self._knows_keys()
        if job.command and not is_ours:
            raise NodeRefusal("it is a node of the older service, which runs nothing but a run.sh")
        form = aiohttp.FormData(quote_fields=False)  # quoted, names would arrive with percent signs
        for name, value in (
            ("service", job.service),
            ("user_id", job.user_id),
            ("job_id", str(job.job_id)),
            (COMMAND, encoded_command(job.command)),
        ):
            if is_ours and (value or name != COMMAND):
                form.add_field(
                    name, value, content_type="text/plain"
                )  # else a form without files is no multipart
        opened = []
        names = await asyncio.to_thread(_names, job.directory)
        if names is None:  # of a database that was restored: the job may have run since it was saved
            if (found := await self.find(job)) is not None:
                return found
            raise NodeRefusal("the files of the job are gone")
        if not is_ours and any("/" in name for name in names):
            raise NodeRefusal("it is a node of the older service, which takes no folders")
        try:
            for name in sorted(names):
                file = await asyncio.to_thread(open, os.path.join(job.directory, name), "rb")
                opened.append(file)
                form.add_field("files", file, filename=name, content_type="application/octet-stream")
            headers = {"Idempotency-Key": job.key} if is_ours else {}
            try:
                asking = self._ask("POST", "/submit", data=form, headers=headers, mark=job.mark)
                async with asking as answer:
                    self._is_none = None
                    return _status(await _json(answer))
            except (_NoNode, PayloadGone) as error:  # the URL is another's: nothing is wrong with the job
                self._is_none = f"it is no node of a job service: {error}"
                raise NodeNotReached(self._is_none) from None
            except _NodeBroken as error:
                # The node itself answered: no request is under way, and an unknown payload is nowhere.
                if is_ours and (found := await self.find(job)) is not None:
                    return found
                raise NodeNotReached(f"it could not take the job: {error}") from None
            except NodeSilent as error:
                if not is_ours:  # to ask again could run it twice
                    raise NodeRefusal(f"it did not answer, and cannot be asked again: {error}") from None
                raise
        finally:
            for file in opened:
                file.close()

    async def find(self, job: Outgoing) -> PayloadStatus | None:
        if not await self._knows_keys():
            raise NodeRefusal("it did not answer, and cannot be asked again")
        try:
            async with self._ask("GET", f"/find/{job.key}", mark=job.mark) as answer:
                return _status(await _json(answer))
        except PayloadGone:
            return None

    async def retrieve(
        self, payload: PayloadRef, known: PayloadState | None, wait_s: float, target: str
    ) -> Retrieved:
        is_ours = await self._knows_keys()
        query = f"?wait={wait_s:g}" + (f"&known={known.value}" if known else "") if is_ours else ""
        async with self._ask("GET", f"/retrieve/{payload.id}{query}", mark=payload.mark) as answer:
            if answer.content_type == "application/zip":
                packed = await self._saved(answer, target)
                done = PayloadStatus(payload.id, PayloadState.COMPLETED, exit_code=0, **_usage(answer))
                return Retrieved(done, packed)
            status = _status(await _json(answer))._replace(**_usage(answer))
        if not is_ours and status.state is known:
            await asyncio.sleep(self._address.poll_s)
        return Retrieved(status)

    async def retrieve_partial(self, payload: PayloadRef, target: str) -> Packed:
        async with self._ask("GET", f"/retrieve_partial/{payload.id}", mark=payload.mark) as answer:
            if answer.content_type != "application/zip":
                raise DamagedResult("it gave no files")
            return await self._saved(answer, target)

    async def stream_partial(self, payload: PayloadRef) -> AsyncGenerator[bytes]:
        async with self._ask("GET", f"/retrieve_partial/{payload.id}", mark=payload.mark) as answer:
            if answer.content_type != "application/zip":
                raise DamagedResult("it gave no files")
            async for piece in _pieces(answer):
                yield piece

    async def read_log(self, payload: PayloadRef, stream: str, offset: int, limit: int) -> LogPiece:
        path = f"/logs/{payload.id}?stream={stream}&offset={offset}"
        if stream == METRICS:
            path = f"/points/{payload.id}?offset={offset}"
        async with self._ask("GET", path, mark=payload.mark) as answer:
            data = b"".join([piece async for piece in _pieces(answer)])[:limit]
            following = answer.headers.get(NEXT_OFFSET_HEADER, "")
            return LogPiece(data, int(following) if following.isdecimal() else offset + len(data))

    async def progress(self, payload: PayloadRef) -> str:
        if not await self._knows_keys():
            return ""
        async with self._ask("GET", f"/progress/{payload.id}", mark=payload.mark) as answer:
            return str((await _json(answer)).get("progress") or "")[:LONGEST_PROGRESS]

    async def kill(self, payload: PayloadRef) -> PayloadStatus:
        async with self._ask("POST", f"/kill/{payload.id}", mark=payload.mark) as answer:
            return _status(await _json(answer))

    async def slots(self) -> int:
        await self._look()
        return self._slots

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    # HTTP

    async def _knows_keys(self) -> bool:
        if self._is_ours is None:
            await self._look()
        return bool(self._is_ours)

    async def _look(self) -> None:
        """Learns what kind of node this is, and that it serves us; an older one does not say `tenuto`."""
        try:
            try:
                async with self._ask("GET", "/health", is_health=True) as answer:
                    said = await _json(answer)
                    if answer.status >= 300 and "tenuto" not in said:
                        raise NodeNotReached(f"it takes no jobs now ({answer.status})")
            except (PayloadGone, NodeRefusal):
                if self._is_ours:  # it is one of ours that refuses, and no older one
                    raise
                said = {}
            self._is_ours = "tenuto" in said
            if not self._is_ours and self._is_none is not None:
                raise NodeNotReached(self._is_none)
            if self._is_ours:  # its health is told without the secret, too
                with suppress(PayloadGone):
                    async with self._ask("GET", "/find/none"):
                        pass
        except NodeSilent as error:
            raise NodeNotReached(str(error)) from None  # nothing was asked for yet
        if said.get("database") == "unavailable":
            raise NodeNotReached("its database does not answer")
        slots = said.get("slots")
        self._slots = slots if isinstance(slots, int) and slots > 0 else 1
        if said.get("takes") is False:
            self._slots = 0

    @asynccontextmanager
    async def _ask(
        self,
        method: str,
        path: str,
        data: Any = None,
        headers: dict[str, str] | None = None,
        mark: str | None = None,
        is_health: bool = False,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """One request; raises the `NodeError` that says what became of it.

        ``mark``: whose payload is asked for. The node is told, and its answer must say the same.
        ``is_health``: 503 is an answer, too.
        """
        if mark is not None and not await self._knows_keys():
            mark = None  # an older node cannot say whose a payload is
        if mark is not None:
            headers = {**(headers or {}), MARK_HEADER: mark}
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S, sock_read=READ_S)
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=False)
        if self._secret is None and self._address.secret_file is not None:
            self._secret = _secret(self._address.secret_file)
        if self._secret is not None:
            headers = {**(headers or {}), "Authorization": f"Bearer {self._secret}"}
        try:
            request = self._session.request(
                method, self._url + path, data=data, headers=headers, allow_redirects=False
            )
            async with request as answer:
                if answer.status == HTTPStatus.UNAUTHORIZED:
                    self._secret = self._address.secret  # the node may have another one by now
                if not (is_health and answer.status == HTTPStatus.SERVICE_UNAVAILABLE):
                    await _refuse(answer)
                if mark is not None and answer.headers.get(MARK_HEADER) != mark:
                    raise NotOurs("the node answered with the job of another")
                yield answer
        except NodeError:
            raise
        except _NO_CONNECTION as error:
            raise NodeNotReached(_words(error)) from None
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise NodeSilent(_words(error)) from None

    async def _saved(self, answer: aiohttp.ClientResponse, target: str) -> Packed:
        """Writes a ZIP to a file, which is on the disk and whole when this returns."""
        part = f"{target}.part"
        digest, size = hashlib.sha256(), 0
        try:
            with await asyncio.to_thread(open, part, "wb", opener=private) as file:
                async for piece in _pieces(answer):
                    digest.update(piece)
                    size += len(piece)
                    await asyncio.to_thread(file.write, piece)
                await asyncio.to_thread(_flushed, file)
            _check(answer, size, digest.digest())
            await asyncio.to_thread(os.replace, part, target)
            await asyncio.to_thread(synced, os.path.dirname(target))
        except BaseException:
            remove_quietly(part)
            raise
        return Packed(size, digest.hexdigest())


async def _refuse(answer: aiohttp.ClientResponse) -> None:
    if answer.status < 300:
        return
    words, code = f"HTTP {answer.status}", None
    if answer.content_type == "application/json":
        with suppress(NodeSilent):
            said = await _json(answer)
            words, code = str(said.get("message") or words)[:500], said.get("error")
    if code in (ErrorCode.DRAINING.value, ErrorCode.DISK_FULL.value):
        raise NodeTakesNothing(words)
    if answer.status in _NOT_TAKEN:
        raise NodeNotReached(f"it takes no jobs now ({answer.status})")
    if code == ErrorCode.INTERNAL.value:
        raise _NodeBroken(words)
    if code == ErrorCode.NOT_OURS.value:
        raise NotOurs(words)
    if answer.status == 404:
        raise PayloadGone(words)
    if answer.status in _NOT_SERVED or code == ErrorCode.BAD_HOST.value:
        raise NodeNotReached(f"it does not serve this server: {words}")
    if answer.status < 400 or answer.status in _OF_NO_NODE:
        raise _NoNode(words)
    if answer.status < 500:
        raise NodeRefusal(words)
    raise NodeSilent(words)


async def _json(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    raw = await answer.content.read(LARGEST_BODY)
    try:
        said = json.loads(raw)
    except ValueError:
        raise NodeSilent("it answered with something that is not JSON") from None
    if not isinstance(said, dict):
        raise NodeSilent("it answered with something else than was asked for")
    return said


def _status(said: dict[str, Any]) -> PayloadStatus:
    try:
        code = said.get("exit_code")
        return PayloadStatus(
            int(said["id"]),
            PayloadState(said["status"]),
            str(said.get("message") or "")[:2000],
            code if isinstance(code, int) else None,
        )
    except (KeyError, ValueError, TypeError):
        raise NodeSilent("it answered with something else than was asked for") from None


def _usage(answer: aiohttp.ClientResponse) -> dict[str, Any]:
    """What a node says that a payload used; nothing of an older one."""
    said = dict(parse_qsl(answer.headers.get(USAGE_HEADER, "")[:_LONGEST_USAGE]))
    found: dict[str, Any] = {}
    for name, kind in (("cpu_s", float), ("memory_peak", int)):
        with suppress(KeyError, ValueError):
            value = kind(said[name])
            if 0 <= value < _MOST_USED:
                found[name] = value
    return found


async def _pieces(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for piece in answer.content.iter_chunked(PIECE):
        yield piece


def _check(answer: aiohttp.ClientResponse, size: int, digest: bytes) -> None:
    """Refuses a ZIP that was cut or changed on its way."""
    if answer.content_length is not None and size != answer.content_length:
        raise DamagedResult("the result arrived in part only")
    said = answer.headers.get("Repr-Digest", "")
    if said.startswith("sha-256=:") and said != f"sha-256=:{base64.b64encode(digest).decode()}:":
        raise DamagedResult("the result is not what its digest says")


def _names(directory: str) -> list[str] | None:
    if not os.path.isdir(directory):
        return None
    return [
        os.path.relpath(os.path.join(above, name), directory)
        for above, _, files in os.walk(directory)
        for name in files
    ]


def _secret(path: Path) -> str | None:
    """The secret in a file; None if there is none yet."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def _flushed(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _words(error: Exception) -> str:
    return (str(error) or type(error).__name__)[:300]
