"""Acceptance 8, 11 and part of 6: server and node apart; nodes die, are wiped, and lose answers."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.service.multipart import CONTENT_TYPE, body, field, file
from tests.service.proxy import Proxy
from tests.service.servers import Process, eventually

Start = Callable[..., Process]
pytestmark = pytest.mark.slow


def node(start: Start, directory: Path, *more: str) -> Process:
    directory.mkdir(exist_ok=True)
    return start("node", "--sandbox", "none", *more, cwd=directory)


def server(start: Start, directory: Path, *urls: str, **settings: object) -> Process:
    directory.mkdir(exist_ok=True)
    lines = [f"{name} = {value}" for name, value in settings.items()]
    names = ", ".join(f'"{url}"' for url in urls)
    text = (
        "[service]\n"
        + "\n".join(lines)
        + f"\n[services.example]\nnodes = [{names}]\nruns_per_user = 50\nmax_runs = 50\n"
        + f'[node]\ndata = "{directory.parent}/n/node"\n'
    )
    (directory / "tenuto.toml").write_text(text)
    return start("serve", cwd=directory)


def result(served: Process, id: int) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(served.get(f"/download_partial/{id}").body))


def test_a_node_that_is_killed_comes_back_and_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    worker = node(start, tmp_path / "n")
    port = worker.url.rpartition(":")[2]
    served = server(start, tmp_path / "s", worker.url)
    script = f"echo start >> ledger; until [ -e {tmp_path}/go ]; do sleep 0.05; done\n"
    id = served.upload(script).json["id"]
    eventually(lambda: served.job(id)["status"] == "Running")
    eventually(lambda: "ledger" in result(served, id).namelist())
    worker.kill()
    eventually(lambda: served.job(id)["status"] == "Unknown")
    assert served.get(f"/download/{id}").status == 503
    queued = served.upload("echo start >> ledger\n").json["id"]
    (tmp_path / "go").touch()
    node(start, tmp_path / "n", "--port", port)
    for one in (id, queued):
        assert served.final(one)["status"] == "Completed"
        assert result(served, one).read("ledger") == b"start\n"


def test_the_largest_upload_fits_into_its_node(start: Start, tmp_path: Path) -> None:
    """On its way there are more words around each file than the user sent."""
    (tmp_path / "n").mkdir()
    (tmp_path / "n" / "tenuto.toml").write_text("[service]\nmax_upload_bytes = 20000\n")
    worker = node(start, tmp_path / "n")
    served = server(start, tmp_path / "s", worker.url, max_upload_bytes=20_000)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("inputs", bytes(19_900))
        for n in range(60):
            archive.writestr(f"input-{n}", b"")
    parts = [field("user_id", "1"), field("service", "example"), field("unpack", "in.zip")]
    parts += [file("run.sh", b"ls | wc -l\n"), file("in.zip", packed.getvalue())]
    answer = served.request("POST", "/upload", body(*parts), {"Content-Type": CONTENT_TYPE})
    assert answer.status == 201, answer
    job = served.final(answer.json["id"])
    assert (job["status"], job["message"]) == ("Completed", "")
    assert result(served, job["id"]).read(".tenuto/stdout") == b"62\n"


def test_a_node_has_a_certificate_of_an_own_authority(start: Start, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    names = ["-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", "key.pem"]
    subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "1",
            *names,
            "-out",
            "cert.pem",
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    authority, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    worker = node(start, tmp_path / "n", "--tls-cert", authority, "--tls-key", key)
    assert worker.url.startswith("https://")
    stranger = server(start, tmp_path / "s", worker.url, send_for_s=0)
    job = stranger.run("true\n")
    assert (job["status"], "certificate" in job["message"]) == ("Failed", True)
    assert stranger.stop() == 0
    served = start("serve", cwd=tmp_path / "s", env={"SSL_CERT_FILE": authority})
    assert served.run("true\n")["status"] == "Completed"


def test_jobs_go_to_the_node_that_answers(start: Start, tmp_path: Path) -> None:
    """Failover: the first node is not there."""
    worker = node(start, tmp_path / "n")
    served = server(start, tmp_path / "s", "http://127.0.0.1:9", worker.url)
    ids = [served.upload("true\n").json["id"] for _ in range(4)]
    assert [served.final(id)["status"] for id in ids] == ["Completed"] * 4
    assert {served.job(id)["node"] for id in ids} == {worker.url}


def test_without_any_node_a_job_fails_with_the_reason(start: Start, tmp_path: Path) -> None:
    """The seed's behaviour, with send_for_s = 0."""
    served = server(start, tmp_path / "s", "http://127.0.0.1:9", send_for_s=0)
    job = served.run("true\n")
    assert job["status"] == "Failed"
    assert "no node took the job" in job["message"]


def test_a_node_that_was_wiped_lost_its_jobs_and_gives_no_others(start: Start, tmp_path: Path) -> None:
    """Acceptance 11: wiped, and replaced by another at the same URL, whose payload 1 is another job's."""
    worker = node(start, tmp_path / "n")
    port = worker.url.rpartition(":")[2]
    served = server(start, tmp_path / "s", worker.url)
    ids = [served.upload("exec sleep 1000\n").json["id"] for _ in range(2)]
    eventually(lambda: all(served.job(id)["status"] == "Running" for id in ids))
    for id in ids:
        served.job(id)
    worker.kill()
    shutil.move(tmp_path / "n" / "node", tmp_path / "lost")
    served.signal(signal.SIGSTOP)
    replaced = node(start, tmp_path / "n", "--port", port)
    stranger = server(start, tmp_path / "other", replaced.url)
    assert stranger.run("echo stranger > out\n")["status"] == "Completed"  # payload 1 there
    served.signal(signal.SIGCONT)
    for id in ids:
        job = served.final(id)
        assert (job["status"], job["message"]) == ("Failed", "the node lost the job")
    fresh = served.run("echo fresh > out\n")
    assert result(served, fresh["id"]).read("out") == b"fresh\n"
    for pid in (tmp_path / "lost").rglob("payload.pid"):
        os.kill(json.loads(pid.read_text())["pid"], signal.SIGKILL)


def test_two_servers_share_a_node_and_each_gets_its_own_results(start: Start, tmp_path: Path) -> None:
    """Acceptance 11: both call their first job 1; and a server whose database was wiped calls it so again."""
    worker = node(start, tmp_path / "n")
    for name in ("a", "b", "a"):
        served = server(start, tmp_path / name, worker.url)
        job = served.run(f"echo {name} > out; echo run >> out\n")
        assert job["id"] == 1
        assert result(served, 1).read("out") == f"{name}\nrun\n".encode()
        served.kill()
        (tmp_path / name / "db.sqlite").unlink()
        for left in (tmp_path / name).glob("db.sqlite-*"):
            left.unlink()
        shutil.rmtree(tmp_path / name / "data")


@pytest.fixture
def proxies() -> Iterator[list[Proxy]]:
    made: list[Proxy] = []
    yield made
    for proxy in made:
        proxy.close()


@pytest.mark.parametrize(
    "jobs", [12, pytest.param(200, marks=pytest.mark.prove("two hundred jobs through the proxy"))]
)
def test_lost_late_and_cut_answers_start_nothing_twice(
    start: Start, tmp_path: Path, proxies: list[Proxy], jobs: int
) -> None:
    """Acceptance 8: answers are lost, late, cut and doubled, requests repeated; each job is run once."""
    fates = {1: "drop", 3: "slow", 4: "cut", 6: "twice", 9: "again"}

    def spoil(count: int, request: bytes) -> str | None:
        return None if request.startswith(b"GET /health") else fates.get(count % 11)

    worker = node(start, tmp_path / "n")
    proxies.append(Proxy(worker.url, spoil))
    served = server(start, tmp_path / "s", proxies[0].url)
    ledger = tmp_path / "ledger"
    ids = [served.upload(f"echo {n} > out; echo $JOB_ID >> {ledger}\n").json["id"] for n in range(jobs)]
    for n, id in enumerate(ids):
        job = served.final(id, timeout_s=60 + jobs)
        assert job["status"] == "Completed", job
        assert result(served, id).read("out") == f"{n}\n".encode()
    assert sorted(map(int, ledger.read_text().split())) == ids, "each was started once"
    served.stop()


def test_a_node_beyond_loopback_makes_a_secret(start: Start, tmp_path: Path) -> None:
    worker = node(start, tmp_path / "n", "--host", "0.0.0.0")
    token = tmp_path / "n" / "node" / "node.token"
    assert token.stat().st_mode & 0o777 == 0o600
    port = worker.url.rpartition(":")[2]
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "tenuto.toml").write_text(
        f'[nodes.far]\nurl = "http://127.0.0.1:{port}"\ntoken_file = "{token}"\n'
        '[services.example]\nnodes = ["far"]\n'
    )
    served = start("serve", cwd=tmp_path / "s")
    job = served.run("true\n")
    assert (job["status"], job["node"]) == ("Completed", "far")
    assert token.read_text().strip() not in served.log + worker.log


def test_a_server_beside_its_node_reads_the_secret(start: Start, tmp_path: Path) -> None:
    """Also if the node makes it later; without it the node serves nobody."""
    worker = node(start, tmp_path)
    port = worker.url.rpartition(":")[2]
    worker.kill()
    shutil.rmtree(tmp_path / "node")
    (tmp_path / "tenuto.toml").write_text(f'[services.example]\nnodes = ["{worker.url}"]\n')
    served = start("serve", cwd=tmp_path)
    id = served.upload("true\n").json["id"]
    worker = node(start, tmp_path, "--port", port)
    assert served.final(id)["status"] == "Completed"
    assert (tmp_path / "node" / "node.token").stat().st_mode & 0o777 == 0o600
    asked = [("GET", f"/{call}/1") for call in ("find", "retrieve", "retrieve_partial", "logs")]
    asked += [("POST", "/submit"), ("POST", "/kill/1"), ("GET", "/load")]
    for headers in ({}, {"Authorization": "Bearer x"}):
        assert {worker.request(*one, headers=headers).status for one in asked} == {401}
    assert worker.get("/health").status == 200


def test_a_node_that_refuses_its_server_is_down_and_gets_no_jobs(start: Start, tmp_path: Path) -> None:
    """Another secret, and a Host that it does not serve; nothing is wrong with the jobs."""
    well, changed = node(start, tmp_path / "n"), node(start, tmp_path / "other")
    by_number = node(start, tmp_path / "third").url.replace("127.0.0.1", "0.0.0.0")
    served = server(start, tmp_path / "s", changed.url, by_number, well.url)
    ids = [served.upload("true\n").json["id"] for _ in range(20)]
    jobs = [served.final(id) for id in ids]
    assert {(job["status"], job["node"]) for job in jobs} == {("Completed", well.url)}
    for url, why in ((changed.url, "token_file"), (by_number, "Host")):
        eventually(lambda url=url: f'_node_up{{node="{url}"}} 0' in served.get("/metrics").body.decode())
        [line] = [one for one in served.log.splitlines() if "node_down" in one and url in one]
        assert why in line
    served.stop()
    alone = server(start, tmp_path / "s2", changed.url, send_for_s=0)
    job = alone.run("true\n")
    assert job["status"] == "Failed"
    assert "does not serve this server" in job["message"]


@pytest.fixture(params=[302, 404, 405, 501])
def stranger(request: pytest.FixtureRequest) -> Iterator[str]:
    """The URL of a server that is no node."""

    class Stranger(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(404 if self.command == "GET" else request.param)
            self.send_header("Location", "/elsewhere")
            self.end_headers()

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_url_that_leads_to_no_node_gets_no_jobs(start: Start, tmp_path: Path, stranger: str) -> None:
    """It took all of them, since it was never busy: Invalid, or Failed as lost."""
    well = node(start, tmp_path / "n")
    served = server(start, tmp_path / "s", stranger, well.url)
    ids = [served.upload("sleep 0.3\n").json["id"] for _ in range(12)]
    jobs = [served.final(id) for id in ids]
    assert {(job["status"], job["node"]) for job in jobs} == {("Completed", well.url)}
    assert f"node {stranger}: it is no node of a job service" in served.log
    served.stop()
    alone = server(start, tmp_path / "s2", stranger, send_for_s=0)
    job = alone.run("true\n")
    assert job["status"] == "Failed"
    assert "it is no node of a job service" in job["message"]


def test_an_insecure_node_serves_without_its_secret_and_says_so(start: Start, tmp_path: Path) -> None:
    worker = node(start, tmp_path, "--insecure")
    assert worker.get("/load").status == 200
    assert "insecure" in worker.log
    assert not (tmp_path / "node" / "node.token").exists()


@pytest.mark.parametrize(
    ("toml", "arguments", "words"),
    [
        ("[services.x]\nnetwork = true\n", ["--sandbox", "none"], "services.x.network = true"),
        ("", ["--sandbox", "uid"], "sandbox uid"),
        ("", ["--token-file", "t"], "give one of them"),
    ],
)
def test_an_insecure_node_is_refused_where_payloads_could_ask_it(
    tenuto: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    directory: Path,
    toml: str,
    arguments: list[str],
    words: str,
) -> None:
    if "uid" in arguments and os.geteuid() != 0:
        pytest.skip("only root can give payloads a uid of their own")
    monkeypatch.chdir(directory)
    (directory / "tenuto.toml").write_text(toml)
    (directory / "tenuto.toml").chmod(0o600)
    ended = tenuto("node", "--insecure", "--port", "0", *arguments)
    assert ended.returncode == 2
    assert words in ended.stderr
    assert not (directory / "node").exists()
