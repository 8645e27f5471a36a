"""Owns drivers without a terminal, notices, errors for programs, `tenuto metrics` and the skill."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tenuto.cli.commands.skill import PAGE
from tenuto.errors import InvalidValue
from tenuto.jobs import notify
from tenuto.jobs.notify import Notice, Notifier, given_on_command_line, send, shown_target
from tenuto.settings.tree import NotifySettings
from tenuto.settings.urls import HiddenUrl
from tests.experiments.scripts import Place, environment, eventually, run, tenuto

SCRIPT = """
from tenuto import log_metrics
with experiment("ws", "naps", raise_on_failure=False):
    Curve.C(name="a").submit()
    Fail.C(name="bad").submit()
"""
TASKS = """
from tenuto import *
from tenuto import log_metrics

class Curve(Task):
    name: Param[str]
    def execute(self):
        for step in range(5):
            log_metrics({"loss": 1 / (step + 1), "odd": float("nan")})
        return 1

class Fail(Task):
    name: Param[str]
    def execute(self):
        raise ValueError(f"{self.name} is bad")
"""


class Heard(BaseHTTPRequestHandler):
    """Keeps what is sent; the first answers may be errors."""

    bodies: list[Any]
    headers_seen: list[Any]
    failures: int
    moved_to: str

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        type(self).headers_seen.append(self.headers)
        if self.path.endswith("/moved"):
            self.send_response(302)
            self.send_header("Location", self.moved_to)
            self.end_headers()
            return
        body = self.rfile.read(int(self.headers["content-length"]))
        type(self).bodies.append(json.loads(body))
        type(self).failures -= 1
        self.send_response(500 if self.failures >= 0 else 200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def address() -> Iterator[str]:
    Heard.bodies, Heard.headers_seen, Heard.failures = [], [], 0
    server = HTTPServer(("127.0.0.1", 0), Heard)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/secret-topic"
    server.shutdown()
    server.server_close()


def test_a_detached_run_tells_how_to_follow_it_and_goes_on(tmp_path: Path, address: str) -> None:
    place = Place(tmp_path)
    place.script(SCRIPT, tasks=TASKS)
    done = run(tenuto("run", "--detach", "--json", "--notify", address, "script.py"), tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["name"].startswith("naps/")
    ended = run(tenuto("wait", "--json", told["name"], "-w", told["workspace"]), tmp_path)
    assert (ended.returncode, json.loads(ended.stdout)["counts"]["error"]) == (1, 1)
    log = Path(told["log"])
    assert log.parent.parent == place.workspace / "experiments" / "naps"
    assert "1 failed" in log.read_text()
    assert "secret-topic" not in log.read_text()
    assert {one["title"] for one in Heard.bodies} == {"naps: a job failed", "naps: failed"}
    assert Heard.bodies[-1].keys() == {"title", "text", "group", "state", "failed", "url"}
    assert Heard.bodies[-1]["failed"] == 1
    curves = run(tenuto("metrics", "--json", "task~Curve"), tmp_path)
    rows = json.loads(curves.stdout, parse_constant=pytest.fail)
    assert [row["value"] for row in rows if row["metric"] == "loss"] == [1 / (n + 1) for n in range(5)]
    assert {row["value"] for row in rows if row["metric"] == "odd"} == {"nan"}
    shown = run(tenuto("metrics", "script.Curve"), tmp_path)
    assert "loss" in shown.stdout
    assert "without a finite number left out" in shown.stderr
    table = run(tenuto("metrics", "-m", "loss"), tmp_path)
    assert re.search(r"loss +4 +0\.2 +0\.2 +1", table.stdout)
    assert run(tenuto("metrics", "--csv", "-m", "loss"), tmp_path).stdout.count("\n") == 6
    assert run(tenuto("metrics", "-m", "nothing"), tmp_path).returncode == 3
    columns = ("-m", "loss", "-m", "loss:max", "-m", "odd", "-m", "odd:min")
    results = run(tenuto("results", "--json", *columns), tmp_path)
    (row,) = json.loads(results.stdout, parse_constant=pytest.fail)
    assert row["metrics"] == {"loss": 0.2, "loss:max": 1.0, "odd": "nan", "odd:min": None}
    assert (row["state"], row["result"]) == ("done", 1)
    by_metric = run(tenuto("results", "--csv", "-m", "loss:min", "--columns", "loss:min"), tmp_path)
    assert by_metric.stdout.splitlines()[0] == "task,id,loss:min"
    assert by_metric.stdout.splitlines()[1].endswith(",0.2")
    unknown = run(tenuto("results", "-m", "nothing"), tmp_path)
    assert (unknown.returncode, "there are: loss, odd" in unknown.stderr) == (3, True)
    for wrong in ("loss:mean", ":min", ""):
        refused = run(tenuto("results", "-m", wrong), tmp_path)
        assert refused.returncode == 2, refused.stderr
        assert "NAME:last|min|max" in refused.stderr


def test_a_detached_run_that_cannot_begin_says_why(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("raise ValueError('nothing begins')")
    done = run(tenuto("run", "--detach", "bad.py"), tmp_path)
    assert (done.returncode, "ValueError: nothing begins" in done.stderr) == (1, True)
    missing = run(tenuto("run", "--detach", "nothing.py"), tmp_path)
    assert missing.returncode == run(tenuto("run", "nothing.py"), tmp_path).returncode != 0


def test_a_detached_script_without_a_run_is_one_json_object_for_programs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print('hi')")
    done = run(tenuto("run", "--detach", "--json", "script.py"), tmp_path)
    told = json.loads(done.stdout)
    assert (done.returncode, told["group"], told["wait"]) == (0, None, None)
    assert "nothing to follow" in told["message"]


def test_a_run_that_a_shell_began_in_the_background_is_stopped_as_it_is_told(tmp_path: Path) -> None:
    place = Place(tmp_path)
    held = 'with experiment("ws", "long"):\n    After.C(before=Hold.C(name="held").submit()).submit()'
    place.script(held)
    command = shlex.join(tenuto("run", "--detach", "--json", "script.py"))
    begun = run(["sh", "-c", f"{command} & wait"], tmp_path)  # which has it ignore SIGINT
    told = json.loads(begun.stdout)
    eventually(lambda: "held" in place.ledger(), "the job")
    assert run(shlex.split(told["stop"]), tmp_path).returncode == 0
    eventually(lambda: "nothing more is started" in Path(told["log"]).read_text(), "the stop")
    place.release.touch()
    ended = json.loads(run(tenuto("wait", "--timeout", "60", "--json", "long"), tmp_path).stdout)
    assert (ended["state"], ended["counts"]["done"], len(ended["left"])) == ("unattended", 1, 1)


LATE = """
import time
(HERE / "begins").write_text(str(os.getpid()))
(HERE / "begins").rename(HERE / "began")  # with all that is written in it
while not (HERE / "go").exists():
    time.sleep(0.01)
with experiment("ws", "late"):
    Note.C(name="a").submit()
"""


def test_a_driver_goes_on_if_the_command_that_started_it_is_killed(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script(f"import os{LATE}")
    starting = subprocess.Popen(tenuto("run", "--detach", "script.py"), cwd=tmp_path, env=environment())
    eventually((tmp_path / "began").exists, "the driver")
    starting.kill()
    starting.wait()
    (tmp_path / "go").touch()
    eventually(lambda: "a" in place.ledger(), "the job")
    ended = run(tenuto("wait", "--json", "late", "-w", "ws"), tmp_path)
    assert (ended.returncode, json.loads(ended.stdout)["counts"]["done"]) == (0, 1)


def test_a_start_that_is_interrupted_leaves_no_driver(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script(f"import os{LATE}")
    starting = subprocess.Popen(tenuto("run", "--detach", "script.py"), cwd=tmp_path, env=environment())
    eventually((tmp_path / "began").exists, "the driver")
    driver = Path("/proc", (tmp_path / "began").read_text())
    starting.send_signal(signal.SIGINT)
    assert starting.wait(60) == 5
    eventually(lambda: not driver.exists(), "the end of the driver")


@pytest.mark.parametrize("command", ["run", "evolve", "plan"])
@pytest.mark.parametrize(
    ("script", "message"),
    [("raise ValueError('nothing begins')", "ValueError: nothing begins"), ("exit('no go')", "no go")],
)
def test_a_script_that_stops_is_told_for_people_and_for_programs(
    tmp_path: Path, command: str, script: str, message: str
) -> None:
    (tmp_path / "bad.py").write_text(f"import sys\nsys.argv.append('x')\n{script}\n")
    done = run(tenuto(command, "bad.py"), tmp_path)
    assert (done.returncode, message in done.stderr, "src/tenuto" in done.stderr) == (1, True, False)
    done = run(tenuto(command, "--json", "bad.py"), tmp_path)
    told = json.loads(done.stderr.splitlines()[-1])
    assert told == {"error": "ScriptStopped", "message": message, "remedy": None, "exit": 1}
    assert (done.returncode, isinstance(json.loads(done.stdout), dict | list)) == (1, True)


def test_a_run_of_a_locked_experiment_is_an_error_for_programs(tmp_path: Path) -> None:
    place = Place(tmp_path)
    again = "subprocess.run([sys.executable, '-m', 'tenuto', 'run', '--json', 'script.py'])"
    script = (
        f'import subprocess, sys\nwith experiment("ws", "mine"):\n    raise SystemExit({again}.returncode)'
    )
    place.script(script, tasks="from tenuto import experiment")
    done = run(tenuto("run", "script.py"), tmp_path)
    told = json.loads(next(line for line in done.stderr.splitlines() if line.startswith("{")))
    assert (done.returncode, told["error"], told["exit"]) == (4, "ExperimentLocked", 4)
    assert told["remedy"].startswith("wait for it")


def test_a_command_that_is_interrupted_is_an_error_for_programs(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script('with experiment("ws", "long"):\n    Hold.C(name="held").submit()')
    run(tenuto("run", "--detach", "script.py"), tmp_path)
    waiting = subprocess.Popen(
        tenuto("wait", "--json", "long"), cwd=tmp_path, env=environment(), stderr=subprocess.PIPE, text=True
    )
    descriptors = Path(f"/proc/{waiting.pid}/fd")
    eventually(lambda: any("eventfd" in os.path.realpath(one) for one in descriptors.iterdir()), "the wait")
    waiting.send_signal(signal.SIGINT)
    error = json.loads(waiting.communicate(timeout=60)[1])
    place.release.touch()
    assert run(tenuto("wait", "long"), tmp_path).returncode == 0
    assert (waiting.returncode, error["error"], error["exit"]) == (5, "Interrupted", 5)


def test_a_removed_directory_is_an_error_for_programs(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    call = shlex.join(tenuto("jobs", "--json"))
    done = run(["sh", "-c", f"cd gone && rmdir ../gone && {call}"], tmp_path)
    assert (done.returncode, json.loads(done.stderr)["exit"]) == (2, 2)


def test_a_start_that_fails_is_one_json_object_for_programs(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("raise ValueError('nothing begins')")
    done = run(tenuto("run", "--json", "--detach", "bad.py"), tmp_path)
    told = json.loads(done.stderr)
    assert told.keys() == {"error", "message", "remedy", "exit"}
    assert (told["message"], told["exit"], done.returncode) == ("ValueError: nothing begins", 1, 1)


def test_a_detached_script_gets_all_of_its_own_arguments(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.script('import sys\nwith experiment("ws", "mine"):\n    print("given", sys.argv[1:])', tasks=TASKS)
    done = run(tenuto("run", "--detach", "--json", "script.py", "--json", "--detach", "x"), tmp_path)
    told = json.loads(done.stdout)
    waited = run(tenuto("wait", "mine", "-w", "ws"), tmp_path)  # a run without a job makes a workspace, too
    assert waited.returncode == 0, waited.stderr
    assert "given ['--json', '--detach', 'x']" in Path(told["log"]).read_text()


@pytest.mark.parametrize(
    ("arguments", "error", "code"),
    [
        (["why", "nothing"], "NotFound", 3),
        (["jobs", "state=runing"], "FilterError", 2),
        (["wait", "--no-such-option"], "UsageError", 2),
        (["wait", "--timeout", "nan"], "UsageError", 2),
        (["nothing"], "UsageError", 2),
    ],
)
def test_an_error_is_one_json_object_for_programs(
    tmp_path: Path, arguments: list[str], error: str, code: int
) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "jobs").mkdir()
    done = run(tenuto(*arguments, "--json"), tmp_path)
    told = json.loads(done.stderr)
    assert told.keys() == {"error", "message", "remedy", "exit"}
    assert (told["error"], told["exit"], done.returncode, done.stdout) == (error, code, code, "")


def test_an_error_in_a_filter_says_where_for_programs(tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "jobs").mkdir()
    told = json.loads(run(tenuto("jobs", "--json", "state=runing"), tmp_path).stderr)
    words = "state is never 'runing'; did you mean running?, at character 7 of state=runing"
    assert told["message"] == words


# Notices


def notice(kind: str = "ended", group: str = "sweep/1") -> Notice:
    return Notice(kind, "sweep: done", "3 done", group, "done")


def test_a_notice_is_tried_three_times_and_hides_its_address(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "PAUSE_S", 0.01)
    settings = NotifySettings(url=HiddenUrl(address))
    Heard.failures = 2
    assert send(settings, notice()) is None
    assert len(Heard.bodies) == 3
    Heard.failures = 3
    problem = send(settings, notice())
    assert problem is not None
    assert "500" in problem
    assert "secret-topic" not in f"{problem} {settings!r} {shown_target(settings)}"
    slack = NotifySettings(url=HiddenUrl(address), format="slack")
    assert send(slack, notice()) is None
    assert Heard.bodies[-1] == {"text": "*sweep: done*\n3 done"}


def test_a_notice_runs_a_command_without_a_shell(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    command = (sys.executable, "-c", program, str(out), "{title}; $(touch x) {failed}")
    assert send(NotifySettings(command=command), notice()) is None
    assert out.read_text() == "sweep: done; $(touch x) 0"


@pytest.mark.parametrize(
    "program",
    [
        "import os; os.fork() or os.execvp('sleep', ['sleep', '60'])",
        "import sys; sys.stderr.buffer.write(bytes([255, 254]))",
    ],
    ids=["leaves a child", "prints no text"],
)
def test_an_odd_command_of_a_notice_is_run_once(
    tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "EACH_S", 5.0)
    out = tmp_path / "out"
    words = (sys.executable, "-c", f"open({str(out)!r}, 'a').write('x'); {program}")
    assert send(NotifySettings(command=words), notice()) is None
    assert out.read_text() == "x"


def test_a_word_of_a_notice_is_no_place_for_another(tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    given = NotifySettings(command=(sys.executable, "-c", program, str(out), "{group} {kind} {other}"))
    assert send(given, notice(group="{title}/{text}")) is None
    assert out.read_text() == "{title}/{text} ended {other}"


def test_a_wait_refuses_a_target_before_it_waits(tmp_path: Path) -> None:
    refused = run(tenuto("wait", "--notify", "'unended"), tmp_path)
    assert (refused.returncode, "--notify" in refused.stderr) == (2, True)


def test_a_notice_of_one_kind_is_sent_once_a_minute(address: str) -> None:
    notifier = Notifier(NotifySettings(url=HiddenUrl(address), on=("ended", "best")))
    for kind in ("ended", "ended", "best", "first_failure"):
        notifier.tell(notice(kind))
    notifier.tell(notice(group="other/1"))
    notifier.close()
    assert len(Heard.bodies) == 3


@pytest.mark.parametrize(
    "text", ["", "'unended", "ftp://host/secret", "https://", "http:/host", "no-such-program {title}"]
)
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidValue, match="--notify") as refused:
        given_on_command_line(text)
    assert "secret" not in str(refused.value)


def test_a_user_and_a_password_of_an_address_are_sent_and_never_shown(address: str) -> None:
    settings = NotifySettings(url=HiddenUrl(address.replace("://", "://ada:pa%40ss@") + "/é"))
    assert send(settings, notice()) is None
    assert Heard.headers_seen[-1]["Authorization"] == f"Basic {b64encode(b'ada:pa@ss').decode()}"
    assert "ada" not in shown_target(settings)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://ntfy.sh/secret", "https://ntfy.sh/***"),
        ("https://hooks.org?token=secret", "https://hooks.org/***"),
        ("https://hooks.org#secret", "https://hooks.org/***"),
        ("https://ada:secret@host/x", "https://host/***"),
        ("https://ada:sec/ret@host/x", "https://***/***"),
        ("https://ada:sec?ret@host/x", "https://***/***"),
    ],
)
def test_of_an_address_only_the_host_is_shown(url: str, shown: str) -> None:
    assert str(HiddenUrl(url)) == shown


def test_slack_gets_text_where_it_would_see_links(address: str) -> None:
    slack = NotifySettings(url=HiddenUrl(address), format="slack")
    assert send(slack, notice()._replace(text="<!channel> a & b")) is None
    assert Heard.bodies[-1] == {"text": "*sweep: done*\n&lt;!channel&gt; a &amp; b"}


def test_a_redirection_tells_nobody_and_is_said(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "PAUSE_S", 0.01)
    Heard.moved_to = address
    problem = send(NotifySettings(url=HiddenUrl(f"{address}/moved")), notice())
    assert problem is not None
    assert "leads elsewhere" in problem


def test_a_doctor_says_that_notices_cannot_be_sent_and_that_jobs_can_run(tmp_path: Path) -> None:
    done = run(tenuto("doctor", "--notify"), tmp_path)
    assert (done.returncode, "Notices cannot be sent" in done.stdout) == (1, True)
    assert "cannot run here: notify" not in done.stdout


# The skill


def test_the_commands_of_the_skill_run_as_they_are(tmp_path: Path) -> None:
    for name, body in re.findall(r"```python file=(\S+)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(body)
    commands = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    called = f'tenuto() {{ "{sys.executable}" -m tenuto "$@"; }}\npython() {{ "{sys.executable}" "$@"; }}\n'
    given = {**environment(), "AI_AGENT": "1"}
    done = subprocess.run(
        [shutil.which("bash") or "/bin/bash", "-ec", called + commands],
        cwd=tmp_path,
        env={**given, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    installed = run(tenuto("skill", "--install", "skills"), tmp_path)
    assert (tmp_path / "skills" / "tenuto" / "SKILL.md").read_text() == PAGE
    assert installed.returncode == 0
