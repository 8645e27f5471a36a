"""Owns W12, Slurm: no-op jobs by arrays, by single sbatch and in a pilot, each beside its peer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from bench import ours
from bench.counted_slurm import CountedSlurm, calls_text
from bench.measure import ENVIRONMENT, Broken
from bench.peers.environments import interpreter, surroundings
from bench.peers.peer import PeerAbsent
from bench.peers.systems import PEERS
from bench.rows import FLOOR, OURS, Row, missing, plain
from bench.scale import Options, Scale, Sizes
from bench.scratch import fresh
from bench.workload import Workload
from tests.parts.slurm_configuration import Shape

SIZES = Sizes((3,), (50,), (200, 1000))
JUDGED_SIZE = 1000
"""The size that the targets are about: a pilot's start takes a second, however many jobs it runs."""
SLOTS = 8
JOB_S = 0.1
"""A rough guess at what one job takes, for the budget."""
MOST_OF_BARE = 1.2
MOST_OF_WARM = 1.2
MOST_OF_SUBMITIT = 0.5
MOST_LATENCY_S = 1.5
MOST_POLLS = 2
"""Questions to Slurm in a minute, once five answers brought nothing new."""
QUIET_S = 75.0
"""How long five quiet answers take: 5, 7.5, 11, 17 and 25 s apart."""
MINUTE_S = 60.0
_LINES_SAID = 6
"""Lines of what a process said that failed; an exception may quote the log of a job behind its own words."""
BARE = "bare array: python -c 'import tenuto'"
WARM = "warm beside"
SUBMITIT = "submitit"
MOST_COUNTED = 30
"""Jobs whose processor time is counted."""
CASES: dict[str, dict[str, str]] = {
    "arrays": {},
    "single sbatch": {"array_size": "1"},
    "pilot": {"pilots": "1", "pilot_cpus": "4", "pilot_idle_s": "1"},
}
"""Case -> settings of Slurm."""
WARM_VARIABLES = {"TENUTO_LAUNCHER": "warm", "TENUTO_SLOTS": "4"}
"""As many slots as the pilot has."""


class Once(NamedTuple):
    """One repetition of a case."""

    wall_s: float
    calls: Counter[str]
    latency_s: float | None = None


def own(options: Options) -> Iterator[Row]:
    smallest = SIZES.at(options.scale)[0]
    try:
        slurm = CountedSlurm(Shape(nodes=2, cpus=SLOTS // 2, accounting=shutil.which("slurmdbd") is not None))
    except (RuntimeError, OSError) as problem:
        yield missing("W12", "arrays", OURS, smallest, f"no private Slurm here: {problem}")
        return
    try:
        for size in SIZES.at(options.scale):
            if options.budget.affords("W12", "all", size, 6 * size * JOB_S, smallest=size == smallest):
                yield from _rows(options, slurm, size)
        if options.scale in (Scale.FULL, Scale.LARGE) and not options.cases:
            yield _polls(options, slurm, SIZES.at(options.scale)[-1])
    finally:
        slurm.close()
    if options.cases:
        return
    yield from _apart(options, smallest)
    yield from _processor(options, min(smallest, MOST_COUNTED))


def _rows(options: Options, slurm: CountedSlurm, size: int) -> Iterator[Row]:
    """Each figure beside its peer, measured one after the other in each repetition."""
    load = os.getloadavg()[0]
    # A case stands right behind its peer: Slurm's daemons are busy for a while with what came before.
    measures: dict[str, Callable[[], Once]] = {
        WARM: lambda: _ours(options, slurm, size, WARM_VARIABLES),
        "pilot": _case(options, slurm, size, CASES["pilot"]),
        BARE: lambda: _bare(slurm, size),
        "arrays": _case(options, slurm, size, CASES["arrays"]),
        "single sbatch": _case(options, slurm, size, CASES["single sbatch"]),
    }
    if options.peers:
        measures[SUBMITIT] = lambda: _submitit(options, slurm, size)
    measures = {case: one for case, one in measures.items() if case in (options.cases or measures)}
    found: dict[str, list[Once]] = {case: [] for case in measures}
    for _ in range(options.repetitions):
        for case, measure in measures.items():
            slurm.taken_calls()
            try:
                found[case].append(measure())
            except (Broken, PeerAbsent, subprocess.SubprocessError) as broken:
                yield missing("W12", case, OURS, size, f"failed: {broken}")
                if case != SUBMITIT:
                    return
    yield from _told(found, size, load)


def _told(found: dict[str, list[Once]], size: int, load: float) -> Iterator[Row]:
    """The rows of all cases: times, calls, and what the targets compare."""
    times = {case: [once.wall_s for once in ones] for case, ones in found.items() if ones}
    for case, ones in found.items():
        if ones:
            system = {BARE: FLOOR, SUBMITIT: SUBMITIT}.get(case, OURS)
            calls = calls_text(ones[len(ones) // 2].calls)
            yield plain("W12", case, system, size, "s", times[case], load, note=calls)
    compared = (
        ("arrays", BARE, MOST_OF_BARE),
        ("pilot", WARM, MOST_OF_WARM),
        ("arrays", SUBMITIT, MOST_OF_SUBMITIT),
    )
    for case, peer, most in compared:
        if peer in times and case in times:
            ratio = median(times[case]) / median(times[peer])
            is_judged = size >= JUDGED_SIZE
            target, limit = (f"<= {most:g} x", most) if is_judged else ("", None)
            yield plain("W12", f"{case} / {peer}", OURS, size, "x", [ratio], load, target, limit)


def _apart(options: Options, size: int) -> Iterator[Row]:
    """How late a driver hears of an end on nodes that are other hosts: no lock, no pid, no inotify helps."""
    if os.geteuid() != 0:
        yield missing("W12", "completion seen, nodes apart", OURS, size, "needs root")
        return
    slurm = CountedSlurm(Shape(nodes=2, cpus=SLOTS // 2, apart=True))
    try:
        load = os.getloadavg()[0]
        late = [_case(options, slurm, size, {})().latency_s or 0.0 for _ in range(options.repetitions)]
        target = f"<= {MOST_LATENCY_S:g} s at the median"
        yield plain(
            "W12", "completion seen, nodes apart", OURS, size, "s", late, load, target, MOST_LATENCY_S
        )
    except (Broken, subprocess.SubprocessError) as broken:
        yield missing("W12", "completion seen, nodes apart", OURS, size, f"failed: {broken}")
    finally:
        slurm.close()


def _processor(options: Options, size: int) -> Iterator[Row]:
    """The processor time of a job beside that of a bare one, without Slurm's own."""
    load = os.getloadavg()[0]
    command = [sys.executable, str(ours.DRIVERS / "slurm_processor.py"), str(size)]
    with fresh(options.directory) as place:
        said = _answer(command, place, dict(ENVIRONMENT))
    job_s, bare_s, further_s = (float(said[name]) for name in ("job_s", "bare_s", "further_s"))
    yield plain("W12", "processor time of one job", OURS, size, "s CPU", [job_s], load)
    case = "processor time of one job of a task that runs several"
    yield plain("W12", case, OURS, size, "s CPU", [further_s], load)
    yield plain("W12", f"processor time of one, {BARE}", FLOOR, size, "s CPU", [bare_s], load)


def _polls(options: Options, slurm: CountedSlurm, size: int) -> Row:
    """Questions a minute for jobs that wait in the queue, after five answers that brought nothing new."""
    load = os.getloadavg()[0]
    slurm.cluster.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    environment = {**ENVIRONMENT, **slurm.environment, "TENUTO_LAUNCHER": "slurm"}
    command = [sys.executable, str(ours.DRIVERS / "slurm_waiting.py"), str(size)]
    with fresh(options.directory) as place:
        driver = subprocess.Popen(command, cwd=place, env=environment, stdout=subprocess.DEVNULL)
        try:
            while len(slurm.cluster.run("squeue", "-h", "-r").splitlines()) < size:
                time.sleep(0.5)
            time.sleep(QUIET_S)
            slurm.taken_calls()
            time.sleep(MINUTE_S)
            polls = slurm.taken_calls()["squeue"]
        finally:
            driver.kill()
            driver.wait()
            slurm.cluster.run("scancel", "--me")
            slurm.cluster.run("scontrol", "update", "PartitionName=main", "State=UP")
    target = f"<= {MOST_POLLS} a minute"
    return plain("W12", "squeue while idle", OURS, size, "calls", [polls], load, target, MOST_POLLS)


def _case(options: Options, slurm: CountedSlurm, size: int, given: dict[str, str]) -> Callable[[], Once]:
    variables = {f"TENUTO_SLURM__{name.upper()}": value for name, value in given.items()}
    return lambda: _ours(options, slurm, size, {"TENUTO_LAUNCHER": "slurm", **variables})


def _ours(options: Options, slurm: CountedSlurm, size: int, variables: dict[str, str]) -> Once:
    """From entering an experiment to leaving it."""
    environment = {**ENVIRONMENT, **slurm.environment, **variables}
    command = [sys.executable, str(ours.DRIVERS / "slurm.py"), str(size)]
    with fresh(options.directory) as place:
        said = _answer(command, place, environment)
    return Once(float(said["wall_s"]), slurm.taken_calls(), float(said["latency_s"]))


def _submitit(options: Options, slurm: CountedSlurm, size: int) -> Once:
    """From making submitit's executor to the last result of its array."""
    peer = next(peer for peer in PEERS if peer.name == SUBMITIT)
    command = [str(interpreter(peer)), str(ours.DRIVERS / "run_submitit_slurm.py"), str(size), str(SLOTS)]
    with fresh(options.directory) as place:
        said = _answer(command, place, {**surroundings(place), **slurm.environment})
    return Once(float(said["wall_s"]), slurm.taken_calls())


def _answer(command: list[str], place: Path, environment: dict[str, str]) -> dict[str, Any]:
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    if done.returncode:
        raise Broken(" | ".join(done.stderr.strip().splitlines()[-_LINES_SAID:]) or "it failed")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _bare(slurm: CountedSlurm, size: int) -> Once:
    """What Slurm takes for an array of interpreters that import Tenuto and end."""
    root = Path(__file__).parents[1] / "src"
    script = f"#!/bin/sh\nPYTHONPATH={root} exec {sys.executable} -c 'import tenuto'\n"
    began = time.monotonic()
    submitted = subprocess.run(
        ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", f"--array=0-{size - 1}"],
        input=script,
        env={**os.environ, **slurm.cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    )
    job = submitted.stdout.strip()
    unfinished = ("squeue", "-h", "-r", "-t", "PENDING,RUNNING,COMPLETING", "-j", job)
    while slurm.cluster.run(*unfinished, check=False).strip():
        time.sleep(0.05)
    return Once(time.monotonic() - began, slurm.taken_calls())


WORKLOAD = Workload("W12", "Slurm: no-op jobs on a private cluster", own, share=0.1)
