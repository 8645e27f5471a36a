"""Owns what a driver reports of itself: wall and CPU time of a part of it, and its peak memory."""

import json
import os
import resource
import time


class Account:
    """Opened when the measured part begins; children that are named live longer than that part."""

    def __init__(self, children=()):
        self._children = children
        self._began, self._used = time.perf_counter(), cpu_s() + self._living_s()
        self._own_s = time.process_time()
        self._cost = {}

    def stop(self, ago_s=0.0):
        """Ends the measured part, now or a while ago."""
        wall_s = time.perf_counter() - self._began - ago_s
        own_s = time.process_time() - self._own_s
        self._cost = {"wall_s": wall_s, "living_s": self._living_s(), "scheduler_cpu_s": own_s}

    def report(self, **more):
        """Prints the result; called once other children are reaped, since only then their CPU time counts."""
        living_s = self._cost.pop("living_s")
        cost = {**self._cost, "cpu_s": cpu_s() + living_s - self._used, "peak_kb": peak_kb(), **more}
        print(json.dumps(cost), flush=True)

    def _living_s(self):
        return sum(map(living_cpu_s, self._children))


def cpu_s():
    """Of this process and of all it waited for; a warm parent's is added when it is reaped."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def living_cpu_s(pid):
    """Of another process and of all it waited for, in the kernel's ticks."""
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def peak_kb():
    """`ru_maxrss` would begin with the memory of the process that started this one."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
