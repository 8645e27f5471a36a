"""Owns W11, the monitor: `tenuto ui` and `tenuto top` on many done jobs, and on a run that is followed.

The jobs were prepared; the server is a process of its own, asked over HTTP on loopback, and the terminal one
on a pseudo terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import ours
from bench.measure import Broken, child, summarise
from bench.rows import OURS, Row, by_cpu, missing, plain
from bench.scale import Options, Scale
from bench.scratch import fresh
from bench.workload import Workload

SIZES = {
    Scale.TINY: (5,),
    Scale.QUICK: (1_000,),
    Scale.FULL: (10_000,),
    Scale.LARGE: (10_000, 100_000),
}
FOLLOWED = {Scale.TINY: 2, Scale.QUICK: 10, Scale.FULL: 30, Scale.LARGE: 30}
FLOOD_S = {Scale.TINY: 1, Scale.QUICK: 5, Scale.FULL: 60, Scale.LARGE: 60}
CURVES = {Scale.TINY: (5, 20, 1), Scale.QUICK: (200, 1_000, 5)}
"""Jobs with curves, points of each, and seconds that they are followed."""
WAITED = {Scale.TINY: 1}
BESIDE = {Scale.TINY: (5, 1), Scale.QUICK: (100, 2), Scale.FULL: (1_000, 3), Scale.LARGE: (1_000, 3)}
"""Jobs of W1 beside a monitor, and how often."""
MOST_SEEN = 10_000
"""Browser and flood are tried with so many jobs at most."""


class Part(NamedTuple):
    """A figure of a report, and the most it may be at 10,000 jobs or fewer, and at 100,000."""

    field: str
    case: str
    unit: str
    most: float | None
    most_of_many: float | None = None


LOADED = (
    Part("ready_s", "ready", "s", 2.0, 2.0),
    Part("ready_cpu_s", "ready, CPU", "s", 2.0, 2.0),
    Part("first_rows_s", "first rows", "s", 3.0, 3.0),
    Part("known_s", "all known", "s", 3.0, 20.0),
    Part("known_cpu_s", "all known, CPU", "s", 3.0, 20.0),
    Part("slowest_s", "slowest answer while loading", "s", 0.3, 0.3),
    Part("page_s", "a page of 100", "s", 0.05, 0.3),
    Part("filter_s", "a filter", "s", 0.2),
    Part("sort_s", "an order", "s", 0.2),
    Part("resident_mb", "memory", "MB", 150.0, 500.0),
    Part("idle_percent", "idle", "%", 3.0, 3.0),
    Part("marker_to_client_s", "marker to client, median", "s", 0.2, 0.2),
    Part("silence_s", "progress, longest silence", "s", 1.0, 1.0),
)
FLOODED = (
    Part("events_each_s", "flood, four clients: events", "/s", None),
    Part("short_percent", "flood: short of 1,000 events a second", "%", 5.0),
    Part("event_cpu_s", "flood: CPU of the server for an event", "s", None),
    Part("growth_percent", "flood: growth of memory", "%", 5.0),
    Part("descriptors_left", "40 clients that left: descriptors", "", 0.0),
)
SHOWN = (
    Part("screen_rows_s", "first rows on screen", "s", 0.3),
    Part("screen_change_s", "marker to screen, median", "s", 0.2),
    Part("document_rows", "rows in the document", "", 300.0),
)
CURVED = (
    Part("curves_drawn_s", "curves: 200 of 1,000 points drawn, the server has read them", "s", 0.5),
    Part("curves_cold_s", "curves: drawn, the server has read none", "s", None),
    Part("curves_updates_each_s", "curves: drawn anew, 20 points a second each", "/s", None),
    Part("curves_frame_s", "curves: longest frame meanwhile", "s", 0.1),
    Part("call_us", "log_metrics: a call", "us", 20.0),
)
WOKEN = (
    Part("wake_s", "tenuto wait: marker to return, median", "s", 0.2),
    Part("wake_most_s", "tenuto wait: marker to return, the most", "s", None),
)
TERMINAL = (
    Part("top_rows_s", "tenuto top: first rows", "s", 3.0, 3.0),
    Part("top_rows_cpu_s", "tenuto top: first rows, CPU", "s", 2.0, 2.0),
    Part("top_known_s", "tenuto top: all known", "s", 3.0, 20.0),
    Part("top_end_s", "tenuto top: to the last row", "s", 0.3, 0.3),
    Part("top_change_s", "marker to terminal, median", "s", 0.2, 0.2),
    Part("top_mb", "tenuto top: memory", "MB", 150.0, 500.0),
    Part("top_idle_percent", "tenuto top: idle", "%", 3.0, 3.0),
)
WATCHED = (Part("beside_percent", "W1 beside a monitor and a client: slower by", "%", 10.0),)
COMMANDS = {"why": "tenuto why JOB", "logs -f": "tenuto logs -f JOB", "jobs": "tenuto jobs"}


def own(options: Options) -> Iterator[Row]:
    for count in SIZES[options.scale]:
        estimate_s = 0.001 * count + options.repetitions * (60 + 0.0005 * count)
        smallest = count == SIZES[options.scale][0]
        if not options.budget.affords("W11", "monitor", count, estimate_s, smallest=smallest):
            continue
        with fresh(options.directory) as place:
            ours.run(options, "prepare.py", count, place=place)
            yield from _rows(options, count, LOADED, "monitor.py", FOLLOWED[options.scale], place=place)
            yield from _rows(options, count, TERMINAL, "top.py", FOLLOWED[options.scale], place=place)
            if count > MOST_SEEN:
                continue
            yield from _commands(options, count, place)
            if shutil.which("chromium"):
                yield from _rows(options, count, SHOWN, "screen.py", FOLLOWED[options.scale], place=place)
            else:
                yield missing("W11", "first rows on screen", OURS, count, "needs Chromium")
            yield from _rows(options, count, FLOODED, "flood.py", FLOOD_S[options.scale], place=place)
    count, points, seconds = CURVES.get(options.scale, CURVES[Scale.QUICK])
    if options.budget.affords("W11", "curves", count, options.repetitions * (30 + seconds)):
        with fresh(options.directory) as place:
            ours.run(options, "prepare.py", count, place=place)
            if shutil.which("chromium"):
                yield from _rows(options, count, CURVED, "curves.py", points, seconds, place=place)
            else:
                yield missing("W11", CURVED[0].case, OURS, count, "needs Chromium")
    waited = WAITED.get(options.scale, 5)
    if options.budget.affords("W11", "wait", waited, options.repetitions * (5 + waited)):
        with fresh(options.directory) as place:
            yield from _rows(options, waited, WOKEN, "waiting.py", place=place, repetitions=1)
    count, times = BESIDE[options.scale]
    if options.budget.affords("W11", "beside W1", count, 2 * times * (3 + 0.0075 * count)):
        with fresh(options.directory) as place:
            yield from _rows(options, count, WATCHED, "beside.py", times, place=place, repetitions=1)


def _rows(
    options: Options,
    count: int,
    parts: Sequence[Part],
    driver: str,
    *arguments: int,
    place: Path,
    repetitions: int | None = None,
) -> Iterator[Row]:
    load = os.getloadavg()[0]
    try:
        times = range(repetitions or options.repetitions)
        reports = [ours.run(options, driver, count, *arguments, place=place) for _ in times]
    except Broken as broken:
        yield missing("W11", parts[0].case, OURS, count, f"failed: {broken}")
        return
    for part in parts:
        limit = part.most if count <= MOST_SEEN else part.most_of_many
        target = f"<= {limit:g} {part.unit}".rstrip() if limit is not None else ""
        values = [report[part.field] for report in reports]
        yield plain("W11", part.case, OURS, count, part.unit, values, load, target, limit)


def _commands(options: Options, count: int, place: Path) -> Iterator[Row]:
    """What commands that look at one job, and at all, take on this workspace."""
    workspace = place / "ws"
    listed = [sorted(path.name for path in task.iterdir()) for task in (workspace / "jobs").iterdir()]
    job = max(listed, key=len)[-1]  # of the prepared task; the driver ran a few of its own
    for words, case in COMMANDS.items():
        load = os.getloadavg()[0]
        names = [job] if case.endswith("JOB") else []
        argv = [sys.executable, "-m", "tenuto", *words.split(), *names, "-w", str(workspace)]
        cost = summarise([child(argv) for _ in range(options.repetitions)])
        yield by_cpu("W11", case, OURS, count, cost, load)


WORKLOAD = Workload("W11", "monitor: tenuto ui on many jobs", own, share=0.08)
