"""Services of an experiment: started when added, stopped when it is left, whatever they raise."""

from __future__ import annotations

import os
import signal
import subprocess

import pytest

from tenuto import PortTaken, ProcessService, ServiceError, ServiceState, WebService
from tenuto.jobs.tcp_ports import listen
from tenuto.lifecycle.events import ServiceAddedEvent, ServiceStateChangedEvent
from tenuto.workspace.journal import replay
from tenuto.workspace.machine import this_machine

from .scripts import WAIT_S, Place, environment, eventually, python, run

SCRIPT = """
class Page(Service):
    def __init__(self, id, fails=False):
        self.id, self.fails = id, fails
    def start(self):
        note(f"start {self.id}")
    def stop(self):
        note(f"stop {self.id}")
        if self.fails:
            raise RuntimeError("cannot stop")

with experiment(HERE / "ws", "served") as xp:
    xp.add_service(Page("one"))
    xp.add_service(Page("two", fails=True))
    Note.C(name="job").submit()
"""


def moves(place: Place) -> dict[str, list[str]]:
    """The states that each service of the only run went through, by its events."""
    found: dict[str, list[str]] = {}
    (directory,) = place.workspace.glob("experiments/served/*/events")
    for entry in replay(this_machine().files, str(directory)):
        if isinstance(entry.event, ServiceAddedEvent | ServiceStateChangedEvent):
            found.setdefault(entry.event.service_id, []).append(entry.event.state)
    return found


def test_services_are_stopped_after_the_jobs_and_before_the_run_ends(place: Place) -> None:
    result = run(python(place.script(SCRIPT)), place.directory)
    assert result.returncode == 0, result.stderr
    assert place.ledger() == ["start one", "start two", "job", "stop two", "stop one"]
    assert "cannot stop" in result.stderr
    (events,) = place.workspace.glob("experiments/served/*/events/*.jsonl")
    written = events.read_text()
    assert moves(place) == {
        "one": ["starting", "running", "stopping", "stopped"],
        "two": ["starting", "running", "stopping", "failed"],
    }
    assert written.index("stopped") < written.index("RunCompletedEvent")
    assert place.state("served") == "done"


def test_services_are_stopped_when_the_script_raises(place: Place) -> None:
    script = place.script(SCRIPT + "    raise ValueError('oops')\n")
    result = run(python(script), place.directory)
    assert result.returncode == 1
    noted = [line for line in place.ledger() if line != "job"]  # which goes on, and may come last
    assert noted == ["start one", "start two", "stop two", "stop one"]


def test_a_service_that_cannot_start_is_an_error_of_the_script(place: Place) -> None:
    body = SCRIPT.replace('note(f"start {self.id}")', "raise OSError('the port is taken')")
    result = run(python(place.script(body)), place.directory)
    assert result.returncode == 1
    assert "the port is taken" in result.stderr
    assert place.ledger() == []


def test_services_of_one_name_are_told_apart(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "served") as xp:
    print([xp.add_service(Service()).id for _ in range(3)])
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout == "['service', 'service-2', 'service-3']\n", result.stderr


# -- pages -------------------------------------------------------------------------------------------


def test_a_page_is_served_while_the_experiment_is_open(place: Place) -> None:
    script = place.script(
        """
from urllib.error import URLError
from urllib.request import urlopen

def page(environ, start_response):
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [environ["PATH_INFO"].encode()]

with experiment(HERE / "ws", "served") as xp:
    service = xp.add_service(WebService(page))
    Note.C(name="job").submit()
    print(urlopen(service.url + "there").read().decode(), service.state.name)
print(service.state.name)
try:
    urlopen(service.url)
except URLError:
    print("gone")
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout == "/there RUNNING\nSTOPPED\ngone\n", result.stderr
    assert result.stderr == ""
    assert moves(place) == {"web": ["starting", "running", "stopping", "stopped"]}


def test_a_page_that_cannot_be_served_has_failed_and_the_experiment_goes_on(place: Place) -> None:
    script = place.script(
        """
class Broken(WebService):
    def serve(self, listening):
        raise RuntimeError("no pages today")

with experiment(HERE / "ws", "served") as xp:
    service = xp.add_service(Broken())
    Note.C(name="job").submit()
    while service.state is not ServiceState.FAILED:
        time.sleep(0.01)
print(service.state.name, service.message)
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout == "FAILED RuntimeError: no pages today\n", result.stderr
    assert moves(place)["web"][-1] == "failed"
    assert place.ledger() == ["job"]


@pytest.mark.parametrize("kind", ["page", "program"])
def test_a_port_that_is_taken_is_named_with_the_process_that_has_it(kind: str) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        service = WebService(port=port) if kind == "page" else ProcessService(["true"], port=port)
        with pytest.raises(PortTaken) as refused:
            service.start()
    assert f"port {port} of 127.0.0.1 is taken by process {os.getpid()} (" in str(refused.value)
    assert "or choose another port (0 stands for a free one)" in str(refused.value)


# -- programs ----------------------------------------------------------------------------------------

SERVER = """
import http.server, os, signal, subprocess, sys
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    open("pids", "w").write(f"{os.getpid()} {child.pid}")
print("hello from the program", flush=True)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
PROGRAM = """
from urllib.request import urlopen
with experiment(HERE / "ws", "served") as xp:
    command = [sys.executable, "server.py", "{{port}}", "{mood}"]
    service = xp.add_service(ProcessService(command, id="files", port=0, directory=HERE, grace_s=0.3))
    service.wait_until_running()
    print(urlopen(service.url + "server.py").status, service.state.name, flush=True)
    Hold.C(name="job").submit()
print(service.state.name)
"""


def ended(place: Place) -> bool:
    """Whether the processes of a program are gone."""
    pids = (place.directory / "pids").read_text().split()
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def test_a_program_serves_and_is_ended_with_all_it_started(place: Place) -> None:
    (place.directory / "server.py").write_text(SERVER)
    place.release.touch()
    result = run(python(place.script(PROGRAM.format(mood="stubborn"))), place.directory)
    assert result.stdout == "200 RUNNING\nSTOPPED\n", result.stderr
    assert ended(place), "it ignores TERM, and was killed"
    (log,) = place.workspace.glob("experiments/served/*/services/files.log")
    assert "hello from the program" in log.read_text()
    assert moves(place) == {"files": ["starting", "running", "stopping", "stopped"]}


@pytest.mark.parametrize("victim", ["experiment", "guard"])
def test_a_program_ends_when_its_experiment_or_its_guard_is_killed(place: Place, victim: str) -> None:
    (place.directory / "server.py").write_text(SERVER)
    script = place.script(PROGRAM.format(mood="stubborn"))
    with subprocess.Popen(
        python(script), cwd=place.directory, env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "200 RUNNING\n"
        program = int((place.directory / "pids").read_text().split()[0])
        if victim == "experiment":
            process.kill()
            eventually(lambda: ended(place), "the program to end with its experiment")
        else:
            with open(f"/proc/{program}/stat") as stat:
                os.kill(int(stat.read().rpartition(")")[2].split()[1]), signal.SIGKILL)
            eventually(lambda: not os.path.exists(f"/proc/{program}"), "the program to end with its guard")
            place.release.touch()
            assert process.wait(WAIT_S) == 0
            assert process.stdout.read() == "FAILED\n"
    if victim == "guard":
        os.kill(int((place.directory / "pids").read_text().split()[1]), signal.SIGKILL)  # nobody else can


def test_a_program_that_ends_by_itself_has_failed_and_its_last_words_are_told(place: Place) -> None:
    script = place.script(
        """
with experiment(HERE / "ws", "served") as xp:
    command = [sys.executable, "-c", "import sys; print('no GPU'); sys.exit(3)"]
    service = xp.add_service(ProcessService(command, id="short", port=0))
    try:
        service.wait_until_running()
    except Exception as error:
        print(type(error).__name__, error)
"""
    )
    result = run(python(script), place.directory)
    assert result.stdout.startswith("ServiceError short failed: it ended with exit code 3: no GPU; its log: ")
    assert moves(place) == {"short": ["starting", "failed"]}


def test_a_program_that_is_not_there_is_an_error() -> None:
    service = ProcessService(["no-such-program-anywhere"])
    with pytest.raises(ServiceError, match="'no-such-program-anywhere' cannot be found: install it"):
        service.start()
    assert service.state is ServiceState.STOPPED
