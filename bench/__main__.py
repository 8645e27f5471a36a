"""Owns the command line of the benchmark suite: ``python -m bench [--quick] [--only W7] [--no-peers]``."""

from __future__ import annotations

import argparse
import os
import sys

from bench import peers, report, w1_throughput, w5_start, w7_identity
from bench.measure import child, repeat
from bench.workload import Options, Workload

WORKLOADS: dict[str, Workload] = {
    w.name: w for w in (w1_throughput.WORKLOAD, w5_start.WORKLOAD, w7_identity.WORKLOAD)
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Tenuto's workloads.")
    parser.add_argument("--quick", action="store_true", help="a tenth of the sizes, three repetitions")
    parser.add_argument("--only", choices=sorted(WORKLOADS), action="append", help="may be given again")
    parser.add_argument("--no-peers", action="store_true", help="measure Tenuto alone")
    arguments = parser.parse_args()

    options = Options(
        quick=arguments.quick, peers=not arguments.no_peers, repetitions=3 if arguments.quick else 7
    )
    around = report.circumstances(options.quick, options.repetitions)
    reference = repeat(options.repetitions, lambda: child([sys.executable, "-c", "pass"]))
    around["reference_python_c_pass_cpu"] = report.time_text(reference.cpu_s)
    around["reference_python_c_pass_wall"] = report.time_text(reference.wall_s)
    try:
        python = peers.interpreter("experimaestro", enabled=options.peers)
        around["experimaestro"] = peers.version("experimaestro", python)
    except peers.PeerAbsent as absent:
        around["experimaestro"] = f"absent: {absent}"

    rows = []
    for name in arguments.only or WORKLOADS:
        workload = WORKLOADS[name]
        print(f"{workload.name} {workload.title}", file=sys.stderr)
        rows += workload.rows(options)
    around["load_after"] = os.getloadavg()[0]

    table = report.write(rows, around)
    print(report.markdown(rows, around))
    print(f"wrote {os.path.relpath(table)} and the raw numbers beside it", file=sys.stderr)


if __name__ == "__main__":
    main()
