"""A client of the Tenuto job service: submits files, waits, follows, fetches results, cancels.
Needs Python 3.11 and its standard library only: this one file can be copied to where Tenuto is not installed.

::

    client = Client("https://jobs.example.org", token="tnt_...")
    job = client.submit(["input.pdb", "options.cfg"], service="dock")
    if job.wait() == "Completed":
        job.fetch("results")
"""

from __future__ import annotations

import codecs
import hashlib
import http.client
import json
import os
import random
import secrets
import shutil
import socket
import ssl
import stat
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

try:
    from tenuto.errors import TenutoError
except ImportError:  # this file was copied
    TenutoError = Exception  # type: ignore[misc,assignment]

FINAL = frozenset({"Completed", "Failed", "Killed", "Invalid", "Cleaned"})
"""The states that a job does not leave by itself."""
PIECE = 1 << 18
LARGEST_BODY = 16 << 20
"""Of an answer that is no file."""
_WAIT_S = 25.0
"""How long a server holds one question back until the job has ended."""
_QUIET_S = 20.0
"""A stream of a job that prints nothing is silent for less."""
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 10.0
_RETRIED = frozenset({502, 503, 507})
T = TypeVar("T")


class ClientError(TenutoError):
    """Something that was asked of a job service could not be done."""


class RequestDenied(ClientError):
    """The server refused a request; the same one again would be refused again."""

    def __init__(self, message: str, http_status: int, code: str, status: str = "") -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code
        """What the server calls it, such as `missing_input`."""
        self.status = status
        """The state of the job that it is about, if it is about one."""


class ServerUnreachable(ClientError):
    """The server did not answer for as long as it was tried."""


class UnsafeResult(ClientError):
    """A result is damaged, or holds a name that leaves its directory; nothing of it was unpacked."""


class WaitTimeout(ClientError, TimeoutError):
    """The job had not ended when the time was up."""


class Client:
    """A job service, as a user of it sees it. Safe to be used by several threads."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = 30) -> None:
        """Connects to nothing yet.

        `url`: of the server, such as ``https://jobs.example.org``; `token`: of the user, where the server
        wants tokens; `timeout_s`: how long the server may be silent, and how long it is tried anew when it
        cannot be reached or says that it cannot work just now. `ValueError` for an argument that is neither.
        """
        _check_type("url", url, str)
        _check_type("token", token, str, type(None))
        _check_type("timeout_s", timeout_s, int, float)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no URL of a server: give http://... or https://...")
        if parts.query or parts.fragment or parts.username or parts.password:
            raise ValueError("a URL of a server has no user, query or fragment; a token is given as token=")
        if token is not None and not (token.isascii() and token.isprintable() and token.strip()):
            raise ValueError("a token is one line of ASCII")
        if not 0 < timeout_s < float("inf"):
            raise ValueError(f"timeout_s is more than 0 seconds, not {timeout_s}")
        self.url = url.rstrip("/")
        self.timeout_s = timeout_s
        self._host, self._port, self._prefix = parts.hostname, parts.port, parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._token = token.strip() if token is not None else None

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    def submit(
        self,
        files: Iterable[str | os.PathLike[str]] | Mapping[str, str | os.PathLike[str] | bytes],
        service: str,
        user: str | int | None = None,
        callback: str | None = None,
    ) -> Remote:
        """Uploads files, and returns their job. A lost answer is asked for again: there is one job only.

        `files`: paths of files and of folders, which are uploaded whole; or name -> path or content.
        `service`: which service is to run them, see `services`. `user`: the user's number, where the server
        wants no tokens. `callback`: a URL that the server calls at the end of the job. Raises `ClientError`.
        """
        _check_type("service", service, str)
        _check_type("user", user, str, int, type(None))
        _check_type("callback", callback, str, type(None))
        fields = {"service": service}
        if user is not None:
            fields["user_id"] = str(user)
        if callback is not None:
            fields["callback"] = callback
        form = _Form(fields, _gathered(files))
        key = secrets.token_hex(16)

        def once() -> Remote:
            headers = {
                "Content-Type": f"multipart/form-data; boundary={form.boundary}",
                "Content-Length": str(form.length),
                "Idempotency-Key": key,
            }
            with self._asked("POST", "/upload", headers, form.pieces) as answer:
                return Remote(self, _json(answer, "id", int)["id"])

        return self._retried(once)

    def job(self, id: int) -> Remote:
        """The job of an `id` that an upload was answered with; nothing is asked yet."""
        if isinstance(id, bool) or not isinstance(id, int):
            raise TypeError(f"the id of a job is a number, not {id!r}")
        return Remote(self, id)

    def services(self) -> list[dict[str, Any]]:
        """The services that may be asked for: name, description, inputs and limits of each."""

        def once() -> list[dict[str, Any]]:
            with self._asked("GET", "/services") as answer:
                found: list[dict[str, Any]] = _json(answer, "services", list)["services"]
                return found

        return self._retried(once)

    def _job(self, id: int, wait_s: float = 0.0, until: float | None = None) -> dict[str, Any]:
        """What the server knows of a job, once that has ended or `wait_s` are over.

        `until`: when to stop trying, by `time.monotonic`.
        """

        def once() -> dict[str, Any]:
            path = f"/jobs/{id}" + (f"?wait={wait_s:.3f}" if wait_s else "")
            with self._asked("GET", path, silent_s=wait_s) as answer:
                return _json(answer, "status", str)

        return self._retried(once, until)

    # One request

    @contextmanager
    def _asked(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str] | None = None,
        body: Callable[[], Iterator[bytes]] | None = None,
        silent_s: float = 0.0,
        taken: frozenset[int] = frozenset({200, 201, 202}),
    ) -> Iterator[http.client.HTTPResponse]:
        """One request on a connection of its own; raises `_Again` if it is worth another try."""
        timeout_s = self.timeout_s + silent_s
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                self._host, self._port, timeout=timeout_s, context=self._tls
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            answer = self._sent(connection, method, path, headers or {}, body)
            if answer.status not in taken:
                _refuse(answer)
            yield answer
        except (ssl.SSLCertVerificationError, socket.gaierror) as error:
            kind = _Again if getattr(error, "errno", None) == socket.EAI_AGAIN else ServerUnreachable
            raise kind(f"{self.url} cannot be reached: {error}") from None
        except _FileTrouble as error:
            raise ClientError(str(error)) from None
        except (OSError, http.client.HTTPException) as error:
            raise _Again(f"{self.url} cannot be reached: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Callable[[], Iterator[bytes]] | None,
    ) -> http.client.HTTPResponse:
        connection.putrequest(method, self._prefix + path, skip_accept_encoding=True)
        connection.putheader("User-Agent", "tenuto-client")
        connection.putheader("Accept", "application/json")
        if self._token is not None:
            connection.putheader("Authorization", f"Bearer {self._token}")
        if method == "POST" and body is None:
            headers = {**headers, "Content-Length": "0"}
        for name, value in headers.items():
            connection.putheader(name, value)
        try:
            connection.endheaders()
            for piece in body() if body is not None else ():
                connection.send(piece)
        except (BrokenPipeError, ConnectionResetError):
            with suppress(OSError, http.client.HTTPException):  # it may have said why before it hung up
                return connection.getresponse()
            raise
        return connection.getresponse()

    def _retried(
        self, once: Callable[[], T], until: float | None = None, reached: Callable[[], int] = lambda: 0
    ) -> T:
        """What one try gives, at last; raises `ServerUnreachable` when it gives up.

        That is `timeout_s` after the first failure, or `until`; `reached` counts what the tries got so far:
        as long as that grows, they continue.
        """
        give_up, known, pause_s = float("inf"), reached(), _FIRST_PAUSE_S
        while True:
            try:
                return once()
            except _Again as error:
                now, found = time.monotonic(), reached()
                if give_up == float("inf") or found > known:
                    give_up, known, pause_s = now + self.timeout_s, found, _FIRST_PAUSE_S
                rest_s = max(pause_s, error.after_s or 0.0) * (0.75 + random.random() / 2)
                if now + rest_s > min(give_up, until or give_up):
                    raise ServerUnreachable(str(error)) from None
            time.sleep(rest_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class Remote:
    """A job at a server."""

    def __init__(self, client: Client, id: int) -> None:
        """`client`: of its server; `id`: what its upload was answered with."""
        self._client = client
        self.id = id

    def __repr__(self) -> str:
        return f"Remote({self._client.url!r}, {self.id})"

    def job(self) -> dict[str, Any]:
        """Everything that the server knows of the job: `status`, `message`, `exit_code`, `progress` ..."""
        return self._client._job(self.id)

    def wait(
        self, timeout_s: float | None = None, seen: Callable[[dict[str, Any]], None] | None = None
    ) -> str:
        """The state in which the job ended: Completed, Failed, Killed, Invalid or Cleaned.

        `timeout_s`: how long to wait at most, else `WaitTimeout`; None: as long as it takes. A server that
        is started anew meanwhile is waited for, too. `seen`: called with the job whenever it was asked for.
        """
        until = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = _WAIT_S if until is None else min(_WAIT_S, max(0.0, until - time.monotonic()))
            try:
                job = self._client._job(self.id, left_s, until)
            except ServerUnreachable:
                if until is not None and time.monotonic() + _LONGEST_PAUSE_S >= until:
                    raise WaitTimeout(f"job {self.id} had not ended when the time was up") from None
                raise
            if seen is not None:
                seen(job)
            status = str(job["status"])
            if status in FINAL:
                return status
            if until is not None and time.monotonic() >= until:
                raise WaitTimeout(f"job {self.id} is {status}, and the time is up")

    def fetch(self, directory: str | os.PathLike[str]) -> Path:
        """Unpacks what an ended job left into a directory, and returns it.

        `directory`: is made if it is not there; files of the same names are replaced. A download that was cut
        continues where it stopped, also in another call. Raises `UnsafeResult` for a result that is not what
        its digest says, or would write elsewhere, and `ClientError` for a job that has not ended.
        """
        job = self.job()
        status, digest = str(job["status"]), job.get("result_sha256")
        if status not in FINAL:
            raise ClientError(f"job {self.id} is {status}: wait for its end first")
        if status == "Cleaned":
            raise ClientError(f"the files of job {self.id} were removed after their time")
        if not digest:
            raise ClientError(f"job {self.id} is {status} and left no files: {job.get('message', '')}")
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        part = target / f".results-{self.id}-{digest[:16]}.part"
        route = "download" if status == "Completed" else "download_partial"
        self._download(f"/{route}/{self.id}", part, str(digest), int(job["result_bytes"]))
        try:
            _unpack(part, target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def fetch_file(self, name: str, path: str | os.PathLike[str]) -> Path:
        """Fetches one file of an ended job: `name` as in its ZIP, to the file `path`; returns that."""
        target = Path(path)
        part = target.with_name(f".tenuto-{secrets.token_hex(8)}.part")

        def once() -> None:
            with self._client._asked("GET", f"/jobs/{self.id}/files/{quote(name)}") as answer:
                _save(answer, part, "wb")
                if answer.length:  # announced bytes that did not arrive
                    raise http.client.IncompleteRead(b"", answer.length)

        try:
            self._client._retried(once)
            part.replace(target)
        finally:
            part.unlink(missing_ok=True)
        return target

    def log(self, follow: bool = True, stream: str = "stdout") -> Iterator[str]:
        """What the job printed, piece by piece.

        `follow`: continue until the job ends, from before it starts; `stream`: stdout or stderr. A connection
        that is cut is made again, and nothing is given twice.
        """
        if stream not in ("stdout", "stderr"):
            raise ValueError(f"stream is stdout or stderr, not {stream!r}")
        return self._followed(stream) if follow else self._printed(stream)

    def cancel(self) -> str:
        """Asks for the end of the job; its state then: Killed, or its final state from before.

        Any other state: the server still tries to stop it.
        """

        def once() -> str:
            try:
                with self._client._asked("POST", f"/terminate/{self.id}", silent_s=60.0) as answer:
                    return str(_json(answer, "status", str)["status"])
            except RequestDenied as error:
                if error.code == "already_ended":
                    return error.status
                raise

        return self._client._retried(once)

    # How

    def _download(self, path: str, part: Path, digest: str, size: int) -> None:
        """Fetches a ZIP into a file whose beginning may be there; refuses one of another digest."""

        def have() -> int:
            return part.stat().st_size if part.exists() else 0

        for _ in range(2):  # what an interrupted call left may be damaged; anew, it is not
            if have() < size:
                self._client._retried(lambda: self._download_rest(path, part, digest, size), reached=have)
            with open(part, "rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() == digest:
                    return
            part.unlink()
        raise UnsafeResult(f"the result of job {self.id} is not what its digest says")

    def _download_rest(self, path: str, part: Path, digest: str, size: int) -> None:
        """One try; what arrived stays, also if the connection is cut."""
        have = part.stat().st_size if part.exists() else 0
        headers = {"Accept": "application/zip"}
        if have:
            headers |= {"Range": f"bytes={have}-", "If-Range": f'"{digest}"'}
        taken = frozenset({200, 206, 416})
        with self._client._asked("GET", path, headers, taken=taken) as answer:
            if answer.status == 416:  # another result, which is shorter
                part.unlink(missing_ok=True)
                raise _Again("the result is another one by now")
            _save(answer, part, "ab" if answer.status == 206 else "wb")
        if part.stat().st_size < size:
            raise _Again(f"{self._client.url} cut the download")

    def _printed(self, stream: str) -> Iterator[str]:
        text, offset = codecs.getincrementaldecoder("utf-8")("replace"), 0
        while True:
            path = f"/jobs/{self.id}/logs?stream={stream}&offset={offset}"

            def once(path: str = path) -> tuple[bytes, str]:
                with self._client._asked("GET", path, {"Accept": "text/plain"}) as answer:
                    return answer.read(), answer.headers.get("tenuto-next-offset", "")

            piece, following = self._client._retried(once)
            if not piece:
                if rest := text.decode(b"", True):
                    yield rest
                return
            # The dropped middle of a long log counts, too.
            offset = int(following) if following.isdecimal() else offset + len(piece)
            if shown := text.decode(piece):
                yield shown

    def _followed(self, stream: str) -> Iterator[str]:
        offset, until = 0, time.monotonic() + self._client.timeout_s
        kind = {"Accept": "text/event-stream"}
        while True:
            path = f"/jobs/{self.id}/logs?stream={stream}&offset={offset}&follow=true"
            try:
                with self._client._asked("GET", path, kind, silent_s=_QUIET_S) as answer:
                    for name, data in _events(answer):
                        until = time.monotonic() + self._client.timeout_s
                        if name == "log":
                            offset = int(data["offset"])
                            yield str(data["text"])
                        elif name == "end" and data["status"] in FINAL:
                            return
                raise _Again(f"{self._client.url} ended the stream")
            except _Again as error:  # cut, or the server is about to stop
                if time.monotonic() > until:
                    raise ServerUnreachable(str(error)) from None
            time.sleep(_FIRST_PAUSE_S)


class _Again(Exception):
    """A try failed in a way that the next one may not."""

    def __init__(self, message: str, after_s: float | None = None) -> None:
        super().__init__(message)
        self.after_s = after_s


class _FileTrouble(Exception):
    """A file that is being uploaded cannot be read, or changed."""


# Uploading


class _Upload(NamedTuple):
    """A file on its way: its name there, and where its content is."""

    name: str
    source: Path | bytes
    size: int


class _Form:
    """The body of an upload: its length is known before it is sent, and no file is kept in memory."""

    def __init__(self, fields: Mapping[str, str], files: list[_Upload]) -> None:
        self.boundary = f"tenuto-{secrets.token_hex(16)}"
        self._files = files
        self._fields = b"".join(
            self._head(f'name="{name}"') + value.encode() + b"\r\n" for name, value in fields.items()
        )
        self._heads = [self._head(f'name="file"; filename="{_quoted(file.name)}"') for file in files]
        self._end = f"--{self.boundary}--\r\n".encode()
        sizes = (len(head) + file.size + 2 for head, file in zip(self._heads, files, strict=True))
        self.length = len(self._fields) + sum(sizes) + len(self._end)

    def _head(self, options: str) -> bytes:
        return f"--{self.boundary}\r\nContent-Disposition: form-data; {options}\r\n\r\n".encode()

    def pieces(self) -> Iterator[bytes]:
        yield self._fields
        for head, file in zip(self._heads, self._files, strict=True):
            yield head
            yield from _content(file)
            yield b"\r\n"
        yield self._end


def _content(file: _Upload) -> Iterator[bytes]:
    if isinstance(file.source, bytes):
        yield file.source
        return
    left = file.size
    try:
        with open(file.source, "rb") as stream:
            while left and (piece := stream.read(min(PIECE, left))):
                left -= len(piece)
                yield piece
    except OSError as error:
        raise _FileTrouble(f"{file.source} cannot be read: {error.strerror}") from None
    if left:
        raise _FileTrouble(f"{file.source} became shorter while it was uploaded")


def _check_type(name: str, given: object, *kinds: type) -> None:
    if not isinstance(given, kinds) or (isinstance(given, bool) and bool not in kinds):
        wanted = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        raise TypeError(f"{name} is {wanted}, not {given!r}")


def _quoted(name: str) -> str:
    if any(character in "\r\n\0" or "\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"{name!r} cannot be the name of a file: rename it, in UTF-8 and without line ends")
    return name.replace("\\", "\\\\").replace('"', '\\"')


def _gathered(files: Any) -> list[_Upload]:
    """The files of an upload by their names there; `ValueError` and `OSError`: it cannot be sent."""
    several = not isinstance(files, str | bytes | os.PathLike) and isinstance(files, Iterable)
    given = list(files.values() if isinstance(files, Mapping) else files) if several else []
    if not several or not all(isinstance(one, str | bytes | bytearray | os.PathLike) for one in given):
        raise TypeError(f"files are a list of paths, or name -> path or content, not {files!r}")
    files = files if isinstance(files, Mapping) else given
    found: list[_Upload] = []
    if isinstance(files, Mapping):
        for name, source in files.items():
            if isinstance(source, bytes | bytearray):
                found.append(_Upload(str(name), bytes(source), len(source)))
            else:
                found.append(_on_disk(str(name), Path(source)))
        return found
    for path in map(Path, files):
        if not path.is_dir():
            found.append(_on_disk(path.name, path))
            continue
        whole = os.path.abspath(path)
        for above, folders, names in os.walk(whole, onerror=_raise):
            for name in sorted((*folders, *names)):
                one = Path(above, name)
                if name in names:
                    found.append(_on_disk(one.relative_to(os.path.dirname(whole)).as_posix(), one))
                elif one.is_symlink():
                    raise ValueError(
                        f"{one} is a link to a folder, which would be left out: copy it, or remove it"
                    )
    return found


def _raise(error: OSError) -> None:
    raise error


def _on_disk(name: str, path: Path) -> _Upload:
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is no file")
    return _Upload(name, path, status.st_size)


# Answers


def _json(answer: http.client.HTTPResponse, name: str = "", kind: type = object) -> dict[str, Any]:
    """An answer in JSON, which has a value of this `kind` under this `name`."""
    try:
        said = json.loads(answer.read(LARGEST_BODY))
    except (ValueError, RecursionError):
        raise _Again("the server answered with something that is not JSON") from None
    if not isinstance(said, dict) or not isinstance(said.get(name), kind):
        raise _Again("the server answered with something else than was asked for")
    return said


def _refuse(answer: http.client.HTTPResponse) -> None:
    """Raises what an answer means that is not the one asked for."""
    said: dict[str, Any] = {}
    with suppress(_Again):
        said = _json(answer)
    code = str(said.get("error", ""))
    message = str(said.get("message") or f"the server answered {answer.status} {answer.reason}")
    if (answer.status in _RETRIED and code != "quota_bytes") or code == "rate_limited":
        after = answer.headers.get("retry-after", "")
        raise _Again(message, float(after) if after.isdecimal() else None)
    if 300 <= answer.status < 400:
        message = f"the server is elsewhere: {answer.headers.get('location', '')}; give that URL"
    raise RequestDenied(message, answer.status, code, str(said.get("status", "")))


def _events(answer: http.client.HTTPResponse) -> Iterator[tuple[str, dict[str, Any]]]:
    """Name and data of each server-sent event."""
    name, data = "", ""
    while line := answer.readline(LARGEST_BODY):
        field, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif not field and (value or data):  # a comment says that the server is there
            try:
                yield name, json.loads(data or "{}")
            except ValueError:
                raise _Again("the server answered with something that is not JSON") from None
            name, data = "", ""


# Results


def _save(answer: http.client.HTTPResponse, path: Path, mode: str) -> None:
    """Writes the body of an answer to a file; a disk that is full is no reason to ask again."""
    with _this_disk(path), open(path, mode) as file:
        while True:
            try:
                piece = answer.read(PIECE)
            except OSError as error:
                raise http.client.HTTPException(str(error)) from None
            if not piece:
                return
            file.write(piece)


@contextmanager
def _this_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise _FileTrouble(f"{path} cannot be written: {error.strerror}") from None


def _unpack(packed: Path, directory: Path) -> None:
    """Unpacks a ZIP; nothing is written if one of its names would be written elsewhere."""
    try:
        with zipfile.ZipFile(packed) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir()]
            places = [_place(directory, entry.filename) for entry in entries]
            for entry, place in zip(entries, places, strict=True):
                place.parent.mkdir(parents=True, exist_ok=True)
                part = place.with_name(packed.stem)  # has the digest: no file of the result is called so
                try:
                    with archive.open(entry) as source, _new(part) as target:
                        shutil.copyfileobj(source, target, PIECE)
                    os.replace(part, place)
                finally:
                    part.unlink(missing_ok=True)
    except zipfile.BadZipFile as error:
        raise UnsafeResult(f"the result is no ZIP: {error}") from None


def _new(path: Path) -> IO[bytes]:
    path.unlink(missing_ok=True)
    return open(path, "xb")


def _place(directory: Path, name: str) -> Path:
    """Where a file of a result goes; refuses a name that leaves the directory, also through a link."""
    steps = name.split("/")
    if not name or any(step in ("", ".", "..") for step in steps) or any(c in "\\\0" for c in name):
        raise UnsafeResult(f"the result holds {name!r}, which would be written elsewhere")
    if os.name == "nt" and ":" in name:
        raise UnsafeResult(f"the result holds {name!r}, which would be written elsewhere")
    place = directory
    for step in steps[:-1]:
        place = place / step
        if place.is_symlink():
            raise UnsafeResult(
                f"{place} is a link: what the result holds below it would be written elsewhere"
            )
    if (directory / name).is_dir() and not (directory / name).is_symlink():
        raise UnsafeResult(f"{directory / name} is a directory, and a file in the result")
    return directory / name
