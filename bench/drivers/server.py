"""Owns a monitor in a process of its own, and a client that asks it, for the drivers of W11."""

import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path


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

    def stream(self):
        """An open stream of frames, and its connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", "/api/events", headers=self.headers)
        return connection.getresponse(), connection

    def known(self):
        """How many jobs of the largest group are known by now."""
        return max((group["known"] for group in self.ask("GET", "/api/groups")[2]["groups"]), default=0)


def until_settled(process, longest_s=60):
    """Until a process that still reads older runs is done with them: it hardly works for a second."""
    end = time.perf_counter() + longest_s
    while time.perf_counter() < end:
        before = process.cpu_s()
        time.sleep(1)
        if process.cpu_s() - before < 0.1:
            return


class Server:
    """`tenuto ui` on the workspace of this directory."""

    def __init__(self):
        self.began = time.perf_counter()
        command = [sys.executable, "-m", "tenuto", "ui", "--json", "--port", "0", "-w", "ws"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        text = ""
        while not text.endswith("}\n"):
            line = self.process.stdout.readline()
            assert line, "tenuto ui ended"
            text += line
        self.told = json.loads(text)
        self.ready_s = time.perf_counter() - self.began
        self.client = Client(self.told["port"], self.told["code"])

    @property
    def pid(self):
        return self.process.pid

    def resident_mb(self):
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return int(next(one for one in lines if one.startswith("VmRSS")).split()[1]) / 1024

    def cpu_s(self):
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def wait_until_known(self, count):
        while self.client.known() < count:
            time.sleep(0.05)

    def new_link(self):
        """A link that logs another client in."""
        port = str(self.told["port"])
        command = [sys.executable, "-m", "tenuto", "ui", "--login", "--json", "--port", port]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)["login"]

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        self.process.terminate()
        try:
            assert self.process.wait(10) == 0
        finally:
            self.process.kill()
