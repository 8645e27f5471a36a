"""What every `Locks` must do. Subclass, and give the fixtures `locks`, `files` and `path`."""

from __future__ import annotations

import pytest

from tenuto.errors import LockLost, NotRegularFile
from tenuto.workspace.ports import DESCENDANTS_BYTE, RUNNER_BYTE, Files, LockHandle, Locks


class LocksContract:
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
