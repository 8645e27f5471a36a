"""The meter: a program beside a runner that asks a tracker now and then, and prints its answer.
It ends with its runner, whatever the tracker does, and runs only when the machine has nothing better to do.

Arguments: TRACKER RUNNER EVERY_S COUNTRY DIRECTORY. A tracker is `module:function`, and its module may lie in
the directory; the function is called with the pid of the runner and the country, and returns an object whose
`sample()` gives the totals so far.
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module

sys.path.append(__file__.rpartition("/tenuto/launchers/")[0])

from tenuto.launchers.kernel import die_with_parent


def _say(**fields: object) -> None:
    os.write(1, json.dumps(fields).encode() + b"\n")


def _measure(name: str, runner: int, every_s: float, country: str | None) -> None:
    module, _, function = name.partition(":")
    tracker = getattr(import_module(module), function)(runner, country)
    while True:
        time.sleep(every_s)
        _say(**tracker.sample())


def _step_back() -> None:
    """Run when no other process wants to: this process, and its session where the kernel counts those."""
    os.nice(19)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    with suppress(OSError), open("/proc/self/autogroup", "w") as group:
        group.write("19")


def main(name: str, runner: str, every_s: str, country: str, directory: str = "") -> None:
    """Runs until it is killed, or the tracker gives up."""
    if directory:
        sys.path.append(directory)
    die_with_parent(signal.SIGKILL)
    if os.getppid() != int(runner):
        return  # it died before the kernel was told
    _step_back()
    try:
        _measure(name, int(runner), float(every_s), country or None)
    except BrokenPipeError:
        pass
    except Exception as error:  # noqa: BLE001  whatever a tracker raises is told, and harms no job
        _say(problem=f"{type(error).__name__}: {error}"[:500])


if __name__ == "__main__":
    main(*sys.argv[1:])
