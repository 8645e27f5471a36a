"""Owns what a driver reports of itself: wall and CPU time of a part of it, and its peak memory."""

import json
import resource
import time


class Account:
    """Opened when the measured part begins."""

    def __init__(self):
        self._began, self._used = time.perf_counter(), cpu_s()
        self.wall_s = 0.0

    def stop(self):
        """Ends the measured part."""
        self.wall_s = time.perf_counter() - self._began

    def report(self, **more):
        """Prints the result; called once all children are reaped, since only then their CPU time counts."""
        cost = {"wall_s": self.wall_s, "cpu_s": cpu_s() - self._used, "peak_kb": peak_kb()}
        print(json.dumps({**cost, **more}), flush=True)


def cpu_s():
    """Of this process and of all it waited for; a warm parent's is added when it is reaped."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def peak_kb():
    """`ru_maxrss` would begin with the memory of whoever started this process."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
