"""Owns the command line of the benchmark suite: ``python -m bench [--quick] [--only W1,W3] [--no-peers]``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import (
    floors,
    peers,
    results,
    w1_throughput,
    w2_chain,
    w3_nothing,
    w4_memory,
    w5_start,
    w6_idle,
    w7_identity,
    w8_service,
    w9_search,
    w10_recovery,
    w11_monitor,
    w12_slurm,
    w13_slots,
    w14_spares,
    w15_million,
)
from bench.measure import reference
from bench.peers.environments import version
from bench.peers.systems import ALL
from bench.rows import REF_S, Row
from bench.scale import LIMITS, SLOTS, Budget, Options, Scale
from bench.scratch import ROOT, clear
from bench.table import page, time_text

MODULES = (
    floors,
    w1_throughput,
    w2_chain,
    w3_nothing,
    w4_memory,
    w5_start,
    w6_idle,
    w7_identity,
    w8_service,
    w9_search,
    w10_recovery,
    w11_monitor,
    w12_slurm,
    w13_slots,
    w14_spares,
    w15_million,
)
WORKLOADS = {module.WORKLOAD.name: module.WORKLOAD for module in MODULES}
PEERS_WHEN_QUICK = ("W1", "W3", "W5", "W7")


def names(known: Sequence[str]) -> Any:
    """A type of argument: names separated by commas."""
    by_lower = {name.lower(): name for name in known}

    def parse(text: str) -> list[str]:
        given = [name.strip() for name in text.split(",") if name.strip()]
        unknown = [name for name in given if name.lower() not in by_lower]
        if unknown:
            raise argparse.ArgumentTypeError(
                f"{', '.join(unknown)} is not known; choose from {', '.join(known)}"
            )
        return [by_lower[name.lower()] for name in given]

    return parse


def numbers(text: str) -> tuple[int, ...]:
    """A type of argument: numbers of at least 1, separated by commas."""
    found = tuple(int(part) for part in text.split(","))
    if min(found) < 1:
        raise argparse.ArgumentTypeError("there is one slot at least")
    return found


def arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Tenuto's workloads.")
    parser.add_argument("--quick", action="store_true", help="the same as --sizes quick")
    parser.add_argument("--sizes", choices=[scale.value for scale in Scale], default="full")
    parser.add_argument(
        "--only", type=names(list(WORKLOADS)), action="extend", help="workloads, separated by commas"
    )
    parser.add_argument("--slots", type=numbers, default=SLOTS, help="of W13, separated by commas")
    parser.add_argument("--cases", default="", help='of W12 alone, such as "warm beside,pilot,arrays"')
    parser.add_argument("--no-peers", action="store_true", help="measure Tenuto alone")
    parser.add_argument("--peers", type=names(peers.NAMES), help="these peers alone, separated by commas")
    parser.add_argument("--minutes", type=float, help="that the run may take; what does not fit is named")
    parser.add_argument("--repetitions", type=int, default=3, help="of each measurement")
    parser.add_argument(
        "--directory", type=Path, default=ROOT / "work", help="where the measured systems write"
    )
    parser.add_argument("--results", type=Path, default=results.RESULTS, help="where the results go")
    return parser.parse_args(argv)


def options_of(given: argparse.Namespace, slowness: float = 1.0) -> Options:
    scale = Scale.QUICK if given.quick else Scale(given.sizes)
    chosen = () if given.no_peers else tuple(given.peers or peers.NAMES)
    limits = LIMITS[scale]
    if given.minutes is not None:
        limits = replace(limits, total_s=given.minutes * 60)
    budget = Budget(limits, slowness=slowness)
    cases = tuple(filter(None, given.cases.split(",")))
    return Options(scale, given.repetitions, chosen, given.directory.absolute(), budget, given.slots, cases)


def run(options: Options, only: Sequence[str]) -> list[Row]:
    """Tenuto first, then the floors, then the peers: should the time run out, it is theirs."""
    rows: list[Row] = []
    for name in sorted(only, key=lambda name: name == "floor"):
        print(f"{name} {WORKLOADS[name].title}", file=sys.stderr, flush=True)
        options.budget.begin(WORKLOADS[name].share if len(only) > 1 else 1.0)
        for row in WORKLOADS[name].ours(options):
            rows.append(row)
            _tell(row)
    for name in only if options.peers else ():
        is_short = options.scale is Scale.QUICK and options.peers == peers.NAMES  # those that are named run
        if is_short and name not in PEERS_WHEN_QUICK and WORKLOADS[name].has_peers:
            options.budget.leave_out(name, "is not part of the short form", "peers")
            continue
        print(f"{name} of the peers", file=sys.stderr, flush=True)
        options.budget.begin(1.0)
        for row in WORKLOADS[name].theirs(options):
            rows.append(row)
            _tell(row)
    return results.in_order(rows, list(WORKLOADS))


def _tell(row: Row) -> None:
    each = "" if row.each is None else f", {time_text(row.each)} each"
    print(f"  {row.system}: {row.case}, {row.size:,}{each} {row.note}", file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    given = arguments(argv)
    for peer in () if given.no_peers else ALL:
        if peer.name in (given.peers or peers.NAMES):
            version(peer)  # installs it now, so that this takes no time of the run
    ref = reference(20)
    options = options_of(given, slowness=ref.wall_s / REF_S)
    began = time.monotonic()
    around = results.circumstances(options)
    around["ref"] = f"{time_text(ref.wall_s)} wall, {time_text(ref.cpu_s)} CPU"
    around["peers"] = {p.name: version(p) for p in ALL if p.name in options.peers} or "left out by request"
    try:
        rows = run(options, given.only or list(WORKLOADS))
        around["load_after"] = round(os.getloadavg()[0], 2)
        around["took"] = f"{time.monotonic() - began:.0f} s"
        result = results.Result(around, tuple(rows), tuple(options.budget.left_out))
        table = results.write(result, given.results)
        print(page(result.rows, result.around, result.left_out))
        print(f"wrote {table} with the raw numbers and the plots beside it", file=sys.stderr)
    finally:
        clear(options.directory)


if __name__ == "__main__":
    main()
