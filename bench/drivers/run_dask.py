"""Owns the workloads for Dask: `run_dask.py many|chain|sleep COUNT worker|fresh`.

Two worker processes of one thread, started before the clock; `fresh`: each task starts an interpreter.
"""

import os
import subprocess
import sys

from account import Account

SHAPE, COUNT, WAY = sys.argv[1], int(sys.argv[2]), sys.argv[3]


def work(number, command, _before=None):
    if command:
        subprocess.run([*command, f"out/{number}"], check=True)


def _own():
    return {"pid": os.getpid()}


def main():
    from distributed import Client, LocalCluster

    os.makedirs("out", exist_ok=True)
    command = [os.environ["BENCH_PYTHON"], os.environ["BENCH_JOB"]] if WAY == "fresh" else []
    if SHAPE == "sleep":
        command = ["sleep", "600"]
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
        Client(cluster) as client,
    ):
        workers = [info["pid"] for info in client.run(_own).values()]
        account = Account(workers)
        if SHAPE == "sleep":
            client.submit(subprocess.run, command, pure=False).result()
        elif SHAPE == "chain":
            last = None
            for number in range(COUNT):
                last = client.submit(work, number, command, last, pure=False)
            last.result()
        else:
            client.gather(client.map(work, range(COUNT), [command] * COUNT, pure=False))
        account.stop()
        account.report()


if __name__ == "__main__":
    main()
