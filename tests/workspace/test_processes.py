"""Processes: a pid is never enough."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenuto.testing import FakeProcesses
from tenuto.workspace import processes as processes_module
from tenuto.workspace.ports import Liveness, ProcessIdentity
from tenuto.workspace.processes import SystemProcesses


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    # Start times are told apart by 10 ms: the child is older than that before a test goes on.
    command = [sys.executable, "-c", "import time; time.sleep(0.02); print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.kill()


def identified(pid: int) -> ProcessIdentity:
    identity = SystemProcesses().identify(pid)
    assert identity is not None
    return identity


def test_a_process_knows_itself() -> None:
    me = SystemProcesses().own()
    assert me == identified(os.getpid())
    assert SystemProcesses().liveness(me) is Liveness.ALIVE


def test_a_process_is_told_apart_from_one_with_the_same_pid(child: subprocess.Popen[bytes]) -> None:
    identity = identified(child.pid)
    earlier = identity._replace(start_time=identity.start_time - 1)
    assert SystemProcesses().liveness(earlier) is Liveness.DEAD
    assert SystemProcesses().open(earlier) is None


def test_an_ended_process_is_dead_even_before_it_is_reaped(child: subprocess.Popen[bytes]) -> None:
    identity = identified(child.pid)
    handle = SystemProcesses().open(identity)
    assert handle is not None
    assert not handle.ended()
    assert handle.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert handle.ended()
    assert SystemProcesses().liveness(identity) is Liveness.DEAD
    assert SystemProcesses().identify(child.pid) is None
    child.wait()
    assert not handle.send_signal(signal.SIGKILL)
    assert SystemProcesses().open(identity) is None
    handle.close()
    handle.close()


def test_a_pid_that_passes_to_another_between_look_and_open_is_not_opened(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = identified(child.pid)
    times = iter([identity.start_time, identity.start_time + 7])
    monkeypatch.setattr(processes_module, "_start_time", lambda pid: next(times))
    assert SystemProcesses().open(identity) is None


def test_a_process_that_ends_between_look_and_open_is_not_opened(
    child: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    identity = identified(child.pid)
    child.kill()
    child.wait()
    monkeypatch.setattr(processes_module, "_start_time", lambda pid: identity.start_time)
    assert SystemProcesses().open(identity) is None


def test_after_a_reboot_every_process_of_before_is_dead() -> None:
    me = SystemProcesses().own()
    assert SystemProcesses(boot_id="another").liveness(me) is Liveness.REBOOTED
    assert SystemProcesses(boot_id="another").open(me) is None


def test_a_process_of_another_machine_or_namespace_is_unknown() -> None:
    me = SystemProcesses().own()
    elsewhere = me._replace(host="elsewhere", boot_id="another")
    assert SystemProcesses().liveness(elsewhere) is Liveness.UNKNOWN
    assert SystemProcesses().liveness(me._replace(pid_namespace="pid:[1]")) is Liveness.UNKNOWN


def test_a_name_full_of_parentheses_does_not_confuse(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/cat")
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"!")
        process.stdin.flush()
        process.stdout.read(1)  # it runs as `cat` now, not as a fork of us
        assert SystemProcesses().liveness(identified(process.pid)) is Liveness.ALIVE
        assert b"a) R 1 (b" in Path(f"/proc/{process.pid}/stat").read_bytes()
        process.kill()


def test_no_process_has_a_pid_that_is_not_in_use(child: subprocess.Popen[bytes]) -> None:
    child.kill()
    child.wait()
    assert SystemProcesses().identify(child.pid) is None


def test_a_real_pid_given_to_another_process_is_never_signalled(child: subprocess.Popen[bytes]) -> None:
    """The kernel is made to hand out the same pid again."""
    old = identified(child.pid)
    child.kill()
    child.wait()
    try:
        Path("/proc/sys/kernel/ns_last_pid").write_text(str(old.pid - 1))
    except OSError:
        pytest.skip("this user may not choose pids, so real reuse of a pid is NOT tested here")
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as other:
        if other.pid != old.pid:
            other.kill()
            pytest.skip("somebody else was given the pid")
        try:
            assert SystemProcesses().liveness(old) is Liveness.DEAD
            assert SystemProcesses().open(old) is None
        finally:
            other.kill()


def test_fake_processes_behave_alike() -> None:
    machine = FakeProcesses()
    pid = machine.start()
    identity = machine.identify(pid)
    assert identity is not None
    handle = machine.open(identity)
    assert handle is not None
    assert handle.send_signal(signal.SIGTERM)
    assert machine.liveness(identity) is Liveness.ALIVE
    assert handle.send_signal(signal.SIGKILL)
    assert handle.ended()
    assert not handle.send_signal(signal.SIGKILL)
    assert machine.signals == [(pid, signal.SIGTERM), (pid, signal.SIGKILL)]
    machine.start(pid)
    assert machine.liveness(identity) is Liveness.DEAD
    assert machine.open(identity) is None
    machine.reboot()
    assert machine.liveness(identity) is Liveness.REBOOTED
    assert machine.liveness(identity._replace(host="elsewhere")) is Liveness.UNKNOWN
    assert machine.liveness(identity._replace(boot_id="boot-2", pid_namespace="x")) is Liveness.UNKNOWN
