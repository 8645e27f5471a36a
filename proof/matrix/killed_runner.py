"""A runner, or a warm parent, that dies where the test wants it: the runner's own program, under a `Watcher`.
Given to a launcher in the place of the interpreter (see `matrix.write_interpreter`).

FAULTS_PARENT, FAULTS_RUNNER and FAULTS_PAYLOAD name the operation, FAULTS_DIRECTORY the case's directory.
"""

import _socket
import os
import sys
from array import array

sys.path.insert(0, __file__.rpartition("/")[0])

from killing import Strike, Watcher

del sys.path[0]
while sys.argv[1].startswith("-"):
    del sys.argv[1]
del sys.argv[0]
directory = os.environ["FAULTS_DIRECTORY"]
trace = f"{directory}/trace-runner" if "FAULTS_TRACE" in os.environ else None
NAMES = ("lock", "descendants", "ready", "units")


def strike(who):
    return Strike(os.environ.get(f"FAULTS_{who.upper()}"), f"{directory}/struck-{who}")


if sys.argv[1] == "--warm":
    children = (("parent", strike("runner")), ("child", strike("payload")))
    watcher = Watcher(strike("parent"), trace, role="warm", children=children)

    class Socket(_socket.socket):
        """Messages are operations too."""

        def recvmsg(self, *arguments):
            watcher.sees("recvmsg")
            received = super().recvmsg(*arguments)
            for _, _, descriptors in received[1]:
                for fd, name in zip(array("i", descriptors), NAMES, strict=False):
                    watcher.knows(fd, name)
            return received

        def sendmsg(self, *arguments):
            watcher.sees("sendmsg")
            return super().sendmsg(*arguments)

    _socket.socket = Socket
else:
    names = dict(zip(map(int, sys.argv[4:]), NAMES, strict=False))
    children = (("child", strike("payload")),)
    watcher = Watcher(strike("runner"), trace, children=children, names=names)
watcher.install()
watcher.sees("begin")
with open(sys.argv[0]) as program:
    code = compile(program.read(), sys.argv[0], "exec")
exec(code, {"__name__": "__main__", "__file__": sys.argv[0]})
