"""A node of the job service whose payloads a private Slurm runs."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.parts.slurm import PrivateSlurm
from tests.service.servers import Process, eventually

START = """launcher = "slurm"
[slurm]
poll_s = 0.5
beat_s = 1
max_jobs = 3
[services.example]
walltime_s = 120
memory_bytes = "200M"
[services.wide]
cpus = 2
"""
WHERE = "echo ran >> {0}; echo $SLURM_JOB_ID $SLURM_CPUS_PER_TASK $(hostname) > where; cat in > out\n"
Start = Callable[..., Process]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that the uids of payloads may pass through; pytest's own is closed to them."""
    made = Path(tempfile.mkdtemp(prefix="tn-slurm-service-", dir="/tmp"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def start(slurm: PrivateSlurm, place: Path) -> Iterator[Start]:
    started: list[Process] = []

    def start(command: str, *arguments: str) -> Process:
        (place / command).mkdir(exist_ok=True)
        process = Process(command, *arguments, "--port", "0", cwd=place / command, env=slurm.environment)
        started.append(process)
        return process

    yield start
    for process in started:
        process.close()


def served(start: Start, place: Path, sandbox: str = "none") -> tuple[Process, Process]:
    """A node on a cluster, and its server."""
    (place / "node").mkdir()
    (place / "node" / "tenuto.toml").write_text(START)
    node = start("node", "--sandbox", sandbox)
    (place / "serve").mkdir()
    (place / "serve" / "tenuto.toml").write_text(
        f'[nodes.far]\nurl = "{node.url}"\ntoken_file = "{place}/node/node/node.token"\n'
        '[services.example]\nnodes = ["far"]\n[services.wide]\nnodes = ["far"]\ncpus = 2\n'
    )
    return node, start("serve")


@pytest.mark.watchdog(300)
def test_payloads_run_on_the_cluster_once_also_when_the_node_dies(
    slurm: PrivateSlurm, start: Start, place: Path
) -> None:
    node, server = served(start, place)
    assert node.get("/health").json["slots"] == 3, "those of the cluster"
    ledger = place / "ledger"
    first = server.run(WHERE.format(ledger), files={"in": b"hello"})
    assert first["status"] == "Completed", first
    assert server.get(f"/jobs/{first['id']}/files/out").body == b"hello"
    assert server.get(f"/jobs/{first['id']}/files/where").body.split()[0].isdigit()
    wide = server.run(WHERE.format(ledger), files={"in": b""}, service="wide")
    assert wide["status"] == "Completed", wide
    assert server.get(f"/jobs/{wide['id']}/files/where").body.split()[1] == b"2"
    failed = server.run(f"echo ran >> {ledger}; echo why >&2; exit 7\n")
    assert (failed["status"], failed["exit_code"]) == ("Failed", 7)
    assert server.get(f"/jobs/{failed['id']}/logs?stream=stderr").body == b"why\n"

    release = f"echo ran >> {ledger}; until [ -e {place}/go ]; do sleep 0.1; done; echo done > out\n"
    number = server.upload(release).json["id"]
    eventually(lambda: server.job(number)["status"] == "Running")
    port = node.url.rpartition(":")[2]
    node.kill()
    (place / "go").touch()
    node = Process("node", "--sandbox", "none", "--port", port, cwd=place / "node", env=slurm.environment)
    try:
        assert server.final(number)["status"] == "Completed"
        killed = server.upload("sleep 600\n").json["id"]
        eventually(lambda: server.job(killed)["status"] == "Running")
        server.post(f"/terminate/{killed}")
        assert server.final(killed)["status"] == "Killed"
    finally:
        node.signal(signal.SIGTERM)
        node.close()
    assert ledger.read_text().split() == ["ran"] * 4, "each was started once"


@pytest.mark.watchdog(300)
def test_a_payload_on_the_cluster_is_in_its_sandbox(
    start: Start, place: Path, require: Callable[[str], None]
) -> None:
    require("bubblewrap")
    _, server = served(start, place, "bwrap")
    seen = server.run("pwd > where; ls / > root; cat /work/in > out\n", files={"in": b"x"})
    assert seen["status"] == "Completed", seen
    assert server.get(f"/jobs/{seen['id']}/files/where").body == b"/work\n"
    assert b"work" in server.get(f"/jobs/{seen['id']}/files/root").body.split()
    assert seen["cpu_s"] > 0
