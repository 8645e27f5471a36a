"""Owns what a command is kept from: its directory, its variables, its resources, its user."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tenuto.errors import UnsafeService
from tenuto.jobs.metrics import MetricsReader
from tenuto.launchers.confinement import Guest, Sandbox, SandboxMode, bwrap, choose, passed_on
from tenuto.launchers.instructions import Command, Confinement, Instructions
from tenuto.launchers.leftovers import STAMP
from tenuto.launchers.payload import payload
from tenuto.launchers.protocols import Launcher
from tenuto.lifecycle.states import JobFailureStatus
from tenuto.testing.contracts.launchers import finished, started
from tenuto.testing.jobs import JobBench, ReadyJob
from tenuto.workspace.markers import Marker

Ended = Callable[[ReadyJob], Marker]
Run = Callable[..., Any]
Until = Callable[..., Any]
Pids = Callable[..., Coroutine[Any, Any, list[int]]]
Alive = Callable[[int], bool]

PATH = {"PATH": "/usr/bin:/bin"}
UID = 61184

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def confined(bench: JobBench, script: str, **confinement: Any) -> ReadyJob:
    """A job that runs a line of shell in `work`, which belongs to the user that it runs as."""
    command = Command(("sh", "-c", script), directory="work", confinement=Confinement(**confinement))
    job = bench.of(command, environment={**PATH, "GIVEN": "yes"})
    work = Path(job.paths.directory, "work")
    work.mkdir(mode=0o700)
    os.chown(work, confinement.get("uid", -1), confinement.get("gid", -1))
    return job


def out(job: ReadyJob) -> list[str]:
    return Path(job.paths.out).read_text().splitlines()


# -- where it runs, and which try it is ----------------------------------------------------------------


def test_a_command_runs_in_its_directory_and_its_records_stay_outside(bench: JobBench, ended: Ended) -> None:
    job = bench.of(Command(("sh", "-c", "pwd; echo made > file"), directory="work"))
    work = Path(job.paths.directory, "work")
    work.mkdir()
    assert ended(job).reason is None
    assert out(job) == [str(work)]
    assert [path.name for path in work.iterdir()] == ["file"]


def test_a_command_whose_directory_is_missing_says_so(bench: JobBench, ended: Ended) -> None:
    marker = ended(bench.of(Command(("true",), directory="nowhere")))
    assert marker.reason is JobFailureStatus.FAILED
    assert "nowhere" in (marker.message or "")


def test_a_command_sees_which_attempt_it_is(bench: JobBench, ended: Ended) -> None:
    job = bench.command("sh", "-c", "echo $JOB_ATTEMPT; exit 1")
    ended(job)
    job.open_attempt()
    ended(job)
    assert out(job)[-1] == "2"


def test_a_command_appends_metrics_to_the_file_that_it_is_told(bench: JobBench, ended: Ended) -> None:
    lines = """echo '{"name": "loss", "value": 0.5}' >> "$JOB_METRICS"
cd /
echo '{"name": "loss", "value": "nan"}' >> "$JOB_METRICS"
exit 1"""
    job = bench.command("sh", "-c", lines)
    ended(job)
    job.open_attempt()
    ended(job)
    points = MetricsReader(bench.machine.files).of_job(job.paths)["loss"]
    assert [point.step for point in points] == [0, 1, 2, 3], "a step that is not given counts up"
    assert [math.isnan(point.value) for point in points] == [False, True, False, True]


def test_the_instructions_of_a_plain_command_are_what_they_were() -> None:
    written = Instructions("t", "j", command=Command(("a", "b"), {"x": "/y"})).encode()
    assert written["command"] == {"arguments": ["a", "b"], "files": {"x": "/y"}}


def test_a_confined_command_survives_its_record() -> None:
    command = Command(("a",), {}, "work", Confinement(processes=3, uid=4, gid=5, groups=(6, 7)))
    assert Instructions.decode(Instructions("t", "j", command=command).encode()).command == command
    with pytest.raises(ValueError, match="confined"):
        Instructions("t", "j", command=Command((), confinement=Confinement())).encode()


# -- what it has ---------------------------------------------------------------------------------------


def test_a_confined_command_has_the_variables_it_is_given_and_no_others(
    bench: JobBench, launcher: Launcher, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "s3cret")
    monkeypatch.setenv("HOME", "/root")
    job = confined(bench, "exec /usr/bin/env -u PWD -u SHLVL -u _")
    run(finished(launcher, job))
    assert job.marker().reason is None
    assert {line.partition("=")[0] for line in out(job)} == {"PATH", "GIVEN", "JOB_ATTEMPT", STAMP}


def test_a_confined_command_is_limited_for_good(bench: JobBench, ended: Ended) -> None:
    script = "ulimit -Hn; ulimit -Hc; ulimit -Hu; (ulimit -Hn 4000) 2>/dev/null || echo kept"
    job = confined(bench, f'exec bash -c "{script}"', open_files=64, processes=4000)
    assert ended(job).reason is None
    assert out(job) == ["64", "0", "4000", "kept"]


def test_a_confined_command_cannot_write_a_larger_file(bench: JobBench, ended: Ended) -> None:
    job = confined(bench, "exec head -c 100000 /dev/zero > big", file_bytes=10_000)
    assert ended(job).signal == signal.SIGXFSZ
    assert Path(job.paths.directory, "work", "big").stat().st_size == 10_000


def test_a_confined_command_gains_no_privileges(bench: JobBench, ended: Ended) -> None:
    job = confined(bench, "grep NoNewPrivs /proc/self/status")
    ended(job)
    assert out(job) == ["NoNewPrivs:\t1"]


@as_root
def test_a_command_of_another_user_has_that_users_rights_only(
    bench: JobBench, ended: Ended, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    script = f"id -u; id -g; id -G; cat {secret} {{}}; echo mine > file; ls -ln file | cut -d' ' -f3"
    job = confined(bench, "x", uid=UID, gid=UID + 1)
    job = confined(bench, script.format(job.paths.launch), uid=UID, gid=UID + 1)
    marker = ended(job)
    assert marker.reason is None, Path(job.paths.err).read_text()
    assert out(job) == [str(UID), str(UID + 1), str(UID + 1), str(UID)]
    assert Path(job.paths.err).read_text().count("denied") == 2


def test_a_confined_command_needs_no_module_any_more() -> None:
    """Its user may not be allowed to read them: an interpreter in root's home, and Python 3.13."""

    def confine(_: Confinement) -> None:
        sys.meta_path.clear()

    child = os.fork()
    if child == 0:
        try:
            sys.modules.pop("warnings")
            payload.confine = confine  # type: ignore[assignment]
            payload.run_command(Command(("true",), confinement=Confinement()), None, PATH)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@as_root
def test_groups_that_are_given_are_the_only_ones(bench: JobBench, ended: Ended) -> None:
    job = confined(bench, "id -G", uid=UID, gid=UID, groups=(UID + 5,))
    ended(job)
    assert out(job) == [f"{UID} {UID + 5}"]


@as_root
def test_a_command_of_another_user_ends_with_its_runner(
    bench: JobBench, launcher: Launcher, run: Run, until: Until, pids: Pids, alive: Alive
) -> None:
    """A change of user clears the kernel's promise to end a process with its parent; one ran on."""
    job = confined(bench, "echo $$; exec sleep 1000000", uid=UID, gid=UID)

    async def scenario() -> None:
        process = await started(launcher, job)
        (payload,) = await pids(job)
        assert os.stat(f"/proc/{payload}").st_uid == UID
        process.kill()
        await process.wait()
        await asyncio.to_thread(until, lambda: not alive(payload), "the end of the payload")

    run(scenario())


@pytest.mark.parametrize("numbers", [{"uid": -1}, {"gid": -1}, {"uid": 1 << 40}])
def test_a_command_that_cannot_be_confined_is_not_run(
    bench: JobBench, ended: Ended, numbers: dict[str, int]
) -> None:
    command = Command(("sh", "-c", "echo ran"), confinement=Confinement(**numbers))
    job = bench.of(command, environment=PATH)
    marker = ended(job)
    assert (marker.reason, marker.exit_code) == (JobFailureStatus.FAILED, 126)
    assert (marker.message or "").startswith("EXEC: sh cannot be run")
    assert out(job) == []


# -- the sandbox around a command


def test_the_network_is_given_where_the_service_has_it() -> None:
    assert "--share-net" in bwrap(Guest("/w", None, network=True))
    line = bwrap(Guest("/w", None, paths=("/opt/x",)))
    assert "--share-net" not in line
    assert "--unshare-all" in line
    at = line.index("/opt/x")
    assert line[at - 1] == "--ro-bind"


def test_each_payload_has_a_uid_of_its_own() -> None:
    root = Sandbox(SandboxMode.UID, is_root=True)
    assert root.uid_of(1) != root.uid_of(2)
    assert root.uid_of(5) == 61184 + 5
    assert Sandbox(SandboxMode.NONE, is_root=True).uid_of(1) is None
    assert Sandbox(SandboxMode.BWRAP, is_root=False).uid_of(1) is None


def test_no_sandbox_to_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert choose("auto", str(tmp_path), must=False).mode is SandboxMode.NONE
    assert choose("none", str(tmp_path), must=True).mode is SandboxMode.NONE
    for wanted in ("auto", "bwrap", "uid"):
        with pytest.raises(UnsafeService, match="--sandbox none"):
            choose(wanted, str(tmp_path), must=True)


def test_variables_are_passed_by_name() -> None:
    given = {"PATH": "p", "LC_ALL": "C", "SECRET": "s", "TENUTO_X": "t"}
    assert passed_on(given, ("PATH", "LC_*")) == {"PATH": "p", "LC_ALL": "C"}
    assert "TENUTO_X" not in passed_on(given, ("*",))
