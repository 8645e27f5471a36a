"""Which kills are taken for want of memory."""

from __future__ import annotations

from tenuto.launchers.runner.memory import is_large, machine_kills


def test_a_small_process_that_is_killed_was_not_killed_for_its_memory() -> None:
    """Once a job killed by hand counted as MEMORY, because a neighbour had run out of memory meanwhile."""
    assert not is_large(20 << 20)
    assert is_large(8 << 30)


def test_the_kernels_count_can_be_read() -> None:
    assert machine_kills() >= 0
