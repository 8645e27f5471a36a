"""Owns the workspaces of the behaviour tests, one for each door, and the programs that are asked about them.

Drives the `tenuto` program, scripts and HTTP alone: these tests stay while the house is rebuilt.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.behaviour.normal import Normaliser
from tests.parts.answers import Answer
from tests.parts.fork_server import ran
from tests.service.multipart import CONTENT_TYPE, body, field, file
from tests.service.servers import Process

SCRIPTS = Path(__file__).with_name("scripts")
TOOLS = "bash sh env cat cp echo git sleep tr true".split()
WAIT_S = 60.0
SERVICE = """
[service]
[services.example]
runs_per_user = 10
[services.narrow]
max_runs = 1
[node]
slots = 4
sandbox = "none"
"""


def eventually(condition: Callable[[], Any]) -> Any:
    """What a condition gives once it is true."""
    until = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < until, "this never came true"
        time.sleep(0.02)
    return found


class Place:
    """A directory with scripts and a workspace of the name `ws`, apart from all else on this machine.

    `origin`: the place that it is a copy of.
    """

    def __init__(self, root: Path, origin: Path | None = None) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)
        for script in SCRIPTS.glob("*.py"):
            shutil.copy(script, root)
        (root / ".bin").mkdir(exist_ok=True)
        for tool in TOOLS:
            if not (link := root / ".bin" / tool).is_symlink() and (found := shutil.which(tool)):
                link.symlink_to(found)
        clean = {
            name: value for name, value in os.environ.items() if not name.startswith(("TENUTO_", "XDG_"))
        }
        self.environment = {
            **clean,
            **{
                f"XDG_{kind}_HOME": str(root / ".home" / kind.lower())
                for kind in ("CONFIG", "STATE", "CACHE")
            },
            "HOME": str(root / ".home"),
            "PATH": str(root / ".bin"),  # what this machine has installed beside is no matter
            "TENUTO_SLOTS": "1",  # so that jobs have one order
            "TENUTO_TOKENS_PATH": str(root / ".home" / "tokens"),
            "TENUTO_DEFAULT_WORKSPACE": "./ws",
            "COLUMNS": "100",
        }
        self.normal = Normaliser(*filter(None, (root, origin)))

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A program of this interpreter in the place, in a session of its own."""
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(
            [sys.executable, *command], cwd=self.root, env=self.environment, start_new_session=True, **streams
        )

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A program that has ended."""
        return ran([sys.executable, *command], self.root, self.environment, WAIT_S)

    def tenuto(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that has ended."""
        return self.run("-m", "tenuto", *arguments)

    def json(self, *arguments: str) -> Any:
        """What a command answers with `--json`."""
        return json.loads(self.tenuto(*arguments, "--json").stdout)

    def close(self) -> None:
        """End what serves in the place."""

    def copy(self, root: Path) -> Place:
        """The same place elsewhere, for a command that changes it."""
        shutil.copytree(self.root, root, symlinks=True)
        return Place(root, self.root)


def experiments(root: Path) -> Place:
    """All that can become of a job; outputs that become jobs; reuse; a job that a person killed."""
    place = Place(root)
    for name, code in (("sweep", 1), ("learn", 0), ("good", 0)):
        assert place.run("sweep.py", name, "ws").returncode == code
        began = int(time.time())
        eventually(lambda began=began: int(time.time()) != began)  # runs are ordered by their second
    holding = held(place)
    assert place.tenuto("kill", "sweep.Hold").returncode == 0
    holding.communicate(timeout=WAIT_S)
    return place


def held(place: Place) -> subprocess.Popen[str]:
    """A script whose one job runs, and prints, until it is killed or released."""
    process = place.start("sweep.py", "hold", "ws")
    eventually(lambda: place.tenuto("logs", "sweep.Hold").stdout == "began\n")
    return process


def searches(root: Path) -> Place:
    """A search of eight candidates, one of which failed."""
    place = Place(root)
    assert place.tenuto("evolve", "packing.py").returncode == 0
    return place


class Service(Place):
    """A server with a node: jobs Completed, Failed, Killed, Running and Queued; beside them an experiment."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        root.chmod(0o711)
        (root / "tenuto.toml").write_text(SERVICE)
        assert self.run("sweep.py", "good", "ws").returncode == 0
        self.server = Process("serve", "--with-node", "--port", "0", cwd=root, env=self.environment)
        self.environment["TENUTO_CLIENT__URL"] = self.server.url
        upload = self.server.upload
        self.uploaded = upload(
            "echo hello; echo oops >&2; cp input.txt output.txt\n", files={"input.txt": b"hello"}
        )
        self.server.final(1)
        upload("exit 3\n")
        self.server.final(2)
        for service in ("example", "narrow"):
            upload("echo began; sleep 6000\n", service=service, user="2")
        upload("true\n", service="narrow", user="3")
        for job in (3, 4):
            eventually(lambda job=job: self.server.get(f"/jobs/{job}/logs").body == b"began\n")
            eventually(lambda job=job: self.server.job(job)["started_at"])
        self.terminated = self.server.post("/terminate/3")
        self.server.final(3)

    def close(self) -> None:
        for job in (5, 4):
            self.server.post(f"/terminate/{job}")
            self.server.final(job)
        self.server.stop()
        self.server.close()


class Node(Place):
    """A node without a server, with a payload that completed and one that was killed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        root.chmod(0o711)
        (root / "tenuto.toml").write_text('[node]\nslots = 4\nsandbox = "none"\n')
        self.server = Process("node", "--insecure", "--port", "0", cwd=root, env=self.environment)
        self.submitted = [
            self._submit(number, text)
            for number, text in enumerate(("echo hello\n", "echo began; sleep 6000\n"), 1)
        ]
        eventually(lambda: self.server.get("/find/key-1").json["status"] == "Completed")
        self.ids = {str(number): str(one.json["id"]) for number, one in enumerate(self.submitted, 1)}
        eventually(lambda: self.server.get(f"/logs/{self.ids['2']}").body == b"began\n")
        eventually(lambda: self.server.get("/find/key-2").json["status"] == "Running")
        self.killed = self.server.post(f"/kill/{self.ids['2']}")
        eventually(lambda: self.server.get("/find/key-2").json["status"] == "Killed")

    def _submit(self, number: int, script: str) -> Answer:
        parts = [field("user_id", "1"), field("service", "example"), field("job_id", str(number))]
        headers = {"Content-Type": CONTENT_TYPE, "Idempotency-Key": f"key-{number}"}
        return self.server.request("POST", "/submit", body(*parts, file("run.sh", script.encode())), headers)

    def close(self) -> None:
        self.server.stop()
        self.server.close()


class Monitor:
    """`tenuto ui` of a place, and a browser that is logged in."""

    def __init__(self, place: Place, *options: str) -> None:
        self.process = place.start("-m", "tenuto", "ui", "--port", "0", "--json", *options)
        assert self.process.stdout is not None
        text = ""
        while not text.endswith("\n}\n"):
            line = self.process.stdout.readline()
            assert line, f"`tenuto ui` ended: {self.process.stderr.read() if self.process.stderr else ''}"
            text += line
        self.said = json.loads(text)
        self.headers: dict[str, str] = {}
        answer = self.ask("POST", "/api/login", {"code": self.said["code"]})
        self.headers = {
            "Cookie": answer.headers["set-cookie"].partition(";")[0],
            "X-Tenuto-Key": answer.json["key"],
        }
        eventually(lambda: all(one["known"] == one["total"] for one in self.groups()))

    def groups(self) -> Any:
        return self.ask("GET", "/api/groups").json["groups"]

    def ask(self, method: str, path: str, body: Any = None, until: bytes = b"") -> Answer:
        """An answer; of a stream the frames up to one that holds some bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.said["port"], timeout=WAIT_S)
        given = {**self.headers, **({"Content-Type": "application/json"} if body is not None else {})}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), given)
            answer = connection.getresponse()
            headers: Mapping[str, str] = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, headers, _frames(answer, until) if until else answer.read())
        finally:
            connection.close()

    def close(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=WAIT_S)


def _frames(stream: Any, until: bytes) -> bytes:
    """The first frames of a stream that has no end."""
    found = b""
    while until not in found or not found.endswith(b"\n\n"):
        line = stream.readline()
        assert line, found
        found += line
    return found
