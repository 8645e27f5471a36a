"""How busy the processors of a node are, as the kernel counts it.
Asked by servers that share their jobs out by load.
"""

from __future__ import annotations

import asyncio

BETWEEN_S = 0.1


async def cpu_percent() -> float:
    """The share of time, in a short while, in which the processors were not idle; 0 to 100."""
    busy, total = _ticks()
    await asyncio.sleep(BETWEEN_S)
    later_busy, later_total = _ticks()
    passed = later_total - total
    return round(100.0 * (later_busy - busy) / passed, 1) if passed > 0 else 0.0


def _ticks() -> tuple[int, int]:
    """Ticks of all processors since the start: busy ones, and all."""
    with open("/proc/stat", encoding="ascii") as stat:
        counted = [int(word) for word in stat.readline().split()[1:9]]
    idle = counted[3] + counted[4]
    return sum(counted) - idle, sum(counted)
