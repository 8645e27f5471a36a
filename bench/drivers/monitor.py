"""Owns the driver of W11: a monitor of many jobs, asked over HTTP while it loads and afterwards.

monitor.py COUNT FOLLOWED, in the directory that `prepare.py` filled. Lists COUNT done jobs in a run, starts
`tenuto ui`, and times what a page asks for; then follows a run of FOLLOWED jobs through the stream.
"""

import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import listing
from server import Server, until_settled


def follow(client, count, first):
    """Seconds from the end of each job in its marker to its frame, the median."""
    stream, connection = client.stream()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from bench_tasks import Work\nfrom tenuto import experiment\n"
        "with experiment('ws', 'followed') as xp:\n"
        "    for number in range(int(sys.argv[2]), int(sys.argv[3])):\n"
        "        Work.C(number=number).submit(); xp.wait()\n"
    )
    here = str(Path(__file__).parent)
    run = subprocess.Popen([sys.executable, "-c", script, here, str(first), str(first + count)])
    took = {}
    while len(took) < count:
        line = stream.readline()
        if line.startswith(b"data: "):
            now = datetime.now(UTC)
            for job in json.loads(line[6:]).get("jobs", ()):
                is_new = job["experiment"] == "followed" and job["state"] == "done" and job["key"] not in took
                if is_new:
                    took[job["key"]] = (now - datetime.fromisoformat(job["ended"])).total_seconds()
    run.wait()
    stream.close()
    connection.close()
    return statistics.median(took.values())


def silence(client, seconds, number):
    """The longest time between two frames that tell the progress of a job, while it reports all the time."""
    stream, connection = client.stream()
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from bench_tasks import Steps\nfrom tenuto import experiment\n"
        "with experiment('ws', 'steps'):\n"
        "    Steps.C(seconds=float(sys.argv[2]), number=int(sys.argv[3])).submit()\n"
    )
    here = str(Path(__file__).parent)
    run = subprocess.Popen([sys.executable, "-c", script, here, str(seconds), str(number)])
    told, last, is_done = [], None, False
    while not is_done:
        line = stream.readline()
        for job in json.loads(line[6:]).get("jobs", ()) if line.startswith(b"data: ") else ():
            if job["experiment"] == "steps" and job["progress"] not in (None, last):
                last = job["progress"]
                told.append(time.perf_counter())
            is_done |= job["experiment"] == "steps" and job["state"] == "done"
    run.wait()
    connection.close()
    return max((later - earlier for earlier, later in pairwise(told)), default=float(seconds))


def measured(server, count, followed):
    """What the server takes to load, to answer and to follow."""
    client, ready_cpu_s = server.client, server.cpu_s()
    slowest, first_rows = 0.0, None
    while True:
        asked = time.perf_counter()
        known = client.known()
        slowest = max(slowest, time.perf_counter() - asked)
        if known and first_rows is None:
            first_rows = time.perf_counter() - server.began
        if known >= count:
            break
        time.sleep(0.02)
    report = {
        "ready_s": server.ready_s,
        "ready_cpu_s": ready_cpu_s,
        "first_rows_s": first_rows,
        "known_s": time.perf_counter() - server.began,
        "known_cpu_s": server.cpu_s(),
        "slowest_s": slowest,
        "page_s": client.timed("/api/jobs?offset=500&limit=100"),
        "filter_s": client.timed("/api/jobs?filter=state%3Ddone%20and%20duration%3C5m", 1),
        "sort_s": client.timed("/api/jobs?sort=-duration", 1),
        "resident_mb": server.resident_mb(),
    }
    until_settled(server)
    before = server.cpu_s()
    time.sleep(5)
    report["idle_percent"] = (server.cpu_s() - before) / 5 * 100
    number = time.time_ns()  # of jobs that no repetition before this one has done
    report["marker_to_client_s"] = follow(client, followed, number)
    report["silence_s"] = silence(client, 2 if followed < 10 else 5, number)
    return report


def main(count, followed):
    listing.write("ws", count)
    with Server() as server:
        report = measured(server, count, followed)
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
