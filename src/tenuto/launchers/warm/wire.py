"""Messages between a launcher and its warm parent: one packet each, JSON, with descriptors beside it.
Knows nothing of what they mean. Kept free of `socket`, whose import a job would pay for.
"""

from __future__ import annotations

import os
from _socket import MSG_CMSG_CLOEXEC, MSG_CTRUNC, SCM_RIGHTS, SOL_SOCKET, socket
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from tenuto.workspace.json_bytes import from_json, to_json

MOST_DESCRIPTORS = 250
"""The kernel passes 253 at once."""
LARGEST = 64 * 1024
"""Bytes of a packet; what does not fit must go another way."""
_ANCILLARY = 16 + 4 * (MOST_DESCRIPTORS + 3)


class MessageTooLong(Exception):
    """It does not fit into a packet; nothing was sent."""


class Received(NamedTuple):
    content: dict[str, Any]
    descriptors: list[int]
    cut: bool
    """This process has no room for the descriptors that came, so some are missing."""


def send(to: socket, content: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Raises `BlockingIOError` if the other end does not keep up, `MessageTooLong` for a text too long."""
    data = to_json(content)
    if len(data) > LARGEST:  # the kernel takes more, and `receive` would cut it
        raise MessageTooLong
    beside = [(SOL_SOCKET, SCM_RIGHTS, array("i", descriptors).tobytes())] if descriptors else []
    to.sendmsg([data], beside)


def receive(at: socket) -> Received | None:
    """The next message; None if the other end is gone."""
    while True:
        try:
            data, beside, flags, _ = at.recvmsg(LARGEST, _ANCILLARY, MSG_CMSG_CLOEXEC)
            break
        except ConnectionResetError:
            continue  # it ended with messages unread; its earlier words are still to be had
    descriptors = array("i")
    for level, kind, content in beside:
        if (level, kind) == (SOL_SOCKET, SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    if not data:
        return None
    return Received(from_json(data), descriptors.tolist(), bool(flags & MSG_CTRUNC))


def close_all(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.close(fd)
