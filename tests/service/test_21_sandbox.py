"""Acceptance 21: what a payload tries and must not be able to do, in bubblewrap and with a uid of its own."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenuto.launchers.confinement import COMMON, Sandbox, SandboxMode, choose
from tenuto.launchers.instructions import Limits
from tenuto.lifecycle.service import PayloadState
from tenuto.service.local_node import LocalNode
from tenuto.service.node.node import EmbeddedNode
from tenuto.service.node.work import Terms
from tenuto.workspace.machine import this_machine
from tenuto.workspace.markers import Durability
from tests.conftest import COMPONENTS
from tests.service.asgi import run
from tests.service.node_contract import ref
from tests.service.servers import Process, eventually
from tests.service.test_05_nodes import ended, job, plan

P = PayloadState

ATTEMPTS = {
    "read another job": "cat {other}/secret",
    "read the result of another job": "head -c 1 {result}",
    "list other jobs": "ls {jobs}",
    "read the database": "head -c 1 {data}/node.sqlite",
    "read the node's secret": "cat {data}/node.token",
    "write beside its directory": "echo x > ../result.zip",
    "forge a marker": "echo '{{}}' > ../payload.done",
    "read its own records": "cat ../.tenuto/launch.json",
    "write into the system": "echo x > /etc/tenuto-was-here",
    "write into the home of root": "echo x > /root/tenuto-was-here",
    "see the node's environment": "tr '\\0' '\\n' < /proc/{node}/environ | grep -q PATH",
    "kill the node": "kill -0 {node}",
    "kill its runner": "kill -0 {runner}",
    "become root": "su root -c true < /dev/null",
    "mount": "mount -t tmpfs x /mnt",
    "read the environment of another job": "grep -q JOB_ID /proc/{neighbour}/environ",
    "stop another job": "kill -0 {neighbour}",
    "read the memory of another job": "head -c 1 /proc/{neighbour}/mem",
    "see the files that another job has open": "ls /proc/{neighbour}/fd",
    "delete the system": "rm /bin/true || rm -r /etc/passwd",
    "let cron run it later": "echo '* * * * * root true' > /etc/cron.d/tenuto-was-here",
}
ONLY_IN_BWRAP = {
    "reach the network": "exec 3<>/dev/tcp/127.0.0.1/{port}",
    "see other processes": "ls /proc | grep -qx {node}",
    "leave a file in the common /tmp": "touch {common} && false",
}


@pytest.fixture(params=["bwrap", "uid"])
def sandbox(request: pytest.FixtureRequest, directory: Path, require: Callable[[str], None]) -> Sandbox:
    if request.param == "bwrap":
        require("bubblewrap")
    elif os.geteuid() != 0:
        pytest.skip("only root can give payloads a uid of their own")
    return choose(request.param, str(directory), must=True)


def test_a_payload_cannot_harm_the_node_or_see_other_jobs(sandbox: Sandbox, directory: Path) -> None:
    """H26."""
    assert could(sandbox, directory) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give payloads a uid of their own")
def test_what_a_payload_leaves_in_common_places_goes_with_it(directory: Path, tmp_path: Path) -> None:
    """S3-14: in the sandbox `uid` /tmp and its like are the machine's."""
    name = f"tenuto-test-{os.getpid()}"
    kept = Path("/tmp", f"{name}-of-another")
    kept.write_text("another's")

    async def main() -> None:
        embedded = EmbeddedNode(
            replace(plan(directory / "node"), sandbox=Sandbox(SandboxMode.UID, True)), this_machine()
        )
        await embedded.start()
        node = LocalNode(embedded)
        script = "".join(
            f"mkdir -p {place}/{name}/a; echo x > {place}/{name}/a/x; echo x > {place}/{name}-file; "
            f"ln -s /etc {place}/{name}-link; ls -d {place}/{name}* >> made\n"
            for place in COMMON
        )
        sent = job(directory, script)
        await ended(node, ref(await node.submit(sent), sent), directory / "got.zip")
        assert zipfile.ZipFile(directory / "got.zip").read("made").count(b"\n") >= 9
        await embedded.close()

    try:
        run(main())
        left = [path for place in COMMON for path in Path(place).glob(f"{name}*")]
        assert left == [kept]
    finally:
        kept.unlink()


def could(sandbox: Sandbox, directory: Path) -> list[str]:
    """The attempts that a payload succeeds with; it must at least see and write its own directory."""

    async def main() -> list[str]:
        embedded = EmbeddedNode(replace(plan(directory / "node"), sandbox=sandbox), this_machine())
        await embedded.start()
        node = LocalNode(embedded)
        other = job(directory, "exec sleep 100\n", "other")
        (Path(other.directory) / "secret").write_text("secret")
        first = ref(await node.submit(other), other)
        finished = job(directory, "echo secret\n", "done")
        done = ref(await node.submit(finished), finished)
        await ended(node, done, directory / "done.zip")
        while not (pid := neighbour(embedded)):
            await node.retrieve(first, P.RUNNING, 0.05, "")
        (directory / "node" / "node.token").write_text("secret")
        (directory / "node" / "node.token").chmod(0o600)
        places = {
            "other": embedded.runner.place("other").work,
            "result": embedded.runner.place("done").result,
            "jobs": directory / "node" / "jobs" / "payload",
            "data": directory / "node",
            "node": os.getpid(),
            "neighbour": pid,
            "runner": "$PPID" if sandbox.mode is SandboxMode.UID else os.getppid(),
            "port": 9,
            "common": directory / "common",
        }
        attempts = {**ATTEMPTS, **(ONLY_IN_BWRAP if sandbox.mode is SandboxMode.BWRAP else {})}
        script = "id -u > uid; echo works > own\n"
        for name, attempt in attempts.items():
            script += f"({attempt.format(**places)}) > /dev/null 2>&1 && echo '{name}' >> could\n"
        guest = job(directory, script + "true\n", "guest")
        status = await node.submit(guest)
        retrieved = await ended(node, ref(status, guest), directory / "got.zip")
        assert retrieved.status.state is P.COMPLETED, retrieved
        made = zipfile.ZipFile(directory / "got.zip")
        succeeded = made.read("could").decode().splitlines() if "could" in made.namelist() else []
        assert made.read("own") == b"works\n"
        uid = sandbox.uid_of(status.id)
        assert made.read("uid").decode().strip() == str(os.getuid() if uid is None else uid)
        await node.kill(first)
        await ended(node, first, directory / "x.zip")
        await embedded.close()
        return succeeded

    return run(main())


def neighbour(embedded: EmbeddedNode) -> int:
    """The pid of the program of the other job; 0 before it runs."""
    inside = str(embedded.runner.place("other").work)
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            where, name = os.readlink(f"/proc/{pid}/cwd"), Path(f"/proc/{pid}/comm").read_text()
        except OSError:
            continue
        if name == "sleep\n" and where in (inside, "/work"):
            return int(pid)
    return 0


@pytest.mark.slow
def test_a_payload_of_a_node_that_is_not_root_cannot_harm_it_either(require: Callable[[str], None]) -> None:
    """The same attempts and ends, by a node that is an ordinary user; root becomes one in a namespace."""
    require("bubblewrap")
    demoted = "unshare --user --map-user=1000 --map-group=1000".split() if os.geteuid() == 0 else []
    script = (
        "import sys; from pathlib import Path; "
        "from tests.service.test_21_sandbox import choose, could, ends; "
        "import os; assert os.geteuid(); "
        "sandbox, home = choose('bwrap', sys.argv[1], must=True), Path(sys.argv[1]); "
        "ends(sandbox, home / 'ends', with_bomb=False); print(could(sandbox, home))"
    )
    with tempfile.TemporaryDirectory(prefix="tn-user-", dir="/tmp") as home:
        said = subprocess.run(
            [*demoted, sys.executable, "-c", script, home],
            cwd=Path(__file__).parents[2],
            env={"PATH": os.environ["PATH"], "HOME": home},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )
    assert said.stdout == "[]\n", said


def test_a_payload_in_a_sandbox_ends_as_others_do(sandbox: Sandbox, directory: Path) -> None:
    """H27: exit codes, time, memory and processes."""
    assert ends(sandbox, directory) == dict.fromkeys(("code", "never", "memory", "bomb"), P.FAILED)


def ends(sandbox: Sandbox, directory: Path, *, with_bomb: bool = True) -> dict[str, P]:
    """Runs payloads that fail, never end, or take all they can get; each has a state, and says why.

    `with_bomb`: one makes processes without end; the kernel counts none of a user who is root elsewhere.
    """
    directory.mkdir(exist_ok=True)
    states: dict[str, P] = {}

    async def main() -> None:
        limits = Limits(grace_s=0.5)
        terms = {
            "": Terms(limits, Durability.NONE, 40),
            "short": Terms(limits._replace(walltime_s=1.5), Durability.NONE, 40),
            "greedy": Terms(limits._replace(memory_bytes=64 << 20), Durability.NONE, 40),
        }
        services = {"never": "short", "bomb": "short", "memory": "greedy"}
        counted = COMPONENTS["memory cgroups"]()  # else the payload itself meets its limit
        embedded = EmbeddedNode(
            replace(plan(directory / "node"), sandbox=sandbox, terms=terms), this_machine()
        )
        await embedded.start()
        node = LocalNode(embedded)
        for key, script, words in [
            ("code", "exit 7\n", "7"),
            ("never", "trap '' TERM; while :; do sleep 1; done\n", ""),
            ("memory", "head -c 500000000 /dev/zero | tail\n", "memory" if counted else "code 1"),
            *([("bomb", "b() { b | b & }; b; sleep 0.3; exit 3\n", "")] if with_bomb else []),
        ]:
            sent = job(directory, script, key)._replace(service=services.get(key, ""))
            status = await node.submit(sent)
            retrieved = await ended(node, ref(status, sent), directory / f"{key}.zip")
            states[key] = retrieved.status.state
            assert words in retrieved.status.message.lower()
            if key == "never":
                assert "longer than 1.5 s" in retrieved.status.message
        await embedded.close()

    run(main())
    return states


@pytest.fixture
def shown() -> Iterator[Path]:
    """A directory below one that every payload in bubblewrap sees."""
    if not os.access("/opt", os.W_OK):
        pytest.skip("/opt is not ours")
    made = Path(tempfile.mkdtemp(prefix="tn-shown-", dir="/opt"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_root", "how"),
    [(True, "linked"), (True, "plain"), (True, "mounted"), (False, "linked"), (False, "plain")],
)
def test_a_payload_sees_nothing_of_the_service_below_what_it_is_shown(
    start: Callable[..., Process],
    shown: Path,
    directory: Path,
    require: Callable[[str], None],
    is_root: bool,
    how: str,
) -> None:
    """Data, database, settings and secrets below /opt, also through a link or a bind mount."""
    require("bubblewrap")
    base = shown
    if how == "mounted":
        if os.geteuid() != 0:
            pytest.skip("only root may mount")
        base = directory / "a place"
        base.mkdir(mode=0o755)
    python = directory / "python"
    demoted = "" if is_root else "unshare --user --map-user=1000 --map-group=1000"
    mounted = f"mount --bind '{base}' {shown} && exec {sys.executable} \"$@\""
    apart = "unshare --mount sh -c '" + mounted.replace("'", "'\\''") + "' sh"
    python.write_text(
        f'#!/bin/sh\nexec {apart if how == "mounted" else f"{demoted} {sys.executable}"} "$@"\n'
    )
    python.chmod(0o755)
    for name in ("etc", "own", "tools", "own/tools"):
        (base / name).mkdir(mode=0o755)
    (base / "tools" / "tool").write_text("tool")
    (base / "own" / "tools" / "tool").write_text("tool")
    if how == "linked":
        base = directory / "link"
        base.symlink_to(shown)
    (base / "etc" / "far.token").write_text("canary-far")
    (base / "etc" / "node.token").write_text("canary-near")
    (base / "etc" / "mine.token").write_text("canary-mine-too")
    (base / "etc" / "tenuto.toml").write_text(
        f'# canary-password\n[services.example]\npaths = ["{base}/own/tools"]\n'
        f'[nodes.far]\nurl = "http://127.0.0.1:9"\ntoken_file = "{base}/etc/far.token"\n'
        f'[node]\ntoken_file = "{base}/etc/node.token"\n[client]\ntoken_file = "{base}/etc/mine.token"\n'
    )
    for path in base.rglob("*"):
        path.chmod(0o644 if path.is_file() else 0o755)  # so that the sandbox alone can hide them
    places = ("--data", f"{base}/own/data", "--db", f"{base}/own/db.sqlite")
    served = start("serve", "--with-node", "--sandbox", "bwrap", *places, cwd=base / "etc", python=python)
    other = served.upload("echo canary-out; exec sleep 100\n", files={"in": b"canary-in"}).json["id"]
    done = served.run("echo canary-result > out\n")
    eventually(lambda: served.job(other)["status"] == "Running")
    script = (
        f"grep -rs canary {shown} '{base}' /etc > found\n"
        f"cat {shown}/tools/tool '{base}/own/tools/tool' > read\n"
        f"find {shown}/own/data {shown}/own/db.sqlite* -type f > seen; ls > own; "
        f"touch {shown}/own/x {shown}/own/data/x; true\n"
    )
    guest = served.run(script, files={"mine": b"canary-mine"})
    assert (done["status"], guest["status"]) == ("Completed", "Completed")
    made = zipfile.ZipFile(io.BytesIO(served.get(f"/download/{guest['id']}").body))
    assert made.read("found") == b""
    assert made.read("seen") == b""
    assert made.read("read") == b"tooltool"
    assert b"mine" in made.read("own")
    assert made.read(".tenuto/stderr").count(b"Read-only file system") == 2
    served.post(f"/terminate/{other}")


@pytest.mark.parametrize(
    ("toml", "places", "words"),
    [
        ('paths = ["/nowhere/at/all"]', [], "services.example.paths: /nowhere/at/all is not there"),
        ('paths = ["{shown}/data/jobs"]', ["--data", "{shown}/data"], "lies in the service's own"),
        ('paths = ["{shown}/data"]', ["--data", "{shown}/data"], "lies in the service's own"),
        ('paths = ["{tmp}/link/jobs"]', ["--data", "{shown}/data"], "lies in the service's own"),
        ('paths = ["{tmp}"]', ["--db", "{tmp}/x.sqlite"], "the database {tmp}/x.sqlite lies directly in"),
        ('paths = ["{tmp}/tenuto.toml"]', [], "is the service's own"),
        ('paths = ["/"]', [], "payloads have / of their own"),
        ('paths = ["/proc"]', [], "payloads have /proc of their own"),
        ("", ["--db", "/opt/tn-never.sqlite"], "the database /opt/tn-never.sqlite lies directly in /opt"),
        ("", ["--data", "/opt"], "/opt lies in the service's own directory /opt"),
    ],
)
def test_a_node_that_cannot_hide_the_service_does_not_start(
    tenuto: Callable[..., Any],
    shown: Path,
    tmp_path: Path,
    require: Callable[[str], None],
    toml: str,
    places: list[str],
    words: str,
) -> None:
    require("bubblewrap")
    (shown / "data" / "jobs").mkdir(parents=True)
    (tmp_path / "link").symlink_to(shown / "data")
    where = {"shown": shown, "tmp": tmp_path}
    (tmp_path / "tenuto.toml").write_text(f"[services.example]\n{toml.format(**where)}\n")
    given = [place.format(**where) for place in places]
    ended = tenuto("serve", "--with-node", "--sandbox", "auto", "--port", "0", *given)
    assert ended.returncode == 2, ended
    assert words.format(**where) in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give payloads a uid of their own")
@pytest.mark.parametrize("name", ["tenuto.toml", "node.token", "near.sqlite", "tls.key"])
def test_a_file_that_the_uids_of_payloads_could_read_is_refused(
    tenuto: Callable[..., Any], directory: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(directory)
    (directory / "tenuto.toml").write_text(f'[node]\ntoken_file = "{directory}/node.token"\n')
    (directory / "node.token").write_text("secret\n")
    (directory / "tls.key").touch()
    for path in directory.iterdir():
        path.chmod(0o600)
    if name.endswith("sqlite"):
        (directory / "tenuto.toml").write_text(f'[service]\ndatabase = "{directory}/near.sqlite"\n')
        (directory / name).touch()
    (directory / name).chmod(0o644)
    ended = tenuto("node", "--sandbox", "uid", "--port", "0", "--tls-cert", "tls.key", "--tls-key", "tls.key")
    assert ended.returncode == 2
    assert f"payloads could read {directory / name}: chmod 600" in ended.stderr
