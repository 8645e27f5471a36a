"""Owns the terminal of W11: how soon `tenuto top` shows the first rows of many jobs, the last, and a change.

top.py COUNT CHANGES, in the directory that `prepare.py` filled. The terminal is a pseudo terminal of 120x40;
what is written to it is read as it comes, and both clocks are the machine's.
"""

import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from datetime import UTC, datetime

import listing
from ends import Ends
from server import until_settled

LONGEST_S = 120.0
IDLE_S = 5.0
FEW = 10
"""A try with fewer changes is a quick one."""


class Terminal:
    """`tenuto top` on a terminal of its own; all that it writes is kept."""

    def __init__(self, *arguments):
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES"):
            environment.pop(name, None)
        self.began = time.perf_counter()
        command = [sys.executable, "-m", "tenuto", "top", *arguments]
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self._written = bytearray()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        try:
            while data := os.read(self._master, 65_536):
                with self._news:
                    self._written += data
                    self._news.notify_all()
        except OSError:  # the process has ended
            pass

    def size(self):
        """How much was written."""
        return len(self._written)

    def press(self, key):
        os.write(self._master, key.encode())

    def until(self, text, begin=0):
        """Wait for a text after a place; the instant at which it was read."""
        with self._news:
            if not self._news.wait_for(lambda: text.encode() in self._written[begin:], LONGEST_S):
                raise TimeoutError(f"never written: {text}")
        return time.perf_counter()

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self):
        self.press("q")
        self.process.wait(LONGEST_S)
        self._reader.join(LONGEST_S)
        os.close(self._master)


def measured(terminal, ends, jobs, changes):
    """What the terminal takes to show a group, to go to its end, and to show changes of its last job."""
    report = {"top_rows_s": terminal.until(jobs[0][:8]) - terminal.began, "top_rows_cpu_s": terminal.cpu_s()}
    terminal.until(f"{len(jobs):,} of {len(jobs):,}")
    report["top_known_s"] = time.perf_counter() - terminal.began
    begin, pressed = terminal.size(), time.perf_counter()
    terminal.press("G")
    report["top_end_s"] = terminal.until(jobs[-1][:8], begin) - pressed
    took = []
    for number in range(changes):
        begin, failed = terminal.size(), number % 2 == 0
        written = ends.end(jobs[-1], failed=failed)
        terminal.until("✗ error" if failed else "✓ done", begin)
        took.append((datetime.now(UTC) - written).total_seconds())
    report["top_change_s"] = statistics.median(took)
    report["top_mb"] = terminal.resident_mb()
    until_settled(terminal)
    before, idle_s = terminal.cpu_s(), IDLE_S if changes >= FEW else IDLE_S / 10
    time.sleep(idle_s)
    report["top_idle_percent"] = (terminal.cpu_s() - before) / idle_s * 100
    return report


def main(count, changes):
    run_id, jobs = listing.write("ws", count)
    ends = Ends(os.path.abspath("ws"), "listed", run_id)
    terminal = Terminal("listed", "-w", "ws")
    try:
        report = measured(terminal, ends, jobs, changes)
    finally:
        terminal.close()
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
