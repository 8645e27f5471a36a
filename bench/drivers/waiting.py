"""Owns how soon `tenuto wait` is woken by the end of a job, for W11.

waiting.py COUNT, in an empty directory: jobs of a run in a process of its own end one after the other.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

from tenuto.catalogue import Catalogue
from tenuto.cli.commands.wait import Awaited, Waiting
from tenuto.clock import SystemClock

SCRIPT = """
import time
from pathlib import Path
from tenuto import Param, Task, experiment, tag

class Hold(Task):
    number: Param[int]

    def execute(self):
        while not Path(f"../../../../release-{self.number}").exists():
            time.sleep(0.01)

if __name__ == "__main__":
    with experiment("waited", "held"):
        for number in range(COUNT):
            Hold.C(number=tag(number)).submit()
"""


def late_of(catalogue, row):
    """Seconds from the marker of a job to the return of the wait for it."""
    group = catalogue.source(row.group).group(row.group)
    wait = Waiting(catalogue.source, [Awaited(group, frozenset([row.key]))], SystemClock())
    threading.Timer(0.5, Path(f"release-{row.tags['number']}").touch).start()
    wait.run(timeout_s=60)
    now = time.time()
    return now - os.stat(f"waited/jobs/{row.task}/{row.id}/Hold.done").st_mtime


def main(count):
    Path("held.py").write_text(SCRIPT.replace("COUNT", str(count)))
    given = {**os.environ, "TENUTO_SLOTS": str(count)}
    driver = subprocess.Popen([sys.executable, "held.py"], env=given, stderr=subprocess.DEVNULL)
    while not Path("waited").exists():
        time.sleep(0.05)
    with Catalogue("waited") as catalogue:
        while len(rows := catalogue.rows("state=running")) < count:
            time.sleep(0.1)
        took = [late_of(catalogue, row) for row in rows]
    driver.wait(60)
    print(json.dumps({"wake_s": statistics.median(took), "wake_most_s": max(took)}))


if __name__ == "__main__":
    main(int(sys.argv[1]))
