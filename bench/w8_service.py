"""Owns W8, the job service: from upload to Completed, jobs a second, HEAD beside a large result, memory."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Iterator

from bench.measure import Broken
from bench.places import fresh
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.served import Client, memory_of, served
from bench.w8_limits import limits
from bench.workload import Workload

SIZES = Sizes((3,), (40,), (200, 1000), (10_000,))
RESULT_BYTES = {Scale.TINY: 1 << 20, Scale.QUICK: 50 << 20, Scale.FULL: 2 << 30, Scale.LARGE: 2 << 30}
SENDERS = 8
USERS = 50


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
    yield from limits(options)


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
        twice = ("<= 2 x p50", 2 * p50) if judged else ()
        yield plain("W8", f"{of}: first after the start", OURS, 1, "s", [first_s], load, *twice)
        before = memory_of(pid)
        seconds = _many(port, size)
        target = ("<= 20 ms", 0.02) if judged else ()
        yield plain(
            "W8", f"together, sandbox {sandbox}: each", OURS, size, "s", [seconds / size], load, *target
        )
        yield plain(
            "W8",
            f"memory after them, sandbox {sandbox}",
            OURS,
            size,
            "B",
            [memory_of(pid) - before],
            load,
            *(("<= 20 MB", 20e6) if judged else ()),
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


def _heads(client: Client, size: int) -> list[float]:
    job = client.upload(f"head -c {size} /dev/urandom > large\n")
    client.completed(job)
    took = []
    for _ in range(50):
        began = time.monotonic()
        client.ask("HEAD", f"/download/{job}")
        took.append(time.monotonic() - began)
    return took


WORKLOAD = Workload("W8", "the job service: from upload to result", own, share=0.08)
