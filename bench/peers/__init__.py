"""Owns measuring the peers: which of them, at which sizes, how often; each row beside the reference.

A peer that is not installed, fails or would take too long is named, never silently absent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench.measure import Broken, Cost, Measured, Tree, beside_reference, child, repeat_over, tree
from bench.peers.environments import interpreter, surroundings
from bench.peers.peer import JOB, Peer, PeerAbsent
from bench.peers.systems import NAMES, PEERS, PYTHON
from bench.rows import Row, by_cpu, missing, plain, timed
from bench.scale import Options, Sizes
from bench.scratch import fresh

__all__ = ["NAMES", "again", "chosen", "many", "peaks", "sleeping", "starting"]

_peaks: dict[str, dict[int, tuple[float, list[int]]]] = {}
"""peer -> size -> load and peaks in kB, of the runs of W1."""


def chosen(options: Options) -> list[Peer]:
    return [peer for peer in PEERS if peer.name in options.peers]


def many(options: Options, workload: str, case: str, shape: str, sizes: Sizes) -> Iterator[Row]:
    """Each peer runs jobs of a shape, from nothing."""
    for peer in chosen(options):
        job_s = peer.hop_s if shape == "chain" else peer.job_s
        yield from _cells(options, workload, case, peer, shape, sizes, job_s)


def _cells(
    options: Options, workload: str, case: str, peer: Peer, shape: str, sizes: Sizes, job_s: float
) -> Iterator[Row]:
    for size in _fitting(options, workload, peer, sizes, job_s, options.repetitions):
        seen: list[Tree] = []

        def once(size: int = size, seen: list[Tree] = seen) -> Cost:
            with fresh(options.directory) as place:
                seen.append(_run(peer, place, shape, size))
            return _cost(peer, seen[-1])

        try:
            found = beside_reference(options.repetitions, options.references, once)
        except (Broken, PeerAbsent) as problem:
            yield _missing(workload, case, peer, size, problem)
            return
        if shape == "many":
            _peaks.setdefault(peer.title, {})[size] = (found.load, [_peak_kb(peer, one) for one in seen])
        yield _timed(workload, case, peer, size, found)


def again(options: Options, workload: str, case: str, sizes: Sizes) -> Iterator[Row]:
    """Each peer that remembers what it did does it, and is asked once more: the whole process counts."""
    for peer in chosen(options):
        if not peer.remembers:
            if not any(other.remembers for other in PEERS if other.name == peer.name):
                options.budget.leave_out(workload, "does not remember what it did", peer.title)
            continue
        # To do the work takes as long as all repetitions of nothing together, or longer.
        for size in _fitting(options, workload, peer, sizes, peer.job_s + 0.01, 1 + options.repetitions // 3):
            try:
                with fresh(options.directory) as place:
                    _run(peer, place, "many", size)
                    found = beside_reference(
                        options.repetitions,
                        options.references,
                        lambda peer=peer, place=place, size=size: _run(peer, place, "many", size).cost,
                    )
            except (Broken, PeerAbsent) as problem:
                yield _missing(workload, case, peer, size, problem)
                break
            yield timed(workload, case, peer.title, size, found, note="whole process")


def peaks(options: Options) -> dict[str, dict[int, tuple[float, list[int]]]]:
    """What the peers' processes took in the runs of W1."""
    if not _peaks and options.peers:
        options.budget.leave_out("W4", "is read from their runs of W1, and there were none", "peers")
    return _peaks


Watch = Callable[[Sequence[str], Path, dict[str, str]], list[float]]


def sleeping(options: Options, workload: str, case: str, watch: Callable[[Options], Watch]) -> Iterator[Row]:
    """Each peer has one job that sleeps, while its processes are watched."""
    told = set()
    for peer in chosen(options):
        if peer.name in told:  # two ways to use one system idle alike
            continue
        told.add(peer.name)
        estimate_s = 10 + 3 * options.repetitions
        if not options.budget.affords(workload, peer.title, 1, estimate_s):
            continue
        load = os.getloadavg()[0]
        try:
            python = interpreter(peer)
            with fresh(options.directory) as place:
                _write(peer, place, "sleep", 1)
                values = watch(options)(peer.argv(python, "sleep", 1), place, _environment(place))
        except (Broken, PeerAbsent) as problem:
            yield _missing(workload, case, peer, 1, problem)
            continue
        yield plain(workload, case, peer.title, 1, "% CPU", values, load)


def starting(options: Options, workload: str) -> Iterator[Row]:
    """What it costs each peer to be imported, and to say what it can do."""
    for peer in chosen(options):
        for case, (command, *rest) in peer.start.items():
            if not options.budget.affords(workload, f"{case} of {peer.name}", 1, options.repetitions):
                continue
            load = os.getloadavg()[0]
            try:
                python = interpreter(peer)
                argv = [str(python.with_name(command)), *rest]
                child(argv)  # once for nothing: byte code and file cache
                cost = repeat_over(
                    options.repetitions,
                    lambda python=python: child([str(python), "-c", "pass"]),
                    lambda argv=argv: child(argv),
                )
            except (Broken, PeerAbsent, FileNotFoundError) as problem:
                yield _missing(workload, case, peer, 1, problem)
                continue
            yield by_cpu(workload, case, peer.name, 1, cost, load, note="over python -c pass")


def _fitting(
    options: Options, workload: str, peer: Peer, sizes: Sizes, job_s: float, repetitions: int
) -> list[int]:
    fitting = options.budget.fitting(
        workload,
        peer.title,
        sizes.at(options.scale),
        start_s=peer.start_s,
        job_s=job_s,
        repetitions=repetitions,
    )
    return [
        size
        for size in fitting
        if options.budget.affords(workload, peer.title, size, repetitions * (peer.start_s + job_s * size))
    ]


def _run(peer: Peer, place: Path, shape: str, size: int) -> Tree:
    _write(peer, place, shape, size)
    estimate_s = peer.start_s + max(peer.job_s, peer.hop_s) * size
    argv = peer.argv(interpreter(peer), shape, size)
    return tree(argv, directory=place, timeout_s=30 + 6 * estimate_s, environment=_environment(place))


def _write(peer: Peer, place: Path, shape: str, size: int) -> None:
    for name, text in peer.files(shape, size).items():
        path = place / name
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")


def _environment(place: Path) -> dict[str, str]:
    return {**surroundings(place), "BENCH_PYTHON": PYTHON, "BENCH_JOB": str(JOB)}


def _cost(peer: Peer, ran: Tree) -> Cost:
    if peer.whole:
        return ran.cost
    report = ran.report()
    return Cost(report["cpu_s"], report["wall_s"])


def _peak_kb(peer: Peer, ran: Tree) -> int:
    return ran.peak_kb if peer.whole else ran.report()["peak_kb"]


def _timed(workload: str, case: str, peer: Peer, size: int, found: Measured) -> Row:
    counted = "whole process" if peer.whole else "from the first submission"
    return timed(workload, case, peer.title, size, found, note=f"{peer.note}; {counted}")


def _missing(workload: str, case: str, peer: Peer, size: int, problem: Exception) -> Row:
    kind = "absent" if isinstance(problem, PeerAbsent) else "failed"
    return missing(workload, case, peer.title, size, f"{kind}: {problem}")
