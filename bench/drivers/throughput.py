"""Owns the driver of W1: one experiment of no-op tasks; prints what the whole process and its jobs took.

python throughput.py warm|spawn noop|numpy|command COUNT
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time

SLOTS = 2
TASKS = {
    "noop": """
from tenuto import Param, Task

class Work(Task):
    number: Param[int]

    def execute(self):
        return None
""",
}
TASKS["numpy"] = "import numpy\n" + TASKS["noop"]


def main(launcher: str, kind: str, count: int) -> None:
    from tenuto import CommandTask, experiment
    from tenuto.launchers.choice import choose_launcher

    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIRECTORY")) as place:
        if kind == "command":
            make = [lambda n=n: CommandTask.C(command=["/bin/true", str(n)]) for n in range(count)]
        else:
            with open(f"{place}/w1_tasks.py", "w") as file:
                file.write(TASKS[kind])
            sys.path.insert(0, place)
            import w1_tasks

            make = [lambda number=number: w1_tasks.Work.C(number=number) for number in range(count)]
        began, used = time.perf_counter(), cpu_s()
        chosen = choose_launcher(launcher, SLOTS)
        with experiment(f"{place}/ws", "w1", launcher=chosen):
            submitted = time.perf_counter()
            for one in make:
                one().submit()
            submitted = time.perf_counter() - submitted
        wall_s = time.perf_counter() - began
        chosen.close()
        print(json.dumps({"cpu_s": cpu_s() - used, "wall_s": wall_s, "submit_s": submitted}))


def cpu_s() -> float:
    """Of this process and of all it waited for; a warm parent's is added when it is reaped."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
