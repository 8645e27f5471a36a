"""Owns the driver of W12: one experiment of no-op jobs, by the launcher that the settings name.

slurm.py COUNT, in an empty directory
"""

import json
import sys
import time

from bench_tasks import Work


def main(count):
    from tenuto import experiment

    began = time.monotonic()
    with experiment("ws", "w12"):
        for number in range(count):
            Work.C(number=number).submit()
    print(json.dumps({"wall_s": time.monotonic() - began}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
