"""Owns the waiting driver of W12: `slurm_waiting.py COUNT`; its jobs stay in the queue."""

import sys

from bench_tasks import Work


def main(count):
    from tenuto import experiment

    with experiment("ws", "w12"):
        for number in range(count):
            Work.C(number=number).submit()


if __name__ == "__main__":
    main(int(sys.argv[1]))
