"""Owns the limits of W8: claims among many rows, large files, many long polls and their answers."""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

import aiohttp

from bench.measure import Broken
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale
from bench.scratch import fresh
from bench.served import (
    BOUNDARY,
    SETTINGS,
    Client,
    cpu_of,
    forget_peak,
    memory_of,
    peak_of,
    served,
    sockets_of,
    started,
)
from bench.w8_crowd import crowd
from tenuto.database import Database, migrate
from tenuto.lifecycle.service import ServiceState
from tenuto.service.decisions import Quota
from tenuto.service.requests import Requests
from tenuto.service.tables import MIGRATIONS, jobs, turns

QUEUED = {Scale.TINY: 300, Scale.QUICK: 10_000, Scale.FULL: 100_000, Scale.LARGE: 100_000}
FEW = 1_000
BYTES = {Scale.TINY: 5 << 20, Scale.QUICK: 50 << 20, Scale.FULL: 2 << 30, Scale.LARGE: 2 << 30}
POLLS = {Scale.TINY: 20, Scale.QUICK: 200, Scale.FULL: 1_000, Scale.LARGE: 1_000}
CLAIMS = 30
STATUSES = {Scale.TINY: 20, Scale.QUICK: 100, Scale.FULL: 300, Scale.LARGE: 300}
REST_S = 60.0
ENDS = 20
"""Jobs whose end one long poll waits for."""
PIECE = bytes(1 << 20)
MB = 1e6


def limits(options: Options) -> Iterator[Row]:
    """The rows of each limit; one that cannot be measured here says why."""
    for case, measured in (
        ("claims", _claims),
        ("a crowd", _crowd),
        ("large files", _transfers),
        ("long polls", _polls),
    ):
        try:
            yield from measured(options, os.getloadavg()[0])
        except (Broken, OSError, AssertionError, aiohttp.ClientError) as broken:
            yield missing("W8", case, OURS, 1, f"failed: {broken}")


# Claims


def _databases(parts: ExitStack, scale: Scale, name: str) -> dict[str, str | None]:
    """A database of each kind, empty."""
    directory = parts.enter_context(tempfile.TemporaryDirectory())
    urls: dict[str, str | None] = {"SQLite": str(Path(directory, name))}
    if scale is not Scale.TINY:
        urls["PostgreSQL"] = postgresql(parts)
    return urls


def _crowd(options: Options, load: float) -> Iterator[Row]:
    with ExitStack() as parts:
        yield from crowd(options, _databases(parts, options.scale, "crowd.db"))


def _claims(options: Options, load: float) -> Iterator[Row]:
    many = QUEUED[options.scale]
    with ExitStack() as parts:
        for name, url in _databases(parts, options.scale, "claims.db").items():
            case = f"a claim among {many:,} queued jobs, against {FEW:,}: {name}"
            if url is None:
                yield missing("W8", case, OURS, many, f"{name} is not installed here")
                continue
            few_s, many_s = (_claim_s(url, count) for count in (min(FEW, many), many))
            yield plain("W8", case, OURS, many, "x", [many_s / few_s], load, "<= 1.5 x", 1.5)


def postgresql(parts: ExitStack) -> str | None:
    """A database of a PostgreSQL of its own; None if there is none on this machine."""
    installed = shutil.which("postgres") or any(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not installed or find_spec("psycopg") is None:
        return None
    from tests.parts.postgresql import PostgreSQL

    server = PostgreSQL()
    parts.callback(server.end)
    return parts.enter_context(server.database())


def _claim_s(url: str, count: int) -> float:
    """The median time of a claim of eight jobs, with so many queued."""
    database = Database(url)
    migrate(database, MIGRATIONS)
    requests = Requests(database, "bench")
    rows = [
        {
            "user_id": str(n % 50),
            "service": "s",
            "state": "Queued",
            "directory": f"{count}-{n}",
            "created_at": 0,
            "ready_at": 0,
        }
        for n in range(count)
    ]
    for table in (jobs, turns):
        database.write(lambda connection, table=table: connection.execute(table.delete()))  # type: ignore[misc]
    database.write(lambda connection: connection.execute(jobs.insert(), rows))
    requests.note_queues()
    database.write(lambda connection: connection.exec_driver_sql("ANALYZE"))
    if database.is_sqlite:  # what the rows left to be written is no part of a claim
        database.close()
        with closing(sqlite3.connect(url)) as file:
            file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database = Database(url)
        requests = Requests(database, "bench")
    took = []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        claimed = requests.claim("s", Quota(5, 8), ["n"] * 8)
        took.append(time.perf_counter() - began)
        for row in claimed:
            requests.move(row, ServiceState.FAILED)
    database.close()
    return statistics.median(took)


# Large files


def _transfers(options: Options, load: float) -> Iterator[Row]:
    size = BYTES[options.scale]
    with ExitStack() as parts:
        place, home = (parts.enter_context(fresh(options.directory)) for _ in range(2))
        port, node = parts.enter_context(started(place, "node", "--sandbox", "none"))
        nodes = f'nodes = ["http://127.0.0.1:{port}"]\n[node]\ndata = "{place}/node"\n'
        (home / "tenuto.toml").write_text(f"[service]\nmin_free_bytes = 1\n{SETTINGS}{nodes}")
        port, server = parts.enter_context(started(home, "serve"))
        client = Client(port)
        client.completed(client.upload())
        idle = {pid: memory_of(pid) for pid in (server, node)}
        began = {pid: cpu_of(pid) for pid in idle}
        for pid in idle:
            forget_peak(pid)
        job = _upload_large(port, size)
        client.completed(job)
        got = _download(port, job)
        if got < size:
            raise Broken(f"{got:,} bytes came back of {size:,}")
        for name, pid in (("server", server), ("node", node)):
            grown = float(peak_of(pid) - idle[pid])
            yield plain(
                "W8",
                f"peak memory of the {name}, up and down",
                OURS,
                size,
                "B",
                [grown],
                load,
                "<= 40 MB",
                40 * MB,
            )
            cpu = (cpu_of(pid) - began[pid]) / (size / 1e9)
            yield plain("W8", f"CPU of the {name} for each GB up and down", OURS, size, "s", [cpu], load)
        client.close()


def _upload_large(port: int, size: int) -> int:
    """An upload of so many bytes that do not shrink, streamed."""
    head = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}'
        for name, more, value in (
            ("user_id", "", "1\r\n"),
            ("service", "", "example\r\n"),
            ("file", '; filename="run.sh"', "true\n\r\n"),
            ("file", '; filename="large"', ""),
        )
    ).encode()
    tail = f"\r\n--{BOUNDARY}--\r\n".encode()
    noise = os.urandom(len(PIECE))

    def pieces() -> Iterator[bytes]:
        yield head
        for at in range(0, size, len(noise)):
            yield noise[: min(len(noise), size - at)]
        yield tail

    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    headers = {
        "Content-Type": f"multipart/form-data; boundary={BOUNDARY}",
        "Content-Length": str(len(head) + size + len(tail)),
    }
    connection.request("POST", "/upload", pieces(), headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    if answer.status != 201:
        raise Broken(f"a large upload was answered {answer.status}: {said[:200]!r}")
    return int(said.split(b'"id":')[1].split(b",")[0])


def _download(port: int, job: int) -> int:
    """The bytes of a result, read and thrown away."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", f"/download/{job}")
    answer, got = connection.getresponse(), 0
    while piece := answer.read(1 << 20):
        got += len(piece)
    connection.close()
    return got


# Long polls


def _polls(options: Options, load: float) -> Iterator[Row]:
    count = POLLS[options.scale]
    with fresh(options.directory) as directory, served(directory, "none") as (port, pid):
        client = Client(port)
        client.completed(client.upload())
        alone = [asyncio.run(_poll(port, client, 1, directory / f"go-{n}"))[1][0] for n in range(ENDS)]
        yield plain("W8", "a long poll after the end", OURS, 1, "s", alone, load, "<= 50 ms", 0.05)
        before = sockets_of(pid)
        statuses_s, late_s = asyncio.run(
            _poll(port, client, count, directory / "go", (pid, STATUSES[options.scale]))
        )
        p99 = sorted(statuses_s)[int(len(statuses_s) * 0.99)]
        yield plain("W8", "a status among long polls: p99", OURS, count, "s", [p99], load, "<= 250 ms", 0.25)
        yield plain("W8", "the first of all long polls", OURS, count, "s", [min(late_s)], load)
        yield plain("W8", "the last of all long polls", OURS, count, "s", [max(late_s)], load)
        client.close()
        until = time.monotonic() + 30
        while (left := sockets_of(pid) - before) > 0 and time.monotonic() < until:
            time.sleep(0.1)
        yield plain("W8", "connections left open", OURS, count, "", [float(max(left, 0))], load, "0", 0.0)


async def _at_rest(pid: int) -> None:
    """Waits until a server has taken in what was asked of it, and computes less than half of the time."""
    until = time.monotonic() + REST_S
    while time.monotonic() < until:
        began, cpu = time.monotonic(), cpu_of(pid)
        await asyncio.sleep(0.5)
        if cpu_of(pid) - cpu < (time.monotonic() - began) / 2:
            return
    raise Broken("a server that is asked for nothing more does not come to rest")


async def _poll(
    port: int, client: Client, count: int, go: Path, asked: tuple[int, int] | None = None
) -> tuple[list[float], list[float]]:
    """How long answers take while so many wait; and how long after the end each waiter was answered.

    `asked`: the pid of the server, and how often it is asked.
    """
    job = await asyncio.to_thread(client.upload, f"until [ -e {go} ]; do sleep 0.02; done\n")
    url = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def wait() -> float:
            async with session.get(f"{url}/jobs/{job}?wait=60") as answer:
                said = await answer.json()
            return time.time() - datetime.fromisoformat(said["ended_at"]).timestamp()

        waiting = [asyncio.create_task(wait()) for _ in range(count)]
        await asyncio.sleep(0.2)
        pid, times = asked or (0, 0)
        if times:
            await _at_rest(pid)
        statuses = []
        for _ in range(times):
            began = time.perf_counter()
            async with session.get(f"{url}/jobs/{job}") as answer:
                await answer.read()
            statuses.append(time.perf_counter() - began)
        await asyncio.to_thread(go.touch)
        return statuses, list(await asyncio.gather(*waiting))
