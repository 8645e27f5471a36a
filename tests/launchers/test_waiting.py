"""Waiting for a descriptor, and for the word or the end of a runner: nobody waits in vain, or for long."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from tenuto.launchers.local import LocalProcess, Readable, first_readable
from tenuto.launchers.runner.runner_protocol import READY
from tenuto.launchers.warm.parent_spec import Surroundings
from tenuto.workspace.ports import ProcessIdentity
from tenuto.workspace.processes import PidfdHandle

WHO = ProcessIdentity("host", "boot", "namespace", 1, 1)


@pytest.fixture
def event() -> Iterator[int]:
    """Readable once something was written to it."""
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    yield fd
    os.close(fd)


def process(ready: int | None = None) -> tuple[LocalProcess, int]:
    """A process whose exit is an event."""
    fd = os.eventfd(0, os.EFD_NONBLOCK)
    return LocalProcess("test", PidfdHandle(WHO, fd), 1, ready=ready), fd


def pipe() -> tuple[int, int]:
    ready, told = os.pipe()
    os.set_blocking(ready, False)
    return ready, told


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_all_waiting_tasks_are_told_and_one_that_comes_later_is_told_at_once(event: int) -> None:
    async def main() -> None:
        readable = Readable(event)
        waits = [asyncio.create_task(readable.wait()) for _ in range(3)]
        await settled()
        assert not any(wait.done() for wait in waits)
        os.eventfd_write(event, 1)
        await asyncio.gather(*waits)
        os.eventfd_read(event)  # it was readable once, and that counts
        await readable.wait()

    asyncio.run(main())


def test_a_task_that_gives_up_leaves_the_others_waiting(event: int) -> None:
    async def main() -> None:
        readable = Readable(event)
        gone, waiting = (asyncio.create_task(readable.wait()) for _ in range(2))
        await settled()
        gone.cancel()
        await settled()
        assert not waiting.done()
        os.eventfd_write(event, 1)
        await waiting

    asyncio.run(main())


def test_a_closed_descriptor_is_listened_to_no_more(event: int) -> None:
    async def main() -> None:
        readable = Readable(event)
        wait = asyncio.create_task(readable.wait())
        await settled()
        wait.cancel()
        readable.close()
        assert not asyncio.get_running_loop().remove_reader(event)

    asyncio.run(main())


def test_a_descriptor_is_listened_to_in_one_loop_after_another(event: int) -> None:
    readable = Readable(event)

    async def give_up() -> None:
        wait = asyncio.create_task(readable.wait())
        await settled()
        wait.cancel()

    async def main() -> None:
        os.eventfd_write(event, 1)
        await readable.wait()
        assert os.eventfd_read(event) == 1

    asyncio.run(give_up())
    asyncio.run(main())


def test_the_first_of_two_is_enough(event: int) -> None:
    async def main() -> None:
        never = os.eventfd(0, os.EFD_NONBLOCK)
        other = Readable(never)
        os.eventfd_write(event, 1)
        await first_readable(other, Readable(event))
        assert os.eventfd_read(event) == 1
        other.close()
        os.close(never)

    asyncio.run(main())


@pytest.mark.parametrize("word", [READY, b""])
def test_a_runner_that_spoke_is_confirmed_and_one_that_closed_its_end_is_not(word: bytes) -> None:
    async def main() -> None:
        ready, told = pipe()
        runner, exit_ = process(ready)
        waits = [asyncio.create_task(runner.confirmed()) for _ in range(2)]
        await settled()
        os.write(told, word)
        os.close(told)
        assert await asyncio.gather(*waits) == [bool(word)] * 2
        assert await runner.confirmed() is bool(word)
        os.eventfd_write(exit_, 1)
        await runner.wait()
        runner.close()

    asyncio.run(main())


def test_a_runner_that_died_without_a_word_is_not_confirmed_though_its_pipe_is_open() -> None:
    async def main() -> None:
        ready, told = pipe()
        runner, exit_ = process(ready)
        os.eventfd_write(exit_, 1)
        assert await runner.confirmed() is False
        await runner.wait()
        runner.close()
        os.close(told)

    asyncio.run(main())


def test_a_change_of_a_variable_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings = Surroundings()
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    before = surroundings.now()
    assert surroundings.now() is before
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("MINE", "x")
    now = surroundings.now()
    assert now.variables["MINE"] == "x"
    assert ("OMP_NUM_THREADS", "2") in now.decisive
    assert "MINE" not in dict(now.decisive)
    assert before.variables["OMP_NUM_THREADS"] == "1"
