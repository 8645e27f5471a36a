"""TCP ports of this machine: taking one, and the process that has one already.
Serves nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterator

from tenuto.errors import PortTaken

LOCALHOST = "127.0.0.1"
_LISTENS = "0A"


def listen(host: str, port: int, backlog: int = 128) -> socket.socket:
    """A socket that listens there, on a free port for 0; `PortTaken` names the process that has it.

    Its connections send each write at once. The kernel would wait for the receiver's word on the
    piece before, up to 40 ms, and asyncio forbids that only on sockets that were made with a protocol.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, where = found[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # connections inherit it
            listening.bind(where)
            listening.listen(backlog)
        except OSError:
            listening.close()
            raise
        return listening
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise PortTaken(
            f"port {port} of {host} is taken by {_holder(port)}: stop that, or choose another port "
            f"(0 stands for a free one)"
        ) from None


def _holder(port: int) -> str:
    """The process that listens on a port, as far as this user may see."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port)}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if sockets.intersection(_opened(pid)):
                return f"process {pid} ({_command(pid)})"
        except OSError:
            continue  # it ended meanwhile, or is not ours to look at
    return "another process"


def _opened(pid: int) -> Iterator[str]:
    """The open files of a process; descriptors come and go meanwhile, as that of the listing does."""
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{descriptor}")


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table, encoding="ascii") as lines:
                rows = [line.split() for line in lines][1:]
        except OSError:
            continue
        found |= {row[9] for row in rows if row[3] == _LISTENS and int(row[1].rpartition(":")[2], 16) == port}
    return found


def _command(pid: int) -> str:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read(4096).rstrip(b"\0").replace(b"\0", b" ").decode(errors="replace")
    return words if len(words) <= 80 else f"{words[:79]}…"
