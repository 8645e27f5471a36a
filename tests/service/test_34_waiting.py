"""Why a job waits: its place in the queue, and when it is expected to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from tests.service.servers import Process, eventually


def test_a_queued_job_tells_its_place_and_its_start(start: Callable[..., Process], tmp_path: Path) -> None:
    (tmp_path / "tenuto.toml").write_text(
        "[services.example]\nruns_per_user = 1\nmax_runs = 1\n[node]\nslots = 1\n"
    )
    server = start("serve", "--with-node", "--sandbox", "none")
    gate = tmp_path / "gate"
    hold = f"while [ ! -e {gate} ]; do sleep 0.05; done\n"
    first = server.upload(hold).json["id"]
    eventually(lambda: server.job(first)["status"] == "Running")
    second = server.upload().json["id"]
    told = server.job(second)
    assert (told["position"], told["expected_start"]) == (1, None), "nothing has run yet"
    assert server.job(first)["position"] is None
    gate.touch()
    server.final(second)
    gate.unlink()
    running = server.upload(hold).json["id"]
    eventually(lambda: server.job(running)["status"] == "Running")
    waiting = [server.upload(user=user).json["id"] for user in ("1", "1", "2")]
    assert [server.job(one)["position"] for one in waiting] == [2, 3, 1], "the other user is next"
    expected = [datetime.fromisoformat(server.job(one)["expected_start"]) for one in waiting]
    assert expected[2] < expected[0] < expected[1]
    assert abs((expected[1] - datetime.now(UTC)).total_seconds()) < 600
    assert server.get(f"/jobs/{waiting[0]}").json["message"] == "user 1 has 1 of 1 jobs running"

    def why(*more: str) -> str:
        command = [sys.executable, "-m", "tenuto", "why", f"example#{waiting[0]}", *more]
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_")}
        return subprocess.run(
            command, cwd=tmp_path, env=clean, check=True, capture_output=True, text=True, timeout=60
        ).stdout

    eventually(lambda: "expected to start" in why())
    text = why()
    assert "its place in the queue of example is 2" in text
    assert "user 1 has 1 of 1 jobs running" in text
    found = json.loads(why("--json"))
    assert found["position"] == 2
    assert datetime.fromisoformat(found["expected_start"]).tzinfo is not None
    gate.touch()
    assert [server.final(one)["position"] for one in waiting] == [None, None, None]
