"""The client of users: against real servers, which are killed, and through connections that are cut."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import tenuto
from tenuto.client import (
    Client,
    ClientError,
    RequestDenied,
    ServerUnreachable,
    UnsafeResult,
    WaitTimeout,
)
from tests.service.conftest import Tenuto
from tests.service.servers import Process, eventually


@pytest.fixture
def client(shared: Process) -> Client:
    return tenuto.Client(shared.url)


def script(directory: Path, text: str) -> Path:
    path = directory / "run.sh"
    path.write_text(text)
    return path


def test_files_and_folders_go_out_and_results_come_back(client: Client, tmp_path: Path) -> None:
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / 'a "b" é.txt').write_text("1")
    (tmp_path / "data" / "sub" / "c").write_text("2")
    run = script(tmp_path, "cat data/*.txt data/sub/c > out.txt; echo said; echo loud >&2\n")
    job = client.submit([run, tmp_path / "data"], "example", user=1)
    assert job.wait(60) == "Completed"
    out = job.fetch(tmp_path / "out")
    assert (out / "out.txt").read_text() == "12"
    assert (out / "data" / 'a "b" é.txt').read_text() == "1"
    assert (out / ".tenuto" / "job.json").exists()
    assert not [name for name in os.listdir(out) if name.endswith(".part")]
    assert "".join(job.log()) == "said\n"
    assert "".join(job.log(follow=False, stream="stderr")) == "loud\n"
    assert job.fetch_file("data/sub/c", tmp_path / "one").read_text() == "2"
    assert job.job()["exit_code"] == 0
    assert "example" in [one["name"] for one in client.services()]


def test_files_of_any_name_come_back(client: Client, tmp_path: Path) -> None:
    """The names that files have on their way displace none of the result, and are no longer than it."""
    names = {"foo": "1", ".foo.part": "2", ".foo.part.part": "3", "漢" * 85: "4", "x" * 255: "5"}
    lines = [f"printf {text} > {name}" for name, text in reversed(names.items())]
    job = client.submit({"run.sh": "\n".join(lines).encode()}, "example", 1)
    assert job.wait(60) == "Completed"
    out = job.fetch(tmp_path / "out")
    assert {name: (out / name).read_text() for name in names} == names
    assert sorted(os.listdir(out)) == sorted([*names, "run.sh", ".tenuto"])
    for name, text in names.items():
        assert job.fetch_file(name, tmp_path / name).read_text() == text


def test_a_job_that_fails_leaves_its_files(client: Client, tmp_path: Path) -> None:
    job = client.submit({"run.sh": b"echo x > left; exit 3\n"}, "example", 1)
    assert job.wait(60) == "Failed"
    assert (job.fetch(tmp_path / "out") / "left").read_text() == "x\n"


def test_a_wait_ends_when_its_time_is_up_and_cancel_ends_the_job(client: Client, tmp_path: Path) -> None:
    job = client.submit({"run.sh": b"echo progress: 1 %; exec sleep 100\n"}, "example", 1)
    seen: list[dict[str, Any]] = []
    with pytest.raises(WaitTimeout, match="time is up"):
        job.wait(0.5, seen.append)
    assert seen
    with pytest.raises(ClientError, match="wait for its end"):
        job.fetch(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert job.cancel() == "Killed"
    assert job.cancel() == "Killed"
    assert job.wait() == "Killed"


def test_a_refusal_is_told_and_not_tried_again(client: Client) -> None:
    with pytest.raises(RequestDenied, match="Invalid service") as refused:
        client.submit({"run.sh": b"ls\n"}, "nothing", 1)
    assert (refused.value.http_status, refused.value.code) == (400, "unknown_service")
    with pytest.raises(RequestDenied) as missing:
        client.job(10**6).wait()
    assert missing.value.code == "not_found"
    job = client.submit({"run.sh": b"true\n"}, "example", 1)
    job.wait(60)
    with pytest.raises(RequestDenied, match="no file"):
        job.fetch_file("nothing", "never")


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: Client("example.org"), ValueError),
        (lambda c: Client("ftp://example.org"), ValueError),
        (lambda c: Client("http://u:p@example.org"), ValueError),
        (lambda c: Client("http://example.org/?token=x"), ValueError),
        (lambda c: Client("http://example.org", token="a\nb"), ValueError),
        (lambda c: Client("http://example.org", timeout_s=0), ValueError),
        (lambda c: c.submit("run.sh", "example"), TypeError),
        (lambda c: c.submit(["/nothing/here"], "example"), OSError),
        (lambda c: c.submit(["/dev/null"], "example"), ValueError),
        (lambda c: c.submit({"a\r\nb": b""}, "example"), ValueError),
        (lambda c: c.submit({os.fsdecode(b"\xff.txt"): b""}, "example"), ValueError),
        (lambda c: c.job("1"), TypeError),
        (lambda c: c.job(1).log(stream="both"), ValueError),
    ],
)
def test_an_argument_that_cannot_be_is_refused_at_the_call(
    client: Client, call: Callable[[Client], Any], error: type[Exception]
) -> None:
    with pytest.raises(error) as refused:
        call(client)
    assert not isinstance(refused.value, UnicodeError), "it names the argument"


def test_a_server_that_is_not_there_is_given_up() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        client = Client(f"http://127.0.0.1:{taken.getsockname()[1]}", timeout_s=0.5)
        began = time.monotonic()
        with pytest.raises(ServerUnreachable, match="cannot be reached"):
            client.services()
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("said", ["<html>", "[]", "{}", '{"id": null, "status": 1}', "[" * 10**5], ids=len)
def test_an_answer_of_another_server_is_told_as_an_error_of_the_client(said: str) -> None:
    """At the URL may be any server: what it says is no `KeyError`."""

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers["content-length"] or 0))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.encode())

        do_POST = do_GET

        def log_message(self, *words: Any) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        client = Client(f"http://127.0.0.1:{server.server_port}", timeout_s=0.1)
        job = client.job(1)
        for call in (lambda: client.submit({"a": b""}, "x"), client.services, job.wait, job.cancel):
            with pytest.raises(ServerUnreachable, match=r"not JSON|something else"):
                call()
        server.shutdown()


def test_the_whole_of_a_folder_goes_out_or_nothing(client: Client, tmp_path: Path) -> None:
    """A link to a folder was left out, and the job ran without its files."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in").write_text("1")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "data" / "link").symlink_to(tmp_path / "data" / "in")
    run = script(tmp_path, "cat data/link\n")
    job = client.submit([run, tmp_path / "data"], "example", 1)
    assert "".join(job.log()) == "1"
    (tmp_path / "data" / "more").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="data/more is a link to a folder"):
        client.submit([run, tmp_path / "data"], "example", 1)


@pytest.fixture
def brief(tmp_path: Path, start: Callable[..., Process]) -> Client:
    """A server that keeps little of each log."""
    (tmp_path / "tenuto.toml").write_text('log_bytes = "64K"\n')
    return Client(start("serve", "--with-node", "--sandbox", "none").url)


def test_a_log_whose_middle_was_dropped_is_given_once(brief: Client, tmp_path: Path) -> None:
    job = brief.submit({"run.sh": b"seq 100000; echo last\n"}, "example", 1)
    assert job.wait(60) == "Completed"
    packed = (job.fetch(tmp_path / "out") / ".tenuto" / "stdout").read_text()
    assert packed.startswith("1\n2\n")
    assert packed.endswith("\nlast\n")
    assert "".join(job.log(follow=False)) == packed
    assert "".join(job.log()) == packed


def test_a_character_that_lies_across_two_pieces_of_a_log_is_whole(client: Client) -> None:
    text = "x" + "é" * (1 << 20)  # of two bytes each: a piece of 1 MiB ends within one
    job = client.submit({"run.sh": b"cat text\n", "text": text.encode()}, "example", 1)
    assert "".join(job.log()) == text
    assert "".join(job.log(follow=False)) == text


def test_the_log_of_a_job_that_waits_is_followed_from_its_start(shared: Process, client: Client) -> None:
    first = client.submit({"run.sh": b"exec sleep 100\n"}, "one", 7)
    second = client.submit({"run.sh": b"for n in 1 2 3; do echo $n; sleep 0.2; done\n"}, "one", 7)
    printed: list[str] = []
    following = threading.Thread(target=lambda: printed.extend(second.log()))
    following.start()
    assert second.job()["status"] == "Queued"
    first.cancel()
    following.join(60)
    assert "".join(printed) == "1\n2\n3\n"
    third = client.submit({"run.sh": b"exec sleep 100\n"}, "one", 8)
    fourth = client.submit({"run.sh": b"echo never\n"}, "one", 8)
    fourth.cancel()
    assert list(fourth.log()) == [], "it ended without a start"
    third.cancel()


def test_the_file_works_where_tenuto_is_not(shared: Process, tmp_path: Path) -> None:
    shutil.copy(tenuto.client.__file__, tmp_path / "jobs.py")
    code = (
        "import jobs, sys\n"
        "c = jobs.Client(sys.argv[1])\n"
        "j = c.submit({'run.sh': b'echo hi > out\\n'}, 'example', 1)\n"
        "assert j.wait(60) == 'Completed'\n"
        "print((j.fetch('res') / 'out').read_text(), [m for m in sys.modules if 'tenuto' in m])\n"
    )
    said = subprocess.run(
        [sys.executable, "-S", "-c", code, shared.url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout == "hi\n []\n"


# Servers that die, connections that are cut


def test_a_server_may_be_killed_and_started_anew_at_any_time(
    start: Callable[..., Process], tmp_path: Path
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    arguments = ("serve", "--with-node", "--sandbox", "none", "--port", port)
    server = start(*arguments)
    client = Client(server.url, timeout_s=60)
    job = client.submit({"run.sh": b"echo one; sleep 2; echo two\n"}, "example", 1)
    printed: list[str] = []
    ended: list[str] = []
    threads = [
        threading.Thread(target=lambda: printed.extend(job.log())),
        threading.Thread(target=lambda: ended.append(job.wait(120))),
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: printed)
    server.kill()
    more: list[Any] = []
    submitting = threading.Thread(
        target=lambda: more.append(client.submit({"run.sh": b"echo 2\n"}, "example", 1))
    )
    submitting.start()
    start(*arguments)
    for thread in (*threads, submitting):
        thread.join(120)
    assert ended == ["Completed"]
    assert "".join(printed) == "one\ntwo\n"
    assert more[0].wait(60) == "Completed"
    assert more[0].id == 2, "it was uploaded once"


class Cutting(BaseHTTPRequestHandler):
    """A server with one result, which cuts each download after some bytes, and loses answers."""

    protocol_version = "HTTP/1.1"
    state: ClassVar[dict[str, Any]] = {}

    def log_message(self, *_: object) -> None: ...

    def _answer(self, status: int, body: bytes, announced: int | None = None, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if announced is None else announced))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        state = self.state
        read = len(self.rfile.read(int(self.headers["content-length"])))
        state["uploads"].append((self.headers["idempotency-key"], read))
        state["authorization"] = self.headers["authorization"]
        if len(state["uploads"]) == 1:
            self.close_connection = True  # taken, and the answer is lost
        elif len(state["uploads"]) == 2:
            self._answer(503, b'{"error":"draining","message":"stops"}', Retry_After="1")
        elif len(state["uploads"]) == 3:
            self._answer(507, b"no room")
        elif len(state["uploads"]) == 4:
            self._answer(502, b"<html>proxy</html>")
        else:
            self._answer(201, b'{"id":5,"status":"Queued","message":""}')

    def do_GET(self) -> None:
        content: bytes = self.state["result"]
        if self.path.startswith("/jobs/5"):
            job = {
                "id": 5, "status": "Completed", "message": "", "result_bytes": len(content),
                "result_sha256": self.state.get("digest") or hashlib.sha256(content).hexdigest(),
            }  # fmt: skip
            self._answer(200, json.dumps(job).encode())
            return
        begin = 0
        given = self.headers["range"]
        self.state["ranges"].append(given)
        if given:
            begin = int(given.removeprefix("bytes=").rstrip("-"))
        rest = content[begin:]
        self._answer(206 if given else 200, rest[: self.state["cut"]], announced=len(rest))
        self.close_connection = True


@pytest.fixture
def cutting() -> Iterator[Client]:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("out.bin", os.urandom(300_000))
    Cutting.state = {"uploads": [], "ranges": [], "cut": 100_000, "result": made.getvalue()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Cutting)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Client(f"http://127.0.0.1:{server.server_address[1]}", token="tnt_x", timeout_s=10)
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_upload_is_repeated_under_one_key(cutting: Client) -> None:
    assert cutting.submit({"run.sh": b"ls\n"}, "example").id == 5
    assert len(Cutting.state["uploads"]) == 5
    assert len(set(Cutting.state["uploads"])) == 1, "the same key, and the whole body"
    assert Cutting.state["authorization"] == "Bearer tnt_x"


def test_a_cut_download_goes_on_where_it_stopped(cutting: Client, tmp_path: Path) -> None:
    out = cutting.job(5).fetch(tmp_path / "out")
    with zipfile.ZipFile(io.BytesIO(Cutting.state["result"])) as packed:
        assert (out / "out.bin").read_bytes() == packed.read("out.bin")
    assert Cutting.state["ranges"] == [None, "bytes=100000-", "bytes=200000-", "bytes=300000-"]
    assert os.listdir(out) == ["out.bin"]


def test_a_download_goes_on_in_another_call(cutting: Client, tmp_path: Path) -> None:
    Cutting.state["cut"] = 0
    hasty = Client(cutting.url, timeout_s=0.5)
    digest = hashlib.sha256(Cutting.state["result"]).hexdigest()
    part = tmp_path / f".results-5-{digest[:16]}.part"
    part.write_bytes(Cutting.state["result"][:1000])
    with pytest.raises(ServerUnreachable, match="cut"):
        hasty.job(5).fetch(tmp_path)
    assert part.stat().st_size == 1000
    Cutting.state["cut"] = 10**6
    assert (cutting.job(5).fetch(tmp_path) / "out.bin").exists()
    assert Cutting.state["ranges"][-1] == "bytes=1000-"
    part.write_bytes(b"x" * 1000)
    assert (cutting.job(5).fetch(tmp_path) / "out.bin").exists(), "a damaged part is fetched anew"


def test_a_result_of_another_digest_is_refused(cutting: Client, tmp_path: Path) -> None:
    Cutting.state |= {"digest": "0" * 64, "cut": 10**6}
    with pytest.raises(UnsafeResult, match="digest"):
        cutting.job(5).fetch(tmp_path / "out")
    assert os.listdir(tmp_path / "out") == []


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "a\\..\\x", "a//x", "link/x"])
def test_a_name_that_leaves_the_directory_is_refused(cutting: Client, tmp_path: Path, name: str) -> None:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("good", b"")
        archive.writestr(name, b"bad")
    Cutting.state |= {"result": made.getvalue(), "cut": 10**6}
    out = tmp_path / "deep" / "out"
    out.mkdir(parents=True)
    (out / "link").symlink_to(tmp_path)
    with pytest.raises(UnsafeResult):
        cutting.job(5).fetch(out)
    assert os.listdir(out) == ["link"]
    assert os.listdir(tmp_path) == ["deep"]


def test_a_file_on_the_way_replaces_a_link_and_does_not_follow_it(cutting: Client, tmp_path: Path) -> None:
    Cutting.state["cut"] = 10**6
    victim, out = tmp_path / "victim", tmp_path / "out"
    victim.write_text("mine")
    out.mkdir()
    (out / "out.bin").symlink_to(victim)
    cutting.job(5).fetch(out)
    assert victim.read_text() == "mine"
    assert not (out / "out.bin").is_symlink()


@pytest.mark.prove("it moves hundreds of megabytes")
def test_memory_does_not_grow_with_files(shared: Process, tmp_path: Path) -> None:
    large = tmp_path / "large"
    with open(large, "wb") as file:
        file.writelines(os.urandom(1 << 20) for _ in range(300))
    script(tmp_path, "cp large copy\n")
    code = (
        "import sys, resource; from tenuto.client import Client\n"
        "j = Client(sys.argv[1], timeout_s=120).submit(['run.sh', 'large'], 'example', 1)\n"
        "assert j.wait(300) == 'Completed'\n"
        "j.fetch('res'); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    command = [sys.executable, "-c", code, shared.url]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (tmp_path / "res" / "copy").stat().st_size == 300 << 20
    assert int(said.stdout) < 120_000, "kilobytes"


# The commands


def test_the_commands_submit_follow_fetch_and_cancel(tenuto: Tenuto, shared: Process, tmp_path: Path) -> None:
    script(tmp_path, "echo hello | tee out.txt\n")
    one = ("--service", "example", "--user", "1", "--url", shared.url)
    ended = tenuto("submit", "run.sh", *one, "--wait", "-o", "out")
    assert (ended.returncode, ended.stderr.count("is Completed")) == (0, 1), ended
    assert (tmp_path / "out" / "out.txt").read_text() == "hello\n"
    job = ended.stdout.strip()
    (tmp_path / "tenuto.toml").write_text(f'[client]\nurl = "{shared.url}"\n')
    assert tenuto("follow", job).stdout == "hello\n"
    assert tenuto("fetch", f"example#{job}").returncode == 0
    assert (tmp_path / f"results-{job}" / "out.txt").exists()
    assert tenuto("cancel", job).returncode == 1, "it had ended before"
    assert json.loads(tenuto("submit", "run.sh", *one, "--json").stdout).keys() == {"id", "url"}
    told = json.loads(tenuto("submit", "run.sh", *one, "--wait", "--json").stdout)
    assert (told["status"], told["directory"]) == ("Completed", f"results-{told['id']}")


def test_the_commands_tell_how_a_job_ended_by_their_exit_code(
    tenuto: Tenuto, shared: Process, tmp_path: Path
) -> None:
    one = ("--service", "example", "--user", "1", "--url", shared.url)
    script(tmp_path, "echo what happened >&2; exit 4\n")
    failed = tenuto("submit", "run.sh", *one, "--wait")
    assert failed.returncode == 1
    assert "exited with code 4" in failed.stderr
    assert "what happened" in failed.stderr
    script(tmp_path, "exec sleep 100\n")
    late = tenuto("submit", "run.sh", *one, "--wait", "--timeout", "0.3")
    assert (late.returncode, "time is up" in late.stderr) == (6, True)
    job = late.stdout.strip()
    again = tenuto("fetch", job, "--url", shared.url, "--timeout", "0.1", "--json")
    assert (again.returncode, json.loads(again.stdout)["id"]) == (6, int(job)), "it can be asked for again"
    for command in ("fetch", "follow", "cancel"):
        other = tenuto(command, f"other#{job}", "--url", shared.url)
        assert (other.returncode, f"of another service: example#{job}" in other.stderr) == (3, True)
    assert tenuto("cancel", f"example#{job}", "--url", shared.url).returncode == 0
    assert tenuto("follow", job, "--url", shared.url).returncode == 1


@pytest.mark.parametrize(
    ("code", "word", "arguments"),
    [
        (2, "no server", ("cancel", "1")),
        (2, "no id of a job", ("fetch", "one", "--url", "http://localhost:1")),
        (2, "no URL", ("fetch", "1", "--url", "localhost")),
        (2, "go with --wait", ("submit", "run.sh", "--service", "x", "-o", "out")),
        (2, "does not exist", ("submit", "nothing", "--service", "x")),
        (2, "give --user", ("submit", "run.sh", "--service", "example", "--url", "URL")),
        (2, "unknown_service", ("submit", "run.sh", "--service", "x", "--user", "1", "--url", "URL")),
        (3, "no such job", ("fetch", "99999", "--url", "URL")),
        (3, "no such job", ("follow", "99999", "--url", "URL")),
        (3, "no such job", ("cancel", "99999", "--url", "URL")),
        (2, "cannot be read", ("cancel", "1", "--url", "URL", "--token-file", "binary")),
    ],
)
def test_a_wrong_call_says_what_to_do(
    tenuto: Tenuto, shared: Process, tmp_path: Path, code: int, word: str, arguments: tuple[str, ...]
) -> None:
    script(tmp_path, "ls\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    ended = tenuto(*(shared.url if one == "URL" else one for one in arguments))
    assert ended.returncode == code, ended
    assert word in ended.stderr


def test_a_token_comes_from_its_file(tenuto: Tenuto, start: Callable[..., Process], tmp_path: Path) -> None:
    server = start("serve", "--with-node", "--sandbox", "none", "--auth", "tokens")
    (tmp_path / "mine").write_text(tenuto("token", "create", "--user", "ada").stdout)
    (tmp_path / "tenuto.toml").write_text(f'[client]\nurl = "{server.url}"\ntoken_file = "mine"\n')
    script(tmp_path, "echo $JOB_USER_ID > out\n")
    assert tenuto("submit", "run.sh", "--service", "example", "--wait", "-o", "out").returncode == 0
    assert (tmp_path / "out" / "out").read_text() == "ada\n"
    (tmp_path / "mine").write_text("tnt_wrong")
    wrong = tenuto("fetch", "1")
    assert (wrong.returncode, "unauthorized" in wrong.stderr) == (2, True)
