"""Owns the command line of this proof: ``python -m proof.service [--small]``; one pair: ``apart S4 N2``."""

from __future__ import annotations

import os
import sys

from proof.report import Options, text
from proof.service import run
from proof.service.case import Case
from proof.service.proving import play

THEATRES_PER_CORE = 2
"""A case mostly waits for processes that start."""


def main() -> int:
    if len(sys.argv) == 4:
        (result,) = play([Case(*sys.argv[1:])], 1)
        print("\n".join(result["problems"]) or f"held, in {result['seconds']:.1f} s")
        return bool(result["problems"])
    workers = THEATRES_PER_CORE * len(os.sched_getaffinity(0))
    found = run(Options(small="--small" in sys.argv, workers=workers))
    print(text(found))
    return 0 if found.good else 1


if __name__ == "__main__":
    sys.exit(main())
