"""A runner that dies where the test wants it: the runner's own program, under a `Watcher`.
Given to a launcher in the place of the interpreter (see `matrix.write_interpreter`).

FAULTS_RUNNER and FAULTS_PAYLOAD name the operation, FAULTS_DIRECTORY the case's directory.
"""

import os
import sys

sys.path.insert(0, __file__.rpartition("/")[0])

from killing import Strike, Watcher

del sys.path[0]
while sys.argv[1].startswith("-"):
    del sys.argv[1]
del sys.argv[0]
directory = os.environ["FAULTS_DIRECTORY"]
watcher = Watcher(
    Strike(os.environ.get("FAULTS_RUNNER"), f"{directory}/struck-runner"),
    f"{directory}/trace-runner" if "FAULTS_TRACE" in os.environ else None,
    child=Strike(os.environ.get("FAULTS_PAYLOAD"), f"{directory}/struck-payload"),
    names=dict(zip(map(int, sys.argv[4:7]), ("lock", "descendants", "ready"), strict=True)),
)
watcher.install()
watcher.sees("begin")
with open(sys.argv[0]) as program:
    code = compile(program.read(), sys.argv[0], "exec")
exec(code, {"__name__": "__main__", "__file__": sys.argv[0]})
