"""Owns W5, start: what `import tenuto` and `tenuto --help` cost over a bare interpreter."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from bench import peers
from bench.measure import Broken, child, repeat_over
from bench.report import Row
from bench.workload import Options, Workload

CASES = (("import {}", 0.040, "<= 40 ms"), ("{} --help", 0.090, "<= 90 ms"))


def rows(options: Options) -> Iterator[Row]:
    yield from _system("tenuto", Path(sys.executable), options, ours=True)
    try:
        python = peers.interpreter("experimaestro", enabled=options.peers)
    except peers.PeerAbsent as absent:
        yield Row("W5", "start", "experimaestro", 1, note=f"absent: {absent}")
    else:
        yield from _system("experimaestro", python, options, ours=False)


def _system(name: str, python: Path, options: Options, *, ours: bool) -> Iterator[Row]:
    command = python.with_name(name)
    commands = ([str(python), "-c", f"import {name}"], [str(command), "--help"])
    for (case, target_s, target), argv in zip(CASES, commands, strict=True):
        case = case.format(name)
        try:
            child(argv)  # once for nothing: byte code and file cache
        except (Broken, FileNotFoundError) as error:
            yield Row("W5", case, name, 1, note=f"failed: {error}")
            continue
        cost = repeat_over(
            options.repetitions, lambda: child([str(python), "-c", "pass"]), lambda argv=argv: child(argv)
        )
        goal = {"target": target, "target_s": target_s} if ours else {}
        yield Row("W5", case, name, 1, cost, note="over python -c pass", **goal)


WORKLOAD = Workload("W5", "start: import and --help over bare Python", rows)
