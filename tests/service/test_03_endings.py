"""Acceptance 3, 4, 7 and 30: how a run.sh may end, and what is downloaded then."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import subprocess
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.service.servers import Process, eventually

OLD_TRAP = "trap 'echo $? > .orchestrator.exit' EXIT\n"


@pytest.mark.parametrize(
    ("script", "status", "code", "words"),
    [
        ("echo x > kept\n", "Completed", 0, ""),
        (OLD_TRAP + "echo x > kept\n", "Completed", 0, ""),
        ("echo x > kept; exec true\n", "Completed", 0, ""),
        ("echo x > kept; exit 7\n", "Failed", 7, "7"),
        (OLD_TRAP + "echo x > kept; exit 7\n", "Failed", 7, "7"),
        ("echo x > kept; kill -SEGV $$\n", "Failed", None, "SIGSEGV"),
        ("echo x > kept; no-such-command\n", "Failed", 127, "127"),
    ],
)
def test_an_end_is_told_with_its_code_and_its_files(
    shared: Process, script: str, status: str, code: int | None, words: str
) -> None:
    job = shared.run(script + ("" if script.endswith("\n") else "\n"))
    assert (job["status"], job["exit_code"]) == (status, code), job
    assert words in job["message"]
    if status == "Failed":  # acceptance 30: also where its stderr is
        told = shared.get(job["message"].partition("its stderr: ")[2])
        assert (told.status, "no-such" in script) == (200, b"no-such-command" in told.body)
    answer = shared.get(f"/download_partial/{job['id']}")
    made = zipfile.ZipFile(io.BytesIO(answer.body))
    assert made.read("kept") == b"x\n"
    said = json.loads(made.read(".tenuto/job.json"))
    assert (said["id"], said["status"], said["exit_code"]) == (job["id"], status, code)
    assert shared.get(f"/download/{job['id']}").status == (200 if status == "Completed" else 410)


def test_the_environment_of_a_payload_is_clean(shared: Process) -> None:
    who = "{ echo $JOB_ID $JOB_SERVICE $JOB_USER_ID; pwd -P; echo $HOME; } > who.txt; "
    job = shared.run("env | cut -d= -f1 > env.txt; " + who + "! read -t 1 x\n")
    made = zipfile.ZipFile(io.BytesIO(shared.get(f"/download/{job['id']}").body))
    names = set(made.read("env.txt").decode().split())
    allowed = set(
        "PATH LANG TZ HOME JOB_ID JOB_SERVICE JOB_USER_ID JOB_ATTEMPT JOB_METRICS PWD SHLVL _ OLDPWD".split()
    )
    extra = {name for name in names - allowed if not name.startswith("LC_")}
    assert extra <= {"_TENUTO_ATTEMPT"}, extra
    first, where, home = made.read("who.txt").decode().splitlines()
    assert first == f"{job['id']} example 1"
    assert where == home


def test_ranges_and_resumed_downloads(
    shared: Process, tmp_path: Path, require: Callable[[str], None]
) -> None:
    """Acceptance 4."""
    require("curl")
    job = shared.run("head -c 300000 /dev/urandom > data\n")
    path = f"/download/{job['id']}"
    whole = shared.get(path)
    digest = hashlib.sha256(whole.body).hexdigest()
    assert whole.headers["etag"] == f'"{digest}"'
    assert digest == job["result_sha256"]
    assert len(whole.body) == job["result_bytes"]
    part = shared.get(path, Range="bytes=100-199")
    assert (part.status, part.body) == (206, whole.body[100:200])
    assert part.headers["content-range"] == f"bytes 100-199/{len(whole.body)}"
    several = shared.get(path, Range="bytes=0-9,20-29")
    assert several.status == 206
    assert several.headers["content-type"].startswith("multipart/byteranges")
    changed = shared.get(path, **{"Range": "bytes=0-9", "If-Range": '"other"'})
    assert (changed.status, len(changed.body)) == (200, len(whole.body))
    assert shared.get(path, **{"If-None-Match": f'"{digest}"'}).status == 304
    assert shared.get(path, **{"If-None-Match": "*"}).status == 304
    assert shared.get(path, Range="bytes=99999999-").status == 416
    for none in ("bytes=x-y", "bytes=9-1", "rows=1-2", "bytes", "1-2"):
        ignored = shared.get(path, Range=none)
        assert (ignored.status, ignored.body) == (200, whole.body), none
    (tmp_path / "cut.zip").write_bytes(whole.body[:1000])
    subprocess.run(["curl", "-s", "-C", "-", "-o", "cut.zip", shared.url + path], cwd=tmp_path, check=True)
    assert (tmp_path / "cut.zip").read_bytes() == whole.body


def test_a_waiting_download_comes_with_the_end(shared: Process) -> None:
    id = shared.upload("sleep 0.5\n").json["id"]
    assert shared.get(f"/download/{id}?wait=60").status == 200


VICTIMS = [("payload", "SIGKILL"), ("runner", ""), ("payload child runner", "")]


@pytest.mark.parametrize(("victims", "word"), VICTIMS)
def test_07_a_job_whose_processes_are_killed_is_failed_and_its_place_is_free(
    shared: Process, victims: str, word: str
) -> None:
    """Acceptance 7: never run again, the reason is told, and no process is left."""
    _, job = killed(shared, victims)
    assert job["status"] == "Failed"
    assert job["message"]
    assert word in job["message"]


@pytest.mark.prove("it measures time")
@pytest.mark.parametrize(("victims", "word"), VICTIMS)
def test_07_the_end_of_a_killed_job_is_told_within_five_seconds(
    shared: Process, victims: str, word: str
) -> None:
    assert killed(shared, victims)[0] <= 5.0


def killed(shared: Process, victims: str) -> tuple[float, dict[str, Any]]:
    """How long it takes until a job is over, once these of its processes were killed, and that job."""
    script = "echo start >> ledger; sleep 1000 & echo payload $$ runner $PPID child $! > pids; wait\n"
    id = shared.upload(script, service="one", user="77").json["id"]

    def pids() -> dict[str, int]:
        answer = shared.get(f"/download_partial/{id}")
        if answer.status != 200:
            return {}
        made = zipfile.ZipFile(io.BytesIO(answer.body))
        words = made.read("pids").decode().split() if "pids" in made.namelist() else []
        return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}

    found = eventually(pids)
    for victim in victims.split():
        os.kill(found[victim], signal.SIGKILL)
    began = time.monotonic()
    job = shared.final(id)
    took_s = time.monotonic() - began
    made = zipfile.ZipFile(io.BytesIO(shared.get(f"/download_partial/{id}").body))
    assert made.read("ledger") == b"start\n"
    eventually(lambda: not any(is_running(pid) for pid in found.values()))
    assert shared.run("true\n", service="one", user="77")["status"] == "Completed", "its place is free"
    return took_s, job


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
