"""Owns the replay of one seed: ``python -m proof.simulation 1234 [--operations] [--bug NAME] [--shrink]``."""

from __future__ import annotations

import argparse
import contextlib
import sys

from proof.simulation import smallest
from proof.simulation.planted import BUGS, planted
from proof.simulation.scenario import draw
from proof.simulation.shrink import shown
from proof.simulation.world import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proof.simulation", description="Live one world again.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--operations", action="store_true", help="also show each operation on the disk")
    parser.add_argument("--shrink", action="store_true", help="first make a failing world small")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with this planted bug")
    given = parser.parse_args()
    with planted(given.bug) if given.bug else contextlib.nullcontext():
        outcome = simulate(draw(given.seed))
        if given.shrink and outcome.violations:
            outcome = smallest(outcome)
    print(shown(outcome.scenario), end="\n\n")
    print(outcome.operations() if given.operations else outcome.story(), end="\n\n")
    print(f"trace {outcome.trace_hash()}")
    for violation in outcome.violations:
        print(f"VIOLATION: {violation}")
    return 1 if outcome.violations else 0


if __name__ == "__main__":
    sys.exit(main())
