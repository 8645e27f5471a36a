"""Owns a task whose module takes a while to import, and must not be forked: as one does that touches CUDA."""

import os
import threading
import time

from tenuto import Param, Task

if os.environ.get("BENCH_IMPORTS") == "torch":
    import torch

    torch.ones(1, device="cuda").sum().item()
else:
    time.sleep(float(os.environ["BENCH_IMPORT_S"]))
    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()


class Held(Task):
    """Holds its token for a while, and says when that was."""

    number: Param[int]
    work_s: Param[float]

    def execute(self):
        began = time.monotonic()
        time.sleep(self.work_s)
        return [began, time.monotonic()]
