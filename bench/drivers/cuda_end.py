"""Owns what the end of a process costs that has used CUDA, while another has the device open as a spare has.

cuda_end.py _exit|exit COUNT: the kernel takes everything at once, or the exit handlers of libraries run first
"""

import ctypes
import json
import os
import subprocess
import sys
import time

OTHER = "import torch; torch.ones(1, device='cuda').sum().item(); print(flush=True); input()"


def end(how):
    """Use the device as a training does, say when that is over, and end."""
    import torch

    model = torch.nn.Linear(512, 512).cuda()
    model(torch.randn(64, 512, device="cuda")).sum().backward()
    torch.cuda.synchronize()
    print(time.monotonic(), flush=True)
    if how == "_exit":
        os._exit(0)
    ctypes.CDLL(None).exit(0)


def main(how, count):
    other = subprocess.Popen([sys.executable, "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    other.stdout.readline()
    took = []
    for _ in range(count):
        done = subprocess.run([sys.executable, __file__, how], stdout=subprocess.PIPE, check=True)
        took.append(time.monotonic() - float(done.stdout))
    other.communicate(b"\n")
    print(json.dumps({"wall_s": sum(took), "cpu_s": 0.0, "took": took}), flush=True)


if __name__ == "__main__":
    end(sys.argv[1]) if len(sys.argv) == 2 else main(sys.argv[1], int(sys.argv[2]))
