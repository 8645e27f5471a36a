"""Owns W8, the job service: from upload to Completed, jobs a second, HEAD beside a large result, memory."""

from __future__ import annotations

import http.client
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.measure import ENVIRONMENT, Broken
from bench.places import fresh
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.workload import Workload

SIZES = Sizes((3,), (40,), (200,), (1000,))
RESULT_BYTES = {Scale.TINY: 1 << 20, Scale.QUICK: 50 << 20, Scale.FULL: 200 << 20, Scale.LARGE: 200 << 20}
SENDERS = 8
START_S = 60.0
SETTINGS = "[services.example]\nruns_per_user = 1000\nmax_runs = 1000\n"
BOUNDARY = "b" * 24


def upload_body(script: str, user: int) -> bytes:
    """A multipart body with one file."""
    parts = [("user_id", "", str(user)), ("service", "", "example"), ("file", '; filename="run.sh"', script)]
    text = "".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{value}\r\n'
        for name, more, value in parts
    )
    return f"{text}--{BOUNDARY}--\r\n".encode()


class Client:
    """One connection to the server."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, method: str, path: str, body: bytes | None = None) -> bytes:
        headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"} if body else {}
        self._connection.request(method, path, body, headers)
        return self._connection.getresponse().read()

    def upload(self, script: str = "true\n", user: int = 1) -> int:
        return int(json.loads(self.ask("POST", "/upload", upload_body(script, user)))["id"])

    def completed(self, job: int) -> None:
        while (status := json.loads(self.ask("GET", f"/jobs/{job}?wait=30"))["status"]) != "Completed":
            if status in ("Failed", "Killed", "Invalid"):
                raise Broken(f"job {job} is {status}")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def served(directory: Path, sandbox: str) -> Iterator[tuple[int, int]]:
    """A server with a node: its port and its pid."""
    (directory / "tenuto.toml").write_text(SETTINGS)
    directory.chmod(0o711)  # as root, payloads have uids of their own
    command = [sys.executable, "-m", "tenuto", "serve", "--with-node", "--port", "0", "--sandbox", sandbox]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if "serving on" not in line:
            raise Broken(f"the server did not start: {(directory / 'log').read_text()[-300:]}")
        yield int(line.rsplit(":", 1)[1]), process.pid
    finally:
        process.terminate()
        process.wait(START_S)
        if process.stdout is not None:
            process.stdout.close()


def own(options: Options) -> Iterator[Row]:
    # As root bubblewrap needs directories that other users may pass: a test's are not.
    for sandbox in ("none",) if options.scale is Scale.TINY else ("none", "bwrap"):
        for size in SIZES.at(options.scale):
            case = f"sandbox {sandbox}"
            if not options.budget.affords(
                "W8", case, size, 5.0 + 0.3 * size, smallest=size == SIZES.at(options.scale)[0]
            ):
                continue
            load = os.getloadavg()[0]
            try:
                yield from _measured(options, sandbox, size, load)
            except (Broken, OSError) as broken:
                yield missing("W8", case, OURS, size, f"failed: {broken}")


def _measured(options: Options, sandbox: str, size: int, load: float) -> Iterator[Row]:
    with fresh(options.directory) as directory, served(directory, sandbox) as (port, pid):
        client = Client(port)
        first_s = _one(client)
        took = [_one(client) for _ in range(size)]
        judged = sandbox == "none"
        p50, p99 = statistics.median(took), sorted(took)[min(len(took) - 1, int(len(took) * 0.99))]
        of = f"upload to Completed, sandbox {sandbox}"
        yield plain("W8", f"{of}: p50", OURS, size, "s", [p50], load, *(("<= 100 ms", 0.1) if judged else ()))
        yield plain("W8", f"{of}: p99", OURS, size, "s", [p99], load, *(("<= 400 ms", 0.4) if judged else ()))
        yield plain("W8", f"{of}: first after the start", OURS, 1, "s", [first_s], load)
        before = _memory(pid)
        seconds = _many(port, size)
        target = ("<= 20 ms", 0.02) if judged else ()
        yield plain(
            "W8", f"together, sandbox {sandbox}: each", OURS, size, "s", [seconds / size], load, *target
        )
        yield plain(
            "W8", f"memory after them, sandbox {sandbox}", OURS, size, "B", [_memory(pid) - before], load
        )
        if judged:
            heads = _heads(client, RESULT_BYTES[options.scale])
            yield plain("W8", "HEAD beside a large result", OURS, 1, "s", heads, load, "<= 5 ms", 0.005)
        client.close()


def _one(client: Client) -> float:
    began = time.monotonic()
    client.completed(client.upload())
    return time.monotonic() - began


def _many(port: int, size: int) -> float:
    """The time of many jobs of several users, sent at once."""
    troubles: list[Exception] = []

    def send(number: int) -> None:
        client = Client(port)
        try:
            jobs = [client.upload(user=number) for _ in range(number, size, SENDERS)]
            for job in jobs:
                client.completed(job)
        except (Broken, OSError) as trouble:
            troubles.append(trouble)
        finally:
            client.close()

    threads = [threading.Thread(target=send, args=(number,)) for number in range(min(SENDERS, size))]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if troubles:
        raise Broken(str(troubles[0]))
    return time.monotonic() - began


def _heads(client: Client, size: int) -> list[float]:
    job = client.upload(f"head -c {size} /dev/urandom > large\n")
    client.completed(job)
    took = []
    for _ in range(50):
        began = time.monotonic()
        client.ask("HEAD", f"/download/{job}")
        took.append(time.monotonic() - began)
    return took


def _memory(pid: int) -> int:
    """The memory of a process, in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


WORKLOAD = Workload("W8", "the job service: from upload to result", own, share=0.08)
