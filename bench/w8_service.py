"""Owns W8, the job service: from upload to Completed, jobs a second, HEAD beside a large result, memory."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator

from bench.measure import Broken
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.scratch import fresh
from bench.served import Client, memory_of, served
from bench.w8_limits import limits
from bench.workload import Workload

SIZES = Sizes((3,), (40,), (1000,))
"""Jobs that are sent together."""
ALONE = 200
"""Jobs that are sent one after another, at most."""
MORE = {Scale.TINY: 3, Scale.QUICK: 40, Scale.FULL: 10_000, Scale.LARGE: 10_000}
"""Jobs after those, for which the server may keep nothing."""
MORE_S = 0.025
LOOKS = {Scale.TINY: 20, Scale.QUICK: 300, Scale.FULL: 2_000, Scale.LARGE: 2_000}
"""Questions on one connection."""
RESULT_BYTES = {Scale.TINY: 1 << 20, Scale.QUICK: 50 << 20, Scale.FULL: 2 << 30, Scale.LARGE: 2 << 30}
SENDERS = 8
USERS = 50


def own(options: Options) -> Iterator[Row]:
    # As root bubblewrap needs directories that other users may pass: a test's are not.
    for sandbox in ("none",) if options.scale is Scale.TINY else ("none", "bwrap"):
        for size in SIZES.at(options.scale):
            case = f"sandbox {sandbox}"
            estimate_s = 3.0 + 0.1 * min(size, ALONE) + 0.03 * size
            if not options.budget.affords("W8", case, size, estimate_s, smallest=True):
                continue
            try:
                yield from _measured(options, sandbox, size, os.getloadavg()[0])
            except (Broken, OSError) as broken:
                yield missing("W8", case, OURS, size, f"failed: {broken}")
    yield from limits(options)


def _measured(options: Options, sandbox: str, size: int, load: float) -> Iterator[Row]:
    """A server in one sandbox; only without one are its figures judged."""
    judged = sandbox == "none"
    with fresh(options.directory) as directory, served(directory, sandbox) as (port, pid):
        client = Client(port)
        yield from _alone(client, sandbox, min(size, ALONE), load)
        seconds = _many(port, size)
        target = ("<= 20 ms", 0.02) if judged else ()
        each = f"together, sandbox {sandbox}: each"
        yield plain("W8", each, OURS, size, "s", [seconds / size], load, *target)
        if judged:
            looks = sorted(_looks(client, LOOKS[options.scale]))
            case = "GET /jobs/1 on a kept connection: p50"
            yield plain("W8", case, OURS, len(looks), "s", [statistics.median(looks)], load, "<= 2 ms", 0.002)
            heads = _heads(client, RESULT_BYTES[options.scale])
            yield plain("W8", "HEAD beside a large result", OURS, 1, "s", heads, load, "<= 5 ms", 0.005)
            yield from _forgotten(options, port, pid, load)
        client.close()


def _alone(client: Client, sandbox: str, count: int, load: float) -> Iterator[Row]:
    """Jobs that have the server to themselves, one after another."""
    first_s = _one(client)
    took = sorted(_one(client) for _ in range(count))
    p50, p99 = statistics.median(took), took[int(len(took) * 0.99)]
    of = f"upload to Completed, sandbox {sandbox}"
    for case, size, value, target, limit in (
        ("p50", count, p50, "<= 100 ms", 0.1),
        ("p99", count, p99, "<= 400 ms", 0.4),
        ("first after the start", 1, first_s, "<= 2 x p50", 2 * p50),
    ):
        judged = (target, limit) if sandbox == "none" else ()
        yield plain("W8", f"{of}: {case}", OURS, size, "s", [value], load, *judged)


def _forgotten(options: Options, port: int, pid: int, load: float) -> Iterator[Row]:
    """What a server keeps of jobs that have ended."""
    more = MORE[options.scale]
    if options.budget.affords("W8", "memory after more jobs", more, more * MORE_S):
        before = memory_of(pid)
        seconds = _many(port, more)
        grown = float(memory_of(pid) - before)
        yield plain("W8", "memory after more jobs", OURS, more, "B", [grown], load, "<= 20 MB", 20e6)
        yield plain("W8", "more jobs together: each", OURS, more, "s", [seconds / more], load)


def _one(client: Client) -> float:
    began = time.monotonic()
    client.completed(client.upload())
    return time.monotonic() - began


def _many(port: int, size: int) -> float:
    """The time of many jobs of fifty users, sent at once."""
    troubles: list[Exception] = []

    def send(number: int) -> None:
        client = Client(port)
        try:
            jobs = [client.upload(user=n % USERS) for n in range(number, size, SENDERS)]
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


def _looks(client: Client, count: int) -> list[float]:
    """How long answers about one job take, one after another on one connection."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        client.ask("GET", "/jobs/1")
        took.append(time.perf_counter() - began)
    return took


def _heads(client: Client, size: int) -> list[float]:
    job = client.upload(f"head -c {size} /dev/urandom > large\n")
    client.completed(job)
    took = []
    for _ in range(50):
        began = time.monotonic()
        client.ask("HEAD", f"/download/{job}")
        took.append(time.monotonic() - began)
    return took


WORKLOAD = Workload("W8", "the job service: from upload to result", own, share=0.25)
