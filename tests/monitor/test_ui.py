"""Lines 1, 2, 7, 11 and 24: the commands as a person runs them, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tenuto.jobs.tcp_ports import listen

from .conftest import Client, Stream

WAIT_S = 60.0
TENUTO = [sys.executable, "-m", "tenuto"]
SCRIPT = """
import sys, time
from pathlib import Path
from tenuto import Meta, Param, Task, experiment
from tenuto.tasks.ports import current_job

class Hold(Task):
    name: Param[str]
    release: Meta[Path]
    def execute(self):
        current_job.get().progress(0.25, 0, "a quarter")
        print("began", flush=True)
        deadline = time.monotonic() + 60
        while not self.release.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.name == "bad" and not self.release.with_name("fix").exists():
            raise ValueError("bad")

class After(Task):
    before: Param[Hold]
    def execute(self):
        return 1

if __name__ == "__main__":
    place, port = Path(sys.argv[1]), int(sys.argv[2])
    with experiment(place / "ws", "sweep", port=None if port < 0 else port) as xp:
        good = Hold.C(name="good", release=place / "release").submit()
        Hold.C(name="bad", release=place / "release").submit()
        After.C(before=good).submit()
        if port == -2:
            gpu = xp.token("gpu", 1)
            for number in range(2):
                gpu(1, Hold.C(name=f"token {number}", release=place / "release")).submit()
            Hold.C(name="unneeded", release=place / "release").submit(transient="transient")
"""


class Place:
    """A directory with a script and a workspace, and what was started there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.workspace = directory / "ws"
        own = {"XDG_STATE_HOME": str(directory / "state"), "HOME": str(directory), "TENUTO_SLOTS": "4"}
        self.environment = {**os.environ, **own}
        self._open: list[subprocess.Popen[str]] = []
        (directory / "script.py").write_text(SCRIPT)

    def start(self, *command: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        made = subprocess.Popen(
            command, stdout=pipe, stderr=pipe, text=True, env=self.environment, cwd=self.directory
        )
        self._open.append(made)
        return made

    def experiment(self, port: int = -1) -> subprocess.Popen[str]:
        return self.start(sys.executable, "script.py", str(self.directory), str(port))

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TENUTO, *arguments], capture_output=True, text=True, env=self.environment, cwd=self.directory,
            timeout=WAIT_S, check=False,
        )  # fmt: skip

    def ui(self, *arguments: str) -> tuple[subprocess.Popen[str], dict[str, Any], Client]:
        """A server that answers, what it printed, and a client that has logged in."""
        made = self.start(*TENUTO, "ui", "--json", "--port", "0", "-w", str(self.workspace), *arguments)
        assert made.stdout is not None
        text = ""
        while not text.endswith("}\n"):
            line = made.stdout.readline()
            assert line, made.communicate()
            text += line
        told: dict[str, Any] = json.loads(text)
        client = Client(told["port"])
        assert client.login(told["code"]).status == 200
        return made, told, client

    def release(self) -> None:
        (self.directory / "release").touch()

    def close(self) -> None:
        self.release()
        for process in self._open:
            process.kill()
            process.communicate()
        if (self.workspace / "jobs").is_dir():
            self.run("kill", "--unowned", "--yes", "-w", str(self.workspace))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def eventually(ask: Callable[[], Any]) -> Any:
    """What a question gives once it gives something, by a deadline."""
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        if found := ask():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


def states(client: Client) -> dict[str, str]:
    jobs = client.get("/api/jobs").json["jobs"]
    return {job["task"].rpartition(".")[2] + str(number): job["state"] for number, job in enumerate(jobs)}


def by_state(client: Client, state: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(f"/api/jobs?filter=state%3D{state}").json["jobs"]
    return found


def act(
    client: Client, action: str, job: dict[str, Any], attempt: int | None = None, *, dry_run: bool = False
) -> Any:
    target = {"key": job["key"], "attempt": job["attempt"] if attempt is None else attempt}
    return client.ask("POST", "/api/actions", {"action": action, "jobs": [target], "dry_run": dry_run})


@pytest.mark.slow
def test_lines_01_to_11_a_live_run_is_followed_and_steered(place: Place) -> None:
    run = place.experiment(-2)
    eventually(
        lambda: (
            (place.workspace / "jobs").is_dir() and list(place.workspace.glob("experiments/*/*/status.json"))
        )
    )
    server, told, client = place.ui()
    assert set(told) == set("url login code host port pid workspace kinds read_only".split())
    assert told["host"] == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):  # another address of this machine
        socket.create_connection(("127.0.0.2", told["port"]), timeout=30)
    assert told["login"] == f"{told['url']}#code={told['code']}"
    eventually(lambda: len(by_state(client, "running")) == 3)
    eventually(lambda: any("token gpu" in (job["message"] or "") for job in by_state(client, "waiting")))
    eventually(lambda: {job["progress"] for job in by_state(client, "running")} == {0.25})
    agree(place, client)
    streams = [client.stream(), client.stream()]
    assert [stream.frame()[0] for stream in streams] == ["reset", "reset"]

    # Line 11: another attempt than the current one is left alone, and a dry run changes nothing.
    good, bad, _ = sorted(by_state(client, "running"), key=lambda job: job["submitted"])
    stale = act(client, "kill", bad, 7)
    assert (stale.status, stale.json["outcomes"][0]["outcome"]) == (409, "stale")
    assert act(client, "clean", bad).status == 409
    dry = act(client, "kill", bad, dry_run=True)
    assert (dry.status, dry.json["outcomes"][0]["outcome"]) == (200, "would_kill")
    assert len(by_state(client, "running")) == 3

    # Line 7: what happens reaches every stream.
    place.release()
    for stream in streams:
        read_until(stream, {good["key"]: "done", bad["key"]: "error"})
    assert run.wait(WAIT_S) == 1
    eventually(lambda: not client.get("/api/overview").json["groups"][0]["live"])
    ended = ["done", "done", "done", "done", "error", "unscheduled"]
    eventually(lambda: sorted(states(client).values()) == ended)
    agree(place, client)

    # Line 11: a double click acts once, and the result reaches every stream.
    (failed,) = by_state(client, "error")
    (place.directory / "fix").touch()
    with ThreadPoolExecutor(2) as clicks:
        answers = list(clicks.map(lambda _: act(client, "retry", failed), range(2)))
    assert sorted(answer.status for answer in answers) == [200, 409]
    for stream in streams:
        read_until(stream, {failed["key"]: "done"})
    job = client.get(f"/api/job?key={failed['key']}").json
    assert (job["state"], job["attempt"]) == ("done", 2)
    assert client.get(f"/api/log?key={failed['key']}").json["text"] == "began\n"
    cleaned = next(one for one in by_state(client, "done") if one["task"].endswith("After"))
    assert act(client, "clean", cleaned).json["outcomes"][0]["outcome"] == "deleted"
    for stream in streams:
        read_until(stream, {cleaned["key"]: "error"})
    agree(place, client)

    # Lines 1 and 2: the end, with open streams.
    registration = place.directory / "state" / "tenuto" / "ui" / f"{told['port']}.json"
    assert stat.S_IMODE(registration.stat().st_mode) == 0o600
    assert stat.S_IMODE(registration.parent.stat().st_mode) == 0o700
    again = place.run("ui", "--login", "--json", "--port", str(told["port"]))
    assert Client(told["port"]).login(json.loads(again.stdout)["code"]).status == 200
    ends_by(server, signal.SIGTERM)
    for stream in streams:
        stream.close()
    assert not registration.exists()
    assert place.run("ui", "--login", "--port", str(told["port"])).returncode == 3


def ends_by(server: subprocess.Popen[str], number: signal.Signals) -> None:
    """Line 1: a signal ends a server, well, also while clients listen."""
    begun = time.monotonic()
    server.send_signal(number)
    assert server.wait(WAIT_S) == 0
    assert time.monotonic() - begun < 30


def read_until(stream: Stream, wanted: dict[str, str]) -> None:
    """Read frames until some jobs are in some states."""
    seen: dict[str, str] = {}
    while any(seen.get(key) != state for key, state in wanted.items()):
        event, data = stream.frame()
        assert event == "delta"
        seen.update({job["key"]: job["state"] for job in data["jobs"]})


def agree(place: Place, client: Client) -> None:
    """Line 4: the server shows what the command line shows, once it has looked again at a run that ended.

    What runs meanwhile has its own clock.
    """

    def still(jobs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        moving = {"duration_s": None, "eta_s": None}
        return {one["key"]: {**one, **(moving if one["state"] == "running" else {})} for one in jobs}

    theirs = still(json.loads(place.run("jobs", "--json", "-w", str(place.workspace)).stdout))
    ends = time.monotonic() + WAIT_S
    while (mine := still(client.get("/api/jobs").json["jobs"])) != theirs:
        assert time.monotonic() < ends, [(one, mine.get(key)) for key, one in theirs.items()]
        time.sleep(0.02)


@pytest.mark.slow
def test_line_01_what_cannot_be_served_has_an_exit_code(place: Place) -> None:
    assert place.run("ui", "-w", str(place.directory / "nothing")).returncode == 3
    (place.workspace / "jobs").mkdir(parents=True)
    (place.workspace / "experiments").mkdir()
    remote = place.run("ui", "--host", "0.0.0.0", "-w", str(place.workspace))
    assert (remote.returncode, "--allow-remote" in remote.stderr) == (2, True)
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        refused = place.run("ui", "--port", str(port), "-w", str(place.workspace))
        assert (refused.returncode, str(os.getpid()) in refused.stderr) == (2, True)
    readable = place.directory / "code"
    readable.write_text("secret")
    readable.chmod(0o644)
    open_to_all = place.run("ui", "--port", "0", "--code-file", str(readable), "-w", str(place.workspace))
    assert open_to_all.returncode == 2
    overview = json.loads(place.run("top", "--json", "-w", str(place.workspace)).stdout)
    assert overview["groups"] == []


@pytest.mark.slow
def test_line_24_an_experiment_with_a_port_says_where_to_watch(place: Place) -> None:
    run = place.experiment(0)
    assert run.stderr is not None
    link = next(line for line in run.stderr if "watch it at" in line).split()[-1]
    url, _, code = link.partition("#code=")
    port = int(url.rstrip("/").rpartition(":")[2])
    client = Client(port)
    assert client.login(code).status == 200
    (group,) = eventually(lambda: client.get("/api/overview").json["groups"])
    assert group["live"]

    def watched() -> list[tuple[str, str]]:
        services = client.get("/api/overview").json["groups"][0]["services"]
        return [(one["id"], one["url"]) for one in services]

    eventually(lambda: watched() == [("monitor", url)])
    (place.directory / "fix").touch()
    place.release()
    _, said = run.communicate(timeout=WAIT_S)
    assert run.returncode == 0
    assert "to look at it again: tenuto ui -w" in said
    listen("127.0.0.1", port).close()


@pytest.mark.slow
def test_line_24_a_port_that_is_taken_does_not_stop_the_run(place: Place) -> None:
    (place.directory / "fix").touch()
    place.release()
    with listen("127.0.0.1", 0) as taken:
        run = place.experiment(taken.getsockname()[1])
        _, said = run.communicate(timeout=WAIT_S)
    assert run.returncode == 0
    assert said.count("there is no monitor") == 1


@pytest.mark.slow
def test_line_24_a_monitor_that_is_killed_does_not_stop_the_run(place: Place) -> None:
    run = place.experiment(0)
    assert run.stderr is not None
    link = next(line for line in run.stderr if "watch it at" in line).split()[-1]
    port = int(link.partition("/#")[0].rpartition(":")[2])
    registration = place.directory / "state" / "tenuto" / "ui" / f"{port}.json"
    eventually(registration.exists)
    os.kill(json.loads(registration.read_text())["pid"], signal.SIGKILL)
    said = next(line for line in run.stderr if "there is no monitor" in line)
    assert "and the run continues" in said
    (place.directory / "fix").touch()
    place.release()
    _, more = run.communicate(timeout=WAIT_S)
    assert run.returncode == 0
    assert "monitor" not in more
    assert "to look at it again" not in more
    listen("127.0.0.1", port).close()


@pytest.mark.slow
def test_line_24_without_the_extra_the_run_goes_on(place: Place) -> None:
    (place.directory / "without").mkdir()
    missing = "raise ModuleNotFoundError(\"No module named 'uvicorn'\", name='uvicorn')"
    (place.directory / "without" / "uvicorn.py").write_text(missing)
    place.environment["PYTHONPATH"] = str(place.directory / "without")
    run = place.experiment(0)
    assert run.stderr is not None
    assert any("there is no monitor" in line for line in run.stderr)
    (place.directory / "fix").touch()  # now: a run that is over may not hear of its monitor any more
    place.release()
    _, more = run.communicate(timeout=WAIT_S)
    assert run.returncode == 0
    assert "there is no monitor" not in more
    alone = place.run("ui", "-w", str(place.workspace))
    assert (alone.returncode, "pip install 'tenuto[web]'" in alone.stderr) == (2, True)
    assert place.run("jobs", "-w", str(place.workspace)).returncode == 0


@pytest.mark.slow
def test_line_09_a_run_that_is_killed_and_taken_over_is_followed_truly(place: Place) -> None:
    first = place.experiment()
    eventually(lambda: list(place.workspace.glob("experiments/*/*/status.json")))
    server, _, client = place.ui()
    eventually(lambda: len(by_state(client, "running")) == 2)
    first.kill()
    first.wait()
    eventually(
        lambda: [group["state"] for group in client.get("/api/groups").json["groups"]] == ["interrupted"]
    )
    assert len(by_state(client, "running")) == 2
    assert len(client.get("/api/cleanup").json["unowned"]) == 2
    for journal in place.workspace.glob(".events/experiments/*/*.jsonl"):
        with journal.open("ab") as torn:
            torn.write(b'{"torn": ')
    (place.directory / "fix").touch()
    second = place.experiment()
    eventually(lambda: len(client.get("/api/groups").json["groups"]) == 2)
    eventually(lambda: client.get("/api/groups").json["groups"][0]["live"])
    place.release()
    assert second.wait(WAIT_S) == 0
    newest = client.get("/api/groups").json["groups"][0]["group"]
    eventually(lambda: len(client.get(f"/api/jobs?group={newest}&filter=state%3Ddone").json["jobs"]) == 3)
    older = client.get("/api/groups").json["groups"][1]["group"]
    eventually(lambda: len(client.get(f"/api/jobs?group={older}&filter=state%3Ddone").json["jobs"]) >= 2)
    agree(place, client)
    stream = client.stream()
    ends_by(server, signal.SIGINT)
    frames = iter(lambda: stream.frame()[0], "end")
    assert next(frames) == "reset"
    assert set(frames) <= {"delta"}
    stream.close()
