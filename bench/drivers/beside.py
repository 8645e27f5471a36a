"""Owns W1 beside a monitor: the no-op jobs of W1, alone, and with `tenuto ui` and a client that listens.

beside.py COUNT TIMES, in an empty directory; the two alternate, so that a busy moment hits both.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
from pathlib import Path

from server import Server

HERE = Path(__file__).parent


def once(place, count, *, is_watched):
    """Wall seconds of one run of W1 in a directory of its own."""
    for name in ("jobs", "experiments"):
        os.makedirs(f"{place}/ws/{name}")
    os.chdir(place)
    try:
        if not is_watched:
            return throughput(count)
        with Server() as server:
            stream, _ = server.client.stream()
            threading.Thread(target=stream.read, daemon=True).start()
            return throughput(count)
    finally:
        os.chdir("..")


def throughput(count):
    command = [sys.executable, str(HERE / "throughput.py"), "warm", "noop", str(count)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return json.loads(said.splitlines()[-1])["wall_s"]


def main(count, times):
    alone, watched = [], []
    for number in range(times):
        alone.append(once(f"alone-{number}", count, is_watched=False))
        watched.append(once(f"watched-{number}", count, is_watched=True))
    slower = statistics.median(watched) / statistics.median(alone) - 1
    print(json.dumps({"beside_percent": max(slower, 0.0) * 100, "alone_s": alone, "watched_s": watched}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
