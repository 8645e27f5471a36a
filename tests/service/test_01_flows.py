"""Acceptance 1 and 2: the nine flows by real curl, and the codes of three generations."""

from __future__ import annotations

import io
import json
import subprocess
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.service.servers import Process, eventually


@pytest.fixture(autouse=True)
def _parts(require: Callable[[str], None]) -> None:
    require("curl")
    require("unzip")


def curl(*arguments: str, cwd: Path) -> str:
    return subprocess.run(
        ["curl", "-s", "--max-time", "60", *arguments], cwd=cwd, capture_output=True, text=True, check=True
    ).stdout


def script(directory: Path, text: str) -> None:
    (directory / "run.sh").write_text(text)


def submitted(server: Process, directory: Path, text: str, service: str = "example", user: int = 1) -> int:
    script(directory, text)
    fields = ["-F", f"user_id={user}", "-F", f"service={service}", "-F", "file=@run.sh"]
    return int(json.loads(curl("-X", "POST", f"{server.url}/upload", *fields, cwd=directory))["id"])


def test_submit(shared: Process, tmp_path: Path) -> None:
    script(tmp_path, "cat input.txt > output.txt\n")
    (tmp_path / "input.txt").write_text("data")
    fields = "-F user_id=1 -F service=example -F files=@run.sh -F files=@input.txt".split()
    said = curl("-w", "\n%{http_code}", "-X", "POST", f"{shared.url}/upload", *fields, cwd=tmp_path)
    body, code = said.rsplit("\n", 1)
    assert code == "201"
    assert json.loads(body) == {
        "id": json.loads(body)["id"], "status": "Queued", "message": "Job successfully uploaded",
    }  # fmt: skip


def test_poll_by_codes_then_unpack(shared: Process, tmp_path: Path) -> None:
    """v1: `curl -I` until the code is 200."""
    go = tmp_path / "go"
    id = submitted(shared, tmp_path, f"until [ -e {go} ]; do sleep 0.05; done; echo done > out.txt\n")

    def code() -> str:
        head = ["-I", "-o", "/dev/null", "-w", "%{http_code}", f"{shared.url}/download/{id}"]
        return curl(*head, cwd=tmp_path)

    assert code() == "202"
    go.touch()
    eventually(lambda: code() == "200")
    curl("-o", "results.zip", f"{shared.url}/download/{id}", cwd=tmp_path)
    subprocess.run(["unzip", "-q", "results.zip", "-d", "results"], cwd=tmp_path, check=True)
    assert (tmp_path / "results" / "out.txt").read_text() == "done\n"
    assert (tmp_path / "results" / "run.sh").exists(), "inputs are included"
    assert json.loads((tmp_path / "results" / ".tenuto" / "job.json").read_text())["exit_code"] == 0


def test_poll_by_body(shared: Process, tmp_path: Path) -> None:
    """v2: the body is a ZIP, or says where the job stands."""
    go = tmp_path / "go"
    id = submitted(shared, tmp_path, f"until [ -e {go} ]; do sleep 0.05; done; echo done > out.txt\n")

    def kind() -> str:
        return curl("-o", "body", "-w", "%{content_type}", f"{shared.url}/download/{id}", cwd=tmp_path)

    def status() -> str:
        assert kind() == "application/json"
        return str(json.loads((tmp_path / "body").read_text())["status"])

    eventually(lambda: status() == "Running")
    go.touch()
    eventually(lambda: kind() == "application/zip")
    assert zipfile.ZipFile(tmp_path / "body").read("out.txt") == b"done\n"


def test_cancel(shared: Process, tmp_path: Path) -> None:
    id = submitted(shared, tmp_path, "sleep 1000\n")
    eventually(lambda: shared.job(id)["status"] == "Running")
    said = json.loads(curl("-X", "POST", f"{shared.url}/terminate/{id}", cwd=tmp_path))
    assert said == {"id": id, "status": "Killed", "message": "job terminated"}
    again = curl("-w", "%{http_code}", "-X", "POST", f"{shared.url}/terminate/{id}", cwd=tmp_path)
    assert again.endswith("409")
    assert json.loads(again[:-3])["error"] == "already_ended"


def test_partial(shared: Process, tmp_path: Path) -> None:
    id = submitted(shared, tmp_path, "echo half > half.txt; echo said; exec sleep 1000\n")
    eventually(lambda: shared.job(id)["status"] == "Running")

    def partial() -> zipfile.ZipFile:
        where = f"{shared.url}/download_partial/{id}"
        assert curl("-o", "partial.zip", "-w", "%{http_code}", where, cwd=tmp_path) == "200"
        return zipfile.ZipFile(io.BytesIO((tmp_path / "partial.zip").read_bytes()))

    eventually(lambda: "half.txt" in partial().namelist())
    assert partial().read("half.txt") == b"half\n"
    assert partial().read(".tenuto/stdout") == b"said\n"
    shared.post(f"/terminate/{id}")
    assert partial().read("half.txt") == b"half\n", "of a job that was ended, what it left"


def test_quota(shared: Process, tmp_path: Path) -> None:
    first = submitted(shared, tmp_path, "sleep 1000\n", "one")
    eventually(lambda: shared.job(first)["status"] == "Running")
    second = submitted(shared, tmp_path, "true\n", "one")
    said = json.loads(curl(f"{shared.url}/download/{second}", cwd=tmp_path))
    assert said == {"id": second, "status": "Queued", "message": "user 1 has 1 of 1 jobs running"}
    assert json.loads(curl(f"{shared.url}/jobs/{second}", cwd=tmp_path))["message"] == said["message"]
    assert shared.get(f"/download_partial/{second}").json["error"] == "not_started"
    other = submitted(shared, tmp_path, "true\n", "one", user=2)
    assert shared.final(other)["status"] == "Completed", "another user is not held up"
    shared.post(f"/terminate/{first}")
    assert shared.final(second)["status"] == "Completed"


def test_cancel_while_queued(shared: Process, tmp_path: Path) -> None:
    first = submitted(shared, tmp_path, "sleep 1000\n", "one", user=7)
    second = submitted(shared, tmp_path, "touch ran\n", "one", user=7)
    assert shared.post(f"/terminate/{second}").json["status"] == "Killed"
    shared.post(f"/terminate/{first}")
    assert shared.get(f"/download/{second}").status == 410


def test_node_by_hand(shared_node: Process, tmp_path: Path) -> None:
    """A node is driven without any server: submit, retrieve, kill, load, health."""
    url = shared_node.url

    def submit(text: str) -> int:
        script(tmp_path, text)
        said = json.loads(curl("-X", "POST", f"{url}/submit", "-F", "file=@run.sh", cwd=tmp_path))
        assert said["status"] == "Prepared"
        return int(said["id"])

    def status(id: int, known: str) -> str:
        said = curl(f"{url}/retrieve/{id}?wait=5&known={known}", cwd=tmp_path)
        return str(json.loads(said)["status"])

    first = submit("echo done > out.txt\n")
    eventually(
        lambda: (
            curl("-o", "got.zip", "-w", "%{content_type}", f"{url}/retrieve/{first}?wait=5", cwd=tmp_path)
            == "application/zip"
        )
    )
    subprocess.run(["unzip", "-q", "got.zip", "-d", "got"], cwd=tmp_path, check=True)
    assert (tmp_path / "got" / "out.txt").read_text() == "done\n"
    second = submit("exec sleep 1000\n")
    eventually(lambda: status(second, "Prepared") == "Running")
    curl("-X", "POST", f"{url}/kill/{second}", cwd=tmp_path)
    eventually(lambda: status(second, "Running") == "Killed")
    assert 0 <= float(curl(f"{url}/load", cwd=tmp_path)) <= 100
    health = json.loads(curl(f"{url}/health", cwd=tmp_path))
    assert (health["status"], "tenuto" in health, "slots" in health) == ("ok", True, True)


def test_names_that_lead_elsewhere_never_leave_the_node(shared: Process, tmp_path: Path) -> None:
    """Acceptance 16: unzip lists no name that would be written outside its directory."""
    odd = [
        r"touch '..\evil' 'c:\evil' '..%2fevil' $'new\nline' $'\033[31m' ...",
        "mkdir -p a/b; echo x > a/b/inside; ln -s /etc/passwd passwd; ln -s ../../.. up; mkfifo pipe",
    ]
    id = submitted(shared, tmp_path, "\n".join(odd) + "\n")
    assert shared.final(id)["status"] == "Completed"
    curl("-o", "results.zip", f"{shared.url}/download/{id}", cwd=tmp_path)
    listed = subprocess.run(
        ["unzip", "-Z1", "results.zip"], cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert "a/b/inside" in listed
    assert not [name for name in listed if name.startswith(("/", "up", "passwd", "pipe"))]
    assert not [name for name in listed if "\\" in name or ".." in name.split("/") or ":" in name]
    (tmp_path / "into").mkdir()
    subprocess.run(["unzip", "-q", "results.zip", "-d", "into/here"], cwd=tmp_path, check=True)
    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"run.sh", "results.zip", "into"}
    assert {path.name for path in (tmp_path / "into").iterdir()} == {"here"}


def test_probes(shared: Process, tmp_path: Path) -> None:
    assert json.loads(curl(shared.url, cwd=tmp_path)) == {"message": "pong"}
    assert json.loads(curl(f"{shared.url}/health", cwd=tmp_path)) == {"status": "ok", "database": "ok"}
    described = json.loads(curl(f"{shared.url}/openapi.json", cwd=tmp_path))
    assert described["openapi"].startswith("3.1")
    assert "/upload" in described["paths"]
    page = curl(f"{shared.url}/swagger", cwd=tmp_path)
    assert "<script" not in page
    assert "/download/{id}" in page


OWN_TO_EACH = {"date", "x-request-id"}


@pytest.mark.parametrize(
    ("script", "code"), [("head -c 30000000 /dev/urandom > large\n", 200), ("exit 7\n", 410)]
)
def test_head_is_the_answer_without_its_body(shared: Process, script: str, code: int) -> None:
    """Acceptance 2."""
    id = shared.run(script)["id"]
    full, head = shared.get(f"/download/{id}"), shared.request("HEAD", f"/download/{id}")
    assert (full.status, head.status, head.body) == (code, code, b"")
    said, told = (
        {name.lower(): value for name, value in answer.headers.items() if name.lower() not in OWN_TO_EACH}
        for answer in (full, head)
    )
    assert told == said
    assert int(said["content-length"]) == len(full.body)
