"""Locks of the kernel and fake ones keep the same contract; what only real processes can show."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tenuto.errors import LockLost, LocksUnsupported, NotRegularFile
from tenuto.testing import FakeHost
from tenuto.workspace import locks as locks_module
from tenuto.workspace.files import DiskFiles
from tenuto.workspace.locks import OfdLocks
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Files, LockHandle, Locks


class LocksContract:
    """What every `Locks` must do. A subclass gives the fixtures `locks`, `files` and `path`."""

    def test_a_second_lock_is_refused_until_the_first_is_closed(self, locks: Locks, path: str) -> None:
        first = _taken(locks, path)
        assert locks.try_lock(path) is None
        first.close()
        _taken(locks, path).close()

    def test_asking_takes_nothing(self, locks: Locks, path: str) -> None:
        assert not locks.is_locked(path)
        held = _taken(locks, path)
        assert locks.is_locked(path)
        assert locks.is_locked(path)
        held.close()
        assert not locks.is_locked(path)

    def test_bytes_are_independent(self, locks: Locks, path: str) -> None:
        runner = _taken(locks, path, RUNNER_BYTE)
        descendants = _taken(locks, path, DESCENDANTS_BYTE)
        runner.close()
        assert not locks.is_locked(path, RUNNER_BYTE)
        assert locks.is_locked(path, DESCENDANTS_BYTE)
        descendants.close()

    def test_several_bytes_are_locked_all_or_none(self, locks: Locks, path: str) -> None:
        held = locks.try_lock_all(path, [1, 2, 5])
        assert held is not None
        assert locks.locked(path) == {1, 2, 5}
        assert locks.try_lock_all(path, [0, 5]) is None
        assert not locks.is_locked(path, 0)
        other = locks.try_lock_all(path, [0, 3])
        assert other is not None
        assert locks.locked(path) == {0, 1, 2, 3, 5}
        for handle in held:
            handle.close()
        assert locks.locked(path) == {0, 3}
        for handle in other:
            handle.close()
        assert locks.locked(path) == frozenset()

    def test_a_file_that_is_not_there_has_no_locked_bytes(self, locks: Locks, path: str) -> None:
        assert locks.locked(path) == frozenset()

    def test_closing_twice_is_harmless(self, locks: Locks, path: str) -> None:
        held = _taken(locks, path)
        held.close()
        held.close()
        assert not locks.is_locked(path)

    def test_asking_and_failing_do_not_free_the_lock_of_another(self, locks: Locks, path: str) -> None:
        held = _taken(locks, path)
        locks.is_locked(path)
        assert locks.try_lock(path) is None
        assert locks.is_locked(path)
        held.close()

    def test_a_deleted_lock_file_is_noticed(self, locks: Locks, files: Files, path: str) -> None:
        held = _taken(locks, path)
        assert held.intact()
        files.remove(path)
        assert not held.intact()
        another = _taken(locks, path)
        assert not held.intact()
        assert another.intact()
        held.close()
        another.close()

    def test_the_lock_of_an_inherited_descriptor_can_be_adopted(self, locks: Locks, path: str) -> None:
        held = _taken(locks, path)
        adopted = locks.adopt(held.fileno(), path)
        assert adopted.intact()
        assert locks.try_lock(path) is None
        adopted.close()

    def test_a_descriptor_of_another_file_cannot_be_adopted(
        self, locks: Locks, files: Files, path: str
    ) -> None:
        held = _taken(locks, path)
        files.write(f"{path}-other", b"")
        with pytest.raises(LockLost):
            locks.adopt(held.fileno(), f"{path}-other")
        held.close()

    def test_the_holder_can_be_named(self, locks: Locks, path: str) -> None:
        assert locks.holders(path) == ()
        held = _taken(locks, path)
        assert len(locks.holders(path)) == 1
        assert locks.holders(path, DESCENDANTS_BYTE) == ()
        held.close()
        assert locks.holders(path) == ()

    def test_the_lock_file_is_private_and_stays(self, locks: Locks, files: Files, path: str) -> None:
        _taken(locks, path).close()
        found = files.stat(path)
        assert found is not None
        assert found.mode == 0o600

    def test_a_link_is_not_locked(self, locks: Locks, files: Files, path: str) -> None:
        files.write(f"{path}-target", b"")
        files.symlink(f"{path}-target", path)
        with pytest.raises(NotRegularFile):
            locks.try_lock(path)

    def test_a_missing_directory_is_file_not_found(self, locks: Locks, path: str) -> None:
        with pytest.raises(FileNotFoundError):
            locks.try_lock(f"{path}-directory/x.lock")


def _taken(locks: Locks, path: str, byte: int = RUNNER_BYTE) -> LockHandle:
    handle = locks.try_lock(path, byte)
    assert handle is not None
    return handle


@pytest.fixture(autouse=True)
def as_in_a_process_without_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scheduler of another test may have asked that children get no locks."""
    monkeypatch.setattr(locks_module._Children, "get_locks", True)


class RealLocksContract(LocksContract):
    @pytest.fixture
    def files(self) -> Files:
        return DiskFiles()

    @pytest.fixture
    def path(self, tmp_path: Path) -> str:
        return f"{tmp_path}/job.lock"


class TestOfdLocks(RealLocksContract):
    @pytest.fixture
    def locks(self) -> Locks:
        return OfdLocks()


class TestFakeLocks(LocksContract):
    @pytest.fixture
    def host(self) -> FakeHost:
        host = FakeHost()
        host.disk.make_directory("/job")
        return host

    @pytest.fixture
    def files(self, host: FakeHost) -> Files:
        return host.disk

    @pytest.fixture
    def locks(self, host: FakeHost) -> Locks:
        return host.locks

    @pytest.fixture
    def path(self) -> str:
        return "/job/job.lock"


class Child:
    """A forked process that says when it has done its work, and then waits to be killed."""

    def __init__(self, work: Callable[[], object]) -> None:
        ready, tell = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                work()
                os.write(tell, b"!")
                signal.pause()
            finally:
                os._exit(1)
        os.close(tell)
        self._alive = True
        assert os.read(ready, 1) == b"!"
        os.close(ready)

    def kill(self) -> None:
        if self._alive:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._alive = False


Fork = Callable[[Callable[[], object]], Child]


@pytest.fixture
def fork() -> Iterator[Fork]:
    """Forks children, and ends them also when the test fails: a leftover would keep the run's pipes open."""
    children: list[Child] = []

    def fork(work: Callable[[], object]) -> Child:
        children.append(Child(work))
        return children[-1]

    yield fork
    for child in children:
        child.kill()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/job.lock"


def test_a_killed_process_frees_its_lock(path: str, fork: Fork) -> None:
    child = fork(lambda: OfdLocks().try_lock(path))
    assert OfdLocks().is_locked(path)
    assert OfdLocks().try_lock(path) is None
    assert OfdLocks().holders(path) == (child.pid,)
    child.kill()
    assert not OfdLocks().is_locked(path)
    assert OfdLocks().try_lock(path) is not None


def test_an_inherited_lock_outlives_the_process_that_took_it(path: str, fork: Fork) -> None:
    held = OfdLocks().try_lock(path)
    assert held is not None
    runner = fork(lambda: OfdLocks().adopt(held.fileno(), path))
    held.close()
    assert OfdLocks().is_locked(path)
    runner.kill()
    assert not OfdLocks().is_locked(path)


def test_no_close_of_another_descriptor_frees_the_lock(path: str) -> None:
    """What POSIX locks (`lockf`) get wrong."""
    held = OfdLocks().try_lock(path)
    with open(path) as other:
        other.read()
    assert OfdLocks().is_locked(path)
    assert held is not None
    held.close()


def test_descendants_are_found_through_their_byte(path: str, fork: Fork) -> None:
    runner = OfdLocks().try_lock(path, RUNNER_BYTE)
    mark = OfdLocks().try_lock(path, DESCENDANTS_BYTE)
    assert runner is not None
    assert mark is not None
    leftover = fork(runner.close)
    mark.close()
    runner.close()
    assert not OfdLocks().is_locked(path, RUNNER_BYTE)
    assert OfdLocks().holders(path, DESCENDANTS_BYTE) == (leftover.pid,)
    leftover.kill()
    assert not OfdLocks().is_locked(path, DESCENDANTS_BYTE)


def test_a_lock_of_another_kind_is_nobody_of_ours(path: str, fork: Fork) -> None:
    def flock() -> None:
        fcntl.flock(os.open(path, os.O_RDWR | os.O_CREAT), fcntl.LOCK_EX)

    child = fork(flock)
    assert OfdLocks().holders(path) == ()
    child.kill()


def test_a_descriptor_without_the_lock_cannot_be_adopted(path: str, fork: Fork) -> None:
    child = fork(lambda: OfdLocks().try_lock(path))
    fd = os.open(path, os.O_RDWR)
    with pytest.raises(LockLost):
        OfdLocks().adopt(fd, path)
    os.close(fd)
    child.kill()


def test_a_lock_file_replaced_between_open_and_lock_is_opened_again(path: str, monkeypatch) -> None:
    real, replaced = locks_module._open_lock_file, []

    def open_then_lose(path: str) -> int:
        fd = real(path)
        if not replaced:
            os.unlink(path)
            replaced.append(path)
        return fd

    monkeypatch.setattr(locks_module, "_open_lock_file", open_then_lose)
    held = OfdLocks().try_lock(path)
    assert held is not None
    assert held.intact()
    assert replaced


def test_a_lock_file_replaced_for_ever_is_given_up(path: str, monkeypatch) -> None:
    real = locks_module._open_lock_file

    def open_and_lose(path: str) -> int:
        fd = real(path)
        os.unlink(path)
        return fd

    monkeypatch.setattr(locks_module, "_open_lock_file", open_and_lose)
    with pytest.raises(LockLost):
        OfdLocks().try_lock(path)


def test_a_file_system_without_locks_is_named(path: str, monkeypatch) -> None:
    locks = OfdLocks()

    def refuse(*arguments: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.fcntl", refuse)
    with pytest.raises(LocksUnsupported, match="No locks available"):
        locks.try_lock(path)
    with pytest.raises(LocksUnsupported):
        locks.is_locked(path)


def test_of_many_processes_one_gets_the_lock(path: str) -> None:
    reports, tell = os.pipe()
    children = []
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            try:
                got = OfdLocks().try_lock(path)
                os.write(tell, b"1" if got else b"0")
                signal.pause()
            finally:
                os._exit(1)
        children.append(pid)
    try:
        answers = b"".join(os.read(reports, 1) for _ in children)
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    os.close(reports)
    os.close(tell)
    assert sorted(answers) == sorted(b"1" + b"0" * 19)


def test_a_fake_lock_falls_with_the_last_process_that_has_it() -> None:
    host = FakeHost()
    host.disk.make_directory("/job")
    scheduler, runner = host.start(), host.start()
    held = host.locks.seen_by(scheduler).try_lock("/job/x.lock")
    assert held is not None
    host.locks.seen_by(runner).adopt(held.fileno(), "/job/x.lock")
    host.end(scheduler)
    assert host.locks.holders("/job/x.lock") == (runner,)
    host.end(runner)
    assert not host.locks.is_locked("/job/x.lock")
    host.processes.start(pid=runner)
    assert not host.locks.is_locked("/job/x.lock"), "a reused pid holds nothing"


def test_a_fork_keeps_a_file_that_has_the_number_of_a_lock_that_was_closed(tmp_path: Path) -> None:
    """A program was given a terminal by such a number, and could not be started."""
    locks_module.keep_from_children()
    lock = OfdLocks().try_lock(f"{tmp_path}/lock")
    assert lock is not None
    other = os.open(tmp_path, os.O_RDONLY)
    os.dup2(other, lock.fileno())  # as after a close, without a moment in which another thread gets it
    try:
        child = os.fork()
        if child == 0:
            with suppress(OSError):
                os.fstat(lock.fileno())
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        lock.close()
        os.close(other)


def test_a_fork_in_the_script_of_a_scheduler_keeps_no_lock(tmp_path: Path) -> None:
    locks = OfdLocks()
    locks_module.keep_from_children()
    lock = locks.try_lock(f"{tmp_path}/lock")
    units = locks.try_lock_all(f"{tmp_path}/units", [0, 1, 5])
    assert lock is not None
    assert units is not None
    closed = [locks.try_lock(f"{tmp_path}/closed-{number}") for number in range(8)]
    told, tell = os.pipe()
    for each in closed:  # by the script, after the pipe: else that would have their numbers
        assert each is not None
        os.close(each.fileno())
    child = os.fork()
    if child == 0:
        os.write(tell, b"x")
        signal.pause()
        os._exit(0)
    try:
        assert os.read(told, 1) == b"x"
        assert locks.is_locked(f"{tmp_path}/lock"), "the process that took it keeps it"
        for each in (lock, *units):
            each.close()
        end = time.monotonic() + 30  # a program that another thread starts has them until it is executed
        while locks.is_locked(f"{tmp_path}/lock") or locks.locked(f"{tmp_path}/units"):
            assert time.monotonic() < end, "the child keeps a lock"
    finally:
        for each in closed:
            locks_module._not_for_children.discard(each)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(told)
        os.close(tell)
