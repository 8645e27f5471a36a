"""Owns the command line of the proofs: ``python -m proof [--only models,nth] [--seeds N] [--minutes M]``."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

from proof import report
from proof.report import Options, Proof, Report

PROOFS = {
    "models": "model checks: every interleaving and every crash of the protocols",
    "nth": "every operation on files fails once, in every way",
    "fuzz": "every reader of files meets garbage",
    "simulation": "the real scheduler on a virtual machine that crashes",
    "matrix": "kill points with real processes",
    "soak": "three schedulers under random SIGKILL and SIGSTOP",
    "server": "a scheduler that lives for months, under load",
    "clusters": "one script on a laptop, Slurm, Grid Engine and hosts by ssh, whatever dies",
    "service": "servers and nodes of the job service are killed at every pair of their kill points",
    "fleet": "two servers and three nodes of the job service under random strikes",
}
"""The module `proof.NAME` has `run(options) -> Report`; in this order they run."""


def main(arguments: list[str] | None = None) -> int:
    given = _parsed(arguments)
    if given.join:
        print(
            f"wrote {os.path.relpath(report.joined(given.join, tuple(PROOFS), given.results))}",
            file=sys.stderr,
        )
        return 0
    options, chosen = _options(given), given.only
    around = report.circumstances(options, given.commit)
    reports: list[Report] = []
    for name in chosen:
        print(f"{name}: {PROOFS[name]}", file=sys.stderr, flush=True)
        reports.append(_timed(name, options))
        print(report.text(reports[-1]), flush=True)
        page = report.write(reports, around, given.results)  # a run that is ended early keeps what it has
    print(report.summary(reports))
    print(f"wrote {os.path.relpath(page)} and the raw numbers beside it", file=sys.stderr)
    return 0 if all(each.good for each in reports) else 1


def proof(name: str) -> Proof:
    run: Proof = importlib.import_module(f"proof.{name}").run
    return run


def present() -> list[str]:
    """The proofs that are there, in the order of the table."""
    return [name for name in PROOFS if importlib.util.find_spec(f"proof.{name}") is not None]


def _timed(name: str, options: Options) -> Report:
    began = time.perf_counter()
    return replace(proof(name)(options), seconds=time.perf_counter() - began)


def _parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m proof", description="Try to break what Tenuto promises.")
    parser.add_argument("--only", help=f"some of {','.join(PROOFS)}, with commas")
    parser.add_argument("--small", action="store_true", help="the sizes of `make test`")
    parser.add_argument("--seeds", type=int, help="how many seeds the simulation runs")
    parser.add_argument("--first-seed", type=int, default=0, help="where the seeds begin")
    parser.add_argument("--minutes", type=float, help="how long the soak runs")
    parser.add_argument("--seconds", type=float, help="how long each reader is fuzzed")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="processes at once")
    parser.add_argument("--no-planted", action="store_true", help="leave out the planted bugs")
    parser.add_argument("--results", type=Path, help="the directory of the result; else proof/results")
    parser.add_argument("--commit", help="the commit of this tree, where git does not know it")
    parser.add_argument(
        "--join", type=Path, nargs="+", metavar="RESULT", help="make one result of several; prove nothing"
    )
    given = parser.parse_args(arguments)
    given.only = present() if given.only is None else [name for name in given.only.split(",") if name]
    if not given.only:
        parser.error("--only names no proof")
    if unknown := sorted(set(given.only) - set(present())):
        parser.error(f"there is no proof {', '.join(unknown)}; there are {', '.join(present())}")
    return given


def _options(given: argparse.Namespace) -> Options:
    return Options(
        small=given.small,
        seeds=given.seeds,
        first_seed=given.first_seed,
        minutes=given.minutes,
        seconds=given.seconds,
        workers=given.workers,
        planted=not given.no_planted,
    )


if __name__ == "__main__":
    sys.exit(main())
