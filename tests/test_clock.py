"""The real clock and the real randomness."""

from __future__ import annotations

import os
from datetime import timedelta

from tenuto.clock import SystemClock, SystemRandomness


def test_the_instant_is_aware_and_in_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)


def test_monotonic_time_never_goes_back() -> None:
    clock = SystemClock()
    assert clock.monotonic() <= clock.monotonic()


def test_chance_is_in_range_and_does_not_repeat() -> None:
    chance = SystemRandomness()
    assert len({chance.nonce() for _ in range(1000)}) == 1000
    assert all(0 <= chance.uniform() < 1 for _ in range(1000))
    assert len(chance.nonce()) == 32


def test_a_forked_process_draws_other_numbers() -> None:
    chance = SystemRandomness()
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        os.write(write, chance.nonce().encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 100).decode() != chance.nonce()
    os.close(read)
    os.close(write)
