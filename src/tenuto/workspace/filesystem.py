"""The kind of file system that a path lies on, as the kernel names it (statfs); an adapter.
Decides nothing: the caller chooses what to do where another machine may change files unheard.
"""

from __future__ import annotations

import os

from tenuto.light import ctypes, struct

_REMOTE = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x65735546: "fuse",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x00C36400: "ceph",
    0x01021997: "9p",
    0x5346414F: "afs",
    0x6B414653: "kafs",
    0x73757245: "coda",
    0x01161970: "gfs2",
    0x7461636F: "ocfs2",
    0xAAD7AAEA: "panfs",
}
"""Where a change made on another machine, or below, is not told by inotify here."""
_BUFFER = 512


def remote_kind(path: str) -> str | None:
    """The kind of a file system that inotify does not hear all of; None for a disk of this machine."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "statfs"):
        return None
    found = ctypes.create_string_buffer(_BUFFER)
    if libc.statfs(os.fsencode(path), found) != 0:
        return None
    (magic,) = struct.unpack_from("l", found.raw)
    return _REMOTE.get(magic & 0xFFFF_FFFF)
