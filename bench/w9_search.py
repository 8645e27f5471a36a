"""Owns W9, searches: no-op candidates beside the same tasks in an experiment, ticks with many rows.

Peers do less: Optuna calls a function, bare Dramatiq starts a process, OpenEvolve has a pool of them; none
keeps a directory or a row.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

from bench import ours
from bench.measure import Broken, tree
from bench.peers.environments import interpreter, surroundings
from bench.peers.peer import PeerAbsent
from bench.peers.systems import OPENEVOLVE
from bench.rows import OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.scratch import fresh
from bench.workload import Workload
from tests.parts.postgresql import PostgreSQL
from tests.parts.redis import Redis

MANY = Sizes((4,), (60,), (1_000,))
ROWS = Sizes((20,), (2_000,), (2_000, 200_000, 1_000_000))
ASKS = Sizes((30,), (200,), (1_500,))
EACH_S = 0.010
OVER_EXPERIMENT = 1.5
TICK_S = 0.020
RESTART_S = 10.0
LONG_RESTART_S = 30.0
"""Of a million rows."""
OVER_OPTUNA = 1.3
BUSY_PERCENT = 80.0
STATEMENTS = 30.0
STEADY = Sizes((10,), (300,), (10_000,))
IDLE_PERCENT = 0.5


def own(options: Options) -> Iterator[Row]:
    yield from _candidates(options)
    yield from _ticks(options)
    yield from _worker(options)
    yield from _asks(options)
    yield from _agents(options)


def _asks(options: Options) -> Iterator[Row]:
    """What a proposal of Optuna's TPE costs in a search, beside Optuna's own."""
    for size in ASKS.at(options.scale):
        load = os.getloadavg()[0]
        if not options.budget.affords("W9", "asks of Optuna", size, 0.1 * size, smallest=True):
            continue
        try:
            found = ours.run(options, "search.py", "asks", size)
        except Broken as broken:
            yield missing("W9", "asks of Optuna", OURS, size, f"failed: {broken}")
            continue
        text = f"<= {OVER_OPTUNA} x Optuna's own"
        case = "TPE: ask and tell, beside Optuna alone"
        yield plain("W9", case, OURS, size, "x", [found["ratio"]], load, text, OVER_OPTUNA)


def _agents(options: Options) -> Iterator[Row]:
    """How busy the slot of evaluations is while agents sleep ten times as long."""
    count, load = 4 if options.scale is Scale.TINY else 60, os.getloadavg()[0]
    case = "programs: busy slot of evaluations, agents ten times as long"
    try:
        found = ours.run(options, "search.py", "agents", count)
    except Broken as broken:
        yield missing("W9", case, OURS, count, f"failed: {broken}")
        return
    row = plain("W9", case, OURS, count, "%", [found["busy_percent"]], load)
    yield replace(row, note=f">= {BUSY_PERCENT:g} % wanted; between the first and the last evaluation")


def _worker(options: Options) -> Iterator[Row]:
    """What a worker needs while it works for long, and while it waits."""
    (size,), load = STEADY.at(options.scale)[-1:], os.getloadavg()[0]
    if options.budget.affords("W9", "a worker's memory", size, 0.06 * size, smallest=True):
        try:
            grown = ours.run(options, "search.py", "steady", size)["grown_bytes"]
            target = ("<= 2 MB", 2e6) if size >= 10_000 else ()
            case = "a worker's memory: growth over the last four fifths"
            yield plain("W9", case, OURS, size, "B", [grown], load, *target)
        except Broken as broken:
            yield missing("W9", "a worker's memory", OURS, size, f"failed: {broken}")
    window_s = 1 if options.scale is Scale.TINY else 20
    try:
        used = ours.run(options, "search.py", "idle", window_s)["percent"]
        case = "idle scheduler and worker, in one process"
        yield plain("W9", case, OURS, window_s, "%", [used], load, "<= 0.5 %", IDLE_PERCENT)
    except Broken as broken:
        yield missing("W9", "idle scheduler and worker", OURS, window_s, f"failed: {broken}")


def _candidates(options: Options) -> Iterator[Row]:
    for size in MANY.at(options.scale):
        if not options.budget.affords("W9", "no-op candidates", size, 0.06 * size, smallest=True):
            continue
        load = os.getloadavg()[0]
        try:
            beside = ours.run(options, "search.py", "experiment", size)["wall_s"]
            found = ours.run(options, "search.py", "embedded", size)
        except Broken as broken:
            yield missing("W9", "no-op candidates", OURS, size, f"failed: {broken}")
            continue
        took = found["wall_s"]
        row = plain("W9", "no-op candidates: each", OURS, size, "s", [took / size], load, "<= 10 ms", EACH_S)
        yield replace(row, note=f"{size / took:.0f}/s; start and end of the search included")
        ratio = took / beside
        text = f"<= {OVER_EXPERIMENT} x the same tasks in an experiment"
        yield plain("W9", "beside an experiment", OURS, size, "x", [ratio], load, text, OVER_EXPERIMENT)
        text = f"<= {STATEMENTS:g}"
        yield plain(
            "W9", "statements a candidate", OURS, size, "", [found["statements"]], load, text, STATEMENTS
        )


def _ticks(options: Options) -> Iterator[Row]:
    with ExitStack() as servers:
        kinds: dict[str, PostgreSQL | None] = {"SQLite": None}
        if options.scale is not Scale.TINY and _has_postgresql():
            kinds["PostgreSQL"] = started = PostgreSQL()
            servers.callback(started.end)
        for name, server in kinds.items():
            for rows in ROWS.at(options.scale):
                smallest = rows == ROWS.at(options.scale)[0]
                if options.budget.affords("W9", f"tick, {name}", rows, 10 + rows / 5_000, smallest=smallest):
                    with nullcontext(None) if server is None else server.database() as url:
                        yield from _tick(options, name, rows, url)


def _tick(options: Options, name: str, rows: int, url: str | None) -> Iterator[Row]:
    load = os.getloadavg()[0]
    try:
        found = ours.run(options, "search.py", "tick", rows, *([url] if url else []))
    except Broken as broken:
        yield missing("W9", f"tick, {name}", OURS, rows, f"failed: {broken}")
        return
    target = ("<= 20 ms", TICK_S)
    yield plain("W9", f"tick, {name}", OURS, rows, "s", [found["tick_s"]], load, *target)
    target = ("<= 30 s", LONG_RESTART_S) if rows > 200_000 else ("<= 10 s", RESTART_S)
    yield plain("W9", f"restart, {name}", OURS, rows, "s", [found["restart_s"]], load, *target)


def peers(options: Options) -> Iterator[Row]:
    size = MANY.at(options.scale)[-1]
    load = os.getloadavg()[0]
    case = "no-op candidates: each"
    for name in ("optuna", "dramatiq"):
        if name == "dramatiq" and shutil.which("redis-server") is None:
            yield missing("W9", case, name, size, "redis-server is not installed")
            continue
        server = Redis() if name == "dramatiq" else None
        try:
            took = ours.run(options, "search.py", name, size, *([server.url] if server else []))["wall_s"]
            yield plain("W9", case, name, size, "s", [took / size], load)
        except Broken as broken:
            yield missing("W9", case, name, size, f"failed: {broken}")
        finally:
            if server is not None:
                server.end()
    if OPENEVOLVE.name in options.peers:
        yield _openevolve(options, case, size)


def _openevolve(options: Options, case: str, size: int) -> Row:
    """OpenEvolve's own loop, whose agent answers at once; in an environment of its own."""
    load = os.getloadavg()[0]
    if options.scale is Scale.TINY:
        return missing("W9", case, OPENEVOLVE.title, size, "left out at this size: it would be installed")
    try:
        python = interpreter(OPENEVOLVE)
        with fresh(options.directory) as place:
            argv = OPENEVOLVE.argv(python, "many", size)
            ran = tree(argv, directory=place, timeout_s=900.0, environment=surroundings(place)).report()
    except PeerAbsent as absent:
        return missing("W9", case, OPENEVOLVE.title, size, f"absent: {absent}")
    except Broken as broken:
        return missing("W9", case, OPENEVOLVE.title, size, f"failed: {broken}")
    row = plain("W9", case, OPENEVOLVE.title, size, "s", [ran["wall_s"] / size], load)
    return replace(row, note=OPENEVOLVE.note)


def _has_postgresql() -> bool:
    return bool(shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb")))


WORKLOAD = Workload("W9", "searches: candidates, and ticks with many rows", own, peers, share=0.08)
