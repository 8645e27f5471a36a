"""Owns the measurement of submissions: ``submits.py COUNT`` prints a JSON object.

Tasks of 20 configs, whose classes are in 10 modules, wait for a job that runs: what is measured is what
`submit()` costs, with the record of what their results will be made of.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from pathlib import Path

from tenuto import Param, Task, experiment

COUNT, MODULES, CLASSES = int(sys.argv[1]), 10, 2
MODULE = "from tenuto import Config, Param\n" + "".join(
    f"\n\nclass Part{number}(Config):\n    x: Param[int]\n" for number in range(CLASSES)
)
sys.path.insert(0, str(Path.cwd()))
sys.dont_write_bytecode = True
for place in range(MODULES):
    Path(f"parts_{place}.py").write_text(MODULE)
PARTS = [
    getattr(import_module(f"parts_{place}"), f"Part{number}")
    for place in range(MODULES)
    for number in range(CLASSES)
]


class Hold(Task):
    """Keeps all others waiting."""

    def execute(self):
        time.sleep(3600)


Whole = type(Task)(
    "Whole",
    (Task,),
    {
        "__module__": __name__,
        "__qualname__": "Whole",
        "__annotations__": {"hold": Param[Hold], **{f"part_{i}": Param[one] for i, one in enumerate(PARTS)}},
        "execute": lambda self: None,
    },
)


if __name__ == "__main__":
    with experiment("workspace", "submits", settings={"show_progress": False}):
        hold = Hold.C().submit()
        tasks = [
            Whole.C(hold=hold, **{f"part_{i}": one.C(x=n) for i, one in enumerate(PARTS)})
            for n in range(COUNT + 1)
        ]
        tasks.pop().submit()  # what a class and a file cost once is not the cost of a job
        cpu, wall = time.process_time(), time.perf_counter()
        for task in tasks:
            task.submit()
        submit = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
        print(json.dumps({"submit": submit}), flush=True)
        os._exit(0)
