"""Owns one long run in the shape of the README that is killed half way, and taken up once.

taken_up.py COUNT SLOTS [HALF], in an empty directory. The process that reports starts two others with HALF:
the first kills itself when half of the jobs are done, the second goes on. Each prints how many jobs were done
when, ten times a second.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time

from tenuto import Param, Scheduler, Task, experiment

EACH_S = 0.1
SHARE = 10


class Square(Task):
    """As small as a task can be."""

    x: Param[int]

    def execute(self):
        return self.x**2


def half(count, slots, is_first):
    from account import peak_kb

    from tenuto.launchers.selection import choose_launcher

    chosen = choose_launcher("warm", slots)
    began, own_s, base_kb, seen = time.monotonic(), time.process_time(), peak_kb(), []
    over = threading.Event()

    def report():
        own = {"own_s": time.process_time() - own_s, "grown_kb": peak_kb() - base_kb}
        print(json.dumps({"wall_s": time.monotonic() - began, "seen": seen, **own}), flush=True)

    with experiment("ws", "long", launcher=chosen) as run:
        counts = Scheduler.instance().counts(run.run)

        def look():
            while not over.wait(EACH_S):
                done = len(run.run.jobs) - counts.unfinished
                seen.append((time.monotonic() - began, done))
                if is_first and done >= count // 2:
                    report()
                    os.kill(os.getpid(), signal.SIGKILL)

        watching = threading.Thread(target=look)
        watching.start()
        for x in range(count):
            Square.C(x=x).submit()
        if is_first:
            watching.join()  # few jobs may all be done before it looks
    over.set()
    watching.join()
    report()
    chosen.close()


def rate(seen, low, high):
    """Jobs a second between two numbers of done jobs; 0 if nothing was seen there."""
    spans = [(at_s, done) for at_s, done in seen if low <= done <= high] or [(0.0, 0)]
    (begun_s, first), (ended_s, last) = spans[0], spans[-1]
    return (last - first) / max(ended_s - begun_s, EACH_S)


def main(count, slots):
    reports = []
    for which in ("first", "second"):
        argv = [sys.executable, __file__, str(count), str(slots), which]
        done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
        assert done.returncode == {"first": -signal.SIGKILL, "second": 0}[which], done.returncode
        reports.append(json.loads(done.stdout.splitlines()[-1]))
    first, second = reports
    found = first["seen"][-1][1]
    again_s = next((at_s for at_s, done in second["seen"] if done > found), second["wall_s"])
    tenth = count // SHARE
    print(
        json.dumps(
            {
                "wall_s": first["wall_s"] + second["wall_s"],
                "own_s": first["own_s"] + second["own_s"],
                "again_s": again_s,
                "first_each_s": rate(first["seen"], tenth, 2 * tenth),
                "last_each_s": rate(second["seen"], count - tenth, count),
                "job_kb": second["grown_kb"] / count,
            }
        )
    )


if __name__ == "__main__":
    if len(sys.argv) > 3:
        half(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "first")
    else:
        main(int(sys.argv[1]), int(sys.argv[2]))
