"""Owns the driver of W14: jobs that need the only unit of a token, and cannot be forked.

spares.py warm|spawn COUNT WORK_S [torch], in an empty directory; reports how long the unit was idle
"""

import json
import os
import sys
import time
from itertools import pairwise
from statistics import median

IMPORT_S = 0.5


def main(launcher, count, work_s, imports=""):
    os.environ["BENCH_IMPORT_S"] = "0"  # here, where no job runs
    os.environ["TENUTO_TOKENS_PATH"] = os.path.abspath("tokens")
    from bench_slow_tasks import Held

    os.environ["BENCH_IMPORT_S"] = str(IMPORT_S)
    os.environ["BENCH_IMPORTS"] = imports
    from tenuto import experiment
    from tenuto.launchers.selection import choose_launcher

    began = time.perf_counter()
    chosen = choose_launcher(launcher, 2)
    with experiment("ws", "w14", launcher=chosen) as xp:
        token = xp.token("device", 1)
        held = [token(1, Held.C(number=number, work_s=work_s)).submit() for number in range(count)]
    wall_s = time.perf_counter() - began
    spans = sorted(one.job.result() for one in held)
    gaps = [after[0] - before[1] for before, after in pairwise(spans)]
    chosen.close()
    print(json.dumps({"wall_s": wall_s, "cpu_s": 0.0, "idle_s": median(gaps[1:]), "idle": gaps}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), *sys.argv[4:])
