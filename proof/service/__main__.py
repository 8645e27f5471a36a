"""Owns the command line of one case of this proof: ``python -m proof.service apart S4 N2``.
All of them: ``python -m proof --only service``.
"""

from __future__ import annotations

import sys

from proof.service.case import Case
from proof.service.proving import play

if __name__ == "__main__":
    (result,) = play([Case(*sys.argv[1:])], 1)
    print("\n".join(result["problems"]) or f"held, in {result['seconds']:.1f} s")
    sys.exit(bool(result["problems"]))
