"""The payload of the token tests: shows that it has its units to itself, by locks of the test's own.
Runs without Tenuto, so that nothing of what is judged helps to judge.

Arguments: DIRECTORY SECONDS NAME {TOKEN CAPACITY AMOUNT}... It writes `enter NAME`, works for SECONDS or
until the file `release` is there, and writes `leave NAME`; before, `overcommit NAME` if fewer than AMOUNT of
CAPACITY locks are free.
"""

import fcntl
import os
import sys
import time

directory, seconds, name, *wanted = sys.argv[1:]
PATIENCE_S = 2.0
"""The payload of a runner that was killed dies an instant after it."""


def note(what):
    ledger = os.open(f"{directory}/ledger", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(ledger, f"{what} {name} {os.getpid()}\n".encode())
    os.close(ledger)


def take(token, capacity, amount):
    deadline = time.monotonic() + PATIENCE_S
    taken = []
    free = [os.open(f"{directory}/{token}-{unit}", os.O_RDWR | os.O_CREAT, 0o600) for unit in range(capacity)]
    while len(taken) < amount:
        for lock in list(free):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            free.remove(lock)
            taken.append(lock)
            if len(taken) == amount:
                return
        if time.monotonic() > deadline:
            note("overcommit")
            return
        time.sleep(0.005)


for token, capacity, amount in zip(wanted[::3], wanted[1::3], wanted[2::3], strict=True):
    take(token, int(capacity), int(amount))
for fd in os.listdir("/proc/self/fd"):
    try:
        if os.readlink(f"/proc/self/fd/{fd}").endswith(".units"):
            note("inherited")
    except FileNotFoundError:
        continue
note("enter")
end = time.monotonic() + float(seconds)
while time.monotonic() < end and not os.path.exists(f"{directory}/release"):
    time.sleep(0.005)
note("leave")
