"""Owns the command line of this proof: ``python -m proof.server [--small]``; fails if a promise is broken."""

from __future__ import annotations

import sys

from proof.report import Options, text
from proof.server import run

if __name__ == "__main__":
    found = run(Options(small="--small" in sys.argv))
    print(text(found))
    sys.exit(0 if found.good else 1)
