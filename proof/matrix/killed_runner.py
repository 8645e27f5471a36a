"""A runner, its parent or its payload that dies where the test wants it: their program, under a `Watcher`.
Given to a launcher in the place of the interpreter (see `theatre`).

FAULTS_PARENT, FAULTS_RUNNER and FAULTS_PAYLOAD name the operation, FAULTS_DIRECTORY the case's directory.
Of a runner that a cluster starts: FAULTS_STANDS has it stand still there, FAULTS_APART takes its locks their
effect, and FAULTS_PLANTED is a bug, as a statement.
"""

from __future__ import annotations

import _socket
import os
import signal
import sys
from array import array

sys.path.insert(0, __file__.rpartition("/")[0])

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from proof.matrix.killing import Strike, Watcher
else:
    from killing import Strike, Watcher

del sys.path[0]
while sys.argv[1].startswith("-"):
    del sys.argv[1]
del sys.argv[0]
directory = os.environ["FAULTS_DIRECTORY"]
trace = f"{directory}/trace-runner" if "FAULTS_TRACE" in os.environ else None
NAMES = ("lock", "descendants", "ready", "units")
GIVEN = ("report", "descendants", "oracle.out", "oracle.err")
"""What the payload of a spare is given with its job."""


ELSEWHERE = """
from tenuto.launchers.runner import claimed
from tenuto.workspace import processes
processes._boot_id = lambda: "of the node"
claimed.DISK_PATIENCE_S = 1.0
"""
"""A runner of a cluster is on another host, where pids say nothing; its disk shows every file at once."""


def strike(who: str, blow: int = signal.SIGKILL) -> Strike:
    return Strike(os.environ.get(f"FAULTS_{who.upper()}"), f"{directory}/struck-{who}", blow)


def node() -> os.uname_result:
    return os.uname_result(("Linux", "node", *host[2:]))


def started_elsewhere(program: str) -> str:
    """The program of a runner, which believes to be on another host before it starts."""
    before, start = program.rsplit("\nstart(", 1)
    return f"{before}\n{ELSEWHERE}{os.environ.get('FAULTS_PLANTED', '')}\nstart({start}"


def watch_messages(watcher: Watcher, names: tuple[str, ...]) -> None:
    """Have messages count as operations; `names` of the descriptors beside them."""

    class Socket(_socket.socket):
        __slots__ = ()  # or `socket` could not be imported any more: its own class adds what this one has

        def recvmsg(self, *arguments: Any) -> Any:
            watcher.sees("recvmsg")
            received = super().recvmsg(*arguments)
            for _, _, descriptors in received[1]:
                for fd, name in zip(array("i", descriptors), names, strict=False):
                    watcher.knows(fd, name)
            return received

        def sendmsg(self, *arguments: Any) -> Any:
            watcher.sees("sendmsg")
            return super().sendmsg(*arguments)

    setattr(_socket, "socket", Socket)  # noqa: B010  to a type checker, a class is not replaced


if sys.argv[1] == "--warm":
    forked = (("parent", strike("runner")), ("child", strike("payload")))
    watcher = Watcher(strike("parent"), trace, role="warm", children=forked)
    watch_messages(watcher, NAMES)
elif sys.argv[1] == "--spare":
    watcher = Watcher(strike("runner"), trace)
    watch_messages(watcher, NAMES)
elif sys.argv[1] == "--spare-payload":
    watcher = Watcher(strike("payload"), trace, role="child")
    watch_messages(watcher, GIVEN)
elif sys.argv[1] == "--payload":
    watcher = Watcher(strike("payload"), trace, role="child")
elif sys.argv[1] == "--claim":
    host = os.uname()
    os.uname = node
    watcher = Watcher(
        strike("runner", signal.SIGSTOP if "FAULTS_STANDS" in os.environ else signal.SIGKILL),
        trace,
        children=(("child", strike("payload")),),
        looks=True,
        locks="FAULTS_APART" not in os.environ,
    )
else:
    names = dict(zip(map(int, sys.argv[5:]), NAMES, strict=False))
    watcher = Watcher(strike("runner"), trace, children=(("child", strike("payload")),), names=names)
watcher.install()
watcher.sees("begin")
with open(sys.argv[0]) as program:
    source = program.read()
    if sys.argv[1] == "--claim":
        source = started_elsewhere(source)
    code = compile(source, sys.argv[0], "exec")
exec(code, {"__name__": "__main__", "__file__": sys.argv[0]})
