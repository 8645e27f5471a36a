"""Owns W14, idle time: how long a token is unused between two jobs whose module takes long to import.

Such a module cannot be forked. `warm` imports it for the next job while one runs; `spawn` does not. On a
machine with a GPU and PyTorch the token is that GPU, and the floor is the end of a process that has used it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from bench import ours
from bench.measure import Broken
from bench.rows import FLOOR, OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.workload import Workload

SIZES = Sizes((3,), (6,), (12,))
WORK_S = {Scale.TINY: 0.1}
USUAL_WORK_S = 1.0
MOST_S = {"warm": 0.05, "spawn": None}


GPU = Path("/dev/nvidia0")
GPU_WORK_S = 6.0
"""Longer than PyTorch's import, so that the import of the next job can overlap all of it."""
ENDS = {"_exit": "taken by the kernel at once", "exit": "after the exit handlers of libraries"}


def own(options: Options) -> Iterator[Row]:
    work_s = WORK_S.get(options.scale, USUAL_WORK_S)
    for launcher in MOST_S:
        for size in SIZES.at(options.scale):
            yield from _idle(options, f"between two jobs, {launcher}", launcher, size, work_s)
    if GPU.exists() and find_spec("torch") is not None:
        size = SIZES.at(options.scale)[-1]
        yield from _idle(options, "a GPU between two jobs, warm", "warm", size, GPU_WORK_S, "torch")
        for how, what in ENDS.items():
            yield from _end(options, how, f"end of a process that used CUDA, {what}", size)


def _idle(
    options: Options, case: str, launcher: str, size: int, work_s: float, *imports: str
) -> Iterator[Row]:
    if not options.budget.affords("W14", case, size, (work_s + 0.6) * size, smallest=True):
        return
    try:
        report = ours.run(options, "spares.py", launcher, size, work_s, *imports)
    except Broken as broken:
        yield missing("W14", case, OURS, size, f"failed: {broken}")
        return
    most_s = MOST_S[launcher]
    target = "" if most_s is None else f"<= {most_s:g} s"
    imported = " ".join(imports) or "0.5 s"
    note = f"the import of {imported}, {work_s:g} s of work; the median from the second pair on"
    yield plain("W14", case, OURS, size, "s", report["idle"][1:], os.getloadavg()[0], target, most_s, note)


def _end(options: Options, how: str, case: str, size: int) -> Iterator[Row]:
    try:
        report = ours.run(options, "cuda_end.py", how, size)
    except Broken as broken:
        yield missing("W14", case, FLOOR, size, f"failed: {broken}")
        return
    note = "the GPU is free no earlier; another process has it open, as a spare has"
    yield plain("W14", case, FLOOR, size, "s", report["took"], os.getloadavg()[0], "", None, note)


WORKLOAD = Workload("W14", "idle time: a token between two jobs that cannot be forked", own)
