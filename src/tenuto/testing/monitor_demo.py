"""A monitor over made-up jobs of all three doors: ``python -m tenuto.testing.monitor_demo [PORT] [JOBS]``.
For tests and screenshots of the page; nothing is run.
"""

from __future__ import annotations

import math
import os
import sys
import threading
from datetime import datetime, timedelta

from tenuto.clock import SystemClock
from tenuto.jobs.row import Group, Row, ServiceRow
from tenuto.jobs.source import Moment, Panels
from tenuto.jobs.tcp_ports import LOCALHOST
from tenuto.lifecycle.owner_names import Door
from tenuto.lifecycle.states import JobFailureStatus, JobState
from tenuto.monitor.provider import LocalProvider
from tenuto.monitor.web.http_server import WebServer, open_socket
from tenuto.testing.fake_source import FakeSource, fake_row
from tenuto.workspace.points import SYSTEM, MetricPoint

SWEEP = "experiments:sweep/20260101_1402"
BEFORE = "experiments:sweep/20260101_1130"
SERVICE = "service:haddock"
SEARCH = "search:packing"
_CELLS = 20
_BEST = 236
"""The candidate of the archive's best cell."""


def demo_sources(jobs: int = 120, now: datetime | None = None) -> tuple[FakeSource, FakeSource, FakeSource]:
    """The three doors, with jobs in every state, tokens, a queue, nodes and an archive."""
    at = now or SystemClock().now()
    return _experiments(at, jobs), _service(at), _search(at)


def _experiments(now: datetime, jobs: int) -> FakeSource:
    source = FakeSource(Door.EXPERIMENTS)
    service = ServiceRow("monitor", "running", "http://127.0.0.1:8368/", "the monitor")
    begun = now - timedelta(minutes=12)
    source.put_group(
        Group(
            SWEEP, Door.EXPERIMENTS, "sweep", "20260101_1402", "running", True, begun,
            host="node-1", pid=4711, services=(service,),
        )
    )  # fmt: skip
    source.put_group(
        Group(
            BEFORE, Door.EXPERIMENTS, "sweep", "20260101_1130", "done", False, begun - timedelta(hours=3),
            begun - timedelta(hours=2), host="node-1", pid=4000, total=0, reused=0, failed=0,
        )
    )  # fmt: skip
    moments: list[Moment] = []
    prepare = fake_row(
        SWEEP, "demo.Prepare", "88ad934f00000000", JobState.DONE, attempt=1, submitted=begun,
        started=begun, ended=begun + timedelta(seconds=20),
    )  # fmt: skip
    rows = [prepare]
    for number in range(jobs):
        rows += _train(number, begun + timedelta(seconds=20 + 5 * (number // 8)), now)
    holders = [row.key for row in rows if row.state is JobState.RUNNING][:2]
    rows = [row._replace(tokens={"gpu": 1}) if row.key in holders else row for row in rows]
    for row in rows:
        moments += _moments(row, begun)
        _put(source, row)
    source.remember(SWEEP, moments)
    running = [row for row in rows if row.state is JobState.RUNNING][:2]
    waiting = [row for row in rows if row.state is JobState.READY][:3]
    source.shown = Panels(
        tokens=[
            {
                "name": "gpu", "capacity": 2, "held": 2, "free": 0,
                "holders": [{"pid": 5000 + place, "key": row.key} for place, row in enumerate(running)],
                "waiting": [
                    {"key": row.key, "amount": 1, "since": begun.isoformat()} for row in waiting
                ],
            }
        ],
        cleanup={
            "unowned": running[:1], "orphans": {"jobs": 31, "bytes": 1_200_000_000},
            "alarms": [{"key": prepare.key, "text": "both markers of one attempt"}], "bad_lines": 0,
        },
    )  # fmt: skip
    return source


def _put(source: FakeSource, row: Row) -> None:
    """Shows a job of the sweep, with its parameters, result and logs."""
    source.put(row)
    if row.attempt > 1:
        source.most_attempts[row.key] = 4
    source.stored[row.key] = {"lr": row.tags.get("lr"), "epochs": 30, "data": "demo.Mnist"}
    if row.state is JobState.DONE and row.tags:
        accuracy = 0.9 + 0.08 * math.sin(len(source.values))
        source.values[row.key] = {"result.accuracy": accuracy, "result.loss": 1 - accuracy}
    if row.attempt and row.task.endswith("Train"):
        _put_curves(source, row)
    text = "".join(f"epoch \x1b[36m{epoch}\x1b[0m loss {1 / (epoch + 1):.4f}\n" for epoch in range(16))
    source.logs[row.key, "out"] = text.encode()
    if row.state is JobState.ERROR:
        source.logs[row.key, "err"] = b"Traceback (most recent call last):\nValueError: lr must be positive\n"


def _put_curves(source: FakeSource, row: Row) -> None:
    """The loss and the accuracy of a training, with a step at which the loss was no number."""
    rate = float(row.tags.get("lr", "0.1"))
    begun = row.started.timestamp() if row.started else 0.0
    noise = int(row.id[:8], 16) % 11

    def loss(step: int) -> float:
        return 2 * math.exp(-step * rate) + 0.2 / (1 + noise) + 0.03 * math.sin(step * 1.7 + noise)

    values = {step: loss(step) if step != 40 else math.nan for step in range(1, 121)}
    source.curves[row.key] = {
        "loss": [MetricPoint(step, begun + step, value) for step, value in values.items()],
        "accuracy": [MetricPoint(step, begun + step, 1 - value / 3) for step, value in values.items()],
        **{
            SYSTEM + name: [
                MetricPoint(step, begun + 10 * step, most * (0.6 + 0.3 * math.sin(step / pace)))
                for step in range(70)
            ]
            for name, most, pace in (
                ("cpu", 4, 3),
                ("memory", 3e9, 20),
                ("host_cpu", 1, 5),
                ("host_memory", 0.8, 25),
            )
        },
    }


def _train(number: int, start: datetime, now: datetime) -> list[Row]:
    """A training and its evaluation, in one of seven conditions."""
    tags = {"lr": f"{0.1 / (1 + number % 7):.4f}", "seed": str(number % 5)}
    train = fake_row(
        SWEEP, "demo.Train", f"{number:08x}aaaaaaaa", tags=tags, depends_on=("88ad934f00000000",),
        submitted=start - timedelta(seconds=15), owner=SWEEP.replace(":", "/"), where="node-1",
    )  # fmt: skip
    then = train._replace(attempt=1, started=min(start, now - timedelta(seconds=5)))
    match number % 8:
        case 5:
            train = then._replace(
                state=JobState.ERROR, reason=JobFailureStatus.FAILED, ended=then.started,
                message="ValueError: lr must be positive (train.py:41)",
            )  # fmt: skip
        case 6:
            train = then._replace(
                state=JobState.RUNNING, attempt=2, progress=0.57, progress_desc="epoch 16",
                eta_at=now + timedelta(seconds=91),
            )  # fmt: skip
        case 7:
            train = train._replace(
                state=JobState.READY, message="waits for 1 of token gpu (2 of 2 units busy)", where=""
            )
        case _:
            train = then._replace(
                state=JobState.DONE, ended=then.started and then.started + timedelta(seconds=31 + number % 9)
            )
    evaluate = fake_row(
        SWEEP, "demo.Evaluate", f"{number:08x}bbbbbbbb", tags=tags, depends_on=(train.id,),
        submitted=train.submitted,
    )  # fmt: skip
    if train.state is JobState.DONE:
        evaluate = evaluate._replace(
            state=JobState.DONE, attempt=1, started=train.ended, energy_kwh=0.0003,
            ended=train.ended and train.ended + timedelta(seconds=4),
        )  # fmt: skip
    elif train.state is JobState.ERROR:
        evaluate = evaluate._replace(
            state=JobState.ERROR, reason=JobFailureStatus.DEPENDENCY,
            message=f"demo.Train {train.id[:12]} failed (FAILED)",
        )  # fmt: skip
    else:
        evaluate = evaluate._replace(message=f"waits for demo.Train {train.id[:12]}")
    return [train, evaluate]


def _moments(row: Row, begun: datetime) -> list[Moment]:
    found = [Moment(row.submitted or begun, row.key, JobState.WAITING)]
    if row.started is not None and row.attempt > 1:
        first, again = row.started - timedelta(seconds=12), row.started - timedelta(seconds=3)
        found.append(Moment(first, row.key, JobState.RUNNING, 1))
        found.append(Moment(again, row.key, JobState.WAITING, 1, JobFailureStatus.TIMEOUT))
    if row.started is not None:
        found.append(Moment(row.started, row.key, JobState.RUNNING, row.attempt))
    if row.state.finished():
        at = row.ended or row.started or row.submitted or begun
        found.append(Moment(at, row.key, row.state, row.attempt, row.reason))
    return found


def _service(now: datetime) -> FakeSource:
    source = FakeSource(Door.SERVICE)
    source.put_group(
        Group(SERVICE, Door.SERVICE, "haddock", state="up", live=True, started=now - timedelta(days=2))
    )
    words = {
        JobState.DONE: "Completed", JobState.RUNNING: "Running",
        JobState.WAITING: "Queued", JobState.ERROR: "Failed",
    }  # fmt: skip
    for number in range(30):
        state = (JobState.DONE, JobState.DONE, JobState.RUNNING, JobState.WAITING, JobState.ERROR)[number % 5]
        start = now - timedelta(minutes=11 - number / 3)
        row = fake_row(
            SERVICE, "haddock", str(number), state, status=words[state], owner=f"user-{number % 4}",
            submitted=start - timedelta(seconds=30),
        )  # fmt: skip
        if state is not JobState.WAITING:
            row = row._replace(attempt=1, started=start, where=f"node-{number % 2 + 1}")
        if state.finished():
            row = row._replace(ended=start + timedelta(seconds=50))
        if state is JobState.ERROR:
            row = row._replace(reason=JobFailureStatus.FAILED, message="run.sh exited with code 1")
        source.put(row)
    source.remember(SERVICE, [])
    source.shown = Panels(
        queue={
            "services": [
                {
                    "name": "haddock", "queued": 37, "running": 10, "max_runs": 16, "runs_per_user": 5,
                    "oldest_s": 192.0,
                }
            ],
            "users": [
                {"user": "12", "service": "haddock", "queued": 21, "running": 5, "quota": 5},
                {"user": "7", "service": "haddock", "queued": 16, "running": 5, "quota": 5},
            ],
        },
        nodes=[
            {
                "url": f"http://node-{number}:5000", "services": ["haddock"], "state": state, "load": load,
                "running": running, "slots": 8, "seen": now.isoformat(), "failures": failures,
            }
            for number, state, load, running, failures in ((1, "up", 0.82, 6, 0), (2, "away", None, 0, 3))
        ],
    )  # fmt: skip
    return source


def _search(now: datetime) -> FakeSource:
    source = FakeSource(Door.SEARCH)
    begun = now - timedelta(minutes=10)
    source.put_group(Group(SEARCH, Door.SEARCH, "packing", state="running", live=True, started=begun))
    elites, history, moments = [], [], []
    cells: dict[str, tuple[int, int]] = {}
    best = 0.0
    for number in range(260):
        x, y = (number * 7) % _CELLS, (number * 11 + number // _CELLS) % _CELLS
        objective = 2.6359 - ((x - 12) ** 2 + (y - 7) ** 2) / 150
        at = begun + timedelta(seconds=2 * number)
        is_running = number >= 252
        row = fake_row(
            SEARCH, "packing", str(number), JobState.RUNNING if is_running else JobState.DONE,
            status="RUNNING" if is_running else "SUCCEEDED", attempt=1, submitted=at, started=at,
            ended=None if is_running else at + timedelta(seconds=12), where="node-1",
        )  # fmt: skip
        source.put(row)
        cells[row.key] = (x, y)
        moments += _moments(row, begun)
        if number >= _CELLS:
            source.parents[row.key] = row.key.replace(f"/{number}", f"/{number - _CELLS}")
        if row.ended is not None:
            best = max(best, objective)
            if number == _BEST:  # two others had the cell before it
                for step, (earlier, less) in enumerate(((100, 0.05), (140, 0.012))):
                    before = row.key.replace(f"/{number}", f"/{earlier}")
                    then = begun + timedelta(seconds=2 * earlier + step)
                    elites.append([x, y, objective - less, before, then.isoformat()])
            elites.append([x, y, objective, row.key, row.ended.isoformat()])
            history.append([row.ended.isoformat(), len({(one[0], one[1]) for one in elites}), best])
            source.values[row.key] = {"objective": objective, "density": x / _CELLS, "symmetry": y / _CELLS}
    axes = [{"name": name, "low": 0.0, "high": 1.0, "cells": _CELLS} for name in ("density", "symmetry")]
    source.remember(SEARCH, moments)
    in_flight = [
        [*cells[row.key], row.key] for chunk in source.rows(SEARCH) for row in chunk if row.state.running()
    ]
    source.shown = Panels(
        archives=[
            {
                "group": SEARCH, "axes": axes, "elites": elites, "in_flight": in_flight,
                "total": _CELLS**2, "direction": "max", "history": history,
            }
        ]
    )  # fmt: skip
    return source


def _keep_moving(source: FakeSource) -> None:
    """Progress for ever, so that a page has something to show."""
    fraction = 0.0
    pause = threading.Event()
    while not pause.wait(1.0):
        fraction = (fraction + 0.01) % 1
        for chunk in source.rows(SWEEP):
            for row in chunk:
                if row.state is JobState.RUNNING:
                    source.put(row._replace(progress=fraction, progress_desc=f"epoch {int(30 * fraction)}"))


def main() -> None:
    """Serve the demonstration, and print its link."""
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 120
    sources = demo_sources(jobs)
    provider = LocalProvider(sources, workspace="/demo", version="demo")
    server = WebServer(provider, open_socket(LOCALHOST, port))
    threading.Thread(target=_keep_moving, args=(sources[0],), daemon=True).start()

    def ready() -> None:
        sys.stdout.write(server.link(server.sessions.new_code()) + "\n")
        sys.stdout.flush()

    try:
        server.run(ready, os.getpid())
    finally:
        provider.close()


if __name__ == "__main__":
    main()
