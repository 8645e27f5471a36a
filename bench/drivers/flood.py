"""Owns the flood of W11: a thousand jobs end each second while four clients listen, one of which never reads.

flood.py COUNT SECONDS, in the directory that `prepare.py` filled. Says how far the flood fell short of its
thousand, how much the memory of the monitor grew after a tenth of the time, what an event costs it, and how
many descriptors forty more clients left when they had gone.
"""

import json
import os
import sys
import threading
import time

import listing
from ends import Ends
from server import Server

A_SECOND = 1_000
READERS = 3
GUESTS = 40


def read(stream):
    """Read frames until the server ends."""
    try:
        while stream.readline():
            pass
    except (OSError, ValueError):
        pass


def main(count, seconds):
    run_id, jobs = listing.write("ws", count)
    ends = Ends(os.path.abspath("ws"), "listed", run_id)
    with Server() as server:
        server.wait_until_known(count)
        report = flooded(server, ends, jobs, seconds)
    print(json.dumps(report))


def flooded(server, ends, jobs, seconds):
    """What the server takes of a flood; `jobs` end one after the other, again and again."""
    client = server.client
    streams = [client.stream() for _ in range(READERS)]
    deaf = client.stream()
    for stream, _ in streams:
        threading.Thread(target=read, args=(stream,), daemon=True).start()
    events, cpu_s = 0, server.cpu_s()
    began = time.perf_counter()
    warm_mb = None
    while (passed := time.perf_counter() - began) < seconds:
        if warm_mb is None and passed > seconds / 10:
            warm_mb = server.resident_mb()
        while events < passed * A_SECOND and time.perf_counter() - began < seconds:
            ends.end(jobs[events % len(jobs)], failed=(events // len(jobs)) % 2 == 0)
            events += 1
        time.sleep(0.001)
    took = time.perf_counter() - began
    client.ask("GET", "/api/overview")
    cpu_s = server.cpu_s() - cpu_s
    resident_mb = server.resident_mb()
    before = server.descriptors()
    for _ in range(GUESTS):
        stream, connection = client.stream()
        stream.readline()
        stream.close()
        connection.close()
    deadline = time.monotonic() + 30
    number = 0
    while server.descriptors() > before and time.monotonic() < deadline:
        ends.end(jobs[number % len(jobs)], failed=number % 2 == 0)
        number += 1
        time.sleep(0.05)
    deaf[1].close()
    return {
        "events_each_s": events / took,
        "short_percent": max(1 - events / (took * A_SECOND), 0.0) * 100,
        "event_cpu_s": cpu_s / events,
        "growth_percent": (resident_mb / warm_mb - 1) * 100,
        "flooded_mb": resident_mb,
        "descriptors_left": max(server.descriptors() - before, 0),
    }


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
