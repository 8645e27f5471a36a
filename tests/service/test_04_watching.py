"""Acceptance 4, second half: logs and events, once and as they happen."""

from __future__ import annotations

import json
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tenuto.jobs.metrics import points_in
from tests.service.servers import WAIT_S, Process, eventually


def events(url: str, last: str | None = None) -> Iterator[tuple[str, Any, str]]:
    """(name, body, id) of each event of a stream, until it ends."""
    headers = {} if last is None else {"Last-Event-ID": last}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=WAIT_S) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        fields: dict[str, str] = {}
        for line in stream:
            text = line.decode().rstrip("\n")
            if text.startswith(":"):
                continue
            if text:
                name, _, value = text.partition(": ")
                fields[name] = value
            elif fields:
                yield fields["event"], json.loads(fields["data"]), fields.get("id", "")
                fields = {}


def test_states_are_told_as_they_change_and_again(shared: Process) -> None:
    id = shared.upload("sleep 0.3\n").json["id"]
    told = list(events(f"{shared.url}/jobs/{id}/events"))
    states = [body["status"] for _, body, _ in told]
    assert states[0] == "Queued"
    assert states[-1] == "Completed"
    assert [name for name, _, _ in told] == ["state"] * len(told)
    assert all(body["id"] == id and body["at"].endswith("Z") for _, body, _ in told)
    resumed = list(events(f"{shared.url}/jobs/{id}/events", last=told[1][2]))
    assert resumed == told[2:], "Last-Event-ID continues where it stopped"
    assert list(events(f"{shared.url}/jobs/{id}/events", last=told[-1][2])) == []


def test_a_log_is_followed_to_its_end(shared: Process) -> None:
    id = shared.upload("for i in 1 2 3; do echo line $i; sleep 0.1; done\n").json["id"]
    eventually(lambda: shared.job(id)["status"] in ("Running", "Completed"))
    told = list(events(f"{shared.url}/jobs/{id}/logs?follow=true"))
    assert "".join(body["text"] for name, body, _ in told if name == "log") == "line 1\nline 2\nline 3\n"
    assert told[-1][0] == "end"
    assert told[-1][1]["status"] == "Completed"


def test_a_log_is_read_in_pieces_during_and_after_the_job(shared: Process) -> None:
    id = shared.upload("echo out; echo err >&2; exec sleep 1000\n").json["id"]
    eventually(lambda: shared.job(id)["status"] == "Running")
    eventually(lambda: shared.get(f"/jobs/{id}/logs").body == b"out\n")
    eventually(lambda: shared.get(f"/jobs/{id}/logs?stream=stderr").body == b"err\n")
    shared.post(f"/terminate/{id}")
    answer = shared.get(f"/jobs/{id}/logs?offset=1")
    assert answer.body == b"ut\n"
    assert answer.headers["tenuto-next-offset"] == "4"
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert shared.get(f"/jobs/{id}/logs?stream=other").status == 400
    assert shared.get(f"/jobs/{id}/logs?offset=-1").status == 400


def test_a_queued_job_has_no_log(shared: Process) -> None:
    first = shared.upload("exec sleep 1000\n", service="one", user="77").json["id"]
    queued = shared.upload("true\n", service="one", user="77").json["id"]
    assert shared.get(f"/jobs/{queued}/logs").json["error"] == "not_started"
    shared.post(f"/terminate/{queued}")
    shared.post(f"/terminate/{first}")


def test_figures_are_counted(shared: Process) -> None:
    id = shared.run("true\n")["id"]
    assert id
    text = shared.get("/metrics").body.decode()
    assert 'tenuto_service_jobs{service="example",state="Completed"}' in text
    assert 'tenuto_service_uploads_total{outcome="accepted",service="example"}' in text
    assert 'tenuto_service_node_up{node="local"} 1.0' in text
    assert 'tenuto_service_http_seconds_bucket{code="201",le="0.005",route="/upload"}' in text


def test_the_result_has_the_metrics_that_a_program_appended(shared: Process, tmp_path: Path) -> None:
    line = '{"name": "loss", "value": 0.5}'
    id = shared.upload(f"cd /; for i in 1 2; do echo '{line}' >> \"$JOB_METRICS\"; done\n").json["id"]
    eventually(lambda: shared.job(id)["status"] == "Completed")
    (tmp_path / "result.zip").write_bytes(shared.get(f"/download/{id}").body)
    with zipfile.ZipFile(tmp_path / "result.zip") as result:
        points = points_in(result.read(".tenuto/metrics.jsonl"))
    assert [(point.step, point.value) for point in points["loss"]] == [(0, 0.5), (1, 0.5)]


def test_metrics_are_given_while_a_job_runs_and_after(shared: Process, tmp_path: Path) -> None:
    release = tmp_path / "release"
    line = '{"name": "loss", "value": 0.5}'
    wait = f"until [ -e {release} ]; do sleep 0.05; done"
    id = shared.upload(
        f"echo '{line}' >> \"$JOB_METRICS\"; {wait}; echo '{line}' >> \"$JOB_METRICS\"\n"
    ).json["id"]
    eventually(lambda: shared.get(f"/jobs/{id}/points").body == f"{line}\n".encode())
    first = shared.get(f"/jobs/{id}/points")
    assert first.headers["content-type"] == "application/x-ndjson"
    tmp_path.chmod(0o755)
    release.touch()
    eventually(lambda: shared.job(id)["status"] == "Completed")
    rest = shared.get(f"/jobs/{id}/points?offset={first.headers['tenuto-next-offset']}")
    assert rest.body == f"{line}\n".encode()
    assert shared.get(f"/jobs/{id}/points?offset=-1").status == 400
    none = shared.upload("true\n").json["id"]
    eventually(lambda: shared.job(none)["status"] == "Completed")
    assert shared.get(f"/jobs/{none}/points").body == b""


def test_metrics_that_are_a_link_to_another_file_are_left_out(shared: Process, tmp_path: Path) -> None:
    secret = tmp_path / "metrics.jsonl"
    secret.write_text('{"name": "secret", "value": 1}\n')
    for script in (f"ln -s {secret} $JOB_METRICS\n", f"rmdir .tenuto && ln -s {tmp_path} .tenuto\n"):
        id = shared.upload(script).json["id"]
        eventually(lambda id=id: shared.job(id)["status"] == "Completed")
        (tmp_path / "result.zip").write_bytes(shared.get(f"/download/{id}").body)
        with zipfile.ZipFile(tmp_path / "result.zip") as result:
            assert ".tenuto/metrics.jsonl" not in result.namelist()
