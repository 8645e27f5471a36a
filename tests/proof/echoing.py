"""A theatre that plays nothing: it tells each case that it was given, and its flags."""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    flags = sys.argv[2:]
    if "--fail" in flags:
        raise SystemExit(3)
    for case in json.load(sys.stdin):
        print(json.dumps({**case, "flags": flags}))
