"""Owns W8 in a crowd: claims and uploads where the database has a million rows of a thousand users."""

from __future__ import annotations

import http.client
import os
import statistics
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.measure import Broken
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale
from bench.scratch import fresh
from bench.served import BOUNDARY, started, upload_body
from tenuto.database import Database, migrate
from tenuto.service.decisions import Quota
from tenuto.service.requests import Requests
from tenuto.service.tables import MIGRATIONS, jobs

ROWS = {Scale.TINY: 1_000, Scale.QUICK: 50_000, Scale.FULL: 1_000_000, Scale.LARGE: 1_000_000}
USERS = 1_000
SHARE_QUEUED = 10
"""One row in so many waits; the others ended long ago."""
UPLOADS = {Scale.TINY: 8, Scale.QUICK: 100, Scale.FULL: 400, Scale.LARGE: 400}
SENDERS = 4
CLAIMS = 50
AT_ONCE = 50_000
SETTINGS = '[services.example]\nnodes = ["http://127.0.0.1:9"]\nruns_per_user = 1000\nmax_runs = 1000\n'
"""A node that does not answer: the queue stays as long as it is."""


def crowd(options: Options, urls: dict[str, str | None]) -> Iterator[Row]:
    """The rows of each database; one that is None is not installed."""
    many = ROWS[options.scale]
    for name, url in urls.items():
        case = f"{many:,} rows of {USERS:,} users, {name}"
        if url is None:
            yield missing("W8", case, OURS, many, f"{name} is not installed here")
            continue
        with fresh(options.directory) as place:
            yield from _measured(options, place, url, case)


def _measured(options: Options, place: Path, url: str, case: str) -> Iterator[Row]:
    load, many = os.getloadavg()[0], ROWS[options.scale]
    _fill(url, many)
    (place / "tenuto.toml").write_text(SETTINGS)
    with started(place, "serve", "--db", url) as (port, _):
        took = sorted(_uploads(port, UPLOADS[options.scale]))
    p99 = took[int(len(took) * 0.99)]
    yield plain("W8", f"upload p99, {case}", OURS, many, "s", [p99], load, "<= 250 ms", 0.25)
    yield plain("W8", f"claim, {case}", OURS, many, "s", [_claim_s(url)], load, "<= 5 ms", 0.005)


def _fill(url: str, many: int) -> None:
    database = Database(url)
    migrate(database, MIGRATIONS)
    now = int(time.time() * 1000)

    def row(n: int) -> dict[str, Any]:
        is_queued = n % SHARE_QUEUED == 0
        return {
            "user_id": str(n // SHARE_QUEUED % USERS),
            "service": "example",
            "state": "Queued" if is_queued else "Cleaned",
            "directory": f"{n:032x}",
            "created_at": now,
            "ready_at": now,
            "ended_at": None if is_queued else now,
        }

    for start in range(0, many, AT_ONCE):
        rows = [row(n) for n in range(start, min(start + AT_ONCE, many))]
        database.write(lambda connection, rows=rows: connection.execute(jobs.insert(), rows))  # type: ignore[misc]
    Requests(database, "bench").note_queues()
    database.write(lambda connection: connection.exec_driver_sql("ANALYZE"))
    database.close()


def _uploads(port: int, count: int) -> list[float]:
    """The seconds that each upload took, of several senders at once."""
    took: list[float] = []
    troubles: list[str] = []

    def send(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
        for n in range(number, count, SENDERS):
            body, began = upload_body("true\n", n % USERS), time.perf_counter()
            connection.request("POST", "/upload", body, headers)
            answer = connection.getresponse()
            said = answer.read()
            took.append(time.perf_counter() - began)
            if answer.status != 201:
                troubles.append(f"{answer.status}: {said!r:.200}")
        connection.close()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(SENDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles or len(took) < count:
        raise Broken(troubles[0] if troubles else "uploads failed")
    return took


def _claim_s(url: str) -> float:
    """The median time in which one job is claimed, each of another user."""
    database = Database(url)
    requests, took = Requests(database, "bench"), []
    for _ in range(CLAIMS):
        began = time.perf_counter()
        claimed = requests.claim("example", Quota(5, 1_000), ["n"])
        took.append(time.perf_counter() - began)
        if len(claimed) != 1:
            raise Broken("nothing was claimed")
    database.close()
    return statistics.median(took)
