"""Owns the driver of W11: a monitor of many jobs, asked over HTTP while it loads and afterwards.

monitor.py COUNT FOLLOWED, in the directory that `prepare.py` filled. Lists COUNT done jobs in a run, starts
`tenuto ui`, and times what a page asks for; then follows a run of FOLLOWED jobs through the stream.
"""

import http.client
import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import listing


class Client:
    """A browser that has logged in."""

    def __init__(self, port, code):
        self.port = port
        status, headers, answer = self.ask("POST", "/api/login", {"code": code}, {})
        assert status == 200, answer
        self.headers = {"Cookie": headers["set-cookie"].partition(";")[0], "X-Tenuto-Key": answer["key"]}

    def ask(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = self.headers if headers is None else headers
        kind = {"Content-Type": "application/json"} if body is not None else {}
        connection.request(method, path, json.dumps(body) if body is not None else None, {**given, **kind})
        response = connection.getresponse()
        found = response.status, {key.lower(): value for key, value in response.getheaders()}
        answer = json.loads(response.read())
        connection.close()
        return (*found, answer)

    def timed(self, path, times=5):
        """Seconds that a question takes, the median."""
        took = []
        for _ in range(times):
            began = time.perf_counter()
            assert self.ask("GET", path)[0] == 200
            took.append(time.perf_counter() - began)
        return statistics.median(took)


def serve():
    """A server, its client, and how long it took until it answered."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "tenuto", "ui", "--json", "--port", "0", "-w", "ws"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = ""
    while not text.endswith("}\n"):
        text += server.stdout.readline()
    told = json.loads(text)
    return server, Client(told["port"], told["code"]), began, time.perf_counter() - began


def resident_mb(pid):
    line = next(
        one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")
    )
    return int(line.split()[1]) / 1024


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def follow(client, count, first):
    """Seconds from the end of each job in its marker to its frame, the median."""
    connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)
    connection.request("GET", "/api/events", headers=client.headers)
    stream = connection.getresponse()
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


def main(count, followed):
    listing.write("ws", count)
    server, client, began, ready = serve()
    slowest, first_rows = 0.0, None
    while True:
        asked = time.perf_counter()
        known = max((group["known"] for group in client.ask("GET", "/api/groups")[2]["groups"]), default=0)
        slowest = max(slowest, time.perf_counter() - asked)
        if known and first_rows is None:
            first_rows = time.perf_counter() - began
        if known >= count:
            break
        time.sleep(0.02)
    report = {
        "ready_s": ready,
        "first_rows_s": first_rows,
        "known_s": time.perf_counter() - began,
        "slowest_s": slowest,
        "page_s": client.timed("/api/jobs?offset=500&limit=100"),
        "filter_s": client.timed("/api/jobs?filter=state%3Ddone%20and%20duration%3C5m", 1),
        "sort_s": client.timed("/api/jobs?sort=-duration", 1),
        "resident_mb": resident_mb(server.pid),
    }
    before = cpu_s(server.pid)
    time.sleep(5)
    report["idle_percent"] = (cpu_s(server.pid) - before) / 5 * 100
    report["marker_to_client_s"] = follow(client, followed, 10_000_000)
    server.terminate()
    assert server.wait(10) == 0
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
